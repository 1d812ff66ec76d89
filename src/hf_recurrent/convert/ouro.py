"""Ouro (https://arxiv.org/abs/2510.25741): names of its parameters and config fields."""

from collections.abc import Mapping
from typing import Any

from .original import Original, unchanged

FULL, SLIDING = "full_attention", "sliding_attention"


def our_choices(theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of our config about rotations and windows, of which their configs say in several what one of ours does.

    Raises:
        ValueError: a field that says what ours cannot.
    """
    if theirs.get("early_exit_step") is not None:
        raise ValueError(
            f"config field `early_exit_step` is {theirs['early_exit_step']}: pass max_depth in a call, or "
            "num_hidden_layers here, one more than that; and leave it out"
        )
    rotations = dict(theirs.get("rope_parameters") or theirs.get("rope_scaling") or {})
    rotations.setdefault("rope_type", rotations.pop("type", "default"))
    fields = {"rope_theta": rotations.pop("rope_theta", theirs["rope_theta"])}
    if rotations["rope_type"] != "default":
        fields["rotary_scaling"] = rotations
    if theirs["use_sliding_window"]:
        number, first = theirs["num_hidden_layers"], theirs["max_window_layers"]
        kinds = theirs.get("layer_types") or [FULL if layer < first else SLIDING for layer in range(number)]
        fields["sliding_window"] = theirs["sliding_window"]
        fields["sliding_layers"] = [layer for layer, kind in enumerate(kinds) if kind == SLIDING]
    return fields


def their_choices(config: Any) -> dict[str, Any]:
    """The inverse of `our_choices`.

    Raises:
        ValueError: the model has no exit gate.
    """
    if config.halting == "none":
        raise ValueError("the model has halting='none', and so no exit gate, which an Ouro has: load it with its gate")
    slides = config.sliding_layers
    fields = {"rope_scaling": config.rotary_scaling, "use_sliding_window": bool(slides)}
    if slides:
        kinds = [SLIDING if layer in slides else FULL for layer in range(config.layers_per_step)]
        fields |= {"sliding_window": config.sliding_window, "layer_types": kinds}
    return fields


OURO = Original(
    model_type="ouro",
    ours="ouro_recurrent",
    prefix="Ouro",
    base="model.",
    fields={
        "total_ut_steps": "num_hidden_layers",
        "num_hidden_layers": "layers_per_step",
        "early_exit_threshold": "halting_threshold",
        "rms_norm_eps": "layer_norm_eps",
        **unchanged("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"),
        **unchanged("head_dim", "hidden_act", "max_position_embeddings", "initializer_range", "rope_theta"),
        **unchanged("attention_dropout", "tie_word_embeddings"),
    },
    # of the authors' config class, whose config.json leaves out what is as by default
    defaults={
        **{"vocab_size": 151_936, "hidden_size": 4096, "intermediate_size": 22_016, "num_hidden_layers": 32},
        **{"num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 32_768},
        **{"rope_theta": 10_000.0, "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28},
    },
    names={
        "model.layers.": "model.block.layers.",
        "model.norm.": "model.block.norm.",
        "model.early_exit_gate.": "model.halting_head.proj.",
        ".input_layernorm.": ".attention_norm.",
        ".input_layernorm_2.": ".attended_norm.",
        ".post_attention_layernorm.": ".feed_forward_norm.",
        ".post_attention_layernorm_2.": ".fed_norm.",
        ".self_attn.": ".attention.",
        ".mlp.": ".feed_forward.",
    },
    head_names=("lm_head.",),
    # with halting="none"
    may_leave=("model.halting_head.",),
    read=our_choices,
    write=their_choices,
)
