"""Random configs, by rule from the fields of the config classes."""

import collections
import dataclasses
import math
import random
import re
import types
import typing

from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig

from hf_recurrent.models.config.base import RecurrentConfig

# what the fields begin with, so that each may be drawn by itself: sizes that fit each other
SMALL = {
    "vocab_size": 12,
    "hidden_size": 8,
    "num_attention_heads": 2,
    "head_dim": 4,
    "intermediate_size": 8,
    "num_hidden_layers": 4,
    "embedding_size": 8,
    "num_memory_cells": 3,
    "memory_cell_size": 4,
    "num_read_heads": 2,
    "chunk_size": 3,
    "num_chunks": 3,
    "num_memory_slots": 2,
    "num_state_vectors": 2,
    "window_size": 2,
    "memory_size": 4,
    "num_neighbors": 2,
    "attention_experts": 3,
    "attention_experts_per_token": 2,
    "feed_forward_experts": 3,
    "feed_forward_experts_per_token": 2,
    "relative_window": 2,
    "relative_attention_num_buckets": 4,
    "relative_attention_max_distance": 5,
    "xpos_scale_base": 8,
    "decoder_start_token_id": 3,
    "initial_state": "zero",
}
# whole numbers that are drawn from elsewhere than 1 to 4
WHOLE = {
    "vocab_size": (5, 16),
    "hidden_size": (2, 16),
    "head_dim": (2, 8),
    "intermediate_size": (1, 16),
    "num_hidden_layers": (1, 7),
    "chunk_size": (1, 6),
    "num_chunks": (1, 6),
    "window_size": (1, 6),
    "memory_size": (1, 12),
    "attention_router_samples": (0, 2),
    "exit_probe_size": (0, 4),
    "relative_window": (0, 6),
    "relative_attention_num_buckets": (2, 8),
    "relative_attention_max_distance": (2, 12),
    "pad_token_id": (0, 4),
    "bos_token_id": (0, 4),
    "eos_token_id": (0, 4),
    "xpos_scale_base": (1, 600),
    "max_position_embeddings": (64, 80),
}
# numbers that are drawn from elsewhere than 0 to 1
REAL = {
    "layer_norm_eps": (1e-6, 1e-2),
    "halting_bias_init": (-3.0, 0.0),
    "gate_bias_init": (-3.0, 3.0),
    "state_gate_bias_init": (-2.0, 2.0),
    "attention_scale_init": (0.5, 4.0),
    "halting_threshold": (0.5, 1.0),
    "initializer_range": (0.01, 0.9),
}
# the record of a calibration is checked against files; what a call draws at random is no invariance
NOT_DRAWN = {"exit_calibration", "initial_state"}
# the share of fields that are drawn, rather than as they are by default or in `SMALL`
DRAWN_SHARE = 0.4


def own_fields(config_class: type) -> dict[str, object]:
    """Types of this package's own fields, but for those that have one value alone."""
    ours = [cls for cls in config_class.__mro__ if cls.__module__.startswith("hf_recurrent.")]
    names = {name for cls in ours if cls is not RecurrentConfig for name in cls.__annotations__}
    names |= RecurrentConfig.__annotations__.keys() - PreTrainedConfig.__annotations__.keys()
    kinds = {field.name: field.type for field in dataclasses.fields(config_class) if field.name in names}
    return {name: kind for name, kind in kinds.items() if not is_constant(kind)}


def is_constant(kind: object) -> bool:
    return typing.get_origin(kind) is typing.Literal and len(typing.get_args(kind)) == 1


def plain_types(kind: object) -> tuple:
    """The types that a field may have, without annotations of their ranges."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return plain_types(arguments[0])
    if origin in (types.UnionType, typing.Union):
        return tuple(each for argument in arguments for each in plain_types(argument))
    return (kind,)


def drawn_value(name: str, kind: object, rng: random.Random) -> object:
    """A random value of a field's type, which other fields may not allow.

    Raises:
        TypeError: there is no rule for the type.
    """
    kinds = plain_types(kind)
    if type(None) in kinds and rng.random() < 0.3:
        return None
    if dict in kinds:
        return {"rope_type": "linear", "factor": round(rng.uniform(1.0, 8.0), 3)}
    if any(typing.get_origin(each) is list for each in kinds):
        return [rng.randint(-2, 4) for _ in range(rng.randint(0, 2))]
    if typing.get_origin(kinds[0]) is typing.Literal:
        return rng.choice(typing.get_args(kinds[0]))
    if bool in kinds:
        return rng.random() < 0.5
    if float in kinds:
        low, high = REAL.get(name, (0.0, 0.9))
        return rng.choice((low, high)) if rng.random() < 0.1 else round(rng.uniform(low, high), 6)
    if int in kinds:
        return rng.randint(*WHOLE.get(name, (1, 4)))
    raise TypeError(f"field {name} is a {kind}: state how such a value is drawn")


def drawn_fields(config_class: type, rng: random.Random, refused: collections.Counter, fixed: dict) -> dict:
    """Random fields that the config allows; draws that it refuses are taken back, and counted in `refused`.

    Args:
        fixed: fields with given values.
    """
    kinds = own_fields(config_class)
    base = {name: value for name, value in SMALL.items() if name in kinds}
    names = [name for name in kinds if name not in {*fixed, *NOT_DRAWN} and rng.random() < DRAWN_SHARE]
    drawn = {name: drawn_value(name, kinds[name], rng) for name in names}
    while True:
        fields = {**base, **drawn, **fixed}
        try:
            config_class(**fields)
        except (ValueError, StrictDataclassError) as error:
            named = [name for name in re.findall(r"\w+", str(error)) if name in drawn]
            if not drawn:
                raise
            culprit = named[0] if named else rng.choice(list(drawn))
            refused[culprit] += 1
            del drawn[culprit]
        else:
            return fields


def drawn_options(case_config, rng: random.Random) -> dict:
    """Random arguments of a forward call that say how deep it goes; a model may refuse them."""
    if case_config.capabilities.exit_criterion is None or rng.random() < 0.4:
        return {}
    kinds = own_fields(type(case_config))
    options = {}
    if rng.random() < 0.4:
        options["max_depth"] = rng.randint(1, case_config.num_hidden_layers + 2)
    if rng.random() < 0.5:
        names = ("exit_criterion", "exit_threshold", "exit_patience", "min_depth")
        drawn = {name: drawn_value(name, kinds[name], rng) for name in names if rng.random() < 0.7}
        if "exit_threshold" in drawn and drawn["exit_threshold"] is not None:
            # relative changes may be above one
            drawn["exit_threshold"] = round(math.exp(rng.uniform(-6.0, 0.5)), 6)
        options.update(drawn)
    elif rng.random() < 0.5:
        options["halting_threshold"] = drawn_value("halting_threshold", float, rng)
    return options
