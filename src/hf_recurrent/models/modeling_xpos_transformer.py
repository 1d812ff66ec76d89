"""Transformer with xPos: the baseline of "Investigating Recurrent Transformers with Dynamic Halt"."""

from torch import nn
from transformers.generation import GenerationMixin

from .block import TransformerBlock
from .causal_lm import ForCausalLM
from .configuration_xpos_transformer import XPosTransformerConfig
from .depth_model import DepthModel, fixed_depth, refuse_depth_choices
from .depth_recurrence import DepthOutput, repeat
from .heads import ForSequenceClassification
from .pretrained import RecurrentPreTrainedModel


class XPosTransformerPreTrainedModel(RecurrentPreTrainedModel):
    config: XPosTransformerConfig


class XPosTransformerModel(DepthModel, XPosTransformerPreTrainedModel):
    """A stack of unshared blocks."""

    def __init__(self, config: XPosTransformerConfig):
        super().__init__(config)
        self.build_embedding(config)
        self.layers = nn.ModuleList(
            TransformerBlock(config, layer_idx=index) for index in range(config.num_hidden_layers)
        )
        self.post_init()

    def run_depth(self, hidden, mask, context, call, slots) -> DepthOutput:
        refuse_depth_choices(call)
        return fixed_depth(repeat(list(self.layers), hidden, context, call.record_states, slots), mask)


class XPosTransformerForSequenceClassification(ForSequenceClassification, XPosTransformerPreTrainedModel):
    base_model_class = XPosTransformerModel


class XPosTransformerForCausalLM(ForCausalLM, XPosTransformerPreTrainedModel, GenerationMixin):
    base_model_class = XPosTransformerModel


__all__ = [
    "XPosTransformerForCausalLM",
    "XPosTransformerForSequenceClassification",
    "XPosTransformerModel",
    "XPosTransformerPreTrainedModel",
]
