"""Tiny Sparse Universal Transformers of every kind in double precision, whose tokens halt at different depths."""

import functools

import torch

from hf_recurrent.models.sut.configuration_sut import SUTConfig
from hf_recurrent.models.sut.modeling_sut import (
    SUTForCausalLM,
    SUTForConditionalGeneration,
    SUTForSequenceClassification,
)

# float32 rows of these sizes fit grouped products
SMALL = {
    "vocab_size": 13,
    "hidden_size": 8,
    "num_hidden_layers": 4,
    "num_decoder_layers": 3,
    "num_attention_heads": 2,
    "head_dim": 4,
    "intermediate_size": 12,
    "attention_experts": 4,
    "attention_experts_per_token": 2,
    "feed_forward_experts": 3,
    "feed_forward_experts_per_token": 2,
    "relative_window": 2,
    "relative_attention_num_buckets": 4,
    "relative_attention_max_distance": 5,
    "halting": "token",
    "depth_objective": "mixture",
    "halting_threshold": 0.7,
    "ponder_loss_weight": 0.3,
    "router_loss_weight": 0.2,
    "label_smoothing": 0.1,
    "num_labels": 3,
    # means over tokens are taken in float32
    "pooling": "end",
    **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout", "router_dropout", "halting_dropout"), 0.0),
}
ONE = {f"{kind}_experts{each}": 1 for kind in ("attention", "feed_forward") for each in ("", "_per_token")}
KINDS = {
    "plain": {},
    "t5": {"relative_positions": "t5", "layer_norm": "pre", "router_loss": "switch", "aux_loss_reduction": "sum"},
    "released": {
        "halted_tokens": "released",
        "mutual_information_sign": "released",
        "aux_loss_reduction": "sum",
        "halting_bias_init": -0.5,
        "relative_positions": "none",
    },
    "pre_released": {"halted_tokens": "released", "layer_norm": "pre", "router_loss": "importance"},
    "one_expert": ONE | {"relative_positions": "t5", "absolute_positions": False},
    "never_halts": {
        "halting": "none",
        "router_loss": "switch",
        "scale_embeddings": False,
        "absolute_positions": False,
        "label_smoothing": 0.0,
    },
}
SPREAD = {"router.output.weight": 3.0, "position_bias.table.weight": 1.0, "halting_head.down_proj.weight": 3.0}


def with_seed(seed: int, kind: str, model_class: type, changes: dict):
    torch.manual_seed(seed)
    both = {"is_encoder_decoder": True} if model_class is SUTForConditionalGeneration else {}
    model = model_class(SUTConfig(**{**SMALL, **both, **KINDS[kind], **changes})).eval().double()
    for name, parameter in model.named_parameters():
        if name.endswith(tuple(SPREAD)):
            torch.nn.init.normal_(parameter, std=next(std for end, std in SPREAD.items() if name.endswith(end)))
        elif "norm" in name:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
        elif parameter.dim() == 3 or "experts" in name:
            torch.nn.init.normal_(parameter, std=0.6)
    # the authors' zeros at padding are what a model starts with; trained ones are not zero
    torch.nn.init.normal_(model.get_input_embeddings().weight, std=0.5)
    model.tie_weights()
    # rows must not end while they are generated
    if hasattr(model, "generation_config"):
        model.generation_config.eos_token_id = None
    return model


@functools.cache
def lively_seed(kind: str, model_class: type) -> int:
    """One that lets tokens of each stack halt at three depths."""
    if KINDS[kind].get("halting") == "none":
        return 0
    ids = torch.tensor(make_rows([12], seed=7))
    for seed in range(200):
        model = with_seed(seed, kind, model_class, {})
        with torch.no_grad():
            output = model(input_ids=ids, labels=ids) if model.config.is_encoder_decoder else model(input_ids=ids)
        stacks = (output.ponder_steps, output.get("encoder_ponder_steps"))
        if all(len(steps.unique()) >= 3 for steps in stacks if steps is not None):
            return seed
    raise AssertionError(f"no seed makes {kind} halt at different depths")


def make_sut(kind: str, model_class: type, **changes):
    """In double precision and evaluation mode."""
    return with_seed(lively_seed(kind, model_class), kind, model_class, changes)


def make_rows(lengths: list[int], seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(4, SMALL["vocab_size"], (length,), generator=generator).tolist() for length in lengths]


def padded(rows: list[list[int]], sides: str = "r", filler: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids, with some token at padding, and mask (B, S); sequences are padded on these sides in turn."""
    width = max(map(len, rows)) + (len(sides) > 1)
    ids, mask = torch.full((len(rows), width), filler), torch.zeros(len(rows), width, dtype=torch.long)
    for number, row in enumerate(rows):
        first = width - len(row) if sides[number % len(sides)] == "l" else 0
        ids[number, first : first + len(row)] = torch.tensor(row)
        mask[number, first : first + len(row)] = 1
    return ids, mask


CLASSES = {
    "classifier": SUTForSequenceClassification,
    "language_model": SUTForCausalLM,
    "both": SUTForConditionalGeneration,
}
