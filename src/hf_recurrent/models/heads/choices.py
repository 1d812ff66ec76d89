"""Multiple choice, each choice read with its question.

Shapes: B questions, C choices, S tokens, E width, F features, L depth steps.
"""

from functools import partial
from typing import Unpack

import torch
from transformers.utils.generic import can_return_tuple

from ..base.arguments import RecurrentKwargs
from ..base.outputs import RecurrentOutput, base_outputs
from ..ops.checks import Problem, check_tensor, is_id, is_nan, is_number, is_real, refuse
from ..ops.losses import NO_TARGET, cross_entropies, fraction_of_step, mean_of
from .head import Head, task_head
from .pairs import encode_siamese

# statistics of sequences, which belong to a choice of a question
BY_CHOICE = ("ponder_cost", "ponder_steps", "halting_probabilities", "attention_experts", "feed_forward_experts")


def check_choices(labels: object, num_rows: int, num_choices: int) -> Problem:
    """Check labels (B,) for B questions -> the problem of their values, choices or -100.

    Raises:
        ValueError: labels of another type or shape.
    """
    check_tensor("labels", labels, is_id, (1,), "a tensor (batch,) of torch.long with the number of the right choice")
    if labels.shape[0] != num_rows:
        raise ValueError(
            f"`labels` has shape {tuple(labels.shape)}: expected {(num_rows,)}, the right choice of each question"
        )
    wrong = ((labels < 0) | (labels >= num_choices)) & (labels != NO_TARGET)
    return (
        wrong.any(),
        lambda: (
            f"`labels` holds {labels[wrong][0].item()}, but the inputs have {num_choices} choices: pass numbers from 0 "
            f"to {num_choices - 1}, or -100 for questions without a target"
        ),
    )


class ForMultipleChoice(Head):
    """Multiple choice: each choice is encoded by itself, as a sequence classifier encodes a sequence or pair, and gets
    one score.
    """

    answers = "choice"
    pools = True
    encode_pairs = encode_siamese
    summary = "with a head that scores the choices of a question, each read with the question."
    example = (
        "",
        """
>>> model(torch.tensor([[[2, 5, 6, 3], [2, 5, 7, 3]]])).logits.shape
torch.Size([1, 2])
""",
    )

    def build_head(self, config) -> None:
        self.classifier = task_head(config, self.num_features, 1)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[RecurrentKwargs],
    ) -> RecurrentOutput:
        """Score the choices of each question.

        Args:
            input_ids: (B, C, S) token ids, or pass `inputs_embeds` (B, C, S, E).
            attention_mask: (B, C, S), 1 at tokens and 0 at padding, on either side.
            token_type_ids: (B, C, S) which text of a pair each token is of; 0 by default.
            labels: (B,) numbers of the right choices, -100 for questions without a target, whose depth counts in no
                loss either.
            num_items_in_batch: labels of all accumulated batches, from `Trainer`: `loss` is then this batch's part.
            kwargs: see `RecurrentKwargs`.

        Returns:
            `RecurrentOutput` with `logits` (B, C).

        Raises:
            ValueError: see a sequence classifier; or inputs without choices, labels of another type or shape or out of
                range.
        """
        inputs = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "inputs_embeds": inputs_embeds,
        }
        flat, (num_rows, num_choices) = flat_choices(inputs)
        problems, losses = [] if labels is None else [check_choices(labels, num_rows, num_choices)], {}
        features, outputs = self.sequence_features(*flat.values(), has_labels=labels is not None, **kwargs)
        scores = self.predict(features).view(num_rows, num_choices)
        refuse(is_nan("the logits are", scores), *problems)
        if labels is not None:
            labelled, distribution = labels != NO_TARGET, outputs.halting_distribution
            if distribution is not None:
                # a question halts as the mean of its choices
                distribution = distribution.unflatten(0, scores.shape).mean(1)
            by_step = [self.predict(features).view_as(scores) for features in outputs.step_features or ()]
            by_question = self.over_depth(partial(cross_entropies, targets=labels), scores, by_step, distribution)
            loss = mean_of(by_question, labelled)
            fraction = fraction_of_step(labels, num_items_in_batch)
            count = labelled.sum().clamp_min(1)
            losses = self.losses(loss, outputs, count, fraction, labelled.repeat_interleave(num_choices))
        base = base_outputs(outputs)
        base |= {name: base[name].unflatten(0, (num_rows, num_choices)) for name in BY_CHOICE if name in base}
        return RecurrentOutput(logits=scores, **losses, **base)


def flat_choices(inputs: dict[str, object]) -> tuple[dict[str, torch.Tensor | None], tuple[int, int]]:
    """Inputs (B, C, S, ...) with all choices as sequences (B * C, S, ...), and B and C.

    Raises:
        ValueError: an input without choices, or with others than the rest.
    """
    sizes = None
    for name, value in inputs.items():
        if value is None:
            continue
        embedded = name == "inputs_embeds"
        fits = is_number if embedded else is_real if name == "attention_mask" else is_id
        shape = "(batch, choices, tokens, width)" if embedded else "(batch, choices, tokens)"
        check_tensor(
            name, value, fits, (4,) if embedded else (3,), f"a tensor {shape}, of all choices of each question"
        )
        sizes = tuple(value.shape[:2]) if sizes is None else sizes
        if tuple(value.shape[:2]) != sizes:
            raise ValueError(
                f"`{name}` has shape {tuple(value.shape)}: the inputs have {sizes[0]} questions with {sizes[1]} choices"
            )
    if sizes is None:
        raise ValueError("pass exactly one of `input_ids` and `inputs_embeds`")
    return {name: None if value is None else value.flatten(0, 1) for name, value in inputs.items()}, sizes
