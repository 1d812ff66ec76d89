"""What `Trainer` reports at an evaluation, from what the models return."""

import numpy as np
import torch
from transformers import EvalPrediction

from ..metrics.functional import accuracy, last_read_accuracy

IGNORED = -100


def mean_steps(ponder_steps: torch.Tensor) -> torch.Tensor:
    """Mean over the batch's halting units of (B,) or (B, S) executed steps, -1 being padding."""
    live = ponder_steps >= 0
    return (ponder_steps * live).sum() / live.sum().clamp_min(1)


def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """`accuracy` of a classifier, and its ponder statistics as `ponder_metrics` gives them."""
    logits, *rest = outputs_of(prediction)
    classes = (logits[:, 0] > 0).astype(int) if logits.shape[-1] == 1 else logits.argmax(-1)
    return {"accuracy": accuracy(classes, prediction.label_ids)} | ponder_metrics(rest)


def next_token_ids(logits: torch.Tensor | tuple[torch.Tensor, ...], labels: torch.Tensor):
    """Logits (B, S, V) -> the token ids (B, S) they predict, aligned with the labels; other outputs stay as they are.

    `Trainer` keeps and gathers these instead of the logits. Nothing predicts the first token.
    """
    first, *rest = logits if isinstance(logits, tuple) else (logits,)
    ids = torch.nn.functional.pad(first.argmax(-1)[:, :-1], (1, 0), value=IGNORED)
    return (ids, *rest) if rest else ids


def compute_language_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """`accuracy`, that of each row's last labelled token, `token_accuracy`, that of all of them, and ponder statistics.

    Predictions are those of `next_token_ids`.
    """
    ids, *rest = outputs_of(prediction)
    labels = prediction.label_ids
    # what `Trainer` pads to join batches of different lengths is padding in labels and predictions alike
    labelled = labels != IGNORED
    metrics = {
        "accuracy": last_read_accuracy(ids, labels),
        "token_accuracy": accuracy(ids[labelled], labels[labelled]),
    }
    return metrics | ponder_metrics(rest)


def outputs_of(prediction: EvalPrediction) -> tuple[np.ndarray, ...]:
    return prediction.predictions if isinstance(prediction.predictions, tuple) else (prediction.predictions,)


def ponder_metrics(outputs: list[np.ndarray]) -> dict[str, float]:
    """`ponder_steps` and `ponder_cost` of a model that halts, in depth steps, means over examples.

    `Trainer` pads ragged (B, S) steps with -100 and the models mark padding with -1: negative steps do not count.
    """
    metrics = {}
    for values in outputs:
        if np.issubdtype(values.dtype, np.integer):
            steps = values.reshape(len(values), -1)
            live = steps >= 0
            metrics["ponder_steps"] = float(((steps * live).sum(1) / live.sum(1).clip(1)).mean())
        else:
            metrics["ponder_cost"] = float(values.mean())
    return metrics
