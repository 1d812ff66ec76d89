"""Heads that predict something of every token, over any base model of this package.

Shapes: B sequences, S tokens, E width, C classes of a token, L depth steps.
"""

import torch
from transformers.utils.generic import can_return_tuple

from ..base.call_options import checked_options
from ..base.outputs import RecurrentOutput, base_outputs
from ..config.base import require
from ..depth.exit_criteria import AnswerHead
from ..depth.objectives import gate_loss, objective_loss
from ..ops.checks import is_nan, refuse
from ..ops.layers import of_tokens
from ..ops.losses import NO_TARGET, fraction_of_step, num_labelled, token_losses, without_padding


class PredictsTokens:
    """The loss of a model that predicts something of every token; heads define `predict`, from states to logits."""

    def token_loss(
        self,
        logits: torch.Tensor,
        outputs: RecurrentOutput,
        targets: torch.Tensor | None,
        mask: torch.Tensor | None,
    ) -> torch.Tensor | None:
        """Mean over labelled tokens of the loss of logits (B, S, C) or, by the depth objective, of those of each step.

        The loss is zero without labelled tokens, and None without targets (B, S); `mask` (B, S) is that of the inputs.
        """
        if targets is None:
            return None
        losses = token_losses(logits, targets)
        if self.supervises_steps:
            labelled = targets != NO_TARGET
            logits_by_step = (of_tokens(self.predict, each, labelled) for each in outputs.step_features)
            by_step = [token_losses(each, targets) for each in logits_by_step]
            if self.config.depth_objective == "gate":
                return self.gate_loss(by_step, outputs, labelled)
            distribution = outputs.halting_distribution
            if distribution is not None:
                mask = torch.ones_like(labelled) if mask is None else mask.bool()
                distribution = self.model.spread_over_tokens(distribution, mask)
            losses = objective_loss(self.config, by_step, distribution)
        return losses.sum() / num_labelled(targets)

    def gate_loss(self, by_step: list[torch.Tensor], outputs: RecurrentOutput, labelled: torch.Tensor) -> torch.Tensor:
        """Mean over `labelled` tokens (B, S) of the loss of the exit gate alone, from losses (B, S) after each step."""
        states = torch.stack(outputs.step_features, dim=2).detach()[labelled]
        losses = gate_loss([losses[labelled] for losses in by_step], self.model.halting_head(states))
        return losses.sum() / labelled.sum().clamp_min(1)


class TokenStates:
    """Base model of a head that reads the final state of each token; an architecture adds `base_model_class`.

    Heads define `answer_head()`, the head as exit criteria use it.
    """

    base_model_class: type

    def __init__(self, config):
        require(
            config.pair_encoding == "joint",
            "pair_encoding",
            config.pair_encoding,
            f"{type(self).__name__} answers by the tokens of one sequence, and sentences that are encoded apart are "
            "two; set it to 'joint'",
        )
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = self.base_model_class(config)

    def encode(self, *inputs: torch.Tensor | None, has_labels: bool, options: dict) -> RecurrentOutput:
        """The base model's output, without pooling.

        Args:
            inputs: `input_ids`, `attention_mask`, `token_type_ids` and `inputs_embeds`.
            options: further arguments of the call.

        Raises:
            TypeError: an option is not known.
        """
        options = checked_options(self, options)
        input_ids, attention_mask, token_type_ids, inputs_embeds = inputs
        return self.model(
            input_ids,
            attention_mask,
            token_type_ids,
            inputs_embeds=inputs_embeds,
            answer_head=self.answer_head(),
            pooling=False,
            return_dict=True,
            **options,
            **(self.loss_options() if has_labels else {}),
        )


class TokenHead(PredictsTokens, TokenStates):
    """Forward pass of a head that chooses a class for each token; heads define `predict` and `check_labels`.

    `check_labels(labels, inputs)` raises a ValueError unless labels (B, S) fit inputs (B, S) or (B, S, E).
    """

    def answer_head(self) -> AnswerHead:
        """The head as exit criteria use it."""
        return AnswerHead(self.predict, getattr(self, "exit_probe", None), "tokens")

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
        """Predict the class of each token.

        Args:
            labels: (B, S), -100 for tokens without a target; padding has none.
            num_items_in_batch: labels of all accumulated batches, from `Trainer`: `loss` is then this batch's part.
            options: those of the base model that `head_options` names, and the architecture's own. The others are
                as of the base model, too.

        Raises:
            ValueError: as the base model; or labels of another type or shape or out of range, or NaN logits.
            TypeError: an option is not known.
        """
        reference, targets = input_ids if inputs_embeds is None else inputs_embeds, None
        # the base model rejects inputs that are none
        if labels is not None and isinstance(reference, torch.Tensor):
            self.check_labels(labels, reference)
            targets = without_padding(labels, attention_mask)
        options |= {"output_attentions": output_attentions, "output_hidden_states": output_hidden_states}
        inputs = (input_ids, attention_mask, token_type_ids, inputs_embeds)
        outputs = self.encode(*inputs, has_labels=targets is not None, options=options)
        logits = of_tokens(self.predict, outputs.last_hidden_state, attention_mask)
        refuse(is_nan("the logits are", logits))
        loss = self.token_loss(logits, outputs, targets, attention_mask)
        fraction = fraction_of_step(labels, num_items_in_batch)
        losses = self.losses(loss, outputs, num_labelled(targets), fraction)
        return RecurrentOutput(logits=logits, **losses, **base_outputs(outputs))
