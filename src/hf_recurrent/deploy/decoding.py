"""Decoding of language models in slots, each of which has a text at a position and a depth step of its own.

A token that has halted leaves at once, and the next one of its text enters at step 0. Shapes: B slots, T columns, L
maximum of steps, H heads of keys, D head dim, E width, F features of the halting head, V token ids.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from ..models.depth.cache import PastKeyValue
from ..models.depth.layouts import PaddedLayout, keeps_keys
from ..models.depth.loop import LateValues
from ..models.ndr.attention import RoutingContext
from ..models.ops.attention import PaddedContext, Rotations
from ..models.ops.graphs import capturing
from ..models.ops.layers import where_rows
from ..models.ops.masks import as_implemented
from ..models.ops.positions import rotation_angles, rotation_table, sinusoids, xpos_scales
from .cuda_graphs import repeated
from .slots import Slots, check_slots

# architectures whose cache has keys of every token and step, and those whose cache has a constant size
BY_STEP = ("ut", "gut", "ndr", "ouro_recurrent", "huginn_recurrent")
BY_TOKEN = ("tlb", "gutlb", "block_recurrent", "rnn")


class SlotKeys(PastKeyValue):
    """Keys and values of all slots (B * planes * T, H, D); `places` are those to write, and `rows` those to read."""

    def write(self, *new: torch.Tensor) -> None:
        """Write keys and values of the new tokens, (B, H, 1, D) or (B, 1, H, D)."""
        for buffer, states in zip(self[:2], new, strict=True):
            buffer.index_copy_(0, self.places, states.reshape(-1, *buffer.shape[1:]).to(buffer.dtype))

    def extended(self, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Write those of the new tokens (B, H, 1, D) -> those of all columns (B, H, T, D)."""
        self.write(key, value)
        found = (buffer.index_select(0, self.rows).unflatten(0, (len(key), -1)) for buffer in self[:2])
        return tuple(states.transpose(1, 2) for states in found)

    def without_padding_place(self, states: torch.Tensor) -> torch.Tensor:
        return states


class SlotCache:
    """Keys and values of all slots, in a plane for each depth step, and running sums of the halting head.

    A token that has halted leaves those of later steps in one plane, which `last_plane` (B, T) names: later tokens read
    the smaller one of it and their step. Columns are read in an order that has the newest token last.
    """

    def __init__(self, base: nn.Module, slots: int, depth: int, length: int):
        config, self.depth, self.length = base.config, depth, length
        heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
        zeros = partial(torch.zeros, device=base.device)

        def buffers(number: int, planes: int) -> torch.Tensor:
            return zeros(number, 2, slots, planes, length, heads, config.head_dim, dtype=base.dtype)

        self.steps = buffers(getattr(config, "layers_per_step", 1), depth + 1)
        self.outer = buffers(sum(len(getattr(base, name, ())) for name in ("prelude", "coda")), 1)
        self.last_plane = zeros(slots, length, dtype=torch.long) + depth
        # tokens of each slot before the present one
        self.past_counts = zeros(slots, dtype=torch.long)
        self.slot = torch.arange(slots, device=base.device)
        features = base.halting_head[0].in_features if getattr(config, "running_mean", False) else 0
        self.running_sums = zeros(slots, depth + 1, features)
        # slots whose sums are written, None for all
        self.rows: torch.Tensor | None = None

    def columns(self) -> torch.Tensor:
        """(B, T) of the tokens before the present one and itself, which is last; negative where there are none."""
        return self.past_counts[:, None] + torch.arange(1 - self.length, 1, device=self.slot.device)

    def past(
        self, buffers: torch.Tensor, written: torch.Tensor | int, read: torch.Tensor | int
    ) -> tuple[SlotKeys, ...]:
        """Keys of each layer, to be written in planes (B,) and read from planes (B, T)."""
        first = self.slot * buffers.shape[3]
        places = (first + written) * self.length + self.past_counts
        rows = ((first[:, None] + read) * self.length + self.columns().clamp_min(0)).flatten()
        return tuple(SlotKeys(*layer.flatten(1, 3), places=places, rows=rows) for layer in buffers)

    def context(self, context: NamedTuple, step: torch.Tensor) -> NamedTuple:
        """The context of steps (B,), with the keys of earlier tokens."""
        last = self.last_plane.gather(1, self.columns().clamp_min(0))
        pasts = self.past(self.steps, step, torch.minimum(step[:, None], last))
        return context._replace(past=pasts if len(pasts) > 1 else pasts[0])

    def through(self, layers: nn.ModuleList, states: torch.Tensor, context: NamedTuple, first: int = 0) -> torch.Tensor:
        """States (B, 1, E) after layers that are applied once, whose keys are the `outer` ones from the first on."""
        for layer, past in zip(layers, self.past(self.outer, 0, 0)[first:], strict=False):
            states = layer(states, context._replace(past=past)).hidden_states
        return states

    def write(self, step: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        """Keys are written while they are attended to."""

    def sums(self, step: torch.Tensor) -> torch.Tensor:
        return self.running_sums[self.slot, step]

    def write_sums(self, step: torch.Tensor, sums: torch.Tensor) -> None:
        new = sums.squeeze(1) if self.rows is None else where_rows(self.rows, sums.squeeze(1), self.sums(step))
        self.running_sums.index_put_((self.slot, step), new)

    def leave(self, done: torch.Tensor, plane: torch.Tensor, latest: torch.Tensor, features: torch.Tensor) -> None:
        """Name the plane (B,) of later steps of tokens that are done (B,), and count their features (B, F) in the sums
        of the steps after the `latest` (B,) decision.
        """
        self.last_plane.index_put_((self.slot, self.past_counts), torch.where(done, plane, self.depth))
        if self.running_sums.numel():
            later = done[:, None] & (torch.arange(self.depth + 1, device=done.device) > latest[:, None])
            self.running_sums += torch.where(later[..., None], features[:, None].float(), 0.0)

    def read(self, slot: int, cache: Any, row: int, number: int) -> None:
        """Copy the first tokens, so many, of a row of a model's cache into a slot."""
        inner = self.depth * len(self.steps)
        self.last_plane[slot], self.running_sums[slot], self.past_counts[slot] = self.depth, 0, number
        for buffers, layers in ((self.steps, cache.layers[:inner]), (self.outer, cache.layers[inner:])):
            for index, layer in enumerate(layers if number else ()):
                plane, layer_of_step = divmod(index, len(buffers))
                for kind, name in enumerate(("keys", "values")):
                    found = layer.tensors[name][row, :, :number].transpose(0, 1)
                    buffers[layer_of_step, kind, slot, plane, :number] = found
                if "sums" in layer.tensors:
                    # padding after the tokens adds nothing
                    self.running_sums[slot, plane] = layer.tensors["sums"][row, -1]


def fixed_part(base: nn.Module, length: int) -> torch.Tensor | None:
    """What attention takes of distances in so many columns: decays (T, D), or keys (H, 2T - 1, D)."""
    config, device = base.config, base.device
    if config.model_type in ("ut", "gut"):
        # as `cached_rotations`: keys are rotated only, and decay by their distance
        distances = torch.arange(length - 1, -1, -1, device=device)
        return xpos_scales(distances, config.head_dim, config.xpos_scale_base).float().repeat_interleave(2, dim=-1)
    if not hasattr(base, "position_keys"):
        return None
    waves = sinusoids(torch.arange(1 - length, length, device=device), config.hidden_size)
    keys = base.position_keys(waves.to(base.embed_tokens.weight.dtype))
    return keys.unflatten(-1, (-1, config.head_dim)).transpose(0, 1)


def context_of(base: nn.Module, cache: SlotCache, fixed: torch.Tensor | None) -> NamedTuple:
    """Inputs of attention, besides states and keys, of one token in each slot; `fixed` is the `fixed_part`."""
    config, position, columns = base.config, cache.past_counts[:, None], cache.columns()
    seen = columns >= 0

    def masked(seen: torch.Tensor) -> torch.Tensor:
        return as_implemented(config, seen[:, None, None], torch.float32)

    if config.model_type == "ndr":
        mask = seen if config.attention == "geometric" else masked(seen)
        return RoutingContext(mask, fixed, columns.clamp_min(0))
    if config.model_type in ("ut", "gut"):
        table = rotation_table(rotation_angles(position, config.head_dim))
        return PaddedContext(masked(seen), Rotations(table, table), key_scale=fixed)
    scaling = getattr(config, "rotary_scaling", None)
    table = rotation_table(rotation_angles(position, config.head_dim, config.rope_theta, scaling))
    window = None if base.window is None else masked(seen & (columns > position - base.window))
    return PaddedContext(masked(seen), Rotations(table, table), window_mask=window)


class DepthSlots(Slots):
    """Texts of a model that iterates one block: in each iteration their current tokens take one depth step."""

    def __init__(self, model: PreTrainedModel, slots: int, max_length: int, **options: Any):
        base, max_depth = model.model, options.get("max_depth")
        base.new_cache(max_depth).check_model(base, max_depth)
        self.cache = SlotCache(base, slots, base.cache_steps(max_depth), max_length)
        super().__init__(model, slots, self.cache, **options)
        self.fixed, self.mask, self.max_length = fixed_part(base, max_length), self.done[:, None].clone(), max_length

    def read(self, slot: int, cache: Any, row: int, number: int) -> None:
        """Start a text in a slot, with the first `number` tokens in `row` of a model's cache."""
        self.cache.read(slot, cache, row, number)
        self.done[slot] = True

    def advance(self, token: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Take a step of all current tokens (B,) -> which of them are done (B,), and logits (B, V), valid for those."""
        cache, base, fresh = self.cache, self.model.model, self.done
        context = context_of(base, cache, self.fixed)
        layout = PaddedLayout(base.config, self.strategy, self.mask, context, cache)
        # a token that has halted takes no further step here
        layout.keeps_keys, cache.rows = False, fresh
        state, step = self.start(layout, self.embedded(token, context), fresh)
        cache.rows = None
        state, step, done = self.take(layout, state, step)
        if self.ends_early:
            self.complete(layout, state, step, done)
        self.keep(state, step, done)
        return done, self.logits(self.strategy.output(state)[0], context)

    def next_tokens(self, rows: torch.Tensor) -> None:
        """Go on to the next position in the slots where `rows` (B,) is True."""
        self.cache.past_counts += rows

    def embedded(self, token: torch.Tensor, context: NamedTuple) -> torch.Tensor:
        """States (B, 1, E) of tokens (B,) before the first step."""
        base, config = self.model.model, self.model.config
        hidden = self.embed(token[:, None], None, self.cache.past_counts[:, None])
        if config.model_type == "huginn_recurrent":
            hidden = self.cache.through(base.prelude, hidden, context)
            return torch.cat((base.initial_states(hidden, None), hidden), dim=-1)
        return hidden

    def logits(self, states: torch.Tensor, context: NamedTuple) -> torch.Tensor:
        """Logits (B, V) of final states (B, 1, E)."""
        base = self.model.model
        if self.model.config.model_type == "huginn_recurrent":
            found = self.cache.through(base.coda, base.norm(base.watched(states)), context, len(base.prelude))
            states = base.norm(found)
        return self.model.predict(states).squeeze(1)

    def complete(self, layout: PaddedLayout, state: Any, step: torch.Tensor, done: torch.Tensor) -> None:
        """Leave keys, values and sums of the skipped steps for later tokens, after so many steps (B,)."""
        cache, strategy, plane = self.cache, self.strategy, step - 1
        # a rejected candidate was computed from the final state, and its keys are in the plane of that step
        rejected = strategy.needs_candidate and not strategy.exits
        if not (rejected or keeps_keys(self.model.config, strategy)):
            plane, source = step, strategy.attended(state)
            projected = self.block.keys_values(state.hidden if source is None else source, layout.context)
            cache.context(layout.context, plane).past.write(*projected)
        features = strategy.features(state, state.hidden if strategy.needs_candidate else None)
        cache.leave(done, plane, step if self.decides_ahead else step - 1, features.squeeze(1))


class StateSlots:
    """Texts of a model whose cache has a constant size: in each iteration their current tokens take all depth steps."""

    max_length = math.inf

    def __init__(self, model: PreTrainedModel, slots: int, **options: Any):
        self.model, self.options = model, options
        self.cache = model.model.new_cache(options.get("max_depth"))
        token = torch.zeros(slots, dtype=torch.long, device=model.device)
        # the cache gets its tensors with the first token, and those that graphs update with the second
        model(token[:, None], past_key_values=self.cache, **options)
        self.cache.pin()
        with capturing():
            self.advance(token)
        self.cache.pin()

    def read(self, slot: int, cache: Any, row: int, number: int) -> None:
        """As of `DepthSlots`."""
        for own, other in zip(self.cache.layers, cache.layers, strict=True):
            for name, tensor in own.tensors.items():
                # keys and values are missing where the current block has no tokens yet
                tensor[slot] = other.tensors[name][row] if name in other.tensors else 0

    def advance(self, token: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """As of `DepthSlots`."""
        logits = self.model(token[:, None], past_key_values=self.cache, **self.options).logits
        return torch.ones_like(token, dtype=torch.bool), logits[:, -1]

    def next_tokens(self, rows: torch.Tensor) -> None:
        """Nothing to do: the cache counts its tokens."""


class DecodingEngine:
    """Writes texts with a language model, many at a time, whatever depth each token takes.

    A fixed number of slots have a text each. One iteration is a depth step of all of them; a token that halts gives its
    place to the next token of its text, and a finished text to the next prompt. Models whose cache has a constant size,
    such as chunk-recurrent ones, write one token of every text in each iteration. Iterations do not wait for the host:
    on a GPU each is one CUDA graph. Texts are those of `generate`; there is no beam search. Do not use it from several
    threads, and make a new one after changes of the model.

    Args:
        model: a causal language model in evaluation mode: `ut`, `gut`, `ndr`, `ouro_recurrent`, `huginn_recurrent`, or,
            with a cache of constant size, `tlb`, `gutlb`, `block_recurrent` or `rnn`.
        slots: texts that are written at the same time.
        max_length: tokens of the longest text, its prompt included; memory grows with it, the slots and the depth.
            Without effect where the cache has a constant size: texts may then have any length.
        graph: whether to capture a CUDA graph; by default on a GPU.
        compiled: whether torch compiles an iteration.
        options: of the model's calls, such as `max_depth`, `halting_threshold` or `exit_criterion`.

    Attributes:
        iterations: number of iterations so far.

    Raises:
        ValueError: a model or an option that is not supported.

    Example:
        >>> engine = DecodingEngine(model, slots=16, max_length=256)
        >>> texts = engine.generate([[2, 5, 6], [2, 7]], max_new_tokens=20)
    """

    @torch.inference_mode(False)
    @torch.no_grad()
    def __init__(
        self,
        model: PreTrainedModel,
        slots: int = 16,
        max_length: int = 1024,
        graph: bool | None = None,
        compiled: bool = False,
        **options: Any,
    ):
        check_slots(model, slots, (*BY_STEP, *BY_TOKEN), "call model.generate")
        if not hasattr(model, "lm_head") or not model.config.is_causal:
            raise ValueError(f"the {type(model).__name__} predicts no next token: load it by AutoModelForCausalLM")
        by_step = model.config.model_type in BY_STEP
        self.slots = DepthSlots(model, slots, max_length, **options) if by_step else StateSlots(model, slots, **options)
        self.model, self.options, self.device, self.compiled = model, options, model.device, compiled
        self.graph = self.device.type == "cuda" if graph is None else graph
        self.iterations, self.runs = 0, {}
        # of each text the present token, how many new ones are left, and (2, B) a new one or -1, and whether it is last
        self.token = torch.zeros(slots, dtype=torch.long, device=self.device)
        self.remaining = torch.zeros_like(self.token)
        self.report = torch.stack((self.token, self.remaining))
        self.noise = torch.ones(slots, model.config.vocab_size, device=self.device)

    def iterate(self, warpers: Sequence[Any], ends: torch.Tensor) -> None:
        """Take a step of all slots, and choose the next token of those that are done."""
        done, logits = self.slots.advance(self.token)
        token = self.choose(logits, warpers)
        emits = done & (self.remaining > 0)
        ended = emits & ((token[:, None] == ends).any(-1) | (self.remaining == 1))
        self.report.copy_(torch.stack((torch.where(emits, token, -1), ended.long())))
        self.token.copy_(torch.where(done, token, self.token))
        self.remaining.copy_(torch.where(ended, 0, self.remaining - emits.long()))
        self.slots.next_tokens(done & (self.remaining > 0))

    def choose(self, logits: torch.Tensor, warpers: Sequence[Any]) -> torch.Tensor:
        """The next tokens (B,) by logits (B, V): the likeliest, or drawn if there are warpers, by Gumbel noise."""
        logits = logits.float()
        for warper in warpers:
            logits = warper(None, logits)
        # the logarithm of an exponential variable is that noise, negated
        return (logits - self.noise.log() if warpers else logits).argmax(-1)

    @torch.inference_mode(False)
    @torch.no_grad()
    def stream(
        self,
        prompts: Sequence[torch.Tensor | Sequence[int]],
        max_new_tokens: int = 20,
        do_sample: bool = False,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        generator: torch.Generator | None = None,
        eos_token_id: int | Sequence[int] | None = None,
    ) -> Iterator[tuple[int, int]]:
        """Yield the number of a prompt and a new token of its text, as they come.

        Args:
            prompts: token ids of each, any number of them.
            max_new_tokens: at which a text ends, if no end of text comes before.
            do_sample: whether tokens are drawn, rather than the likeliest; then by `temperature`, among the `top_k`
                likeliest if above 0, and among the likeliest that have a probability of `top_p`.
            generator: of the draws, on the model's device.
            eos_token_id: ends of text; by default those of `model.generation_config`.

        Raises:
            ValueError: a prompt without tokens, or a text that would be longer than `max_length`.
        """
        ids = [torch.as_tensor(each, dtype=torch.long, device=self.device).flatten() for each in prompts]
        waiting, ready = deque(enumerate(ids)), deque()
        lengths = [*map(len, ids)] or [1]
        if min(*lengths, max_new_tokens) < 1 or max(lengths) + max_new_tokens > self.slots.max_length + 1:
            raise ValueError(
                f"prompts have {min(lengths)} to {max(lengths)} tokens and max_new_tokens is {max_new_tokens}: pass at "
                f"least 1 of each, and together at most one more than max_length, {self.slots.max_length}"
            )
        warpers = [TemperatureLogitsWarper(temperature)] if do_sample else []
        warpers += [TopKLogitsWarper(top_k)] if do_sample and top_k > 0 else []
        warpers += [TopPLogitsWarper(top_p)] if do_sample and top_p < 1.0 else []
        ends = self.model.generation_config.eos_token_id if eos_token_id is None else eos_token_id
        self.remaining.zero_()
        run = self.prepared((do_sample, temperature, top_k, top_p), warpers, [] if ends is None else ends)
        late, texts = LateValues(), [None] * len(self.token)
        while waiting or ready or texts.count(None) < len(texts):
            for slot, text in enumerate(texts):
                if text is None and waiting and not ready:
                    ready.extend(self.read([waiting.popleft() for _ in texts if waiting]))
                if text is None and ready:
                    texts[slot], prompt, *place = ready.popleft()
                    self.slots.read(slot, *place, len(prompt) - 1)
                    self.token[slot], self.remaining[slot] = prompt[-1], max_new_tokens
            if do_sample:
                self.noise.exponential_(generator=generator)
            run()
            self.iterations += 1
            for slot, (token, ended) in enumerate(zip(*(late.poll(self.report) or ((), ())), strict=True)):
                if token >= 0:
                    yield texts[slot], token
                    texts[slot] = None if ended else texts[slot]

    def prepared(self, options: tuple, warpers: Sequence[Any], ends: int | Sequence[int]) -> Callable[[], None]:
        """The iteration with these options, of which graphs are kept."""
        ids = torch.tensor(ends, dtype=torch.long, device=self.device).flatten()
        key = (*options, *ids.tolist())
        if key not in self.runs:
            self.runs[key] = repeated(partial(self.iterate, warpers, ids), self.device, self.graph, self.compiled)
        return self.runs[key]

    def read(self, texts: Sequence[tuple[int, torch.Tensor]]) -> list[tuple[int, torch.Tensor, Any, int]]:
        """Read numbered prompts but for their last tokens -> those, a cache of all, and the row of each."""
        cache = self.model.model.new_cache(self.options.get("max_depth"))
        # nothing precedes the token of a prompt of one: its row is padding
        begun = [(prompt[:-1], 1) if len(prompt) > 1 else (prompt, 0) for _, prompt in texts]
        mask = pad_sequence([torch.full_like(ids, is_token) for ids, is_token in begun], batch_first=True)
        ids = pad_sequence([ids for ids, _ in begun], batch_first=True)
        self.model(ids, attention_mask=mask, past_key_values=cache, logits_to_keep=1, **self.options)
        return [(*text, cache, row) for row, text in enumerate(texts)]

    def generate(self, prompts: Sequence[torch.Tensor | Sequence[int]], **options: Any) -> list[torch.Tensor]:
        """The texts (n,), each with its prompt; options are those of `stream`."""
        texts = [torch.as_tensor(each, dtype=torch.long).flatten().tolist() for each in prompts]
        for number, token in self.stream(prompts, **options):
            texts[number].append(token)
        return [torch.tensor(text, device=self.device) for text in texts]
