"""Sequence classifiers.

Shapes: B sequences, S tokens, E width, C labels.
"""

import math
from functools import partial
from typing import Unpack

import torch
from torch import nn
from transformers.utils.generic import can_return_tuple

from ..base.arguments import RecurrentKwargs
from ..base.outputs import RecurrentOutput, base_outputs
from ..depth.exit_criteria import AnswerHead
from ..ops.checks import Problem, check_tensor, is_nan, is_real, refuse
from ..ops.layers import at_least_float32
from ..ops.losses import NO_TARGET, cross_entropies, fraction_of_step, mean_of
from .head import Head
from .pairs import encode_siamese, pair_features


def predicts_number(config) -> bool:
    """Whether a sequence classifier's logits are numbers, as a single one is unless its `problem_type` says else."""
    return config.problem_type == "regression" or (config.problem_type is None and config.num_labels == 1)


def problem_type_of(labels: torch.Tensor, config) -> str:
    """The config's problem type or, by default, the one that fits the labels; integers are single labels."""
    if predicts_number(config):
        return "regression"
    if config.problem_type is not None:
        return config.problem_type
    return "multi_label_classification" if labels.is_floating_point() else "single_label_classification"


def check_labels(labels: object, num_rows: int, config) -> Problem:
    """Check labels (B,) or (B, C) for B sequences -> the problem of their values, classes or -100 among them.

    Raises:
        ValueError: labels of another type or shape.
    """
    check_tensor("labels", labels, is_real, (1, 2), "a tensor (batch,) of classes or (batch, labels) of numbers")
    problem_type, number = problem_type_of(labels, config), config.num_labels
    by_class = problem_type == "single_label_classification"
    expected = (num_rows,) if by_class or (problem_type == "regression" and number == 1) else (num_rows, number)
    if labels.shape[0] != num_rows or labels.numel() != math.prod(expected):
        raise ValueError(
            f"`labels` has shape {tuple(labels.shape)}: expected {expected} for {problem_type} with {number} labels"
        )
    if by_class:
        classes = labels.long()
        wrong = ((classes < 0) | (classes >= number)) & (classes != NO_TARGET) | (labels != classes)
        remedy = (
            f"classes, but `config.num_labels` is {number}: pass whole numbers from 0 to {number - 1}, or {NO_TARGET} "
            "for examples without a label"
        )
    elif problem_type == "regression":
        wrong, remedy = ~labels.isfinite(), "numbers: pass finite ones"
    else:
        wrong, remedy = ~((labels >= 0) & (labels <= 1)), "shares of labels: pass numbers from 0 to 1"
    return wrong.any(), lambda: f"`labels` holds {labels[wrong][0].item()} among its {remedy}"


def classification_losses(logits: torch.Tensor, labels: torch.Tensor, config) -> torch.Tensor:
    """Losses (B,) that `problem_type_of` names, zero without a label.

    Logits are (B, C), labels (B,) or (B, C) as `check_labels` has them.
    """
    problem_type = problem_type_of(labels, config)
    if problem_type == "single_label_classification":
        return cross_entropies(logits, labels.reshape(-1))
    logits = at_least_float32(logits)
    labels = labels.reshape(logits.shape).to(logits.dtype)
    loss = nn.functional.mse_loss
    if problem_type == "multi_label_classification":
        loss = nn.functional.binary_cross_entropy_with_logits
    return loss(logits, labels, reduction="none").mean(-1)


class ForSequenceClassification(Head):
    """A classifier of sequences and pairs; by `config.problem_type` also a regression, or with several labels."""

    pools = True
    encode_pairs = encode_siamese
    summary = "with a classifier of sequences and of pairs of sentences."
    example = (
        ", num_labels=3",
        """
>>> model(torch.tensor([[2, 5, 6, 3]])).logits.shape
torch.Size([1, 3])
""",
    )

    def answer_head(self) -> AnswerHead:
        config = self.config
        labels = config.problem_type == "multi_label_classification"
        return AnswerHead(
            self.predict,
            getattr(self, "exit_probe", None),
            "number" if predicts_number(config) else "labels" if labels else "classes",
            joined=pair_features if config.pair_encoding == "siamese" else None,
        )

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[RecurrentKwargs],
    ) -> RecurrentOutput:
        """Classify a batch.

        Args:
            input_ids: (B, S) token ids, or pass `inputs_embeds` (B, S, E).
            attention_mask: (B, S), 1 at tokens and 0 at padding, on either side.
            token_type_ids: (B, S) 0 at the first and 1 at the second sentence of a pair; 0 by default.
            labels: (B,) classes or numbers, or (B, C) numbers or shares. An example of class -100 has no label, and
                counts in no loss of answers or depth.
            num_items_in_batch: labels of all accumulated batches, from `Trainer`: `loss` is then this batch's part.
            kwargs: see `RecurrentKwargs`.

        Returns:
            `RecurrentOutput` with `logits` (B, C).

        Raises:
            ValueError: see the base model; or siamese pairs without two sentences, labels of another type or shape or
                out of range, or NaN logits.
        """
        given = (input_ids, attention_mask, token_type_ids, inputs_embeds)
        features, outputs = self.sequence_features(*given, has_labels=labels is not None, **kwargs)
        logits = self.predict(features, outputs.ponder_steps)
        problems = [] if labels is None else [check_labels(labels, logits.shape[0], self.config)]
        refuse(is_nan("the logits are", logits), *problems)
        losses = {}
        if labels is not None:
            kind = problem_type_of(labels, self.config)
            if self.training and self.config.problem_type is None:
                # transformers' classifiers do so, too: the saved config tells pipelines what the answers are
                self.config.problem_type = kind
            labelled = torch.ones(labels.shape[0], dtype=torch.bool, device=labels.device)
            if kind == "single_label_classification":
                labelled = labels.reshape(-1).long() != NO_TARGET
            by_step = [self.predict(features, step) for step, features in enumerate(outputs.step_features or (), 1)]
            by_example = partial(classification_losses, labels=labels, config=self.config)
            loss = mean_of(self.over_depth(by_example, logits, by_step, outputs.halting_distribution), labelled)
            fraction = fraction_of_step(labels, num_items_in_batch, numbers=kind == "regression")
            losses = self.losses(loss, outputs, labelled.sum().clamp_min(1), fraction, labelled)
        return RecurrentOutput(logits=logits, **losses, **base_outputs(outputs))
