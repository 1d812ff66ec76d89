"""Where the units that are still computing sit in memory, and how the finished ones leave: what both layouts share.

* `PaddedLayout` holds rows of a rectangle. Rows that halt are gathered out, and with them the columns only they used.
* `PackedLayout` holds live tokens only, packed (N, E). Keys and values of halted tokens stay behind, frozen.

The depth loop knows nothing of either. Layouts are immutable: `compact` returns a new one.
Shapes: R rows present, W columns present, N tokens present, E width, F features; a batch has B rows and S columns, and
its tokens are numbered `b * S + s`.
"""

from typing import NamedTuple

import torch
from transformers.masking_utils import create_bidirectional_mask

from .attention import KeyValue
from .halting import HaltingState, soft_state


class Finished(NamedTuple):
    """Units that left the loop."""

    units: torch.Tensor  # (n,) row or token numbers
    soft_state: torch.Tensor  # (n, S, E) or (n, E)
    ponder_cost: torch.Tensor  # (n,)
    steps: torch.Tensor  # (n,)


def key_mask(config, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor | None:
    """The implementation's padding mask over keys, for any number of queries: (R, W, E), (R, W) -> (R, 1, 1, W)."""
    return create_bidirectional_mask(
        config=config, inputs_embeds=states[:, :1], encoder_hidden_states=states, attention_mask=mask
    )


def masked_mean(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean over valid tokens (Eq. 14): (R, W, E), (R, W) -> (R, E)."""
    total = torch.bmm(mask[:, None].to(states.dtype), states).squeeze(1)
    return (total.float() / mask.sum(-1, keepdim=True)).to(total.dtype)


def running_sums(states: torch.Tensor, mask: torch.Tensor, before: torch.Tensor | None = None) -> torch.Tensor:
    """Sums over each token and those before it, from the sums (R, F) `before` the first: (R, W, F) in float32."""
    states = torch.where(mask[..., None], states, 0.0).float()
    if before is not None:
        states = torch.cat((states[:, :1] + before[:, None], states[:, 1:]), dim=1)
    return states.cumsum(1)


def seen_states(config, state: HaltingState, candidate: torch.Tensor | None) -> torch.Tensor:
    """What the halting head judges by, before any mean: the running states and, side by side, the candidates."""
    if candidate is None:
        return state.hidden
    if config.running_mean and not config.halted_candidates:
        # a halted token keeps its state, so that is what the tokens after it find
        candidate = torch.where(state.live[..., None], candidate, state.hidden)
    return torch.cat((state.hidden, candidate), dim=-1)


def attended_state(config, state: HaltingState) -> torch.Tensor:
    """Where keys and values come from: the soft state (Algorithm 1), or the running state (Algorithm 3)."""
    return soft_state(state) if config.halting == "token" else state.hidden


def used_columns(mask: torch.Tensor) -> tuple[int, int]:
    """The narrowest range of columns that holds every valid token of (R, W)."""
    columns = mask.any(0).nonzero().squeeze(-1)
    return int(columns[0]), int(columns[-1]) + 1


def select_units(state: HaltingState, index: torch.Tensor) -> HaltingState:
    return HaltingState(*(tensor.index_select(0, index) for tensor in state))


def select_memory(memory: KeyValue | torch.Tensor | None, rows: torch.Tensor) -> KeyValue | torch.Tensor | None:
    """Of slots (B, M, E), or their projection, those of `rows` (n,)."""
    if memory is None:
        return None
    return memory.select(rows) if isinstance(memory, KeyValue) else memory.index_select(0, rows)
