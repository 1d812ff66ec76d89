"""What the models return. B rows, S tokens, E width, L most steps, K chunks, M memory slots, W tokens of a window, C
labels, V token ids.

Halting units are rows under global halting, tokens under token halting and in causal models. Siamese pairs have two
units a row under global halting, the sentences; models that read chunk by chunk have a unit for each chunk.
"""

from dataclasses import dataclass

import torch
from transformers.cache_utils import Cache
from transformers.utils import ModelOutput


@dataclass
class RecurrentModelOutput(ModelOutput):
    """
    Output of a base model.

    Args:
        last_hidden_state: (B, S, E) final states: soft states under halting; zero at padding.
        pooler_output: (B, E) the last hidden state, or the final memory, pooled as `config.pooling` says.
        past_key_values: with `use_cache=True`, what a later call needs to know of these tokens.
        ponder_cost: (B,) expected depth, differentiable, mean over the row's units, in models that read chunk by chunk
            over the units of each chunk and then over chunks. None without halting.
        ponder_steps: (B,), (B, K) or (B, S) long, executed depth; -1 at padding and where a row has no such chunk.
        hidden_states: with `output_hidden_states=True`, L + 1 running states (B, S, E), the input first.
        attentions: with `output_attentions=True`, L attention maps (B, H, S, S). With a cache of P tokens
            (B, H, S, P + S), or (B, H, S, C) to the C places of each token's own chunk. Of models with a window
            (B, H, S, 2W), to the places of the block before each token's own and of its own, in order; before a
            document's first token there are zeros, which are attended to.
        read_attentions: with `output_attentions=True` where a memory is read, L maps (B, H, S, M) of what each token
            reads of the slots, or of the state vectors, in the layers that read them.
        memory_states: with `output_hidden_states=True` where there is a memory, K + 1 states (B, M, E): before the
            first chunk and after each. Of block-recurrent models the state vectors of the highest recurrent layer:
            before the first block and after each that some row completes, which other rows keep theirs through; last,
            unless all rows end with a block, as the tokens of a row's begun block would leave them.
        halting_probabilities: with `output_halting=True`, (B, L), (B, K, L) or (B, S, L) conditional halting
            probabilities; a unit that halts with k accepted steps has entries 0 to k, and zeros after that.
        gates: with `output_gates=True`, L update gates (B, S, E) of a gated block. Of block-recurrent models one
            (B, M, E) for each block that some row completes: the share of the highest recurrent layer's state vectors
            that its update forgets, zeros in rows that do not complete it.
    """

    last_hidden_state: torch.FloatTensor | None = None
    pooler_output: torch.FloatTensor | None = None
    past_key_values: Cache | None = None
    ponder_cost: torch.FloatTensor | None = None
    ponder_steps: torch.LongTensor | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    attentions: tuple[torch.FloatTensor, ...] | None = None
    read_attentions: tuple[torch.FloatTensor, ...] | None = None
    memory_states: tuple[torch.FloatTensor, ...] | None = None
    halting_probabilities: torch.FloatTensor | None = None
    gates: tuple[torch.FloatTensor, ...] | None = None


@dataclass
class RecurrentSequenceClassifierOutput(ModelOutput):
    """
    Output of a sequence classifier.

    Args:
        loss: task loss + `aux_loss`, with labels.
        logits: (B, C).
        aux_loss: scalar, `config.ponder_loss_weight` times the mean ponder cost of the batch's rows; with labels and
            halting only.
        ponder_cost: (B,) as of the base model; the mean of both sentences for siamese pairs.
        ponder_steps: as of the base model; (B, 2) or (B, 2, K) for siamese pairs with global halting.
        hidden_states, attentions, read_attentions, memory_states, gates: as of the base model; for siamese pairs over
            2B sentences, all first sentences before all second ones.
        halting_probabilities: as of the base model; (B, 2, L) or (B, 2, K, L) for siamese pairs with global halting.
    """

    loss: torch.FloatTensor | None = None
    logits: torch.FloatTensor | None = None
    aux_loss: torch.FloatTensor | None = None
    ponder_cost: torch.FloatTensor | None = None
    ponder_steps: torch.LongTensor | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    attentions: tuple[torch.FloatTensor, ...] | None = None
    read_attentions: tuple[torch.FloatTensor, ...] | None = None
    memory_states: tuple[torch.FloatTensor, ...] | None = None
    halting_probabilities: torch.FloatTensor | None = None
    gates: tuple[torch.FloatTensor, ...] | None = None


@dataclass
class RecurrentCausalLMOutput(ModelOutput):
    """
    Output of a causal language model.

    Args:
        loss: mean cross-entropy over the batch's labelled tokens + `aux_loss`, with labels.
        logits: (B, S, V), or of the last tokens only (`logits_to_keep`).
        aux_loss: scalar, `config.ponder_loss_weight` times the mean ponder cost of the batch's rows; with labels and
            halting only.
        past_key_values, ponder_cost, ponder_steps, hidden_states, attentions, read_attentions, memory_states,
            halting_probabilities, gates: as of the base model.
    """

    loss: torch.FloatTensor | None = None
    logits: torch.FloatTensor | None = None
    aux_loss: torch.FloatTensor | None = None
    past_key_values: Cache | None = None
    ponder_cost: torch.FloatTensor | None = None
    ponder_steps: torch.LongTensor | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    attentions: tuple[torch.FloatTensor, ...] | None = None
    read_attentions: tuple[torch.FloatTensor, ...] | None = None
    memory_states: tuple[torch.FloatTensor, ...] | None = None
    halting_probabilities: torch.FloatTensor | None = None
    gates: tuple[torch.FloatTensor, ...] | None = None
