"""Questions about a model's architecture that training and its cards depend on, one function each."""

from typing import Any

from ..registry import ARCHITECTURES


def depth_objection(config: Any) -> str | None:
    """The reason why a model cannot be evaluated with another number of depth steps, None if it can."""
    halting = getattr(config, "halting", None)
    if halting == "none":
        return None
    return "whose layers are not shared" if halting is None else f"which halts by itself (halting={halting!r})"


def chunk_settings(config: Any) -> dict[str, Any] | None:
    """Config fields of a model that computes chunk by chunk or window by window; None if it takes whole sequences."""
    if hasattr(config, "window_size"):
        names = ("window_size", *(("num_state_vectors",) if config.recurrent_layers else ()))
        return {name: getattr(config, name) for name in names}
    chunking = getattr(config, "chunking", None)
    if chunking is None:
        return None
    size = "num_chunks" if chunking == "count" else "chunk_size"
    return {name: getattr(config, name) for name in ("chunking", size, "num_memory_slots")}


def window_size(config: Any) -> int | None:
    """Tokens of a window, None for a model without windows."""
    return getattr(config, "window_size", None)


def has_constant_state(model: Any) -> bool:
    """Whether the cache of a model stays of one size, however long the text is."""
    return not model.model.cache_remembers_padding


def architectures_with_constant_state() -> list[str]:
    """The names of architectures whose models have a constant state."""
    return [
        name for name, family in ARCHITECTURES.items() if not family.model_class("AutoModel").cache_remembers_padding
    ]


def needs_whole_text(config: Any) -> bool:
    """Whether chunks are cut by the length of the whole text, so that it cannot be passed in segments."""
    return getattr(config, "chunking", "fixed") != "fixed"


def encodes_pairs_apart(config: Any) -> bool:
    """Whether the sentences of a pair are encoded one by one, in a batch of twice the size."""
    return getattr(config, "pair_encoding", "joint") == "siamese"


def has_ponder_loss(config: Any) -> bool:
    """Whether the loss has a ponder loss, weighted by `config.ponder_loss_weight`."""
    return hasattr(config, "ponder_loss_weight")


def halting_threshold(config: Any) -> float | None:
    """The halting probability at which units stop, None for a model without a threshold."""
    return getattr(config, "halting_threshold", None)


def repeated_parameters(model: Any) -> int | None:
    """Parameters of the block that is executed at each depth step, None if layers are not shared."""
    block = getattr(model.base_model, "block", None)
    return None if block is None else sum(parameter.numel() for parameter in block.parameters())
