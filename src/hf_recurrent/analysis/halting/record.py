"""What one evaluation pass says about halting, as arrays with one row per example.

Shapes: N examples, U halting units, L the most depth steps; state 0 is the input, state i the result of
i depth steps.
"""

from dataclasses import dataclass, field

import numpy as np

from .tokens import TokenRecord

# adaptive computation time, whose probabilities add up
ADDITIVE = ("act", "act_universal")


@dataclass(frozen=True)
class HaltingRecord:
    """Per-example results of `collect`. Step fields are None for a model of fixed depth.

    Fields:
        halting: the model's halting strategy; "none" for a fixed depth.
        unit: what halts: "example", "sentence" (of a pair), "chunk", "token"; None for a fixed depth.
        max_steps: L, the most depth steps the run allowed.
        threshold: the halting threshold the run used; None for a fixed depth.
        labels, predictions: `(N,)` class ids; of a language model, token ids of the row's last labelled token.
        steps: `(N,)` executed depth steps, mean over the example's units.
        deepest: `(N,)` executed depth steps of the example's deepest unit.
        ponder_cost: `(N,)` expected depth, in steps.
        forced: `(N,)` fraction of the example's units that ran all L steps without reaching the threshold.
        mass: `(N, L + 1)` halting mass of each state, mean over the example's units; rows sum to 1.
        step_counts: `(N, L + 1)` how many of the example's units stopped after 0, ..., L steps.
        slices: column name -> `(N,)` values that results are sliced by.
        tokens: results per token of a language model; None for a classifier.
    """

    halting: str
    unit: str | None
    max_steps: int
    threshold: float | None
    labels: np.ndarray
    predictions: np.ndarray
    steps: np.ndarray | None = None
    deepest: np.ndarray | None = None
    ponder_cost: np.ndarray | None = None
    forced: np.ndarray | None = None
    mass: np.ndarray | None = None
    step_counts: np.ndarray | None = None
    slices: dict[str, np.ndarray] = field(default_factory=dict)
    tokens: TokenRecord | None = None

    @property
    def correct(self) -> np.ndarray:
        """`(N,)` bool: the prediction equals the label."""
        return self.predictions == self.labels

    @property
    def fixed_depth(self) -> bool:
        """Whether the model runs the same number of steps on every input."""
        return self.steps is None


def halting_mass(probabilities: np.ndarray, steps: np.ndarray, halting: str = "global") -> np.ndarray:
    """Unconditional halting mass `(U, L + 1)` of the states 0..L.

    A unit that stopped after k steps gives state i < k the mass `p_i * prod_{j<i} (1 - p_j)` and state k,
    its last one, all that is left; the states after k get nothing. Under adaptive computation time probabilities are
    unconditional, and those of step i belong to the state after it.

    Args:
        probabilities: halting probabilities `(U, L)`, one for each step computed.
        steps: executed steps `(U,)`, in 0..L.
        halting: the model's halting strategy.
    """
    probabilities = np.asarray(probabilities, dtype=np.float64)
    units, depth = probabilities.shape
    if halting in ADDITIVE:
        mass = np.zeros((units, depth + 1))
        mass[:, 1:] = np.where(np.arange(1, depth + 1) < np.asarray(steps)[:, None], probabilities, 0.0)
        mass[np.arange(units), steps] = np.clip(1 - mass.sum(axis=1), 0.0, 1.0)
        return mass
    survived = np.cumprod(1 - probabilities, axis=1)
    before = np.concatenate([np.ones((units, 1)), survived[:, :-1]], axis=1)[:, :depth]
    executed = np.arange(depth) < np.asarray(steps)[:, None]
    mass = np.zeros((units, depth + 1))
    mass[:, :depth] = np.where(executed, probabilities * before, 0.0)
    rest = np.clip(1 - mass.sum(axis=1), 0.0, 1.0)
    mass[np.arange(units), steps] = rest
    return mass


def fit_depth(probabilities: np.ndarray, max_steps: int) -> np.ndarray:
    """Probabilities `(U, any)` cut or zero-padded to `(U, L)`: a call may limit or extend the depth."""
    kept = probabilities[:, :max_steps]
    return np.pad(kept, ((0, 0), (0, max_steps - kept.shape[1])))
