"""Texts under way, each at a length of its own: all take each decoding step together, and waiting ones take places.

Shapes: B texts under way, P columns of the cache, n prompts that are read together, W tokens of the longest, V token
ids.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ..models.common.cache import RecurrentCache
from .examples import Example, sent

# places of texts that have ended and are not refilled, until the others are gathered, which copies the cache
MAX_EMPTY_SHARE = 1 / 4


@dataclass
class Text:
    """A prompt and the tokens generated after it."""

    number: int
    prompt: Example
    max_new_tokens: int
    token_ids: list[int] = field(default_factory=list)
    ponder_steps: list[int] = field(default_factory=list)

    @property
    def num_read(self) -> int:
        """Tokens in the cache: the latest has been generated, but not read."""
        return len(self.prompt.input_ids) + len(self.token_ids) - 1

    @property
    def last_type(self) -> int:
        """Type of the prompt's last token, and of those after it."""
        return 0 if self.prompt.token_type_ids is None else int(self.prompt.token_type_ids[-1])

    def has_ended(self, ends: frozenset[int]) -> bool:
        """Whether nothing follows the latest token; `ends` are the ids that end a text."""
        return len(self.token_ids) >= self.max_new_tokens or self.token_ids[-1] in ends


def padded_left(rows: Sequence[np.ndarray], width: int, device: torch.device) -> torch.Tensor:
    """Rows of at most W numbers -> (n, W), zeros before them."""
    padded = np.zeros((len(rows), width), np.int64)
    for target, row in zip(padded, rows, strict=True):
        target[width - len(row) :] = row
    return sent(torch.from_numpy(padded), device)


class DecodingPool:
    """Texts under way, and their cache. Tokens of all are aligned on the right.

    Args:
        model: a causal language model of this package.
        new_cache: function to an empty cache of it.
        choose: function from logits (B, V) to the next token ids (B,).
        ends: ids that end a text.
        options: of the model's forward pass.
    """

    def __init__(
        self,
        model: Any,
        new_cache: Callable[[], RecurrentCache],
        choose: Callable[[torch.Tensor], torch.Tensor],
        ends: frozenset[int],
        options: Mapping[str, Any],
    ):
        self.model, self.new_cache, self.choose, self.ends, self.options = model, new_cache, choose, ends, options
        self.typed = model.config.type_vocab_size > 0
        self.rows: list[Text | None] = []  # of the cache, None where a text has ended
        self.cache: RecurrentCache | None = None

    @property
    def texts(self) -> list[Text]:
        """The texts under way."""
        return [text for text in self.rows if text is not None]

    def admit(self, texts: list[Text]) -> None:
        """Read prompts, generate a token after each, and put them beside the texts under way."""
        device, width = self.model.device, max(len(text.prompt.input_ids) for text in texts)
        cache = self.new_cache()
        if self.cache is not None:
            cache.end_with(self.cache, width)
        types = None
        if self.typed:
            none = np.zeros(0, np.int64)
            rows = (text.prompt.token_type_ids for text in texts)
            types = padded_left([none if row is None else row for row in rows], width, device)
        ids = padded_left([text.prompt.input_ids for text in texts], width, device)
        mask = padded_left([np.ones_like(text.prompt.input_ids) for text in texts], width, device)
        self.extend(texts, ids, mask, types, cache)
        if self.cache is None:
            self.cache, self.rows = cache, list(texts)
            return
        free = [row for row, text in enumerate(self.rows) if text is None][: len(texts)]
        self.drop_columns()
        self.cache.refill(torch.tensor(free, device=device), cache)
        for row, text in zip(free, texts, strict=True):
            self.rows[row] = text

    def step(self) -> None:
        """Read the latest token of each text, and generate the next."""
        device = self.model.device
        if self.rows.count(None) > MAX_EMPTY_SHARE * len(self.rows):
            present = [row for row, text in enumerate(self.rows) if text is not None]
            self.drop_columns()
            self.cache.batch_select_indices(torch.tensor(present, device=device))
            self.rows = self.texts
        mask = types = None
        # the places of texts that have ended read any token
        ids = self.column(text.token_ids[-1] if text else 0 for text in self.rows)
        if self.typed:
            types = self.column(text.last_type if text else 0 for text in self.rows)
        if self.model.model.cache_remembers_padding:
            lengths = self.column(text.num_read if text else 0 for text in self.rows)
            width = self.cache.get_seq_length() + 1
            mask = (torch.arange(width - 1, -1, -1, device=device) <= lengths).long()
        self.extend(self.rows, ids, mask, types, self.cache)

    def column(self, numbers: Iterable[int]) -> torch.Tensor:
        """Numbers as (B, 1), by a copy that is not waited for."""
        return sent(torch.tensor([[number] for number in numbers]), self.model.device)

    def extend(
        self,
        texts: Sequence[Text | None],
        input_ids: torch.Tensor,
        mask: torch.Tensor | None,
        token_type_ids: torch.Tensor | None,
        cache: RecurrentCache,
    ) -> None:
        """Read tokens (B, W) of the texts into a cache, and add the token that follows to each."""
        output = self.model(
            input_ids,
            attention_mask=mask,
            token_type_ids=token_type_ids,
            past_key_values=cache,
            logits_to_keep=1,
            **self.options,
        )
        ids, steps = self.choose(output.logits[:, -1]), output.get("ponder_steps")
        chosen = (ids,) if steps is None or steps.dim() < 2 else (ids, steps[:, -1])
        # one transfer for both
        for text, token, *taken in zip(texts, *torch.stack(chosen).tolist(), strict=True):
            if text is not None:
                text.token_ids.append(token)
                text.ponder_steps += taken

    def drop_columns(self) -> None:
        """Forget the cache's columns that only texts had that have left."""
        lengths = [text.num_read for text in self.texts]
        if self.model.model.cache_remembers_padding and lengths:
            self.cache.drop_columns(self.cache.get_seq_length() - max(lengths))

    def leave(self) -> list[Text]:
        """The texts that have ended, which are then no longer under way."""
        ended = [text for text in self.texts if text.has_ended(self.ends)]
        self.rows = [None if text is None or text.has_ended(self.ends) else text for text in self.rows]
        self.cache = self.cache if self.texts else None
        return ended
