"""The Neural Data Router (https://arxiv.org/abs/2110.07732) and its Transformer baselines."""

from collections import OrderedDict
from functools import partial

import torch
from torch import nn
from transformers import initialization as init
from transformers.generation import GenerationMixin
from transformers.modeling_layers import GradientCheckpointingLayer

from ..base.base_model import DepthModel, ForwardCall
from ..base.pretrained import RecurrentPreTrainedModel
from ..base.shared_block import SharedBlockModel
from ..depth.act import ACT
from ..depth.alignment import alignment, permuted, restored
from ..depth.halting import HaltingStrategy
from ..depth.loop import DepthOutput
from ..depth.static_cache import StaticDepthCache
from ..depth.stick_breaking import StickBreaking
from ..heads.causal import ForCausalLM
from ..heads.choices import ForMultipleChoice
from ..heads.classification import ForSequenceClassification
from ..heads.masked import ForMaskedLM
from ..heads.questions import ForQuestionAnswering
from ..heads.tokens import ForTokenClassification
from ..ops.attention import KeyValue
from ..ops.feed_forward import FeedForward
from ..ops.halting_heads import HaltingHead
from ..ops.initialization import initialized_linear, relu_input, torch_default, uniform_between
from ..ops.layers import Dropout
from ..ops.masks import visible_keys
from ..ops.positions import sinusoids, token_positions
from ..ops.transformer_block import BlockOutput
from .attention import ATTENTIONS, RoutingContext, tokens_mask
from .configuration_ndr import NDRConfig
from .kernels import kernel_available


class NDRPreTrainedModel(RecurrentPreTrainedModel):
    config: NDRConfig
    _no_split_modules = ["NDRBlock"]

    @property
    def _supports_flash_attn(self) -> bool:
        """Only absolute attention has kernels that transformers would load."""
        return self.config.attention == "absolute"

    def get_correct_attn_implementation(self, requested_attention: str | None, is_init_check: bool = False) -> str:
        """Absolute attention, softmax over content, supports every implementation; the others have their own."""
        kind = self.config.attention
        if kind == "absolute":
            return super().get_correct_attn_implementation(requested_attention, is_init_check)
        has_kernel = kind == "geometric" and torch.cuda.is_available() and kernel_available("cuda")
        if requested_attention is None:
            return "triton" if has_kernel else "eager"
        known = ("eager", "triton") if kind == "geometric" else ("eager",)
        if requested_attention not in known:
            raise ValueError(
                f"attn_implementation is {requested_attention!r} but scores of {kind} attention are not plain products "
                f"of queries and keys: use {' or '.join(map(repr, known))}"
            )
        if requested_attention == "triton" and not has_kernel:
            raise ValueError(
                "attn_implementation is 'triton' but a CUDA device or Triton, 3.4 or later, is missing: use 'eager', "
                "which computes the same"
            )
        return requested_attention

    @staticmethod
    def lm_head_initializer(config):
        return torch_default

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Embedding) and self.config.embedding_init == "xavier_uniform":
            init.xavier_uniform_(module.weight)
        else:
            super()._init_weights(module)


class NDRBlock(GradientCheckpointingLayer):
    """Post-norm attention, `a = LN(x + Attention(x))`, and an update of every unit.

    With a copy gate the update is `g f(FFN(a)) + (1 - g) x` (Eq. 1-4 of the paper), without it `LN(a + FFN(a))`.
    """

    gathered_methods = ("keys_values",)

    def __init__(self, config):
        super().__init__()
        width = config.hidden_size
        self.attention = ATTENTIONS[config.attention](config)
        self.attention_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        network = partial(
            FeedForward,
            width,
            dropout=config.dropout,
            initializer=relu_input,
            activation=nn.functional.relu,
            drops_output=not config.copy_gate,
        )
        of_update, of_gate = uniform_between, partial(uniform_between, bias=config.gate_bias_init)
        if config.copy_gate:
            of_update = partial(uniform_between, gain=5 / 3) if config.attention == "geometric" else torch_default
        self.feed_forward = network(config.intermediate_size, output_initializer=of_update)
        self.gate = network(width, output_initializer=of_gate) if config.copy_gate else None
        has_norm = not config.copy_gate or config.gated_update == "layer_norm"
        self.update_norm = nn.LayerNorm(width, eps=config.layer_norm_eps) if has_norm else None
        self.dropout = Dropout(config.dropout)
        self.gate_dropout = config.gate_dropout

    def keys_values(self, source: torch.Tensor, context: RoutingContext) -> KeyValue:
        """Keys and values of tokens in these states: (B, S, E) -> (B, S, H, D) each."""
        attention = self.attention
        return KeyValue(*(attention.heads(project(source)) for project in (attention.k_proj, attention.v_proj)))

    def forward(self, hidden_states: torch.Tensor, context: RoutingContext) -> BlockOutput:
        """Apply one step to the running state, (B, S, E) or packed (N, E)."""
        shape = hidden_states.shape
        attended, weights, key, value = self.attention(hidden_states, context)
        hidden_states = hidden_states.flatten(0, -2)
        attended = self.attention_norm(hidden_states + self.dropout(attended))
        update = self.feed_forward(attended)
        if self.gate is None:
            return BlockOutput(self.update_norm(attended + update).view(shape), weights, None, None, key, value)
        update = update.tanh() if self.update_norm is None else self.update_norm(update)
        gate = self.gate(attended).sigmoid()
        if self.training and self.gate_dropout > 0:
            gate = gate * (torch.rand(*gate.shape[:-1], 1, device=gate.device) >= self.gate_dropout)
        # under autocast states and update may differ in precision, but lerp needs one dtype
        dtype = torch.promote_types(hidden_states.dtype, update.dtype)
        hidden_states = torch.lerp(hidden_states.to(dtype), update.to(dtype), gate.to(dtype))
        return BlockOutput(hidden_states.view(shape), weights, None, gate.view(shape), key, value)


class NDRModel(SharedBlockModel, DepthModel, NDRPreTrainedModel):
    """One shared step, repeated a fixed number of times or until every token has halted."""

    depth_follows_length = False

    def __init__(self, config: NDRConfig):
        super().__init__(config)
        self.build_embedding(config, dropout=0.0)
        self.position_dropout = Dropout(config.position_dropout)
        if config.attention in ("relative", "absolute_relative"):
            inner_size = config.num_attention_heads * config.head_dim
            keys = initialized_linear(config.hidden_size, inner_size, uniform_between, bias=False)
            self.position_keys = nn.Sequential(OrderedDict(proj=keys))
        self.block = NDRBlock(config)
        self.build_halting(config)
        self.post_init()

    def new_static_cache(self, max_length: int, max_depth: int | None = None) -> StaticDepthCache:
        # scores by distance count columns from the last
        return StaticDepthCache(self.new_cache(max_depth), max_length, new_last=self.config.attention != "absolute")

    def new_halting_head(self, config: NDRConfig) -> HaltingHead:
        return HaltingHead(config.hidden_size, config.halting_bias_init)

    def encode(self, hidden: torch.Tensor, mask: torch.Tensor, call: ForwardCall) -> DepthOutput:
        orders = alignment(mask) if call.cache is None else None
        if orders is not None:
            hidden, mask = permuted(hidden, orders[0], 1), permuted(mask, orders[0], 1)
        if self.config.attention == "absolute":
            places = token_positions(mask)
            if call.cache is not None:
                places = call.cache.view(mask, hidden.shape[1]).new(places)
            hidden = self.position_dropout(hidden + sinusoids(places, hidden.shape[-1]).to(hidden.dtype))
        depth = super().encode(hidden, mask, call)
        return depth if orders is None else restored(depth, orders[1])

    def context(self, hidden: torch.Tensor, mask: torch.Tensor, call: ForwardCall) -> RoutingContext:
        config, length = self.config, mask.shape[1]
        if config.attention == "geometric":
            return RoutingContext(tokens_mask(config, mask, call.cache))
        keys = places = None
        if config.attention != "absolute":
            # the same at every step: of the distances, whose later half are also the absolute positions
            positions = torch.arange(1 - length, length, device=hidden.device)
            # linear layers of eight bits do not tell their dtype
            waves = sinusoids(positions, config.hidden_size).to(self.embed_tokens.weight.dtype)
            keys = self.position_keys(waves).unflatten(-1, (-1, config.head_dim)).transpose(0, 1)
        if config.attention == "absolute_relative" and call.cache is not None:
            places = token_positions(mask)
        return RoutingContext(visible_keys(config, hidden, mask, call.cache), keys, places)

    @staticmethod
    def stays_whole(strategy: HaltingStrategy) -> bool:
        """Always: halted tokens are still computed and attended to."""
        return True

    def trained_strategy(self, call: ForwardCall, max_depth: int, cache) -> HaltingStrategy:
        config = self.config
        if config.depth_objective == "expected":
            return StickBreaking(self.halting_head, self.own_threshold(call), token_units=True, mixes=False)
        if max_depth > config.num_hidden_layers:
            raise ValueError(
                f"max_depth is {max_depth} but this model (halting={config.halting!r}) was trained to halt within "
                f"{config.num_hidden_layers}: pass at most that; only models with halting='none' take further steps"
            )
        if call.exit is None and cache is not None and cache.depth != max_depth:
            raise ValueError(
                f"this call takes {max_depth} steps but `past_key_values` was made for {cache.depth}: halted tokens "
                "are still computed and attended to, so all tokens of a sequence take the same number; start with "
                f"model.new_cache(max_depth={max_depth})"
            )
        return ACT(
            self.halting_head,
            self.own_threshold(call, never=1.0),
            max_depth,
            universal=config.halting == "act_universal",
            # later tokens attend to every step of cached ones
            needs_every_step=cache is not None,
            padding_in_ponder_cost=config.padding_in_ponder_cost,
        )


class NDRForSequenceClassification(ForSequenceClassification, NDRPreTrainedModel):
    base_model_class = NDRModel


class NDRForTokenClassification(ForTokenClassification, NDRPreTrainedModel):
    base_model_class = NDRModel


class NDRForMaskedLM(ForMaskedLM, NDRPreTrainedModel):
    base_model_class = NDRModel


class NDRForQuestionAnswering(ForQuestionAnswering, NDRPreTrainedModel):
    base_model_class = NDRModel


class NDRForMultipleChoice(ForMultipleChoice, NDRPreTrainedModel):
    base_model_class = NDRModel


class NDRForCausalLM(ForCausalLM, NDRPreTrainedModel, GenerationMixin):
    base_model_class = NDRModel
    summary = f"{ForCausalLM.summary} Geometric attention that looks to the left only is stick-breaking attention."


__all__ = [
    "NDRForCausalLM",
    "NDRForMaskedLM",
    "NDRForMultipleChoice",
    "NDRForQuestionAnswering",
    "NDRForSequenceClassification",
    "NDRForTokenClassification",
    "NDRModel",
    "NDRPreTrainedModel",
]
