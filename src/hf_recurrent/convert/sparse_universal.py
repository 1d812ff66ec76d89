"""Checkpoints of "Sparse Universal Transformer" (shawntan/SUT): encoders, and encoder-decoders with their losses.

Their position tables have an unused column at either end; their maps of experts are [in, out] as ours.
"""

import re

import torch

from ..models.sut.configuration_sut import SUTConfig
from ..models.sut.modeling_sut import SUTForConditionalGeneration, SUTModel
from .renaming import load_renamed, our_names

STACK = r"(encoder|decoder)\."
BLOCK = STACK + r"universal_layer\."
OURS = r"\1.block."
ROUTED = {"q_proj.experts.w": "query_map.weight", "q_proj.output_experts.w": "output_map.weight"}
ROUTED |= {"k_proj.weight": "k_proj.weight", "v_proj.weight": "v_proj.weight"}
ROUTED |= {"rel_pos_emb": "position_bias.table.weight"}
NAMES = {
    STACK + r"embed_tokens\.weight": r"\1.embed_tokens.weight",
    STACK + r"layer_norm\.(\w+)": r"\1.final_norm.\2",
    STACK + r"halting_universal_layer\._gate\.0\.(\w+)": r"\1.halting_head.up_proj.\2",
    STACK + r"halting_universal_layer\._gate\.3\.weight": r"\1.halting_head.down_proj.weight",
    BLOCK + r"self_attn_layer_norm\.(\w+)": OURS + r"attention_norm.\2",
    BLOCK + r"encoder_attn_layer_norm\.(\w+)": OURS + r"cross_attention_norm.\2",
    BLOCK + r"final_layer_norm\.(\w+)": OURS + r"feed_forward_norm.\2",
    BLOCK + r"moe\.w_gate\.0\.(\w+)": OURS + r"router.hidden.\2",
    BLOCK + r"moe\.w_gate\.3\.weight": OURS + "router.output.weight",
    BLOCK + r"moe\.experts\.w": OURS + "experts.up_proj",
    BLOCK + r"moe\.experts\.b": OURS + "experts.up_proj_bias",
    BLOCK + r"moe\.output_experts\.w": OURS + "experts.down_proj",
    BLOCK + r"moe\.output_experts\.b": OURS + "experts.down_proj_bias",
}
for _theirs, _ours in (("self_attn", "attention"), ("encoder_attn", "cross_attention")):
    NAMES |= {rf"{BLOCK}{_theirs}\.{re.escape(name)}": f"{OURS}{_ours}.{our}" for name, our in ROUTED.items()}
    NAMES |= {
        rf"{BLOCK}{_theirs}\.q_proj\.w_gate\.0\.(\w+)": rf"{OURS}{_ours}.router.hidden.\2",
        rf"{BLOCK}{_theirs}\.q_proj\.w_gate\.3\.weight": f"{OURS}{_ours}.router.output.weight",
    }
# versions of the format of checkpoints, which are no parameters
UNUSED = STACK + "version"


def our_config(theirs: dict, is_encoder_decoder: bool) -> SUTConfig:
    """Our config for theirs, with the sign, sums and halted tokens of the release."""
    if theirs["activation_fn"] != "gelu":
        raise ValueError(f"config.activation_fn is {theirs['activation_fn']!r}: expected 'gelu'")
    halting = (
        {theirs["encoder_halting"], theirs["decoder_halting"]} if is_encoder_decoder else {theirs["encoder_halting"]}
    )
    if len(halting) > 1:
        raise ValueError(
            "config.encoder_halting and config.decoder_halting differ: both stacks of this model halt, or neither"
        )
    if theirs["max_positions_const"] < 1:
        raise ValueError(f"config.max_positions_const is {theirs['max_positions_const']!r}: expected at least 1")
    return SUTConfig(
        vocab_size=theirs["vocab_size"],
        hidden_size=theirs["d_model"],
        num_hidden_layers=theirs["encoder_layers"],
        num_decoder_layers=theirs["decoder_layers"],
        num_attention_heads=theirs["heads_per_expert"],
        head_dim=theirs["head_dim"],
        attention_experts=theirs["attn_num_experts"],
        attention_experts_per_token=theirs["attn_top_k"],
        feed_forward_experts=theirs["ffd_num_experts"],
        feed_forward_experts_per_token=theirs["ffd_top_k"],
        intermediate_size=theirs["ffd_expert_dim"],
        relative_window=theirs["max_positions_const"] - 1,
        layer_norm="pre" if theirs["normalize_before"] else "post",
        halting="token" if halting == {True} else "none",
        depth_objective="mixture",
        halting_threshold=theirs["halt_threshold"],
        halted_tokens="released",
        ponder_loss_weight=theirs["act_coef"],
        router_loss_weight=theirs["mim_coef"],
        mutual_information_sign="released",
        aux_loss_reduction="sum",
        label_smoothing=theirs["label_smoothing"],
        tie_word_embeddings=theirs["share_all_embeddings"],
        pad_token_id=theirs["pad_idx"],
        bos_token_id=None,
        eos_token_id=theirs["eos_idx"],
        is_encoder_decoder=is_encoder_decoder,
    )


def load(case: dict, weights: dict[str, torch.Tensor]) -> tuple[SUTModel | SUTForConditionalGeneration, dict[str, str]]:
    is_encoder_decoder = any(name.startswith("decoder.") for name in weights)
    config = our_config(case["config"], is_encoder_decoder)
    weights = {name: tensor for name, tensor in weights.items() if not re.fullmatch(UNUSED, name)}
    names = our_names(weights, NAMES)
    used = {name: tensor[..., 1:-1] if name.endswith("rel_pos_emb") else tensor for name, tensor in weights.items()}
    if not is_encoder_decoder:
        names = {theirs: ours.removeprefix("encoder.") for theirs, ours in names.items()}
        model = SUTModel(config)
        load_renamed(model, used, names)
        return model.eval(), names
    names = {theirs: f"model.{ours}" for theirs, ours in names.items()}
    if "decoder.output_projection.weight" in weights:
        names["decoder.output_projection.weight"] = "lm_head.weight"
    model = SUTForConditionalGeneration(config)
    load_renamed(model, used, names)
    return model.eval(), names
