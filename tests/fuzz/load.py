"""The campaign of load: threads that call one model at once, each of which gets what it gets alone.

cd tests; python -m fuzz.load --seconds 600 --seed 0
"""

import copy
import functools
import math
import random
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    PreTrainedModel,
)

from fuzz.campaigns import Findings, campaign_of, main
from hf_recurrent.models.common.exit_criteria import CRITERIA, LEARNED
from support.families import (
    LANGUAGE_VARIANTS,
    VARIANTS,
    Variant,
    make_batch,
    make_config,
    make_model,
    make_text,
)

TWO_STACKS = Variant("sut_two_stacks", "sut", {"is_encoder_decoder": True, "pooling": "end"})
MODELS = (
    *((AutoModelForSequenceClassification, variant) for variant in VARIANTS),
    *((AutoModelForCausalLM, variant) for variant in LANGUAGE_VARIANTS),
    (AutoModelForSeq2SeqLM, TWO_STACKS),
)
# relative to the largest value of a result: of the same computation, elsewhere in memory
TOLERANCE = 1e-4
# how often threads take turns, in seconds
TURNS = 1e-5
COMPARED = ("loss", "logits", "ponder_steps", "halting_probabilities", "encoder_ponder_steps", "sequences")

Result = dict[str, torch.Tensor] | str


class Call(NamedTuple):
    """A call of a model: of its method `generate`, or its forward pass."""

    generates: bool
    batch: dict[str, torch.Tensor]
    options: dict[str, Any]

    def of(self, model: PreTrainedModel) -> Result:
        """What the model answers; the message where it refuses the options."""
        ways = {"return_dict_in_generate": True, "output_logits": True, "max_new_tokens": 4, "do_sample": False}
        try:
            with torch.no_grad():
                if not self.generates:
                    output = model(**self.batch, **self.options)
                else:
                    output = model.generate(**self.batch, **self.options, **ways)
        except ValueError as error:
            return str(error)
        found = {name: output[name] for name in COMPARED if output.get(name) is not None}
        if self.generates:
            found["logits"] = torch.stack(output.logits)
        return found


@functools.cache
def prototype(head: type, variant: Variant) -> PreTrainedModel:
    if head is not AutoModelForSeq2SeqLM:
        return make_model(variant, head)
    torch.manual_seed(0)
    model = head.from_config(make_config(variant)).eval()
    model.generation_config.eos_token_id = None
    return model


def drawn_options(rng: random.Random, variant: Variant) -> dict[str, Any]:
    """When units stop, as arguments of a call; models of fixed layers refuse nearly all."""
    options: dict[str, Any] = {}
    if variant.fixed_layers and rng.random() < 0.8:
        return options
    criterion = rng.choice((None, LEARNED, *CRITERIA))
    if criterion is not None:
        options["exit_criterion"] = criterion
    if criterion in CRITERIA and CRITERIA[criterion].default_threshold is not None:
        options["exit_threshold"] = rng.choice((None, round(rng.uniform(0.01, 0.9), 3)))
    if rng.random() < 0.3:
        options["max_steps"] = rng.randint(1, 6)
    if rng.random() < 0.3:
        options["halting_threshold"] = round(rng.uniform(0.3, 0.99), 3)
    return options


def drawn_call(rng: random.Random, head: type, variant: Variant) -> Call:
    seed, generates = rng.randrange(10**6), head is not AutoModelForSequenceClassification and rng.random() < 0.5
    if head is AutoModelForSequenceClassification:
        batch = make_batch(variant, rows=rng.randint(1, 6), length=rng.randint(2, 12), seed=seed)
    else:
        batch = make_text(variant, length=rng.randint(6, 14), seed=seed)
    if generates:
        del batch["labels"]
    return Call(generates, batch, drawn_options(rng, variant))


def at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    """Results of calls that begin together, each in a thread of its own; an error where there was one."""
    together = threading.Barrier(len(calls))

    def answer(call: Callable[[], Any]) -> Any:
        together.wait()
        try:
            return call()
        except Exception as error:
            return error

    turns = sys.getswitchinterval()
    sys.setswitchinterval(TURNS)
    try:
        with ThreadPoolExecutor(len(calls)) as pool:
            return list(pool.map(answer, calls))
    finally:
        sys.setswitchinterval(turns)


def disagreement(actual: Result | Exception, expected: Result) -> str | None:
    """What differs between two results."""
    if not (isinstance(actual, dict) and isinstance(expected, dict)):
        return None if actual == expected else f"{actual!r} instead of {expected!r}"
    if actual.keys() != expected.keys():
        return f"{sorted(actual)} instead of {sorted(expected)}"
    for name, value in expected.items():
        if actual[name].shape != value.shape:
            return f"{name} of shape {tuple(actual[name].shape)} instead of {tuple(value.shape)}"
        gap = (actual[name].double() - value.double()).abs().max().item()
        if gap > TOLERANCE * max(1.0, value.double().abs().max().item()) * value.is_floating_point():
            return f"{name} differs by {gap:.2g}"
    return None


def trial(rng: random.Random, threads: int = 64, models: tuple = MODELS) -> tuple[str, list[str]]:
    """A model that threads call at once, and once more when they have ended, against a copy that is called alone."""
    head, variant = rng.choice(models)
    model = copy.deepcopy(prototype(head, variant))
    if hasattr(model.config, "compaction"):
        model.config.compaction = rng.random() < 0.8
    alone = copy.deepcopy(model)
    calls = [drawn_call(rng, head, variant) for _ in range(threads)]
    expected = [call.of(alone) for call in calls]
    actual = at_once([functools.partial(call.of, model) for call in calls])
    # the first call of all shows what is left behind
    compared = [*zip(calls, actual, expected, strict=True), (calls[0], calls[0].of(model), expected[0])]
    found = [(call, disagreement(result, wanted)) for call, result, wanted in compared]
    faults = [f"{'generate' if call.generates else 'forward'}, {call.options}: {each}" for call, each in found if each]
    return f"{type(model).__name__} {variant.name}", faults


def campaign(*, seconds: float = math.inf, count: float = math.inf, seed: int = 0) -> Findings:
    """Trials for so long, or so many of them -> what was found."""
    return campaign_of(trial, seconds, count, seed)


if __name__ == "__main__":
    sys.exit(main(campaign, __doc__))
