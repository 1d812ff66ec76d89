"""Block-Recurrent Transformers (https://arxiv.org/abs/2203.07852) and their baselines of the same layers."""

from collections import defaultdict

import torch
from torch import nn
from transformers.generation import GenerationMixin

from ..base.base_model import BaseModel, ForwardCall, check_states, pool
from ..base.pretrained import RecurrentPreTrainedModel
from ..config.fields import check_whole
from ..depth.cache import Tensors
from ..depth.loop import DepthOutput
from ..heads.causal import ForCausalLM
from ..heads.choices import ForMultipleChoice
from ..heads.classification import ForSequenceClassification
from ..heads.questions import ForQuestionAnswering
from ..heads.tokens import ForTokenClassification
from ..ops.layers import Dropout, where_rows
from ..ops.sharding import is_sharded, touch_all_parameters
from .blocks import Blocks, blocks_of_call
from .cache import BlockCache
from .configuration_block_recurrent import BlockRecurrentConfig
from .layer import BlockRecurrentLayer


class BlockRecurrentPreTrainedModel(RecurrentPreTrainedModel):
    config: BlockRecurrentConfig
    _no_split_modules = ["BlockRecurrentLayer"]
    _supports_flash_attn = False
    _learned_biases = True

    def resize_token_embeddings(self, *args, **kwargs) -> nn.Embedding:
        before = self.config.vocab_size
        embedding = super().resize_token_embeddings(*args, **kwargs)
        if self.config.logit_divisor == "vocab_size" and self.config.vocab_size != before:
            # the head was trained with it
            self.config.logit_divisor = before
        return embedding


class BlockRecurrentModel(BaseModel, BlockRecurrentPreTrainedModel):
    """Tokens attend to a window before them; recurrent layers carry state vectors from block to block.

    Without feedback each layer runs over all blocks of a call at once, and only the updates of the states are
    sequential; with feedback all layers run over one block after the other. Memory is linear in the length of a call.
    """

    def __init__(self, config: BlockRecurrentConfig):
        super().__init__(config)
        self.build_embedding(config, dropout=0.0)
        self.layers = nn.ModuleList(BlockRecurrentLayer(config, index) for index in range(config.num_hidden_layers))
        self.final_norm = nn.RMSNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.post_init()

    def new_cache(self, max_depth: int | None = None) -> BlockCache:
        check_whole(max_depth, "max_depth")
        return BlockCache(len(self.layers), self.signature())

    def signature(self) -> str:
        config = self.config
        layers = f"{config.num_hidden_layers} layers, recurrent {config.recurrent_indices}"
        if config.memory_layers:
            layers += f", with memory {config.memory_indices} of {config.memory_size}"
        size = f"{config.num_attention_heads} heads of {config.head_dim}, width {config.hidden_size}"
        states = f"windows of {config.window_size}, {config.num_state_vectors} state vectors"
        states += ", feedback" if config.feedback else ""
        return f"{config.model_type} ({layers}, {size}, {states})"

    def encode(self, hidden: torch.Tensor, mask: torch.Tensor, call: ForwardCall) -> DepthOutput:
        config, keep = self.config, call.record_states
        # each block gathers the layers
        in_step = config.feedback and is_sharded(self)
        pasts, num_cached = self.past_tensors(hidden, call)
        blocks = blocks_of_call(mask, num_cached, config.window_size, hidden.shape[-1], keep, in_step)
        if num_cached is not None:
            pasts = reordered(pasts, blocks.order)
        tops = config.recurrent_indices[-1:]
        before = [pasts[top]["state"] for top in tops]
        states, records = self.run(blocks.to_tokens(hidden), blocks, pasts, keep)
        depth = DepthOutput(check_states(self.final_norm(blocks.to_columns(states)), mask))
        if keep:
            inputs = [torch.cat(record["inputs"]) for record in records]
            depth = depth._replace(
                all_hidden_states=tuple(map(blocks.to_columns, (*inputs, states))),
                attentions=attention_maps(blocks, [record["attentions"] for record in records]),
                gates=tuple(records[tops[0]]["forgotten"]) if tops else None,
                read_attentions=attention_maps(blocks, [record["read_attentions"] for record in records]),
            )
        pools_states = call.pool and config.pooling == "states"
        if pools_states or call.cache is not None:
            pasts = reordered(pasts, blocks.rank)
        if tops and (pools_states or keep):
            past = pasts[tops[0]]
            memory_states = [*before, *records[tops[0]]["states"]] if keep else [past["state"]]
            # texts of other ranks may have an incomplete block
            if "key" in past or is_sharded(self):
                memory_states.append(self.layers[tops[0]].state_after(past, blocks.num_tokens_in_block))
            depth = depth._replace(memory_states=tuple(memory_states))
        if call.cache is not None:
            call.cache.commit({"fill": blocks.num_tokens_in_block}, pasts, mask, call.start)
        return depth._replace(hidden_states=touch_all_parameters(depth.hidden_states, self))

    def past_tensors(self, hidden: torch.Tensor, call: ForwardCall) -> tuple[list[Tensors], torch.Tensor | None]:
        """Cached or initial tensors of each layer, and the number (B,) of cached tokens in the current block."""
        num_cached = None if call.cache is None else call.cache.state.get("fill")
        start = None if num_cached is None else call.start
        pasts = []
        for index, layer in enumerate(self.layers):
            past = {} if num_cached is None else dict(call.cache.layers[index + 1].tensors)
            # states may have been reset
            if start is not None or not past or (layer.state_cell is not None and "state" not in past):
                initial = layer.initial_tensors(hidden)
                past = initial | past
                if start is not None:
                    past |= {name: where_rows(start, tensor, past[name]) for name, tensor in initial.items()}
                    past = {name: tensor for name, tensor in past.items() if not name.startswith("state_")}
            if "state" in past:
                # a cache may come from a call in another precision
                past["state"] = past["state"].to(hidden.dtype)
            pasts.append(past)
        return pasts, num_cached if start is None else num_cached.masked_fill(start, 0)

    def run(
        self, tokens: torch.Tensor, blocks: Blocks, pasts: list[Tensors], keep: bool
    ) -> tuple[torch.Tensor, list[dict[str, list[torch.Tensor]]]]:
        """Apply all layers to tokens (N, E), replacing their tensors in `pasts`.

        With feedback they run over one block after the other, because a block needs the states of the one before: all
        layers without states of their own attend to the top states.

        Returns:
            The states after the last layer; and to `keep`, for each layer what it has done, with the `inputs` (N, E).
        """
        config = self.config
        *own, top = config.recurrent_indices or [None]
        parts = [(blocks, tokens)]
        if config.feedback:
            numbers = range(blocks.num_blocks)
            parts = [(blocks.part(j), tokens[blocks.starts[j] : blocks.starts[j + 1]]) for j in numbers]
        outputs, records = [], [defaultdict(list) for _ in self.layers]
        for part, hidden in parts:
            feedback = None
            if config.feedback:
                feedback = self.layers[top].state_keys_values(pasts[top], part.present[0])
            for index, layer in enumerate(self.layers):
                before = hidden
                hidden, pasts[index], record = layer(before, part, pasts[index], None if index in own else feedback)
                if keep:
                    for name, found in {"inputs": [before], **record}.items():
                        records[index][name] += found
            outputs.append(hidden)
        return torch.cat(outputs), records

    def pooled(self, depth: DepthOutput, mask: torch.Tensor) -> torch.Tensor:
        if self.config.pooling != "states":
            return super().pooled(depth, mask)
        states = depth.memory_states[-1]
        states = nn.functional.rms_norm(states, states.shape[-1:], eps=self.config.layer_norm_eps).mean(1)
        return pool(depth.hidden_states, mask, "end") + states


def attention_maps(blocks: Blocks, layers: list[list[torch.Tensor]]) -> tuple[torch.Tensor, ...] | None:
    """Weights (B, H, S, K) of each layer that has some of pieces (P, H, Q, K)."""
    found = [torch.cat(weights).transpose(1, 2).flatten(0, 1) for weights in layers if weights]
    return tuple(blocks.to_columns(weights).transpose(1, 2) for weights in found) or None


def reordered(pasts: list[Tensors], order: torch.Tensor | None) -> list[Tensors]:
    """Tensors (B, ...) of each layer, for the sequences of `order` (B,)."""
    if order is None:
        return pasts
    return [{name: tensor.index_select(0, order) for name, tensor in past.items()} for past in pasts]


class BlockRecurrentForSequenceClassification(ForSequenceClassification, BlockRecurrentPreTrainedModel):
    base_model_class = BlockRecurrentModel


class BlockRecurrentForTokenClassification(ForTokenClassification, BlockRecurrentPreTrainedModel):
    base_model_class = BlockRecurrentModel


class BlockRecurrentForQuestionAnswering(ForQuestionAnswering, BlockRecurrentPreTrainedModel):
    base_model_class = BlockRecurrentModel


class BlockRecurrentForMultipleChoice(ForMultipleChoice, BlockRecurrentPreTrainedModel):
    base_model_class = BlockRecurrentModel


class BlockRecurrentForCausalLM(ForCausalLM, BlockRecurrentPreTrainedModel, GenerationMixin):
    base_model_class = BlockRecurrentModel
    # an update of the states cannot be undone
    _is_stateful = True

    def __init__(self, config: BlockRecurrentConfig):
        super().__init__(config)
        self.dropout = Dropout(config.dropout)

    def predict(self, states: torch.Tensor, steps: int | torch.Tensor | None = None) -> torch.Tensor:
        """Logits, divided by a root because embeddings are as large as states: (B, S, E) -> (B, S, V)."""
        divisor = self.config.logit_divisor
        size = getattr(self.config, divisor) if isinstance(divisor, str) else divisor
        return self.lm_head(self.dropout(states) / size**0.5)


__all__ = [
    "BlockRecurrentForCausalLM",
    "BlockRecurrentForMultipleChoice",
    "BlockRecurrentForQuestionAnswering",
    "BlockRecurrentForSequenceClassification",
    "BlockRecurrentForTokenClassification",
    "BlockRecurrentModel",
    "BlockRecurrentPreTrainedModel",
]
