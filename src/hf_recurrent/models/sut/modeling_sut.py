"""Sparse Universal Transformer (https://arxiv.org/abs/2310.07096): one shared block of experts, and two stacks of it.

Shapes: B rows, S tokens, P tokens read before, T target tokens, d width, V token ids.
"""

import copy
import math

import torch
from torch import nn
from transformers import initialization as init
from transformers.generation import GenerationMixin

from ..common.causal_lm import ForCausalLM
from ..common.classification import ForSequenceClassification
from ..common.layers import Dropout
from ..common.outputs import RecurrentModelOutput, SUTModelOutput
from ..common.pretrained import RecurrentPreTrainedModel
from ..common.seq2seq import EncoderDecoder, ForConditionalGeneration, NoGenerationMixin
from ..common.validation import check_memory
from ..engine.base_model import Call, EncoderModel, depth_options, touch_all_parameters
from ..engine.depth_cache import DepthSlots
from ..engine.depth_loop import DepthOptions
from ..ops.attention import KeyValue
from ..ops.positions import split_sinusoids, token_positions
from .block import SUTBlock, router_names
from .configuration_sut import SUTConfig
from .depth import Scene, SparseDepth, StackCache, recur_sparse
from .experts import fits_grouped_products
from .halting import LogHaltingHead
from .routing import router_loss

# fairseq counts positions from behind its padding id
FIRST_POSITION = 2


class SUTPreTrainedModel(RecurrentPreTrainedModel):
    config: SUTConfig
    _no_split_modules = ["SUTBlock"]
    _supports_flash_attn = False
    _sdpa_or_eager = True
    generate = NoGenerationMixin.generate

    @classmethod
    def _can_set_experts_implementation(cls) -> bool:
        return True

    def get_correct_experts_implementation(self, requested_experts: str | None) -> str:
        """ "grouped_mm" where it is asked for or the sizes allow it, else "eager"."""
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
        """Tell both stacks, whose configs are copies."""
        for module in self.modules():
            config = getattr(module, "config", None)
            if isinstance(module, RecurrentPreTrainedModel) and config is not self.config:
                config._attn_implementation_internal = self.config._attn_implementation
                config._experts_implementation_internal = self.config._experts_implementation

    def loss_options(self) -> dict[str, bool]:
        return {"output_router_statistics": True}

    def auxiliary_loss(self, outputs, num_targets: torch.Tensor | int) -> torch.Tensor | None:
        """Ponder cost and router losses; over the number of targets where they stand beside a sum, as released."""
        terms = [self.ponder_loss(outputs), self.routers_loss(outputs.router_statistics)]
        terms = [term for term in terms if term is not None]
        if not terms:
            return None
        total = sum(terms)
        return total / num_targets if self.config.aux_loss_reduction == "sum" else total

    def ponder_loss(self, outputs) -> torch.Tensor | None:
        return super().auxiliary_loss(outputs, 1)

    def routers_loss(self, statistics: tuple) -> torch.Tensor | None:
        config = self.config
        if config.router_loss == "none":
            return None
        released = config.mutual_information_sign == "released"
        return config.router_loss_weight * sum(router_loss(each, config.router_loss, released) for each in statistics)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, nn.Embedding) and self.config.pad_token_id is not None:
            table = module.weight.detach().clone()
            table[self.config.pad_token_id] = 0.0
            init.copy_(module.weight, table)


class SUTModel(EncoderModel, SUTPreTrainedModel):
    """One stack: an encoder or, of a causal config, a decoder; with `config.is_encoder_decoder` both of them.

    Its own arguments are: `encoder_hidden_states` (B, S', d) and `encoder_attention_mask` (B, S') of the stack that a
    decoder of two reads; `output_experts`; `output_router_statistics`.
    """

    cache_remembers_padding = True
    further_arguments = (
        "encoder_hidden_states",
        "encoder_attention_mask",
        "output_experts",
        "output_router_statistics",
    )

    def __new__(cls, config: SUTConfig | None = None, *args, **kwargs):
        both = cls is SUTModel and config is not None and config.is_encoder_decoder
        return super().__new__(SUTEncoderDecoderModel if both else cls)

    def __init__(self, config: SUTConfig, reads_memory: bool = False):
        super().__init__(config)
        self.run_config = config
        self.build_embedding(config, dropout=0.0)
        self.embedding_dropout = Dropout(config.dropout)
        self.block = SUTBlock(config, reads_memory)
        if config.halting != "none":
            self.halting_head = LogHaltingHead(config.hidden_size, config.halting_dropout, config.halting_bias_init)
        self.final_norm = (
            nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps) if config.layer_norm == "pre" else nn.Identity()
        )
        self.post_init()

    def new_cache(self, max_steps: int | None = None) -> StackCache:
        steps = self.config.num_hidden_layers if max_steps is None else max_steps
        return StackCache(steps, self.made_for(), reads_memory=self.block.cross_attention is not None)

    def made_for(self) -> str:
        across = ", reading an encoder" if self.block.cross_attention is not None else ""
        return super().made_for() + across

    def embed(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Token embeddings (B, S, d) with scale and sinusoids, by the mask (B, P + S); zeros at padding."""
        if self.config.scale_embeddings:
            hidden = hidden * math.sqrt(self.config.hidden_size)
        if self.config.absolute_positions:
            places = token_positions(mask)[:, -hidden.shape[1] :] + FIRST_POSITION
            hidden = hidden + split_sinusoids(places, hidden.shape[-1]).to(hidden.dtype)
        return self.embedding_dropout(torch.where(mask[:, -hidden.shape[1] :, None], hidden, 0.0))

    def encode(self, hidden: torch.Tensor, mask: torch.Tensor, call: Call) -> SparseDepth:
        slots = None if call.cache is None else DepthSlots(call.cache, mask)
        scene = Scene(mask, self.config.is_causal)
        if self.block.cross_attention is not None:
            scene = scene._replace(**self.memory(hidden, call))
        head = self.halting_head if self.config.halting != "none" else None
        options = self.options(call, slots)
        experts = bool(call.further.get("output_experts"))
        depth = recur_sparse(self.block, head, self.config, self.embed(hidden, mask), scene, options, slots, experts)
        if slots is not None:
            slots.commit()
        states = torch.where(mask[:, -hidden.shape[1] :, None], self.final_norm(depth.hidden_states), 0.0)
        if not torch.compiler.is_compiling() and states.isnan().any():
            raise ValueError("the states are NaN: the weights or the inputs hold NaN or infinite values, check them")
        return depth._replace(hidden_states=touch_all_parameters(states, self))

    def options(self, call: Call, slots: DepthSlots | None) -> DepthOptions:
        chosen = self.run_config
        if call.halting_threshold is None:
            call = call._replace(halting_threshold=chosen.halting_threshold if self.config.halting != "none" else None)
        options = depth_options(self.config, call)._replace(compaction=chosen.compaction, hard_stop=chosen.hard_stop)
        if self.config.halting != "none":
            return options
        if call.halting_threshold is not None:
            threshold = call.halting_threshold
            raise ValueError(f"halting_threshold is {threshold!r}: this model never halts (halting='none')")
        if slots is not None and slots.depth != options.max_steps:
            raise ValueError(
                f"this call takes {options.max_steps} steps but `past_key_values` was made for {slots.depth}: a model "
                f"that never halts takes the same number for all tokens of a row, pass max_steps={slots.depth}"
            )
        return options

    def memory(self, hidden: torch.Tensor, call: Call) -> dict[str, torch.Tensor | KeyValue]:
        """Keys and values of the other stack's states, from the cache where it has them."""
        states, mask = (call.further.get(name) for name in ("encoder_hidden_states", "encoder_attention_mask"))
        kept = None if call.cache is None else call.cache.memory.kept()
        mask = check_memory(states, mask, hidden.shape[0], hidden.shape[-1], kept)
        if kept is None:
            kept = self.block.cross_attention.keys_values(states)
            if call.cache is not None:
                call.cache.memory.keep(kept)
        return {"memory": kept, "memory_mask": mask}

    def output(self, depth: SparseDepth, mask: torch.Tensor, call: Call, recorded: dict) -> RecurrentModelOutput:
        plain = super().output(depth, mask, call, recorded)
        named = {}
        if depth.experts is not None:
            names = router_names(self.block)
            named = {f"{name}_experts": ids for name, ids in zip(names, depth.experts, strict=True)}
        if call.further.get("output_router_statistics"):
            named["router_statistics"] = depth.statistics
        if self.block.cross_attention is None:
            return RecurrentModelOutput(**{**plain, **named})
        across = depth.cross_attentions if recorded["attentions"] is not None else None
        return SUTModelOutput(**{**plain, **named}, cross_attentions=across)


class SUTEncoderDecoderModel(EncoderDecoder, SUTModel):
    """Both stacks; the decoder reads the encoder's final states in every call."""

    def __init__(self, config: SUTConfig):
        SUTPreTrainedModel.__init__(self, config)
        encoder, decoder = copy.deepcopy(config), copy.deepcopy(config)
        for stack in (encoder, decoder):
            stack.is_encoder_decoder = False
        decoder.is_causal = True
        decoder.num_hidden_layers = config.num_decoder_layers
        self.encoder = SUTModel(encoder)
        self.decoder = SUTModel(decoder, reads_memory=True)
        for stack in (self.encoder, self.decoder):
            # what may be changed after loading is changed in the whole model's config
            stack.run_config = config
        self._tied_weights_keys = {"decoder.embed_tokens.weight": "encoder.embed_tokens.weight"}
        self.post_init()


def require_one_stack(config: SUTConfig, head: str) -> None:
    if config.is_encoder_decoder:
        raise ValueError(
            f"config field `is_encoder_decoder` is True but {head} has one stack: load the checkpoint with "
            "AutoModelForSeq2SeqLM, or start a new model with is_encoder_decoder=False"
        )


class SUTForSequenceClassification(ForSequenceClassification, SUTPreTrainedModel):
    base_model_class = SUTModel

    def __init__(self, config: SUTConfig):
        require_one_stack(config, "SUTForSequenceClassification")
        super().__init__(config)


class SUTForCausalLM(ForCausalLM, SUTPreTrainedModel, GenerationMixin):
    base_model_class = SUTModel
    generate = GenerationMixin.generate

    def __init__(self, config: SUTConfig):
        require_one_stack(config, "SUTForCausalLM")
        super().__init__(config)


class SUTForConditionalGeneration(ForConditionalGeneration, SUTPreTrainedModel, GenerationMixin):
    """Both stacks and a map to token ids: translation, semantic parsing, logical inference as translation."""

    base_model_class = SUTEncoderDecoderModel
    generate = GenerationMixin.generate

    def ponder_loss(self, outputs) -> torch.Tensor | None:
        """Of both stacks, each the mean over all tokens of the batch, as released."""
        if outputs.ponder_cost is None:
            return None
        stacks = (
            (outputs.encoder_ponder_cost, outputs.encoder_ponder_steps),
            (outputs.ponder_cost, outputs.ponder_steps),
        )
        costs = [mean_over_tokens(*stack) for stack in stacks if stack[0] is not None]
        return self.config.ponder_loss_weight * sum(costs)


def mean_over_tokens(cost: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """Of rows' mean costs (B,), where steps (B, S) are -1 at padding."""
    tokens = (steps >= 0).sum(-1)
    return (cost * tokens).sum() / tokens.sum()


__all__ = [
    "SUTEncoderDecoderModel",
    "SUTForCausalLM",
    "SUTForConditionalGeneration",
    "SUTForSequenceClassification",
    "SUTModel",
    "SUTPreTrainedModel",
]
