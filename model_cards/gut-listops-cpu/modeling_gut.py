"""Gated Universal Transformer ("Investigating Recurrent Transformers with Dynamic Halt", section 5.1)."""

from torch import nn

from .block import TransformerBlock
from .configuration_gut import GUTConfig
from .encoder import DepthRecurrentModel
from .halting import HaltingHead
from .heads import ForSequenceClassification
from .pretrained import RecurrentPreTrainedModel


class GUTPreTrainedModel(RecurrentPreTrainedModel):
    config: GUTConfig


class GUTModel(DepthRecurrentModel, GUTPreTrainedModel):
    """One gated block, iterated until the whole row halts (Algorithm 3)."""

    def __init__(self, config: GUTConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.dropout = nn.Dropout(config.dropout)
        self.block = TransformerBlock(config, gated=config.feed_forward == "gated")
        if config.halting != "none":
            self.halting_head = HaltingHead(config.hidden_size, config.transition_aware, config.halting_bias_init)
        self.post_init()


class GUTForSequenceClassification(ForSequenceClassification, GUTPreTrainedModel):
    base_model_class = GUTModel


__all__ = ["GUTForSequenceClassification", "GUTModel", "GUTPreTrainedModel"]
