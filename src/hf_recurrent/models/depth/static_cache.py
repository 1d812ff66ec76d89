"""A `DepthCache` that has room for a text, into which graphs write at a position that is a tensor.

Shapes: B batch, P cached tokens, N new tokens, M columns that there is room for, H heads, D head dim.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from ..config.fields import check_whole
from ..ops.masks import Mask, as_implemented
from .cache import PastKeyValue, Tensors
from .depth_cache import MAX_CACHED_SUMS, DepthCache, DepthCacheView, DepthLayer


class StaticDepthCache(DepthCache):
    """A cache for texts of at most `max_length` columns, whose keys and values are allocated once.

    Calls see the columns that are filled, as those of any cache. Between `pin` and `unpin` graphs see all of them, for
    which the first layer has the `position` () of the next one. It also has the mask `tokens` (B, 1, P, 1).

    Args:
        cache: the empty cache in whose place this one comes.
        new_last: whether graphs see copies of keys and values that have the new ones last, as other calls do.
    """

    def __init__(self, cache: DepthCache, max_length: int, new_last: bool = False):
        check_whole(max_length, "max_length")
        vars(self).update(vars(cache))
        self.new_last = new_last
        self.limit(max_length)

    def limit(self, max_length: int | None) -> None:
        """Have room for so many columns; None to grow with the text."""
        self.max_length = max_length
        for layer in self.layers:
            layer.max_length = max_length

    @property
    def in_graph(self) -> bool:
        return super().in_graph and "position" in self.layers[0].tensors

    def pin(self) -> None:
        first = self.layers[0]
        if "keys" in first.tensors and "position" not in first.tensors:
            for layer in self.layers:
                if isinstance(layer, DepthLayer):
                    layer.replace({name: self.widened(name, tensor) for name, tensor in layer.tensors.items()})
            first.tensors["position"] = torch.tensor(self.length, device=first.tensors["keys"].device)
        super().pin()

    def widened(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of a layer with all columns, or with as many sums as there can be."""
        if name == "sums":
            return nn.functional.pad(tensor, (0, 0, MAX_CACHED_SUMS - tensor.shape[1], 0))
        return nn.functional.pad(tensor, (0, 0, 0, self.max_length - self.length))

    def loosen(self) -> None:
        """Have the filled columns alone, until the next `pin`."""
        if "position" not in self.layers[0].tensors:
            return
        for layer in self.layers:
            if isinstance(layer, DepthLayer):
                whole = layer.tensors
                layer.tensors = {
                    name: tensor if name == "sums" else tensor[:, :, : self.length]
                    for name, tensor in whole.items()
                    if name != "position"
                }
                layer.buffers = {name: whole[name] for name in ("keys", "values")}

    def unpin(self) -> None:
        """As of other caches; one that `generate` has made may then grow."""
        self.loosen()
        if self.is_compileable:
            self.limit(None)
        super().unpin()

    def apply(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.loosen()
        super().apply(function)

    def forget(self, number: int) -> None:
        self.loosen()
        super().forget(number)

    def state_dict(self) -> Tensors:
        self.loosen()
        return super().state_dict()

    def check_mask(self, model, mask: torch.Tensor, is_given: bool, full: bool) -> None:
        # a graph knows no length, and the cache the mask of earlier columns
        if self.in_graph:
            return
        if self.max_length is not None and mask.shape[1] > self.max_length:
            raise ValueError(
                f"the text would have {mask.shape[1]} columns but `past_key_values` has room for {self.max_length}: "
                f"start with model.new_static_cache({mask.shape[1]}) or more, or with a cache that grows"
            )
        super().check_mask(model, mask, is_given, full)

    def columns(self, number: int, device: torch.device) -> torch.Tensor:
        if not self.in_graph:
            return super().columns(number, device)
        return torch.arange(number, device=device) + self.layers[0].tensors["position"]

    def order(self, columns: torch.Tensor) -> torch.Tensor:
        """Numbers (M,) of all columns in the order in which graphs see them, from those of new tokens (N,)."""
        shift = columns[-1] + 1 if self.new_last else 0
        return (torch.arange(self.max_length, device=columns.device) + shift) % self.max_length

    def all_columns(self, mask: torch.Tensor) -> torch.Tensor:
        """The mask of a call, which in a graph is that of new columns (B, N) -> (B, P + N), or (B, M)."""
        first, tokens = self.layers[0], mask[:, None, :, None]
        if self.in_graph:
            columns = self.columns(mask.shape[1], mask.device)
            tokens = first.tensors["tokens"].index_copy_(2, columns, tokens)
            return tokens.flatten(1).index_select(1, self.order(columns))
        self.loosen()
        first.tensors = {**first.tensors, "tokens": tokens}
        return mask

    def visible_keys(self, config, states: torch.Tensor, mask: torch.Tensor, window: int | None) -> Mask:
        """`visible_keys` in a graph, by the mask (B, M)."""
        own = self.columns(states.shape[1], mask.device)
        column, own = self.order(own), own[:, None]
        visible = (column <= own) & mask[:, None, None]
        if window is not None:
            visible = visible & (column > own - window)
        return as_implemented(config, visible, states.dtype)

    def view(self, mask: torch.Tensor, num_new: int, outer: slice | None = None) -> DepthCacheView:
        view = super().view(mask, num_new, outer)
        if not self.in_graph:
            return view
        columns = self.columns(num_new, mask.device)
        order = self.order(columns)
        counts = (mask & (order < columns[0])).sum(-1)
        return StaticView(**{**vars(view), "past_counts": counts, "columns": columns, "order": order})


@dataclass(kw_only=True)
class StaticView(DepthCacheView):
    """A view in a graph, which writes keys and values where they stay."""

    columns: torch.Tensor  # (N,) of the new tokens
    order: torch.Tensor  # (M,) in which columns are seen

    def new(self, states: torch.Tensor, dim: int = 1) -> torch.Tensor:
        return super().new(states, dim) if self.cache.new_last else states.index_select(dim, self.columns)

    def past(self, number: int) -> PastKeyValue:
        tensors = self.layers[number].tensors
        return PastKeyValue(tensors["keys"], tensors["values"], layer=self)

    def appended(self, name: str, old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        """Write (B, H, N, D) into (B, H, M, D), as which they are seen."""
        whole = old.index_copy_(2, self.columns, new)
        return whole.index_select(2, self.order) if self.cache.new_last else whole

    def commit(self) -> None:
        for layer, draft in zip(self.layers, self.draft, strict=True):
            if "sums" in draft:
                sums = layer.tensors["sums"]
                sums.copy_(torch.cat((sums, draft["sums"]), dim=1)[:, -sums.shape[1] :])
        self.cache.layers[0].tensors["position"].copy_(self.columns[-1] + 1)
