"""Tiny models of every architecture and variant, whose halting is live: units stop at every kind of depth."""

import copy
import functools
from collections import OrderedDict

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

import hf_recurrent  # noqa: F401  registers the architectures
from hf_recurrent.models.engine import launches, packed_rows
from support.variants import (
    ALBERT,
    BLOCKS,
    BY_NAME,
    CACHED_VARIANTS,
    CHUNKS,
    EXPECTED_VARIANTS,
    EXPERTS,
    HALTING,
    HALTING_VARIANTS,
    HUGINN,
    LABELS,
    LANGUAGE_BY_NAME,
    LANGUAGE_VARIANTS,
    ONE_CHUNK,
    OURO,
    STEPS,
    TINY,
    VARIANTS,
    VOCAB_SIZE,
    Variant,
)

__all__ = [
    "BLOCKS",
    "BY_NAME",
    "CACHED_VARIANTS",
    "CHUNKS",
    "EXPECTED_VARIANTS",
    "HALTING",
    "HALTING_VARIANTS",
    "LABELS",
    "LANGUAGE_BY_NAME",
    "LANGUAGE_VARIANTS",
    "ONE_CHUNK",
    "STEPS",
    "TINY",
    "USUAL_PRODUCTS_ON_ACCELERATOR",
    "USUAL_PRODUCTS_TO_PACK",
    "VARIANTS",
    "VOCAB_SIZE",
    "Variant",
    "chunk_numbers",
    "copy_model",
    "is_live",
    "make_batch",
    "make_config",
    "make_language_model",
    "make_model",
    "make_text",
    "nightly",
    "per_token",
    "slow",
    "tiered",
    "window_places",
]

# models this small would not be worth packing, but are to show what large ones do
USUAL_PRODUCTS_TO_PACK = packed_rows.MIN_PRODUCTS_TO_PACK
packed_rows.MIN_PRODUCTS_TO_PACK = 0
USUAL_PRODUCTS_ON_ACCELERATOR = launches.MIN_PRODUCTS_ON_ACCELERATOR
launches.MIN_PRODUCTS_ON_ACCELERATOR = 0


def tiered(variants: tuple[Variant, ...]) -> list:
    """Parameters of a test: those of variants outside the core are marked slow."""
    return [
        pytest.param(variant, id=variant.name, marks=() if variant.core else pytest.mark.slow) for variant in variants
    ]


def slow(*values):
    """A parameter of a test that `make test` leaves to `make test-all`."""
    return pytest.param(*values, marks=pytest.mark.slow)


def nightly(*values):
    """A parameter of a test that only `make nightly` has."""
    return pytest.param(*values, marks=pytest.mark.nightly)


# a decision closer to its threshold than this could fall either way by rounding
DECISION_MARGIN = 1e-4


def make_config(variant: Variant, **changes):
    halting = HALTING if variant.halts else {}
    without_dropout = {"gate_dropout": 0.0, "position_dropout": 0.0}
    further = {
        "tlb": CHUNKS,
        "gutlb": CHUNKS,
        "ndr": without_dropout,
        "block_recurrent": BLOCKS,
        "sut": EXPERTS,
        "albert_recurrent": ALBERT,
        "ouro_recurrent": OURO,
        "huginn_recurrent": HUGINN,
    }.get(variant.architecture, {})
    return AutoConfig.for_model(variant.architecture, **{**TINY, **halting, **further, **variant.fields, **changes})


def chunk_numbers(variant: Variant, mask: torch.Tensor) -> torch.Tensor:
    """Which chunk, or block, each token of (B, S) belongs to, -1 at padding."""
    lengths, width = mask.sum(-1, keepdim=True), mask.shape[1]
    size = {
        "fixed": CHUNKS["chunk_size"],
        "count": -(-lengths // CHUNKS["num_chunks"]),
        "balanced": -(-width // -(-width // CHUNKS["chunk_size"])),
    }[variant.chunking or "fixed"]
    return torch.where(mask.bool(), (mask.cumsum(-1) - 1) // size, -1)


def window_places(mask: torch.Tensor) -> torch.Tensor:
    """Which of the 2W places of the block before and its own each token of (B, S) sees: (B, S, 2W) bool."""
    size = BLOCKS["window_size"]
    place = ((mask.cumsum(-1) - 1) % size)[..., None]
    column = torch.arange(2 * size)
    return (column >= place) & (column < place + size) & mask.bool()[..., None]


def per_token(variant: Variant, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Outputs of a classifier for sequences, their chunks or their tokens, for each token: (...) -> (B, S)."""
    if variant.token_units:
        return values
    if not variant.chunked:
        return values[:, None].expand_as(mask)
    return torch.where(mask.bool(), values.gather(1, chunk_numbers(variant, mask).clamp_min(0)), -1)


def make_batch(variant: Variant, rows: int = 10, length: int = 9, seed: int = 0) -> dict[str, torch.Tensor]:
    """Sequences of different lengths, padded on the right with other tokens' ids, which must not matter."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, length + 1, (rows, 1), generator=generator)
    lengths[0] = length
    mask = (torch.arange(length) < lengths).long()
    batch = {
        "input_ids": torch.randint(4, VOCAB_SIZE, (rows, length), generator=generator),
        "attention_mask": mask,
        "labels": torch.arange(rows) % LABELS,
    }
    if variant.siamese or variant.typed:
        batch["token_type_ids"] = (torch.arange(length) >= (lengths + 1) // 2).long() * mask
    return batch


def is_live(model, variant: Variant, batch: dict[str, torch.Tensor]) -> bool:
    """Whether units accept few, all and several numbers of steps between, and no decision is a near tie."""
    with torch.no_grad():
        output = model(**batch, output_halting=True)
    depths = set(output.ponder_steps[output.ponder_steps >= 0].tolist())
    config = model.config
    if not {variant.first_stop, STEPS} < depths or len(depths) < 4:
        return False
    if getattr(config, "cap_depth_by_length", False) and not bool(
        (output.ponder_steps == batch["attention_mask"].sum(-1) + 1).any()
    ):
        return False
    probabilities = output.halting_probabilities
    mass = probabilities.cumsum(-1) if variant.act else 1.0 - (1.0 - probabilities).cumprod(-1)
    return bool(((mass - config.halting_threshold).abs()[probabilities > 0] > DECISION_MARGIN).all())


def enliven(model) -> None:
    """Spread out what starts alike: halting, memory slots, what LSTMs and experts make of tokens, routing, scales."""
    head = getattr(model.model, "halting_head", None)
    if head is not None:
        last, spread = (head.proj, 0.5) if hasattr(head, "proj") else (head.down_proj, 3.0)
        torch.nn.init.normal_(last.weight, std=spread)
    memory = getattr(model.model, "memory", None)
    if isinstance(memory, torch.nn.Module):
        torch.nn.init.normal_(memory.weight)
    for name, parameter in model.model.named_parameters():
        if name.endswith(("scales.weight", "share.weight")):
            torch.nn.init.uniform_(parameter, -4.0, 4.0)
    if model.config.model_type == "sut":
        factors = {"_proj": 8.0, "map.weight": 6.0, "router.output.weight": 4.0}
        for name, parameter in model.model.named_parameters():
            if name.endswith("position_bias.table.weight"):
                torch.nn.init.normal_(parameter)
            parameter.data.mul_(next((factor for end, factor in factors.items() if name.endswith(end)), 1.0))
    if model.config.model_type == "rnn":
        for name, parameter in model.model.named_parameters():
            if name.startswith("layers."):
                parameter.data.mul_(3.0)


def leaves_early(model, variant: Variant, batch: dict[str, torch.Tensor]) -> bool:
    """Whether a model that reads chunks also halts at several depths where each sequence is one chunk."""
    if not variant.chunked:
        return True
    whole = copy.deepcopy(model)
    for name, value in ONE_CHUNK.items():
        setattr(whole.config, name, value)
    with torch.no_grad():
        steps = whole(**batch).ponder_steps
    return len(set(steps[steps >= 0].tolist())) > 3


@functools.cache
def _prototype(variant: Variant, auto_class: type):
    classifies = auto_class is AutoModelForSequenceClassification
    batch = make_batch(variant) if classifies else make_text(variant)
    for seed in range(200):
        torch.manual_seed(seed)
        model = auto_class.from_config(make_config(variant)).eval()
        enliven(model)
        if not classifies:
            # rows must not end while they are generated
            model.generation_config.eos_token_id = None
            # states of an LSTM are small as they are
            if variant.attends and model.config.lm_head == "linear" and not model.config.tie_word_embeddings:
                model.lm_head.weight.data.mul_(0.05)
        if not variant.halts or (
            is_live(model, variant, batch) and (not classifies or leaves_early(model, variant, batch))
        ):
            return model
    raise AssertionError(f"no seed makes {variant.name} halt at different depths")


def copy_model(model: torch.nn.Module) -> torch.nn.Module:
    """What `copy.deepcopy` gives, which spends half of its time on the tables of hooks that a module has."""
    tables = (table for module in model.modules() for table in vars(module).values() if type(table) is OrderedDict)
    return copy.deepcopy(model, {id(table): OrderedDict() for table in tables if not table})


def make_model(variant: Variant, auto_class: type = AutoModelForSequenceClassification, **changes):
    """A classifier in evaluation mode; `changes` are config fields that leave its weights as they are."""
    model = copy_model(_prototype(variant, auto_class))
    for name, value in changes.items():
        setattr(model.config, name, value)
    return model


def make_language_model(variant: Variant, **changes):
    return make_model(variant, AutoModelForCausalLM, **changes)


def make_text(variant: Variant, length: int = 14, seed: int = 0) -> dict[str, torch.Tensor]:
    """Four sequences of different lengths, padded on the left with other tokens' ids, and labels for some tokens."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([[length], [length - 4], [3], [length // 2]])
    mask = (torch.arange(length) >= length - lengths).long()
    ids = torch.randint(4, VOCAB_SIZE, mask.shape, generator=generator)
    unlabelled = (mask == 0) | (torch.rand(mask.shape, generator=generator) < 0.2)
    text = {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(unlabelled, -100)}
    if variant.typed:
        text["token_type_ids"] = (torch.arange(length) >= length - lengths // 2).long()
    return text
