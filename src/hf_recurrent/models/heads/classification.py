"""Sequence classifiers, and features of whole sequences and of pairs of sentences.

Shapes: B sequences, S tokens, E width, C labels, W tokens of the longer sentence.
"""

import math
from typing import NamedTuple, Unpack

import torch
from torch import nn
from transformers.utils.generic import can_return_tuple

from ..base.arguments import RecurrentKwargs
from ..base.outputs import RecurrentOutput, base_outputs
from ..depth.exit_criteria import AnswerHead
from ..ops.checks import Problem, check_ids, check_inputs, check_tensor, is_nan, is_real, other_marks, refuse
from ..ops.graphs import in_graph
from ..ops.layers import at_least_float32, embedding_width
from ..ops.losses import NO_TARGET, fraction_of_step, mean_of
from ..ops.positions import tokens_first
from .head import Head


class SplitPairs(NamedTuple):
    """The sentences of all pairs: all first sentences, then all second ones."""

    index: torch.Tensor  # (2B, W) column of each token in its pair
    mask: torch.Tensor  # (2B, W) bool


def split_pairs(attention_mask: torch.Tensor, token_type_ids: torch.Tensor) -> SplitPairs:
    """Find the tokens of both sentences of pairs (B, S).

    Raises:
        ValueError: a pair has no token of one of the sentences, or tokens of a third.
    """
    sentences = torch.cat((attention_mask & (token_type_ids == 0), attention_mask & (token_type_ids == 1)))
    lengths = sentences.sum(-1)

    def one_sentence() -> str:
        row = int((lengths == 0).nonzero()[0]) % attention_mask.shape[0]
        return (
            f"row {row} of `token_type_ids` does not hold two sentences: with pair_encoding='siamese' mark the "
            "tokens of the first with 0 and of the second with 1, as the tokenizer does for (text, text_pair)"
        )

    others = other_marks("token_type_ids", token_type_ids, attention_mask)
    refuse(others, ((lengths == 0).any(), one_sentence))
    order, _ = tokens_first(sentences)
    width = attention_mask.shape[1] if in_graph() else int(lengths.max())
    order = order[:, :width]
    return SplitPairs(order, sentences.gather(1, order))


def merge_token_values(values: torch.Tensor, pairs: SplitPairs, length: int, fill: float) -> torch.Tensor:
    """Values of the sentences' tokens in the columns of their pairs: (2B, W, ...) -> (B, S, ...)."""
    num_pairs = values.shape[0] // 2

    def by_pair(tokens: torch.Tensor) -> torch.Tensor:
        return torch.cat(tokens.split(num_pairs), dim=1)

    # padding goes to a column that is cut off
    values, columns = by_pair(values), by_pair(torch.where(pairs.mask, pairs.index, length))
    columns = columns.reshape(*columns.shape, *[1] * (values.dim() - 2)).expand_as(values)
    merged = values.new_full((num_pairs, length + 1, *values.shape[2:]), fill)
    return merged.scatter(1, columns, values)[:, :length]


def pair_features(sentences: torch.Tensor) -> torch.Tensor:
    """[u; v; u * v; |u - v|] of all first sentences u, then all second ones v: (2B, E) -> (B, 4E)."""
    first, second = sentences.unflatten(0, (2, -1))
    return torch.cat((first, second, first * second, (first - second).abs()), dim=-1)


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
        return nn.functional.cross_entropy(logits, labels.reshape(-1).long(), reduction="none")
    labels = labels.reshape(logits.shape).to(logits.dtype)
    loss = nn.functional.mse_loss
    if problem_type == "multi_label_classification":
        loss = nn.functional.binary_cross_entropy_with_logits
    return loss(logits, labels, reduction="none").mean(-1)


class PairHead(Head):
    """A head that answers for whole sequences or pairs.

    Its features are the pooled states of single sentences and joint pairs. Of siamese pairs (`config.pair_encoding`)
    they are [u; v; u * v; |u - v|] of the two sentences, encoded in one batch of twice the size.
    """

    pools = True

    @property
    def num_features(self) -> int:
        return self.config.hidden_size * (4 if self.config.pair_encoding == "siamese" else 1)

    def sequence_features(
        self, *inputs: torch.Tensor | None, has_labels: bool, **kwargs
    ) -> tuple[torch.Tensor, RecurrentOutput]:
        """Features (B, F), and outputs of the base model, by pair if pairs are siamese; arguments are those of
        `encode`.
        """
        if self.config.pair_encoding == "siamese":
            return self.encode_pairs(*inputs, has_labels=has_labels, **kwargs)
        outputs = self.encode(*inputs, has_labels=has_labels, **kwargs)
        return outputs.pooler_output, outputs

    def encode_pairs(
        self,
        input_ids: torch.Tensor | None,
        attention_mask: torch.Tensor | None,
        token_type_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        **kwargs,
    ) -> tuple[torch.Tensor, RecurrentOutput]:
        """Encode both sentences of each pair -> (B, 4E) features, and outputs by pair instead of by sentence."""
        if token_type_ids is None:
            raise ValueError(
                "pair_encoding='siamese' needs `token_type_ids` to tell the sentences apart: encode with "
                "tokenizer(text, text_pair), or set config.pair_encoding to 'joint'"
            )
        check_ids("token_type_ids", token_type_ids)
        sizes = (self.config.vocab_size, embedding_width(self.get_input_embeddings()), 0)
        mask, _ = check_inputs(input_ids, inputs_embeds, attention_mask, None, sizes)
        types_shape, shape = tuple(token_type_ids.shape), tuple(mask.shape)
        if types_shape != shape:
            raise ValueError(f"`token_type_ids` has shape {types_shape}: the inputs have {shape}, pass 0 or 1 each")
        pairs = split_pairs(mask, token_type_ids)
        if input_ids is not None:
            input_ids = input_ids.repeat(2, 1).gather(1, pairs.index)
            # columns after a sentence's end hold tokens of the other one
            input_ids = torch.where(pairs.mask, input_ids, self.config.pad_token_id or 0)
        if inputs_embeds is not None:
            index = pairs.index[..., None].expand(-1, -1, inputs_embeds.shape[-1])
            inputs_embeds = inputs_embeds.repeat(2, 1, 1).gather(1, index)
        outputs = self.encode(input_ids, pairs.mask, None, inputs_embeds, **kwargs)

        def by_token(values: torch.Tensor, fill: float = -1) -> torch.Tensor:
            return merge_token_values(values, pairs, shape[1], fill)

        def by_sentence(values: torch.Tensor) -> torch.Tensor:
            return values.unflatten(0, (2, -1))

        def by_part(values: torch.Tensor, fill: float = -1) -> torch.Tensor:
            return by_token(values, fill) if self.config.counts_by_token else by_sentence(values).transpose(0, 1)

        changes = {
            "ponder_cost": lambda cost: by_sentence(cost).mean(0),
            "ponder_steps": by_part,
            "halting_probabilities": lambda probabilities: by_part(probabilities, 0.0),
            "step_features": lambda features: tuple(map(pair_features, features)),
            "halting_distribution": lambda distribution: by_sentence(distribution).mean(0),
            "attention_experts": by_token,
            "feed_forward_experts": by_token,
        }
        by_pair = {name: change(outputs[name]) for name, change in changes.items() if name in outputs}
        return pair_features(outputs.pooler_output), RecurrentOutput(**{**outputs, **by_pair})


class ForSequenceClassification(PairHead):
    """A classifier of sequences and pairs; by `config.problem_type` also a regression, or with several labels."""

    # whether each depth step has a classifier of its own
    by_step = False
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
            loss = self.classification_loss(logits, outputs, labels, labelled)
            fraction = fraction_of_step(labels, num_items_in_batch, numbers=kind == "regression")
            losses = self.losses(loss, outputs, labelled.sum().clamp_min(1), fraction, labelled)
        return RecurrentOutput(logits=logits, **losses, **base_outputs(outputs))

    def classification_loss(
        self, logits: torch.Tensor, outputs: RecurrentOutput, labels: torch.Tensor, labelled: torch.Tensor
    ) -> torch.Tensor:
        """Mean over `labelled` examples (B,) of the losses of logits (B, C)."""
        by_step = []
        if self.supervises_steps:
            by_step = [self.predict(features, steps) for steps, features in enumerate(outputs.step_features, 1)]

        def losses(logits: torch.Tensor) -> torch.Tensor:
            return classification_losses(at_least_float32(logits), labels, self.config)

        return mean_of(self.over_depth(losses, logits, by_step, outputs.halting_distribution), labelled)
