"""What a checkpoint is for and how it is measured, in the words of the Hub and of a card."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..registry import ARCHITECTURES

CLASSIFICATION, GENERATION, TRANSLATION = "text-classification", "text-generation", "translation"


@dataclass(frozen=True)
class Task:
    """A task as the Hub calls it (`title` in words), and the Auto class of its models."""

    title: str
    auto_class: str


@dataclass(frozen=True)
class Metric:
    """What the accuracy in a card's tables is: `label` for a heading, `meaning` a sentence where it needs one.

    Attributes:
        examples: what is counted, in the plural.
        key: where the value stands in a table; what is no share of right answers has its name there.
    """

    label: str
    examples: str
    meaning: str | None = None
    key: str = "accuracy"

    @property
    def in_bits(self) -> bool:
        """Whether it measures the loss of documents instead of a share of right answers."""
        return self.key.startswith("bits")

    @property
    def constant_key(self) -> str:
        """Where the value of the best constant answer stands in a table."""
        return f"constant_{self.key}" if self.in_bits else "majority_baseline"


# by pipeline tag
TASKS = {
    CLASSIFICATION: Task("Text Classification", "AutoModelForSequenceClassification"),
    GENERATION: Task("Text Generation", "AutoModelForCausalLM"),
    # the Hub has no other name for what turns one text into another
    TRANSLATION: Task("Translation", "AutoModelForSeq2SeqLM"),
}
METRICS = {
    "accuracy": Metric("Accuracy", "examples"),
    "last_read_accuracy": Metric(
        "Last-read accuracy",
        "strings",
        "*Last-read accuracy* is the share of strings whose last read is answered with the bit that was written last.",
    ),
    "exact_match": Metric(
        "Exact match",
        "pairs",
        "*Exact match* is the share of sources for which the whole target is written as it should be.",
    ),
    "bleu": Metric(
        "BLEU",
        "pairs",
        "*BLEU* is that of the whole split, in points of 100.",
        "bleu",
    ),
    "bits_per_byte": Metric(
        "Bits per byte",
        "documents",
        "*Bits per byte* are the bits that a model needs to predict a document, for each of its bytes: the fewer the "
        "better.",
        "bits_per_byte",
    ),
    "bits_per_token": Metric(
        "Bits per token",
        "documents",
        "*Bits per token* are the bits that a model needs to predict a document, for each of its tokens: the fewer the "
        "better.",
        "bits_per_token",
    ),
}


def auto_class_of(config: Mapping[str, Any]) -> str | None:
    """The Auto class of the architecture that a `config.json` of one of our families names; None where it names none.

    Raises:
        ValueError: `model_type` is none of ours.
    """
    model_type = config.get("model_type")
    if model_type not in ARCHITECTURES:
        raise ValueError(f"model_type is {model_type!r}: expected one of {', '.join(ARCHITECTURES)}")
    family, named = ARCHITECTURES[model_type], config.get("architectures") or []
    return next((auto for auto, suffix in family.heads.items() if named == [family.prefix + suffix]), None)


def task_of(config: Mapping[str, Any]) -> str | None:
    """The task of a `config.json` of one of our families; None for a base model, which has none.

    Raises:
        ValueError: as `auto_class_of`.
    """
    return task_for(auto_class_of(config))


def task_for(auto_class: str | None) -> str | None:
    """The task of the models that an Auto class makes; None where it has none."""
    return next((name for name, task in TASKS.items() if task.auto_class == auto_class), None)
