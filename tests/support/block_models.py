"""Tiny Block-Recurrent Transformers of every kind, whose sizes are all different and whose scales differ in sign."""

import torch

from hf_recurrent.models.block_recurrent.configuration_block_recurrent import BlockRecurrentConfig
from hf_recurrent.models.block_recurrent.modeling_block_recurrent import BlockRecurrentForCausalLM

SMALL = {
    "vocab_size": 19,
    "hidden_size": 12,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "head_dim": 5,
    "intermediate_size": 14,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "window_size": 3,
    "num_state_vectors": 4,
    "recurrent_layers": [1],
    # one distance has a bucket of its own, the others share by their logarithm
    "relative_attention_num_buckets": 4,
    "relative_attention_max_distance": 5,
    "num_labels": 3,
    "pad_token_id": None,
    # rows must not end while they are generated
    "eos_token_id": None,
}
MEMORY = {"recurrent_layers": [], "memory_layers": [-2], "memory_size": 6}
KINDS = {
    **{
        f"{gate}_{update}": {"state_gate": gate, "state_update": update}
        for gate in ("fixed", "lstm")
        for update in ("dual", "single", "skip")
    },
    "two_layers": {"recurrent_layers": [0, -1], "state_gate": "lstm", "state_update": "dual"},
    "feedback": {"feedback": True},
    "feedback_two_layers": {
        "feedback": True,
        "recurrent_layers": [-1, 1],
        "state_gate": "lstm",
        "state_update": "single",
    },
    "slide": {"recurrent_layers": []},
    "bucketed": MEMORY | {"num_neighbors": 3},
    "all_neighbors": MEMORY | {"num_neighbors": 6},
    "exact": MEMORY | {"num_neighbors": 2, "memory_retrieval": "exact", "memory_position_bias": True},
    "everything": MEMORY
    | {"recurrent_layers": [0, 2], "feedback": True, "num_neighbors": 2, "state_gate": "lstm", "memory_layers": [1]},
    "first_release": {"attention_scale": "signed", "logit_divisor": "vocab_size", "tie_word_embeddings": False},
    "one_token": {"window_size": 1, "state_update": "dual", "relative_attention_max_distance": 3},
    "one_token_memory": MEMORY | {"window_size": 1, "memory_size": 5, "num_neighbors": 5},
    "one_block": {"window_size": 16, "feedback": True, "relative_attention_num_buckets": 8},
}


def make_block_model(kind: str, model_class=BlockRecurrentForCausalLM, **changes):
    """In double precision and evaluation mode."""
    torch.manual_seed(3)
    model = model_class(BlockRecurrentConfig(**{**SMALL, **KINDS[kind], **changes})).eval().double()
    for name, parameter in model.named_parameters():
        if name.endswith(("scales.weight", "share.weight")):
            torch.nn.init.uniform_(parameter, -4.0, 4.0)
        elif "norm" in name:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return model


def make_rows(lengths: list[int], seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, SMALL["vocab_size"], (length,), generator=generator) for length in lengths]


def padded(rows: list[torch.Tensor], left: list[bool], width: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids, with some token at padding, and mask (B, S)."""
    width = max(width, *(len(row) for row in rows))
    ids, mask = torch.full((len(rows), width), 7), torch.zeros(len(rows), width, dtype=torch.long)
    for number, (row, at_left) in enumerate(zip(rows, left, strict=True)):
        place = slice(width - len(row), width) if at_left else slice(0, len(row))
        ids[number, place], mask[number, place] = row, 1
    return ids, mask
