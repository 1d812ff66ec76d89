"""Temporal Latent Bottleneck ("Investigating Recurrent Transformers with Dynamic Halt", section 4.2)."""

import torch
from torch import nn
from transformers.generation import GenerationMixin

from .block import TransformerBlock
from .causal_lm import ForCausalLM
from .chunk_recurrence import ChunkRecurrentModel
from .configuration_tlb import TLBConfig
from .depth_model import fixed_depth, refuse_depth_choices
from .depth_recurrence import DepthOutput, repeat
from .heads import ForSequenceClassification
from .memory import MemoryRead
from .pretrained import RecurrentPreTrainedModel


class TLBPreTrainedModel(RecurrentPreTrainedModel):
    config: TLBConfig


class TLBModel(ChunkRecurrentModel, TLBPreTrainedModel):
    """A stack of unshared blocks that read the memory, chunk by chunk (Algorithm 2)."""

    def __init__(self, config: TLBConfig):
        super().__init__(config)
        self.build_embedding(config)
        self.layers = nn.ModuleList(
            TransformerBlock(config, layer_idx=index, reads_memory=True) for index in range(config.num_hidden_layers)
        )
        self.build_memory(config)
        self.post_init()

    def cache_depth(self, max_steps: int | None) -> int:
        return len(self.layers)

    def memory_readers(self) -> list[MemoryRead]:
        return [layer.memory_read for layer in self.layers]

    def run_chunk(self, states: torch.Tensor, mask: torch.Tensor, context, call, slots) -> DepthOutput:
        refuse_depth_choices(call)
        return fixed_depth(repeat(list(self.layers), states, context, call.record_states, slots), mask)


class TLBForSequenceClassification(ForSequenceClassification, TLBPreTrainedModel):
    base_model_class = TLBModel


class TLBForCausalLM(ForCausalLM, TLBPreTrainedModel, GenerationMixin):
    base_model_class = TLBModel
    # what has been written into the memory cannot be taken back
    _is_stateful = True


__all__ = ["TLBForCausalLM", "TLBForSequenceClassification", "TLBModel", "TLBPreTrainedModel"]
