"""Checkpoints of "Investigating Recurrent Transformers with Dynamic Halt" (JRC1995/InvestigatingRecurrentTransformers).

Their START and END vectors become the embeddings of BOS and EOS, appended to the vocabulary; their two-class tasks
have one logit. Their flip-flop models, which have one logit for the predicted bit, become language models that give
every other token probability zero.
"""

import torch
from torch.nn.functional import pad

from ..registry import ARCHITECTURES
from .loading import Prepared, one_of

# ids of the tokens "0" and "1" of their flip-flop vocabulary, one after the other
BITS = (3, 4)
# framework -> Auto class of ours
FRAMEWORKS = {
    "classifier": "AutoModelForSequenceClassification",
    "sentence_pair": "AutoModelForSequenceClassification",
    "flipflop": "AutoModelForCausalLM",
}
# encoder -> our architecture, if it is one
ENCODERS = {
    "TransformerEncoder": "xpos_transformer",
    "UniversalTransformerEncoder": None,
    "TLBEncoder": "tlb",
    "UTLBEncoder": "gutlb",
}
# options of their configs that no published model turns on
UNSUPPORTED = ("ffn_gating", "leaf_transform", "ex_halt", "attn_based_halt")
# bias of tokens other than bits, for which they have no logit
IMPOSSIBLE = -1e4
FIELDS = {
    "hidden_size": "hidden_size",
    "heads": "num_attention_heads",
    "head_dim": "head_dim",
    "ffn_dim": "intermediate_size",
    "layers": "num_hidden_layers",
    "dropout": "dropout",
    "attn_dropout": "attention_dropout",
    "pooling": "pooling",
}
HALTING_FIELDS = {"transition_based_halt": "transition_aware", "penalty_gamma": "ponder_loss_weight"}
CHUNK_FIELDS = {
    "model_chunk_size": "chunk_size",
    "memory_size": "num_memory_slots",
    "update_layers": "num_memory_layers",
}

NAMES = {
    r"^word_embedding\.": "model.embed_tokens.",
    r"^classifier_block\.0\.": "classifier.hidden.",
    r"^classifier_block\.2\.": "classifier.output.",
    r"^encoder\.memory$": "model.memory.weight",
    r"^encoder\.LN\.": "model.memory_norm.",
    r"^encoder\.halt_layers\.0\.": "model.halting_head.up_proj.",
    r"^encoder\.halt_layers\.2\.": "model.halting_head.down_proj.",
    r"^encoder\.(?:TransformerLayers|TLBBlocks)\.(?=\d)": "model.layers.",
    r"^encoder\.(?:TransformerLayer|TLBBlocks)\.": "model.block.",
    r"^encoder\.update_layers\.(\d+)\.": r"model.memory_layers.\1.",
    r"\.cross_attention\.": ".memory_read.",
    r"\.LN11\.": ".memory_read.query_norm.",
    r"\.LN12\.": ".memory_read.source_norm.",
    # layers of the memory read in their only attention
    r"^(model\.memory_layers\.\d+)\.memory_read\.": r"\1.attention.",
    r"\.out_proj\.": ".o_proj.",
    r"\.LN[01]\.": ".attention_norm.",
    r"\.LN2\.": ".feed_forward_norm.",
    r"\.FFN\.0\.": ".feed_forward.up_proj.",
    r"\.FFN\.3\.": ".feed_forward.down_proj.",
    r"\.FFN_gate\.0\.": ".gate.up_proj.",
    r"\.FFN_gate\.3\.": ".gate.down_proj.",
}


def our_config(case: dict):
    """Our config for a case of theirs, with the reference's unsound options on."""
    config, data, causal = case["config"], case["data"], case["framework"] == "flipflop"
    for option in UNSUPPORTED:
        one_of(config, option, [None, False])
    one_of(config, "embd_dim", [config["hidden_size"]])
    one_of(config, "causal", [True] if causal else [None, False])
    name = ENCODERS[one_of(config, "encoder_type", ENCODERS)]
    if name is None:
        halts_by_state = config["global_halt"] or config["transition_based_halt"]
        name = "gut" if halts_by_state or config["block"] != "TransformerBlock" else "ut"
    names, chunked = FIELDS, name in ("tlb", "gutlb")
    fields = {"pad_token_id": data["PAD_id"], "vocab_size": data["vocab_len"]}
    if chunked:
        names = names | CHUNK_FIELDS
        fields |= {"bos_token_id": None, "eos_token_id": None, "chunking": "balanced", "memory_initializer_range": 0.0}
    else:
        first = data["vocab_len"]
        fields |= {"vocab_size": first + 2, "bos_token_id": first, "eos_token_id": first + 1}
    if causal:
        fields |= {"is_causal": True, "lm_head": "mlp"}
    else:
        one_logit = data["classes_num"] == 2
        fields |= {
            "pair_encoding": "siamese" if case["framework"] == "sentence_pair" else "joint",
            "num_labels": 1 if one_logit else data["classes_num"],
            "problem_type": "multi_label_classification" if one_logit else "single_label_classification",
        }
    if name in ("ut", "gut", "gutlb"):
        names = names | HALTING_FIELDS
        fields |= {
            "halting": "global" if config["global_halt"] else "token",
            "depth_objective": "mixture",
            "halting_bias_init": 0.0,
            "cap_depth_by_length": True,
            "halted_candidates": True,
        }
    if name in ("gut", "gutlb"):
        gated = config["block"] in ("GatedTransformerBlock", "GatedTLBBlock")
        fields |= {
            "feed_forward": "gated" if gated else "plain",
            "gate_intermediate_size": config["ffn_gate_dim"] if gated else None,
        }
    fields = {ours: config[theirs] for theirs, ours in names.items()} | fields
    if chunked and fields["pooling"] != "mean":
        fields["pooling"] = "last"
    return ARCHITECTURES[name].config_class(**fields)


def prepare(case: dict, weights: dict[str, torch.Tensor]) -> Prepared:
    config = our_config(case)
    # of xPos, which ours do not store
    scale = (torch.arange(0, config.head_dim, 2) + 0.4 * config.head_dim) / (1.4 * config.head_dim)
    tensors = {}
    for name, tensor in weights.items():
        if not name.endswith("xpos.scale"):
            tensors[name] = tensor
        elif not torch.allclose(tensor, scale, atol=1e-6):
            raise ValueError(f"{name} is not the xPos scale of head_dim={config.head_dim}")
    if config.bos_token_id is not None:
        boundaries = [tensors.pop(f"encoder.{name}")[None] for name in ("START", "END")]
        tensors["word_embedding.weight"] = torch.cat([tensors["word_embedding.weight"], *boundaries])
    names, auto_class = NAMES, FRAMEWORKS[case["framework"]]
    if auto_class == "AutoModelForCausalLM":
        names = NAMES | {r"^classifier\.": "lm_head."}
        weight, bias, (zero, one) = "classifier_block.2.weight", "classifier_block.2.bias", BITS
        after = config.vocab_size - 1 - one
        tensors[weight] = pad(tensors[weight], (0, 0, one, after))
        tensors[bias] = pad(pad(tensors[bias], (1, 0)), (zero, after), value=IMPOSSIBLE)
    return ARCHITECTURES[config.model_type].model_class(auto_class)(config), names, tensors
