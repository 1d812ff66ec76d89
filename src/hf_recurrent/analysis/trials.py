"""The answers of a model at many settings, the work that it does, and the time that it takes at some of them.

Shapes: B examples of a batch, U halting units of an example (tokens, chunks, sentences, or the example itself), L steps
of full depth.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import torch

from ..models.config.exit_criteria import FIXED, LEARNED
from ..models.ops.losses import NO_TARGET
from .answers import Batch, answers, join_batches, mean_steps, stack_output, token_mask
from .depth_record import DepthRecord, in_record
from .evaluate import INPUTS, each_batch, median_seconds, of_tokens, progress_bar, timed_in_turn
from .exit_settings import Setting
from .halting import stack_depths

# numbers in the states that a record of a batch may hold
MOST_NUMBERS = 1 << 26
# examples and batches of each size that are timed, of all lengths
TIMED_EXAMPLES, TIMED_BATCHES = 256, 32
# a smaller difference of relative times is noise
SMALLEST_DIFFERENCE = 0.01


class Trials:
    """A model at several settings.

    Args:
        model: a task model that iterates one block.
        full: the setting of full depth.
        labelled: whether labels of batches are true, or only mark what is compared.
    """

    def __init__(self, model: Any, full: Setting, labelled: bool):
        self.model, self.full, self.labelled = model, full, labelled

    def fields(self, setting: Setting) -> dict[str, Any]:
        """Config fields of a run at a setting."""
        return {"num_hidden_layers": self.full.max_depth, **setting.fields}

    def answers(
        self, batches: Sequence[Batch], settings: Iterable[Setting], progress: bool = False
    ) -> dict[Setting, pd.DataFrame]:
        """Frames with a row for each example: the columns of `answers`, without labels `answer` and `confidence` alone,
        and `steps`, those of the example: the mean over its units or, where each token is answered for, over those of
        its labelled tokens.

        One pass answers at all settings that are `in_record`, and each other setting takes a pass of its own.
        """
        settings, found = list(settings), {}
        recorded = [setting for setting in settings if in_record(self.model, setting)]
        if recorded:
            of_token = self.model.config.hidden_size * (self.full.max_depth + 1)

            def of_batch(batch: Batch) -> list[dict[Setting, dict[str, np.ndarray]]]:
                most = MOST_NUMBERS // (batch.inputs["input_ids"][0].numel() * of_token)
                return [self._recorded(piece, recorded) for piece in pieces(batch, max(1, most))]

            bar = "recording every step" if progress else None
            parts = list(chain(*each_batch(self.model, batches, of_batch, self.full.fields, bar)))
            found = {setting: pd.DataFrame(join_batches(part[setting] for part in parts)) for setting in recorded}
        rest = [setting for setting in settings if setting not in found]
        bar = progress_bar(rest, progress and bool(rest), "evaluating", "setting")
        return {**found, **{setting: self.run(batches, setting) for setting in bar}}

    def run(self, batches: Sequence[Batch], setting: Setting) -> pd.DataFrame:
        """As `answers`, by a pass at the setting."""
        config = self.model.config

        def of_batch(batch: Batch) -> dict[str, np.ndarray]:
            output = self.model(**batch.inputs)
            if batch.by_token:
                steps = steps_of_labelled(self.model, output, batch)
            else:
                steps = mean_depths(executed_work(output, batch.inputs, config), stack_depths(config))
            return {**self._answered(output, batch), "steps": steps}

        return pd.DataFrame(join_batches(each_batch(self.model, batches, of_batch, self.fields(setting))))

    def times(
        self,
        batches: Sequence[Batch],
        settings: Sequence[Setting],
        sizes: Sequence[int],
        repeats: int,
        progress: bool = False,
    ) -> dict[Setting, dict[str, Any]]:
        """The time of some settings compared with full depth's, which has a time, too.

        Of each setting `times`, size of batches -> relative time; the mean `relative_time`; and its `noise`, by which
        it differs between repeats.
        """
        fields = {setting: self.fields(setting) for setting in (self.full, *settings)}
        timed = {
            size: timed_in_turn(self.model, fields, timed_batches(batches, size), repeats, progress=progress)
            for size in sizes
        }
        found = {}
        for setting in fields:
            pairs = {str(size): (own[setting][0], own[self.full][0]) for size, own in timed.items()}
            times = {size: median_seconds(own) / median_seconds(whole) for size, (own, whole) in pairs.items()}
            in_repeats = np.mean([own.sum(0) / whole.sum(0) for own, whole in pairs.values()], 0)
            noise = max(SMALLEST_DIFFERENCE, float(np.ptp(in_repeats)) / 2)
            found[setting] = {"times": times, "relative_time": float(np.mean([*times.values()])), "noise": noise}
        return found

    def _answered(self, output: Any, batch: Batch) -> dict[str, np.ndarray]:
        found = answers(output, batch, self.model.config)
        return found if self.labelled else {name: found[name] for name in ("answer", "confidence")}

    def _recorded(self, batch: Batch, settings: Sequence[Setting]) -> dict[Setting, dict[str, np.ndarray]]:
        """Columns (B,) at each setting, from one pass."""
        criteria = sorted({setting.criterion for setting in settings} - {FIXED, LEARNED})
        record, size = DepthRecord(self.model, batch.inputs, criteria), len(batch.labels)
        taken = np.stack([record.steps_at(setting).cpu().numpy() for setting in settings])

        def answered_after(steps: Any) -> dict[str, np.ndarray]:
            output = record.stopped_after(steps)
            return {**self._answered(output, batch), "steps": mean_steps(output.ponder_steps, size)}

        if taken.shape[1] > size:
            # several sentences or choices are rows of one example
            different, places = np.unique(taken, axis=0, return_inverse=True)
            found = [answered_after(steps) for steps in different]
            return {setting: found[place] for setting, place in zip(settings, places.flatten(), strict=True)}
        depths, places = np.unique(taken, return_inverse=True)
        found = [answered_after(steps) for steps in depths]
        columns = {name: np.stack([own[name] for own in found]) for name in found[0]}
        places = places.reshape(taken.shape)
        return {
            setting: {name: values[own, np.arange(size)] for name, values in columns.items()}
            for setting, own in zip(settings, places, strict=True)
        }


def pieces(batch: Batch, size: int) -> list[Batch]:
    """A batch in parts of at most so many examples."""
    parts = (slice(start, start + size) for start in range(0, len(batch.labels), size))
    return [
        Batch({name: values[part] for name, values in batch.inputs.items()}, batch.labels[part], batch.by_token)
        for part in parts
    ]


def timed_batches(batches: Sequence[Batch], size: int) -> list[Batch]:
    """Batches of at most `size` examples, without padding that all of them have, of all lengths."""
    parts = [part for batch in batches for part in pieces(batch, size)]
    number = min(TIMED_BATCHES, max(1, TIMED_EXAMPLES // size), len(parts))
    found = []
    for place in np.linspace(0, len(parts) - 1, number).round().astype(int):
        inputs = parts[place].inputs
        if "attention_mask" in inputs:
            used = inputs["attention_mask"].flatten(0, -2).any(0).nonzero()
            columns = slice(int(used.min()), int(used.max()) + 1)
            inputs = inputs | {name: values[..., columns] for name, values in inputs.items() if name in INPUTS}
        found.append(parts[place]._replace(inputs=inputs))
    return found


def steps_of_labelled(model: Any, output: Any, batch: Batch) -> np.ndarray:
    """Mean depth steps (B,) of the labelled tokens of each sequence: others, such as those around it, answer nothing.

    Args:
        output: of a model that halts, for the inputs of `batch`.
    """
    chosen, steps = batch.labels != NO_TARGET, model.config.num_hidden_layers
    if model.config.capabilities.stops_when_halted:
        steps = of_tokens(model, output, "ponder_steps", token_mask(batch.inputs)).cpu().numpy()
    return (steps * chosen).sum(1) / chosen.sum(1)


def executed_work(output: Any, inputs: Mapping[str, torch.Tensor], config: Any) -> dict[str, np.ndarray]:
    """Of each stack, as columns (B,): `calls` of the block, `units` that halt, and the mean `depth` of these."""
    columns = {}
    for stack, max_depth in stack_depths(config).items():
        steps = stack_output(output, stack, "ponder_steps").cpu().numpy()
        steps = steps.reshape(len(steps), -1)
        types = inputs.get("token_type_ids")
        of_pair = types is not None and config.capabilities.siamese and types.shape == steps.shape
        calls, units = executed_calls(steps, config, max_depth, types.cpu().numpy() if of_pair else None)
        taken = np.where(steps >= 0, steps if config.capabilities.stops_when_halted else max_depth, 0)
        depth = taken.sum(1) / np.maximum(units, 1)
        columns |= {f"{stack}_calls": calls, f"{stack}_units": units, f"{stack}_depth": depth}
    return columns


def executed_calls(
    steps: np.ndarray, config: Any, max_depth: int, sentences: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Block calls of each example, and the number of its units: two (B,).

    A call is one unit through the block once, where units that have halted are left out (`compaction`). A unit that
    stops after k steps takes k calls; one more where halting is decided from the block's output for the unit
    (`transition_aware`), unless no step was left. Under adaptive computation time the states of halted tokens go on
    changing for others to attend to, so that all take as many as the deepest.

    Args:
        steps: (B, U) accepted steps, negative where there is no unit.
        max_depth: L.
        sentences: (B, U) number of each token's sentence, where the sentences of a pair are encoded apart.
    """
    live = steps >= 0
    units = live.sum(1)
    if not config.capabilities.spares_steps:
        return units * max_depth, units
    if config.capabilities.synchronous:
        groups = np.zeros_like(steps) if sentences is None else sentences
        members = [live & (groups == group) for group in np.unique(groups[live])]
        return sum(own.sum(1) * np.where(own, steps, 0).max(1) for own in members), units
    taken = np.minimum(steps + config.capabilities.computes_candidate, max_depth)
    return np.where(live, taken, 0).sum(1), units


def mean_depths(work: Mapping[str, Any], stacks: Iterable[str]) -> Any:
    """Depth steps (N,) of each example, from `executed_work`: the mean over the units of all `stacks`."""
    stacks = list(stacks)
    depth = sum(work[f"{stack}_depth"] * work[f"{stack}_units"] for stack in stacks)
    return depth / sum(work[f"{stack}_units"] for stack in stacks)
