"""Sequences as numbers that are the same where the sequences are.

Shapes: N examples, T tokens of the longest row. Bad input raises a ValueError that names the argument.
"""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np


def cut_at_end(rows: Sequence[Sequence[int]] | np.ndarray, end_id: int) -> list[list[int]]:
    """The token ids of each row before its first `end_id`; negative ids, such as -100 of padded labels, are left out.

    Args:
        rows: `(N, T)`, or N rows of any length, without the token that a decoder starts with.
        end_id: the id of the token that ends a text. A row without it is taken whole.
    """
    cut = []
    for row in rows:
        ids = [int(token) for token in row if token >= 0]
        cut.append(ids[: ids.index(end_id)] if end_id in ids else ids)
    return cut


def sequence_codes(predictions: Sequence, references: Sequence) -> tuple[np.ndarray, np.ndarray]:
    """A number `(N,)` for each of N predictions and references, texts or rows of token ids of any length.

    It is the same for the same sequence, so that accuracy of numbers is exact match of sequences.
    """
    if len(predictions) != len(references) or not len(references):
        raise ValueError(
            "predictions and references must be equally long and not empty, got "
            f"{len(predictions)} and {len(references)} sequences"
        )
    numbers: dict[Hashable, int] = {}
    coded = []
    for name, rows in (("predictions", predictions), ("references", references)):
        keys = [row if isinstance(row, str) else _row_key(name, row) for row in rows]
        empty = next((place for place, key in enumerate(keys) if name == "references" and not key), None)
        if empty is not None:
            raise ValueError(f"references[{empty}] is empty: there is nothing to match; leave that example out")
        coded.append([numbers.setdefault(key, len(numbers)) for key in keys])
    if len({isinstance(key, str) for key in numbers}) > 1:
        raise ValueError("predictions and references must all be texts, or all be rows of token ids")
    first, second = coded
    return np.array(first), np.array(second)


def matches_of_slices(found: Mapping[Hashable, Mapping[str, float | int]]) -> dict[Hashable, dict[str, float | int]]:
    """What `accuracy_by_slice` says of numbers, in the words for sequences: `n`, `exact_match`, `majority_baseline`."""
    return {
        value: {"n": facts["n"], "exact_match": facts["accuracy"], "majority_baseline": facts["majority_baseline"]}
        for value, facts in found.items()
    }


def _row_key(name: str, row: Sequence[int]) -> tuple[float, ...]:
    values = np.asarray(row)
    if values.ndim != 1 or values.dtype.kind not in "iuf":
        raise ValueError(f"{name} must hold texts or rows of token ids, got {row!r:.80}")
    return tuple(values.tolist())
