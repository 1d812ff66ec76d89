"""What one example's pass through depth looked like.

Shapes: T steps, H heads, S tokens. Step t of a model stands at index t - 1.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Explanation:
    """One example, step by step.

    Attributes:
        tokens: S strings, special tokens by their names.
        prediction: the label's name; of a language model the token that would come next; of a regression the value.
        probability: of the prediction; None for a regression.
        attention: (T, H, S, S) weights with which each token (row) reads from each (column). Rows of geometric
            attention may sum to less than 1, see `unread`; those of different chunks and sentences do not meet.
        gates: (T, S) mean over units of how far a token's state is overwritten; None where there is no gate.
        steps: (S,) how many steps each token took and kept; None for a fixed depth.
        halting: (T, S) conditional probabilities of halting; None for a fixed depth.
        freezes: whether the state of a token that stopped stays as it is. Otherwise (adaptive computation time) it goes
            on changing for others to read, and only its share in the output is settled.
        readout: the token whose final state is classified or continued; None where it is no single one.
        continues: whether the prediction is the next token, rather than a label.
    """

    tokens: list[str]
    prediction: str
    probability: float | None
    attention: np.ndarray
    gates: np.ndarray | None = None
    steps: np.ndarray | None = None
    halting: np.ndarray | None = None
    freezes: bool = True
    readout: int | None = None
    continues: bool = False

    @property
    def num_steps(self) -> int:
        """Steps until the last token stopped, at least 1: inference takes none after that."""
        return len(self.attention) if self.steps is None else max(1, int(self.steps.max()))

    @property
    def unread(self) -> np.ndarray:
        """(T, H, S) the weight that a token leaves unread because nothing matched."""
        return np.clip(1.0 - self.attention.sum(-1), 0.0, 1.0)

    def view(self, head: int | None = None) -> np.ndarray:
        """(T, S, S) attention of one head, or the greatest over heads.

        Raises:
            ValueError: there is no such head.
        """
        if head is None:
            return self.attention.max(1)
        num_heads = self.attention.shape[1]
        if not 0 <= head < num_heads:
            raise ValueError(f"head is {head}: this model has heads 0 to {num_heads - 1}")
        return self.attention[:, head]

    def reads(self, head: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(T, S) which token each one reads most, the first of equals, and with what weight."""
        view = self.view(head)
        return view.argmax(-1), view.max(-1)

    def idle(self) -> np.ndarray:
        """(T, S) where a token takes no step any more, and so reads nothing."""
        if self.steps is None or not self.freezes:
            return np.zeros((len(self.attention), len(self.tokens)), dtype=bool)
        return np.arange(len(self.attention))[:, None] >= self.steps
