"""Universal Transformer with stick-breaking token halting ("... Dynamic Halt", section 4.1)."""

from torch import nn

from .block import TransformerBlock
from .configuration_ut import UTConfig
from .encoder import DepthRecurrentModel
from .halting import HaltingHead
from .heads import ForSequenceClassification
from .pretrained import RecurrentPreTrainedModel


class UTPreTrainedModel(RecurrentPreTrainedModel):
    config: UTConfig


class UTModel(DepthRecurrentModel, UTPreTrainedModel):
    """One plain block, iterated until every token has halted (Algorithm 1)."""

    def __init__(self, config: UTConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.dropout = nn.Dropout(config.dropout)
        self.block = TransformerBlock(config)
        if config.halting != "none":
            self.halting_head = HaltingHead(config.hidden_size, config.transition_aware, config.halting_bias_init)
        self.post_init()


class UTForSequenceClassification(ForSequenceClassification, UTPreTrainedModel):
    base_model_class = UTModel


__all__ = ["UTForSequenceClassification", "UTModel", "UTPreTrainedModel"]
