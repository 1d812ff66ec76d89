"""Outputs of all models. B sequences, S tokens, E width, L maximum of steps, K chunks, M memory slots, W tokens of a
window, C labels, V token ids.

Halting units are sequences under global halting, tokens under token halting and in causal models. Siamese pairs have
two units under global halting, the sentences; models that read chunk by chunk have one for each chunk.
"""

from dataclasses import dataclass

import torch
from transformers.cache_utils import Cache
from transformers.utils import ModelOutput

from ..config.cache_name import output_with_cache

Numbers = torch.FloatTensor | None
Integers = torch.LongTensor | None
# of each step, layer, chunk or block
NumbersOfEach = tuple[torch.FloatTensor, ...] | None


@output_with_cache
class RecurrentModelOutput(ModelOutput):
    """
    Output of a base model.

    Args:
        last_hidden_state: (B, S, E) final states: soft states under halting; zero at padding.
        pooler_output: (B, E) the last hidden state, or the final memory, pooled as `config.pooling` says.
        past_key_values: with `use_cache=True`, the cache of these tokens for later calls.
        ponder_cost: (B,) expected depth, differentiable, mean over the sequence's units, in models that read chunk by
            chunk over the units of each chunk and then over chunks. None without halting.
        ponder_steps: (B,), (B, K) or (B, S) long, executed depth; -1 at padding and where a sequence has no such chunk.
        hidden_states: with `output_hidden_states=True`, L + 1 running states (B, S, E), the input first.
        attentions: with `output_attentions=True`, L attention maps (B, H, S, S). Where a step has several layers (Ouro,
            Huginn), their heads lie side by side, those of the first layer first. With a cache of P tokens
            (B, H, S, P + S), or (B, H, S, C) to the C places of each token's own chunk. Of models with a window
            (B, H, S, 2W), to the places of the block before each token's own and of its own, in order; before a
            document's first token there are zeros, which are attended to.
        read_attentions: with `output_attentions=True` in models with a memory, L maps (B, H, S, M) of the attention of
            each token to the memory slots, or to the state vectors, in the layers that attend to them.
        memory_states: with `output_hidden_states=True` in models with a memory, K + 1 states (B, M, E): before the
            first chunk and after each. Of block-recurrent models the state vectors of the highest recurrent layer:
            before the first block and after each that any sequence completes, unchanged for the others; last, unless
            all sequences end with a block, updated with the tokens of the incomplete block.
        halting_probabilities: with `output_halting=True`, (B, L), (B, K, L) or (B, S, L) conditional halting
            probabilities; a unit that halts with k accepted steps has entries 0 to k, and zeros after that.
        gates: with `output_gates=True`, L update gates (B, S, E) of a gated block. Of block-recurrent models one
            (B, M, E) for each block that any sequence completes: the share of the highest recurrent layer's state
            vectors that the update overwrites, zeros for sequences that do not complete it.
        attention_experts, feed_forward_experts: with `output_experts=True` of models with experts, (B, S, L, k) ids of
            the experts that served each token in each step, by descending gate; -1 where it was not routed, because it
            is padding or had halted.
        router_statistics: with `output_router_statistics=True` of models with experts, the sums that
            auxiliary losses are computed from, for each router.
        step_features: with `output_steps=True`, L of (B, F), the pooled state after each step, or without pooling
            (B, S, E). Of models that read chunk by chunk the steps of the last chunk.
        halting_distribution: the same, (B, L) or (B, S, L) probabilities of halting after each step.
    """

    last_hidden_state: Numbers = None
    pooler_output: Numbers = None
    past_key_values: Cache | None = None
    ponder_cost: Numbers = None
    ponder_steps: Integers = None
    hidden_states: NumbersOfEach = None
    attentions: NumbersOfEach = None
    read_attentions: NumbersOfEach = None
    memory_states: NumbersOfEach = None
    halting_probabilities: Numbers = None
    gates: NumbersOfEach = None
    attention_experts: Integers = None
    feed_forward_experts: Integers = None
    router_statistics: tuple | None = None
    step_features: NumbersOfEach = None
    halting_distribution: Numbers = None


@dataclass
class RecurrentSequenceClassifierOutput(ModelOutput):
    """
    Output of a sequence classifier.

    Args:
        loss: with labels, the task's loss, the mean over the batch's labelled examples, zero without any; in training
            mode + `aux_loss`.
        logits: (B, C).
        aux_loss: scalar, `ponder_loss` + `router_loss`; with labels only, as these, and None without either.
        ponder_loss: scalar, `config.ponder_loss_weight` times the mean ponder cost of the batch, or by the depth
            objective the weighted divergence of halting from its prior; None without halting. Examples, or questions
            with choices, that have no label are left out.
        router_loss: scalar, the weighted load balancing losses of all tokens read; None without experts.
        ponder_cost: (B,) as of the base model; the mean of both sentences for siamese pairs.
        ponder_steps: as of the base model; (B, 2) or (B, 2, K) for siamese pairs with global halting.
        hidden_states, attentions, read_attentions, memory_states, gates: as of the base model; for siamese pairs over
            2B sentences, all first sentences before all second ones.
        attention_experts, feed_forward_experts: as of the base model, at the columns of the input.
        halting_probabilities: as of the base model; (B, 2, L) or (B, 2, K, L) for siamese pairs with global halting.
    """

    loss: Numbers = None
    logits: Numbers = None
    aux_loss: Numbers = None
    ponder_loss: Numbers = None
    router_loss: Numbers = None
    ponder_cost: Numbers = None
    ponder_steps: Integers = None
    hidden_states: NumbersOfEach = None
    attentions: NumbersOfEach = None
    read_attentions: NumbersOfEach = None
    memory_states: NumbersOfEach = None
    halting_probabilities: Numbers = None
    gates: NumbersOfEach = None
    attention_experts: Integers = None
    feed_forward_experts: Integers = None


@dataclass
class RecurrentTokenClassifierOutput(RecurrentSequenceClassifierOutput):
    """
    Output of a token classifier: the fields of a sequence classifier, which are as of the base model, and:

    Args:
        loss: with labels, the mean cross-entropy over the batch's labelled tokens; in training mode + `aux_loss`.
        logits: (B, S, C).
    """


@dataclass
class RecurrentMaskedLMOutput(RecurrentSequenceClassifierOutput):
    """
    Output of a masked language model: the fields of a sequence classifier, which are as of the base model, and:

    Args:
        loss: with labels, the mean cross-entropy over the batch's labelled tokens; in training mode + `aux_loss`.
        logits: (B, S, V).
    """


@dataclass
class RecurrentMultipleChoiceModelOutput(RecurrentSequenceClassifierOutput):
    """
    Output of a multiple-choice model of B questions with C choices: the fields of a sequence classifier.

    Args:
        loss: with labels, the mean cross-entropy over the batch's labelled questions; in training mode + `aux_loss`.
        logits: (B, C), a score of each choice.
        ponder_cost, ponder_steps, halting_probabilities, attention_experts, feed_forward_experts: (B, C, ...), as of a
            sequence classifier for each choice.
        hidden_states, attentions, read_attentions, memory_states, gates: as of a sequence classifier of B * C
            sequences.
    """


@dataclass
class RecurrentQuestionAnsweringModelOutput(ModelOutput):
    """
    Output of extractive question answering.

    Args:
        loss: with positions, the mean of the mean cross-entropies of first and of last tokens; in training mode
            + `aux_loss`.
        start_logits, end_logits: (B, S), the least number at padding.
        aux_loss, ponder_loss, router_loss: scalars with positions, as of a sequence classifier.
        ponder_cost, ponder_steps, hidden_states, attentions, read_attentions, memory_states, halting_probabilities,
            gates, attention_experts, feed_forward_experts: as of the base model.
    """

    loss: Numbers = None
    start_logits: Numbers = None
    end_logits: Numbers = None
    aux_loss: Numbers = None
    ponder_loss: Numbers = None
    router_loss: Numbers = None
    ponder_cost: Numbers = None
    ponder_steps: Integers = None
    hidden_states: NumbersOfEach = None
    attentions: NumbersOfEach = None
    read_attentions: NumbersOfEach = None
    memory_states: NumbersOfEach = None
    halting_probabilities: Numbers = None
    gates: NumbersOfEach = None
    attention_experts: Integers = None
    feed_forward_experts: Integers = None


@output_with_cache
class RecurrentCausalLMOutput(ModelOutput):
    """
    Output of a causal language model.

    Args:
        loss: with labels, the mean cross-entropy over the batch's labelled tokens; in training mode + `aux_loss`.
        logits: (B, S, V), or of the last tokens only (`logits_to_keep`).
        aux_loss, ponder_loss, router_loss: scalars with labels, as of a sequence classifier.
        past_key_values, ponder_cost, ponder_steps, hidden_states, attentions, read_attentions, memory_states,
            halting_probabilities, gates, attention_experts, feed_forward_experts: as of the base model.
    """

    loss: Numbers = None
    logits: Numbers = None
    aux_loss: Numbers = None
    ponder_loss: Numbers = None
    router_loss: Numbers = None
    past_key_values: Cache | None = None
    ponder_cost: Numbers = None
    ponder_steps: Integers = None
    hidden_states: NumbersOfEach = None
    attentions: NumbersOfEach = None
    read_attentions: NumbersOfEach = None
    memory_states: NumbersOfEach = None
    halting_probabilities: Numbers = None
    gates: NumbersOfEach = None
    attention_experts: Integers = None
    feed_forward_experts: Integers = None


@dataclass
class SUTModelOutput(RecurrentModelOutput):
    """
    Output of a decoder: that of `RecurrentModelOutput`, with the attention to the encoder's states.

    Args:
        cross_attentions: with `output_attentions=True`, L maps (B, k * H, S, S') to the encoder's S' tokens, the
            heads of each token's first expert first.
        cross_attention_experts: with `output_experts=True`, (B, S, L, k) ids as of the other routers.
    """

    cross_attentions: NumbersOfEach = None
    cross_attention_experts: Integers = None


@output_with_cache
class SUTSeq2SeqModelOutput(ModelOutput):
    """
    Output of an encoder and a decoder, of S source and T target tokens.

    Args:
        last_hidden_state: (B, T, E) final states of the decoder.
        past_key_values: with `use_cache=True`, the cache of the target and of the source for later calls.
        ponder_cost, ponder_steps, halting_probabilities: of the decoder, as of a base model.
        attention_experts, cross_attention_experts, feed_forward_experts: of the decoder, (B, T, L, k).
        decoder_hidden_states, decoder_attentions, cross_attentions: as of a base model.
        encoder_last_hidden_state: (B, S, E).
        encoder_hidden_states, encoder_attentions, encoder_ponder_cost, encoder_ponder_steps,
            encoder_halting_probabilities, encoder_attention_experts, encoder_feed_forward_experts: of the encoder.
        router_statistics: with `output_router_statistics=True`, of the encoder's routers, then of the decoder's.
        step_features, halting_distribution, encoder_step_features, encoder_halting_distribution: with
            `output_steps=True`, as of a base model.
    """

    last_hidden_state: Numbers = None
    past_key_values: Cache | None = None
    ponder_cost: Numbers = None
    ponder_steps: Integers = None
    halting_probabilities: Numbers = None
    attention_experts: Integers = None
    cross_attention_experts: Integers = None
    feed_forward_experts: Integers = None
    decoder_hidden_states: NumbersOfEach = None
    decoder_attentions: NumbersOfEach = None
    cross_attentions: NumbersOfEach = None
    encoder_last_hidden_state: Numbers = None
    encoder_hidden_states: NumbersOfEach = None
    encoder_attentions: NumbersOfEach = None
    encoder_ponder_cost: Numbers = None
    encoder_ponder_steps: Integers = None
    encoder_halting_probabilities: Numbers = None
    encoder_attention_experts: Integers = None
    encoder_feed_forward_experts: Integers = None
    router_statistics: tuple | None = None
    step_features: NumbersOfEach = None
    halting_distribution: Numbers = None
    encoder_step_features: NumbersOfEach = None
    encoder_halting_distribution: Numbers = None


@output_with_cache
class SUTSeq2SeqOutput(ModelOutput):
    """
    Output of an encoder-decoder model with a head.

    Args:
        loss: with labels, the mean smoothed cross-entropy in nats over the labelled tokens; in training mode
            + `aux_loss`.
        logits: (B, T, V).
        aux_loss, ponder_loss, router_loss: scalars with labels, as of a sequence classifier, over both stacks.
        past_key_values, ponder_cost, ponder_steps, halting_probabilities, attention_experts, cross_attention_experts,
            feed_forward_experts, decoder_hidden_states, decoder_attentions, cross_attentions: as of
            `SUTSeq2SeqModelOutput`, and all fields of the encoder.
    """

    loss: Numbers = None
    logits: Numbers = None
    aux_loss: Numbers = None
    ponder_loss: Numbers = None
    router_loss: Numbers = None
    past_key_values: Cache | None = None
    ponder_cost: Numbers = None
    ponder_steps: Integers = None
    halting_probabilities: Numbers = None
    attention_experts: Integers = None
    cross_attention_experts: Integers = None
    feed_forward_experts: Integers = None
    decoder_hidden_states: NumbersOfEach = None
    decoder_attentions: NumbersOfEach = None
    cross_attentions: NumbersOfEach = None
    encoder_last_hidden_state: Numbers = None
    encoder_hidden_states: NumbersOfEach = None
    encoder_attentions: NumbersOfEach = None
    encoder_ponder_cost: Numbers = None
    encoder_ponder_steps: Integers = None
    encoder_halting_probabilities: Numbers = None
    encoder_attention_experts: Integers = None
    encoder_feed_forward_experts: Integers = None


# fields of a base model's output for its heads alone
FOR_HEADS = (
    *("last_hidden_state", "pooler_output", "router_statistics", "step_features", "halting_distribution"),
    *("encoder_step_features", "encoder_halting_distribution"),
)


def base_outputs(outputs: ModelOutput) -> dict:
    """The fields of a base model's output that a head returns, too."""
    return {name: value for name, value in outputs.items() if name not in FOR_HEADS}
