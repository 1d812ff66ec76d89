"""Examples of different lengths as windows of tokens, and as padded batches.

Shapes: N examples of a window, S tokens of one, T of all of them; n examples of a batch, W tokens of the longest.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ..models.common.fields import shown


class Example(NamedTuple):
    """Ids (S,) of an example's tokens, without padding, and their types or None."""

    input_ids: np.ndarray
    token_type_ids: np.ndarray | None


def read_example(fields: Mapping[str, Any], number: int) -> Example:
    """An example's tokens; `number` names it in messages.

    Raises:
        ValueError: no `input_ids`, a field of another shape or length, no token, or `position_ids`.
    """
    # a look at dicts is quicker than at mappings
    if not isinstance(fields, (dict, Mapping)) or "input_ids" not in fields:
        found = sorted(fields) if isinstance(fields, Mapping) else f"a {type(fields).__name__}"
        raise ValueError(f"example {number} is {found}: pass a mapping with 'input_ids'")
    ids = np.asarray(fields["input_ids"])
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise ValueError(
            f"`input_ids` of example {number} has shape {ids.shape} and dtype {ids.dtype}: pass the whole numbers (S,) "
            "of one example, not of a batch"
        )
    if fields.get("position_ids") is not None:
        raise ValueError(
            f"`position_ids` of example {number} is {shown(fields['position_ids'])}: tokens are counted from the "
            "example's first one; leave it out, or call a model that takes it on batches"
        )
    mask = aligned_field(fields, "attention_mask", ids, number) if "attention_mask" in fields else None
    types = aligned_field(fields, "token_type_ids", ids, number) if "token_type_ids" in fields else None
    if mask is not None:
        ids, types = ids[mask != 0], None if types is None else types[mask != 0]
    if ids.size == 0:
        raise ValueError(f"example {number} has no tokens: leave it out, or give it one")
    return Example(ids, types)


def aligned_field(fields: Mapping[str, Any], name: str, ids: np.ndarray, number: int) -> np.ndarray | None:
    """A field with a value for each of the ids (S,), or None."""
    values = fields[name]
    if values is None:
        return None
    values = np.asarray(values)
    if values.shape != ids.shape:
        raise ValueError(f"`{name}` of example {number} has shape {values.shape}: `input_ids` has {ids.shape}")
    return values


def whole_numbers(arrays: Iterable[np.ndarray]) -> torch.Tensor:
    """Arrays (S,) one after another, as int64."""
    return torch.from_numpy(np.concatenate(list(arrays), dtype=np.int64, casting="unsafe"))


def sent(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Values of the CPU on a device, by a copy for which a GPU of CUDA is not waited for.

    CUDA puts them aside before it returns. Apple's GPUs may read the memory later, when it is another's.
    """
    return values.to(device, non_blocking=device.type == "cuda")


class Window(NamedTuple):
    """Examples one after another, the longest first.

    Attributes:
        order: (N,) place of each among the examples as they were given.
        lengths: (N,) tokens of each.
        starts: (N,) place of the first token of each.
        input_ids: (T,)
        token_type_ids: (T,), None if no example has them.
    """

    order: np.ndarray
    lengths: np.ndarray
    starts: np.ndarray
    input_ids: torch.Tensor
    token_type_ids: torch.Tensor | None

    @classmethod
    def of(cls, examples: Sequence[Example], device: torch.device) -> "Window":
        lengths = np.array([len(example.input_ids) for example in examples])
        order = np.argsort(-lengths, kind="stable")
        lengths = lengths[order]
        ordered = [examples[place] for place in order]
        types = None
        if any(example.token_type_ids is not None for example in ordered):
            each = (
                np.zeros_like(example.input_ids) if example.token_type_ids is None else example.token_type_ids
                for example in ordered
            )
            types = sent(whole_numbers(each), device)
        ids = sent(whole_numbers(example.input_ids for example in ordered), device)
        return cls(order, lengths, lengths.cumsum() - lengths, ids, types)

    def mask(self, rows: np.ndarray) -> torch.Tensor:
        """(n, W) bool, True at tokens of the examples `rows` (n,), which are their first columns."""
        lengths = sent(torch.from_numpy(self.lengths[rows]), self.input_ids.device)
        return torch.arange(int(self.lengths[rows].max()), device=lengths.device) < lengths[:, None]

    def places(self, rows: np.ndarray, mask: torch.Tensor) -> torch.Tensor:
        """(n, W) places among the window's tokens, those of padding anywhere."""
        starts = sent(torch.from_numpy(self.starts[rows]), mask.device)
        return (starts[:, None] + torch.arange(mask.shape[1], device=mask.device)) * mask


def windows(examples: Iterable[Mapping[str, Any]], num_tokens: int, device: torch.device) -> Iterator[Window]:
    """Examples in windows of about so many tokens, at least of one example each."""
    read: list[Example] = []
    size = 0
    for number, fields in enumerate(examples):
        example = read_example(fields, number)
        if read and size + len(example.input_ids) > num_tokens:
            yield Window.of(read, device)
            read, size = [], 0
        read.append(example)
        size += len(example.input_ids)
    if read:
        yield Window.of(read, device)


def groups(lengths: np.ndarray, order: np.ndarray, num_tokens: int) -> Iterator[np.ndarray]:
    """The examples `order` (N,) of these lengths in groups of at most so many tokens, padding included."""
    start, width = 0, 0
    for stop, row in enumerate(order):
        width = max(width, lengths[row])
        if stop > start and (stop + 1 - start) * width > num_tokens:
            yield order[start:stop]
            start, width = stop, lengths[row]
    yield order[start:]
