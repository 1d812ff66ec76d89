"""Passes as CUDA graphs, against the same passes launched one operator after another."""

import contextlib
import functools
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch

from hf_recurrent.deploy import GraphedModel
from hf_recurrent.deploy.cuda_graphs import ARCHITECTURES
from hf_recurrent.recipes import find_recipe
from hf_recurrent.training.cuda_graphs import TrainingGraphs
from hf_recurrent.training.recipes import read_mapping
from perf.core import MEBIBYTE, Table, measure, peak_bytes
from perf.models import build, infer, mixed_batch, tune_depth

from . import plan
from .checks import Check, Setting
from .correct import TOLERANCE, Batch, Case, halt_nothing, largest_error, on, switch_nothing
from .fast import halting_options, options_of
from .halting import LateCount

from support.compare import assert_same, results  # isort: skip - found by the import above
from support.families import LANGUAGE_VARIANTS, VARIANTS  # isort: skip
from support.graph_replay import without_gpu  # isort: skip

# recipes, with the tokens of their longest examples; the first is of CPU size, in batches of 512
TIMED = {
    "cpu/listops_depth_ndr": 48,
    "compositional_table_lookup_ndr": 16,
    "flip_flop_tlb": 512,
    "flip_flop_gut": 512,
    "flip_flop_ut": 512,
    "listops_gut": 112,
}
ROWS = {"cpu/listops_depth_ndr": 512}
# of bfloat16, with masks in the place of compaction, and other kernels
HALF_TOLERANCE = 0.05
# status of a process
BROKEN = 5


def replayed(setting: Setting) -> contextlib.AbstractContextManager:
    """Graphs of the GPU; in a rehearsal operators that are recorded."""
    return without_gpu(LateCount) if setting.device == "cpu" else contextlib.nullcontext()


def alone(call: Callable[[], list[Table]]) -> list[Table]:
    """A check, after whose failure the process ends: one whose capture failed is of no use."""
    try:
        return call()
    except ValueError:
        traceback.print_exc()
        sys.exit(BROKEN)


def graphs_of(model: torch.nn.Module, dtype: torch.dtype | None = None) -> TrainingGraphs:
    """The steps of a model, under autocast of a dtype."""

    def step(batch: Batch, depth: int | None) -> Batch:
        options = {} if depth is None else {"max_depth": depth}
        with torch.autocast("cuda", dtype) if dtype is not None else contextlib.nullcontext():
            output = model(**batch, **options)
        loss = output.loss if output.aux_loss is None or model.training else output.loss + output.aux_loss
        loss.backward()
        return {"loss": loss.detach()}

    return TrainingGraphs(step, model)


def learned(graphs: TrainingGraphs, model: torch.nn.Module, batch: Batch, eager: bool) -> Batch:
    """Loss and gradients of a batch."""
    model.zero_grad()
    with graphs.place.used() if eager else contextlib.nullcontext():
        found = graphs.step(batch, None) if eager else graphs.run(batch)
    return found | {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}


def step_is_eager(setting: Setting, case: Case, half: bool) -> list[Table]:
    """Training steps of batches one after the other, of which the graph knows the shape alone.

    Args:
        half: whether to train under autocast of bfloat16, whose rounding might move halting and switch a ReLU, so that
            nothing halts and heads are linear; rather than in float32 and evaluation mode.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
    with replayed(setting):
        model = case.make(case.variant).to(setting.device).train(half)
        if half:
            halt_nothing(model, case.variant)
            switch_nothing(model)
        graphs, error = graphs_of(model, torch.bfloat16 if half and setting.device != "cpu" else None), 0.0
        for places in range(4):
            batch = on(setting.device, {name: value.roll(places, 0) for name, value in case.batch.items()})
            expected, found = (learned(graphs, model, batch, eager) for eager in (True, False))
            error = max(error, largest_error(found, expected))
            assert error <= (HALF_TOLERANCE if half else TOLERANCE), error
        assert len(graphs.graphs) == 1
    row = {"model": case.name, "dtype": "bfloat16" if half else "float32", "error": error}
    return [Table("Steps as CUDA graphs: loss and gradients against eager", [row])]


def pass_is_eager(setting: Setting, case: Case) -> list[Table]:
    """Forward passes, each of which ends with the last unit that lives."""
    with replayed(setting):
        model = case.make(case.variant).to(setting.device).eval()
        graphed, error = GraphedModel(model), 0.0
        for places in range(4):
            batch = on(setting.device, {name: value.roll(places, 0) for name, value in case.batch.items()})
            expected, found = results(infer(model, batch), batch), results(graphed(**batch), batch)
            assert_same(found, expected, TOLERANCE)
            error = max(error, largest_error(found, expected))
    return [Table("Passes as CUDA graphs: outputs against eager", [{"model": case.name, "error": error}])]


def batch_of(model: torch.nn.Module, rows: int, length: int, device: str) -> Batch:
    """Random tokens with labels; every other row has padding at its end."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(4, model.config.vocab_size, (rows, length), generator=generator)
    mask = torch.ones_like(ids)
    mask[::2, length - 1 :] = 0
    labels = ids.masked_fill(mask == 0, -100) if hasattr(model, "lm_head") else ids[:, 0] % model.config.num_labels
    return on(device, {"input_ids": ids, "attention_mask": mask, "labels": labels})


def step_over_eager(setting: Setting, name: str) -> list[Table]:
    """Milliseconds of forward and backward passes in bfloat16, all steps taken, and memory."""
    recipe = read_mapping(find_recipe(name))
    shape = plan.model_of(recipe, plan.DEFAULT_VOCABULARY)
    rows = 2 if setting.toy else ROWS.get(name, recipe.get("per_device_train_batch_size", plan.DEFAULT_BATCH))
    length = 8 if setting.toy else TIMED[name]
    torch.backends.cuda.enable_cudnn_sdp(False)
    with replayed(setting):
        model = type(shape)(shape.config).to(setting.device).train()
        batch = batch_of(model, rows, length, setting.device)
        graphs = graphs_of(model, None if setting.device == "cpu" else torch.bfloat16)
        depth = model.config.num_hidden_layers if model.config.capabilities.shared_block else None

        def call(function: Callable[[Batch, int | None], Batch]) -> None:
            model.zero_grad()
            function(batch, depth)

        ways = {"eager": functools.partial(call, graphs.step), "graph": functools.partial(call, graphs.run)}
        peak = peak_bytes(ways["eager"], setting.device) / MEBIBYTE
        # the first is eager, the second captured
        for _ in range(2):
            ways["graph"]()
        timings = measure(ways, options_of(setting, "counted"))
    row: dict[str, Any] = {"recipe": name, "rows": rows, "tokens": length, "steps": model.config.num_hidden_layers}
    row |= {f"{way} ms": 1e3 * timings[way].median for way in ways}
    row |= {"graph over eager": timings["graph"].ratio(timings["eager"])[0], "eager peak MiB": peak}
    return [Table("Forward and backward passes of the recipes' sizes, as CUDA graphs", [row])]


def pass_over_eager(setting: Setting, architecture: str, rows: int) -> list[Table]:
    """Milliseconds of forward passes, halted at 0.3 of 20 steps on average and never."""
    args = halting_options(setting, 512)
    with replayed(setting):
        model = build(architecture, args).to(setting.device)
        batch = mixed_batch(args, rows, 8 if setting.toy else 64)
        share = tune_depth(model, batch, 0.4 if setting.toy else 0.3)
        halted, whole = GraphedModel(model), GraphedModel(model, halting_threshold=1.0)
        ways = {
            "eager": lambda: infer(model, batch),
            "graph": lambda: halted(**batch),
            "all steps": lambda: whole(**batch),
        }
        for _ in range(2):
            for way in ways.values():
                way()
        timings = measure(ways, args)
    row = {"model": architecture, "rows": rows, "r": share, **{f"{way} ms": 1e3 * timings[way].median for way in ways}}
    row |= {"graph over eager": timings["graph"].ratio(timings["eager"])[0]}
    row |= {"graph over all steps": timings["graph"].ratio(timings["all steps"])[0]}
    return [Table("Halted forward passes as CUDA graphs, width 512", [row])]


def checks(setting: Setting) -> Iterator[Check]:
    for language, variants in ((False, VARIANTS), (True, LANGUAGE_VARIANTS)):
        chosen = [each for each in variants if each.core and each.architecture in ARCHITECTURES]
        for variant in chosen[:: 4 if setting.toy else 1]:
            case = Case(variant, language)
            ways = {
                "step": functools.partial(step_is_eager, setting, case, False),
                "half step": functools.partial(step_is_eager, setting, case, True),
                "pass": functools.partial(pass_is_eager, setting, case),
            }
            for name, check in ways.items():
                yield Check(f"{name} of {case.name}", functools.partial(alone, check))
    for architecture in ("gut", "ut"):
        for rows in (2,) if setting.toy else (1, 32, 128):
            check = functools.partial(pass_over_eager, setting, architecture, rows)
            yield Check(f"halted passes of {architecture}, {rows} rows", functools.partial(alone, check))
    for name in list(TIMED)[:1] if setting.toy else TIMED:
        check = functools.partial(step_over_eager, setting, name)
        yield Check(f"steps of {name}", functools.partial(alone, check))
