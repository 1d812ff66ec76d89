"""Tiny models for doors: one of each architecture and Auto class, and batches for it."""

import torch
import transformers
from transformers import PreTrainedModel

from hf_recurrent import ARCHITECTURES
from support.families import (
    BY_NAME,
    LANGUAGE_BY_NAME,
    Variant,
    make_batch,
    make_config,
    make_language_model,
    make_model,
    make_text,
)
from support.token_heads import MASKED, NEW_HEADS, TOKENS, make_head, make_head_batch

from .door import OURS, Refusal

BASE, CLASSIFIER = "AutoModel", "AutoModelForSequenceClassification"
LANGUAGE, TRANSLATION = "AutoModelForCausalLM", "AutoModelForSeq2SeqLM"
__all__ = ["MASKED", "NEW_HEADS", "TOKENS"]

GROWING = ("xpos_transformer", "ut", "gut", "ndr", "sut", "ouro_recurrent", "huginn_recurrent")
CONSTANT = ("tlb", "gutlb", "rnn", "block_recurrent")


def refused(message: str, *architectures: str, by: str = OURS) -> dict[str, Refusal]:
    """By all architectures, if none is named."""
    return dict.fromkeys(architectures or ARCHITECTURES, Refusal(message, by))


def has_head(architecture: str, head: str) -> bool:
    return head in ARCHITECTURES[architecture].heads


# whose tokens see both sides
ENCODERS = refused(
    "AutoModelForCausalLM has no model for", *(name for name in ARCHITECTURES if not has_head(name, LANGUAGE))
)

# a masked token is predicted from both sides
ALWAYS_CAUSAL = tuple(name for name in ARCHITECTURES if not has_head(name, MASKED))
# whose depth step is a stack of layers over tokens that see those before them
STACKED = tuple(name for name, row in ARCHITECTURES.items() if hasattr(row.config_class, "skipped_steps"))


def variant_of(architecture: str, head: str = CLASSIFIER) -> Variant:
    variants = LANGUAGE_BY_NAME if head == LANGUAGE and has_head(architecture, head) else BY_NAME
    # a masked token is predicted from both sides
    cell = "rnn_bilstm" if head == MASKED else "rnn_lstm"
    return variants[cell if architecture == "rnn" else architecture]


def fresh(architecture: str, head: str) -> PreTrainedModel:
    """A new model, made by its Auto class."""
    changes = {"is_encoder_decoder": True, "is_causal": False} if (architecture, head) == ("sut", TRANSLATION) else {}
    return getattr(transformers, head).from_config(make_config(variant_of(architecture, head), **changes)).eval()


def live(architecture: str, head: str = CLASSIFIER) -> PreTrainedModel:
    """A model whose units halt at several depths."""
    variant = variant_of(architecture, head)
    if head in NEW_HEADS:
        return make_head(variant.name, head)
    if not has_head(architecture, head):
        return fresh(architecture, head)
    if head == LANGUAGE:
        return make_language_model(variant)
    model = make_model(variant)
    return model.base_model if head == BASE else model


def batch_for(architecture: str, head: str = CLASSIFIER) -> dict[str, torch.Tensor]:
    """Inputs, and labels where the head has a loss."""
    variant = variant_of(architecture, head)
    if head in NEW_HEADS:
        return make_head_batch(variant.name, head)
    if head == LANGUAGE:
        return make_text(variant)
    batch = make_batch(variant)
    if head == TRANSLATION:
        batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    if head == BASE:
        del batch["labels"]
    return batch


def prompt_for(architecture: str) -> dict[str, torch.Tensor]:
    text = batch_for(architecture, LANGUAGE)
    return {name: text[name] for name in ("input_ids", "attention_mask")}


# whose classifier stops by itself
HALTING = tuple(name for name in ARCHITECTURES if variant_of(name).halts)


def compute(model: torch.nn.Module, batch: dict[str, torch.Tensor], **options):
    with torch.no_grad():
        return model(**batch, **options)
