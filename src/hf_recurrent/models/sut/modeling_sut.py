"""Sparse Universal Transformer (https://arxiv.org/abs/2310.07096): one shared block of experts, and two stacks of it.

Shapes: B sequences, S tokens, P cached tokens, T target tokens, d width, V token ids.
"""

import copy
import math
from functools import partial, wraps

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.generation import GenerationMixin

from ..base.base_model import BaseModel, DepthModel, ForwardCall, check_states
from ..base.outputs import RecurrentOutput
from ..base.pretrained import RecurrentPreTrainedModel
from ..base.shared_block import AdaptiveDepthModel
from ..config.fields import shown
from ..depth.cache import CacheLayer
from ..depth.depth_cache import DepthCache
from ..depth.exit_criteria import resolve_exit
from ..depth.halting import HaltingStrategy
from ..depth.loop import DepthOutput, iterate
from ..depth.objectives import prior_divergence
from ..heads.causal import ForCausalLM
from ..heads.choices import ForMultipleChoice
from ..heads.classification import ForSequenceClassification
from ..heads.masked import ForMaskedLM
from ..heads.questions import ForQuestionAnswering
from ..heads.seq2seq import ForConditionalGeneration, cached_source, forward_stacks
from ..heads.tokens import ForTokenClassification
from ..ops.attention import KeyValue, place
from ..ops.checks import check_memory
from ..ops.graphs import in_graph
from ..ops.layers import Dropout
from ..ops.positions import split_sinusoids, token_positions
from ..ops.sharding import touch_all_parameters
from .block import SUTBlock
from .configuration_sut import SUTConfig
from .depth import SparseLayout, computed_units, packed
from .experts import fits_grouped_products
from .halting import TokenHaltingHead, TokenStickBreaking
from .routing import importance_loss, mutual_information_loss, switch_loss

# arguments of a decoder, of the stack that it attends to
SOURCE = ("encoder_hidden_states", "encoder_attention_mask")
# fairseq counts positions from the number after its padding id
FIRST_POSITION = 2


class SUTPreTrainedModel(RecurrentPreTrainedModel):
    config: SUTConfig
    _no_split_modules = ["SUTBlock"]
    _supports_flash_attn = False
    _learned_biases = True
    # of an encoder and a decoder, which reads the source; None where there is one stack, and in the code of its
    # checkpoints
    build_stacks = None
    run_stacks = None
    read_source = None

    def __init__(self, config: SUTConfig, *args, **kwargs):
        if getattr(config, "is_encoder_decoder", False) and self.run_stacks is None:
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
            requested_experts = "grouped_mm" if fits else "eager"
        elif requested_experts == "grouped_mm" and not fits:
            step = 16 // dtype.itemsize
            raise ValueError(
                f"experts_implementation is 'grouped_mm' but hidden_size, intermediate_size and num_attention_heads * "
                f"head_dim are {sizes}: in {dtype} its kernel needs multiples of {step}; change the sizes, or use "
                "'eager' or 'batched_mm'"
            )
        return super().get_correct_experts_implementation(requested_experts)

    def set_attn_implementation(self, *args, **kwargs) -> None:
        super().set_attn_implementation(*args, **kwargs)
        self._update_stacks()

    def set_experts_implementation(self, *args, **kwargs) -> None:
        super().set_experts_implementation(*args, **kwargs)
        self._update_stacks()

    def resize_token_embeddings(self, *args, **kwargs) -> nn.Embedding:
        embedding = super().resize_token_embeddings(*args, **kwargs)
        decoder = getattr(self.base_model, "decoder", None)
        if decoder is not None and not self.config.tie_word_embeddings:
            decoder.resize_token_embeddings(*args, **kwargs)
        self._update_stacks()
        return embedding

    def _update_stacks(self) -> None:
        """Copy implementations and the size of the vocabulary to the configs of both stacks."""
        for module in self.modules():
            if isinstance(module, SUTPreTrainedModel) and module.config is not self.config:
                module.config._attn_implementation_internal = self.config._attn_implementation
                module.config._experts_implementation_internal = self.config._experts_implementation
                module.config.vocab_size = self.config.vocab_size

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
            loss = {
                "mutual_information": partial(mutual_information_loss, released_sign=released),
                "switch": switch_loss,
                "importance": importance_loss,
            }[config.router_loss]
            terms["router_loss"] = config.router_loss_weight * sum(map(loss, outputs.router_statistics))
        if config.aux_loss_reduction == "sum":
            return {name: term / num_targets for name, term in terms.items()}
        return terms


class SUTModel(AdaptiveDepthModel, SUTPreTrainedModel):
    """One stack, which is a decoder if the config is causal; with `config.is_encoder_decoder` an encoder and a decoder.

    Further arguments of one stack are: `encoder_hidden_states` (B, S', d) and `encoder_attention_mask` (B, S') of the
    stack that the decoder of an encoder-decoder attends to; `output_experts`; `output_router_statistics`. Two stacks
    take the arguments of `heads.seq2seq.forward_stacks`.
    """

    cache_remembers_padding = True
    run_stacks = forward_stacks
    model_arguments = (*SOURCE, "output_experts", "output_router_statistics")
    fixed_depth_by_token = True
    # of the model whose stack this is
    whole_config: SUTConfig | None = None

    def __init__(self, config: SUTConfig, attends_to_source: bool = False):
        super().__init__(config)
        self.attends_to_source = attends_to_source
        if config.is_encoder_decoder:
            self.build_stacks(config)
        else:
            self.build_embedding(config, dropout=0.0)
            self.embedding_dropout = Dropout(config.dropout)
            self.block = SUTBlock(config, attends_to_source)
            self.build_halting(config)
            norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
            self.final_norm = norm if config.layer_norm == "pre" else nn.Identity()
        self.post_init()

    def new_halting_head(self, config: SUTConfig) -> TokenHaltingHead:
        return TokenHaltingHead(config.hidden_size, config.halting_dropout, config.halting_bias_init)

    def build_stacks(self, config: SUTConfig) -> None:
        encoder, decoder = copy.deepcopy(config), copy.deepcopy(config)
        for stack in (encoder, decoder):
            stack.is_encoder_decoder = False
            stack.depth_sampling, stack.depth_range = "fixed", None
        decoder.is_causal, decoder.num_hidden_layers = True, config.num_decoder_layers
        self.encoder, self.decoder = SUTModel(encoder), SUTModel(decoder, attends_to_source=True)
        self.encoder.whole_config = self.decoder.whole_config = config
        self.decoder.input_prefix = "decoder_"
        self._tied_weights_keys = {"decoder.embed_tokens.weight": "encoder.embed_tokens.weight"}

    def get_input_embeddings(self) -> nn.Embedding:
        return self.encoder.embed_tokens if self.config.is_encoder_decoder else super().get_input_embeddings()

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        if not self.config.is_encoder_decoder:
            super().set_input_embeddings(value)
            return
        self.encoder.embed_tokens = value
        if self.config.tie_word_embeddings:
            self.decoder.embed_tokens = value

    # `generate` looks for the arguments of an encoder in its signature
    @wraps(BaseModel.forward)
    def forward(self, *args, **kwargs) -> RecurrentOutput:
        return (self.run_stacks if self.config.is_encoder_decoder else super().forward)(*args, **kwargs)

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
        for name in SOURCE:
            if model_kwargs.get(name) is not None and not self.attends_to_source:
                raise ValueError(
                    f"`{name}` is {shown(model_kwargs[name])}, but this model reads no encoder: leave it out, or use "
                    "SUTForConditionalGeneration"
                )

    def new_cache(self, max_depth: int | None = None) -> Cache:
        """An empty cache for `past_key_values`, of the decoder if there are two stacks."""
        if self.config.is_encoder_decoder:
            return self.decoder.new_cache(max_depth)
        # after the steps a layer for the source, whose keys and values serve every step and every new token
        of_source = [CacheLayer()] * self.attends_to_source
        return DepthCache(self.cache_steps(max_depth), self.signature(), outer_layers=of_source)

    new_static_cache = DepthModel.new_static_cache

    def signature(self) -> str:
        return super().signature() + (", reading an encoder" if self.attends_to_source else "")

    def embed(self, hidden: torch.Tensor, layout: SparseLayout) -> torch.Tensor:
        """Token embeddings (B, S, d) with scale and sinusoids, zeros at padding -> (n, d)."""
        config, states, num_keys = self.config, layout.packs(hidden), layout.key_mask.shape[1]
        if config.scale_embeddings:
            states = states * math.sqrt(config.hidden_size)
        if config.absolute_positions:
            positions = layout.packs(token_positions(layout.key_mask).index_select(1, layout.own_columns))
            index = slice(None)
            # a table serves many tokens; a traced graph must not compare sizes
            if not in_graph() and positions.shape[0] > num_keys:
                index, positions = positions, torch.arange(num_keys, device=positions.device)
            vectors = split_sinusoids(positions + FIRST_POSITION, config.hidden_size).to(states.dtype)
            states = states + vectors[index]
        if layout.present is None:
            states = torch.where(layout.packs(layout.mask)[:, None], states, 0.0)
        return self.embedding_dropout(states)

    def encode(self, hidden: torch.Tensor, mask: torch.Tensor, call: ForwardCall) -> DepthOutput:
        """Algorithm 1 of the SUT paper: apply the block until every token has halted.

        The output's `extras` are further fields of the model's output.

        Raises:
            ValueError: a halting probability is NaN.
        """
        cache = None if call.cache is None else call.cache.view(mask, hidden.shape[1])
        new_mask = mask if cache is None else cache.new(mask)
        max_depth = self.resolve_max_depth(call)
        options, strategy = self.depth_options(call, max_depth), self.strategy(call, max_depth, cache)
        memory = self.read_source(hidden, call) if self.attends_to_source else None
        records = [bool(call.model_kwargs.get(name)) for name in ("output_experts", "output_router_statistics")]
        layout = SparseLayout(self.block, strategy, new_mask, mask, cache, options, memory, records)
        depth = iterate([self.block], strategy, layout, self.embed(hidden, layout), new_mask, options)
        if cache is not None:
            cache.commit()
        if not (strategy.halts or strategy.exits):
            depth = depth._replace(ponder_steps=torch.where(new_mask, max_depth, -1))
        if depth.all_hidden_states is not None:
            depth = depth._replace(all_hidden_states=tuple(map(layout.lays_out, depth.all_hidden_states)))
        states = check_states(self.readout(depth.hidden_states), new_mask)
        return self.with_exit_steps(depth, call, max_depth)._replace(
            hidden_states=touch_all_parameters(states, self),
            attentions=layout.attention_maps(depth.attentions),
            read_attentions=layout.attention_maps(depth.read_attentions),
            extras=layout.recorded(),
        )

    def readout(self, states: torch.Tensor) -> torch.Tensor:
        return self.final_norm(states)

    def trained_strategy(self, call: ForwardCall, max_depth: int, cache) -> HaltingStrategy:
        config = self.depth_config
        threshold = self.own_threshold(call)
        frozen = config.halted_tokens == "frozen" or call.exit is not None
        mixes = config.depth_objective == "mixture"
        return TokenStickBreaking(self.halting_head, threshold, max_depth, frozen, mixes)

    def read_source(self, hidden: torch.Tensor, call: ForwardCall) -> tuple[KeyValue, torch.Tensor]:
        """Keys and values (B, H, S', D) of the other stack's states, from the cache if it has them, and their mask."""
        states, mask = (call.model_kwargs.get(name) for name in SOURCE)
        kept = cached_source(call.cache)
        # of a decoder whose source both stacks were given
        names = ("encoder_outputs", "attention_mask") if self.input_prefix else SOURCE
        if mask is None and "has_padding" in kept:
            raise ValueError(
                f"`{names[1]}` is missing but `past_key_values` was filled from a source with padding: pass its mask"
            )
        cached = tuple(kept[name].transpose(1, 2) for name in ("keys", "values")) if kept else None
        mask = check_memory(states, mask, hidden.shape[0], hidden.shape[-1], cached, names)
        if cached is None:
            units = computed_units(mask, self.depth_config.compaction)
            projected = self.block.source_keys_values(packed(states, units))
            cached = [place(each, units, mask.numel()).unflatten(0, mask.shape) for each in projected]
        key_value = KeyValue(*(each.transpose(1, 2) for each in cached))
        if call.cache is not None and not kept:
            # which only a mask tells apart
            padding = {} if in_graph() or bool(mask.all()) else {"has_padding": torch.tensor(True)}
            call.cache.layers[-1].replace({"keys": key_value.key, "values": key_value.value, **padding})
        return key_value, mask

    def output(self, depth: DepthOutput, mask: torch.Tensor, call: ForwardCall, recorded: dict) -> RecurrentOutput:
        fields = {**recorded, "cross_attentions": recorded["read_attentions"], "read_attentions": None}
        return super().output(depth, mask, call, {**fields, **depth.extras})


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
    run_stacks = forward_stacks

    def ponder_loss(self, outputs, labelled: torch.Tensor | None) -> torch.Tensor | None:
        """Weighted ponder costs of both stacks, each the mean over all tokens of the batch, as released.

        Of other depth objectives it is the divergence of halting from its prior.
        """
        config, terms = self.config, []
        if outputs.ponder_cost is None or config.halting == "none":
            return None
        mixture = config.depth_objective == "mixture"
        for stack in ("encoder_", ""):
            values = outputs.get(f"{stack}ponder_cost" if mixture else f"{stack}halting_distribution")
            if values is None:
                continue
            is_token = outputs[f"{stack}ponder_steps"] >= 0
            if mixture:
                # of means over the tokens of each sequence
                numbers = is_token.sum(-1)
                terms.append((values * numbers).sum() / numbers.sum())
            else:
                terms.append(prior_divergence(config, values)[is_token].mean())
        weight = config.ponder_loss_weight if mixture else config.depth_prior_weight
        return weight * sum(terms) if terms else None


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
]
