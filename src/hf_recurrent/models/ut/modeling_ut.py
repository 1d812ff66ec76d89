"""Universal Transformer with stick-breaking token halting ("... Dynamic Halt", section 4.1)."""

from transformers.generation import GenerationMixin

from ..common.causal_lm import ForCausalLM
from ..common.classification import ForSequenceClassification
from ..common.pretrained import RecurrentPreTrainedModel
from ..engine.shared_block import DepthRecurrentModel
from ..ops.transformer_block import TransformerBlock
from .configuration_ut import UTConfig


class UTPreTrainedModel(RecurrentPreTrainedModel):
    config: UTConfig


class UTModel(DepthRecurrentModel, UTPreTrainedModel):
    """One plain block, iterated until every token has halted (Algorithm 1)."""

    def __init__(self, config: UTConfig):
        super().__init__(config)
        self.build(config, TransformerBlock(config))


class UTForSequenceClassification(ForSequenceClassification, UTPreTrainedModel):
    base_model_class = UTModel


class UTForCausalLM(ForCausalLM, UTPreTrainedModel, GenerationMixin):
    base_model_class = UTModel


__all__ = ["UTForCausalLM", "UTForSequenceClassification", "UTModel", "UTPreTrainedModel"]
