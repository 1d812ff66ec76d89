"""Extractive question answering, by a span of the tokens read, over any base model of this package.

Shapes: B sequences, S tokens, E width, L depth steps.
"""

import torch
from torch import nn
from transformers.utils.generic import can_return_tuple

from ..base.outputs import RecurrentOutput, base_outputs
from ..base.pretrained import task_head
from ..depth.exit_criteria import AnswerHead
from ..depth.objectives import objective_loss
from ..ops.checks import Problem, check_tensor, is_id, is_nan, refuse
from ..ops.layers import at_least_float32, of_tokens
from .token_head import TokenStates


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
    found = (positions < length) & ~mask.gather(1, positions.clamp_max(length - 1)[:, None]).squeeze(1)

    def message() -> str:
        row = int(found.nonzero()[0])
        return (
            f"`{name}` of row {row} is {int(positions[row])}, where the row has padding: pass the column of a token of "
            f"its answer, or one from {length} on for none"
        )

    return found.any(), message


def reversed_span(start: torch.Tensor, end: torch.Tensor, length: int) -> Problem:
    """The problem of spans within `length` tokens, (B,) and (B,), that end before they start."""
    found = (end < start) & (start < length)

    def message() -> str:
        row = int(found.nonzero()[0])
        return (
            f"`end_positions` of row {row} is {int(end[row])}, before its start at {int(start[row])}: pass the columns "
            "of the first and the last token of the answer"
        )

    return found.any(), message


def position_losses(logits: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Cross-entropies in nats, zero at position S: logits (B, S), positions (B,) in [0, S] -> (B,)."""
    return nn.functional.cross_entropy(
        at_least_float32(logits), positions.long(), ignore_index=logits.shape[1], reduction="none"
    )


def sequence_distribution(distribution: torch.Tensor | None, ponder_steps: torch.Tensor) -> torch.Tensor | None:
    """Halting distributions (B, L) of sequences, the means over those (B, U, L) of their tokens or chunks.

    Args:
        ponder_steps: (B, U), -1 where there is no such token or chunk.
    """
    if distribution is None or distribution.dim() == 2:
        return distribution
    units = ponder_steps >= 0
    return (distribution * (units / units.sum(-1, keepdim=True).clamp_min(1))[..., None]).sum(1)


class ForQuestionAnswering(TokenStates):
    """Forward pass and head of extractive question answering; an architecture adds `base_model_class`.

    The answer is the span between the most probable first and last tokens. Padding cannot be either.
    """

    def __init__(self, config):
        super().__init__(config)
        self.qa_outputs = task_head(config, config.hidden_size, 2)
        self.post_init()

    def answer_head(self) -> AnswerHead:
        return AnswerHead(self.qa_outputs, None, "span")

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        start_positions: torch.LongTensor | None = None,
        end_positions: torch.LongTensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **options,
    ) -> RecurrentOutput:
        """Find the answer in each sequence.

        Args:
            start_positions, end_positions: (B,) columns of the first and the last token of each answer. As of
                transformers' heads, columns below 0 count as 0, and those from S on are ignored.
            options: those of the base model that `head_options` names, and the architecture's own. The others are
                as of the base model, too.

        Raises:
            ValueError: as the base model; or one of the positions without the other, positions of another type or
                shape, of padding or in the wrong order, or NaN logits.
            TypeError: an option is not known.
        """
        options |= {"output_attentions": output_attentions, "output_hidden_states": output_hidden_states}
        given = {"start_positions": start_positions, "end_positions": end_positions}
        missing = [name for name, value in given.items() if value is None]
        if len(missing) == 1:
            raise ValueError(f"`{missing[0]}` is missing: pass the columns of both ends of the answers, or neither")
        inputs = (input_ids, attention_mask, token_type_ids, inputs_embeds)
        outputs = self.encode(*inputs, has_labels=not missing, options=options)
        states = outputs.last_hidden_state
        mask = torch.ones_like(states[..., 0], dtype=torch.bool) if attention_mask is None else attention_mask.bool()
        start_logits, end_logits = self.span_logits(states, mask)
        problems = [is_nan("the logits are", start_logits), is_nan("the logits are", end_logits)]
        loss, count = None, 1
        if not missing:
            rows, length = states.shape[:2]
            start, end = (check_positions(name, each, rows).clamp(0, length) for name, each in given.items())
            problems += [at_padding(name, each, mask) for name, each in zip(given, (start, end), strict=True)]
            problems.append(reversed_span(start, end, length))
            # before the loss, which no padding may be a target of
            refuse(*problems)
            loss = self.span_loss((start_logits, end_logits), (start, end), outputs, mask)
            count = ((start < length) | (end < length)).sum().clamp_min(1)
        else:
            refuse(*problems)
        return RecurrentOutput(
            start_logits=start_logits,
            end_logits=end_logits,
            **self.losses(loss, outputs, count),
            **base_outputs(outputs),
        )

    def span_logits(self, states: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (B, S) of the first and of the last token of the answer, the least number at padding.

        With it the probabilities of tokens do not depend on the padding beside them.
        """
        logits = of_tokens(self.qa_outputs, states, mask)
        lowest = torch.finfo(logits.dtype).min
        start, end = (each.masked_fill(~mask, lowest).contiguous() for each in logits.unbind(-1))
        return start, end

    def span_loss(
        self,
        logits: tuple[torch.Tensor, torch.Tensor],
        positions: tuple[torch.Tensor, torch.Tensor],
        outputs: RecurrentOutput,
        mask: torch.Tensor,
    ) -> torch.Tensor:
        """Mean of the losses of both ends, each the mean over the sequences whose position is not ignored.

        By the depth objective the losses are those of the logits of each step.
        """
        losses = [position_losses(*each) for each in zip(logits, positions, strict=True)]
        if self.supervises_steps:
            steps = [self.span_logits(states, mask) for states in outputs.step_features]
            distribution = sequence_distribution(outputs.halting_distribution, outputs.ponder_steps)
            losses = [
                objective_loss(self.config, [position_losses(each, target) for each in ends], distribution)
                for ends, target in zip(zip(*steps, strict=True), positions, strict=True)
            ]
        length = mask.shape[1]
        counts = [(each < length).sum().clamp_min(1) for each in positions]
        return sum(loss.sum() / count for loss, count in zip(losses, counts, strict=True)) / 2
