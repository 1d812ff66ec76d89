"""Gated Universal Transformer ("Investigating Recurrent Transformers with Dynamic Halt", section 5.1)."""

from transformers.generation import GenerationMixin

from .block import TransformerBlock
from .causal_lm import ForCausalLM
from .configuration_gut import GUTConfig
from .depth_model import DepthRecurrentModel
from .heads import ForSequenceClassification
from .pretrained import RecurrentPreTrainedModel


class GUTPreTrainedModel(RecurrentPreTrainedModel):
    config: GUTConfig


class GUTModel(DepthRecurrentModel, GUTPreTrainedModel):
    """One gated block, iterated until the whole row halts (Algorithm 3); causal models halt token by token."""

    def __init__(self, config: GUTConfig):
        super().__init__(config)
        self.build(config, TransformerBlock(config, gated=config.feed_forward == "gated"))


class GUTForSequenceClassification(ForSequenceClassification, GUTPreTrainedModel):
    base_model_class = GUTModel


class GUTForCausalLM(ForCausalLM, GUTPreTrainedModel, GenerationMixin):
    base_model_class = GUTModel


__all__ = ["GUTForCausalLM", "GUTForSequenceClassification", "GUTModel", "GUTPreTrainedModel"]
