"""Tiny models of every architecture on the GPU: as on the CPU, and whatever a batch is cut into.

The models and their batches are those of the tests. In float32, with exact products, results and gradients are those
of the CPU within `TOLERANCE` of each tensor's largest value, or of one; in half precision, with halting that nothing
reaches, logits are those of float32 within `NEAR`.
"""

import contextlib
import copy
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from hf_recurrent.models.depth import layouts
from perf.core import Table

from . import imitation
from .checks import Check, Setting

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.batches import left_padded, rows, tokens_of
from support.compare import assert_same, compute, gradients
from support.families import (
    EXPECTED_VARIANTS,
    LANGUAGE_VARIANTS,
    USUAL_PRODUCTS_ON_ACCELERATOR,
    VARIANTS,
    Variant,
    make_batch,
    make_language_model,
    make_model,
    make_text,
)

Batch = dict[str, torch.Tensor]
TOLERANCE = 1e-4
# largest and mean difference of logits, relative to float32's, as the tests have them for the CPU
NEAR = {torch.bfloat16: (0.25, 0.05), torch.float16: (0.05, 0.01)}
# of rows or tokens whose number of steps rounding leaves alone
SAME_STEPS = 0.8


@contextlib.contextmanager
def placed(setting: Setting) -> Iterator[str]:
    """The device to put models and batches on: the GPU, or in a rehearsal an imitated one."""
    with imitation.installed() if setting.device == "cpu" else contextlib.nullcontext():
        yield "cuda"


def word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def on(device: str, batch: Batch) -> Batch:
    return {name: value.to(device) for name, value in batch.items()}


def back(values: Batch) -> Batch:
    return {name: None if value is None else value.cpu() for name, value in values.items()}


def largest_error(actual: Batch, expected: Batch) -> float:
    """Of all floating-point tensors, relative to each one's largest value or to one."""
    errors = [
        ((actual[name] - value).abs().max() / value.abs().max().clamp_min(1.0)).item()
        for name, value in expected.items()
        if value.is_floating_point() and value.numel()
    ]
    # of Python's `max` NaN may be no part
    return torch.tensor([0.0, *errors], dtype=torch.float64).max().item()


class Case:
    """A variant as a classifier or as a language model, with its batch on the CPU."""

    def __init__(self, variant: Variant, language: bool):
        self.variant, self.language = variant, language
        self.make = make_language_model if language else make_model
        self.batch = make_text(variant) if language else make_batch(variant)
        self.name = f"{variant.name} {'language model' if language else 'classifier'}"

    def as_on_the_cpu(self, device: str) -> Iterator[Table]:
        """Outputs and gradients; in other paddings, alone, in pieces and without compaction."""
        model, batch = self.make(self.variant), self.batch
        expected, expected_gradients = compute(model, self.variant, batch), gradients(model, batch)
        model = self.make(self.variant).to(device)
        assert model.device.type == "cuda"
        there = on(device, batch)
        found = {"GPU and CPU": (back(compute(model, self.variant, there)), expected)}
        found["gradients"] = (back(gradients(model, there)), expected_gradients)
        whole = compute(model, self.variant, there)
        if not self.language and self.variant.chunking != "balanced":
            found["padded left"] = (back(compute(model, self.variant, on(device, left_padded(batch)))), expected)
        if self.variant.halts:
            model.config.compaction = False
            found["without compaction"] = (compute(model, self.variant, there), whole)
            found["its gradients"] = (back(gradients(model, there)), expected_gradients)
            model.config.compaction = True
        with mock.patch.object(layouts, "MIN_PRODUCTS_ON_ACCELERATOR", USUAL_PRODUCTS_ON_ACCELERATOR):
            found["as small as it is"] = (compute(model, self.variant, there), whole)
        found["alone"] = self.alone(model, device, whole)
        if self.language and self.variant.chunking != "count":
            found["in pieces"] = self.in_pieces(model, there, whole)
        errors = {}
        for name, (actual, wanted) in found.items():
            wanted = {key: value for key, value in wanted.items() if value is not None}
            actual = {key: value for key, value in actual.items() if value is not None}
            assert_same(actual, wanted, TOLERANCE)
            errors[name] = largest_error(actual, wanted)
        yield Table("float32: largest error relative to the largest value", [{"model": self.name, **errors}])

    def alone(self, model: torch.nn.Module, device: str, whole: Batch) -> tuple[Batch, Batch]:
        names = [name for name, value in whole.items() if value is not None and "loss" not in name]
        found = [
            compute(model, self.variant, on(device, self.row(number)))
            for number in range(len(self.batch["attention_mask"]))
        ]
        return {name: torch.cat([row[name] for row in found]) for name in names}, {name: whole[name] for name in names}

    def row(self, number: int) -> Batch:
        """A sequence, of a text without its padding."""
        return tokens_of(self.batch, number) if self.language else rows(self.batch, slice(number, number + 1))

    def in_pieces(self, model: torch.nn.Module, batch: Batch, whole: Batch) -> tuple[Batch, Batch]:
        """Read with a cache: six tokens, then one by one."""
        cache, logits = None, []
        width = batch["input_ids"].shape[1]
        with torch.no_grad():
            for begin, end in [(0, 6), *((place, place + 1) for place in range(6, width))]:
                output = model(
                    batch["input_ids"][:, begin:end],
                    batch["attention_mask"][:, :end],
                    past_key_values=cache,
                    use_cache=True,
                    **self.types(batch, begin, end),
                )
                cache = output.past_key_values
                logits.append(output.logits)
        return {"logits": torch.cat(logits, 1)[batch["attention_mask"].bool()]}, {"logits": whole["logits"]}

    @staticmethod
    def types(batch: Batch, begin: int, end: int) -> Batch:
        return {"token_type_ids": batch["token_type_ids"][:, begin:end]} if "token_type_ids" in batch else {}

    def in_half(self, device: str, dtype: torch.dtype, autocasts: bool) -> Iterator[Table]:
        """Weights in half precision, and autocast over those of float32: near float32, and finite gradients."""
        auto_class = AutoModelForCausalLM if self.language else AutoModelForSequenceClassification
        model = self.make(self.variant)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            half = auto_class.from_pretrained(folder, dtype=dtype).eval()
        model, half, batch = model.to(device), half.to(device), on(device, self.batch)
        row = {"model": self.name, "dtype": word(dtype)}
        if self.variant.halts:
            row["same steps"] = self.same_steps(half, batch)
        for each in (model, half):
            halt_nothing(each, self.variant)
        expected = compute(model, self.variant, batch)["logits"]
        ways: dict[str, Callable] = {"weights": lambda: compute(half, self.variant, batch)["logits"]}
        if autocasts:
            ways["autocast"] = lambda: autocast_logits(model, self.variant, batch, dtype)
        for name, call in ways.items():
            actual = call()
            largest, mean = NEAR[dtype]
            row[f"{name}: largest"] = ((actual - expected).abs().max() / expected.abs().max()).item()
            row[f"{name}: mean"] = ((actual - expected).abs().mean() / expected.abs().mean()).item()
            assert row[f"{name}: largest"] < largest, row
            assert row[f"{name}: mean"] < mean, row
        assert all(gradient.isfinite().all() for gradient in gradients(half.train(), batch).values())
        yield Table("Half precision: errors of logits relative to float32", [row])

    def same_steps(self, half: torch.nn.Module, batch: Batch) -> float:
        """Share of units that halt alike with compaction and without; rounding may move one that is near a tie."""
        steps = []
        for compaction in (True, False):
            half.config.compaction = compaction
            computed = compute(half, self.variant, batch)
            assert computed["logits"].isfinite().all()
            steps.append(computed["ponder_steps"])
        half.config.compaction = True
        share = (steps[0] == steps[1]).float().mean().item()
        assert share >= SAME_STEPS, f"{share} of the units halt alike with compaction and without"
        return share


def halt_nothing(model: torch.nn.Module, variant: Variant) -> None:
    """Let rounding move no unit by a whole step."""
    if variant.halts:
        model.config.halting_threshold = 1.0
    if variant.act:
        # probabilities add up, so that they pass any threshold unless they are small
        torch.nn.init.constant_(model.model.halting_head.proj.bias, -9.0)
        torch.nn.init.zeros_(model.model.halting_head.proj.weight)


def switch_nothing(model: torch.nn.Module) -> None:
    """Let rounding switch no unit of a head's ReLU, whose gradient jumps at zero."""
    for name, parameter in model.named_parameters():
        if name.endswith("hidden.bias"):
            torch.nn.init.constant_(parameter, 8.0)


def autocast_logits(model: torch.nn.Module, variant: Variant, batch: Batch, dtype: torch.dtype) -> torch.Tensor:
    with torch.autocast("cuda", dtype):
        logits = compute(model, variant, batch)["logits"]
        loss = copy.copy(model)(**batch).loss
    loss.backward()
    grads = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
    broken = [name for name, grad in grads.items() if not grad.isfinite().all()]
    assert not broken, f"gradients under autocast are not finite: {', '.join(broken)}"
    return logits


def cases(toy: bool) -> list[Case]:
    """All variants; in a rehearsal those of the quick tier."""
    pairs = [(variant, False) for variant in (*VARIANTS, *EXPECTED_VARIANTS)]
    pairs += [(variant, True) for variant in LANGUAGE_VARIANTS]
    found = [Case(*pair) for pair in pairs if pair[0].core or not toy]
    # the quick tier's first
    return sorted(found, key=lambda case: not case.variant.core)


def models(setting: Setting) -> Iterator[Check]:
    def check(function: Callable, *arguments) -> list[Table]:
        with placed(setting) as device:
            return list(function(device, *arguments))

    found = cases(setting.toy)
    for case in found:
        yield Check(f"{case.name}, float32", lambda case=case: check(case.as_on_the_cpu))
    # autocast of an imitated device is that of none
    autocasts = setting.device != "cpu"
    for dtype in (torch.bfloat16, torch.float16):
        for case in found[:: 6 if setting.toy else 1]:
            yield Check(
                f"{case.name}, {word(dtype)}", lambda case=case, dtype=dtype: check(case.in_half, dtype, autocasts)
            )
