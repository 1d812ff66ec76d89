"""Universal Transformer with stick-breaking token halting ("... Dynamic Halt", section 4.1)."""

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


class UTForTokenClassification(ForTokenClassification, UTPreTrainedModel):
    base_model_class = UTModel


class UTForMaskedLM(ForMaskedLM, UTPreTrainedModel):
    base_model_class = UTModel


class UTForQuestionAnswering(ForQuestionAnswering, UTPreTrainedModel):
    base_model_class = UTModel


class UTForMultipleChoice(ForMultipleChoice, UTPreTrainedModel):
    base_model_class = UTModel


class UTForCausalLM(ForCausalLM, UTPreTrainedModel, GenerationMixin):
    base_model_class = UTModel


__all__ = [
    "UTForCausalLM",
    "UTForMaskedLM",
    "UTForMultipleChoice",
    "UTForQuestionAnswering",
    "UTForSequenceClassification",
    "UTForTokenClassification",
    "UTModel",
    "UTPreTrainedModel",
]
