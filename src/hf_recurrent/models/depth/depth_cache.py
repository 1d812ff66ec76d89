"""The cache of models that run a whole sequence through depth at once; it grows with the context.

A forward pass works on a *view*, a draft of the cache, and commits it at its end, so that a pass that fails leaves the
cache unchanged. Shapes: B batch, P cached tokens, N new tokens, H heads, D head dim, F features of the halting head.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from ..ops.graphs import in_graph
from ..ops.row_groups import place
from .cache import CacheLayer, CacheView, PastKeyValue, RecurrentCache, Tensors

# running sums are cached for so many tokens, which limits how far a cache can be cropped
MAX_CACHED_SUMS = 128
# reallocated keys and values get this share of their length as additional space, so that copies become rare
GROWTH_FACTOR = 1 / 8
# from this share of rows on, attention over the keys of all takes less time than gathering those of some
MIN_SHARE_TO_SPREAD = 0.6

States = torch.Tensor | tuple[torch.Tensor, ...]


class DepthLayer(CacheLayer):
    """`keys` and `values` (B, H, P, D) of one attention, and `sums` (B, P at most, F) if halting reads running means.

    Keys and values are the beginning of buffers with room for more, so that decoding does not copy cached tokens.
    """

    # that there is room for from the start, None to grow
    max_length: int | None = None

    def __init__(self):
        super().__init__()
        self.buffers: Tensors = {}  # (B, H, at least P, D)

    def replace(self, tensors: Tensors) -> None:
        super().replace(tensors)
        self.buffers = {}

    def appended(self, name: str, old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        """Append (B, H, N, D) to (B, H, P, D), which is copied only if it is not in the buffer or fills it.

        Earlier views of the buffer do not change.
        """
        past_length, length = old.shape[2], old.shape[2] + new.shape[2]
        buffer = self.buffers.get(name)
        if (
            buffer is None
            or buffer.data_ptr() != old.data_ptr()
            or buffer.shape[2] < length
            or buffer.is_inference() != torch.is_inference_mode_enabled()
        ):
            room = self.max_length or length + int(length * GROWTH_FACTOR)
            buffer = self.buffers[name] = old.new_empty((*old.shape[:2], room, old.shape[3]))
            buffer[:, :, :past_length] = old
        buffer[:, :, past_length:length] = new
        return buffer[:, :, :length]


class DepthCache(RecurrentCache):
    """One layer for each of `depth` steps, with the keys and values of every token and, if halting depends on
    running means, the latest running sums; bytes grow with depth times context.

    Args:
        layers_per_step: of a step with several attentions; that of step t and layer l is at `t * layers_per_step + l`.
        outer_layers: of attentions before and after all steps, which come last.
    """

    is_croppable = True
    max_sums: int | None = MAX_CACHED_SUMS

    def __init__(self, depth: int, signature: str, layers_per_step: int = 1, outer_layers: Sequence[CacheLayer] = ()):
        steps = [DepthLayer() for _ in range(depth * layers_per_step)]
        super().__init__([*steps, *outer_layers], depth, signature)
        self.layers_per_step = layers_per_step

    def columns(self, number: int, device: torch.device) -> torch.Tensor:
        """Columns (N,) of so many new tokens."""
        return torch.arange(self.length, self.length + number, device=device)

    def view(self, mask: torch.Tensor, num_new: int, outer: slice | None = None) -> "DepthCacheView":
        """A view of the steps, or of some of the outer layers, for a pass over N tokens with this mask (B, P + N)."""
        number, layers_per_step = self.depth * self.layers_per_step, self.layers_per_step if outer is None else 1
        layers = self.layers[:number] if outer is None else self.layers[number:][outer]
        return DepthCacheView(
            [{} for _ in layers],
            mask[:, :-num_new].sum(-1),
            mask.shape[1] == num_new,
            cache=self,
            layers=layers,
            layers_per_step=layers_per_step,
            num_rows=mask.shape[0],
            num_columns=mask.shape[1],
            num_new=num_new,
        )

    def forget(self, number: int) -> None:
        """Forget the last tokens, in all layers that hold keys of tokens.

        Raises:
            ValueError: more tokens than there are running sums.
        """
        for layer in self.layers:
            if not isinstance(layer, DepthLayer):
                continue
            if number == self.length:
                layer.reset()
                continue
            if "sums" in layer.tensors and layer.tensors["sums"].shape[1] <= number:
                raise ValueError(
                    f"crop({-number}): running sums are cached for the last {MAX_CACHED_SUMS} tokens only; "
                    "crop fewer, or read the shorter context again"
                )
            kept = {}
            for name, tensor in layer.tensors.items():
                dim = 1 if name == "sums" else 2
                kept[name] = tensor.narrow(dim, 0, tensor.shape[dim] - number)
            # without buffers: tensors that were taken from the cache before would change with what is appended
            layer.replace(kept)

    def keep_for_crops(self) -> None:
        self.max_sums = None


@dataclass(kw_only=True)
class DepthCacheView(CacheView):
    """A view of some layers of a `DepthCache`, several of which may belong to one step."""

    cache: DepthCache
    layers: list[DepthLayer]
    layers_per_step: int
    num_rows: int  # B
    num_columns: int  # P + N
    num_new: int  # N

    @property
    def depth(self) -> int:
        return len(self.layers) // self.layers_per_step

    def layers_of(self, step: int) -> range:
        """Numbers of the layers of a step."""
        return range(step * self.layers_per_step, (step + 1) * self.layers_per_step)

    def new(self, states: torch.Tensor, dim: int = 1) -> torch.Tensor:
        """The new columns of states (B, P + N, ...), which are those states if there are no others."""
        return states if self.is_empty else states.narrow(dim, states.shape[dim] - self.num_new, self.num_new)

    def past(self, number: int) -> PastKeyValue | None:
        """Keys and values of earlier tokens in a layer, None if there are none."""
        if self.is_empty:
            return None
        layer = self.layers[number]
        # autograd may need the unchanged tensors
        grows = None if torch.is_grad_enabled() or in_graph() else layer
        return PastKeyValue(layer.tensors["keys"], layer.tensors["values"], layer=grows, rows=self.rows)

    def context(self, context: NamedTuple, step: int) -> NamedTuple:
        """The context of a step, with the keys and values of earlier tokens."""
        if self.is_empty:
            return context
        pasts = tuple(map(self.past, self.layers_of(step)))
        spreads = self.rows is not None and getattr(context, "spreads_queries", False)
        if spreads and len(self.rows) > MIN_SHARE_TO_SPREAD * self.num_rows:
            pasts = tuple(past._replace(whole=True) for past in pasts)
        return context._replace(past=pasts[0] if self.layers_per_step == 1 else pasts)

    def write(self, step: int, key: States, value: States, only_new: bool = False) -> None:
        """Keys and values of the view's rows after a step, those of earlier tokens included unless `only_new`.

        Those of each layer are in a tuple, or side by side as those of further heads.
        """
        self.num_written, number = step + 1, self.layers_per_step
        if not isinstance(key, tuple):
            key, value = ((each,) if number == 1 else each.chunk(number, dim=1) for each in (key, value))
        for layer, *pair in zip(self.layers_of(step), key, value, strict=True):
            draft = self.draft[layer]
            # attention to the keys of all rows has extended them
            if self.rows is not None and pair[0].shape[0] != self.num_rows:
                pair = [states[:, :, -self.num_new :] for states in pair]
                if "keys" in draft:
                    for name, states in zip(("keys", "values"), pair, strict=True):
                        draft[name][:, :, -self.num_new :].index_copy_(0, self.rows, states)
                    continue
                pair, only_new = [place(states, self.rows, self.num_rows) for states in pair], True
            if only_new and not self.is_empty:
                pair = self.past(layer)._replace(rows=None).extended(*pair)
            draft["keys"], draft["values"] = pair

    def write_new(self, step: int, key: States, value: States) -> None:
        """Keys and values (n, H, N, D) of the view's rows, those of new tokens alone."""
        self.write(step, key, value, only_new=True)

    def newest(self, step: int) -> tuple[tuple[torch.Tensor, ...], ...]:
        """Keys and values (n, H, N, D) of the view's rows after a step, of each of its layers."""
        drafts = [self.draft[number] for number in self.layers_of(step)]
        names = "keys", "values"
        return tuple(tuple(self.selected(self.new(each[name], 2)) for each in drafts) for name in names)

    def sums(self, step: int) -> torch.Tensor | None:
        """(n, F) sums over the cached tokens, None if there are none."""
        sums = self.layers[step].tensors.get("sums")
        return None if sums is None else self.selected(sums[:, -1])

    def write_sums(self, step: int, sums: torch.Tensor) -> None:
        """Sums (n, N, F) over each new token of the view's rows and those before it."""
        self.num_written_sums, draft = step + 1, self.draft[step]
        draft["sums"] = sums if self.rows is None else place(sums, self.rows, self.num_rows, draft.get("sums"))

    def commit(self) -> None:
        for layer, draft in zip(self.layers, self.draft, strict=True):
            if "sums" in draft:
                sums = torch.cat([each["sums"] for each in (layer.tensors, draft) if "sums" in each], dim=1)
                draft["sums"] = sums if self.cache.max_sums is None else sums[:, -self.cache.max_sums :]
            layer.tensors = {**layer.tensors, **draft}
        self.cache.length = self.num_columns
