"""Huginn (https://arxiv.org/abs/2502.05171): names of its parameters and config fields."""

import math
from collections.abc import Mapping
from typing import Any

import torch

from ..models.ops.positions import rotation_angles, rotation_table
from .original import Original, unchanged

# the authors' table of rotations, (1, positions, 1, planes, 2) cosines and sines
ROTATIONS = "freqs_cis"
# fields by which models of the same family differ -> their values in Huginn, which are those of its config class, too
OWN_FORM = {
    "architecture_class_name": "RecurrentGPT",
    "block_class_name": "SandwichBlock",
    "norm_class_name": "RMSNorm_llama",
    "mlp_class_name": "GatedMLP",
    "nonlin_name": "SiLU",
    "injection_type": "linear",
    "qk_norm": False,
    "initial_state_mode": "random",
    "test_time_noise": 0,
    "rope_type": "default",
}


def check_form(theirs: Mapping[str, Any]) -> dict[str, Any]:
    """No further fields of our config.

    Raises:
        ValueError: a field that says what ours cannot.
    """
    width, heads = theirs.get("n_embd", 5280), theirs.get("n_heads", 55)
    scale = (theirs.get("init_values") or {}).get("embed_scale", math.sqrt(width))
    rotations = theirs.get("rope_parameters") or theirs.get("rope_scaling") or {}
    found = {**theirs, "embed_scale": round(scale, 2), "rope_type": rotations.get("rope_type", "default")}
    derived = {"num_key_value_heads": heads, "head_dim": width // heads, "embed_scale": round(math.sqrt(width), 2)}
    for name, value in (OWN_FORM | derived).items():
        if found.get(name) not in (None, value):
            raise ValueError(
                f"config field `{name}` is {found[name]!r}, but {value!r} in a Huginn: this package does not "
                "compute other models of type huginn_raven; load the checkpoint with the code of its authors"
            )
    return {}


def number_of_layers(config: Any) -> dict[str, int]:
    """Their field with the layers of all parts.

    Raises:
        ValueError: heads that do not divide the width.
    """
    if config.num_attention_heads * config.head_dim != config.hidden_size:
        raise ValueError(
            f"config field `head_dim` is {config.head_dim}: {config.num_attention_heads} heads of Huginn divide "
            f"hidden_size ({config.hidden_size})"
        )
    return {"n_layers": config.prelude_layers + config.layers_per_step + config.coda_layers}


def rotation_tensors(config: Any) -> dict[str, torch.Tensor]:
    positions = torch.arange(config.max_position_embeddings)[None]
    table = rotation_table(rotation_angles(positions, config.head_dim, config.rope_theta))
    return {ROTATIONS: torch.view_as_real(table)}


HUGINN = Original(
    model_type="huginn_raven",
    ours="huginn_recurrent",
    prefix="Raven",
    base="transformer.",
    fields={
        "n_embd": "hidden_size",
        "n_heads": "num_attention_heads",
        "block_size": "max_position_embeddings",
        "tie_embeddings": "tie_word_embeddings",
        "bias": "adapter_bias",
        "norm_eps": "layer_norm_eps",
        "n_layers_in_prelude": "prelude_layers",
        "n_layers_in_recurrent_block": "layers_per_step",
        "n_layers_in_coda": "coda_layers",
        "mean_recurrence": "num_hidden_layers",
        "mean_backprop_depth": "backprop_steps",
        "rope_base": "rope_theta",
        **unchanged("vocab_size", "intermediate_size", "qk_bias"),
    },
    names={
        "transformer.wte.": "model.embed_tokens.",
        "transformer.prelude.": "model.prelude.",
        "transformer.adapter.": "model.block.adapter.",
        "transformer.core_block.": "model.block.layers.",
        "transformer.coda.": "model.coda.",
        "transformer.ln_f.": "model.norm.",
        ".norm_1.": ".attention_norm.",
        ".norm_2.": ".attended_norm.",
        ".norm_3.": ".feed_forward_norm.",
        ".norm_4.": ".fed_norm.",
        ".attn.Wqkv.": ".attention.qkv_proj.",
        ".attn.qk_bias": ".attention.qk_bias.weight",
        ".attn.proj.": ".attention.o_proj.",
        ".mlp.fc.": ".feed_forward.up_proj.",
        ".mlp.proj.": ".feed_forward.down_proj.",
    },
    head_names=("lm_head.",),
    read=check_form,
    write=number_of_layers,
    computed=rotation_tensors,
)
