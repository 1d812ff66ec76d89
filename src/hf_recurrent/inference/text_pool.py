"""Texts under way whose tokens do not wait for each other: each takes its next depth step with every call of the block.

Shapes: n tokens, E width, V token ids.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..models.common.causal_lm import ForCausalLM
from ..models.common.validation import is_nan, refuse
from ..models.engine.base_model import ForwardCall
from ..models.engine.depth_loop import HaltingState, nan_probability
from ..models.engine.shared_block import COLUMNS_BETWEEN_CENTERS
from ..models.engine.unit_states import joined_states
from ..models.ops.attention import TextContext
from .decoding_pool import Text
from .depth_pool import PoolSteps
from .examples import Example
from .text_cache import TextCache, TextMemory, TextTokens, on_device
from .text_layout import Halted, Prompts, TextLayout, context_in

# room is made for so many new tokens of a text at first
COLUMNS_AHEAD = 256


def types_of(prompt: Example) -> np.ndarray:
    """Types (S,) of a prompt's tokens, 0 by default."""
    return np.zeros_like(prompt.input_ids) if prompt.token_type_ids is None else prompt.token_type_ids


class TextPool(PoolSteps):
    """Texts under way, with an interface as `DecodingPool`.

    A text whose latest token has halted generates the next one at once, while those of others take further steps.

    Args:
        model: a causal language model whose base model `can_decode` in the call.
        call: the choices of a forward pass.
        choose: function from logits (n, V) to the next token ids (n,).
        ends: ids that end a text.
    """

    def __init__(
        self,
        model: ForCausalLM,
        call: ForwardCall,
        choose: Callable[[torch.Tensor], torch.Tensor],
        ends: frozenset[int],
    ):
        super().__init__(model.model, call)
        self.language_model, self.choose, self.ends = model, choose, ends
        memory = None if self.model.text_span is None else TextMemory(self.model)
        zero = np.zeros(1, np.int64)
        # a state (1, E) before the first step, of the shape and dtype of others
        self.like = self.states(zero, zero, zero)
        finite, outer = self.model.gathers_texts, self.model.outer_keys_values_like(self.like)
        self.cache = TextCache(self.max_steps, self.model.keys_values_like(self.like), finite, memory)
        # of the layers around the steps, each of which every token goes through once
        self.outer = None if outer is None else TextCache(1, outer, finite)
        self.by_place: list[Text | None] = []
        self.waiting: list[int] = []  # places of texts whose latest token has not been read
        self.tables: Any = None
        self.layout: TextLayout | None = None
        self.state: HaltingState | None = None

    @property
    def caches(self) -> list[TextCache]:
        return [self.cache] if self.outer is None else [self.cache, self.outer]

    @property
    def texts(self) -> list[Text]:
        """The texts under way."""
        return [text for text in self.by_place if text is not None]

    def admit(self, texts: list[Text]) -> None:
        """Read prompts, and generate a token after each."""
        self.by_place += [None] * (len(texts) - self.by_place.count(None))
        free = [place for place, text in enumerate(self.by_place) if text is None][: len(texts)]
        for place, text in zip(free, texts, strict=True):
            self.by_place[place] = text
        places, lengths = np.array(free), np.array([len(text.prompt.input_ids) for text in texts])
        longest = int(lengths.max())
        self.check(texts)
        self.reserve(texts, places)
        span = self.model.text_span or longest
        for start in range(0, longest, span):
            index = np.flatnonzero(lengths > start)
            if self.cache.memory is not None:
                self.begin_chunk(places[index], first=start == 0)
            self.read_prompts(places[index], lengths[index] - start, start, min(span, longest - start))

    def read_prompts(self, places: np.ndarray, lengths: np.ndarray, start: int, width: int) -> None:
        """Read the tokens from `start` on, at most so many, of the prompts at these places, with `lengths` left."""
        ends = lengths.clip(max=width)
        columns = np.concatenate([np.arange(end) for end in ends])
        prompts = [self.by_place[place].prompt for place in places.tolist()]
        pieces = [slice(start, start + end) for end in ends.tolist()]
        ids = np.concatenate([each.input_ids[piece] for each, piece in zip(prompts, pieces, strict=True)])
        types = np.concatenate([types_of(each)[piece] for each, piece in zip(prompts, pieces, strict=True)])
        center = 0 if width <= COLUMNS_BETWEEN_CENTERS else width // 2
        tokens, tables = TextTokens.entering(np.repeat(places, ends), columns), self.model.text_tables(width, center)
        outer = self.outer_context(tokens, tables)
        hidden = self.model.text_begun(self.states(ids, types, columns), outer)
        group = None
        if self.strategy.running_mean:
            rows = {place: row for row, place in enumerate(places.tolist())}
            group = Prompts(rows, width, hidden.new_zeros(len(places) * width, hidden.shape[-1]))
        layout = TextLayout(self.model, self.strategy, self.cache, tokens, tables, group)
        state, groups = self.entered(layout, hidden), []
        while len(layout.tokens.places):
            layout, state, halted = self.stepped(layout, state)
            groups += [] if halted is None else [halted]
        # a token's answer may depend on what became of all those before it
        halted = Halted.in_order(groups)
        final = self.model.text_ended(halted.states, outer)
        last = (ends.cumsum() - 1)[lengths == ends]
        if len(last):
            self.generate(halted.take(last), final.index_select(0, *layout.on_device(last)))
        for place, length in zip(places.tolist(), ends.tolist(), strict=True):
            self.move_center(place, length, (length - 1) // COLUMNS_BETWEEN_CENTERS * COLUMNS_BETWEEN_CENTERS - center)

    def begin_chunk(self, places: np.ndarray, first: bool) -> None:
        """Let a new chunk begin in the texts at these places."""
        self.cache.memory.begin_chunk(places, first)
        self.cache.clear(places)

    def step(self) -> None:
        """Take one depth step of the latest token of each text, and generate the next tokens after those that halt."""
        if self.waiting:
            self.read()
        self.layout, self.state, halted = self.stepped(self.layout, self.state)
        if halted is not None:
            outer = self.outer_context(halted.tokens, self.tables)
            self.generate(halted, self.model.text_ended(halted.states, outer))

    def check(self, texts: list[Text]) -> None:
        """Raise a ValueError for prompts that the model does not take, as its forward pass does."""
        prompts = [text.prompt for text in texts]
        arrays = [each.input_ids for each in prompts], [types_of(each) for each in prompts]
        ids, types = on_device(self.model.device, *map(np.concatenate, arrays))
        self.model.check_call(ids[None], None, None, None, None, token_type_ids=types[None])

    def states(self, ids: np.ndarray, types: np.ndarray, columns: np.ndarray) -> torch.Tensor:
        """Input states (n, E) of tokens."""
        return self.model.text_states(*on_device(self.model.device, ids, types, columns))

    def reserve(self, texts: list[Text], places: np.ndarray) -> None:
        """Make room for texts that enter at these places."""
        lengths = [len(text.prompt.input_ids) + min(text.max_new_tokens, COLUMNS_AHEAD) for text in texts]
        self.make_columns(self.model.text_span or max(lengths))
        self.cache.clear(places)
        if self.cache.memory is not None:
            self.cache.memory.reserve(len(self.by_place), self.like)

    def make_columns(self, number: int) -> None:
        """Make room for so many columns of all texts."""
        for cache in self.caches:
            cache.reserve(len(self.by_place), number)
        self.tables = self.model.text_tables(self.cache.num_columns)
        if self.layout is not None:
            self.layout.tables = self.tables

    def move_center(self, place: int, length: int, distance: int) -> None:
        """Scale the cached keys of a text, so many, from a column so much later."""
        factors = self.model.text_decay(distance) if distance else None
        if factors is not None:
            for cache in self.caches:
                cache.decay(place, length, factors)

    def outer_context(self, tokens: TextTokens, tables: Any) -> TextContext | None:
        """The context of the layers around the steps, None of a model without."""
        if self.outer is None:
            return None
        return context_in(self.outer, self.model, TextTokens.entering(tokens.places, tokens.columns), tables)

    def read(self) -> None:
        """Let the latest tokens of texts take part in the next depth step."""
        texts = [self.by_place[place] for place in self.waiting]
        columns = np.array([text.num_read for text in texts])
        if self.cache.memory is not None:
            columns %= self.model.text_span
            places = np.array(self.waiting)[columns == 0]
            if len(places):
                self.begin_chunk(places, first=False)
        if columns.max() >= self.cache.num_columns:
            self.make_columns(int(columns.max()) + 1)
        ids = np.array([text.token_ids[-1] for text in texts])
        hidden = self.states(ids, np.array([text.last_type for text in texts]), columns)
        for place, column in zip(self.waiting, columns.tolist(), strict=True):
            if column % COLUMNS_BETWEEN_CENTERS == 0:
                self.move_center(place, column, COLUMNS_BETWEEN_CENTERS)
        tokens = TextTokens.entering(np.array(self.waiting), columns)
        hidden = self.model.text_begun(hidden, self.outer_context(tokens, self.tables))
        layout = TextLayout(self.model, self.strategy, self.cache, tokens, self.tables)
        state = self.entered(layout, hidden)
        if self.layout is not None:
            layout, state = self.layout.joined(layout), joined_states(self.state, state)
        self.layout, self.state, self.waiting = layout, state, []

    def stepped(self, layout: TextLayout, state: HaltingState) -> tuple[TextLayout, HaltingState, Halted | None]:
        """Take a depth step -> layout and state of the tokens that go on, and those that halted, None if none did."""
        layout, state = self.advanced(layout, state)
        # one transfer for both
        live, steps = torch.stack((state.live.to(state.steps.dtype), state.steps)).cpu().numpy()
        if live.all():
            return layout, state, None
        layout, state, halted = layout.leave(state, live > 0, steps)
        if self.cache.memory is not None:
            self.cache.memory.write(halted.tokens, halted.states)
        return layout, state, halted

    def generate(self, halted: Halted, final: torch.Tensor) -> None:
        """Add a token to each text after one of these tokens, with final states (n, E) as heads read them."""
        logits = self.language_model.predict(final)
        refuse(nan_probability(self.nan_step), is_nan("the logits are", logits))
        places = halted.tokens.places.tolist()
        # one transfer for both
        chosen = torch.stack((self.choose(logits), halted.steps)).tolist()
        for place, token, number in zip(places, *chosen, strict=True):
            self.by_place[place].token_ids.append(token)
            self.by_place[place].ponder_steps.append(number)
        self.waiting += places

    def leave(self) -> list[Text]:
        """The texts that have ended, which are then no longer under way."""
        places = [place for place in self.waiting if self.by_place[place].has_ended(self.ends)]
        ended = [self.by_place[place] for place in places]
        for place in places:
            self.by_place[place] = None
        self.waiting = [place for place in self.waiting if self.by_place[place] is not None]
        return ended
