"""Texts or pairs of texts with a label, several labels, or a number: `text-classification`."""

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..data.batches import within
from ..data.glue import TASKS as GLUE
from ..data.labels import JOINED, MULTI, REGRESSION, SINGLE
from ..data.reading import LENGTH, Columns, check_slices, has_column, require_columns
from ..metrics.functional import Row, Scores, accuracy, class_scores, number_scores, r_squared, set_scores
from .arguments import ClassificationArguments
from .base import (
    Split,
    Splits,
    Task,
    beginning,
    numbered,
    require_known_words,
    require_room,
    require_tokens,
    short_example,
    warn_of_cuts,
)

if TYPE_CHECKING:
    from datasets import Dataset

# names of text columns in the data sets that people fine-tune on, and of pairs of them
TEXT_NAMES = ("text", "sentence")
PAIR_NAMES = (*dict.fromkeys(task.texts for task in GLUE.values() if len(task.texts) == 2), ("text", "text_pair"))
# training texts that a baseline reads at most, so that it takes seconds
MOST_TEXTS = 50_000
# every run of letters or digits, and every other sign, is a word
WORD = r"\w+|[^\w\s]"
METRICS = {MULTI: "exact_labels", REGRESSION: "r_squared"}


class TextClassification(Task):
    """A label, several labels or a number for a text or a pair of texts."""

    tag = "text-classification"
    script = "training/run_glue_style.py"
    auto_class = "AutoModelForSequenceClassification"
    model_kind, data_kind = "a sequence classifier", "has labels"
    arguments = ClassificationArguments
    label_names = ("label", "labels")
    shown = ("text", "text_pair")
    explains = True
    as_trained = ("label_delimiter",)

    # ---- reading

    def columns(self, found: Sequence[str], place: str, needs_label: bool = True) -> Columns:
        data = self.data
        texts = list(GLUE[data.task_name].texts) if data.task_name is not None else data.text_column
        slices = check_slices(data.slice_by, found, place)
        label = data.label_column or [name for name in self.label_names if name in found and name not in texts][:1]
        if needs_label and not label:
            rest = ", ".join(repr(name) for name in found if name not in texts)
            raise ValueError(
                f"{place} has no column 'label': name one of {rest or 'none'} with --label_column or, if none of "
                "them is a label, choose another task (hf-recurrent train --task)"
            )
        if not needs_label and not all(has_column(found, name) for name in label):
            label = []
        if not texts:
            rest = [name for name in found if name not in (*label, *slices)]
            pairs = [pair for pair in PAIR_NAMES if set(pair) <= set(found)]
            singles = [(name,) for name in TEXT_NAMES if name in rest]
            texts = next(iter([*pairs, *singles, rest]))
            if len(texts) != 1 and not pairs:
                raise ValueError(
                    f"{place} has the columns {', '.join(found)}: name the one or two with texts with --text_column"
                )
        if len(texts) > 2:
            raise ValueError(f"text_column is {', '.join(texts)}: expected one or two columns beside the label's")
        require_columns(numbered("text_column", texts) | numbered("label_column", label), found, place)
        inputs = dict(zip(("text", "text_pair"), texts, strict=False))
        return Columns(inputs, tuple(label) if len(label) > 1 else next(iter(label), None), slices)

    def column_facts(self, columns: Columns) -> Row:
        return {"text_column": list(columns.texts), "label_column": columns.label}

    # ---- encoding

    def encode(self, examples: "Dataset", tokenizer: Any, place: str) -> "Dataset":
        info, limit = self.source.info, self.data.max_seq_length
        columns = text_columns(examples) if info is None else info.text_columns
        if info is None:
            require_room(limit, tokenizer, pair=len(columns) > 1)

        def tokenize(batch: dict[str, list]) -> dict[str, list]:
            texts = [batch[column] for column in columns]
            if info is not None:
                return dict(tokenizer(*texts))
            encoded, lengths = within(tokenizer, limit, *texts)
            require_tokens(texts[0], lengths, place)
            return {**encoded, LENGTH: lengths}

        encoded = examples.map(tokenize, batched=True, num_proc=self.data.num_proc, desc="encoding")
        if info is not None:
            require_known_words(encoded, tokenizer, info, "input_ids")
        else:
            warn_of_cuts(encoded[LENGTH][:], limit, "max_seq_length", f"examples of {place}")
        return encoded.rename_column("label", "labels") if "label" in encoded.column_names else encoded

    # ---- models and training

    @property
    def reads_pairs(self) -> bool:
        return len(text_columns(next(iter(self.source.splits.values())))) > 1

    def metrics(self, answers: np.ndarray, labels: np.ndarray) -> Scores:
        """Scores of logits (N, C), or numbers (N, 1), with labels as a model takes them."""
        kind = self.labels.problem_type
        if kind == MULTI:
            return self.label_scores(answers > 0, labels > 0)
        return self.label_scores(answers if kind == REGRESSION else answers.argmax(-1), labels)

    def label_scores(self, answers: np.ndarray, labels: np.ndarray) -> Scores:
        """Scores of class ids (N,), sets of classes (N, C) bool, or numbers; the first one is that of tables."""
        kind = self.labels.problem_type
        if kind == REGRESSION:
            return number_scores(answers.reshape(-1), labels.reshape(-1))
        if kind == MULTI:
            return set_scores(answers, labels)
        if not self.data.is_own:
            return {"accuracy": accuracy(answers, labels)}
        return class_scores(answers, labels, len(self.labels.names))

    @property
    def scores(self) -> Sequence[str]:
        answers = np.zeros((2, 2) if self.labels.problem_type == MULTI else 2, int)
        return list(self.label_scores(answers, answers))

    @property
    def metric(self) -> str:
        return METRICS.get(self.labels.problem_type, self.metric_name)

    # ---- measuring

    def further_scores(self, split: Split, examples: pd.DataFrame) -> Row:
        """Of a user's labels: `scores` beside the one that tables show, and the class that `f1` is of."""
        if not self.data.is_own:
            return {}
        labels = self.labels
        answers = [examples[name].to_numpy() for name in ("prediction", "label")]
        if labels.problem_type == MULTI:
            sets = ([text.split(JOINED) for text in texts] for texts in answers)
            answers = [np.array([[name in found for name in labels.names] for found in each]) for each in sets]
        _, *others = self.label_scores(*answers).items()
        return {"scores": dict(others), **labels.positive}

    def readable(self, answer: Any, model: Any, tokenizer: Any) -> Any:
        # sets are names already
        single = self.labels.problem_type == SINGLE
        return model.config.id2label[answer] if single else super().readable(answer, model, tokenizer)

    # ---- for a card

    def card_example(self, split: Split, tokenizer: Any) -> Row:
        info, shown = self.source.info, short_example(split)
        texts = [shown[column] for column in (text_columns(shown) if info is None else info.text_columns)]
        if info is None or info.modality == "bytes" or (info.modality == "words" and not info.synthetic):
            # what people wrote is long
            texts = [beginning(text) for text in texts]
        return dict(zip(("text", "text_pair"), texts, strict=False))

    def compared(self, splits: Splits | None) -> list[Row]:
        """A user's own texts answered by their words alone."""
        if splits is None or not self.data.is_own:
            return []
        of_numbers = self.labels.problem_type == REGRESSION

        def read(rows: "Dataset") -> tuple[list[str], np.ndarray]:
            columns = (rows[name][:] for name in text_columns(rows))
            labels = np.asarray(rows["labels"][:], dtype=float if of_numbers else int)
            return [" ".join(texts) for texts in zip(*columns, strict=True)], labels

        try:
            answer, size = text_baseline(*read(splits.train))
        except ImportError:
            warnings.warn(
                "not compared with TF-IDF and logistic regression, which needs scikit-learn: pip install "
                "'hf-recurrent[baselines]'",
                stacklevel=2,
            )
            return []
        values = {}
        for split in splits.evaluation:
            texts, labels = read(split.dataset)
            found = answer(texts)
            right = (found == labels).reshape(len(labels), -1).all(1)
            values[split.name] = [r_squared(found, labels) if of_numbers else float(right.mean())]
        name = f"TF-IDF with {'ridge' if of_numbers else 'logistic'} regression"
        return [{"name": name, "parameters": size, "values": values, "same_model": False}]


def text_baseline(texts: Sequence[str], labels: np.ndarray) -> tuple[Callable[[Sequence[str]], np.ndarray], int]:
    """Fit a bag-of-words baseline, which a model should beat: TF-IDF features, with logistic or ridge regression.

    Ridge regression predicts numbers, logistic regression classes, both with scikit-learn's default settings. At most
    `MOST_TEXTS` training texts are used, the same random sample in every run.

    Args:
        texts: N training texts.
        labels: class ids (N,) as integers, sets of C labels (N, C) as zeros and ones, or numbers (N,) as floats.

    Returns:
        A function from M texts to predictions (M,) or (M, C), of the type of the labels; and the number of
        coefficients.

    Raises:
        ImportError: scikit-learn is not installed.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.multiclass import OneVsRestClassifier

    chosen = np.random.default_rng(0).permutation(len(labels))[:MOST_TEXTS]
    vectorizer = TfidfVectorizer(token_pattern=WORD)
    words, labels = vectorizer.fit_transform([texts[place] for place in chosen]), labels[chosen]
    model = LogisticRegression() if labels.dtype.kind == "i" else Ridge()
    # logistic regression alone cannot fit labels that are all the same
    if labels.dtype.kind == "i" and (labels.ndim == 2 or len(np.unique(labels)) == 1):
        model = OneVsRestClassifier(model)
    with warnings.catch_warnings():
        # of a fit that has not converged, and of labels that are all the same
        warnings.simplefilter("ignore")
        model.fit(words, labels)
    fitted = [each for each in getattr(model, "estimators_", [model]) if hasattr(each, "coef_")]
    size = sum(each.coef_.size + np.size(each.intercept_) for each in fitted)
    # scikit-learn returns (M,) for a single label
    return lambda texts: model.predict(vectorizer.transform(texts)).reshape(-1, *labels.shape[1:]), size


def text_columns(examples: Any) -> list[str]:
    """The fields of texts that a data set, or one of its rows, has."""
    names = getattr(examples, "column_names", examples)
    return [name for name in ("text", "text_pair") if name in names]
