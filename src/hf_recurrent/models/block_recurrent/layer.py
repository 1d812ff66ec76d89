"""One layer of a Block-Recurrent Transformer: attention to a sliding window, to state vectors and to external memory.

Shapes: B sequences, N tokens, P pieces of blocks with at most Q tokens, W tokens of a block, S state vectors, M slots,
H heads, D head dim, E width; see `blocks`.
"""

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from ..depth.cache import Tensors
from ..ops.attention import KeyValue
from ..ops.flex_attention import is_flex
from ..ops.initialization import LearnedTensor
from ..ops.layers import Dropout, where_rows
from ..ops.positions import t5_buckets
from ..ops.sharding import touch_all_parameters
from .blocks import Blocks
from .external_memory import MEMORY_NAMES, with_retrieved, write_block
from .scaled_attention import ScaledAttention, unbiased_linear, window_bias, window_scores
from .state_cell import StateCell


class BlockRecurrentLayer(GradientCheckpointingLayer):
    """`y = x + Wo [window attention; state attention](RMSNorm x); y + W2 ReLU(W1 RMSNorm y)` for tokens, and for the
    states of a recurrent layer `StateCell.update` after each block.

    What else is asked of its states is asked of the layer, whose parameters engines shard together.
    """

    def __init__(self, config, layer_idx: int):
        super().__init__()
        size = config.hidden_size
        self.attention_norm = nn.RMSNorm(size, eps=config.layer_norm_eps)
        self.attention = WindowAttention(config, layer_idx)
        self.feed_forward_norm = nn.RMSNorm(size, eps=config.layer_norm_eps)
        self.up_proj = unbiased_linear(size, config.intermediate_size)
        self.down_proj = unbiased_linear(config.intermediate_size, size)
        self.dropout = Dropout(config.dropout)
        self.state_cell = StateCell(config, layer_idx) if layer_idx in config.recurrent_indices else None
        if self.state_cell is not None:
            # others have no parameters outside of their forward pass
            self.gathered_methods = ("initial_tensors", "state_keys_values", "state_after")

    def forward(
        self,
        hidden_states: torch.Tensor,
        blocks: Blocks,
        past: Tensors,
        feedback: KeyValue | None = None,
    ) -> tuple[torch.Tensor, Tensors, dict[str, list[torch.Tensor]]]:
        """Apply the layer to tokens (N, E).

        Args:
            past: cached or initial tensors of this layer.
            feedback: in models with feedback the keys and values of the states before the (one) block.

        Returns:
            Tokens (N, E) after the layer; its tensors for later calls, under the names of `BlockCache`; and what it has
            done, to be shown: `attentions` (P, H, Q, 2W) and `read_attentions` (P, H, Q, S), to states, of eager
            attention, and of recurrent layers the `states` (B, S, E) after each block, and the share `forgotten`
            (B, S, E) of each state unit that the block's update overwrites.
        """
        attention, cell = self.attention, self.state_cell
        hidden = self.dropout(self.attention_norm(hidden_states))
        query, key = attention.unit(attention.q_proj, hidden), attention.unit(attention.k_proj, hidden)
        tokens, cached = [], {}
        for name, new in (("key", key), ("value", attention.heads(attention.v_proj(hidden)))):
            extended, kept = blocks.extend(new, past, name)
            tokens.append(extended)
            cached |= kept
        attended, weights = attention.attend_window(query, tokens, blocks)
        if attention.memory is not None:
            attended, memory = attention.attend_memory(attended, query, tokens, past, blocks)
            cached |= memory
        reads, states, forgotten, read_weights = [feedback], [], [], []
        if cell is not None:
            reads, states, forgotten = self.run_states(tokens, past, feedback, blocks)
            cached["state"] = states[-1] if states else past["state"]
            if not torch.is_grad_enabled() and not blocks.complete[-1] and blocks.present[-1] == blocks.batch_size:
                cached["state_key"], cached["state_value"] = reads[-1]
        if attention.state_q_proj is not None:
            from_states, read_weights = attention.attend_states(hidden, reads, blocks)
            attended = torch.cat((attended, from_states), dim=-2)
        updated = hidden_states + attention.o_proj(attended.flatten(-2))
        inner = self.up_proj(self.feed_forward_norm(updated)).relu()
        updated = updated + self.dropout(self.down_proj(inner))
        if cell is not None:
            # texts of some ranks may complete no block
            updated = touch_all_parameters(updated, cell)
        record = {"attentions": weights, "read_attentions": read_weights, "states": states, "forgotten": forgotten}
        return updated, cached, record

    def run_states(
        self,
        tokens: list[torch.Tensor],
        past: Tensors,
        feedback: KeyValue | None,
        blocks: Blocks,
    ) -> tuple[list[KeyValue], list[torch.Tensor], list[torch.Tensor]]:
        """Keys and values of the states before each block, the states after it, and the share that it overwrites."""
        cell, before = self.state_cell, feedback
        reads, states, forgotten = [], [], []
        for block, (present, complete) in enumerate(zip(blocks.present, blocks.complete, strict=True)):
            before = cell.keys_values(past, present) if before is None else before
            reads.append(before)
            if complete:
                old, own = past["state"][:complete], [each[:complete] for each in before]
                updated, retained = cell.update(old, own, [blocks.window(each, block) for each in tokens])
                share, completing = (1.0 - retained).expand_as(updated), blocks.completing[block]
                if completing is not None:
                    updated, share = where_rows(completing, updated, old), where_rows(completing, share, 0.0)
                states.append(with_first(past["state"], updated))
                forgotten.append(share)
                past, before = {"state": states[-1]}, None
        return reads, states, forgotten

    def initial_tensors(self, hidden_states: torch.Tensor) -> Tensors:
        """What a cache holds before the first of these tokens (B, n, E), which outlives a gathered parameter."""
        batch_size, config = hidden_states.shape[0], self.attention.config
        heads, head_dim = config.num_attention_heads, config.head_dim
        empty = hidden_states.new_zeros(batch_size, config.window_size, heads, head_dim)
        initial = {"previous_key": empty, "previous_value": empty}
        if self.attention.memory is not None:
            slots = hidden_states.new_zeros(batch_size, heads, config.memory_size, head_dim)
            count = torch.zeros(batch_size, dtype=torch.long, device=slots.device)
            initial |= zip(MEMORY_NAMES, (slots, slots, count), strict=True)
        if self.state_cell is not None:
            state = self.state_cell.initial_state().to(hidden_states.dtype)
            initial["state"] = state.expand(batch_size, -1, -1).clone()
        return initial

    def state_keys_values(self, past: Tensors, number: int) -> KeyValue:
        """`StateCell.keys_values`."""
        return self.state_cell.keys_values(past, number)

    def state_after(self, past: Tensors, num_tokens: torch.Tensor) -> torch.Tensor:
        """States (B, S, E) updated with the `num_tokens` (B,) tokens of an incomplete block, if there are any."""
        state, tokens = past["state"], []
        for name in ("key", "value"):
            previous = past[f"previous_{name}"]
            new = past[name] if name in past else torch.zeros_like(previous)
            tokens.append(torch.cat((previous, new), dim=1))
        place = torch.arange(-previous.shape[1], previous.shape[1], device=state.device)
        own, token_mask = self.state_cell.keys_values(past), place < num_tokens[:, None]
        updated, _ = self.state_cell.update(state, own, tokens, token_mask)
        return where_rows(num_tokens > 0, updated, state)


class WindowAttention(ScaledAttention):
    """Each token of a block attends to the W tokens before it, in some layers also to state vectors.

    Each has a softmax of its own; the results are concatenated and projected (section 3.1).
    """

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        size, inner = config.hidden_size, config.num_attention_heads * config.head_dim
        attends_to_states = config.feedback or layer_idx in config.recurrent_indices
        has_memory = layer_idx in config.memory_indices
        self.q_proj = unbiased_linear(size, inner)
        self.k_proj = unbiased_linear(size, inner)
        self.v_proj = unbiased_linear(size, inner)
        self.scales = self.new_scales()
        # T5's biases (Raffel et al. 2020) for distances in a window, and the share of a memory, initially a half;
        # checkpoints name them position_bias.table and memory.share
        self.position_bias = self.memory = None
        if config.memory_position_bias or not has_memory:
            buckets = config.relative_attention_num_buckets
            table = LearnedTensor(config.num_attention_heads, buckets, std=buckets**-0.5)
            self.position_bias = nn.ModuleDict({"table": table})
        if has_memory:
            self.memory = nn.ModuleDict({"share": LearnedTensor(config.num_attention_heads)})
        self.state_q_proj = self.state_scales = None
        if attends_to_states:
            self.state_q_proj = unbiased_linear(size, inner)
            self.state_scales = self.new_scales()
        self.o_proj = unbiased_linear((1 + attends_to_states) * inner, size)

    def attend_window(
        self, query: torch.Tensor, tokens: list[torch.Tensor], blocks: Blocks
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Unit queries (N, H, D), keys and values of `Blocks.extend` -> (N, H, D), weights (P, H, Q, W + Q)."""
        config, scales = self.config, self.factors(self.scales)[:, None]
        if self.position_bias is None:
            by_distance = torch.zeros_like(scales).expand(-1, config.window_size)
        else:
            table = self.position_bias["table"]()
            distances = torch.arange(1, config.window_size + 1, device=table.device)
            buckets = t5_buckets(distances, table.shape[1], config.relative_attention_max_distance)
            # (H, W): the learned scale of a head applies to position biases, too
            by_distance = table[:, buckets] * scales
        scores, contexts = window_scores if is_flex(config) else window_bias, []
        for group in blocks.grouped.groups:
            keys_values = (blocks.windows(each, group) for each in tokens)
            contexts.append((*keys_values, *scores(by_distance, group.tokens.shape[1])))
        return self.attend_groups(query * scales.to(query.dtype), contexts, blocks, config.attention_dropout)

    def attend_states(
        self, hidden: torch.Tensor, reads: list[KeyValue], blocks: Blocks
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Tokens (N, E), keys and values (b, S, H, D) of the states before each block -> (N, H, D), (P, H, Q, S)."""
        query = self.unit(self.state_q_proj, hidden, self.state_scales)
        states = reads[0] if len(reads) == 1 else [torch.cat(tensors) for tensors in zip(*reads, strict=True)]
        contexts = [tuple(each[group.context[0]] for each in states) for group in blocks.grouped.groups]
        return self.attend_groups(query, contexts, blocks)

    def attend_groups(
        self, query: torch.Tensor, contexts: list[tuple], blocks: Blocks, dropout: float = 0.0
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Queries (N, H, D), other arguments of `attend` for each group -> (N, H, D), and weights, if there are any."""
        grouped, results = blocks.grouped, []
        for group, context in zip(grouped.groups, contexts, strict=True):
            results.append(self.attend(grouped.spread(query, group), *context, dropout=dropout))
        attended, weights = zip(*results, strict=True)
        return grouped.gather(attended), [each for each in weights if each is not None]

    def attend_memory(
        self,
        attended: torch.Tensor,
        query: torch.Tensor,
        tokens: list[torch.Tensor],
        past: Tensors,
        blocks: Blocks,
    ) -> tuple[torch.Tensor, Tensors]:
        """Mix in attention to the memory, block by block; complete blocks are then written into it."""
        mixed, memory = [], [past[name] for name in MEMORY_NAMES]
        scales, share = self.factors(self.scales), self.memory["share"]()
        for block, complete in enumerate(blocks.complete):
            grouped, place, results = blocks.part(block).grouped, slice(*blocks.starts[block : block + 2]), []
            for group in grouped.groups:
                own = [each[group.context[0]] for each in memory]
                states = (grouped.spread(each[place], group) for each in (attended, query))
                results.append(with_retrieved(*states, scales, share, own, self.config))
            mixed.append(grouped.gather(results))
            if complete:
                new = (blocks.window(states, block)[:, blocks.width :] for states in tokens)
                written = write_block([each[:complete] for each in memory], *new, blocks.completing[block])
                memory = [with_first(*pair) for pair in zip(memory, written, strict=True)]
        return torch.cat(mixed), dict(zip(MEMORY_NAMES, memory, strict=True))


def with_first(tensor: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    """(B, ...) with its first rows replaced by (b, ...)."""
    # `len` would fix the batch size of a traced graph
    rows = first.shape[0]
    return first if rows == tensor.shape[0] else torch.cat((first.to(tensor.dtype), tensor[rows:]))
