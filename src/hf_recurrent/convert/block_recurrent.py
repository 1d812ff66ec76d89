"""Checkpoints of "Block-Recurrent Transformers" (google-research/meliad): all gates and updates, feedback, and the
sliding window, Transformer-XL and Memorizing Transformer.

Their kernels are [in, out], ours [out, in]; their padding is a real token, so ours has none.
"""

import torch

from ..models.block_recurrent.configuration_block_recurrent import BlockRecurrentConfig
from ..models.block_recurrent.modeling_block_recurrent import BlockRecurrentForCausalLM
from .renaming import load_renamed, our_names

# the release of 2022 divides logits by another root, and has signed scales and position biases in the memory layer
RELEASE_OF_2022 = "e8af054"
DIVISORS = {"sqrt(embedding_size)": "hidden_size", "sqrt(vocab_size)": "vocab_size"}
# choices that our models always make
FIXED = {
    "position_bias": "t5",
    "t5_bidirectional": False,
    "qk_norm_eps": 1e-6,
    "tie_embeddings": True,
    "activation": "relu",
}

TOKENS = r"transformer(\d+)\.tbase\."
STATES = r"transformer(\d+)\.recurrent_tbase\."
OUR_TOKENS, OUR_STATES = r"model.layers.\1.", r"model.layers.\1.state_cell."
NAMES = {
    r"embed\.embedding": "model.embed_tokens.weight",
    r"final_layernorm\.scale": "model.final_norm.weight",
    r"transformer(\d+)\.relative_positions\.rel_embedding": OUR_TOKENS + "attention.position_bias.table.weight",
    r"transformer(\d+)\.external_memory_bias": OUR_TOKENS + "attention.memory.share.weight",
    r"transformer(\d+)\.recurrent_initial_state": OUR_STATES + "initial_state.weight",
    TOKENS + r"_kvq\.pre_attn_layernorm\.scale": OUR_TOKENS + "attention_norm.weight",
    TOKENS + r"_kvq\.attention_scale": OUR_TOKENS + "attention.scales.weight",
    TOKENS + r"_kvq\.keys_layer\.kernel": OUR_TOKENS + "attention.k_proj.weight",
    TOKENS + r"_kvq\.values_layer\.kernel": OUR_TOKENS + "attention.v_proj.weight",
    TOKENS + r"_kvq\.queries_layer\.kernel": OUR_TOKENS + "attention.q_proj.weight",
    TOKENS + r"_kvq\.queries2_layer\.kernel": OUR_TOKENS + "attention.state_q_proj.weight",
    TOKENS + r"attention_scale2": OUR_TOKENS + "attention.state_scales.weight",
    TOKENS + r"post_attn_mlp\.output_layer\.kernel": OUR_TOKENS + "attention.o_proj.weight",
    TOKENS + r"pre_ffn_layernorm\.scale": OUR_TOKENS + "feed_forward_norm.weight",
    TOKENS + r"ffn\.hidden0\.kernel": OUR_TOKENS + "up_proj.weight",
    TOKENS + r"ffn\.output_layer\.kernel": OUR_TOKENS + "down_proj.weight",
    STATES + r"_kvq\.pre_attn_layernorm\.scale": OUR_STATES + "norm.weight",
    STATES + r"_kvq\.position_embeddings": OUR_STATES + "ids.weight",
    STATES + r"_kvq\.attention_scale": OUR_STATES + "scales.weight",
    STATES + r"_kvq\.keys_layer\.kernel": OUR_STATES + "k_proj.weight",
    STATES + r"_kvq\.values_layer\.kernel": OUR_STATES + "v_proj.weight",
    STATES + r"_kvq\.queries_layer\.kernel": OUR_STATES + "q_proj.weight",
    STATES + r"_kvq\.queries2_layer\.kernel": OUR_STATES + "token_q_proj.weight",
    STATES + r"attention_scale2": OUR_STATES + "token_scales.weight",
    STATES + r"pre_ffn_layernorm\.scale": OUR_STATES + "feed_forward_norm.weight",
    STATES + r"ffn\.hidden0\.kernel": OUR_STATES + "up_proj.weight",
}
GATES = {
    r"output_layer\.kernel": "proj.weight",
    r"gate_bias": "bias.weight",
    r"(forget_gate|input_gate)\.kernel": r"\2.weight",
    r"(forget_gate|input_gate)\.bias": r"\2.bias",
}
for _theirs, _ours in (("post_attn_mlp", "attention_gate"), ("ffn", "feed_forward_gate")):
    NAMES |= {rf"{STATES}{_theirs}\.{name}": f"{OUR_STATES}{_ours}.{our}" for name, our in GATES.items()}


def our_config(case: dict) -> BlockRecurrentConfig:
    theirs = case["config"]
    for name, expected in FIXED.items():
        if theirs.get(name, expected) != expected:
            raise ValueError(f"config.{name} is {theirs[name]!r}: expected {expected!r}")
    divisor = theirs["logits_divisor"]
    if divisor not in DIVISORS:
        raise ValueError(f"config.logits_divisor is {divisor!r}: expected one of {', '.join(map(repr, DIVISORS))}")
    early = str(case.get("commit", "")).startswith(RELEASE_OF_2022)
    fields = {
        "vocab_size": theirs["vocab_size"],
        "hidden_size": theirs["embedding_size"],
        "num_hidden_layers": theirs["num_layers"],
        "num_attention_heads": theirs["num_heads"],
        "head_dim": theirs["head_size"],
        "intermediate_size": theirs["mlp_dim"],
        "window_size": theirs["window_length"],
        "layer_norm_eps": theirs["rms_norm_eps"],
        "num_state_vectors": theirs["num_states"],
        "recurrent_layers": theirs["recurrent_layers"],
        "feedback": theirs["feedback"],
        "memory_layers": theirs["memory_layers"],
        "memory_position_bias": theirs.get("memory_layer_position_bias", early),
        "relative_attention_num_buckets": theirs["t5_num_buckets"],
        "relative_attention_max_distance": theirs["t5_max_distance"],
        "logit_divisor": DIVISORS[divisor],
        "attention_scale": "signed" if early else "absolute",
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if theirs["recurrent_layers"]:
        fields |= {"state_gate": theirs["gate_type"], "state_update": theirs["gate_config"]}
    if theirs["memory_layers"]:
        exact = theirs.get("patched_exact_topk", False)
        fields |= {
            "memory_size": theirs["memory_size"],
            "num_neighbors": theirs["memory_num_neighbors"],
            "memory_retrieval": "exact" if exact else "bucketed",
        }
    return BlockRecurrentConfig(**fields)


def load(case: dict, weights: dict[str, torch.Tensor]) -> tuple[BlockRecurrentForCausalLM, dict[str, str]]:
    model = BlockRecurrentForCausalLM(our_config(case))
    names = our_names(weights, NAMES)
    ours = {name: tensor.t() if name.endswith(".kernel") else tensor for name, tensor in weights.items()}
    load_renamed(model, ours, names)
    return model.eval(), names
