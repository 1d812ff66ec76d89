"""Causal language models over any base model of this package.

Shapes: B sequences, S tokens, P cached tokens, E width, V token ids.
"""

import copy
from typing import Unpack

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils.generic import can_return_tuple

from ..base.arguments import RecurrentKwargs
from ..base.outputs import RecurrentOutput, base_outputs
from ..config.fields import shown
from ..depth.cache import keeps_cache
from ..ops.checks import Problem, check_tensor, is_id, is_nan, refuse
from ..ops.layers import of_tokens
from ..ops.losses import NO_TARGET, check_targets, fraction_of_step, num_labelled, without_padding
from .generation import RecurrentGenerationMixin
from .masked import VocabularyHead


def next_token_targets(
    inputs: torch.Tensor | None,
    vocab_size: int,
    labels: torch.Tensor | None,
    attention_mask: torch.Tensor | None = None,
    shift_labels: torch.Tensor | None = None,
    shifted_name: str = "shift_labels",
) -> torch.Tensor | None:
    """Next-token targets of inputs (B, S) or (B, S, E): `shift_labels`, or `labels` (B, S) shifted by one.

    Masked padding has no target and is none. Targets are checked before the model runs, so that an error leaves its
    cache unchanged. `shifted_name` is that of `shift_labels` in messages.

    Raises:
        ValueError: labels of another type or shape, or ids out of range.
    """
    targets, name = (labels, "labels") if shift_labels is None else (shift_labels, shifted_name)
    # the base model rejects inputs that are none
    if targets is None or not isinstance(inputs, torch.Tensor):
        return None
    check_targets(name, targets, inputs, vocab_size, "token ids")
    if shift_labels is None:
        targets = without_padding(targets, attention_mask)
        targets = nn.functional.pad(targets[:, 1:], (0, 1), value=NO_TARGET)
    # padding predicts nothing, either
    return without_padding(targets, attention_mask)


def keeps_all(logits_to_keep: int | torch.Tensor, labelled: bool) -> bool:
    """Whether `logits_to_keep`, a number of tokens or the indices (n,) of some, keeps all.

    Raises:
        ValueError: it is neither, or does not keep all of a call with labels.
    """
    whole = isinstance(logits_to_keep, int) and not isinstance(logits_to_keep, bool)
    if not whole or logits_to_keep < 0:
        meaning = "a whole number, 0 for all tokens, or a tensor (n,) of torch.long with their indices"
        check_tensor("logits_to_keep", logits_to_keep, is_id, (1,), meaning)
    keeps = whole and logits_to_keep == 0
    if labelled and not keeps:
        raise ValueError(
            f"logits_to_keep is {shown(logits_to_keep)}: labels need the logits of all tokens, leave it at 0"
        )
    return keeps


def kept_states(states: torch.Tensor, logits_to_keep: int | torch.Tensor) -> tuple[torch.Tensor, list[Problem]]:
    """States (B, n, E) of the tokens that logits are wanted for, from (B, S, E), and the problem of their indices.

    They are those of the last so many, of all for 0, or of an index (n,).
    """
    if isinstance(logits_to_keep, int):
        return states[:, -logits_to_keep:], []
    length, index = states.shape[1], logits_to_keep
    wrong = ((index < -length) | (index >= length)).any()

    def message() -> str:
        found = f"indices from {int(index.min())} to {int(index.max())}"
        return f"`logits_to_keep` holds {found}: the inputs have {length} tokens, numbered from 0"

    # an accelerator would not survive an index out of range until the check
    return states[:, index.clamp(-length, length - 1)], [(wrong, message)]


class ForCausalLM(RecurrentGenerationMixin, VocabularyHead):
    """A causal language model; an architecture adds `GenerationMixin`.

    A config that is not causal is copied and changed: each token then halts by itself, decided by its state and the
    states of the tokens before.
    """

    summary = "with a causal language model's head, which predicts the token after each; for `generate`."
    example = (
        "",
        """
>>> ids = torch.tensor([[2, 5, 6]])
>>> model(ids, labels=ids).logits.shape == (1, 3, model.config.vocab_size)
True
>>> model.generate(ids, max_new_tokens=2, min_new_tokens=2, do_sample=False).shape
torch.Size([1, 5])
""",
    )

    def __init_subclass__(cls, **kwargs):
        """Enter a class where Trainer looks for those whose labels it has to shift for label smoothing.

        Code of a checkpoint has nobody else to do it, nor have classes derived by a user or by FSDP2.
        """
        super().__init_subclass__(**kwargs)
        # in place of a model type, which classes of different origin share
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[cls.__name__] = cls.__name__

    def __init__(self, config):
        if not config.is_causal:
            config = copy.deepcopy(config)
            config.is_causal = True
        super().__init__(config)

    @keeps_cache
    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool | None = None,
        detach: bool = False,
        start_of_document: torch.BoolTensor | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[RecurrentKwargs],
    ) -> RecurrentOutput:
        """Predict the token after each.

        Args:
            input_ids: (B, S) token ids, or pass `inputs_embeds` (B, S, E).
            attention_mask: (B, S), 1 at tokens and 0 at padding, on either side; with a cache of P columns (B, P + S),
                or (B, S) in models that read chunk by chunk.
            token_type_ids: (B, S) which text of a pair each token is of; 0 by default.
            labels: (B, S) ids aligned with the inputs, -100 for tokens without a target.
            past_key_values: cache that the model returned for the tokens before these; it is extended in place.
            use_cache: start a cache if none is passed; by default only if one is passed.
            detach: cut the gradient to the tokens before these (truncated backpropagation through time).
            start_of_document: (B,) True for sequences that begin a new document: their part of `past_key_values` is
                reset. For models whose cache is of constant size.
            logits_to_keep: how many of the last tokens to give logits for, 0 for all, or (n,) their indices.
            num_items_in_batch: targets of all accumulated batches, from `Trainer`: `loss` is then this batch's part.
            kwargs: see `RecurrentKwargs`; and `shift_labels` (B, S), labels of the token after each, which override
                `labels`: a sequence that is read in pieces needs them for the last token of a piece.

        Returns:
            `RecurrentOutput` with `logits` (B, S, V), or of the tokens to keep.

        Raises:
            ValueError: see the base model; or labels of another shape or out of range, or NaN logits.
        """
        # not in the signature, because Trainer requires every parameter whose name contains "label"
        shift_labels = kwargs.pop("shift_labels", None)
        whole = keeps_all(logits_to_keep, labels is not None or shift_labels is not None)
        inputs = input_ids if inputs_embeds is None else inputs_embeds
        targets = next_token_targets(inputs, self.config.vocab_size, labels, attention_mask, shift_labels)
        cached = {
            "past_key_values": past_key_values,
            "use_cache": use_cache,
            "detach": detach,
            "start_of_document": start_of_document,
        }
        given = (input_ids, attention_mask, token_type_ids, inputs_embeds)
        outputs = self.encode(*given, has_labels=targets is not None, cached=cached, **kwargs)
        states, problems = kept_states(outputs.last_hidden_state, logits_to_keep)
        logits = of_tokens(self.predict, states, attention_mask if whole else None)
        refuse(*problems, is_nan("the logits are", logits))
        losses = {}
        if targets is not None:
            loss = self.token_loss(logits, outputs, targets, attention_mask)
            fraction = fraction_of_step(labels[:, 1:] if shift_labels is None else shift_labels, num_items_in_batch)
            losses = self.losses(loss, outputs, num_labelled(targets), fraction)
        return RecurrentOutput(logits=logits, **losses, **base_outputs(outputs))
