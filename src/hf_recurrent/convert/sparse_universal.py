"""Checkpoints of "Sparse Universal Transformer" (shawntan/SUT): encoders, and encoder-decoders with their losses.

Their position tables have an unused column at either end; their maps of experts are [in, out] as ours.
"""

import torch

from ..models.sut.configuration_sut import SUTConfig
from ..models.sut.modeling_sut import SUTForConditionalGeneration, SUTModel
from .loading import Prepared, one_of

FIELDS = {
    "vocab_size": "vocab_size",
    "d_model": "hidden_size",
    "encoder_layers": "num_hidden_layers",
    "decoder_layers": "num_decoder_layers",
    "heads_per_expert": "num_attention_heads",
    "head_dim": "head_dim",
    "attn_num_experts": "attention_experts",
    "attn_top_k": "attention_experts_per_token",
    "ffd_num_experts": "feed_forward_experts",
    "ffd_top_k": "feed_forward_experts_per_token",
    "ffd_expert_dim": "intermediate_size",
    "halt_threshold": "halting_threshold",
    "act_coef": "ponder_loss_weight",
    "mim_coef": "router_loss_weight",
    "label_smoothing": "label_smoothing",
    "share_all_embeddings": "tie_word_embeddings",
    "pad_idx": "pad_token_id",
    "eos_idx": "eos_token_id",
}

NAMES = {
    r"^decoder\.output_projection\.": "lm_head.",
    r"^(encoder|decoder)\.": r"model.\1.",
    r"\.halting_universal_layer\._gate\.0\.": ".halting_head.up_proj.",
    r"\.halting_universal_layer\._gate\.3\.": ".halting_head.down_proj.",
    r"\.universal_layer\.": ".block.",
    r"\.layer_norm\.": ".final_norm.",
    r"\.final_layer_norm\.": ".feed_forward_norm.",
    r"\.self_attn(?:_layer)?": ".attention",
    r"\.encoder_attn(?:_layer)?": ".cross_attention",
    r"\.(?:q_proj|moe)\.w_gate\.0\.": ".router.hidden.",
    r"\.(?:q_proj|moe)\.w_gate\.3\.": ".router.output.",
    r"\.q_proj\.experts\.w$": ".query_map.weight",
    r"\.q_proj\.output_experts\.w$": ".output_map.weight",
    r"\.rel_pos_emb$": ".position_bias.table.weight",
    r"\.moe\.experts\.w$": ".experts.up_proj",
    r"\.moe\.experts\.b$": ".experts.up_proj_bias",
    r"\.moe\.output_experts\.w$": ".experts.down_proj",
    r"\.moe\.output_experts\.b$": ".experts.down_proj_bias",
}


def our_config(theirs: dict, is_encoder_decoder: bool) -> SUTConfig:
    """Our config for theirs, with the sign, sums and halted tokens of the release."""
    one_of(theirs, "activation_fn", ["gelu"])
    halts = theirs["encoder_halting"]
    if is_encoder_decoder and theirs["decoder_halting"] != halts:
        raise ValueError(
            "config.encoder_halting and config.decoder_halting differ: both stacks of this model halt, or neither"
        )
    if theirs["max_positions_const"] < 1:
        raise ValueError(f"config.max_positions_const is {theirs['max_positions_const']!r}: expected at least 1")
    return SUTConfig(
        **{ours: theirs[name] for name, ours in FIELDS.items()},
        relative_window=theirs["max_positions_const"] - 1,
        layer_norm="pre" if theirs["normalize_before"] else "post",
        halting="token" if halts else "none",
        depth_objective="mixture",
        halted_tokens="released",
        mutual_information_sign="released",
        aux_loss_reduction="sum",
        bos_token_id=None,
        is_encoder_decoder=is_encoder_decoder,
    )


def prepare(case: dict, weights: dict[str, torch.Tensor]) -> Prepared:
    is_encoder_decoder = any(name.startswith("decoder.") for name in weights)
    config = our_config(case["config"], is_encoder_decoder)
    tensors = {
        name: tensor[..., 1:-1] if name.endswith("rel_pos_emb") else tensor
        for name, tensor in weights.items()
        # the version of the format of checkpoints
        if not name.endswith("coder.version")
    }
    if is_encoder_decoder:
        return SUTForConditionalGeneration(config), NAMES, tensors
    return SUTModel(config), NAMES | {r"^model\.encoder\.": ""}, tensors
