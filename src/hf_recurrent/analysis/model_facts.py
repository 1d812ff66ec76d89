"""Facts about a model that its statistics depend on: one function for each question.

`config` is a model's configuration, `model` a model with or without a head.
"""

from typing import Any

from ..models.engine.base_model import DepthModel, SharedBlockModel
from ..models.engine.chunk_loop import ChunkRecurrentModel
from ..models.ops.attention import SelfAttention

# the stack of a model that has one, and those of a model that has two
MODEL, ENCODER, DECODER = "model", "encoder", "decoder"
# halting strategies by which every token halts by itself in any model
TOKEN_HALTING = ("token", "act", "act_universal")


def halting_strategy(config: Any) -> str:
    """The halting strategy; "none" where the depth is fixed."""
    return getattr(config, "halting", None) or "none"


def halts(config: Any) -> bool:
    """Whether inputs differ in the number of depth steps that they take."""
    return halting_strategy(config) != "none"


def halting_threshold(config: Any) -> float | None:
    """The halting mass at which a unit stops; None where the depth is fixed."""
    return getattr(config, "halting_threshold", None)


def adds_probabilities(halting: str) -> bool:
    """Whether a strategy is adaptive computation time, whose halting probabilities are unconditional and add up."""
    return halting.startswith("act")


def halting_unit(config: Any) -> str:
    """The unit that halts as a whole: "token", "chunk", "sentence" (of a pair) or "row"."""
    if config.token_units:
        return "token"
    if reads_chunks(config):
        return "chunk"
    return "sentence" if encodes_pairs_apart(config) else "row"


def stops_when_halted(config: Any) -> bool:
    """Whether a unit that has halted takes no further steps.

    Steps go on at full depth (`hard_stop` off), and where halted tokens are computed further, as in the reference of
    sparse models (`halted_tokens="released"`).
    """
    return config.hard_stop and getattr(config, "halted_tokens", "frozen") != "released"


def skips_halted_units(config: Any) -> bool:
    """Whether a unit that has halted needs no further block calls.

    Calls go on where running means count the candidates of halted tokens.
    """
    counts_candidates = getattr(config, "halted_candidates", False) and getattr(config, "running_mean", False)
    return stops_when_halted(config) and not counts_candidates


def evaluates_candidates(config: Any) -> bool:
    """Whether halting is decided from the block's output, which takes one call more than the accepted steps."""
    return bool(getattr(config, "transition_aware", False))


def encodes_pairs_apart(config: Any) -> bool:
    """Whether the two sentences of a pair are encoded as separate sequences."""
    return getattr(config, "pair_encoding", None) == "siamese"


def reads_chunks(config: Any) -> bool:
    """Whether a sequence is read chunk by chunk through a memory."""
    return hasattr(config, "chunking")


def chunks_depend_on_batch_width(config: Any) -> bool:
    """Whether the size of chunks follows from the padded width of a batch rather than from each sequence's length."""
    return config.chunking == "balanced"


def has_memory_slots(config: Any) -> bool:
    return hasattr(config, "num_memory_slots")


def has_state_vectors(config: Any) -> bool:
    """Whether gated state vectors are carried beside the keys and values of a window."""
    return bool(getattr(config, "recurrent_layers", None)) and hasattr(config, "num_state_vectors")


def window_size(config: Any) -> int | None:
    """Tokens of a window; None for models that do not read window by window."""
    return getattr(config, "window_size", None)


def block_length(config: Any) -> int | None:
    """Tokens of a window or chunk; None where a model has neither."""
    return window_size(config) or getattr(config, "chunk_size", None)


def has_constant_cache(model: Any) -> bool:
    """Whether the cache of a language model is of constant size, so that documents of any length can be read."""
    return hasattr(model.model, "new_cache") and not getattr(model.model, "cache_remembers_padding", False)


def has_two_stacks(config: Any) -> bool:
    """Whether a model is an encoder and a decoder."""
    return bool(getattr(config, "is_encoder_decoder", False))


def stack_depths(config: Any) -> dict[str, int]:
    """Maximum depth steps of each stack."""
    if has_two_stacks(config):
        return {ENCODER: config.num_hidden_layers, DECODER: config.num_decoder_layers}
    return {MODEL: config.num_hidden_layers}


def has_experts(config: Any) -> bool:
    return hasattr(config, "feed_forward_experts")


def has_attention(config: Any) -> bool:
    return hasattr(config, "num_attention_heads")


def applies_one_block(model: Any) -> bool:
    """Whether one block is applied to all tokens again and again, so that its steps can be compared."""
    return isinstance(model.base_model, SharedBlockModel) and isinstance(model.base_model, DepthModel)


def has_shared_block(model: Any) -> bool:
    """Whether depth steps share a block, rather than being layers of their own."""
    return hasattr(model.base_model, "block")


def writes_memory(model: Any) -> bool:
    """Whether the prediction is made of memory slots, which attend to each chunk's final states."""
    return isinstance(model.base_model, ChunkRecurrentModel)


def has_self_attention(model: Any) -> bool:
    """Whether whole sequences go through layers with the package's standard self-attention."""
    base = model.base_model
    return isinstance(base, DepthModel) and any(isinstance(module, SelfAttention) for module in base.modules())


def is_classifier(model: Any) -> bool:
    return hasattr(model, "classifier")


def has_compaction(config: Any) -> bool:
    """Whether halted units can be gathered out of the batch."""
    return getattr(config, "compaction", None) is not None
