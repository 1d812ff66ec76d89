"""Outputs of all models. B sequences, S tokens, E width, L maximum of steps, K chunks, M memory slots, W tokens of a
window, C labels, V token ids.

Sequences halt under global halting, tokens under token halting and in causal models. Siamese pairs have two parts under
global halting, the sentences; models that read chunk by chunk have one for each chunk.
"""

from collections import OrderedDict
from dataclasses import dataclass

import torch
from transformers.cache_utils import Cache
from transformers.utils import ModelOutput

from ..config.cache_name import output_with_cache

Numbers = torch.FloatTensor | None
Integers = torch.LongTensor | None
# one for each step, layer, chunk or block
NumbersOfEach = tuple[torch.FloatTensor, ...] | None


@output_with_cache
class RecurrentOutput(ModelOutput):
    """
    Output of a base model or of a model with a head. Fields that a model does not have, or that were not asked for, are
    None. A multiple-choice model of B questions with C choices returns `ponder_cost`, `ponder_steps`,
    `halting_probabilities` and the experts as (B, C, ...), and records of B * C sequences.

    Args:
        loss: with labels, the mean loss of the batch's labelled examples or tokens, zero without any; in training mode
            + `aux_loss`. Of spans it is the mean of the losses of first and of last tokens.
        logits: of sequences (B, C), of choices (B, C), of tokens (B, S, C) or (B, S, V); of causal language models
            those of the tokens that `logits_to_keep` names.
        start_logits, end_logits: of extractive question answering, (B, S), the least number at padding.
        aux_loss: scalar, `ponder_loss` + `router_loss`; with labels only, as these, and None without either.
        ponder_loss: scalar, `config.ponder_loss_weight` times the mean ponder cost of the batch, or by the depth
            objective the weighted divergence of halting from its prior; None without halting. Examples, or questions
            with choices, that have no label are left out.
        router_loss: scalar, the weighted load balancing losses of all tokens; None without experts.
        last_hidden_state: of base models, (B, S, E) final states: soft states under halting; zero at padding.
        pooler_output: of base models, (B, E) the last hidden state, or the final memory, pooled by `config.pooling`.
        past_key_values: with `use_cache=True`, the cache of these tokens for later calls.
        ponder_cost: (B,) expected depth, differentiable, mean over the sequence's tokens, in models that read chunk by
            chunk over the tokens of each chunk and then over chunks; the mean of both sentences for siamese pairs. None
            without halting.
        ponder_steps: (B,), (B, K) or (B, S) long, executed depth; -1 at padding and where a sequence has no such chunk.
            (B, 2) or (B, 2, K) for siamese pairs with global halting.
        hidden_states: with `output_hidden_states=True`, L + 1 running states (B, S, E), the input first; for siamese
            pairs, as all records, over 2B sentences, all first sentences before all second ones.
        attentions: with `output_attentions=True`, L attention maps (B, H, S, S). Where a step has several layers (Ouro,
            Huginn), their heads are side by side, the heads of the first layer first. With a cache of P tokens
            (B, H, S, P + S), or (B, H, S, C) to the C places of each token's chunk. In models with a window
            (B, H, S, 2W), to the places of the block before each token's block and of its block, in order; before a
            document's first token there are zeros, which are attended to.
        read_attentions: with `output_attentions=True` in models with a memory, L maps (B, H, S, M) of the attention of
            each token to the memory slots, or to the state vectors, in the layers that attend to them.
        memory_states: with `output_hidden_states=True` in models with a memory, K + 1 states (B, M, E): before the
            first chunk and after each. In block-recurrent models the state vectors of the highest recurrent layer:
            before the first block and after each that any sequence completes, unchanged for the others; last, unless
            all sequences end with a block, updated with the tokens of the incomplete block.
        halting_probabilities: with `output_halting=True`, (B, L), (B, K, L) or (B, S, L) conditional halting
            probabilities, (B, 2, L) or (B, 2, K, L) for siamese pairs with global halting; after k accepted steps
            entries 0 to k are set, and zeros follow.
        gates: with `output_gates=True`, L update gates (B, S, E) of a gated block. In block-recurrent models one
            (B, M, E) for each block that any sequence completes: the share of the highest recurrent layer's state
            vectors that the update overwrites, zeros for sequences that do not complete it.
        attention_experts, feed_forward_experts, cross_attention_experts: with `output_experts=True` of models with
            experts, (B, S, L, k) ids of the experts that served each token in each step, by descending gate; -1 where
            it was not routed, because it is padding or had halted.
        cross_attentions: with `output_attentions=True`, L maps (B, k * H, S, S') to the encoder's S' tokens, the
            heads of each token's first expert first.
        router_statistics: of base models, with `output_router_statistics=True`, the sums that auxiliary losses are
            computed from, for each router.
        step_features: of base models, with `output_steps=True`, L of (B, F), the pooled state after each step, or
            without pooling (B, S, E). In models that read chunk by chunk the steps of the last chunk.
        halting_distribution: with `output_steps=True`, (B, L) or (B, S, L) probabilities of halting after each step.
    """

    loss: Numbers = None
    logits: Numbers = None
    start_logits: Numbers = None
    end_logits: Numbers = None
    aux_loss: Numbers = None
    ponder_loss: Numbers = None
    router_loss: Numbers = None
    last_hidden_state: Numbers = None
    pooler_output: Numbers = None
    past_key_values: Cache | None = None
    ponder_cost: Numbers = None
    ponder_steps: Integers = None
    hidden_states: NumbersOfEach = None
    attentions: NumbersOfEach = None
    cross_attentions: NumbersOfEach = None
    read_attentions: NumbersOfEach = None
    memory_states: NumbersOfEach = None
    halting_probabilities: Numbers = None
    gates: NumbersOfEach = None
    attention_experts: Integers = None
    cross_attention_experts: Integers = None
    feed_forward_experts: Integers = None
    router_statistics: tuple | None = None
    step_features: NumbersOfEach = None
    halting_distribution: Numbers = None

    def __setattr__(self, name: str, value: object) -> None:
        # transformers collects the names of all fields for each value that is set
        if value is not None and name in self.__dataclass_fields__:
            OrderedDict.__setitem__(self, name, value)
        object.__setattr__(self, name, value)


@dataclass
class RecurrentSeq2SeqOutput(RecurrentOutput):
    """
    Output of an encoder and a decoder, of S source and T target tokens, with or without a head. The fields of
    `RecurrentOutput` are of the decoder, its experts (B, T, L, k); `router_statistics` are of the encoder's routers,
    then of the decoder's. Fields of the encoder have the prefix `encoder_`.

    Args:
        loss: with labels, the mean smoothed cross-entropy in nats over the labelled tokens; in training mode
            + `aux_loss`, whose terms count both stacks.
        decoder_hidden_states, decoder_attentions: `hidden_states` and `attentions` of the decoder.
        encoder_last_hidden_state: (B, S, E).
        encoder_hidden_states, encoder_attentions, encoder_ponder_cost, encoder_ponder_steps,
            encoder_halting_probabilities, encoder_attention_experts, encoder_feed_forward_experts,
            encoder_step_features, encoder_halting_distribution: of the encoder.
    """

    decoder_hidden_states: NumbersOfEach = None
    decoder_attentions: NumbersOfEach = None
    encoder_last_hidden_state: Numbers = None
    encoder_hidden_states: NumbersOfEach = None
    encoder_attentions: NumbersOfEach = None
    encoder_ponder_cost: Numbers = None
    encoder_ponder_steps: Integers = None
    encoder_halting_probabilities: Numbers = None
    encoder_attention_experts: Integers = None
    encoder_feed_forward_experts: Integers = None
    encoder_step_features: NumbersOfEach = None
    encoder_halting_distribution: Numbers = None


# fields of a base model's output for its heads alone
FOR_HEADS = (
    *("last_hidden_state", "pooler_output", "router_statistics", "step_features", "halting_distribution"),
    *("encoder_step_features", "encoder_halting_distribution"),
)


def base_outputs(outputs: ModelOutput) -> dict:
    """The fields of a base model's output that a head returns, too."""
    return {name: value for name, value in outputs.items() if name not in FOR_HEADS}
