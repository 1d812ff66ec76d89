"""The campaign of invariances: random models of every architecture, random batches, and what must change no result.

    cd tests; python -m fuzz.invariances --seconds 600 --seed 0

Draws a model and a batch, tries a random choice of properties on them, and goes on to the next. A case is a comparison
of two results. Each fault is shown with its case.
"""

import collections
import dataclasses
import math
import random
import sys
from collections.abc import Sequence
from typing import NamedTuple

import torch

from fuzz.campaigns import Findings, main
from fuzz.comparing.agreement import Bench, Verdict, judged
from fuzz.comparing.batches import drawn_rows
from fuzz.comparing.cases import Case
from fuzz.comparing.configs import WHOLE, drawn_fields, drawn_options
from fuzz.comparing.properties import FIRST_CALL, PROPERTIES
from hf_recurrent import ARCHITECTURES

# heads for tokens, spans and choices have tests of their own
SUFFIXES = ("Model", "ForSequenceClassification", "ForCausalLM", "ForConditionalGeneration")
HEADS = [
    (name, head)
    for name, architecture in ARCHITECTURES.items()
    for head in architecture.heads.values()
    if head in SUFFIXES
]
# fields that a config allows together, but not with every head
EXIT_FIELDS = {"exit_criterion", "exit_threshold", "exit_patience"}
SMALLEST_VOCABULARY = WHOLE["vocab_size"][0]
KINDS = ("same", "rounded", "undecided", "different", "failed")
MOST_FAULTS = 5


class Fault(NamedTuple):
    case: Case
    property: str
    verdict: Verdict

    def __str__(self) -> str:
        """The fault and its case, of which `judged(Bench(case), property, ...)` shows it again."""
        return f"{self.property}: {self.verdict.message}\n    {self.case}"


@dataclasses.dataclass
class Comparisons(Findings):
    """Comparisons of each property by the kind of their verdict, and what they were of.

    Attributes:
        architectures: models of each.
        heads: models with each, "pairs" for classifiers of sentences that are encoded apart.
        criteria: models that stop units, by what stops them.
        depths: models that stop units at all, by whether units of a batch stopped at "one" depth or "several".
        refused: drawn config fields and call options that were not allowed, by name.
    """

    columns: Sequence[str] = KINDS
    architectures: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    heads: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    criteria: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    depths: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    refused: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def described(self) -> list[str]:
        return [
            f"models: {listed(self.architectures)}",
            f"heads: {listed(self.heads)}",
            f"stopped by: {listed(self.criteria)}",
            f"depths at which units of a batch stopped: {listed(self.depths)}",
            f"{self.refused.total()} drawn fields and options were refused and taken back",
        ]


def listed(counter: collections.Counter) -> str:
    return ", ".join(f"{name} {number}" for name, number in counter.items())


def drawn_case(rng: random.Random, found: Comparisons, architecture: str, head: str) -> Case:
    """A random case of an architecture and a head."""
    fixed = {"is_causal": True} if head == "ForCausalLM" else {}
    if architecture == "sut":
        fixed["is_encoder_decoder"] = head == "ForConditionalGeneration" or (head == "Model" and rng.random() < 0.3)
        # batches need one, which the smallest vocabulary has
        fixed["decoder_start_token_id"] = rng.randrange(SMALLEST_VOCABULARY)
    config_class = ARCHITECTURES[architecture].config_class
    fields = drawn_fields(config_class, rng, found.refused, fixed)
    if head == "ForSequenceClassification":
        number = rng.randint(1, 4)
        problems = ("multi_label_classification", "single_label_classification") if number > 1 else ("regression",)
        fields |= {"num_labels": number, "problem_type": rng.choice((None, *problems))}
    config = config_class(**fields)
    return Case(
        architecture,
        head,
        fields,
        drawn_options(config, rng),
        drawn_rows(head, config, rng),
        spread=rng.choice((0.1, 0.3, 0.6)),
        precise=rng.random() < 0.5,
        seed=rng.randrange(10**6),
        layout=rng.randrange(10**6),
    )


def usable_bench(case: Case, found: Comparisons) -> Bench:
    """The case's bench, without ways to stop that its model refuses."""
    bench = Bench(case)
    allowed = {**case.options, **{name: value for name, value in case.fields.items() if name in EXIT_FIELDS}}
    try:
        (comparison,) = bench.comparisons(FIRST_CALL)
        result = bench.result(comparison.actual)
    except Exception as error:
        if not isinstance(error, ValueError) or not any(name in str(error) for name in allowed):
            return bench
        found.refused.update(allowed.keys())
        fields = {name: value for name, value in case.fields.items() if name not in EXIT_FIELDS}
        return usable_bench(case.but(options={}, fields=fields), found)
    steps = [part["ponder_steps"] for row in result.rows.values() for part in row if "ponder_steps" in part]
    criterion = case.options.get("exit_criterion") or getattr(bench.config, "exit_criterion", "learned")
    if steps and (criterion != "learned" or bench.config.halting != "none"):
        found.criteria[criterion] += 1
        found.depths["several" if len(torch.cat([each.flatten() for each in steps]).unique()) > 1 else "one"] += 1
    return bench


def try_case(case: Case, found: Comparisons, rng: random.Random, properties: Sequence[str]) -> None:
    """Judge the properties, each in its share of cases, up to the first with a fault."""
    found.architectures[case.architecture] += 1
    found.heads["pairs" if case.siamese else case.head] += 1
    bench = usable_bench(case, found)
    precise: list[Bench] = []

    def in_float64() -> Bench:
        if not precise:
            precise.append(Bench(bench.case.but(precise=True)))
        return precise[0]

    before = len(found.faults)
    for name in (FIRST_CALL, *properties):
        if rng.random() > PROPERTIES[name].share:
            continue
        for verdict in judged(bench, name, in_float64):
            if verdict.kind != "empty":
                found.counts[name][verdict.kind] += 1
            if verdict.is_fault:
                found.faults.append(Fault(bench.case, name, verdict))
        if len(found.faults) > before:
            return


def campaign(
    *,
    seconds: float = math.inf,
    count: float = math.inf,
    seed: int = 0,
    heads: Sequence[tuple[str, str]] = tuple(HEADS),
    properties: Sequence[str] = tuple(PROPERTIES)[1:],
    faults: int = MOST_FAULTS,
) -> Comparisons:
    """Comparisons of random models.

    Args:
        heads: architectures and suffixes of classes, tried in turn.
        properties: names of those that are tried.
        faults: how many to find before the end.
    """
    found, rng = Comparisons(), random.Random(seed)
    for name in properties:
        # one that is never tried is shown, too
        found.counts[name].update()
    for number in found.trials(seconds, count, faults):
        architecture, head = heads[number % len(heads)]
        try_case(drawn_case(rng, found, architecture, head), found, rng, properties)
    found.notes += found.described()
    return found


if __name__ == "__main__":
    sys.exit(main(campaign, __doc__))
