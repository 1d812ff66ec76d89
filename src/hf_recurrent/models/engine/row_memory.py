"""Memory of keys and values of rows that come and go.

Shapes: R rows of W columns, whose places are R * W; n rows that stay.
"""

import torch

# so that joining rows seldom need new memory: on a processor, what is not written to takes none
GROWTH_ON_CPU = 4


class RowMemory:
    """Memory in which rows of keys and values are moved without allocating, for calls without gradients.

    Rows that stay are gathered into the memory that an earlier gathering left; rows that join come after them.
    """

    def __init__(self):
        self.used: tuple[torch.Tensor, ...] = ()
        self.spare: tuple[torch.Tensor, ...] = ()

    def begin(self, buffers: tuple[torch.Tensor, ...], size: int) -> None:
        """Hold the buffers, which may lie elsewhere, with room for so many places."""
        is_held = self.used and self.used[0].data_ptr() == buffers[0].data_ptr()
        if is_held and self.used[0].shape[0] >= size:
            return
        self.used = self.spare = ()
        if buffers[0].shape[0] >= size:
            self.used = buffers
            return
        size *= GROWTH_ON_CPU if buffers[0].device.type == "cpu" else 1
        self.used = tuple(each.new_empty(size, *each.shape[1:]) for each in buffers)
        for old, new in zip(buffers, self.used, strict=True):
            new[: old.shape[0]] = old

    def gathered(
        self, buffers: tuple[torch.Tensor, ...], rows: torch.Tensor, width: int, start: int, stop: int
    ) -> tuple[torch.Tensor, ...]:
        """The `rows` (n,) and columns `start:stop` of buffers (R * width, ...), which are not to be read again."""
        self.begin(buffers, buffers[0].shape[0])
        self.spare = self.spare or tuple(map(torch.empty_like, self.used))
        found = tuple(each[: rows.shape[0] * (stop - start)] for each in self.spare)
        for old, new in zip(buffers, found, strict=True):
            columns = old.unflatten(0, (-1, width))[:, start:stop]
            torch.index_select(columns, 0, rows, out=new.unflatten(0, (-1, stop - start)))
        self.used, self.spare = self.spare, self.used
        return found

    def extended(self, buffers: tuple[torch.Tensor, ...], size: int) -> tuple[torch.Tensor, ...]:
        """The buffers (R * W, ...) with zeros at further places, `size` in all."""
        number = buffers[0].shape[0]
        self.begin(buffers, size)
        found = tuple(each[:size] for each in self.used)
        for each in found:
            each[number:].zero_()
        return found
