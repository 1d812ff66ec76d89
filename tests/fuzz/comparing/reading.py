"""A batch that is read in pieces, with a cache; and detours, which leave what the pieces get as it would be.

Shapes: B rows, S columns.
"""

import copy
from typing import NamedTuple

import torch

from hf_recurrent.models.heads.seq2seq import cached_source


class Detour(NamedTuple):
    """What is done with the cache before a piece is read.

    Attributes:
        kind: name of a function of `DETOURS`.
        columns: number of columns that are read and forgotten, or that are refused to be.
        rows: of the present ones, those to go on with.
        back: columns that an abandoned cache forgets before it is used otherwise.
    """

    kind: str
    columns: int = 0
    rows: tuple[int, ...] = ()
    back: int = 0


class Reading:
    """A model, and the batch that it reads; of two stacks, the target.

    Args:
        arguments: of a call with the whole batch.
        options: further arguments of each call.
        new_mask: whether the mask of a piece is of its own columns only.
        names: of the outputs to keep, those of tokens.
    """

    def __init__(self, model, arguments: dict, options: dict, new_mask: bool, names: tuple[str, ...]):
        self.model, self.options, self.new_mask, self.names = model, options, new_mask, names
        self.prefix = "decoder_" if "decoder_input_ids" in arguments else ""
        self.arguments = {name: value for name, value in arguments.items() if name != "labels"}
        self.ids = self.arguments.pop(f"{self.prefix}input_ids")
        self.mask = self.arguments.pop(f"{self.prefix}attention_mask").bool()
        # of the batch, as in the cache
        self.rows = list(range(len(self.ids)))
        self.cache, self.begin, self.next_options = None, 0, {}
        self.outputs: list[dict[str, torch.Tensor]] = []
        self.refusals: list[tuple[ValueError, str]] = []

    def call(self, ids: torch.Tensor, mask: torch.Tensor, cache, options: dict):
        """The output for further columns (B, S), which this is the mask of."""
        before = self.mask[:, : 0 if self.new_mask or cache is None else cache.get_seq_length()]
        names = [f"{self.prefix}{name}" for name in ("input_ids", "attention_mask")]
        arguments = {**self.arguments, **dict(zip(names, (ids, torch.cat((before, mask), dim=1)), strict=True))}
        if self.prefix and cached_source(cache):
            arguments.pop("input_ids")
        with torch.no_grad():
            return self.model(**arguments, past_key_values=cache, use_cache=True, **self.options, **options)

    def read(self, width: int) -> None:
        """Read the next piece."""
        end = self.begin + width
        piece = slice(self.begin, end)
        output = self.call(self.ids[:, piece], self.mask[:, piece], self.cache, self.next_options)
        self.outputs.append({name: output[name] for name in self.names if output.get(name) is not None})
        self.cache, self.begin, self.next_options = output.past_key_values, end, {}

    def astray(self, cache, columns: int, readers: torch.Tensor | None = None):
        """The cache after columns of other tokens, of `readers` (B,) only or of rows that have not ended."""
        if readers is None:
            before = self.mask[:, : 0 if cache is None else cache.get_seq_length()]
            readers = before[:, -1:].all(1) | ~before.any(1)
        ids = (self.ids[:, :1] + 1 + torch.arange(columns)) % self.model.config.vocab_size
        return self.call(ids, readers[:, None].expand(-1, columns), cache, {}).past_key_values

    def keep(self, rows: tuple[int, ...]) -> None:
        """Go on with these of the present rows, as the cache does."""
        index = list(rows)
        self.rows = [self.rows[row] for row in index]
        self.ids, self.mask = self.ids[index], self.mask[index]
        self.arguments = {name: value[index] for name, value in self.arguments.items()}
        self.outputs = [{name: value[index] for name, value in output.items()} for output in self.outputs]

    def begun(self) -> torch.Tensor:
        """(B,) whether a row has had tokens."""
        return self.mask[:, : self.begin].any(1)

    def joined(self) -> dict[str, torch.Tensor]:
        """What the tokens of all pieces got."""
        return {name: torch.cat([output[name] for output in self.outputs], dim=1) for name in self.outputs[0]}


def crop(reading, detour):
    """Read something else, and take it back."""
    reading.cache = reading.astray(reading.cache, detour.columns)
    reading.cache.crop(-detour.columns)


def crop_too_far(reading, detour):
    """Columns that cannot be taken back."""
    try:
        reading.cache.crop(-detour.columns)
    except ValueError as error:
        reading.refusals.append((error, f"crop(-{detour.columns})"))
    else:
        raise AssertionError(f"crop(-{detour.columns}) was not refused")


def reorder(reading, detour):
    """Other rows, as many, as beam search has them."""
    reading.cache.reorder_cache(torch.tensor(detour.rows))
    reading.keep(detour.rows)


def rows_outside(reading, detour):
    """Rows that the cache has not."""
    try:
        reading.cache.reorder_cache(torch.tensor(detour.rows))
    except ValueError as error:
        reading.refusals.append((error, str([*detour.rows])))
    else:
        raise AssertionError(f"reorder_cache of {detour.rows} was not refused")


def select(reading, detour):
    """Some of the rows."""
    reading.cache.batch_select_indices(torch.tensor(detour.rows))
    reading.keep(detour.rows)


def repeat(reading, detour):
    """Each row several times."""
    reading.cache.batch_repeat_interleave(len(detour.rows) // len(reading.rows))
    reading.keep(detour.rows)


def abandon(reading, cache, detour):
    """Use a cache otherwise, which must not be seen in one that was made of it."""
    if detour.back:
        cache.crop(-detour.back)
    reading.astray(cache, detour.columns)


def save(reading, detour):
    """Go on with a new cache that has the tensors of the old one."""
    old, tensors = reading.cache, reading.cache.state_dict()
    abandon(reading, old, detour)
    reading.cache = reading.model.base_model.new_cache(reading.options.get("max_depth"))
    reading.cache.load_state_dict(tensors)


def duplicate(reading, detour):
    """Go on with a copy."""
    old, reading.cache = reading.cache, copy.deepcopy(reading.cache)
    abandon(reading, old, detour)


def detach(reading, detour):
    """Cut gradients, of which there are none."""
    reading.cache.detach()


def reset(reading, detour):
    """Begin with a cache that has been used."""
    reading.cache = reading.astray(None, detour.columns)
    reading.cache.reset()


def start(reading, detour):
    """Something else in the rows that have had no tokens, which then begin a document."""
    begins = ~reading.begun()
    reading.cache = reading.astray(reading.cache, detour.columns, begins)
    reading.next_options = {"start_of_document": begins}


def start_too_late(reading, detour):
    """A document that begins in a cache that cannot forget one row."""
    begins = torch.arange(len(reading.rows)) == detour.columns
    try:
        reading.call(reading.ids[:, -1:], reading.mask[:, -1:], reading.cache, {"start_of_document": begins})
    except ValueError as error:
        reading.refusals.append((error, f"True for sequence {detour.columns}"))
    else:
        raise AssertionError("`start_of_document` was not refused")


def pad(reading, detour):
    """Columns without a token."""
    reading.cache = reading.astray(reading.cache, detour.columns, torch.zeros(len(reading.rows), dtype=torch.bool))


DETOURS = {
    function.__name__: function
    for function in (
        *(crop, crop_too_far, reorder, rows_outside, select, repeat, save, duplicate, detach, reset),
        *(start, start_too_late, pad),
    )
}
