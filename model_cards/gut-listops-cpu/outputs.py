"""What the models return. B rows, S tokens, E width, L most steps, C labels.

Rows are halting units under global halting and tokens under token halting; siamese pairs have two units a row under
global halting, the sentences.
"""

from dataclasses import dataclass

import torch
from transformers.utils import ModelOutput


@dataclass
class RecurrentModelOutput(ModelOutput):
    """
    Output of a base model.

    Args:
        last_hidden_state: (B, S, E) final states: soft states under halting; zero at padding.
        pooler_output: (B, E) the last hidden state pooled as `config.pooling` says.
        ponder_cost: (B,) expected depth, differentiable, mean over the row's units. None without halting.
        ponder_steps: (B,) or (B, S) long, executed depth; -1 at padding.
        hidden_states: with `output_hidden_states=True`, L + 1 running states (B, S, E), the input first.
        attentions: with `output_attentions=True`, L attention maps (B, H, S, S).
        halting_probabilities: with `output_halting=True`, (B, L) or (B, S, L) conditional halting probabilities; a
            unit that halts with k accepted steps has entries 0 to k, and zeros after that.
        gates: with `output_gates=True`, L update gates (B, S, E) of a gated block.
    """

    last_hidden_state: torch.FloatTensor | None = None
    pooler_output: torch.FloatTensor | None = None
    ponder_cost: torch.FloatTensor | None = None
    ponder_steps: torch.LongTensor | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    attentions: tuple[torch.FloatTensor, ...] | None = None
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
        ponder_steps: (B,) or (B, S) as of the base model; (B, 2) for siamese pairs with global halting.
        hidden_states, attentions, gates: as of the base model; for siamese pairs over 2B sentences, all first
            sentences before all second ones.
        halting_probabilities: as of the base model; (B, 2, L) for siamese pairs with global halting.
    """

    loss: torch.FloatTensor | None = None
    logits: torch.FloatTensor | None = None
    aux_loss: torch.FloatTensor | None = None
    ponder_cost: torch.FloatTensor | None = None
    ponder_steps: torch.LongTensor | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    attentions: tuple[torch.FloatTensor, ...] | None = None
    halting_probabilities: torch.FloatTensor | None = None
    gates: tuple[torch.FloatTensor, ...] | None = None
