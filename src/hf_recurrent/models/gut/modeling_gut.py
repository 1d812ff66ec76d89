"""Gated Universal Transformer ("Investigating Recurrent Transformers with Dynamic Halt", section 5.1)."""

from transformers.generation import GenerationMixin

from ..common.causal_lm import ForCausalLM
from ..common.classification import ForSequenceClassification
from ..common.pretrained import RecurrentPreTrainedModel
from ..engine.shared_block import DepthRecurrentModel
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


class GUTForCausalLM(ForCausalLM, GUTPreTrainedModel, GenerationMixin):
    base_model_class = GUTModel


__all__ = ["GUTForCausalLM", "GUTForSequenceClassification", "GUTModel", "GUTPreTrainedModel"]
