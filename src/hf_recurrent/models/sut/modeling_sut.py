"""Sparse Universal Transformer (https://arxiv.org/abs/2310.07096): one shared block of experts, and two stacks of it.

Shapes: B sequences, S tokens, P cached tokens, T target tokens, d width, V token ids.
"""

import copy
import math

import torch
from torch import nn
from transformers import initialization as init
from transformers.generation import GenerationMixin

from ..base.base_model import ForwardCall, check_states
from ..base.outputs import RecurrentOutput
from ..base.pretrained import RecurrentPreTrainedModel
from ..base.shared_block import AdaptiveDepthModel, check_never_halting
from ..config.fields import shown
from ..depth.exit_criteria import resolve_exit
from ..depth.loop import DepthOutput
from ..depth.objectives import prior_divergence, sampled_depth
from ..heads.causal import ForCausalLM
from ..heads.choices import ForMultipleChoice
from ..heads.classification import ForSequenceClassification
from ..heads.masked import ForMaskedLM
from ..heads.questions import ForQuestionAnswering
from ..heads.seq2seq import EncoderDecoder, ForConditionalGeneration
from ..heads.tokens import ForTokenClassification
from ..ops.attention import KeyValue, place
from ..ops.checks import check_memory
from ..ops.graphs import in_graph
from ..ops.layers import Dropout
from ..ops.positions import split_sinusoids, token_positions
from ..ops.sharding import is_sharded, same_on_all_ranks, touch_all_parameters
from .block import SUTBlock, router_names
from .configuration_sut import SUTConfig
from .depth import AttentionInputs, StackCache, computed_units, packed, run_sparse
from .experts import fits_grouped_products
from .halting import LogHaltingHead, LogStickBreaking
from .routed_attention import Settings
from .routing import router_loss

# fairseq counts positions from the number after its padding id
FIRST_POSITION = 2


class SUTPreTrainedModel(RecurrentPreTrainedModel):
    config: SUTConfig
    _no_split_modules = ["SUTBlock"]
    _supports_flash_attn = False
    _learned_biases = True
    # whether a config may ask for two stacks
    may_have_two_stacks = False

    def __init__(self, config: SUTConfig, *args, **kwargs):
        if getattr(config, "is_encoder_decoder", False) and not self.may_have_two_stacks:
            raise ValueError(
                f"config field `is_encoder_decoder` is True but {type(self).__name__} has one stack: load the "
                "checkpoint with AutoModelForSeq2SeqLM, or start a new model with is_encoder_decoder=False"
            )
        super().__init__(config, *args, **kwargs)

    @classmethod
    def _can_set_experts_implementation(cls) -> bool:
        return True

    def get_correct_experts_implementation(self, requested_experts: str | None) -> str:
        """The requested implementation, by default "grouped_mm" if the sizes allow it, else "eager"."""
        config = self.config
        sizes = (config.hidden_size, config.intermediate_size, config.num_attention_heads * config.head_dim)
        dtype = getattr(config, "dtype", None) or torch.float32
        fits = fits_grouped_products(sizes, dtype)
        if requested_experts is None:
            return super().get_correct_experts_implementation("grouped_mm" if fits else "eager")
        if requested_experts == "grouped_mm" and not fits:
            step = 16 // dtype.itemsize
            raise ValueError(
                f"experts_implementation is 'grouped_mm' but hidden_size, intermediate_size and num_attention_heads * "
                f"head_dim are {sizes}: in {dtype} its kernel needs multiples of {step}; change the sizes, or use "
                "'eager' or 'batched_mm'"
            )
        return super().get_correct_experts_implementation(requested_experts)

    def set_attn_implementation(self, *args, **kwargs) -> None:
        super().set_attn_implementation(*args, **kwargs)
        self._share_implementations()

    def set_experts_implementation(self, *args, **kwargs) -> None:
        super().set_experts_implementation(*args, **kwargs)
        self._share_implementations()

    def _share_implementations(self) -> None:
        """Copy the implementations to the configs of both stacks."""
        for module in self.modules():
            config = getattr(module, "config", None)
            if isinstance(module, RecurrentPreTrainedModel) and config is not self.config:
                config._attn_implementation_internal = self.config._attn_implementation
                config._experts_implementation_internal = self.config._experts_implementation

    def loss_options(self) -> dict[str, bool]:
        return {**super().loss_options(), "output_router_statistics": self.config.router_loss != "none"}

    def auxiliary_losses(
        self, outputs, num_targets: torch.Tensor | int, labelled: torch.Tensor | None
    ) -> dict[str, torch.Tensor]:
        """Ponder and router losses; divided by the number of targets with a summed loss, as released.

        Routers are balanced over all tokens that they route, with labels or without.
        """
        terms = super().auxiliary_losses(outputs, num_targets, labelled)
        config = self.config
        if config.router_loss != "none":
            released = config.mutual_information_sign == "released"
            each = [router_loss(statistics, config.router_loss, released) for statistics in outputs.router_statistics]
            terms["router_loss"] = config.router_loss_weight * sum(each)
        if config.aux_loss_reduction == "sum":
            return {name: term / num_targets for name, term in terms.items()}
        return terms

    def _init_boundary_tokens(self, embedding: nn.Embedding) -> None:
        super()._init_boundary_tokens(embedding)
        if self.config.pad_token_id is not None:
            table = embedding.weight.detach().clone()
            table[self.config.pad_token_id] = 0.0
            init.copy_(embedding.weight, table)


class SUTStack(AdaptiveDepthModel, SUTPreTrainedModel):
    """One stack: an encoder or, of a causal config, a decoder.

    Its own arguments are: `encoder_hidden_states` (B, S', d) and `encoder_attention_mask` (B, S') of the stack that the
    decoder of an encoder-decoder attends to; `output_experts`; `output_router_statistics`.
    """

    cache_remembers_padding = True
    model_arguments = (
        "encoder_hidden_states",
        "encoder_attention_mask",
        "output_experts",
        "output_router_statistics",
    )
    # of the model whose stack this is
    whole_config: SUTConfig | None = None

    def __init__(self, config: SUTConfig, attends_to_source: bool = False):
        super().__init__(config)
        self.build_stack(config, attends_to_source)
        self.post_init()

    def build_stack(self, config: SUTConfig, attends_to_source: bool = False) -> None:
        self.build_embedding(config, dropout=0.0)
        self.embedding_dropout = Dropout(config.dropout)
        self.block = SUTBlock(config, attends_to_source)
        if config.halting != "none":
            self.halting_head = LogHaltingHead(config.hidden_size, config.halting_dropout, config.halting_bias_init)
        self.final_norm = (
            nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps) if config.layer_norm == "pre" else nn.Identity()
        )

    @property
    def depth_config(self) -> SUTConfig:
        return self.config if self.whole_config is None else self.whole_config

    def resolve_exit(self, options, max_depth, halting_threshold, head):
        """The rule of a call; an encoder predicts nothing, so that criteria that look at predictions do not stop it."""
        rule = resolve_exit(self.depth_config, options)
        is_encoder = self.whole_config is not None and not self.attends_to_source
        if is_encoder and rule is not None and rule.criterion.evidence != "states":
            return None
        return super().resolve_exit(options, max_depth, halting_threshold, head)

    def check_model_kwargs(self, model_kwargs: dict) -> None:
        super().check_model_kwargs(model_kwargs)
        for name in ("encoder_hidden_states", "encoder_attention_mask"):
            if model_kwargs.get(name) is not None and not self.attends_to_source:
                raise ValueError(
                    f"`{name}` is {shown(model_kwargs[name])}, but this model reads no encoder: leave it out, or use "
                    "SUTForConditionalGeneration"
                )

    @property
    def attends_to_source(self) -> bool:
        return self.block.cross_attention is not None

    def new_cache(self, max_depth: int | None = None) -> StackCache:
        return StackCache(self.cache_steps(max_depth), self.signature(), self.attends_to_source)

    def signature(self) -> str:
        return super().signature() + (", reading an encoder" if self.attends_to_source else "")

    def embed(self, hidden: torch.Tensor, mask: torch.Tensor, units: torch.Tensor | None) -> torch.Tensor:
        """Token embeddings (B, S, d) with scale and sinusoids, by the mask (B, P + S), zeros at padding -> (n, d)."""
        length = hidden.shape[1]
        places = packed(token_positions(mask)[:, -length:], units) if self.config.absolute_positions else None
        states = self.with_positions(packed(hidden, units), places, mask.shape[1])
        if units is None:
            states = torch.where(mask[:, -length:].flatten()[:, None], states, 0.0)
        return self.embedding_dropout(states)

    def with_positions(self, states: torch.Tensor, places: torch.Tensor | None, length: int) -> torch.Tensor:
        """Token embeddings (n, d) with scale and sinusoids of their places (n,) below `length`."""
        if self.config.scale_embeddings:
            states = states * math.sqrt(self.config.hidden_size)
        if not self.config.absolute_positions:
            return states
        return states + position_vectors(places, length, states.shape[-1]).to(states.dtype)

    def encode(self, hidden: torch.Tensor, mask: torch.Tensor, call: ForwardCall) -> DepthOutput:
        config, cache = self.config, None if call.cache is None else call.cache.view(mask)
        inputs = AttentionInputs(mask, hidden.shape[1], config.is_causal)
        if self.attends_to_source:
            inputs = inputs._replace(**self.source_inputs(hidden, call))
        max_depth = self.resolve_max_depth(call)
        options = self.depth_options(call, max_depth)
        strategy = self.strategy(call, max_depth, cache)
        experts = bool(call.model_kwargs.get("output_experts"))
        settings = Settings.of_config(config, bool(call.model_kwargs.get("output_router_statistics")))
        units = computed_units(mask[:, -hidden.shape[1] :], options.compaction)
        states = self.embed(hidden, mask, units)
        depth = run_sparse(self.block, strategy, states, units, inputs, options, settings, cache, experts)
        if cache is not None:
            cache.commit()
        states = check_states(self.readout(depth.hidden_states), mask[:, -hidden.shape[1] :])
        depth = self.with_exit_steps(depth, call, max_depth)
        return depth._replace(hidden_states=touch_all_parameters(states, self))

    def readout(self, states: torch.Tensor) -> torch.Tensor:
        return self.final_norm(states)

    def trained_strategy(self, call: ForwardCall, max_depth: int, cache) -> LogStickBreaking:
        config = self.depth_config
        if config.halting == "none":
            if call.exit is None:
                check_never_halting(call, max_depth, None if cache is None else cache.depth)
            return LogStickBreaking(None, 1.0, max_depth, frozen=True)
        threshold = self.own_threshold(call)
        frozen = config.halted_tokens == "frozen" or call.exit is not None
        mixes = config.depth_objective == "mixture"
        return LogStickBreaking(self.halting_head, threshold, max_depth, frozen, mixes)

    def source_inputs(self, hidden: torch.Tensor, call: ForwardCall) -> dict[str, torch.Tensor | KeyValue]:
        """Keys and values of the other stack's states, from the cache where it has them."""
        states, mask = (call.model_kwargs.get(name) for name in ("encoder_hidden_states", "encoder_attention_mask"))
        cached = None if call.cache is None else call.cache.source
        # of a decoder whose source both stacks were given
        own_names = ("encoder_hidden_states", "encoder_attention_mask")
        names = ("encoder_outputs", "attention_mask") if self.input_prefix else own_names
        if mask is None and cached is not None and call.cache.source_has_padding:
            raise ValueError(
                f"`{names[1]}` is missing but `past_key_values` was filled from a source with padding: pass its mask"
            )
        mask = check_memory(states, mask, hidden.shape[0], hidden.shape[-1], cached, names)
        if cached is None:
            units = computed_units(mask, self.depth_config.compaction)
            cached = KeyValue(
                *(
                    place(projected, units, mask.numel()).unflatten(0, mask.shape)
                    for projected in self.block.source_keys_values(packed(states, units))
                )
            )
            if call.cache is not None:
                call.cache.write_source(cached, mask)
        return {"memory": cached, "memory_mask": mask}

    def output(self, depth: DepthOutput, mask: torch.Tensor, call: ForwardCall, recorded: dict) -> RecurrentOutput:
        plain = super().output(depth, mask, call, recorded)
        (cross_attentions, experts, statistics), named = depth.extras, {}
        if experts is not None:
            named = {f"{name}_experts": ids for name, ids in zip(router_names(self.block), experts, strict=True)}
        named["router_statistics"] = statistics
        if not self.attends_to_source:
            return RecurrentOutput(**{**plain, **named})
        across = cross_attentions if recorded["attentions"] is not None else None
        return RecurrentOutput(**{**plain, **named}, cross_attentions=across)


class SUTModel(EncoderDecoder, SUTStack):
    """One stack or, with `config.is_encoder_decoder`, two: the decoder attends to the encoder's final states.

    Arguments are those of `SUTStack` or, of two stacks, of `EncoderDecoder.forward_stacks`.
    """

    may_have_two_stacks = True

    def build_stack(self, config: SUTConfig, attends_to_source: bool = False) -> None:
        if not config.is_encoder_decoder:
            super().build_stack(config, attends_to_source)
            return
        encoder, decoder = copy.deepcopy(config), copy.deepcopy(config)
        for stack in (encoder, decoder):
            stack.is_encoder_decoder = False
            stack.depth_sampling, stack.depth_range = "fixed", None
        decoder.is_causal = True
        decoder.num_hidden_layers = config.num_decoder_layers
        self.encoder = SUTStack(encoder)
        self.decoder = SUTStack(decoder, attends_to_source=True)
        self.encoder.whole_config = self.decoder.whole_config = config
        self.decoder.input_prefix = "decoder_"
        self._tied_weights_keys = {"decoder.embed_tokens.weight": "encoder.embed_tokens.weight"}

    def stack_steps(self, max_depth: int | None) -> tuple[int | None, int | None]:
        """`max_depth` of both stacks; in training that of either may be drawn, while the other runs at full depth."""
        config, generator = self.config, self.depth_generator
        if max_depth is not None or not self.training or config.depth_sampling == "fixed":
            return max_depth, max_depth
        for_encoder = int(torch.randint(2, (), generator=generator))
        stack = self.encoder if for_encoder else self.decoder
        drawn = [for_encoder, sampled_depth(config, stack.config.num_hidden_layers, generator)]
        for_encoder, steps = same_on_all_ranks(drawn, self.device) if is_sharded(self) else drawn
        return (steps, None) if for_encoder else (None, steps)


def position_vectors(positions: torch.Tensor, most: int, size: int) -> torch.Tensor:
    """Sinusoids (n, size) of positions (n,) below `most`."""
    # a traced graph must not compare sizes
    if in_graph() or positions.shape[0] <= most:
        return split_sinusoids(positions + FIRST_POSITION, size)
    table = split_sinusoids(torch.arange(most, device=positions.device) + FIRST_POSITION, size)
    return table.index_select(0, positions)


class SUTForSequenceClassification(ForSequenceClassification, SUTPreTrainedModel):
    base_model_class = SUTModel


class SUTForTokenClassification(ForTokenClassification, SUTPreTrainedModel):
    base_model_class = SUTModel


class SUTForMaskedLM(ForMaskedLM, SUTPreTrainedModel):
    base_model_class = SUTModel


class SUTForQuestionAnswering(ForQuestionAnswering, SUTPreTrainedModel):
    base_model_class = SUTModel


class SUTForMultipleChoice(ForMultipleChoice, SUTPreTrainedModel):
    base_model_class = SUTModel


class SUTForCausalLM(ForCausalLM, SUTPreTrainedModel, GenerationMixin):
    base_model_class = SUTModel


class SUTForConditionalGeneration(ForConditionalGeneration, SUTPreTrainedModel, GenerationMixin):
    base_model_class = SUTModel
    may_have_two_stacks = True

    def ponder_loss(self, outputs, labelled: torch.Tensor | None) -> torch.Tensor | None:
        """Weighted ponder costs of both stacks, each the mean over all tokens of the batch, as released."""
        if outputs.ponder_cost is None or self.config.halting == "none":
            return None
        if self.config.depth_objective != "mixture":
            # the divergence of halting from its prior
            stacks = (
                (outputs.get("encoder_halting_distribution"), outputs.encoder_ponder_steps),
                (outputs.get("halting_distribution"), outputs.ponder_steps),
            )
            known = [(distribution, steps >= 0) for distribution, steps in stacks if distribution is not None]
            terms = [prior_divergence(self.config, distribution)[mask].mean() for distribution, mask in known]
            return self.config.depth_prior_weight * sum(terms) if terms else None
        stacks = (
            (outputs.encoder_ponder_cost, outputs.encoder_ponder_steps),
            (outputs.ponder_cost, outputs.ponder_steps),
        )
        costs = [mean_over_tokens(*stack) for stack in stacks if stack[0] is not None]
        return self.config.ponder_loss_weight * sum(costs)


def mean_over_tokens(cost: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """Mean over all tokens of mean costs (B,) of sequences, with steps (B, S) of -1 at padding."""
    tokens = (steps >= 0).sum(-1)
    return (cost * tokens).sum() / tokens.sum()


__all__ = [
    "SUTForCausalLM",
    "SUTForConditionalGeneration",
    "SUTForMaskedLM",
    "SUTForMultipleChoice",
    "SUTForQuestionAnswering",
    "SUTForSequenceClassification",
    "SUTForTokenClassification",
    "SUTModel",
    "SUTPreTrainedModel",
    "SUTStack",
]
