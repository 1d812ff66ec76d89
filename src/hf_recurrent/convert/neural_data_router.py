"""Checkpoints of "The Neural Data Router" (RobertCsordas/ndr): all its Transformers, with and without gate and ACT.

Their END and BEGIN tokens, appended to the vocabulary, are EOS and BOS; their padding is a real token, so ours has
none.
"""

import torch

from ..models.ndr.configuration_ndr import NDRConfig
from ..models.ndr.modeling_ndr import NDRForSequenceClassification
from .renaming import load_renamed, our_names, rename

ATTENTIONS = {
    "absolute_sinusoidal": "absolute",
    "relative": "relative",
    "absrel_gated": "absolute_relative",
    "geometric+direction": "geometric",
}
HALTING = {None: "none", "A": "act", "U": "act_universal"}
READOUTS = {"last": "end", "first": "cls"}

KEYS_VALUES = r"trafo\.layer\.(?:self_attn|att)\.data_to_kv\.weight"
NAMES = {
    r"embedding\.weight": "model.embed_tokens.weight",
    r"output_map\.(\w+)": r"classifier.\1",
    r"trafo\.p_map\.(\w+)": r"model.halting_head.proj.\1",
    r"trafo\.layer\.(?:norm1|nmerge)\.(\w+)": r"model.block.attention_norm.\1",
    r"trafo\.layer\.(?:norm2|no)\.(\w+)": r"model.block.update_norm.\1",
    r"trafo\.layer\.(?:linear1|p1)\.(\w+)": r"model.block.feed_forward.up_proj.\1",
    r"trafo\.layer\.(?:linear2|p2)\.(\w+)": r"model.block.feed_forward.down_proj.\1",
    r"trafo\.layer\.g1\.(\w+)": r"model.block.gate.up_proj.\1",
    r"trafo\.layer\.g2\.(\w+)": r"model.block.gate.down_proj.\1",
}
ATTENTION_NAMES = {
    r"data_to_q\.weight": "model.block.attention.q_proj.weight",
    r"multi_head_merge\.weight": "model.block.attention.o_proj.weight",
    r"data_to_qp\.(\w+)": r"model.block.attention.direction.\1",
    r"data_to_absgate\.(\w+)": r"model.block.attention.distance_gate.\1",
    r"pos_to_pq\.weight": "model.position_keys.proj.weight",
    r"global_content_bias": "model.block.attention.content_bias",
    r"global_pos_bias": "model.block.attention.position_bias",
    r"scale": "model.block.attention.scale",
    r"scale_pos": "model.block.attention.direction_scale",
    r"s_bias": "model.block.attention.match_bias",
}
NAMES |= {r"trafo\.layer\.(?:self_attn|att)\." + theirs: ours for theirs, ours in ATTENTION_NAMES.items()}
# parameters that their code does not use
UNUSED = {
    "geometric": (r"trafo\.layer\.\w+\.pos_to_pq\.weight",),
    "relative": (r"trafo\.layer\.\w+\.s_bias", r"trafo\.layer\.n1\.\w+"),
    "absolute_relative": (r"trafo\.layer\.\w+\.s_bias", r"trafo\.layer\.n1\.\w+"),
    "absolute": (),
}


def chosen(config: dict, name: str, choices: dict):
    value = config.get(name)
    if value not in choices:
        raise ValueError(f"config.{name} is {value!r}: expected one of {', '.join(map(repr, choices))}")
    return choices[value]


def our_config(theirs: dict) -> NDRConfig:
    """Our config for a case of theirs, with the reference's mean over padding."""
    for name, expected in (("activation", "relu"), ("embedding_rows", theirs["vocab_size"] + 2)):
        if theirs[name] != expected:
            raise ValueError(f"config.{name} is {theirs[name]!r}: expected {expected!r}")
    halting = chosen(theirs, "act_variant", HALTING)
    fields = {
        "vocab_size": theirs["embedding_rows"],
        "hidden_size": theirs["d_model"],
        "num_attention_heads": theirs["n_heads"],
        "head_dim": theirs["d_head"],
        "intermediate_size": theirs["d_ff"],
        "num_hidden_layers": theirs["n_layers"],
        "layer_norm_eps": theirs["layer_norm_eps"],
        "attention": chosen(theirs, "positions", ATTENTIONS),
        "copy_gate": theirs["copy_gate"],
        "normalize_attention": theirs.get("normalize_attention", False),
        "pooling": chosen(theirs, "readout", READOUTS),
        "halting": halting,
        "num_labels": theirs["n_classes"],
        "problem_type": "single_label_classification",
        "pad_token_id": None,
        "eos_token_id": theirs["eos_id"],
        "bos_token_id": theirs["bos_id"],
    }
    if halting != "none":
        fields |= {
            "halting_threshold": theirs["act_threshold"],
            "ponder_loss_weight": theirs["act_loss_weight"],
            "padding_in_ponder_cost": True,
        }
    return NDRConfig(**fields)


def is_unused(name: str, attention: str) -> bool:
    return rename(name, dict.fromkeys(UNUSED[attention], "")) is not None


def load(case: dict, weights: dict[str, torch.Tensor]) -> tuple[NDRForSequenceClassification, dict[str, str]]:
    config = our_config(case["config"])
    model = NDRForSequenceClassification(config)
    plain = {name: tensor for name, tensor in weights.items() if not is_unused(name, config.attention)}
    split = {}
    for name in our_names(plain, {KEYS_VALUES: ""}):
        split |= keys_and_values(name, plain.pop(name), config)
    names = our_names(plain, NAMES)
    load_renamed(model, plain | split, names | {ours: ours for ours in split})
    return model.eval(), names


def keys_and_values(name: str, weight: torch.Tensor, config: NDRConfig) -> dict[str, torch.Tensor]:
    """Our two matrices from theirs, whose rows are keys and values of each head in turn."""
    expected = (2 * config.num_attention_heads * config.head_dim, config.hidden_size)
    if weight.shape != expected:
        raise ValueError(f"{name} is {tuple(weight.shape)}, expected {expected}")
    key, value = (rows.flatten(0, 1) for rows in weight.unflatten(0, (-1, 2, config.head_dim)).unbind(1))
    return {
        "model.block.attention.k_proj.weight": key,
        "model.block.attention.v_proj.weight": value,
    }
