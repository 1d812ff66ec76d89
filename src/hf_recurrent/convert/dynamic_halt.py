"""Checkpoints of "Investigating Recurrent Transformers with Dynamic Halt" (JRC1995/InvestigatingRecurrentTransformers).

Their START and END vectors become the embeddings of BOS and EOS, appended to the vocabulary; their two-class tasks
have one logit. Their flip-flop models, which have one logit for the predicted bit, become language models that give
every other token probability zero.
"""

import torch
from transformers import PreTrainedModel

from ..registry import ARCHITECTURES
from .renaming import load_renamed, our_names

# ids of the tokens "0" and "1" of their flip-flop vocabulary
BITS = (3, 4)
# framework -> Auto class of ours
FRAMEWORKS = {
    "classifier": "AutoModelForSequenceClassification",
    "sentence_pair": "AutoModelForSequenceClassification",
    "flipflop": "AutoModelForCausalLM",
}
ENCODERS = {"TransformerEncoder", "UniversalTransformerEncoder", "TLBEncoder", "UTLBEncoder"}
# options of their configs that no published model turns on
UNSUPPORTED = ("ffn_gating", "leaf_transform", "ex_halt", "attn_based_halt")
# bias of tokens other than bits, for which they have no logit
IMPOSSIBLE = -1e4

BLOCK = {
    r"attention\.([qkv])_proj\.weight": r"attention.\1_proj.weight",
    r"attention\.out_proj\.weight": r"attention.o_proj.weight",
    r"LN[01]\.(\w+)": r"attention_norm.\1",
    r"cross_attention\.([qkv])_proj\.weight": r"memory_read.\1_proj.weight",
    r"cross_attention\.out_proj\.weight": r"memory_read.o_proj.weight",
    r"LN11\.(\w+)": r"memory_read.query_norm.\1",
    r"LN12\.(\w+)": r"memory_read.source_norm.\1",
    r"LN2\.(\w+)": r"feed_forward_norm.\1",
    r"FFN\.0\.(\w+)": r"feed_forward.up_proj.\1",
    r"FFN\.3\.(\w+)": r"feed_forward.down_proj.\1",
    r"FFN_gate\.0\.(\w+)": r"gate.up_proj.\1",
    r"FFN_gate\.3\.(\w+)": r"gate.down_proj.\1",
}
UPDATE = {
    r"attention\.([qkv])_proj\.weight": r"attention.\1_proj.weight",
    r"attention\.out_proj\.weight": r"attention.o_proj.weight",
    r"LN11\.(\w+)": r"attention.query_norm.\1",
    r"LN12\.(\w+)": r"attention.source_norm.\1",
    r"LN2\.(\w+)": r"feed_forward_norm.\1",
    r"FFN\.0\.(\w+)": r"feed_forward.up_proj.\1",
    r"FFN\.3\.(\w+)": r"feed_forward.down_proj.\1",
}


def within(theirs: str, ours: str, table: dict[str, str]) -> dict[str, str]:
    """The table with module prefixes; the number of a layer, if there is one, is the first group."""
    shift = theirs.count(r"(\d+)")
    return {theirs + name: ours + our_name.replace(r"\1", rf"\{1 + shift}") for name, our_name in table.items()}


NAMES = {
    r"encoder\.halt_layers\.0\.(\w+)": r"model.halting_head.up_proj.\1",
    r"encoder\.halt_layers\.2\.(\w+)": r"model.halting_head.down_proj.\1",
    r"encoder\.memory": "model.memory.weight",
    r"encoder\.LN\.(\w+)": r"model.memory_norm.\1",
    **within(r"encoder\.(?:TransformerLayer|TLBBlocks)\.", "model.block.", BLOCK),
    **within(r"encoder\.(?:TransformerLayers|TLBBlocks)\.(\d+)\.", r"model.layers.\1.", BLOCK),
    **within(r"encoder\.update_layers\.(\d+)\.", r"model.memory_layers.\1.", UPDATE),
}
HEADS = {
    "AutoModelForSequenceClassification": {
        r"classifier_block\.0\.(\w+)": r"classifier.hidden.\1",
        r"classifier_block\.2\.(\w+)": r"classifier.output.\1",
    },
    "AutoModelForCausalLM": {r"classifier_block\.0\.(\w+)": r"lm_head.hidden.\1"},
}


def architecture(config: dict) -> str:
    """Name of our architecture for a config of theirs."""
    kind = config["encoder_type"]
    if kind not in ENCODERS:
        raise ValueError(f"config.encoder_type is {kind!r}: expected one of {', '.join(sorted(ENCODERS))}")
    if kind != "UniversalTransformerEncoder":
        return {"TransformerEncoder": "xpos_transformer", "TLBEncoder": "tlb", "UTLBEncoder": "gutlb"}[kind]
    plain = config["block"] == "TransformerBlock"
    return "ut" if plain and not config["global_halt"] and not config["transition_based_halt"] else "gut"


def our_config(case: dict):
    """Our config for a case of theirs, with the reference's unsound options on."""
    config, data = case["config"], case["data"]
    for option in UNSUPPORTED:
        if config.get(option):
            raise ValueError(f"config.{option} is {config[option]!r}: this package has no such option")
    if config["embd_dim"] != config["hidden_size"]:
        raise ValueError(f"config.embd_dim is {config['embd_dim']}: it must equal hidden_size")
    causal = case["framework"] == "flipflop"
    if bool(config.get("causal")) != causal:
        raise ValueError(f"config.causal is {config.get('causal')!r}: expected {causal} for {case['framework']}")
    name = architecture(config)
    boundaries, vocab_size = name not in ("tlb", "gutlb"), data["vocab_len"]
    fields = {
        "vocab_size": vocab_size + 2 * boundaries,
        "pad_token_id": data["PAD_id"],
        "bos_token_id": vocab_size if boundaries else None,
        "eos_token_id": vocab_size + 1 if boundaries else None,
        "hidden_size": config["hidden_size"],
        "num_attention_heads": config["heads"],
        "head_dim": config["head_dim"],
        "intermediate_size": config["ffn_dim"],
        "num_hidden_layers": config["layers"],
        "dropout": config["dropout"],
        "attention_dropout": config["attn_dropout"],
        "pooling": config["pooling"],
    }
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
        fields |= {
            "halting": "global" if config["global_halt"] else "token",
            "depth_objective": "mixture",
            "transition_aware": config["transition_based_halt"],
            "halting_bias_init": 0.0,
            "ponder_loss_weight": config["penalty_gamma"],
            "cap_depth_by_length": True,
            "halted_candidates": True,
        }
    if name in ("gut", "gutlb"):
        gated = config["block"] in ("GatedTransformerBlock", "GatedTLBBlock")
        fields |= {
            "feed_forward": "gated" if gated else "plain",
            "gate_intermediate_size": config["ffn_gate_dim"] if gated else None,
        }
    if name in ("tlb", "gutlb"):
        fields |= {
            "chunking": "balanced",
            "chunk_size": config["model_chunk_size"],
            "num_memory_slots": config["memory_size"],
            "num_memory_layers": config["update_layers"],
            "memory_initializer_range": 0.0,
            "pooling": "mean" if config["pooling"] == "mean" else "last",
        }
    return ARCHITECTURES[name].config_class(**fields)


def parameter_slices(config, auto_class: str) -> dict[str, tuple[str, slice]]:
    """Their parameters that are slices of one of ours: their name -> our name and the rows."""
    boundaries = config.bos_token_id is not None
    num_tokens = config.vocab_size - 2 * boundaries
    table = "model.embed_tokens.weight"
    slices = {"word_embedding.weight": (table, slice(0, num_tokens))}
    if boundaries:
        slices |= {
            "encoder.START": (table, slice(num_tokens, num_tokens + 1)),
            "encoder.END": (table, slice(num_tokens + 1, None)),
        }
    if auto_class == "AutoModelForCausalLM":
        one = slice(BITS[1], BITS[1] + 1)
        for name in ("weight", "bias"):
            slices[f"classifier_block.2.{name}"] = (f"lm_head.output.{name}", one)
    return slices


def assemble_parameters(
    config, weights: dict[str, torch.Tensor], slices: dict[str, tuple[str, slice]]
) -> dict[str, torch.Tensor]:
    """Our parameters that consist of several of theirs."""
    missing = [name for name in slices if name not in weights]
    if missing:
        raise ValueError(f"the weights do not fit the config: missing {', '.join(missing)}")
    bias = torch.full((config.vocab_size,), IMPOSSIBLE)
    bias[BITS[0]] = 0.0
    whole = {
        "model.embed_tokens.weight": torch.zeros(config.vocab_size, config.hidden_size),
        "lm_head.output.weight": torch.zeros(config.vocab_size, config.hidden_size),
        "lm_head.output.bias": bias,
    }
    assembled = {}
    for theirs, (ours, rows) in slices.items():
        part = assembled.setdefault(ours, whole[ours])[rows]
        if part.numel() != weights[theirs].numel():
            raise ValueError(f"{theirs} is {tuple(weights[theirs].shape)}, expected {tuple(part.shape)}")
        part.copy_(weights[theirs].view(part.shape))
    return assembled


def load(case: dict, weights: dict[str, torch.Tensor]) -> tuple[PreTrainedModel, dict[str, tuple[str, slice]]]:
    """The model, and for each of their parameters the name of ours with the slice of its rows."""
    auto_class = FRAMEWORKS[case["framework"]]
    config = our_config(case)
    model = ARCHITECTURES[config.model_type].model_class(auto_class)(config)
    slices = parameter_slices(config, auto_class)
    assembled = assemble_parameters(config, weights, slices)
    plain = {name: tensor for name, tensor in weights.items() if name not in slices}
    plain = drop_xpos_buffers(plain, config.head_dim)
    names = our_names(plain, NAMES | HEADS[auto_class])
    load_renamed(model, plain | assembled, names | {ours: ours for ours in assembled})
    whole = {theirs: (ours, slice(None)) for theirs, ours in names.items()}
    return model.eval(), whole | slices


def drop_xpos_buffers(weights: dict[str, torch.Tensor], head_dim: int) -> dict[str, torch.Tensor]:
    """Check their xPos scales against ours, which are not stored, and drop them."""
    zeta = (torch.arange(0, head_dim, 2) + 0.4 * head_dim) / (1.4 * head_dim)
    remaining = {}
    for name, tensor in weights.items():
        if not name.endswith("xpos.scale"):
            remaining[name] = tensor
        elif not torch.allclose(tensor, zeta, atol=1e-6):
            raise ValueError(f"{name} is not the xPos scale of head_dim={head_dim}")
    return remaining
