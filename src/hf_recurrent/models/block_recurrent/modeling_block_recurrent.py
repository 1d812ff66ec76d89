"""Block-Recurrent Transformers (https://arxiv.org/abs/2203.07852) and their baselines of the same layers."""

import torch
from torch import nn
from transformers.generation import GenerationMixin

from ..base.base_model import BaseModel, ForwardCall, check_states, pool
from ..base.pretrained import RecurrentPreTrainedModel
from ..config.exit_criteria import check_whole
from ..depth.loop import DepthOutput
from ..heads.causal import ForCausalLM
from ..heads.choices import ForMultipleChoice
from ..heads.classification import ForSequenceClassification
from ..heads.questions import ForQuestionAnswering
from ..heads.tokens import ForTokenClassification
from ..ops.attention import KeyValue
from ..ops.layers import Dropout
from ..ops.sharding import is_sharded, touch_all_parameters
from .block_layout import BlockLayout, BlockSpan
from .cache import BlockCache, reset_sequences
from .configuration_block_recurrent import BlockRecurrentConfig
from .layer import BlockRecurrentLayer, SpanOutput, concatenate_spans


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

    @property
    def recurrent_layers(self) -> list[BlockRecurrentLayer]:
        """The layers with states; those of the last are pooled and, with feedback, attended to."""
        return [self.layers[index] for index in self.config.recurrent_indices]

    def encode(self, hidden: torch.Tensor, mask: torch.Tensor, call: ForwardCall) -> DepthOutput:
        pasts, num_cached = self.past_tensors(hidden, call)
        # each block gathers the layers
        in_step = self.config.feedback and is_sharded(self)
        size = None if call.record_states or in_step else hidden.shape[-1]
        layout = BlockLayout.from_mask(mask, num_cached, self.config.window_size, size, in_step)
        before = pasts[self.config.recurrent_indices[-1]]["state"] if self.recurrent_layers else None
        run = self.run_by_block if self.config.feedback else self.run_span
        output = run(layout.to_places(hidden), layout.span, pasts)
        depth = self.depth_output(output, layout, call)
        pools_states = call.pool and self.config.pooling == "states"
        if pools_states or call.cache is not None:
            pasts = [layout.restore(past) for past in pasts]
        if before is not None and (pools_states or call.record_states):
            top = self.config.recurrent_indices[-1]
            states = (before, *output[1][top].states) if call.record_states else (pasts[top]["state"],)
            current = self.states_of_current_block(pasts, layout.num_tokens_in_block)
            depth = depth._replace(memory_states=states + current)
        depth = depth._replace(hidden_states=check_states(depth.hidden_states, mask))
        if call.cache is not None:
            self.update_cache(call, pasts, layout.num_tokens_in_block, mask)
        return depth._replace(hidden_states=touch_all_parameters(depth.hidden_states, self))

    def past_tensors(
        self, hidden: torch.Tensor, call: ForwardCall
    ) -> tuple[list[dict[str, torch.Tensor]], torch.Tensor | None]:
        """Cached or initial tensors of each layer, and the number (B,) of cached tokens in the current block."""
        config, batch_size = self.config, hidden.shape[0]
        num_cached = None if call.cache is None else call.cache.state.tensors.get("fill")
        if num_cached is None:
            empty = hidden.new_zeros(batch_size, config.window_size, config.num_attention_heads, config.head_dim)
            pasts = [{"previous_key": empty, "previous_value": empty} for _ in self.layers]
        else:
            pasts = [dict(layer.tensors) for layer in call.cache.layers[1:]]
        for layer, past in zip(self.layers, pasts, strict=True):
            initial = None if layer.state_cell is None else layer.initial_state(batch_size, hidden.dtype)
            if initial is not None:
                # a cache may come from a call in another precision
                past["state"] = past["state"].to(hidden.dtype) if "state" in past else initial
            if num_cached is not None and call.start is not None:
                reset_sequences(past, call.start, initial)
        if num_cached is not None and call.start is not None:
            num_cached = num_cached.masked_fill(call.start, 0)
        return pasts, num_cached

    def run_span(
        self,
        hidden: torch.Tensor,
        span: BlockSpan,
        pasts: list[dict[str, torch.Tensor]],
        feedback: KeyValue | None = None,
    ) -> SpanOutput:
        """Apply all layers to (B, n, E), replacing their tensors in `pasts`.

        With feedback, `feedback` are the keys and values of the top states, for all layers without states of their own.
        """
        config = self.config
        own = set(config.recurrent_indices[:-1])
        recorded, layers = [hidden], []
        for index, layer in enumerate(self.layers):
            output = layer(hidden, span, pasts[index], None if index in own else feedback)
            pasts[index] = output.cached
            hidden = output.hidden_states
            recorded.append(hidden)
            layers.append(output)
        return recorded, layers

    def run_by_block(self, hidden: torch.Tensor, span: BlockSpan, pasts: list[dict[str, torch.Tensor]]) -> SpanOutput:
        """Apply all layers to one block after the other: with feedback a block needs the states of the one before."""
        outputs, top = [], self.config.recurrent_indices[-1]
        # texts of some ranks may have cached none
        cached = not (torch.is_grad_enabled() or is_sharded(self))
        for block in range(span.num_blocks):
            part = span if span.num_blocks == 1 else span.single_block(block)
            past, present = pasts[top], part.present(0)
            if "state_key" in past and cached:
                feedback = KeyValue(past["state_key"][present], past["state_value"][present])
            else:
                feedback = self.layers[top].state_keys_values(past["state"][present])
            outputs.append(self.run_span(span.block_tokens(hidden, block), part, pasts, feedback))
        return concatenate_spans(outputs)

    def depth_output(self, output: SpanOutput, layout: BlockLayout, call: ForwardCall) -> DepthOutput:
        to_columns, (states, layers) = layout.to_columns, output
        final = to_columns(self.final_norm(states[-1]))
        if not call.record_states:
            return DepthOutput(final)

        def attention_maps(weights: list[torch.Tensor | None]) -> tuple[torch.Tensor, ...] | None:
            maps = [to_columns(w.transpose(1, 2)).transpose(1, 2) for w in weights if w is not None]
            return tuple(maps) or None

        recurrent = self.config.recurrent_indices
        return DepthOutput(
            hidden_states=final,
            all_hidden_states=tuple(map(to_columns, states)),
            attentions=attention_maps([layer.attentions for layer in layers]),
            gates=tuple(layers[recurrent[-1]].forgotten) if recurrent else None,
            read_attentions=attention_maps([layer.read_attentions for layer in layers]),
        )

    def states_of_current_block(
        self, pasts: list[dict[str, torch.Tensor]], num_tokens_in_block: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Top states (B, S, E) updated with the tokens of the incomplete block; none if there is no such block.

        Ranks that share parameters update them in any case: texts of others may have one.
        """
        past = pasts[self.config.recurrent_indices[-1]]
        if "key" not in past:
            if not is_sharded(self):
                return ()
            past = past | {name: torch.zeros_like(past[f"previous_{name}"]) for name in ("key", "value")}
        state = past["state"]
        tokens = KeyValue(*(torch.cat((past[f"previous_{name}"], past[name]), dim=1) for name in ("key", "value")))
        place = torch.arange(self.config.window_size, device=num_tokens_in_block.device)
        is_token = place < num_tokens_in_block[:, None]
        token_mask = torch.cat((torch.ones_like(is_token), is_token), dim=1)
        updated = self.recurrent_layers[-1].state_after(state, tokens, token_mask)
        return (torch.where((num_tokens_in_block > 0)[:, None, None], updated, state),)

    def pooled(self, depth: DepthOutput, mask: torch.Tensor) -> torch.Tensor:
        if self.config.pooling != "states":
            return super().pooled(depth, mask)
        states = depth.memory_states[-1]
        states = nn.functional.rms_norm(states, states.shape[-1:], eps=self.config.layer_norm_eps).mean(1)
        return pool(depth.hidden_states, mask, "end") + states

    @staticmethod
    def update_cache(
        call: ForwardCall, pasts: list[dict[str, torch.Tensor]], num_tokens_in_block: torch.Tensor, mask: torch.Tensor
    ) -> None:
        state = call.cache.state
        trailing_padding = state.tensors.get("ragged", torch.zeros_like(num_tokens_in_block, dtype=torch.bool))
        trailing_padding = trailing_padding if call.start is None else trailing_padding & ~call.start
        trailing_padding = trailing_padding | (~mask[:, -1] & (num_tokens_in_block > 0))
        state.write({"fill": num_tokens_in_block, "ragged": trailing_padding})
        state.count(mask.shape[1])
        for layer, past in zip(call.cache.layers[1:], pasts, strict=True):
            layer.write(past)


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
