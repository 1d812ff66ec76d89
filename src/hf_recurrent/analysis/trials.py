"""The answers of a model at many settings, and the time that it takes at some of them.

Shapes: B examples of a batch, L steps of full depth.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import torch

from ..inference.modes import inference_mode
from ..models.common.exit_criteria import CRITERIA, FIXED, LEARNED, ExitRule
from .answers import answers
from .depth_record import DepthRecord, can_record, caps_depth, halts_rows, stops_rows
from .evaluate import INPUTS, answer_steps, each_batch
from .exit_settings import Setting
from .inference import Batch, Way, mean_steps, median_seconds, progress_bar, timed_in_turn
from .model_facts import stack_depths
from .sweep import depths, example_depths
from .tables import join_batches

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

    def in_record(self, setting: Setting) -> bool:
        """Whether a pass at full depth shows what the model would answer at a setting."""
        if not can_record(self.model):
            return False
        if setting.criterion == FIXED:
            return not caps_depth(self.model)
        return halts_rows(self.model) if setting.criterion == LEARNED else stops_rows(self.model, setting.criterion)

    def answers(
        self, batches: Sequence[Batch], settings: Iterable[Setting], progress: bool = False
    ) -> dict[Setting, pd.DataFrame]:
        """Frames with a row for each example: the columns of `answers`, without labels `answer` and `confidence` alone,
        and `steps`, those of the example: the mean over its units or, where each token is answered for, over those of
        its labelled tokens.

        One pass answers at all settings that are `in_record`, and each other setting takes a pass of its own.
        """
        settings = list(settings)
        recorded = [setting for setting in settings if self.in_record(setting)]
        found = {}
        if recorded:
            criteria = {setting.criterion for setting in recorded} - {FIXED, LEARNED}

            def of_batch(batch: Batch) -> list[dict[Setting, dict[str, np.ndarray]]]:
                return [self._recorded(piece, recorded, sorted(criteria)) for piece in self._pieces(batch)]

            bar = "recording every step" if progress else None
            parts = list(chain(*each_batch(self.model, batches, of_batch, self.full.fields, bar)))
            found = {setting: pd.DataFrame(join_batches(part[setting] for part in parts)) for setting in recorded}
        rest = [setting for setting in settings if setting not in found]
        bar = progress_bar(rest, progress and bool(rest), "evaluating", "setting")
        return {**found, **{setting: self.run(batches, setting) for setting in bar}}

    def run(self, batches: Sequence[Batch], setting: Setting) -> pd.DataFrame:
        """As `answers`, by a pass at the setting."""

        def of_batch(batch: Batch) -> dict[str, np.ndarray]:
            output, config = self.model(**batch.inputs), self.model.config
            if batch.by_token:
                steps = answer_steps(self.model, output, batch)
            else:
                steps = example_depths(depths(output, batch.inputs, config), stack_depths(config))
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

        Of each setting `times`, size of batches -> `seconds` of a pass and `relative_time`; the mean `relative_time`;
        and its `noise`, by which it differs between repeats.
        """
        ways = [self.full, *settings]
        seconds = {}
        for size in sizes:
            passes = {setting: Way(self.fields(setting), lambda batch: self.model(**batch)) for setting in ways}
            with inference_mode(self.model):
                timed = timed_in_turn(self.model, passes, timed_batches(batches, size), repeats, progress)
            seconds[size] = {setting: each.seconds for setting, each in timed.items()}
        found = {}
        for setting in ways:
            # of each size, in each repeat
            relative = np.array([seconds[size][setting].sum(0) / seconds[size][self.full].sum(0) for size in sizes])
            times = {}
            for size in sizes:
                own, whole = (median_seconds(seconds[size][key]) for key in (setting, self.full))
                times[str(size)] = {"seconds": own, "relative_time": own / whole}
            found[setting] = {
                "times": times,
                "relative_time": float(np.mean([each["relative_time"] for each in times.values()])),
                "noise": max(SMALLEST_DIFFERENCE, float(np.ptp(relative.mean(0))) / 2),
            }
        return found

    def _answered(self, output: Any, batch: Batch) -> dict[str, np.ndarray]:
        found = answers(output, batch, self.model.config)
        return found if self.labelled else {name: found[name] for name in ("answer", "confidence")}

    def _recorded(
        self, batch: Batch, settings: Sequence[Setting], criteria: Sequence[str]
    ) -> dict[Setting, dict[str, np.ndarray]]:
        """Columns (B,) at each setting, from one pass."""
        record = DepthRecord(self.model, batch.inputs, criteria)
        found: dict[Setting, dict[str, np.ndarray]] = {}
        by_depth = {record.most_steps: self._answered(record.output, batch)}
        for setting in settings:
            steps = self._steps(record, setting)
            if record.num_rows > len(batch.labels):
                output = record.stopped_after(steps)
                found[setting] = {
                    **self._answered(output, batch),
                    "steps": mean_steps(output.ponder_steps, len(batch.labels)),
                }
                continue
            # many settings stop a row after the same number of steps
            taken = steps.cpu().numpy()
            columns = {name: np.empty_like(values) for name, values in by_depth[record.most_steps].items()}
            for depth in np.unique(taken).tolist():
                if depth not in by_depth:
                    by_depth[depth] = self._answered(record.stopped_after(depth), batch)
                for name, values in columns.items():
                    values[taken == depth] = by_depth[depth][name][taken == depth]
            found[setting] = {**columns, "steps": taken.astype(float)}
        return found

    def _steps(self, record: DepthRecord, setting: Setting) -> torch.Tensor:
        if setting.criterion == FIXED:
            return record.fixed_steps(setting.max_depth)
        if setting.criterion == LEARNED:
            return record.steps_by_mass(setting.threshold)
        rule = CRITERIA[setting.criterion]
        return record.steps_by(ExitRule(rule, setting.threshold, setting.patience, self.model.config.min_depth))

    def _pieces(self, batch: Batch) -> Iterator[Batch]:
        """Parts of a batch whose records fit into memory."""
        config = self.model.config
        of_row = batch.inputs["input_ids"][0].numel() * config.hidden_size * (self.full.max_depth + 1)
        most = max(1, MOST_NUMBERS // of_row)
        for start in range(0, len(batch.labels), most):
            inputs = {name: values[start : start + most] for name, values in batch.inputs.items()}
            yield Batch(inputs, batch.labels[start : start + most], batch.by_token)


def timed_batches(batches: Sequence[Batch], size: int) -> list[dict[str, torch.Tensor]]:
    """Inputs of batches of at most `size` examples, without padding that all of them have, of all lengths."""
    starts = [(batch, start) for batch in batches for start in range(0, len(batch.labels), size)]
    number = min(TIMED_BATCHES, max(1, TIMED_EXAMPLES // size), len(starts))
    found = []
    for batch, start in (starts[place] for place in np.linspace(0, len(starts) - 1, number).round().astype(int)):
        inputs = {name: values[start : start + size] for name, values in batch.inputs.items()}
        if "attention_mask" in inputs:
            used = inputs["attention_mask"].flatten(0, -2).any(0).nonzero()
            columns = slice(int(used.min()), int(used.max()) + 1)
            inputs |= {name: values[..., columns] for name, values in inputs.items() if name in INPUTS}
        found.append(inputs)
    return found
