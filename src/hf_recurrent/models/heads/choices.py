"""Multiple choice, each choice read with its question, over any base model of this package.

Shapes: B questions, C choices, S tokens, E width, F features, L depth steps.
"""

import torch
from torch import nn
from transformers.utils.generic import can_return_tuple

from ..base.call_options import checked_options
from ..base.outputs import RecurrentOutput, base_outputs
from ..base.pretrained import task_head
from ..depth.exit_criteria import AnswerHead
from ..depth.objectives import objective_loss
from ..ops.checks import Problem, check_tensor, is_id, is_nan, is_number, is_real, refuse
from ..ops.layers import at_least_float32
from ..ops.losses import NO_TARGET, fraction_of_step, mean_of
from .classification import SequenceFeatures

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


def choice_losses(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropies in nats, zero without a target: scores (B, C), labels (B,), or -100 -> (B,)."""
    return nn.functional.cross_entropy(at_least_float32(scores), labels.long(), reduction="none")


class ForMultipleChoice(SequenceFeatures):
    """Forward pass and head of multiple choice; an architecture adds `base_model_class`.

    Each choice is encoded by itself, as a sequence classifier encodes a sequence or pair, and gets one score.
    """

    def __init__(self, config):
        super().__init__(config)
        self.model = self.base_model_class(config)
        self.classifier = task_head(config, self.num_features, 1)
        self.post_init()

    def answer_head(self) -> AnswerHead:
        return AnswerHead(self.classifier, None, "choice")

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **options,
    ) -> RecurrentOutput:
        """Score the choices of each question.

        Args:
            input_ids, attention_mask, token_type_ids: (B, C, S), each as of the base model for one choice.
            inputs_embeds: (B, C, S, E).
            labels: (B,) numbers of the right choices, -100 for questions without a target, whose depth counts in no
                loss either.
            num_items_in_batch: labels of all accumulated batches, from `Trainer`: `loss` is then this batch's part.
            options: those of the base model that `head_options` names, and the architecture's own. The others are
                as of the base model, too.

        Raises:
            ValueError: as a sequence classifier; or inputs without choices, labels of another type or shape or out of
                range.
            TypeError: an option is not known.
        """
        options = checked_options(self, options)
        inputs = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "inputs_embeds": inputs_embeds,
        }
        flat, (num_rows, num_choices) = flat_choices(inputs)
        problems = [] if labels is None else [check_choices(labels, num_rows, num_choices)]
        options |= {"output_attentions": output_attentions, "output_hidden_states": output_hidden_states}
        options |= self.loss_options() if labels is not None else {}
        features, outputs = self.sequence_features(**flat, options=options)
        scores = self.score(features).view(num_rows, num_choices)
        refuse(is_nan("the logits are", scores), *problems)
        losses = {}
        if labels is not None:
            labelled = labels != NO_TARGET
            loss, fraction = self.choice_loss(scores, outputs, labels), fraction_of_step(labels, num_items_in_batch)
            count = labelled.sum().clamp_min(1)
            losses = self.losses(loss, outputs, count, fraction, labelled.repeat_interleave(num_choices))
        base = base_outputs(outputs)
        base |= {name: base[name].unflatten(0, (num_rows, num_choices)) for name in BY_CHOICE if name in base}
        return RecurrentOutput(logits=scores, **losses, **base)

    def score(self, features: torch.Tensor) -> torch.Tensor:
        """Scores (N, 1) of choices from their features (N, F)."""
        return self.classifier(features)

    def choice_loss(self, scores: torch.Tensor, outputs: RecurrentOutput, labels: torch.Tensor) -> torch.Tensor:
        """Mean over labelled questions of the loss of scores (B, C) or, by the depth objective, of those of each step.

        A question halts as the mean of its choices.
        """
        losses = choice_losses(scores, labels)
        if self.supervises_steps:
            by_step = [self.score(features).view_as(scores) for features in outputs.step_features]
            distribution = outputs.halting_distribution
            if distribution is not None:
                distribution = distribution.unflatten(0, scores.shape).mean(1)
            losses = objective_loss(self.config, [choice_losses(each, labels) for each in by_step], distribution)
        return mean_of(losses, labels != NO_TARGET)


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
