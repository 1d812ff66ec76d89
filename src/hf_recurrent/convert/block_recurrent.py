"""Checkpoints of "Block-Recurrent Transformers" (google-research/meliad): all gates and updates, feedback, and the
sliding window, Transformer-XL and Memorizing Transformer.

Their kernels are [in, out], ours [out, in]; their padding is a real token, so ours has none.
"""

import torch

from ..models.block_recurrent.configuration_block_recurrent import BlockRecurrentConfig
from ..models.block_recurrent.modeling_block_recurrent import BlockRecurrentForCausalLM
from .loading import Prepared, one_of

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
FIELDS = {
    "vocab_size": "vocab_size",
    "embedding_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "head_size": "head_dim",
    "mlp_dim": "intermediate_size",
    "window_length": "window_size",
    "rms_norm_eps": "layer_norm_eps",
    "num_states": "num_state_vectors",
    "recurrent_layers": "recurrent_layers",
    "feedback": "feedback",
    "memory_layers": "memory_layers",
    "t5_num_buckets": "relative_attention_num_buckets",
    "t5_max_distance": "relative_attention_max_distance",
}
STATE_FIELDS = {"gate_type": "state_gate", "gate_config": "state_update"}
MEMORY_FIELDS = {"memory_size": "memory_size", "memory_num_neighbors": "num_neighbors"}

NAMES = {
    r"^embed\.embedding": "model.embed_tokens.weight",
    r"^final_layernorm\.": "model.final_norm.",
    r"^transformer(\d+)\.recurrent_initial_state": r"model.layers.\1.state_cell.initial_state.weight",
    r"^transformer(\d+)\.recurrent_tbase\.": r"model.layers.\1.state_cell.",
    r"^transformer(\d+)\.(?:tbase\.)?": r"model.layers.\1.",
    r"\.relative_positions\.rel_embedding": ".attention.position_bias.table.weight",
    r"\.external_memory_bias": ".attention.memory.share.weight",
    # a state cell has queries, keys and values itself, a layer has them in its attention
    r"\.state_cell\._kvq\.pre_attn_layernorm": ".state_cell.norm",
    r"\.state_cell\._kvq\.queries2_layer": ".state_cell.token_q_proj",
    r"\.state_cell\._kvq\.position_embeddings": ".state_cell.ids.weight",
    r"\.state_cell\._kvq\.": ".state_cell.",
    r"\.state_cell\.attention_scale2": ".state_cell.token_scales.weight",
    r"\.state_cell\.post_attn_mlp\.": ".state_cell.attention_gate.",
    r"\.state_cell\.ffn\.(?!hidden0)": ".state_cell.feed_forward_gate.",
    r"_gate\.output_layer\.": "_gate.proj.",
    r"\.gate_bias": ".bias.weight",
    r"\._kvq\.pre_attn_layernorm": ".attention_norm",
    r"\._kvq\.queries2_layer": ".attention.state_q_proj",
    r"\._kvq\.": ".attention.",
    r"\.attention_scale2": ".attention.state_scales.weight",
    r"\.post_attn_mlp\.output_layer": ".attention.o_proj",
    r"\.attention_scale$": ".scales.weight",
    r"\.keys_layer\.": ".k_proj.",
    r"\.values_layer\.": ".v_proj.",
    r"\.queries_layer\.": ".q_proj.",
    r"\.pre_ffn_layernorm\.": ".feed_forward_norm.",
    r"\.ffn\.hidden0\.": ".up_proj.",
    r"\.ffn\.output_layer\.": ".down_proj.",
    r"\.(?:kernel|scale)$": ".weight",
}


def our_config(case: dict) -> BlockRecurrentConfig:
    theirs = FIXED | case["config"]
    for name, expected in FIXED.items():
        one_of(theirs, name, [expected])
    early = str(case.get("commit", "")).startswith(RELEASE_OF_2022)
    names, fields = FIELDS, {}
    if theirs["recurrent_layers"]:
        names = names | STATE_FIELDS
    if theirs["memory_layers"]:
        names = names | MEMORY_FIELDS
        fields["memory_retrieval"] = "exact" if theirs.get("patched_exact_topk", False) else "bucketed"
    return BlockRecurrentConfig(
        **{ours: theirs[name] for name, ours in names.items()},
        **fields,
        memory_position_bias=theirs.get("memory_layer_position_bias", early),
        logit_divisor=DIVISORS[one_of(theirs, "logits_divisor", DIVISORS)],
        attention_scale="signed" if early else "absolute",
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )


def prepare(case: dict, weights: dict[str, torch.Tensor]) -> Prepared:
    tensors = {name: tensor.t() if name.endswith(".kernel") else tensor for name, tensor in weights.items()}
    return BlockRecurrentForCausalLM(our_config(case)), NAMES, tensors
