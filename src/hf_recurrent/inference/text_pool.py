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
from ..models.engine.depth_loop import HaltingState, check_halting_probabilities
from ..models.engine.layouts import joined_states
from ..models.engine.shared_block import COLUMNS_BETWEEN_CENTERS
from .decoding_pool import Text
from .depth_pool import DepthSteps
from .text_cache import TextCache, TextTokens
from .text_layout import Prompts, TextLayout


class TextPool(DepthSteps):
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
        self.cache = TextCache(self.max_steps, finite=self.model.gathers_texts)
        self.by_place: list[Text | None] = []
        self.waiting: list[int] = []  # places of texts whose latest token has not been read
        self.tables: Any = None
        self.layout: TextLayout | None = None
        self.state: HaltingState | None = None

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
        ids = np.concatenate([text.prompt.input_ids for text in texts])
        none = (np.zeros_like(text.prompt.input_ids) for text in texts)
        pairs = zip((text.prompt.token_type_ids for text in texts), none, strict=True)
        types = np.concatenate([zeros if own is None else own for own, zeros in pairs])
        columns = np.concatenate([np.arange(length) for length in lengths])
        self.check(ids, types, longest)
        center = 0 if longest <= COLUMNS_BETWEEN_CENTERS else longest // 2
        tables = self.model.text_tables(longest, center)
        hidden = self.states(ids, types, columns)
        self.reserve(texts, hidden[:1], tables)
        self.cache.clear(places)
        prompts = None
        if self.strategy.running_mean:
            rows = {place: row for row, place in enumerate(free)}
            prompts = Prompts(rows, longest, hidden.new_zeros(len(texts) * longest, hidden.shape[-1]))
        tokens = TextTokens.entering(np.repeat(places, lengths), columns)
        layout = TextLayout(self.model, self.strategy, self.cache, tokens, tables, prompts)
        state = self.entered(layout, hidden)
        last = dict(zip(free, (lengths - 1).tolist(), strict=True))
        while len(layout.tokens.places):
            layout, state = self.stepped(layout, state, last)
        for place, length in zip(free, lengths.tolist(), strict=True):
            self.move_center(place, length, (length - 1) // COLUMNS_BETWEEN_CENTERS * COLUMNS_BETWEEN_CENTERS - center)

    def step(self) -> None:
        """Take one depth step of the latest token of each text, and generate the next tokens after those that halt."""
        if self.waiting:
            self.read()
        self.layout, self.state = self.stepped(self.layout, self.state)

    def check(self, ids: np.ndarray, types: np.ndarray, length: int) -> None:
        """Raise a ValueError for ids that the model does not take, as its forward pass does."""
        tensors = (torch.from_numpy(values)[None].to(self.model.device) for values in (ids, types))
        input_ids, token_type_ids = tensors
        self.model.check_call(input_ids, None, None, None, None, token_type_ids=token_type_ids)

    def states(self, ids: np.ndarray, types: np.ndarray, columns: np.ndarray) -> torch.Tensor:
        """Input states (n, E) of tokens."""
        return self.model.text_states(*(torch.from_numpy(each).to(self.model.device) for each in (ids, types, columns)))

    def reserve(self, texts: list[Text], hidden: torch.Tensor, tables: Any) -> None:
        """Make room for texts that enter, whose states are as these (1, E)."""
        most = max(len(text.prompt.input_ids) + text.max_new_tokens - 1 for text in texts)
        column = torch.zeros(1, dtype=torch.long, device=hidden.device)
        self.cache.reserve(len(self.by_place), most, self.model.text_keys_values(hidden, tables, column))
        self.tables = self.model.text_tables(self.cache.num_columns)
        if self.layout is not None:
            self.layout.tables = self.tables

    def move_center(self, place: int, length: int, distance: int) -> None:
        """Scale the cached keys of a text, so many, from a column so much later."""
        factors = self.model.text_decay(distance) if distance else None
        if factors is not None:
            self.cache.decay(place, length, factors)

    def read(self) -> None:
        """Let the latest tokens of texts take part in the next depth step."""
        texts = [self.by_place[place] for place in self.waiting]
        columns = np.array([text.num_read for text in texts])
        ids = np.array([text.token_ids[-1] for text in texts])
        hidden = self.states(ids, np.array([text.last_type for text in texts]), columns)
        for place, column in zip(self.waiting, columns.tolist(), strict=True):
            if column % COLUMNS_BETWEEN_CENTERS == 0:
                self.move_center(place, column, COLUMNS_BETWEEN_CENTERS)
        tokens = TextTokens.entering(np.array(self.waiting), columns)
        layout = TextLayout(self.model, self.strategy, self.cache, tokens, self.tables)
        state = self.entered(layout, hidden)
        if self.layout is not None:
            layout, state = self.layout.joined(layout), joined_states(self.state, state)
        self.layout, self.state, self.waiting = layout, state, []

    def stepped(
        self, layout: TextLayout, state: HaltingState, last: dict[int, int] | None = None
    ) -> tuple[TextLayout, HaltingState]:
        """Take a depth step, and generate a token after each that halted -> layout and state of those that go on.

        Args:
            last: the column of the last token of each text that is read, by its place; others generate nothing.
        """
        layout, state = self.advanced(layout, state)
        live = state.live.cpu().numpy()
        if live.all():
            return layout, state
        layout, state, tokens, finished = layout.leave(self.model.block, state, live)
        places, hidden, steps = tokens.places, finished.hidden_states, finished.steps
        if last is not None:
            ends = np.array([last[place] for place in places.tolist()]) == tokens.columns
            places, index = places[ends], layout.on_device(np.flatnonzero(ends))
            hidden, steps = hidden.index_select(0, index), steps.index_select(0, index)
        if len(places):
            self.generate(places.tolist(), hidden, steps)
        return layout, state

    def generate(self, places: list[int], hidden: torch.Tensor, steps: torch.Tensor) -> None:
        """Add a token to each of the texts at these places, after final states (n, E)."""
        check_halting_probabilities(self.nan_step)
        logits = self.language_model.predict(self.model.readout(hidden))
        refuse(is_nan("the logits are", logits))
        for place, token, number in zip(places, self.choose(logits).tolist(), steps.tolist(), strict=True):
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
