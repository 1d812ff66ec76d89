"""What a stack of a Sparse Universal Transformer keeps of the tokens it has read, and of the stack that it reads.

Shapes: B rows, S' tokens of the other stack, H heads, D head dim.
"""

from .attention import KeyValue
from .cache import DepthCache, DepthLayer


class MemoryLayer(DepthLayer):
    """Keys and values of another stack's states, which serve every call and every new token."""

    def kept(self) -> KeyValue | None:
        """(B, S', H, D) each, None before the first call."""
        if not self.is_initialized:
            return None
        return KeyValue(self.keys.transpose(1, 2), self.values.transpose(1, 2))

    def keep(self, key_value: KeyValue) -> None:
        self.append(key_value.key.transpose(1, 2), key_value.value.transpose(1, 2), None)

    def crop(self, tokens_to_remove: int) -> None:
        """The source stays whole when target tokens are forgotten."""


class StackCache(DepthCache):
    """A layer for each call and, of a decoder that reads an encoder, one behind them for the encoder's states."""

    def __init__(self, depth: int, made_for: str, reads_memory: bool):
        super().__init__(depth, made_for)
        self.reads_memory = reads_memory
        if reads_memory:
            self.layers.append(MemoryLayer())

    @property
    def depth(self) -> int:
        return len(self.layers) - self.reads_memory

    @property
    def memory(self) -> MemoryLayer:
        return self.layers[-1]
