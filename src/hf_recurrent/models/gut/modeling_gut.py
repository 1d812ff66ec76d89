"""Gated Universal Transformer ("Investigating Recurrent Transformers with Dynamic Halt", section 5.1)."""

from transformers.generation import GenerationMixin

from ..base.pretrained import RecurrentPreTrainedModel
from ..base.shared_block import DepthRecurrentModel
from ..heads.causal import ForCausalLM
from ..heads.choices import ForMultipleChoice
from ..heads.classification import ForSequenceClassification
from ..heads.masked import ForMaskedLM
from ..heads.questions import ForQuestionAnswering
from ..heads.tokens import ForTokenClassification
from ..ops.transformer_block import TransformerBlock
from .configuration_gut import GUTConfig


class GUTPreTrainedModel(RecurrentPreTrainedModel):
    config: GUTConfig


class GUTModel(DepthRecurrentModel, GUTPreTrainedModel):
    """One gated block, iterated until the whole sequence halts (Algorithm 3); causal models halt token by token."""

    def __init__(self, config: GUTConfig):
        super().__init__(config)
        self.build(config, TransformerBlock(config, gated=config.feed_forward == "gated"))


class GUTForSequenceClassification(ForSequenceClassification, GUTPreTrainedModel):
    base_model_class = GUTModel


class GUTForTokenClassification(ForTokenClassification, GUTPreTrainedModel):
    base_model_class = GUTModel


class GUTForMaskedLM(ForMaskedLM, GUTPreTrainedModel):
    base_model_class = GUTModel


class GUTForQuestionAnswering(ForQuestionAnswering, GUTPreTrainedModel):
    base_model_class = GUTModel


class GUTForMultipleChoice(ForMultipleChoice, GUTPreTrainedModel):
    base_model_class = GUTModel


class GUTForCausalLM(ForCausalLM, GUTPreTrainedModel, GenerationMixin):
    base_model_class = GUTModel


__all__ = [
    "GUTForCausalLM",
    "GUTForMaskedLM",
    "GUTForMultipleChoice",
    "GUTForQuestionAnswering",
    "GUTForSequenceClassification",
    "GUTForTokenClassification",
    "GUTModel",
    "GUTPreTrainedModel",
]
