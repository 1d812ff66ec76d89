"""Transformer encoder with xPos: the baseline of "Investigating Recurrent Transformers with Dynamic Halt"."""

import torch
from torch import nn

from .block import TransformerBlock
from .configuration_xpos_transformer import XPosTransformerConfig
from .depth_recurrence import DepthOutput
from .encoder import EncoderModel, FixedDepth
from .heads import ForSequenceClassification
from .pretrained import RecurrentPreTrainedModel


class XPosTransformerPreTrainedModel(RecurrentPreTrainedModel):
    config: XPosTransformerConfig


class XPosTransformerModel(FixedDepth, EncoderModel, XPosTransformerPreTrainedModel):
    """A stack of unshared blocks."""

    def __init__(self, config: XPosTransformerConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(
            TransformerBlock(config, layer_idx=index) for index in range(config.num_hidden_layers)
        )
        self.post_init()

    def encode(
        self,
        hidden: torch.Tensor,
        mask: torch.Tensor,
        max_steps: int | None,
        halting_threshold: float | None,
        record_halting: bool,
        record_states: bool,
    ) -> DepthOutput:
        for name, value in (("max_steps", max_steps), ("halting_threshold", halting_threshold)):
            if value is not None:
                raise ValueError(f"{name} is {value!r}: layers of this model are not shared, its depth is fixed")
        return self.run_fixed(list(self.layers), hidden, mask, record_states)


class XPosTransformerForSequenceClassification(ForSequenceClassification, XPosTransformerPreTrainedModel):
    base_model_class = XPosTransformerModel


__all__ = [
    "XPosTransformerForSequenceClassification",
    "XPosTransformerModel",
    "XPosTransformerPreTrainedModel",
]
