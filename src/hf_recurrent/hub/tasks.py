"""Tasks and metrics of checkpoints, by the names of the Hub, and as cards call them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..registry import ARCHITECTURES

CLASSIFICATION, GENERATION, TRANSLATION = "text-classification", "text-generation", "translation"
TOKEN_CLASSIFICATION, FILL_MASK = "token-classification", "fill-mask"
QUESTION_ANSWERING, MULTIPLE_CHOICE = "question-answering", "multiple-choice"


@dataclass(frozen=True)
class Task:
    """A task of the Hub: its title for readers, and the Auto class of its models.

    Attributes:
        answer: Python for the usage section, what a model answers, by `tokenizer`, `model`, `inputs` and `outputs`;
            None where the section has its own.
        has_pipeline: whether transformers has a pipeline of this name.
    """

    title: str
    auto_class: str
    answer: str | None = None
    has_pipeline: bool = True


@dataclass(frozen=True)
class Metric:
    """A measure in a card's tables: `label` for a heading, `meaning` a sentence where it needs one.

    Attributes:
        examples: the counted things, in the plural.
        key: the value's key in a table; "accuracy" for all fractions of right answers.
    """

    label: str
    examples: str
    meaning: str | None = None
    key: str = "accuracy"

    @property
    def in_bits(self) -> bool:
        """Whether this is a loss of documents instead of a fraction of right answers."""
        return self.key.startswith("bits")

    @property
    def constant_key(self) -> str:
        """The table's key of the value of the best constant answer."""
        return f"constant_{self.key}" if self.in_bits else "majority_baseline"


# by pipeline tag
TASKS = {
    CLASSIFICATION: Task("Text Classification", "AutoModelForSequenceClassification"),
    GENERATION: Task("Text Generation", "AutoModelForCausalLM"),
    # the Hub's only name for sequence-to-sequence tasks
    TRANSLATION: Task("Translation", "AutoModelForSeq2SeqLM", has_pipeline=False),
    TOKEN_CLASSIFICATION: Task(
        "Token Classification",
        "AutoModelForTokenClassification",
        "[model.config.id2label[i] for i in outputs.logits[0].argmax(-1).tolist()]",
    ),
    FILL_MASK: Task(
        "Fill-Mask",
        "AutoModelForMaskedLM",
        "tokenizer.decode(outputs.logits.argmax(-1)[inputs.input_ids == tokenizer.mask_token_id])",
    ),
    QUESTION_ANSWERING: Task(
        "Question Answering",
        "AutoModelForQuestionAnswering",
        "tokenizer.decode(inputs.input_ids[0, outputs.start_logits.argmax() : outputs.end_logits.argmax() + 1])",
        has_pipeline=False,
    ),
    MULTIPLE_CHOICE: Task(
        "Multiple Choice",
        "AutoModelForMultipleChoice",
        "outputs.logits",
        has_pipeline=False,
    ),
}
METRICS = {
    "accuracy": Metric("Accuracy", "examples"),
    "exact_labels": Metric(
        "Exact labels",
        "examples",
        "*Exact labels* is the fraction of examples all of whose labels are predicted, and no other.",
    ),
    "r_squared": Metric(
        "R²",
        "examples",
        "*R²* is the share of the labels' variance that predictions explain: 0% for the mean.",
    ),
    "last_read_accuracy": Metric(
        "Last-read accuracy",
        "strings",
        "*Last-read accuracy* is the fraction of strings whose last read is answered with the last bit written.",
    ),
    "word_accuracy": Metric(
        "Accuracy",
        "words",
        "*Accuracy* is the fraction of words that are labelled right. "
        "*context_free_bits* are the bits by which a word's label is unexpected given the word alone, by how often it "
        "has this label in training.",
    ),
    "masked_accuracy": Metric(
        "Accuracy",
        "masked tokens",
        "*Accuracy* is the fraction of masked tokens that are the likeliest ones. *context_free_bits* are the bits by "
        "which a token is unexpected where the frequencies of tokens in training alone are known.",
    ),
    "span_exact_match": Metric(
        "Exact match",
        "questions",
        "*Exact match* is the fraction of questions whose answer is one of the true ones, but for upper case, "
        "punctuation and articles. *f1* counts the words that both have in common. Both are as of SQuAD.",
    ),
    "choice_accuracy": Metric("Accuracy", "questions"),
    "exact_match": Metric(
        "Exact match", "pairs", "*Exact match* is the fraction of sources whose whole target is generated exactly."
    ),
    "bleu": Metric("BLEU", "pairs", "*BLEU* is that of the whole split, in points of 100.", "bleu"),
    "bits_per_byte": Metric(
        "Bits per byte",
        "documents",
        "*Bits per byte* are the bits needed to predict a document, divided by its bytes; lower is better.",
        "bits_per_byte",
    ),
    "bits_per_token": Metric(
        "Bits per token",
        "documents",
        "*Bits per token* are the bits needed to predict a document, divided by its tokens; lower is better.",
        "bits_per_token",
    ),
}


def auto_class_of(config: Mapping[str, Any]) -> str | None:
    """The Auto class of the architecture that one of our `config.json` files names; None where it names none.

    Raises:
        ValueError: `model_type` is not of this package.
    """
    model_type = config.get("model_type")
    if model_type not in ARCHITECTURES:
        raise ValueError(f"model_type is {model_type!r}: expected one of {', '.join(ARCHITECTURES)}")
    family, named = ARCHITECTURES[model_type], config.get("architectures") or []
    return next((auto for auto, suffix in family.heads.items() if named == [family.prefix + suffix]), None)


def task_of(config: Mapping[str, Any]) -> str | None:
    """The task of one of our `config.json` files; None for a base model, which has none.

    Raises:
        ValueError: as `auto_class_of`.
    """
    return task_for(auto_class_of(config))


def task_for(auto_class: str | None) -> str | None:
    """The task of the models that an Auto class makes; None where it has none."""
    return next((name for name, task in TASKS.items() if task.auto_class == auto_class), None)
