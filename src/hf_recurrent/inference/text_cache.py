"""Keys, values and running sums of texts of different lengths, whose tokens are at depth steps of their own.

Shapes: B places for texts, L depth steps, P columns, N tokens, H heads, D head dim, F features of the halting head.
"""

from typing import Any, NamedTuple

import numpy as np
import torch

from ..models.ops.attention import KeyValue
from .examples import sent

# columns are added by this share of them at least, so that copies become rare
MIN_GROWTH = 1.0


def on_device(device: torch.device, *arrays: np.ndarray) -> tuple[torch.Tensor, ...]:
    """Arrays (n,) of integers as tensors, by one copy for which neither side waits: a step needs many short ones."""
    values = torch.from_numpy(arrays[0] if len(arrays) == 1 else np.concatenate(arrays))
    return sent(values, device).split([len(each) for each in arrays])


class TextTokens(NamedTuple):
    """Tokens under way, those of a text next to each other: (N,) each.

    Attributes:
        places: of their texts.
        columns: numbers of tokens before each in its text.
        steps: depth steps that were taken.
        decisions: on halting that were taken, and whose features are in the running sums.
    """

    places: np.ndarray
    columns: np.ndarray
    steps: np.ndarray
    decisions: np.ndarray

    @classmethod
    def entering(cls, places: np.ndarray, columns: np.ndarray) -> "TextTokens":
        return cls(places, columns, np.zeros_like(places), np.zeros_like(places))

    def take(self, index: np.ndarray) -> "TextTokens":
        return TextTokens(*(values[index] for values in self))

    def followed_by(self, *others: "TextTokens") -> "TextTokens":
        return TextTokens(*map(np.concatenate, zip(self, *others, strict=True)))


class TextMemory:
    """Memory (B, M, E) of texts that are read chunk by chunk, and the final states (B, C, E) of their present chunks.

    Args:
        model: a `ChunkRecurrentModel` with one shared block.
    """

    def __init__(self, model: Any):
        self.model = model
        self.slots: torch.Tensor | None = None
        self.outputs: torch.Tensor | None = None
        self.key_value: KeyValue | None = None  # (B, M, H, D) each, of the memory

    def reserve(self, num_texts: int, like: torch.Tensor) -> None:
        """Make room for so many texts with states as these (1, E)."""
        present = 0 if self.slots is None else len(self.slots)
        if num_texts <= present:
            return
        slots = self.model.memory(num_texts - present).to(like.dtype)
        outputs = like.new_zeros(len(slots), self.model.text_span, like.shape[-1])
        new = slots, outputs, *self.model.block.memory_read.project(slots)
        if present:
            old = self.slots, self.outputs, *self.key_value
            new = tuple(map(torch.cat, zip(old, new, strict=True)))
        self.slots, self.outputs, self.key_value = new[0].contiguous(), new[1], KeyValue(*new[2:])

    def begin_chunk(self, places: np.ndarray, first: bool) -> None:
        """Write the chunks of texts at these places (n,) into their memory; that before the `first` one is learned."""
        (index,) = on_device(self.slots.device, places)
        if first:
            slots = self.model.memory(len(index))
        else:
            slots = self.model.updated_memory(
                *(each.index_select(0, index) for each in (self.slots, self.outputs)), None
            )
        slots = slots.to(self.slots.dtype)
        new = slots, *self.model.block.memory_read.project(slots)
        for states, own in zip((self.slots, *self.key_value), new, strict=True):
            states.index_copy_(0, index, own)

    def write(self, tokens: TextTokens, states: torch.Tensor) -> None:
        """Final states (N, E) of tokens."""
        (index,) = on_device(states.device, tokens.places * self.outputs.shape[1] + tokens.columns)
        self.outputs.flatten(0, 1).index_copy_(0, index, states.to(self.outputs.dtype))


class TextCache:
    """Keys and values (B * L, P, H, D) of each text at each depth step, its first token in the first column.

    Args:
        depth: L.
        like: keys and values (1, H, D) of the shape and dtype of those to come.
        memory: of a model that reads chunk by chunk; columns are then those of the present chunk.
        finite: whether columns without tokens must be finite numbers, as masked keys and values are.

    Attributes:
        sums: (B * L, F) of the features of each text's tokens, None of a model without running means.
    """

    def __init__(self, depth: int, like: KeyValue, finite: bool, memory: "TextMemory | None" = None):
        self.depth, self.finite, self.num_columns, self.memory = depth, finite, 0, memory
        self.key, self.value = (states.new_empty(0, 0, *states.shape[1:]) for states in like)
        self.sums: torch.Tensor | None = None

    def reserve(self, num_texts: int, num_columns: int) -> None:
        """Make room for so many texts of so many tokens."""
        present = self.key.shape[0]
        rows = max(present, num_texts * self.depth)
        if rows == present and num_columns <= self.num_columns:
            return
        columns = self.num_columns
        if num_columns > columns:
            columns = max(num_columns, int((1 + MIN_GROWTH) * columns))

        def grown(old: torch.Tensor) -> torch.Tensor:
            # memory that is never written takes no time where it need not be zero
            create = old.new_zeros if self.finite else old.new_empty
            states = create(rows, columns, *old.shape[2:])
            states[:present, : self.num_columns] = old
            return states

        self.key, self.value = grown(self.key), grown(self.value)
        self.num_columns = columns
        if self.sums is not None and rows > present:
            self.sums = torch.cat((self.sums, self.sums.new_zeros(rows - present, self.sums.shape[1])))

    def rows(self, places: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Rows (N,) of the cache."""
        return places * self.depth + steps

    def flat_places(self, tokens: TextTokens, rows: np.ndarray) -> np.ndarray:
        """Places (N,) in (B * L * P,) of tokens in rows (N,) of the cache."""
        return rows * self.num_columns + tokens.columns

    def later_rows(self, tokens: TextTokens, first: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Each token with each step from `first` (N,) on: indices of tokens and rows of the cache."""
        counts = (self.depth - first).clip(0)
        index = np.repeat(np.arange(len(counts)), counts)
        steps = np.arange(len(index)) - np.repeat(counts.cumsum() - counts - first, counts)
        return index, self.rows(tokens.places[index], steps)

    def fill(self, tokens: TextTokens, first: np.ndarray, states: KeyValue) -> None:
        """Write keys and values (N, H, D) of tokens for all steps from `first` (N,) on."""
        later, rows = self.later_rows(tokens, first)
        index, places = on_device(self.key.device, later, self.flat_places(tokens.take(later), rows))
        for cached, new in zip((self.key, self.value), states, strict=True):
            cached.flatten(0, 1).index_copy_(0, places, new.index_select(0, index).to(cached.dtype))

    def repeat(self, tokens: TextTokens, taken: np.ndarray) -> None:
        """Write the keys and values of tokens at the last step that they have `taken` (N,), for all later ones."""
        later, rows = self.later_rows(tokens, taken)
        last = self.flat_places(tokens, self.rows(tokens.places, taken - 1))
        source, places = on_device(self.key.device, last[later], self.flat_places(tokens.take(later), rows))
        for cached in (self.key, self.value):
            flat = cached.flatten(0, 1)
            flat.index_copy_(0, places, flat.index_select(0, source))

    def add_later_sums(self, tokens: TextTokens, features: torch.Tensor) -> None:
        """Add features (N, F) of tokens to the sums of all steps on which they take no decision."""
        index, rows = on_device(self.key.device, *self.later_rows(tokens, tokens.decisions))
        self.sums.index_add_(0, rows, features.float().index_select(0, index))

    def added_sums(self, tokens: TextTokens, features: torch.Tensor) -> torch.Tensor:
        """Add features (N, F) of tokens to the sums of their present decisions -> those sums (N, F)."""
        if self.sums is None:
            self.sums = features.new_zeros(self.key.shape[0], features.shape[-1], dtype=torch.float32)
        # all steps taken, nothing is left to decide
        deciding = np.flatnonzero(tokens.decisions < self.depth)
        rows = self.rows(tokens.places, tokens.decisions.clip(max=self.depth - 1))
        index, own, added = on_device(features.device, rows, rows[deciding], deciding)
        self.sums.index_add_(0, own, features.float().index_select(0, added))
        return self.sums.index_select(0, index)

    def clear(self, places: np.ndarray) -> None:
        """Let other texts enter at these places (n,)."""
        if self.sums is not None:
            (index,) = on_device(self.sums.device, places)
            self.sums.unflatten(0, (-1, self.depth))[index] = 0

    def decay(self, place: int, length: int, factors: torch.Tensor) -> None:
        """Multiply the keys of a text's first tokens by factors (D,)."""
        start = place * self.depth
        self.key[start : start + self.depth, :length] *= factors.to(self.key.dtype)
