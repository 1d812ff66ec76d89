"""Tables of config fields: names, defaults and meanings as the classes have them, and papers' symbols."""

import dataclasses
from typing import Any

import torch
from transformers.configuration_utils import PreTrainedConfig

from hf_recurrent import ARCHITECTURES
from hf_recurrent.models.config.base import RecurrentConfig
from hf_recurrent.models.config.depth import AdaptiveDepthConfig
from hf_recurrent.models.config.fields import descriptions

from .tables import table

# classes whose fields every page would repeat; a page has those of them that differ in its architecture
COMMON = {"RecurrentConfig": RecurrentConfig, "AdaptiveDepthConfig": AdaptiveDepthConfig}
# of the common classes, what every page has all the same
ALWAYS = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "dropout"),
    *("halting_threshold", "hard_stop", "compaction"),
)
DYNAMIC_HALT = {
    "hidden_size": "d",
    "num_hidden_layers": "L",
    "intermediate_size": "d_{ff}",
    "gate_intermediate_size": "d_{gff}",
    "num_attention_heads": "h",
    "halting_threshold": r"\alpha_{thresh}",
    "ponder_loss_weight": r"\gamma",
    "chunk_size": "g",
    "num_chunks": "k",
    "num_memory_slots": "m",
    "num_memory_layers": "U",
}
SYMBOLS = {
    **dict.fromkeys(("xpos_transformer", "ut", "gut", "tlb", "gutlb"), DYNAMIC_HALT),
    "ndr": {
        "hidden_size": "d_{model}",
        "intermediate_size": "d_{FF}",
        "num_attention_heads": "n_{heads}",
        "num_hidden_layers": "n_{layers}",
    },
    "rnn": {"hidden_size": "d_{model}", "num_memory_cells": "M", "memory_cell_size": "W", "num_read_heads": "R"},
    "block_recurrent": {
        "window_size": "W",
        "num_state_vectors": "S",
        "num_neighbors": "k",
        "memory_size": "M",
    },
    "sut": {
        "attention_experts": "E",
        "attention_experts_per_token": "k",
        "num_attention_heads": "H",
        "head_dim": "D",
        "relative_window": "W",
        "halting_threshold": r"\alpha_{thresh}",
        "num_hidden_layers": "L",
    },
    "albert_recurrent": {"embedding_size": "E", "hidden_size": "H", "num_hidden_layers": "L"},
    "ouro_recurrent": {
        "num_hidden_layers": "T_{max}",
        "layers_per_step": "N",
        "halting_threshold": "q",
        "depth_prior_weight": r"\beta",
    },
    "huginn_recurrent": {
        "hidden_size": "h",
        "prelude_layers": "l_P",
        "layers_per_step": "l_R",
        "coda_layers": "l_C",
        "num_hidden_layers": r"\bar r",
        "backprop_steps": "k",
    },
}


def owner(config_class: type, name: str) -> type:
    """The class that declares a field first."""
    return next(parent for parent in reversed(config_class.__mro__) if name in vars(parent).get("__annotations__", {}))


def declared(config_class: type) -> dict[str, Any]:
    """Field -> default of a class of ours; None where a new config fills it in. Without those of every config."""
    ours = [parent for parent in config_class.__mro__ if issubclass(parent, RecurrentConfig)]
    everywhere = {RecurrentConfig: PreTrainedConfig.__dataclass_fields__.keys()}
    names = {name for each in ours for name in vars(each).get("__annotations__", {}).keys() - everywhere.get(each, ())}
    return {field.name: default_of(field) for field in dataclasses.fields(config_class) if field.name in names}


def default_of(field: dataclasses.Field) -> Any:
    return field.default_factory() if field.default is dataclasses.MISSING else field.default


def fields_shown(model_type: str) -> dict[str, Any]:
    """The fields on the page of an architecture: all but common ones with their common default and description."""
    config_class = ARCHITECTURES[model_type].config_class
    explained, shown = descriptions(config_class), {}
    for name, default in declared(config_class).items():
        first = owner(config_class, name)
        own = first not in COMMON.values() or name in ALWAYS
        if own or default != declared(first)[name] or explained[name] != descriptions(first)[name]:
            shown[name] = default
    return shown


def default_text(model_type: str, name: str, default: Any) -> str:
    """A default as code, and what a new config fills in for a None."""
    filled = getattr(ARCHITECTURES[model_type].config_class(), name)
    if default is None and filled is not None:
        shown = f"{filled:.4g}" if isinstance(filled, float) else repr(filled)
        return f"`None`: `{shown}`"
    return f"`{default!r}`"


def own_fields(model_type: str) -> str:
    config_class = ARCHITECTURES[model_type].config_class
    explained, symbols = descriptions(config_class), SYMBOLS.get(model_type, {})
    return table(
        ["field", "default", "symbol", "meaning"],
        (
            (
                f"`{name}`",
                default_text(model_type, name, default),
                f"${symbols[name]}$" if name in symbols else "",
                explained[name],
            )
            for name, default in fields_shown(model_type).items()
        ),
    )


def common_fields(class_name: str) -> str:
    config_class = COMMON[class_name]
    explained = descriptions(config_class)
    return table(
        ["field", "default", "meaning"],
        (
            (f"`{name}`", f"`{default!r}`", explained[name])
            for name, default in declared(config_class).items()
            if owner(config_class, name) is config_class
        ),
    )


def presets(model_type: str) -> str:
    """The named sizes of an architecture, and the named halting of its paper."""
    architecture = ARCHITECTURES[model_type]
    config_class, model_class = architecture.config_class, architecture.model_class("AutoModel")
    rows = []
    for name, fields in {**config_class.presets, **config_class.papers}.items():
        with torch.device("meta"):
            parameters = model_class(config_class.preset(name)).num_parameters()
        changes = ", ".join(f"`{field}={value}`" for field, value in fields.items()) or "none: the defaults"
        rows.append((f"`{name}`", changes, f"{parameters:,}"))
    return table(["preset", "fields that differ from the defaults", f"parameters of `{model_class.__name__}`"], rows)
