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
    """A task of the Hub.

    Attributes:
        auto_class: transformers' class that loads its models.
        answer: Python for a model's answer, by `tokenizer`, `model`, `inputs` and `outputs`; None: it generates.
        has_pipeline: whether transformers has a pipeline of this name.
    """

    auto_class: str
    answer: str | None = None
    has_pipeline: bool = True


@dataclass(frozen=True)
class Metric:
    """A measure of a card's tables.

    Attributes:
        label: for a heading.
        examples: what is counted, in the plural.
        meaning: a sentence, where the label needs one.
        key: of the value in a table.
    """

    label: str
    examples: str
    meaning: str = ""
    key: str = "accuracy"

    @property
    def in_bits(self) -> bool:
        """Whether it is a loss, of which less is better, rather than a share of right answers."""
        return self.key.startswith("bits")

    @property
    def baseline_key(self) -> str:
        """The key of the best constant answer's value in a table."""
        return f"constant_{self.key}" if self.in_bits else "majority_baseline"


# by pipeline tag
TASKS = {
    CLASSIFICATION: Task(
        "AutoModelForSequenceClassification", "model.config.id2label[outputs.logits.argmax(-1).item()]"
    ),
    GENERATION: Task("AutoModelForCausalLM"),
    # the Hub's only name for sequence-to-sequence tasks
    TRANSLATION: Task("AutoModelForSeq2SeqLM", has_pipeline=False),
    TOKEN_CLASSIFICATION: Task(
        "AutoModelForTokenClassification", "[model.config.id2label[i] for i in outputs.logits[0].argmax(-1).tolist()]"
    ),
    FILL_MASK: Task(
        "AutoModelForMaskedLM",
        "tokenizer.decode(outputs.logits.argmax(-1)[inputs.input_ids == tokenizer.mask_token_id])",
    ),
    QUESTION_ANSWERING: Task(
        "AutoModelForQuestionAnswering",
        "tokenizer.decode(inputs.input_ids[0, outputs.start_logits.argmax() : outputs.end_logits.argmax() + 1])",
        has_pipeline=False,
    ),
    MULTIPLE_CHOICE: Task("AutoModelForMultipleChoice", "outputs.logits", has_pipeline=False),
}
FEATURES = Task("AutoModel", "outputs.last_hidden_state.shape", has_pipeline=False)
# what classifiers with other labels than one of several print instead
OTHER_ANSWERS = {
    "r_squared": "outputs.logits.item()",
    "exact_labels": "[model.config.id2label[i] for i in (outputs.logits[0] > 0).nonzero().flatten().tolist()]",
}
METRICS = {
    "accuracy": Metric("Accuracy", "examples"),
    "exact_labels": Metric("Exact labels", "examples", "All labels of an example are predicted, and no other."),
    "r_squared": Metric("R²", "examples", "The share of the labels' variance that is explained; 0% for their mean."),
    "last_read_accuracy": Metric(
        "Last-read accuracy", "strings", "The last read of a string is answered with the last bit written."
    ),
    "word_accuracy": Metric("Accuracy", "words", "A word has its right label."),
    "masked_accuracy": Metric("Accuracy", "masked tokens", "A masked token is the likeliest one."),
    "span_exact_match": Metric(
        "Exact match", "questions", "The answer is a true one, but for case, punctuation and articles, as in SQuAD."
    ),
    "choice_accuracy": Metric("Accuracy", "questions"),
    "exact_match": Metric("Exact match", "pairs", "The whole target is generated exactly."),
    "bleu": Metric("BLEU", "pairs", "BLEU of the whole split, in points of 100.", "bleu"),
    "bits_per_byte": Metric(
        "Bits per byte",
        "documents",
        "Bits that predict a document, divided by its bytes; fewer are better.",
        "bits_per_byte",
    ),
    "bits_per_token": Metric(
        "Bits per token",
        "documents",
        "Bits that predict a document, divided by its tokens; fewer are better.",
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


def task_for(auto_class: str | None) -> str | None:
    """The task of the models that an Auto class makes; None where it has none."""
    return next((name for name, task in TASKS.items() if task.auto_class == auto_class), None)
