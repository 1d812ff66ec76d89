"""Block-Recurrent Transformers (https://arxiv.org/abs/2203.07852) and their baselines of the same layers."""

import torch
from torch import nn
from transformers.generation import GenerationMixin

from ..common.causal_lm import ForCausalLM
from ..common.classification import ForSequenceClassification
from ..common.layers import Dropout
from ..common.pretrained import RecurrentPreTrainedModel
from ..engine.base_model import BaseModel, ForwardCall, check_fixed_depth, check_states, pool, touch_all_parameters
from ..engine.depth_loop import DepthOutput
from ..ops.attention import KeyValue
from .block_layout import Canvas, Stretch
from .cache import BlockCache, begin_again
from .configuration_block_recurrent import BlockRecurrentConfig
from .layer import BlockRecurrentLayer, Run, joined
from .state_cell import StateCell


class BlockRecurrentPreTrainedModel(RecurrentPreTrainedModel):
    config: BlockRecurrentConfig
    _no_split_modules = ["BlockRecurrentLayer"]
    _supports_flash_attn = False
    _sdpa_or_eager = True


class BlockRecurrentModel(BaseModel, BlockRecurrentPreTrainedModel):
    """Tokens attend to a window before them; recurrent layers carry state vectors from block to block.

    Without feedback each layer runs over all blocks of a call at once, and only the states' updates follow each other;
    with feedback all layers run over one block after the other. Memory is linear in the length of a call.
    """

    def __init__(self, config: BlockRecurrentConfig):
        super().__init__(config)
        self.build_embedding(config, dropout=0.0)
        self.layers = nn.ModuleList(BlockRecurrentLayer(config, index) for index in range(config.num_hidden_layers))
        self.final_norm = nn.RMSNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.post_init()

    def new_cache(self, max_steps: int | None = None) -> BlockCache:
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

    @property
    def top_cell(self) -> StateCell | None:
        """Of the highest recurrent layer, whose states are read out, and by all layers if there is feedback."""
        indices = self.config.recurrent_indices
        return self.layers[indices[-1]].state_cell if indices else None

    def encode(self, hidden: torch.Tensor, mask: torch.Tensor, call: ForwardCall) -> DepthOutput:
        check_fixed_depth(call)
        pasts, fill = self.begin(hidden, call)
        canvas = Canvas.of(mask, fill, self.config.window_size)
        before = None if self.top_cell is None else pasts[self.config.recurrent_indices[-1]]["state"]
        run_stretch = self.run_by_block if self.config.feedback else self.run
        run = run_stretch(canvas.spread(hidden), canvas.stretch, pasts)
        depth = self.describe(run, canvas, call)
        if before is not None and (call.pool or call.record_states):
            states = [before, *run.layers[self.config.recurrent_indices[-1]].states]
            depth = depth._replace(memory_states=tuple(states) + self.read_out(pasts, canvas.fill))
        depth = depth._replace(hidden_states=check_states(depth.hidden_states, mask))
        if call.cache is not None:
            self.store(call, pasts, canvas.fill, mask)
        return depth._replace(hidden_states=touch_all_parameters(depth.hidden_states, self))

    def begin(
        self, hidden: torch.Tensor, call: ForwardCall
    ) -> tuple[list[dict[str, torch.Tensor]], torch.Tensor | None]:
        """What each layer has before the call, and (B,) how many tokens of their blocks rows have read."""
        config, rows = self.config, hidden.shape[0]
        cached = None if call.cache is None else call.cache.state.tensors.get("fill")
        if cached is None:
            nothing = hidden.new_zeros(rows, config.window_size, config.num_attention_heads, config.head_dim)
            pasts = [{"previous_key": nothing, "previous_value": nothing} for _ in self.layers]
        else:
            pasts = [dict(layer.tensors) for layer in call.cache.layers[1:]]
        for layer, past in zip(self.layers, pasts, strict=True):
            initial = None if layer.state_cell is None else layer.state_cell.begin(rows, hidden.dtype)
            if initial is not None:
                # a cache may come from a call in another precision
                past["state"] = past["state"].to(hidden.dtype) if "state" in past else initial
            if cached is not None and call.start is not None:
                begin_again(past, call.start, initial)
        if cached is not None and call.start is not None:
            cached = cached.masked_fill(call.start, 0)
        return pasts, cached

    def run(
        self, hidden: torch.Tensor, stretch: Stretch, pasts: list[dict[str, torch.Tensor]], view: KeyValue | None = None
    ) -> Run:
        """All layers over (B, n, E), replacing what they keep in `pasts`; `view`: what all read of the states."""
        config = self.config
        own = set(config.recurrent_indices[:-1])
        recorded, layers = [hidden], []
        for index, layer in enumerate(self.layers):
            output = layer(hidden, stretch, pasts[index], None if index in own else view)
            pasts[index] = output.kept
            hidden = output.hidden_states
            recorded.append(hidden)
            layers.append(output)
        return Run(recorded, layers)

    def run_by_block(self, hidden: torch.Tensor, stretch: Stretch, pasts: list[dict[str, torch.Tensor]]) -> Run:
        """With feedback: what a block reads of the states depends on all layers of the block before."""
        runs, top = [], self.config.recurrent_indices[-1]
        for block in range(stretch.num_blocks):
            part = stretch if stretch.num_blocks == 1 else stretch.of_block(block)
            states = hidden if stretch.num_blocks == 1 else hidden.unflatten(1, (stretch.num_blocks, -1))[:, block]
            past = pasts[top]
            if "state_key" in past and not torch.is_grad_enabled():
                view = KeyValue(past["state_key"], past["state_value"])
            else:
                view = self.top_cell.keys_values(past["state"])
            runs.append(self.run(states, part, pasts, view))
        return joined(runs)

    def describe(self, run: Run, canvas: Canvas, call: ForwardCall) -> DepthOutput:
        restore = canvas.restore
        final = restore(self.final_norm(run.hidden_states[-1]))
        if not call.record_states:
            return DepthOutput(final)

        def by_token(weights: list[torch.Tensor | None]) -> tuple[torch.Tensor, ...] | None:
            known = [restore(w.transpose(1, 2)).transpose(1, 2) for w in weights if w is not None]
            return tuple(known) or None

        layers, recurrent = run.layers, self.config.recurrent_indices
        return DepthOutput(
            hidden_states=final,
            all_hidden_states=tuple(restore(states) for states in run.hidden_states),
            attentions=by_token([layer.attentions for layer in layers]),
            gates=tuple(layers[recurrent[-1]].forgotten) if recurrent else None,
            read_attentions=by_token([layer.read_attentions for layer in layers]),
        )

    def read_out(self, pasts: list[dict[str, torch.Tensor]], fill: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """States (B, S, E) as the tokens of the begun block, if there is one, would leave them."""
        past = pasts[self.config.recurrent_indices[-1]]
        if "key" not in past:
            return ()
        cell, state = self.top_cell, past["state"]
        tokens = KeyValue(*(torch.cat((past[f"previous_{name}"], past[name]), dim=1) for name in ("key", "value")))
        read = torch.arange(self.config.window_size, device=fill.device) < fill[:, None]
        token_mask = torch.cat((torch.ones_like(read), read), dim=1)
        updated = cell.update(state, cell.keys_values(state), tokens, token_mask).state
        return (torch.where((fill > 0)[:, None, None], updated, state),)

    def pooled(self, depth: DepthOutput, mask: torch.Tensor) -> torch.Tensor:
        if self.config.pooling != "states":
            return super().pooled(depth, mask)
        states = depth.memory_states[-1]
        states = nn.functional.rms_norm(states, states.shape[-1:], eps=self.config.layer_norm_eps).mean(1)
        return pool(depth.hidden_states, mask, "end") + states

    @staticmethod
    def store(call: ForwardCall, pasts: list[dict[str, torch.Tensor]], fill: torch.Tensor, mask: torch.Tensor) -> None:
        state = call.cache.state
        ragged = state.tensors.get("ragged", torch.zeros_like(fill, dtype=torch.bool))
        ragged = ragged if call.start is None else ragged & ~call.start
        state.tensors = {"fill": fill, "ragged": ragged | (~mask[:, -1] & (fill > 0))}
        state.length += mask.shape[1]
        for layer, past in zip(call.cache.layers[1:], pasts, strict=True):
            layer.tensors = past
        for layer in call.cache.layers:
            layer.is_initialized = True


class BlockRecurrentForSequenceClassification(ForSequenceClassification, BlockRecurrentPreTrainedModel):
    base_model_class = BlockRecurrentModel


class BlockRecurrentForCausalLM(ForCausalLM, BlockRecurrentPreTrainedModel, GenerationMixin):
    base_model_class = BlockRecurrentModel
    # what has been written into the states cannot be taken back
    _is_stateful = True

    def __init__(self, config: BlockRecurrentConfig):
        super().__init__(config)
        self.dropout = Dropout(config.dropout)

    def predict(self, states: torch.Tensor) -> torch.Tensor:
        """Logits are divided by a root, because embeddings are as large as states."""
        divisor = getattr(self.config, self.config.logit_divisor) ** 0.5
        return self.lm_head(self.dropout(states) / divisor)


__all__ = [
    "BlockRecurrentForCausalLM",
    "BlockRecurrentForSequenceClassification",
    "BlockRecurrentModel",
    "BlockRecurrentPreTrainedModel",
]
