"""Transformer with xPos: the baseline of "Investigating Recurrent Transformers with Dynamic Halt"."""

from torch import nn
from transformers.generation import GenerationMixin

from ..base.base_model import XPosModel, run_layers
from ..base.pretrained import RecurrentPreTrainedModel
from ..depth.loop import DepthOutput
from ..heads.causal import ForCausalLM
from ..heads.choices import ForMultipleChoice
from ..heads.classification import ForSequenceClassification
from ..heads.masked import ForMaskedLM
from ..heads.questions import ForQuestionAnswering
from ..heads.tokens import ForTokenClassification
from ..ops.transformer_block import TransformerBlock
from .configuration_xpos_transformer import XPosTransformerConfig


class XPosTransformerPreTrainedModel(RecurrentPreTrainedModel):
    config: XPosTransformerConfig


class XPosTransformerModel(XPosModel, XPosTransformerPreTrainedModel):
    """A stack of unshared blocks."""

    def __init__(self, config: XPosTransformerConfig):
        super().__init__(config)
        self.build_embedding(config)
        self.layers = nn.ModuleList(
            TransformerBlock(config, layer_idx=index) for index in range(config.num_hidden_layers)
        )
        self.post_init()

    def run_depth(self, hidden, mask, context, call, cache) -> DepthOutput:
        return run_layers(self.layers, hidden, mask, context, call, cache, self.config)


class XPosTransformerForSequenceClassification(ForSequenceClassification, XPosTransformerPreTrainedModel):
    base_model_class = XPosTransformerModel


class XPosTransformerForTokenClassification(ForTokenClassification, XPosTransformerPreTrainedModel):
    base_model_class = XPosTransformerModel


class XPosTransformerForMaskedLM(ForMaskedLM, XPosTransformerPreTrainedModel):
    base_model_class = XPosTransformerModel


class XPosTransformerForQuestionAnswering(ForQuestionAnswering, XPosTransformerPreTrainedModel):
    base_model_class = XPosTransformerModel


class XPosTransformerForMultipleChoice(ForMultipleChoice, XPosTransformerPreTrainedModel):
    base_model_class = XPosTransformerModel


class XPosTransformerForCausalLM(ForCausalLM, XPosTransformerPreTrainedModel, GenerationMixin):
    base_model_class = XPosTransformerModel


__all__ = [
    "XPosTransformerForCausalLM",
    "XPosTransformerForMaskedLM",
    "XPosTransformerForMultipleChoice",
    "XPosTransformerForQuestionAnswering",
    "XPosTransformerForSequenceClassification",
    "XPosTransformerForTokenClassification",
    "XPosTransformerModel",
    "XPosTransformerPreTrainedModel",
]
