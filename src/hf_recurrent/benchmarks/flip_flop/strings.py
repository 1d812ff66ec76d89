"""Flip-flop strings, what their reads must recall, and the labels that a language model is trained on.

    w 0 i 1 r 0         write 0, ignore 1, read: the last written bit is 0

Every other word is an instruction and is followed by its bit. The first instruction is `w`.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

WRITE, IGNORE, READ = INSTRUCTIONS = ("w", "i", "r")
BITS = ("0", "1")
VOCABULARY = (*INSTRUCTIONS, *BITS)
# what losses of torch leave out, and data collators pad with
NO_LABEL = -100
_LONGEST_QUOTE = 80

Ids = TypeVar("Ids", np.ndarray, "torch.Tensor")


class Read(NamedTuple):
    """A read of a string: the word index of its bit, which write it must recall (the first is 1), the word index of
    that write's bit, and the bit it has."""

    position: int
    write: int
    write_position: int
    expected: str
    found: str

    @property
    def right(self) -> bool:
        return self.found == self.expected


def check_string(text: str) -> list[Read]:
    """Every read of a string, in order, with the bit that it must recall and the bit that it has.

    >>> [read.right for read in check_string("w 0 i 1 r 0 w 1 r 0")]
    [True, False]

    Raises:
        ValueError: words are not instructions and bits in turns, or the first instruction is not `w`. A read that is
            wrong is no error.
    """
    words = text.split()
    problem = _problem(words)
    if problem is not None:
        shown = text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."
        raise ValueError(f"not a flip-flop string: {shown!r}: {problem}")
    reads: list[Read] = []
    write, write_position = 0, 0
    for position in range(1, len(words), 2):
        if words[position - 1] == WRITE:
            write, write_position = write + 1, position
        elif words[position - 1] == READ:
            reads.append(Read(position, write, write_position, words[write_position], words[position]))
    return reads


def _problem(words: Sequence[str]) -> str | None:
    for position, word in enumerate(words):
        known = BITS if position % 2 else INSTRUCTIONS if position else (WRITE,)
        if word not in known:
            return f"word {position + 1} is {word!r}; expected {' or '.join(known)}"
    if not words:
        return "it is empty"
    return f"its last instruction, {words[-1]}, has no bit" if len(words) % 2 else None


def normalize(text: str) -> str:
    """The benchmark's spelling of a string typed with loose spacing.

    >>> normalize("w0 i1 r0")
    'w 0 i 1 r 0'

    Raises ValueError as `check_string`.
    """
    spelled = " ".join("".join(text.lower().split()))
    check_string(spelled)
    return spelled


def read_labels(
    input_ids: "Ids | Sequence[Any]", tokenizer: "PreTrainedTokenizerBase | Mapping[str, int] | None" = None
) -> "Ids":
    """Labels of a language model that is trained on what reads must answer, and on nothing else.

    They are aligned with `input_ids`, as transformers' causal models take them (they shift labels themselves): the id
    of each bit after an `r`, and -100 everywhere else, padding included.

    Args:
        input_ids: token ids, `(..., S)`, as array, tensor or lists of equal lengths.
        tokenizer: what the ids are from, or its vocabulary (word -> id); None: `build_tokenizer("flip_flop")`.

    Returns:
        int64 labels of the same shape: a tensor (on the same device) for a tensor, otherwise an array.

    Raises:
        ValueError: the vocabulary lacks a word of the benchmark.
    """
    ids = _word_ids(tokenizer)
    if hasattr(input_ids, "new_full"):
        input_ids = input_ids.long()
        labels = input_ids.new_full(input_ids.shape, NO_LABEL)
    else:
        input_ids = np.asarray(input_ids, dtype=np.int64)
        labels = np.full_like(input_ids, NO_LABEL)
    words, following = input_ids[..., :-1], input_ids[..., 1:]
    answers = (words == ids[READ]) & ((following == ids["0"]) | (following == ids["1"]))
    labels[..., 1:][answers] = following[answers]
    return labels


def _word_ids(tokenizer: "PreTrainedTokenizerBase | Mapping[str, int] | None") -> Mapping[str, int]:
    if tokenizer is None:
        from ..tokenizers import token_ids

        return token_ids(VOCABULARY)
    ids = tokenizer if isinstance(tokenizer, Mapping) else tokenizer.get_vocab()
    missing = [word for word in VOCABULARY if word not in ids]
    if missing:
        raise ValueError(f"tokenizer: it has no {', '.join(missing)}; expected that of build_tokenizer('flip_flop')")
    return ids
