"""Gated Universal Transformer Latent Bottleneck ("Investigating ... Dynamic Halt", section 5.2)."""

import torch
from transformers.generation import GenerationMixin

from ..base.chunk_model import ChunkRecurrentModel
from ..base.pretrained import RecurrentPreTrainedModel
from ..base.shared_block import SharedBlockModel
from ..depth.loop import DepthOutput
from ..heads.causal import ForCausalLM
from ..heads.choices import ForMultipleChoice
from ..heads.classification import ForSequenceClassification
from ..heads.masked import ForMaskedLM
from ..heads.questions import ForQuestionAnswering
from ..heads.tokens import ForTokenClassification
from ..ops.memory import MemoryBlock
from .configuration_gutlb import GUTLBConfig


class GUTLBPreTrainedModel(RecurrentPreTrainedModel):
    config: GUTLBConfig


class GUTLBModel(SharedBlockModel, ChunkRecurrentModel, GUTLBPreTrainedModel):
    """One gated block that attends to the memory, iterated within each chunk until the chunk halts (Algorithm 4)."""

    def __init__(self, config: GUTLBConfig):
        super().__init__(config)
        self.build_embedding(config)
        self.block = MemoryBlock(config, gated=config.feed_forward == "gated")
        self.build_halting(config)
        self.build_memory(config)
        self.post_init()

    def unread_answers(self, rule, head):
        reason = super().unread_answers(rule, head)
        if reason is None and self.config.pair_encoding == "siamese":
            return (
                "the sentences of a pair have different chunks, so that within a chunk there is no prediction for the "
                "pair: use 'convergence', or pair_encoding='joint'"
            )
        return reason

    def cache_depth(self, max_depth: int | None) -> int:
        return self.cache_steps(max_depth)

    def memory_blocks(self) -> list[MemoryBlock]:
        return [self.block]

    def run_chunk(self, states: torch.Tensor, mask: torch.Tensor, context, call, cache) -> DepthOutput:
        if isinstance(context.memory, torch.Tensor):
            # every step attends to the same memory
            context = context._replace(memory=self.block.project_memory(context.memory))
        return self.run_depth(states, mask, context, call, cache)


class GUTLBForSequenceClassification(ForSequenceClassification, GUTLBPreTrainedModel):
    base_model_class = GUTLBModel


class GUTLBForTokenClassification(ForTokenClassification, GUTLBPreTrainedModel):
    base_model_class = GUTLBModel


class GUTLBForMaskedLM(ForMaskedLM, GUTLBPreTrainedModel):
    base_model_class = GUTLBModel


class GUTLBForQuestionAnswering(ForQuestionAnswering, GUTLBPreTrainedModel):
    base_model_class = GUTLBModel


class GUTLBForMultipleChoice(ForMultipleChoice, GUTLBPreTrainedModel):
    base_model_class = GUTLBModel


class GUTLBForCausalLM(ForCausalLM, GUTLBPreTrainedModel, GenerationMixin):
    base_model_class = GUTLBModel
    # an update of the memory cannot be undone
    _is_stateful = True


__all__ = [
    "GUTLBForCausalLM",
    "GUTLBForMaskedLM",
    "GUTLBForMultipleChoice",
    "GUTLBForQuestionAnswering",
    "GUTLBForSequenceClassification",
    "GUTLBForTokenClassification",
    "GUTLBModel",
    "GUTLBPreTrainedModel",
]
