"""Temporal Latent Bottleneck ("Investigating Recurrent Transformers with Dynamic Halt", section 4.2)."""

import torch
from torch import nn
from transformers.generation import GenerationMixin

from ..base.base_model import run_layers
from ..base.chunk_model import ChunkRecurrentModel
from ..base.pretrained import RecurrentPreTrainedModel
from ..config.fields import check_whole
from ..depth.loop import DepthOutput
from ..heads.causal import ForCausalLM
from ..heads.choices import ForMultipleChoice
from ..heads.classification import ForSequenceClassification
from ..heads.masked import ForMaskedLM
from ..heads.questions import ForQuestionAnswering
from ..heads.tokens import ForTokenClassification
from ..ops.memory import MemoryBlock
from .configuration_tlb import TLBConfig


class TLBPreTrainedModel(RecurrentPreTrainedModel):
    config: TLBConfig


class TLBModel(ChunkRecurrentModel, TLBPreTrainedModel):
    """A stack of unshared blocks that attend to the memory, chunk by chunk (Algorithm 2)."""

    def __init__(self, config: TLBConfig):
        super().__init__(config)
        self.build_embedding(config)
        self.layers = nn.ModuleList(MemoryBlock(config, layer_idx=index) for index in range(config.num_hidden_layers))
        self.build_memory(config)
        self.post_init()

    def cache_depth(self, max_depth: int | None) -> int:
        check_whole(max_depth, "max_depth")
        return len(self.layers)

    def memory_blocks(self) -> list[MemoryBlock]:
        return list(self.layers)

    def run_chunk(self, states: torch.Tensor, mask: torch.Tensor, context, call, cache) -> DepthOutput:
        return run_layers(self.layers, states, mask, context, call, cache, self.config)


class TLBForSequenceClassification(ForSequenceClassification, TLBPreTrainedModel):
    base_model_class = TLBModel


class TLBForTokenClassification(ForTokenClassification, TLBPreTrainedModel):
    base_model_class = TLBModel


class TLBForMaskedLM(ForMaskedLM, TLBPreTrainedModel):
    base_model_class = TLBModel


class TLBForQuestionAnswering(ForQuestionAnswering, TLBPreTrainedModel):
    base_model_class = TLBModel


class TLBForMultipleChoice(ForMultipleChoice, TLBPreTrainedModel):
    base_model_class = TLBModel


class TLBForCausalLM(ForCausalLM, TLBPreTrainedModel, GenerationMixin):
    base_model_class = TLBModel
    # an update of the memory cannot be undone
    _is_stateful = True


__all__ = [
    "TLBForCausalLM",
    "TLBForMaskedLM",
    "TLBForMultipleChoice",
    "TLBForQuestionAnswering",
    "TLBForSequenceClassification",
    "TLBForTokenClassification",
    "TLBModel",
    "TLBPreTrainedModel",
]
