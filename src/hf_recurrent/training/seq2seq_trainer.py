"""`Trainer` for sources and targets: batches by tokens, the best checkpoints kept."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Seq2SeqTrainer, TrainerState
from transformers.utils import ModelOutput

from .metrics import HALTING_COLUMNS, mean_per_example, target_statistics
from .selection import best_checkpoints
from .seq2seq_data import pair_token_counts
from .trainer import RecurrentTrainer, auxiliary_losses


class RecurrentSeq2SeqTrainer(RecurrentTrainer, Seq2SeqTrainer):
    """Trains encoder-decoder models that halt.

    - `args.max_tokens` makes batches by a `TokenBatchSampler`.
    - Evaluations report the `target_statistics` of one pass with the true targets.
    - `args.average_checkpoints` keeps so many of the best checkpoints beside the last ones.
    - Logs mean executed and expected depth of both stacks, and the auxiliary losses.
    """

    def statistics_of(self, outputs: ModelOutput) -> dict[str, torch.Tensor]:
        values = auxiliary_losses(outputs)
        for name in HALTING_COLUMNS:
            if outputs.get(name) is not None:
                values[name] = mean_per_example(outputs[name].detach()).float().mean()
        return values

    def token_limit(self) -> tuple[str, int | None]:
        return "max_tokens", self.args.max_tokens

    def computed_tokens(self, examples) -> np.ndarray:
        return pair_token_counts(examples)

    def evaluation_loop(self, *args: Any, **kwargs: Any):
        # Seq2SeqTrainer would count examples twice that fill up the last batch of several processes
        self.gather_function = self.accelerator.gather_for_metrics
        return super().evaluation_loop(*args, **kwargs)

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None, **kwargs):
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            loss, outputs = self.compute_loss(model, {**inputs, **self.evaluation_options()}, return_outputs=True)
        if prediction_loss_only:
            return loss.detach(), None, None
        return loss.detach(), target_statistics(outputs, inputs["labels"]), inputs["labels"]

    def checkpoints_to_keep(self, state: TrainerState, saved: list[Path]) -> list[Path]:
        if self.args.average_checkpoints is None:
            return super().checkpoints_to_keep(state, saved)
        last = saved if self.checkpoint_limit is None else saved[: max(self.checkpoint_limit, 1)]
        return [*last, *best_checkpoints(state, self.args)]
