"""Heads that choose a class for each token, such as of named entities.

Shapes: B sequences, S tokens, E width, C classes of a token.
"""

from typing import Unpack

import torch
from transformers.utils.generic import can_return_tuple

from ..base.arguments import RecurrentKwargs
from ..base.outputs import RecurrentOutput, base_outputs
from ..ops.checks import is_nan, refuse
from ..ops.layers import of_tokens
from ..ops.losses import check_targets, fraction_of_step, num_labelled, without_padding
from .head import Head


class ForTokenClassification(Head):
    """A token classifier. `config.num_labels` are its classes, `config.classifier` its last layers.

    A model whose tokens see those before them only classifies each by its left context.
    """

    answers = "tokens"
    joint_pairs = True
    # field of the config that is the number of classes
    label_field = "num_labels"
    summary = "with a classifier of each token, such as of named entities."
    example = (
        ", num_labels=3",
        """
>>> model(torch.tensor([[2, 5, 6, 3]])).logits.shape
torch.Size([1, 4, 3])
""",
    )

    def check_config(self, config) -> None:
        kind = config.problem_type
        config.require(
            kind in (None, "single_label_classification"),
            "problem_type",
            f"{type(self).__name__} chooses one label for each token; leave it None",
        )
        # transformers derives it from `id2label`
        config.require(
            config.num_labels > 1,
            "num_labels",
            f"{type(self).__name__} has nothing to choose between; pass the number of labels, at least 2",
        )

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
        """Predict the class of each token.

        Args:
            input_ids: (B, S) token ids, or pass `inputs_embeds` (B, S, E).
            attention_mask: (B, S), 1 at tokens and 0 at padding, on either side.
            token_type_ids: (B, S) which text of a pair each token is of; 0 by default.
            labels: (B, S), -100 for tokens without a target; padding has none.
            num_items_in_batch: labels of all accumulated batches, from `Trainer`: `loss` is then this batch's part.
            kwargs: see `RecurrentKwargs`.

        Returns:
            `RecurrentOutput` with `logits` (B, S, C).

        Raises:
            ValueError: see the base model; or labels of another type or shape or out of range, or NaN logits.
        """
        inputs, targets, losses = input_ids if inputs_embeds is None else inputs_embeds, None, {}
        # the base model rejects inputs that are none
        if labels is not None and isinstance(inputs, torch.Tensor):
            number = getattr(self.config, self.label_field)
            meaning = "token ids" if self.label_field == "vocab_size" else f"classes from 0 to {number - 1}"
            check_targets("labels", labels, inputs, number, meaning, field=self.label_field)
            targets = without_padding(labels, attention_mask)
        given = (input_ids, attention_mask, token_type_ids, inputs_embeds)
        outputs = self.encode(*given, has_labels=targets is not None, **kwargs)
        logits = of_tokens(self.predict, outputs.last_hidden_state, attention_mask)
        refuse(is_nan("the logits are", logits))
        if targets is not None:
            loss = self.token_loss(logits, outputs, targets, attention_mask)
            fraction = fraction_of_step(labels, num_items_in_batch)
            losses = self.losses(loss, outputs, num_labelled(targets), fraction)
        return RecurrentOutput(logits=logits, **losses, **base_outputs(outputs))
