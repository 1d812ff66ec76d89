"""Words with a label for each: `token-classification`.

Shapes: N examples, S tokens of an example, W words, T labelled tokens of all examples.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from ..analysis.evaluate import evaluate_batches
from ..analysis.explain.card import token_heat_map
from ..analysis.halting import halting_table
from ..data.batches import PaddingCollator, within
from ..data.columns import LENGTH, Columns, check_slices, chosen, has_column, require_columns
from ..data.loading import Source
from ..data.words import first_tokens, words_of, words_of_tokens
from ..metrics.entities import is_iob, scores_entities
from ..models.common.token_targets import NO_TARGET
from .arguments import WordArguments
from .base import (
    EXAMPLE_CHARACTERS,
    Data,
    Measured,
    Split,
    Splits,
    Task,
    label_fields,
    require_room,
    require_tokens,
    short_example,
    warn_of_cuts,
)
from .metrics import tag_scores, token_classes, with_ponder_metrics

if TYPE_CHECKING:
    from datasets import Dataset

WORD_NAMES, LABEL_NAMES = ("tokens", "words"), ("ner_tags", "tags", "pos_tags", "label", "labels")
# columns of encoded examples: words, their labels, and the number of the word that each token is of, -1 for none
WORDS, WORD_LABELS, WORD_IDS = "words", "word_labels", "word_ids"
# bits by which a label, or a masked token, is unexpected for who knows frequencies in training and no context
CONTEXT_FREE = "context_free_bits"
USUAL_LABEL = "the most frequent label of each word in training"


class PerToken(Task):
    """A task of which each labelled token counts, with its own steps."""

    def labelled(self, split: Split) -> Split:
        """A split without the examples that have no labelled token."""
        kept = split.dataset.filter(lambda row: any(label != NO_TARGET for label in row["labels"]), desc="labelled")
        return replace(split, dataset=kept)

    def counts(self, split: Split) -> np.ndarray:
        """Labelled tokens of each example (N,)."""
        return np.array([sum(label != NO_TARGET for label in labels) for labels in split.dataset["labels"]])

    def slices(self, split: Split) -> dict[str, Any]:
        counts = self.counts(split)
        of_texts = {name: np.repeat(values, counts) for name, values in super().slices(split).items()}
        return {**split.of_units, **of_texts}

    def counted(self, split: Split) -> dict[str, int]:
        return {"n": int(self.counts(split).sum())}

    def measure(self, split: Split, model: Any, tokenizer: Any, batch_size: int, **options: Any) -> Measured:
        record = evaluate_batches(model, split.batches(tokenizer, batch_size), slices=split.slices, **options).record
        return record.examples, {**halting_table(record), **self.unit_scores(split, record.examples)}

    def unit_scores(self, split: Split, examples: pd.DataFrame) -> dict[str, Any]:
        """What a table says of the labelled tokens besides their accuracy."""
        raise NotImplementedError

    def by_example(self, split: Split, values: np.ndarray) -> list[list[Any]]:
        """Values of labelled tokens (T,) as those of each example."""
        return [part.tolist() for part in np.split(values, self.counts(split).cumsum()[:-1])]

    def judged(self, split: Split, examples: pd.DataFrame) -> pd.DataFrame:
        # a guarantee is of whole sequences, and the steps that it compares are of all tokens
        confidences = self.by_example(split, examples["confidence"].to_numpy())
        return pd.DataFrame({"confidence": [np.mean(own) for own in confidences if own]})

    def figures(
        self, split: Split, folder: Path, table: Mapping[str, Any], model: Any, tokenizer: Any
    ) -> list[dict[str, Any]]:
        # matplotlib is loaded where figures are drawn alone
        from ..analysis.plots import save_figures

        heat_map = token_heat_map(model, tokenizer, short_example(split)) if table["unit"] == "token" else None
        return save_figures(folder, table, prefix=split.name, heat_map=heat_map)


class TokenClassification(PerToken):
    """A label for each word, trained and measured at its first token."""

    tag = "token-classification"
    script = "training/run_token_classification.py"
    auto_class = "AutoModelForTokenClassification"
    model_kind, data_kind = "a token classifier", "has a label for each word"
    arguments = WordArguments
    metric_name = "word_accuracy"
    labels_words, needs_offsets = True, True
    preprocess_logits: ClassVar[Callable | None] = staticmethod(token_classes)

    # ---- reading

    def columns(self, found: Sequence[str], place: str, needs_label: bool = True) -> Columns:
        data = self.data
        words = chosen("text_column", data.text_column, WORD_NAMES, found, place, "the lists of words")
        label = data.label_column
        if needs_label or label is None:
            usual = [name for name in LABEL_NAMES if name in found]
            label = chosen("label_column", label, usual, found, place, "their labels") if needs_label or usual else None
        elif not has_column(found, label):
            label = None
        named = {"text_column": words} | ({} if label is None else {"label_column": label})
        require_columns(named, found, place)
        return Columns({WORDS: words}, label, check_slices(data.slice_by, found, place))

    def example(self, row: Mapping[str, Any], columns: Columns) -> dict[str, Any]:
        return {WORDS: words_of(row, columns.inputs[WORDS])}

    def features(self, columns: Columns) -> dict[str, Any]:
        from datasets import List, Value

        return {WORDS: List(Value("string"))}

    def check_label(self, example: Mapping[str, Any], label: Any, column: Any) -> None:
        # None are labels that are kept secret
        if label is None:
            return
        if not isinstance(label, list):
            raise ValueError(f"{column} is {label!r:.60}: expected a list of labels, one for each word")
        if len(label) != len(example[WORDS]):
            raise ValueError(
                f"{column} is a list of {len(label)} labels for {len(example[WORDS])} words: expected one for each"
            )

    # ---- encoding

    def encode(self, examples: "Dataset", tokenizer: Any, place: str, info: Any = None) -> "Dataset":
        """Token ids, `labels` of the first token of each word, and `word_ids`, beside words and slice columns.

        A tokenizer reads words with a space between them, as it reads the text that a pipeline is given.
        """
        limit = self.data.max_seq_length
        require_room(limit, tokenizer)

        def tokenize(batch: dict[str, list]) -> dict[str, list]:
            texts = [" ".join(words) for words in batch[WORDS]]
            encoded, lengths = within(tokenizer, limit, texts, return_offsets_mapping=True)
            offsets = encoded.pop("offset_mapping")
            word_ids = [words_of_tokens(*pair) for pair in zip(batch[WORDS], offsets, strict=True)]
            labels = [first_labels(*pair) for pair in zip(word_ids, batch["label"], strict=True)]
            return {**encoded, LENGTH: lengths, WORD_IDS: word_ids, "labels": labels}

        encoded = examples.map(tokenize, batched=True, num_proc=self.data.num_proc, desc="encoding")
        lengths = np.asarray(encoded[LENGTH][:])
        found = np.array([len({*numbers} - {-1}) for numbers in encoded[WORD_IDS]])
        require_tokens(encoded, found > 0, WORDS, place)
        warn_of_cuts(lengths, limit, "max_seq_length", f"examples of {place}")
        uncut = lengths <= limit if limit is not None else np.full(len(lengths), True)
        lost = int((np.array([len(words) for words in encoded[WORDS]]) - found)[uncut].sum())
        if lost:
            warnings.warn(
                f"the tokenizer leaves nothing of {lost:,} words of {place}, which get no label", stacklevel=2
            )
        # Trainer would take a column `label` for those of tokens
        return encoded.rename_column("label", WORD_LABELS)

    def collator(self, tokenizer: Any, examples: Any = None, seed: int = 0) -> PaddingCollator:
        return PaddingCollator(tokenizer, lists_of_labels=True)

    def load_splits(self, tokenizer: Any) -> Splits:
        splits, names = super().load_splits(tokenizer), self.labels.names
        train = splits.train
        evaluation = [self.with_knowledge(split, train) for split in splits.evaluation]
        if self.data.label_all_tokens:
            train = train.map(lambda row: {"labels": all_labels(row[WORD_IDS], row[WORD_LABELS], names)}, desc="labels")
        if is_iob(names) and not scores_entities(names):
            warnings.warn(
                "labels are of entities, whose scores need the package seqeval: pip install 'hf-recurrent[entities]'; "
                "words are scored alone",
                stacklevel=2,
            )
        return replace(splits, train=train, evaluation=evaluation)

    def split(self, name: str, examples: "Dataset", tokenizer: Any, data: Data) -> Split:
        found = self.labelled(super().split(name, examples, tokenizer, data))
        if not len(found.dataset):
            raise ValueError(f"{data.place_of(name)} has no labelled word: name other examples")
        names = np.array(data.labels.names)
        return replace(found, of_units={"label": names[[label for _, label in labelled_words(found.dataset)]]})

    def with_training(self, split: Split, train_file: str, tokenizer: Any) -> Split:
        source = Source(self, files={"train": train_file}, known=self.labels, evaluates=True).data()
        train = self.encode(source.splits["train"], tokenizer, source.place_of("train"))
        return self.with_knowledge(split, train)

    def with_knowledge(self, split: Split, train: "Dataset") -> Split:
        """A split with what training tells of words without their context: their usual label, and how usual that is.

        The labels of a word count beside one occurrence that has the labels of all words, so that no label is
        impossible.
        """
        seen: dict[str, Counter] = {}
        for word, label in labelled_words(train):
            seen.setdefault(word, Counter())[label] += 1
        everywhere = np.ones(len(self.labels.names))
        for labels in seen.values():
            everywhere[list(labels)] += list(labels.values())
        usual = {word: labels.most_common(1)[0][0] for word, labels in seen.items()}
        pairs, unseen = list(labelled_words(split.dataset)), Counter()
        shares = [
            (seen.get(word, unseen)[label] + everywhere[label] / everywhere.sum())
            / (seen.get(word, unseen).total() + 1)
            for word, label in pairs
        ]
        right = [usual.get(word, everywhere.argmax()) == label for word, label in pairs]
        return replace(
            split,
            of_units={CONTEXT_FREE: -np.log2(shares), **split.of_units},
            baseline={"accuracy": float(np.mean(right)), "size": len(usual)},
        )

    # ---- models and training

    def config_fields(self) -> dict[str, Any]:
        return {**label_fields(self.labels), "problem_type": None}

    def compute_metrics(self, prediction: Any) -> dict[str, float]:
        def scores(classes: np.ndarray, labels: np.ndarray) -> dict[str, float]:
            known = labels != NO_TARGET
            return tag_scores(classes[known], labels[known], known.sum(1), self.labels.names)

        return with_ponder_metrics(prediction, scores)

    @property
    def scores(self) -> list[str]:
        word = np.zeros(1, np.int64)
        return list(tag_scores(word, word, word + 1, self.labels.names))

    # ---- measuring

    def unit_scores(self, split: Split, examples: pd.DataFrame) -> dict[str, Any]:
        labels = self.labels
        found, true = (examples[name].to_numpy() for name in ("prediction", "label"))
        scores = tag_scores(found, true, self.counts(split), labels.names)
        del scores["accuracy"]
        return {"scores": scores, **labels.positive}

    def predictions(self, split: Split, examples: pd.DataFrame, model: Any, tokenizer: Any) -> Iterator[dict[str, Any]]:
        """The words of each example, and for each that is labelled its label, prediction and steps."""
        names = self.labels.names
        kept = [name for name in ("label", "prediction", "steps") if name in examples]
        columns = (self.by_example(split, examples[name].to_numpy()) for name in kept)
        for words, *values in zip(split.dataset[WORDS], *columns, strict=True):
            row = dict(zip(kept, values, strict=True))
            row |= {f"{name}s": [names[i] for i in row.pop(name)] for name in ("label", "prediction")}
            yield {WORDS: words, **row}

    # ---- for a card

    def card_example(self, split: Split, tokenizer: Any) -> dict[str, Any]:
        texts = [" ".join(words) for words in split.dataset[WORDS]]
        fitting = [text for text in texts if len(text) <= EXAMPLE_CHARACTERS]
        return {"text": max(fitting, key=len, default=texts[0][:EXAMPLE_CHARACTERS])}

    def compared(self, splits: Splits | None) -> list[dict[str, Any]]:
        assert splits is not None
        found = {split.name: split.baseline for split in splits.evaluation}
        values = {name: [baseline["accuracy"]] for name, baseline in found.items()}
        # as a model with a parameter for each word
        size = int(next(iter(found.values()))["size"])
        facts = {"parameters": size, "values": values, "same_model": False}
        return [{"name": "the most frequent label of each word in training", **facts}]


def first_labels(word_ids: list[int], labels: list[int]) -> list[int]:
    """The labels (S,) of tokens that are the first of a word; -100 of others."""
    found = [NO_TARGET] * len(word_ids)
    for number, place in first_tokens(word_ids).items():
        found[place] = labels[number]
    return found


def all_labels(word_ids: list[int], labels: list[int], names: tuple[str, ...]) -> list[int]:
    """The labels (S,) of all tokens of words; after the first one, B- of a label is I-, where there is such a label."""
    inside = {
        number: names.index(f"I-{name[2:]}")
        for number, name in enumerate(names)
        if name[:2] == "B-" and f"I-{name[2:]}" in names
    }
    firsts = first_labels(word_ids, labels)
    return [
        first if first != NO_TARGET or number < 0 else inside.get(labels[number], labels[number])
        for number, first in zip(word_ids, firsts, strict=True)
    ]


def labelled_words(examples: "Dataset") -> Iterator[tuple[str, int]]:
    """The words that have a labelled token, in order, and their labels."""
    for words, numbers, labels in zip(*(examples[name] for name in (WORDS, WORD_IDS, "labels")), strict=True):
        yield from ((words[number], label) for number, label in zip(numbers, labels, strict=True) if label != NO_TARGET)
