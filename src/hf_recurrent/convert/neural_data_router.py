"""Checkpoints of "The Neural Data Router" (RobertCsordas/ndr): all its Transformers, with and without gate and ACT.

Their END and BEGIN tokens, appended to the vocabulary, are EOS and BOS; their padding is a real token, so ours has
none.
"""

import re

import torch

from ..models.ndr.configuration_ndr import NDRConfig
from ..models.ndr.modeling_ndr import NDRForSequenceClassification
from .loading import Prepared, one_of, rename

ATTENTIONS = {
    "absolute_sinusoidal": "absolute",
    "relative": "relative",
    "absrel_gated": "absolute_relative",
    "geometric+direction": "geometric",
}
HALTING = {None: "none", "A": "act", "U": "act_universal"}
READOUTS = {"last": "end", "first": "cls"}
FIELDS = {
    "embedding_rows": "vocab_size",
    "d_model": "hidden_size",
    "n_heads": "num_attention_heads",
    "d_head": "head_dim",
    "d_ff": "intermediate_size",
    "n_layers": "num_hidden_layers",
    "layer_norm_eps": "layer_norm_eps",
    "copy_gate": "copy_gate",
    "n_classes": "num_labels",
    "eos_id": "eos_token_id",
    "bos_id": "bos_token_id",
}
HALTING_FIELDS = {"act_threshold": "halting_threshold", "act_loss_weight": "ponder_loss_weight"}

NAMES = {
    r"^embedding\.": "model.embed_tokens.",
    r"^output_map\.": "classifier.",
    r"^trafo\.p_map\.": "model.halting_head.proj.",
    r"^trafo\.layer\.\w+\.pos_to_pq\.": "model.position_keys.proj.",
    r"^trafo\.layer\.": "model.block.",
    r"\.(?:norm1|nmerge)\.": ".attention_norm.",
    r"\.(?:norm2|no)\.": ".update_norm.",
    r"\.(?:linear1|p1)\.": ".feed_forward.up_proj.",
    r"\.(?:linear2|p2)\.": ".feed_forward.down_proj.",
    r"\.g1\.": ".gate.up_proj.",
    r"\.g2\.": ".gate.down_proj.",
    r"\.(?:self_attn|att)\.": ".attention.",
    r"\.data_to_([qkv])\.": r".\1_proj.",
    r"\.multi_head_merge\.": ".o_proj.",
    r"\.data_to_qp\.": ".direction.",
    r"\.data_to_absgate\.": ".distance_gate.",
    r"\.global_content_bias$": ".content_bias",
    r"\.global_pos_bias$": ".position_bias",
    r"\.scale_pos$": ".direction_scale",
    r"\.s_bias$": ".match_bias",
}
# parameters that some of their models have and do not use
UNUSED = r"\.pos_to_pq\.weight$|\.s_bias$|\.n1\."


def our_config(theirs: dict) -> NDRConfig:
    """Our config for a case of theirs, with the reference's mean over padding."""
    one_of(theirs, "activation", ["relu"])
    one_of(theirs, "embedding_rows", [theirs["vocab_size"] + 2])
    halting = HALTING[one_of(theirs, "act_variant", HALTING)]
    halts = halting != "none"
    names = FIELDS | HALTING_FIELDS if halts else FIELDS
    return NDRConfig(
        **{ours: theirs[name] for name, ours in names.items()},
        **({"padding_in_ponder_cost": True} if halts else {}),
        attention=ATTENTIONS[one_of(theirs, "positions", ATTENTIONS)],
        normalize_attention=theirs.get("normalize_attention", False),
        pooling=READOUTS[one_of(theirs, "readout", READOUTS)],
        halting=halting,
        problem_type="single_label_classification",
        pad_token_id=None,
    )


def prepare(case: dict, weights: dict[str, torch.Tensor]) -> Prepared:
    model = NDRForSequenceClassification(our_config(case["config"]))
    parameters, tensors = dict(model.named_parameters()), {}
    for name, tensor in weights.items():
        if name.endswith("data_to_kv.weight"):
            # rows are keys and values of each head in turn
            rows = tensor.split(model.config.head_dim)
            for kind, first in (("k", 0), ("v", 1)):
                tensors[name.replace("_kv.", f"_{kind}.")] = torch.cat(rows[first::2])
        elif not re.search(UNUSED, name) or rename(name, NAMES) in parameters:
            tensors[name] = tensor
    return model, NAMES, tensors
