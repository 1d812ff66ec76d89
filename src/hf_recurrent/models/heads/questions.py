"""Extractive question answering, by a span of the tokens of a question and its text.

Shapes: B sequences, S tokens, E width, L depth steps.
"""

from functools import partial
from typing import Unpack

import torch
from transformers.utils.generic import can_return_tuple

from ..base.arguments import RecurrentKwargs
from ..base.outputs import RecurrentOutput, base_outputs
from ..depth.objectives import mean_distribution
from ..ops.checks import Problem, check_tensor, is_id, is_nan, refuse, wrong_row
from ..ops.layers import of_tokens
from ..ops.losses import cross_entropies
from .head import Head, task_head


def check_positions(name: str, positions: object, num_rows: int) -> torch.Tensor:
    """Check positions (B,) or (B, 1) of B sequences -> (B,).

    Raises:
        ValueError: positions of another type or shape.
    """
    meaning = "a tensor (batch,) of torch.long with the column of a token for each sequence"
    check_tensor(name, positions, is_id, (1, 2), meaning)
    if tuple(positions.shape) not in ((num_rows,), (num_rows, 1)):
        raise ValueError(f"`{name}` has shape {tuple(positions.shape)}: expected {(num_rows,)}, one for each sequence")
    return positions.reshape(num_rows)


def at_padding(name: str, positions: torch.Tensor, mask: torch.Tensor) -> Problem:
    """The problem of positions (B,) of padding, by the mask (B, S); those that are clamped to S are ignored."""
    length = mask.shape[1]
    return wrong_row(
        (positions < length) & ~mask.gather(1, positions.clamp_max(length - 1)[:, None]).squeeze(1),
        lambda row: (
            f"`{name}` of row {row} is {int(positions[row])}, where the row has padding: pass the column of a token of "
            f"its answer, or one from {length} on for none"
        ),
    )


def reversed_span(start: torch.Tensor, end: torch.Tensor, length: int) -> Problem:
    """The problem of spans within `length` tokens, (B,) and (B,), that end before they start."""
    return wrong_row(
        (end < start) & (start < length),
        lambda row: (
            f"`end_positions` of row {row} is {int(end[row])}, before its start at {int(start[row])}: pass the columns "
            "of the first and the last token of the answer"
        ),
    )


class ForQuestionAnswering(Head):
    """Extractive question answering: the answer is the span between the most probable first and last tokens.

    Padding cannot be either.
    """

    answers = "span"
    joint_pairs = True
    summary = "with a head that marks the answer to a question in a text, by its first and last tokens."
    example = (
        "",
        """
>>> output = model(torch.tensor([[2, 5, 6, 3]]))
>>> output.start_logits.shape, output.end_logits.shape
(torch.Size([1, 4]), torch.Size([1, 4]))
""",
    )

    def build_head(self, config) -> None:
        self.qa_outputs = task_head(config, config.hidden_size, 2)

    def predict(self, features: torch.Tensor, steps: int | torch.Tensor | None = None) -> torch.Tensor:
        """Logits (..., 2) of being the first and the last token of the answer."""
        return self.qa_outputs(features)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        start_positions: torch.LongTensor | None = None,
        end_positions: torch.LongTensor | None = None,
        **kwargs: Unpack[RecurrentKwargs],
    ) -> RecurrentOutput:
        """Find the answer in each sequence.

        Args:
            input_ids: (B, S) token ids, or pass `inputs_embeds` (B, S, E).
            attention_mask: (B, S), 1 at tokens and 0 at padding, on either side.
            token_type_ids: (B, S) 0 at the question and 1 at the text; 0 by default.
            start_positions, end_positions: (B,) columns of the first and the last token of each answer. As in
                transformers' heads, columns below 0 count as 0, and columns from S on are ignored.
            kwargs: see `RecurrentKwargs`.

        Returns:
            `RecurrentOutput` with `start_logits` and `end_logits` (B, S).

        Raises:
            ValueError: see the base model; or one of the positions without the other, positions of another type or
                shape, of padding or in the wrong order, or NaN logits.
        """
        given = {"start_positions": start_positions, "end_positions": end_positions}
        missing = [name for name, value in given.items() if value is None]
        if len(missing) == 1:
            raise ValueError(f"`{missing[0]}` is missing: pass the columns of both ends of the answers, or neither")
        inputs = (input_ids, attention_mask, token_type_ids, inputs_embeds)
        outputs = self.encode(*inputs, has_labels=not missing, **kwargs)
        states = outputs.last_hidden_state
        mask = torch.ones_like(states[..., 0], dtype=torch.bool) if attention_mask is None else attention_mask.bool()
        ends = self.span_logits(states, mask)
        problems, losses = [is_nan("the logits are", logits) for logits in ends], {}
        if missing:
            refuse(*problems)
        else:
            rows, length = states.shape[:2]
            positions = [check_positions(name, each, rows).clamp(0, length) for name, each in given.items()]
            problems += [at_padding(name, each, mask) for name, each in zip(given, positions, strict=True)]
            # before the loss, which no padding may be a target of
            refuse(*problems, reversed_span(*positions, length))
            loss = self.span_loss(ends, positions, outputs, mask)
            count = ((positions[0] < length) | (positions[1] < length)).sum().clamp_min(1)
            losses = self.losses(loss, outputs, count)
        return RecurrentOutput(start_logits=ends[0], end_logits=ends[1], **losses, **base_outputs(outputs))

    def span_logits(self, states: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Logits (B, S) of the first and of the last token of the answer, the least number at padding.

        So the probabilities of tokens do not depend on padding.
        """
        logits = of_tokens(self.predict, states, mask)
        lowest = torch.finfo(logits.dtype).min
        return tuple(each.masked_fill(~mask, lowest).contiguous() for each in logits.unbind(-1))

    def span_loss(
        self,
        ends: tuple[torch.Tensor, ...],
        positions: list[torch.Tensor],
        outputs: RecurrentOutput,
        mask: torch.Tensor,
    ) -> torch.Tensor:
        """Mean of the losses of both ends, each the mean over the sequences whose position is not ignored."""
        distribution = outputs.halting_distribution
        if distribution is not None:
            distribution = mean_distribution(distribution, outputs.ponder_steps >= 0)
        steps = [self.span_logits(states, mask) for states in outputs.step_features or ()]
        means = []
        for end, (logits, position) in enumerate(zip(ends, positions, strict=True)):
            losses = partial(cross_entropies, targets=position, ignored=mask.shape[1])
            by_row = self.over_depth(losses, logits, [each[end] for each in steps], distribution)
            means.append(by_row.sum() / (position < mask.shape[1]).sum().clamp_min(1))
        return sum(means) / 2
