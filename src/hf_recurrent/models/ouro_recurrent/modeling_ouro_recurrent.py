"""Ouro (https://arxiv.org/abs/2510.25741) as a model of adaptive depth."""

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.generation import GenerationMixin
from transformers.modeling_layers import GradientCheckpointingLayer

from ..base.base_model import ForwardCall
from ..base.pretrained import RecurrentPreTrainedModel
from ..base.stacked_depth import SandwichLayer, StackedDepthModel, apply_layers
from ..depth.halting import HaltingStrategy
from ..depth.stick_breaking import StickBreaking
from ..heads.causal import ForCausalLM
from ..heads.choices import ForMultipleChoice
from ..heads.classification import ForSequenceClassification
from ..heads.questions import ForQuestionAnswering
from ..heads.tokens import ForTokenClassification
from ..ops.attention import PackedContext, PaddedContext, RotaryAttention
from ..ops.feed_forward import GatedLinearUnit
from ..ops.halting_heads import HaltingHead
from ..ops.layers import RMSNorm
from ..ops.transformer_block import BlockOutput
from .configuration_ouro_recurrent import OuroRecurrentConfig


class OuroLayer(GradientCheckpointingLayer, SandwichLayer):
    """`a = x + N2 Attention(N1 x)`, `y = a + N4 GLU(N3 a)`, each N a root mean square norm."""

    def __init__(self, config, layer_idx: int):
        slides = layer_idx in config.sliding_layers
        attention = RotaryAttention(config, layer_idx)
        attention.window = config.sliding_window if slides else None
        super().__init__(config, attention, GatedLinearUnit(config, ACT2FN[config.hidden_act]), slides)

    def updated(self, states: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        states = states + self.attended_norm(attended)
        return states + self.fed_norm(self.feed_forward(self.feed_forward_norm(states)))


class OuroBlock(nn.Module):
    """The layers of a depth step, and a norm after them, from which the next step starts and heads read."""

    def __init__(self, config):
        super().__init__()
        self.layers = nn.ModuleList([OuroLayer(config, number) for number in range(config.layers_per_step)])
        self.norm = RMSNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(
        self,
        hidden_states: torch.Tensor,
        context: PaddedContext | PackedContext,
        source: torch.Tensor | None = None,
    ) -> BlockOutput:
        """Apply one step; a `source` of keys and values is the running state itself."""
        output = apply_layers(self.layers, hidden_states, context)
        return output._replace(hidden_states=self.norm(output.hidden_states))


class OuroRecurrentPreTrainedModel(RecurrentPreTrainedModel):
    config: OuroRecurrentConfig
    _no_split_modules = ["OuroLayer"]


class OuroRecurrentModel(StackedDepthModel, OuroRecurrentPreTrainedModel):
    """A stack of layers, iterated for a fixed number of steps or until every token has stopped (section 3)."""

    def __init__(self, config: OuroRecurrentConfig):
        super().__init__(config)
        self.build_embedding(config)
        self.block = OuroBlock(config)
        if config.halting != "none":
            self.halting_head = HaltingHead(config.hidden_size, config.halting_bias_init)
        self.post_init()

    def own_strategy(self, call: ForwardCall) -> HaltingStrategy:
        mixes = self.config.depth_objective == "mixture"
        strategy = StickBreaking(self.halting_head, self.own_threshold(call), token_units=True, mixes=mixes)
        # the first step is always taken, so that the input state is no part of a mixture
        strategy.first_decision = 1
        return strategy


class OuroRecurrentForSequenceClassification(ForSequenceClassification, OuroRecurrentPreTrainedModel):
    base_model_class = OuroRecurrentModel


class OuroRecurrentForTokenClassification(ForTokenClassification, OuroRecurrentPreTrainedModel):
    base_model_class = OuroRecurrentModel


class OuroRecurrentForQuestionAnswering(ForQuestionAnswering, OuroRecurrentPreTrainedModel):
    base_model_class = OuroRecurrentModel


class OuroRecurrentForMultipleChoice(ForMultipleChoice, OuroRecurrentPreTrainedModel):
    base_model_class = OuroRecurrentModel


class OuroRecurrentForCausalLM(ForCausalLM, OuroRecurrentPreTrainedModel, GenerationMixin):
    base_model_class = OuroRecurrentModel


__all__ = [
    "OuroRecurrentForCausalLM",
    "OuroRecurrentForMultipleChoice",
    "OuroRecurrentForQuestionAnswering",
    "OuroRecurrentForSequenceClassification",
    "OuroRecurrentForTokenClassification",
    "OuroRecurrentModel",
    "OuroRecurrentPreTrainedModel",
]
