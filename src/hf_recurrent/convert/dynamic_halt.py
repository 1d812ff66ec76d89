"""Checkpoints of "Investigating Recurrent Transformers with Dynamic Halt" (JRC1995/InvestigatingRecurrentTransformers).

Their START and END vectors become the embeddings of BOS and EOS, appended to the vocabulary; their two-class tasks
have one logit.
"""

import torch
from huggingface_hub.errors import StrictDataclassError

from ..models.configuration_gut import GUTConfig
from ..models.configuration_ut import UTConfig
from ..models.configuration_xpos_transformer import XPosTransformerConfig
from ..models.modeling_gut import GUTForSequenceClassification
from ..models.modeling_ut import UTForSequenceClassification
from ..models.modeling_xpos_transformer import XPosTransformerForSequenceClassification
from .renaming import load_renamed, record_calls, rename, require_keys

FRAMEWORKS = {"classifier", "sentence_pair"}
MODELS = {
    "xpos_transformer": (XPosTransformerConfig, XPosTransformerForSequenceClassification),
    "ut": (UTConfig, UTForSequenceClassification),
    "gut": (GUTConfig, GUTForSequenceClassification),
}
# options of their configs that no published model turns on
UNSUPPORTED = ("ffn_gating", "leaf_transform", "ex_halt", "attn_based_halt", "causal")

BLOCK = {
    r"attention\.([qkv])_proj\.weight": r"attention.\1_proj.weight",
    r"attention\.out_proj\.weight": r"attention.o_proj.weight",
    r"LN1\.(\w+)": r"attention_norm.\1",
    r"LN2\.(\w+)": r"feed_forward_norm.\1",
    r"FFN\.0\.(\w+)": r"feed_forward.up_proj.\1",
    r"FFN\.3\.(\w+)": r"feed_forward.down_proj.\1",
    r"FFN_gate\.0\.(\w+)": r"gate.up_proj.\1",
    r"FFN_gate\.3\.(\w+)": r"gate.down_proj.\1",
}
NAMES = {
    r"embedding_table": "model.embed_tokens.weight",
    r"encoder\.halt_layers\.0\.(\w+)": r"model.halting_head.up_proj.\1",
    r"encoder\.halt_layers\.2\.(\w+)": r"model.halting_head.down_proj.\1",
    r"classifier_block\.0\.(\w+)": r"classifier.hidden.\1",
    r"classifier_block\.2\.(\w+)": r"classifier.output.\1",
    **{r"encoder\.TransformerLayer\." + theirs: "model.block." + ours for theirs, ours in BLOCK.items()},
    **{
        r"encoder\.TransformerLayers\.(\d+)\." + theirs: r"model.layers.\1." + ours.replace(r"\1", r"\2")
        for theirs, ours in BLOCK.items()
    },
}
# rows of our embedding table, which is theirs with START and END below
EMBEDDING_PARTS = ("word_embedding.weight", "encoder.START", "encoder.END")


def family(config: dict) -> str:
    """Which of our families a config of theirs describes."""
    if config["encoder_type"] == "TransformerEncoder":
        return "xpos_transformer"
    if config["encoder_type"] != "UniversalTransformerEncoder":
        raise ValueError(f"config.encoder_type is {config['encoder_type']!r}: no classifier of that kind is known here")
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
    name = family(config)
    vocab_size, labels = data["vocab_len"] + 2, data["classes_num"]
    fields = {
        "vocab_size": vocab_size,
        "bos_token_id": vocab_size - 2,
        "eos_token_id": vocab_size - 1,
        "pad_token_id": data["PAD_id"],
        "hidden_size": config["hidden_size"],
        "num_attention_heads": config["heads"],
        "head_dim": config["head_dim"],
        "intermediate_size": config["ffn_dim"],
        "num_hidden_layers": config["layers"],
        "dropout": config["dropout"],
        "attention_dropout": config["attn_dropout"],
        "pooling": config["pooling"],
        "pair_encoding": "siamese" if case["framework"] == "sentence_pair" else "joint",
        "num_labels": 1 if labels == 2 else labels,
        "problem_type": "multi_label_classification" if labels == 2 else "single_label_classification",
    }
    if name != "xpos_transformer":
        fields |= {
            "halting": "global" if config["global_halt"] else "token",
            "transition_aware": config["transition_based_halt"],
            "halting_bias_init": 0.0,
            "ponder_loss_weight": config["penalty_gamma"],
            "cap_depth_by_length": True,
        }
    if name == "gut":
        gated = config["block"] == "GatedTransformerBlock"
        fields |= {
            "feed_forward": "gated" if gated else "plain",
            "gate_intermediate_size": config["ffn_gate_dim"] if gated else None,
        }
    try:
        return MODELS[name][0](**fields)
    except StrictDataclassError as error:
        raise ValueError(f"the case's config does not describe a valid model: {error}") from error


def load(case: dict, weights: dict[str, torch.Tensor]) -> "DynamicHaltReference":
    config = our_config(case)
    model = MODELS[config.model_type][1](config)
    parts = [part for part in EMBEDDING_PARTS if part not in weights]
    if parts:
        raise ValueError(f"the weights do not fit the config: missing {', '.join(parts)}")
    plain = {name: tensor for name, tensor in weights.items() if name not in EMBEDDING_PARTS}
    plain = drop_xpos_buffers(plain, config.head_dim)
    names = {name: rename(name, NAMES) for name in plain}
    names = {theirs: ours for theirs, ours in names.items() if ours is not None}
    plain["embedding_table"] = torch.cat([weights[part].view(-1, config.hidden_size) for part in EMBEDDING_PARTS])
    load_renamed(model, plain, names | {"embedding_table": NAMES["embedding_table"]})
    return DynamicHaltReference(model.eval(), names)


def drop_xpos_buffers(weights: dict[str, torch.Tensor], head_dim: int) -> dict[str, torch.Tensor]:
    """Check their xPos scales against ours, which are computed, and leave them out."""
    zeta = (torch.arange(0, head_dim, 2) + 0.4 * head_dim) / (1.4 * head_dim)
    kept = {}
    for name, tensor in weights.items():
        if not name.endswith("xpos.scale"):
            kept[name] = tensor
        elif not torch.allclose(tensor, zeta, atol=1e-6):
            raise ValueError(f"{name} is not the xPos scale of head_dim={head_dim}")
    return kept


def with_boundaries(ids: torch.Tensor, mask: torch.Tensor, config) -> tuple[torch.Tensor, torch.Tensor]:
    """Put BOS before and EOS right after each row's tokens: (B, S) -> (B, S + 2)."""
    lengths = mask.sum(-1, keepdim=True).long()
    bos, pad = (ids.new_full((ids.shape[0], 1), token) for token in (config.bos_token_id, config.pad_token_id))
    ids = torch.cat((bos, ids, pad), dim=1).scatter(1, lengths + 1, config.eos_token_id)
    return ids, torch.arange(ids.shape[1], device=ids.device) < lengths + 2


class DynamicHaltReference:
    """A classifier or sentence-pair classifier of theirs as our model; see `Reference`."""

    def __init__(self, model, names: dict[str, str]):
        self.model = model
        self.names = names

    def run(self, io: dict[str, torch.Tensor], gradients: bool = False) -> dict[str, torch.Tensor]:
        inputs, encoder_mask = self.inputs(io)
        config, model = self.model.config, self.model
        halts = config.model_type != "xpos_transformer"
        compaction = getattr(config, "compaction", None)
        if halts:
            # they recompute the halting probabilities of halted units until the whole batch has stopped
            config.compaction = False
            inputs["max_steps"] = min(config.num_hidden_layers, encoder_mask.shape[1] + 1)
        encoded, blocks, probabilities = [], [], []
        removers = [
            record_calls(model.model, lambda args, output: output, encoded),
            record_calls(
                model.model.block if halts else model.model.layers[0],
                lambda args, output: (args[0], output.hidden_states),
                blocks,
            ),
        ]
        if halts:
            removers.append(record_calls(model.model.halting_head, lambda args, output: output, probabilities))
        model.zero_grad()
        try:
            with torch.set_grad_enabled(gradients):
                outputs = model(**inputs)
        finally:
            for remove in removers:
                remove()
            if halts:
                config.compaction = compaction
        results = self.encoder_results(encoded[0], encoder_mask, blocks[0] if blocks else None)
        results |= {"logits": outputs.logits, "loss": outputs.loss.view(1)}
        results["task_loss"] = results["loss"]
        if halts:
            results |= self.halting_results(outputs, encoded[0], probabilities)
            results["task_loss"] = results["loss"] - results["aux_loss"]
        if gradients:
            outputs.loss.backward()
            results |= self.gradients()
        return {name: tensor.detach() for name, tensor in results.items()}

    def inputs(self, io: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """Their inputs -> our keyword arguments, and the mask of their padded batch, one row a sentence."""
        config = self.model.config
        suffixes = ("1", "2") if config.pair_encoding == "siamese" else ("",)
        require_keys(io, [f"input_{kind}{suffix}" for suffix in suffixes for kind in ("ids", "mask")] + ["labels"])
        sides = [with_boundaries(io["input_ids" + s], io["input_mask" + s], config) for s in suffixes]
        inputs = {
            "input_ids": torch.cat([ids for ids, _ in sides], dim=1),
            "attention_mask": torch.cat([mask for _, mask in sides], dim=1).long(),
            "labels": io["labels"],
        }
        if len(sides) == 2:
            types = [torch.full_like(ids, side) for side, (ids, _) in enumerate(sides)]
            inputs["token_type_ids"] = torch.cat(types, dim=1)
        width = max(mask.shape[1] for _, mask in sides)
        padded = [torch.nn.functional.pad(mask, (0, width - mask.shape[1])) for _, mask in sides]
        return inputs, torch.cat(padded)

    def encoder_results(self, encoded, encoder_mask, first_block) -> dict[str, torch.Tensor]:
        results = {
            "sequence": encoded.last_hidden_state,
            "encoder_mask": encoder_mask.to(encoded.last_hidden_state.dtype),
            "global_state": encoded.pooler_output,
        }
        if first_block is not None:
            results |= {"block_in_0": first_block[0], "block_out_0": first_block[1]}
        return results

    def halting_results(self, outputs, encoded, probabilities: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        config = self.model.config
        conditional = torch.stack(probabilities)
        remaining = (1 - conditional).cumprod(0)
        remaining_before = torch.cat((torch.ones_like(remaining[:1]), remaining[:-1]))
        steps = encoded.ponder_steps
        step = torch.arange(conditional.shape[0], device=steps.device).view(-1, *(1,) * steps.dim())

        return {
            "halt_probs": conditional,
            "total_halt_probs": (remaining_before * conditional).cumsum(0),
            "update_flags": (step < steps).float(),
            "n_layers_executed": steps.clamp_min(0),
            "n_loop_iterations": torch.tensor([conditional.shape[0]]),
            "aux_loss": outputs.aux_loss.view(1),
            "aux_loss_per_sample": config.ponder_loss_weight * encoded.ponder_cost,
        }

    def gradients(self) -> dict[str, torch.Tensor]:
        """Gradients under their names; parameters that took no part have none."""
        parameters = dict(self.model.named_parameters())
        results = {}
        for theirs, ours in self.names.items():
            if parameters[ours].grad is not None:
                results[f"grad.{theirs}"] = parameters[ours].grad
        table = parameters[NAMES["embedding_table"]].grad
        for part, rows in zip(EMBEDDING_PARTS, (table[:-2], table[-2], table[-1]), strict=True):
            results[f"grad.{part}"] = rows
        return results
