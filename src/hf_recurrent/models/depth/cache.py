"""The base class of this package's caches, the layers of named tensors that they hold, and what attention reads.

Shapes: B batch, n rows of it, H heads, P earlier tokens, N new ones, D head dim.
"""

import copy
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import NamedTuple, TypeVar

import torch
from transformers.cache_utils import Cache, DynamicLayer

from ..config.cache_name import OLD_NAME, with_cache_named
from ..config.fields import shown
from ..ops.checks import check_tensor, is_id, refuse
from ..ops.graphs import in_graph
from ..ops.row_groups import place

Result = TypeVar("Result")
Tensors = dict[str, torch.Tensor]


class CacheLayer(DynamicLayer):
    """Named tensors whose first dimension is the batch; those without dimensions are of all sequences."""

    def __init__(self):
        super().__init__()
        self.tensors: Tensors = {}
        # the tensors that graphs write into
        self.pinned: Tensors | None = None

    def replace(self, tensors: Tensors) -> None:
        self.tensors = tensors

    def apply(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Replace tensors (B, ...) by those that a function returns."""
        self.replace({name: function(tensor) if tensor.dim() else tensor for name, tensor in self.tensors.items()})

    def reset(self) -> None:
        self.replace({})


class PastKeyValue(NamedTuple):
    """Keys and values of earlier tokens, (B, H, P, D) each, as transformers' caches hold them.

    New ones go after them or, with `places` (B, N), into a window of fixed size, whose last place is for padding and
    masked.
    """

    key: torch.Tensor
    value: torch.Tensor
    places: torch.Tensor | None = None
    # whose `appended` avoids copies. What places modules on devices, such as accelerate, makes tuples anew from their
    # fields, but leaves this object
    layer: CacheLayer | None = None
    # (n,) rows of the batch that have new tokens, None for all; `whole`: their queries attend among those of all rows,
    # because gathering the rows' keys would take longer
    rows: torch.Tensor | None = None
    whole: bool = False

    def extended(self, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values extended by those of new tokens, (n, H, N, D) each; the tensors held here do not change."""
        pairs = [*zip(self[:2], (self.of_keys(key), self.of_keys(value)), strict=True)]
        if self.layer is not None and key.dtype == self.key.dtype:
            extended = [self.layer.appended(name, *pair) for name, pair in zip(("keys", "values"), pairs, strict=True)]
        else:
            # the cache may come from a call in another precision
            pairs = [(old.to(new.dtype), new) for old, new in pairs]
            if self.places is None:
                extended = [torch.cat(pair, dim=2) for pair in pairs]
            else:
                index = self.places[:, None, :, None].expand_as(key)
                extended = [old.scatter(2, index, new) for old, new in pairs]
        if self.rows is not None and not self.whole:
            extended = [states.index_select(0, self.rows) for states in extended]
        return tuple(extended)

    def of_keys(self, states: torch.Tensor) -> torch.Tensor:
        """States (n, ...) of the rows, in the batch (B, ...)."""
        return place(states, self.rows, self.key.shape[0])

    def of_batch(self, states: torch.Tensor) -> torch.Tensor:
        """States (n, ...) of the rows that have queries, in the rows whose keys they attend to."""
        return self.of_keys(states) if self.whole and states.shape[0] > 1 else states

    def of_queries(self, states: torch.Tensor) -> torch.Tensor:
        """The inverse of `of_batch`."""
        return states.index_select(0, self.rows) if self.whole else states

    def without_padding_place(self, states: torch.Tensor) -> torch.Tensor:
        """Extended keys or values (B, H, P', D) without the place for padding."""
        return states if self.places is None else states[:, :, :-1]


@dataclass
class CacheView:
    """One forward pass's draft of a cache, which is read and written step by step and committed at the end."""

    draft: list[Tensors]  # of each layer
    past_counts: torch.Tensor  # (n,) tokens of the rows before the new ones
    is_empty: bool  # whether there are no earlier tokens, as far as the host knows
    rows: torch.Tensor | None = None  # (n,) of the batch that the view is of, None for all
    places: torch.Tensor | None = None  # (n, N) of the new tokens in a window of fixed size
    # steps whose keys and values, and the steps until the last whose sums have been written: the first may decide
    # nothing, and have none
    num_written: int = 0
    num_written_sums: int = 0

    @property
    def depth(self) -> int:
        return len(self.draft)

    def of_rows(self, index: torch.Tensor) -> "CacheView":
        """A view of the rows at `index` (n,) among those of this one; both write to the same draft."""
        rows = index if self.rows is None else self.rows[index]
        places = None if self.places is None else self.places[index]
        return replace(self, rows=rows, places=places, past_counts=self.past_counts[index])

    def of_packed(self, context: NamedTuple, step: int) -> NamedTuple:
        """The context of a step of packed tokens, without earlier ones."""
        return context

    def selected(self, states: torch.Tensor) -> torch.Tensor:
        """The view's rows (n, ...) of the batch's."""
        return states if self.rows is None else states.index_select(0, self.rows)


class RecurrentCache(Cache):
    """A list of layers, the number of cached columns, and the signature of the model that they belong to.

    Caches define `forget(number)`, which takes back the last tokens, or raises a ValueError if it cannot.

    Args:
        depth: depth steps that there are layers for.
        signature: see `BaseModel.signature`.
    """

    # `crop` cannot take back what has been merged into a state
    is_croppable = False
    # whether `generate` may compile calls with this cache, whose size is constant, as it was asked to
    is_compileable = False

    def __init__(self, layers: list[CacheLayer], depth: int, signature: str):
        super().__init__(layers=layers)
        self.depth, self.signature = depth, signature
        self.length = 0
        self.has_padding = False
        # a graph reads whether, but not at which length: it would be traced again for each
        self.is_pinned, self.pinned_length = False, 0

    @property
    def num_rows(self) -> int | None:
        """Sequences in the cache, None while it is empty."""
        return next((tensor.shape[0] for tensor in self.layers[0].tensors.values()), None)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Cached columns, padding included."""
        return self.length

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        return self.length + query_length, 0

    def update(self, *args, **kwargs):
        raise ValueError("this cache is written by its model only: pass it as `past_key_values`")

    def write(self, tensors: list[Tensors], num_columns: int) -> None:
        """Replace the contents of all layers by those after so many new columns."""
        in_graph = self.in_graph
        for layer, new in zip(self.layers, tensors, strict=True):
            if in_graph and new.keys() == layer.tensors.keys():
                # one of the new ones may be one of the old ones, under another name
                for name, tensor in {name: tensor.clone() for name, tensor in new.items()}.items():
                    layer.tensors[name].copy_(tensor)
            else:
                layer.replace(new)
        # a graph would be traced again for each length
        if not in_graph:
            self.length += num_columns

    def check_model(self, model, max_depth: int | None) -> int | None:
        """The number of cached columns, None in a graph that must not know it.

        Raises:
            ValueError: the model cannot continue from this cache, or not in so many steps.
        """
        config = model.config
        # a graph is traced of a call after one that was checked
        if in_graph():
            return None if self.in_graph else self.length
        if not config.is_causal:
            raise ValueError(
                "`past_key_values` or `use_cache` was passed, but tokens of this model see those after them "
                "(config.is_causal=False): only a causal model can read a row in pieces"
            )
        if model.depth_follows_length:
            raise ValueError(
                "config field `cap_depth_by_length` is True: depth then depends on tokens to come, so a row cannot be "
                "read in pieces; set it to False or pass use_cache=False"
            )
        if self.signature != model.signature():
            raise ValueError(
                f"`past_key_values` was made for {self.signature} but this model is {model.signature()}: start a new "
                "cache"
            )
        steps = model.cache_steps(max_depth)
        if config.capabilities.shared_block and steps > self.depth:
            raise ValueError(
                f"max_depth is {steps} but `past_key_values` has room for {self.depth} steps: pass at most that, "
                f"or start with model.new_cache(max_depth={steps})"
            )
        return self.length

    def all_columns(self, mask: torch.Tensor) -> torch.Tensor:
        """The mask of all columns that a call sees, from its own."""
        return mask

    def check_mask(self, model, mask: torch.Tensor, is_given: bool, full: bool) -> None:
        """Raise a ValueError unless the mask of a call, which may be given, fits the sequences of this cache."""
        if self.num_rows not in (None, mask.shape[0]):
            raise ValueError(
                f"`past_key_values` holds {self.num_rows} sequences but the inputs have {mask.shape[0]}: pass the "
                "sequences of the cache, or select from it (batch_select_indices, batch_repeat_interleave)"
            )
        if model.cache_remembers_padding and is_given:
            self.has_padding = self.has_padding or not full
        elif model.cache_remembers_padding and self.has_padding:
            raise ValueError(
                f"`{model.input_prefix}attention_mask` is missing but `past_key_values` was filled with padding among "
                "its columns: pass the mask of all columns, those before these included"
            )

    def pin(self) -> None:
        """Let graphs of one new column write into the tensors that there are, whose addresses stay.

        To be called before the first call, and after each, whose column a graph has not counted.
        """
        if self.is_pinned and self.length == self.pinned_length:
            self.length += 1
        self.is_pinned, self.pinned_length = True, self.length
        for layer in self.layers:
            if layer.pinned is not layer.tensors:
                layer.apply(torch.clone)
                for tensor in layer.tensors.values():
                    # a guard, usual up to torch 2.9, would compile anew for each cache
                    torch._dynamo.mark_static_address(tensor, guard=False)
                layer.pinned = layer.tensors

    def unpin(self) -> None:
        """Be a cache as others are, whose tensors are replaced."""
        for layer in self.layers:
            layer.pinned = None
        self.is_pinned, self.pinned_length, self.is_compileable = False, 0, False

    @property
    def in_graph(self) -> bool:
        """Whether a graph is traced that goes on for further columns, and so must not know how many there are."""
        return self.is_pinned and in_graph()

    @contextmanager
    def unchanged_by_errors(self) -> Iterator[None]:
        """Restore the contents if an error is raised; tensors are replaced, never changed."""
        objects = (self, *self.layers)
        before = [dict(vars(each)) for each in objects]
        try:
            yield
        except BaseException:
            for each, values in zip(objects, before, strict=True):
                vars(each).clear()
                vars(each).update(values)
            raise

    def __deepcopy__(self, memo: dict) -> "RecurrentCache":
        """A copy with tensors of its own, through which gradients go as through this cache's."""
        for layer in self.layers:
            # torch copies no tensor that was computed with gradients
            memo |= {id(each): each.clone() for each in layer.tensors.values() if not each.is_leaf}
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
        if -number > self.length:
            raise ValueError(f"crop({number}): the cache holds {self.length} tokens; pass {-self.length} for all")
        if number:
            with self.unchanged_by_errors():
                self.forget(-number)
                self.length += number

    def keep_for_crops(self) -> None:
        """From now on keep what cropping any number of later tokens needs."""

    def apply(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        for layer in self.layers:
            layer.apply(function)

    def detach(self) -> None:
        """Cut the gradient between cached and later tokens (truncated backpropagation)."""
        self.apply(torch.Tensor.detach)

    def reset(self) -> None:
        super().reset()
        self.length, self.has_padding = 0, False

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Have these sequences (n,) of the present ones, as beam search does.

        Raises:
            ValueError: of another dtype or shape, or of a sequence that there is not.
        """
        self.select("beam_idx", beam_idx)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Have these sequences (n,) of the present ones. Raises as `reorder_cache`."""
        self.select("indices", indices)

    def select(self, name: str, rows: torch.Tensor) -> None:
        """Keep the sequences of an argument (n,)."""
        check_tensor(name, rows, is_id, (1,), "a tensor (n,) of torch.long with the numbers of sequences")
        number = self.num_rows
        if number is not None:
            outside = ((rows < 0) | (rows >= number)).any()
            refuse((outside, lambda: f"`{name}` is {rows.tolist()}: the cache holds {number} sequences, from 0"))
        self.apply(lambda tensor: tensor.index_select(0, rows.to(tensor.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Have each sequence so many times in a row. Raises a ValueError unless `repeats` is a whole number from 1."""
        if not isinstance(repeats, int) or isinstance(repeats, bool) or repeats < 1:
            raise ValueError(f"`repeats` is {shown(repeats)}: pass a whole number, at least 1")
        self.apply(lambda tensor: tensor.repeat_interleave(repeats, dim=0))

    def state_dict(self) -> Tensors:
        """All tensors of the cache, under flat names, without gradients."""
        signature = torch.frombuffer(bytearray(self.signature.encode()), dtype=torch.uint8)
        saved = {"has_padding": torch.tensor(self.has_padding), "made_for": signature}
        if self.num_rows is not None:
            saved["layers.0.length"] = torch.tensor(self.length)
        for index, layer in enumerate(self.layers):
            saved |= {f"layers.{index}.{name}": tensor.detach() for name, tensor in layer.tensors.items()}
        return saved

    def load_state_dict(self, tensors: Tensors) -> None:
        """Load the `state_dict` of another cache of this kind and depth.

        Raises:
            ValueError: the tensors belong to another model's cache, or to layers that this one does not have. This
                cache is then unchanged.
        """
        signature = bytes(tensors["made_for"].tolist()).decode()
        if signature != self.signature:
            raise ValueError(f"the tensors were saved of a cache for {signature} but this one is for {self.signature}")
        contents: list[Tensors] = [{} for _ in self.layers]
        for name in tensors.keys() - {"made_for", "has_padding"}:
            _, index, key = name.split(".", 2)
            if int(index) >= len(contents):
                raise ValueError(f"{name}: this cache has {len(contents)} layers; it was made for {self.signature}")
            contents[int(index)][key] = tensors[name]
        has_padding = bool(tensors["has_padding"])
        # earlier versions saved a length for several layers, or for none if there are keys of all tokens
        length, *_ = [found.pop("length", None) for found in contents]
        keys = contents[0].get("keys")
        for layer, found in zip(self.layers, contents, strict=True):
            layer.replace(found)
        self.length = (0 if keys is None else keys.shape[2]) if length is None else int(length)
        self.has_padding = has_padding


def keeps_cache(call: Callable[..., Result]) -> Callable[..., Result]:
    """`call`, which takes a cache by either of its names, and leaves it as it was if it raises an error."""

    @wraps(call)
    def kept(*args, **kwargs) -> Result:
        kwargs = with_cache_named(OLD_NAME, kwargs)
        cache = kwargs.get(OLD_NAME) or next((value for value in args if isinstance(value, Cache)), None)
        unchanged = getattr(cache, "unchanged_by_errors", None)
        if unchanged is None or torch.compiler.is_compiling():
            return call(*args, **kwargs)
        with unchanged():
            return call(*args, **kwargs)

    return kept


def check_own_cache(cache: object) -> None:
    """Raise a ValueError unless a cache is one of this package's, or None."""
    if cache is None or hasattr(cache, "signature"):
        return
    prefix = (
        "; where it holds the prefix of peft's prefix tuning, use LoRA, prompt tuning or p-tuning"
        if isinstance(cache, Cache)
        else ""
    )
    raise ValueError(
        f"`past_key_values` is a {type(cache).__name__}: pass what this model returned, or model.new_cache(){prefix}"
    )
