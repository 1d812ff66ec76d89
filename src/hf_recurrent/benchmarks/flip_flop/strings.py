"""Flip-flop strings, what their reads must recall, their rendering, and the labels that a language model is trained on.

    w 0 i 1 r 0         write 0, ignore 1, read: the last written bit is 0

Every other token is an instruction and is followed by its bit. The first instruction is `w`.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from ..tokenizers import token_ids

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase


WRITE, IGNORE, READ = INSTRUCTIONS = ("w", "i", "r")
BITS = ("0", "1")
VOCABULARY = (*INSTRUCTIONS, *BITS)
# the label that losses of torch leave out, and data collators pad with
NO_LABEL = -100

Ids = TypeVar("Ids", np.ndarray, "torch.Tensor")


class Read(NamedTuple):
    """A read of a string: the token index of its bit, which write it must recall (the first is 1), the token index of
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
        ValueError: tokens are not instructions and bits in turns, or the first instruction is not `w`. A read that is
            wrong is no error.
    """
    tokens = text.split()
    problem = None if tokens else "it is empty"
    if len(tokens) % 2:
        problem = f"its last instruction, {tokens[-1]}, has no bit"
    for position, token in enumerate(tokens):
        known = BITS if position % 2 else INSTRUCTIONS if position else (WRITE,)
        if token not in known:
            problem = f"token {position + 1} is {token!r}; expected {' or '.join(known)}"
            break
    if problem is not None:
        raise ValueError(f"not a flip-flop string: {text!r:.80}: {problem}")
    reads: list[Read] = []
    write, write_position = 0, 0
    for position in range(1, len(tokens), 2):
        if tokens[position - 1] == WRITE:
            write, write_position = write + 1, position
        elif tokens[position - 1] == READ:
            reads.append(Read(position, write, write_position, tokens[write_position], tokens[position]))
    return reads


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
    """Labels of a language model that is trained on the answers of reads alone.

    They are aligned with `input_ids`, as transformers' causal models take them (they shift labels themselves): the id
    of each bit after an `r`, and -100 everywhere else, padding included.

    Args:
        input_ids: token ids, `(..., S)`, as array, tensor or lists of equal lengths.
        tokenizer: the tokenizer of the ids, or its vocabulary (token -> id); None: `build_tokenizer("flip_flop")`.

    Returns:
        int64 labels of the same shape: a tensor (on the same device) for a tensor, otherwise an array.

    Raises:
        ValueError: the vocabulary lacks a token of the benchmark.
    """
    ids = _token_ids(tokenizer)
    if hasattr(input_ids, "new_full"):
        input_ids = input_ids.long()
        labels = input_ids.new_full(input_ids.shape, NO_LABEL)
    else:
        input_ids = np.asarray(input_ids, dtype=np.int64)
        labels = np.full_like(input_ids, NO_LABEL)
    tokens, following = input_ids[..., :-1], input_ids[..., 1:]
    answers = (tokens == ids[READ]) & ((following == ids["0"]) | (following == ids["1"]))
    labels[..., 1:][answers] = following[answers]
    return labels


def _token_ids(tokenizer: "PreTrainedTokenizerBase | Mapping[str, int] | None") -> Mapping[str, int]:
    if tokenizer is None:
        return token_ids(VOCABULARY)
    ids = tokenizer if isinstance(tokenizer, Mapping) else tokenizer.get_vocab()
    missing = [token for token in VOCABULARY if token not in ids]
    if missing:
        raise ValueError(f"tokenizer: it has no {', '.join(missing)}; expected that of build_tokenizer('flip_flop')")
    return ids


PAIRS_PER_LINE = 16


def render(text: str, max_lines: int) -> str:
    """A string as columns of an instruction and its bit, and below each read the number of the write it must recall.

    w0  i1  r0  w1  r1
    1       =1  2   =2

    Of a long string, its beginning, and its end, where the last read is.
    """
    tokens = text.split()
    marks = {read.position: f"={read.write}" + ("" if read.right else "!") for read in check_string(text)}
    writes = [position + 1 for position in range(0, len(tokens), 2) if tokens[position] == WRITE]
    marks |= {position: str(number) for number, position in enumerate(writes, start=1)}
    width = 2 + max(2, *map(len, marks.values()))
    # groups of one or two lines: pairs, and the numbers below them, if there are any
    groups = []
    for start in range(0, len(tokens), 2 * PAIRS_PER_LINE):
        bits = range(start + 1, min(start + 2 * PAIRS_PER_LINE, len(tokens)), 2)
        lines = ["".join(f"{tokens[i - 1]}{tokens[i]}".ljust(width) for i in bits)]
        lines.append("".join(marks.get(i, "").ljust(width) for i in bits))
        groups.append([line.rstrip() for line in lines if line.strip()])
    *head, tail = groups
    drawn: list[str] = []
    for group in head:
        if len(drawn) + len(group) + len(tail) > max_lines:
            break
        drawn += group
    hidden = sum(map(len, head)) - len(drawn)
    if hidden:
        drawn[-1] += f" ... ({hidden} more)"
    return "\n".join([*drawn, *tail])


def describe_last_read(text: str) -> str:
    """The bit that the last read must recall, and from where, as a clause."""
    reads = check_string(text)
    if not reads:
        return "there is no read"
    last = reads[-1]
    between = last.position - last.write_position - 2
    return f"the last read must recall {last.expected}, from write {last.write}, {between} tokens before it"
