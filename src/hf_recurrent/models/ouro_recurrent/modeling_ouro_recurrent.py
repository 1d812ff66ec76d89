"""Ouro (https://arxiv.org/abs/2510.25741) as a model of adaptive depth."""

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.generation import GenerationMixin

from ..base.base_model import ForwardCall
from ..base.outputs import RecurrentOutput
from ..base.pretrained import RecurrentPreTrainedModel
from ..base.stacked_depth import CheckpointedLayer, StackedDepthModel, apply_layers
from ..depth.halting import HaltingStrategy
from ..depth.objectives import gate_loss
from ..depth.stick_breaking import StickBreaking
from ..heads.causal import ForCausalLM
from ..heads.choices import ForMultipleChoice
from ..heads.classification import ForSequenceClassification
from ..heads.questions import ForQuestionAnswering
from ..heads.tokens import ForTokenClassification
from ..ops.attention import PaddedContext, SelfAttention
from ..ops.feed_forward import GatedLinearUnit
from ..ops.halting_heads import HaltingHead
from ..ops.layers import RMSNorm
from ..ops.positions import rotate_halves
from ..ops.transformer_block import BlockOutput
from .configuration_ouro_recurrent import OuroRecurrentConfig


def build_layer(config, layer_idx: int) -> CheckpointedLayer:
    """A layer of a depth step, whose attention rotates planes (j, j + h) as most language models do."""
    attention = SelfAttention(config, layer_idx, initializers=(None, None))
    attention.rotate = rotate_halves
    attention.window = config.sliding_window if layer_idx in config.sliding_layers else None
    return CheckpointedLayer(config, attention, GatedLinearUnit(config, ACT2FN[config.hidden_act]))


class OuroBlock(nn.Module):
    """The layers of a depth step, and a norm after them, from which the next step starts and heads read."""

    def __init__(self, config):
        super().__init__()
        self.layers = nn.ModuleList([build_layer(config, number) for number in range(config.layers_per_step)])
        self.norm = RMSNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(
        self,
        hidden_states: torch.Tensor,
        context: PaddedContext,
        source: torch.Tensor | None = None,
    ) -> BlockOutput:
        """Apply one step; a `source` of keys and values is the running state itself."""
        output = apply_layers(self.layers, hidden_states, context)
        return output._replace(hidden_states=self.norm(output.hidden_states))


class OuroRecurrentPreTrainedModel(RecurrentPreTrainedModel):
    config: OuroRecurrentConfig
    _no_split_modules = ["CheckpointedLayer"]

    def gate_loss(self, losses: list[torch.Tensor], outputs: RecurrentOutput, labelled: torch.Tensor) -> torch.Tensor:
        """Mean loss of the exit gate alone, from the losses (N,) after each step of the N `labelled` tokens (B, S)."""
        states = torch.stack(outputs.step_features, dim=2).detach()[labelled]
        return gate_loss(losses, self.model.halting_head(states)).sum() / labelled.sum().clamp_min(1)


class OuroRecurrentModel(StackedDepthModel, OuroRecurrentPreTrainedModel):
    """A stack of layers, iterated for a fixed number of steps or until every token has stopped (section 3)."""

    def __init__(self, config: OuroRecurrentConfig):
        super().__init__(config)
        self.build_embedding(config)
        self.block = OuroBlock(config)
        self.build_halting(config)
        self.post_init()

    def new_halting_head(self, config: OuroRecurrentConfig) -> HaltingHead:
        return HaltingHead(config.hidden_size, config.halting_bias_init)

    @property
    def window(self) -> int | None:
        return self.config.sliding_window if self.config.sliding_layers else None

    def trained_strategy(self, call: ForwardCall, max_depth: int, cache) -> HaltingStrategy:
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
