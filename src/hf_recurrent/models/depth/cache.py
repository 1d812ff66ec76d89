"""Base classes of this package's caches, and of cache layers that hold named tensors.

Shapes: B batch.
"""

import copy
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TypeVar

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from ..config.cache_name import OLD_NAME, with_cache_named
from ..config.fields import shown
from ..ops.checks import check_tensor, is_id, refuse

Result = TypeVar("Result")


class RecurrentCache(Cache):
    """Base of this package's caches, with a signature of the model that they belong to.

    Caches define `depth`, the number of depth steps that they have layers for, and `num_rows`, the sequences in the
    cache, None while it is empty.
    """

    def __init__(self, layers: list[CacheLayerMixin], signature: str):
        super().__init__(layers=layers)
        self.signature = signature
        self.has_padding = False
        self.is_static = self.is_pinned = False

    @property
    def is_compileable(self) -> bool:
        """Whether `generate` may compile calls with this cache, whose size is constant, as it was asked to."""
        return self.is_static

    def pin(self) -> None:
        """Let graphs of one new column write into the tensors that there are, whose addresses stay.

        To be called before the first call, and after each, whose column a graph has not counted.
        """
        self.is_pinned = True
        for layer in self.layers:
            layer.pin()

    def unpin(self) -> None:
        """Be a cache as others are, whose tensors are replaced."""
        if self.is_pinned:
            for layer in self.layers:
                layer.pinned = None
        self.is_static = self.is_pinned = False

    @property
    def in_graph(self) -> bool:
        """Whether a graph is traced that goes on for further columns, and so must not know how many there are."""
        return self.is_pinned and torch.compiler.is_compiling()

    @contextmanager
    def unchanged_by_errors(self) -> Iterator[None]:
        """Restore the contents if an error is raised; tensors are replaced, never changed."""
        layers, has_padding = [dict(vars(layer)) for layer in self.layers], self.has_padding
        try:
            yield
        except BaseException:
            for layer, before in zip(self.layers, layers, strict=True):
                vars(layer).clear()
                vars(layer).update(before)
            self.has_padding = has_padding
            raise

    def __deepcopy__(self, memo: dict) -> "RecurrentCache":
        """A copy with tensors of its own, through which gradients go as through this cache's."""
        for layer in self.layers:
            # torch copies no tensor that was computed with gradients
            memo |= {id(each): each.clone() for each in layer.contents().values() if not each.is_leaf}
        copied = memo[id(self)] = type(self).__new__(type(self))
        vars(copied).update(copy.deepcopy(vars(self), memo))
        return copied

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last `-tokens_to_remove` tokens.

        Raises:
            ValueError: a positive number, or tokens that cannot be forgotten; the cache is then unchanged.
        """
        try:
            # some versions of transformers pass a tensor
            number = operator.index(tokens_to_remove)
        except TypeError:
            number = 1
        if number > 0:
            raise ValueError(f"crop({tokens_to_remove}): pass how many tokens to remove, as a negative number")
        length = self.get_seq_length()
        if -number > length:
            raise ValueError(f"crop({number}): the cache holds {length} tokens; pass {-length} for all")
        with self.unchanged_by_errors():
            super().crop(number)

    def keep_for_crops(self) -> None:
        """From now on keep what cropping any number of later tokens needs."""

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Have these sequences (n,) of the present ones, as beam search does.

        Raises:
            ValueError: of another dtype or shape, or of a sequence that there is not.
        """
        self.check_rows("beam_idx", beam_idx)
        super().reorder_cache(beam_idx)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Have these sequences (n,) of the present ones. Raises as `reorder_cache`."""
        self.check_rows("indices", indices)
        super().batch_select_indices(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Have each sequence so many times in a row. Raises a ValueError unless `repeats` is a whole number from 1."""
        if not isinstance(repeats, int) or isinstance(repeats, bool) or repeats < 1:
            raise ValueError(f"`repeats` is {shown(repeats)}: pass a whole number, at least 1")
        super().batch_repeat_interleave(repeats)

    def check_rows(self, name: str, rows: object) -> None:
        """Raise a ValueError unless an argument holds numbers of the cache's sequences."""
        check_tensor(name, rows, is_id, (1,), "a tensor (n,) of torch.long with the numbers of sequences")
        number = self.num_rows
        if number is not None:
            outside = ((rows < 0) | (rows >= number)).any()
            refuse((outside, lambda: f"`{name}` is {rows.tolist()}: the cache holds {number} sequences, from 0"))

    def reset(self) -> None:
        super().reset()
        self.has_padding = False

    def detach(self) -> None:
        """Cut the gradient between cached and later tokens (truncated backpropagation)."""
        for layer in self.layers:
            layer.detach()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """All tensors of the cache, under flat names, without gradients."""
        signature = torch.frombuffer(bytearray(self.signature.encode()), dtype=torch.uint8)
        tensors = {"has_padding": torch.tensor(self.has_padding), "made_for": signature}
        for index, layer in enumerate(self.layers):
            tensors |= {f"layers.{index}.{name}": tensor.detach() for name, tensor in layer.contents().items()}
        return tensors

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        """Load the `state_dict` of another cache of this kind and depth.

        Raises:
            ValueError: the tensors belong to another model's cache, or to layers that this one does not have. This
                cache is then unchanged.
        """
        signature = bytes(tensors["made_for"].tolist()).decode()
        if signature != self.signature:
            raise ValueError(f"the tensors were saved of a cache for {signature} but this one is for {self.signature}")
        contents: list[dict[str, torch.Tensor]] = [{} for _ in self.layers]
        for name in tensors.keys() - {"made_for", "has_padding"}:
            _, index, key = name.split(".", 2)
            if int(index) >= len(contents):
                raise ValueError(f"{name}: this cache has {len(contents)} layers; it was made for {self.signature}")
            contents[int(index)][key] = tensors[name]
        with self.unchanged_by_errors():
            for layer, found in zip(self.layers, contents, strict=True):
                layer.restore(found)
            self.has_padding = bool(tensors["has_padding"])


def keeps_cache(call: Callable[..., Result]) -> Callable[..., Result]:
    """`call`, which takes a cache by either of its names, and leaves it as it was if it raises an error."""

    @wraps(call)
    def kept(*args, **kwargs) -> Result:
        kwargs = with_cache_named(OLD_NAME, kwargs)
        caches = (value for value in (*args, *kwargs.values()) if isinstance(value, RecurrentCache))
        cache = next(caches, None)
        if cache is None or torch.compiler.is_compiling():
            return call(*args, **kwargs)
        with cache.unchanged_by_errors():
            return call(*args, **kwargs)

    return kept


def check_own_cache(cache: object) -> None:
    """Raise a ValueError unless a cache is one of this package's, or None."""
    if cache is None or isinstance(cache, RecurrentCache):
        return
    prefix = (
        "; where it holds the prefix of peft's prefix tuning, use LoRA, prompt tuning or p-tuning"
        if isinstance(cache, Cache)
        else ""
    )
    raise ValueError(
        f"`past_key_values` is a {type(cache).__name__}: pass what this model returned, or model.new_cache(){prefix}"
    )


class TensorsLayer(CacheLayerMixin):
    """Named tensors whose first dimension is the batch."""

    is_sliding = False

    def __init__(self):
        super().__init__()
        self.tensors: dict[str, torch.Tensor] = {}
        # those that graphs write into, None if they replace them
        self.pinned: dict[str, torch.Tensor] | None = None

    @property
    def in_graph(self) -> bool:
        """Whether a graph is traced that must leave addresses and numbers of the layer as they are."""
        return self.pinned is not None and torch.compiler.is_compiling()

    def pin(self) -> None:
        """See `RecurrentCache.pin`."""
        pinned = self.pinned or {}
        if any(pinned.get(name) is not tensor for name, tensor in self.tensors.items()):
            self.tensors = {name: tensor.clone() for name, tensor in self.tensors.items()}
            for tensor in self.tensors.values():
                # a guard, usual up to torch 2.9, would compile anew for each cache
                torch._dynamo.mark_static_address(tensor, guard=False)
        self.pinned = dict(self.tensors)

    def write(self, tensors: dict[str, torch.Tensor]) -> None:
        """Have these tensors as contents."""
        if self.in_graph and tensors.keys() == self.tensors.keys():
            # one of the new ones may be one of the old ones, of another name
            for name, tensor in {name: tensor.clone() for name, tensor in tensors.items()}.items():
                self.tensors[name].copy_(tensor)
        else:
            self.tensors = tensors
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to do: the model writes its cache itself."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs):
        raise ValueError("this cache is written by its model only: pass it as `past_key_values`")

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return -1

    def detach(self) -> None:
        self._apply(torch.Tensor.detach)

    def contents(self) -> dict[str, torch.Tensor]:
        """All tensors of the layer, to be saved."""
        return dict(self.tensors)

    def restore(self, contents: dict[str, torch.Tensor]) -> None:
        self.reset()
        self.tensors = dict(contents)
        self.is_initialized = bool(contents)

    def reset(self) -> None:
        self.tensors = {}
        self.is_initialized = False

    def crop(self, tokens_to_remove: int) -> None:
        """Nothing to do: entries after the end are masked."""

    def _apply(self, function) -> None:
        self.tensors = {name: function(tensor) for name, tensor in self.tensors.items()}

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        self._apply(lambda tensor: tensor.index_select(0, beam_idx.to(tensor.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._apply(lambda tensor: tensor.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        self._apply(lambda tensor: tensor[indices])

    def offload(self) -> None:
        self._apply(lambda tensor: tensor.to("cpu", non_blocking=True))


class CountingLayer(TensorsLayer):
    """`TensorsLayer` that counts the cached columns, padding included."""

    def __init__(self):
        super().__init__()
        self.length = self.last_length = 0

    def get_seq_length(self) -> int:
        return self.length

    def pin(self) -> None:
        called = self.pinned is not None
        super().pin()
        if called and self.length == self.last_length:
            self.length += 1
        self.last_length = self.length

    def count(self, num_columns: int) -> None:
        """Add new columns."""
        # a graph would be traced again for each length
        if not self.in_graph:
            self.length += num_columns

    def reset(self) -> None:
        super().reset()
        self.length = 0

    def contents(self) -> dict[str, torch.Tensor]:
        return {**self.tensors, "length": torch.tensor(self.length)} if self.tensors else {}

    def restore(self, contents: dict[str, torch.Tensor]) -> None:
        super().restore({name: tensor for name, tensor in contents.items() if name != "length"})
        self.length = int(contents["length"]) if contents else 0
