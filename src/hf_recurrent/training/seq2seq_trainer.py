"""`Trainer` for sources and targets: losses weighted by tokens, batches by tokens, the best checkpoints kept."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Seq2SeqTrainer, TrainerState
from transformers.utils import ModelOutput

from .metrics import HALTING_COLUMNS, IGNORED, mean_per_example, target_statistics
from .selection import best_checkpoints
from .seq2seq_data import pair_token_counts
from .trainer import RecurrentTrainer, auxiliary_losses


class RecurrentSeq2SeqTrainer(RecurrentTrainer, Seq2SeqTrainer):
    """Trains encoder-decoder models that halt.

    - A loss is the mean over the tokens of an optimiser step, however these are shared out to processes and
      accumulated batches; auxiliary losses are those of each of these, with the weight of its tokens.
    - `args.max_tokens` makes batches by a `TokenBatchSampler`.
    - Evaluations report the `target_statistics` of one pass with the true targets.
    - `args.average_checkpoints` keeps so many of the best checkpoints beside the last ones.
    - Logs mean executed and expected depth of both stacks, and the auxiliary losses.
    """

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        if not batches:
            return batches, None
        tokens = sum((batch["labels"] != IGNORED).sum() for batch in batches).to(device)
        return batches, self.accelerator.gather(tokens[None]).sum()

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        if num_items_in_batch is not None and model.training:
            fraction = (inputs["labels"] != IGNORED).sum() / num_items_in_batch
            # the step divides by the accumulated batches, and gradients are means over processes
            loss = loss * fraction * self.current_gradient_accumulation_steps * self.args.world_size
        return (loss, outputs) if return_outputs else loss

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
