"""Texts or pairs of texts with a label, several labels, or a number: `text-classification`."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from ..data.batches import within
from ..data.columns import LENGTH, Columns, check_slices, has_column, require_columns, text_of
from ..data.glue import TASKS as GLUE
from ..data.labels import JOINED, MULTI, REGRESSION, SINGLE
from ..files import plain
from ..metrics.baselines import text_baseline
from ..metrics.classification import class_scores, number_scores, set_scores
from ..metrics.functional import r_squared
from .arguments import ClassificationArguments
from .base import (
    EXAMPLE_CHARACTERS,
    Measured,
    Split,
    Splits,
    Task,
    label_fields,
    require_known_words,
    require_room,
    require_tokens,
    short_example,
    warn_of_cuts,
)
from .metrics import with_ponder_metrics

if TYPE_CHECKING:
    from datasets import Dataset

# names of text columns in the data sets that people fine-tune on, and of pairs of them
TEXT_NAMES, LABEL_NAMES = ("text", "sentence"), ("label", "labels")
PAIR_NAMES = (*dict.fromkeys(task.texts for task in GLUE.values() if len(task.texts) == 2), ("text", "text_pair"))


class TextClassification(Task):
    """A label, several labels or a number for a text or a pair of texts."""

    tag = "text-classification"
    script = "training/run_glue_style.py"
    auto_class = "AutoModelForSequenceClassification"
    model_kind, data_kind = "a sequence classifier", "has labels"
    arguments = ClassificationArguments
    explains = True
    as_trained: ClassVar = ("label_delimiter",)

    # ---- reading

    def columns(self, found: Sequence[str], place: str, needs_label: bool = True) -> Columns:
        data = self.data
        texts = list(GLUE[data.task_name].texts) if data.task_name is not None else data.text_column
        slices, label = check_slices(data.slice_by, found, place), data.label_column
        if not label:
            usual = next((name for name in LABEL_NAMES if name in found and name not in texts), None)
            if usual is None and needs_label:
                rest = ", ".join(repr(name) for name in found if name not in texts)
                raise ValueError(
                    f"{place} has no column 'label': name one of {rest or 'none'} with --label_column or, if none of "
                    "them is a label, choose another task (hf-recurrent train --task)"
                )
            label = [] if usual is None else [usual]
        elif not needs_label and not all(has_column(found, name) for name in label):
            label = []
        if not texts:
            pairs = (list(pair) for pair in PAIR_NAMES if set(pair) <= set(found))
            singles = ([name] for name in TEXT_NAMES if name in found and name not in label)
            texts = next(pairs, None) or next(singles, None)
        if not texts:
            texts = [name for name in found if name not in (*label, *slices)]
            if len(texts) != 1:
                raise ValueError(
                    f"{place} has the columns {', '.join(found)}: name the one or two with texts with --text_column"
                )
        if len(texts) > 2:
            raise ValueError(f"text_column is {', '.join(texts)}: expected one or two columns beside the label's")
        named = numbered("text_column", texts) | numbered("label_column", label)
        require_columns(named, found, place)
        inputs = dict(zip(("text", "text_pair"), texts, strict=False))
        return Columns(inputs, tuple(label) if len(label) > 1 else label[0] if label else None, slices)

    def example(self, row: Mapping[str, Any], columns: Columns) -> dict[str, Any]:
        return {name: text_of(row, column) for name, column in columns.inputs.items()}

    def features(self, columns: Columns) -> dict[str, Any]:
        from datasets import Value

        return dict.fromkeys(columns.inputs, Value("string"))

    # ---- encoding

    def encode(self, examples: "Dataset", tokenizer: Any, place: str, info: Any = None) -> "Dataset":
        limit = self.data.max_seq_length
        columns = [name for name in ("text", "text_pair") if name in examples.column_names]
        if info is None:
            require_room(limit, tokenizer, pair=len(columns) > 1)

        def tokenize(batch: dict[str, list]) -> dict[str, list]:
            texts = [batch[column] for column in (columns if info is None else info.text_columns)]
            if info is not None:
                return dict(tokenizer(*texts))
            encoded, lengths = within(tokenizer, limit, *texts)
            return {**encoded, LENGTH: lengths}

        encoded = examples.map(tokenize, batched=True, num_proc=self.data.num_proc, desc="encoding")
        if info is not None:
            require_known_words(encoded, tokenizer, info, "input_ids")
        else:
            lengths = np.asarray(encoded[LENGTH][:])
            require_tokens(encoded, lengths > 0, columns[0], place)
            warn_of_cuts(lengths, limit, "max_seq_length", f"examples of {place}")
        return encoded.rename_column("label", "labels") if "label" in encoded.column_names else encoded

    # ---- models and training

    def config_fields(self) -> dict[str, Any]:
        labels = self.labels
        fields = label_fields(labels)
        if labels.problem_type == REGRESSION:
            fields = {"num_labels": 1}
        return {**fields, "problem_type": labels.problem_type}

    def pair_types(self, model: Any) -> bool:
        is_pair = self.data.is_own and "text_pair" in next(iter(self.source.splits.values())).column_names
        return is_pair and model.config.get("pair_encoding", "joint") == "joint"

    def compute_metrics(self, prediction: Any) -> dict[str, float]:
        return with_ponder_metrics(prediction, self.label_scores)

    def label_scores(self, logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        """Scores of logits (N, C), or numbers (N, 1), with labels as a model takes them."""
        own = self.labels
        if own.problem_type == REGRESSION:
            return number_scores(logits.reshape(-1), labels.reshape(-1))
        if own.problem_type == MULTI:
            return set_scores(logits > 0, labels > 0)
        if not self.data.is_own:
            return {"accuracy": float((logits.argmax(-1) == labels).mean())}
        return class_scores(logits.argmax(-1), labels, len(own.names))

    @property
    def scores(self) -> list[str]:
        own = self.labels
        logits = np.zeros((2, max(len(own.names), 1)))
        return list(self.label_scores(logits, logits if own.problem_type == MULTI else np.zeros(2, np.int64)))

    @property
    def metric(self) -> str:
        return metric_of(self.labels.problem_type)

    # ---- measuring

    def measure(self, split: Split, model: Any, tokenizer: Any, batch_size: int, **options: Any) -> Measured:
        examples, table = super().measure(split, model, tokenizer, batch_size, **options)
        return examples, {**table, **self.further_scores(examples)} if self.data.is_own else table

    def further_scores(self, examples: pd.DataFrame) -> dict[str, Any]:
        """What a table says of a user's labels: `scores` beside the one that it shows, and the class of `f1`."""
        labels = self.labels
        predictions, true = (examples[name].to_numpy() for name in ("prediction", "label"))
        if labels.problem_type == REGRESSION:
            scores, shown = number_scores(predictions, true), "r_squared"
        elif labels.problem_type == MULTI:
            sets = ([set(text.split(JOINED)) for text in texts] for texts in (predictions, true))
            chosen = (np.array([[name in found for name in labels.names] for found in each]) for each in sets)
            scores, shown = set_scores(*chosen), "accuracy"
        else:
            scores, shown = class_scores(predictions, true, len(labels.names)), "accuracy"
        return {"scores": {name: score for name, score in scores.items() if name != shown}, **labels.positive}

    def predictions(self, split: Split, examples: pd.DataFrame, model: Any, tokenizer: Any) -> Iterator[dict[str, Any]]:
        single = not self.data.is_own or self.labels.problem_type == SINGLE
        # names already, or numbers
        name_of = model.config.id2label.__getitem__ if single else plain
        own = ["text", "text_pair"] if self.data.is_own else []
        columns = (*(name for name in own if name in split.dataset.column_names), *split.slice_columns)
        texts = {name: split.dataset[name][:] for name in columns}
        for number, example in enumerate(examples.to_dict("records")):
            answer = {name: name_of(example[name]) for name in ("label", "prediction")}
            steps = {name: example[name] for name in ("steps",) if name in example}
            yield {**{name: values[number] for name, values in texts.items()}, **answer, **steps}

    # ---- for a card

    def card_example(self, split: Split, tokenizer: Any) -> dict[str, Any]:
        info, shown = self.source.info, short_example(split)
        columns = [name for name in ("text", "text_pair") if name in shown] if info is None else info.text_columns
        texts = [shown[column] for column in columns]
        if info is None or info.modality == "bytes" or (info.modality == "words" and not info.synthetic):
            # what people wrote is long
            texts = [beginning(text) for text in texts]
        return dict(zip(("text", "text_pair"), texts, strict=False))

    def compared(self, splits: Splits | None) -> list[dict[str, Any]]:
        """A user's own texts answered by their words alone."""
        if splits is None or not self.data.is_own:
            return []
        problem_type = self.labels.problem_type
        of_numbers = problem_type == REGRESSION

        def read(rows: "Dataset") -> tuple[list[str], np.ndarray]:
            columns = (rows[name][:] for name in ("text", "text_pair") if name in rows.column_names)
            texts = [" ".join(texts) for texts in zip(*columns, strict=True)]
            return texts, np.asarray(rows["labels"][:], dtype=float if of_numbers else int)

        tests = [read(split.dataset) for split in splits.evaluation]
        try:
            found, size = text_baseline(*read(splits.train), [text for texts, _ in tests for text in texts])
        except ImportError:
            warnings.warn(
                "not compared with TF-IDF and logistic regression, which needs scikit-learn: pip install "
                "'hf-recurrent[baselines]'",
                stacklevel=2,
            )
            return []
        values = {}
        for split, (texts, labels) in zip(splits.evaluation, tests, strict=True):
            own, found = found[: len(texts)], found[len(texts) :]
            right = own == labels if labels.ndim == 1 else (own == labels).all(-1)
            values[split.name] = [r_squared(own, labels) if of_numbers else float(right.mean())]
        name = f"TF-IDF with {'ridge' if of_numbers else 'logistic'} regression"
        return [{"name": name, "parameters": size, "values": values, "same_model": False}]


def numbered(flag: str, names: Sequence[str]) -> dict[str, str]:
    """The columns of a flag, with a number after it where there are several."""
    return {f"{flag} ({number})" if len(names) > 1 else flag: name for number, name in enumerate(names, 1)}


def metric_of(problem_type: str | None) -> str:
    """The measure of a classifier, by the `problem_type` of its config."""
    return {MULTI: "exact_labels", REGRESSION: "r_squared"}.get(problem_type, "accuracy")


def beginning(text: str) -> str:
    """The first words of a text, without those that look like file names."""
    start = text[: 2 * EXAMPLE_CHARACTERS]
    # a cut goes through a word
    words = start.split() if start == text else start.split()[:-1]
    kept = " ".join(word for word in words if not any(sign in word for sign in "/\\~"))
    return kept if len(kept) <= EXAMPLE_CHARACTERS else kept[:EXAMPLE_CHARACTERS].rpartition(" ")[0]
