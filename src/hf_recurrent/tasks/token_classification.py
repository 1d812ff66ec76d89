"""Words with a label for each: `token-classification`.

Shapes: N examples, S tokens of an example, W words, T labelled tokens of all examples.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from datasets import Dataset, List, Value

from ..data.batches import PaddingCollator, within
from ..data.loading import Source
from ..data.reading import LENGTH, Columns, Reading, first_tokens, format_of, is_folder, words_of, words_of_tokens
from ..metrics.functional import Row, Scores, is_iob, scores_entities, tag_scores
from ..metrics.tensors import token_classes
from ..models.ops.losses import NO_TARGET
from ..utils import plain
from .arguments import WordArguments
from .base import EXAMPLE_CHARACTERS, Split, Splits, Task, require_room, require_tokens, warn_of_cuts

# columns of encoded examples: words, their labels, and the number of the word that each token is of, -1 for none
WORDS, WORD_LABELS, WORD_IDS = "words", "word_labels", "word_ids"
# bits by which a label, or a masked token, is unexpected for who knows frequencies in training and no context
CONTEXT_FREE = "context_free_bits"


class PerToken(Task):
    """A task of which each labelled token counts, with its own steps."""

    by_token = True

    def with_knowledge(self, split: Split, train: Dataset, tokenizer: Any) -> Split:
        """A split with what training tells of its units without their context."""
        raise NotImplementedError

    def known_examples(self, train_file: str, tokenizer: Any) -> Dataset:
        """The encoded examples of a file of training."""
        raise NotImplementedError

    def load_splits(self, tokenizer: Any) -> Splits:
        found = super().load_splits(tokenizer)
        known = [self.with_knowledge(split, found.train, tokenizer) for split in found.evaluation]
        return replace(found, evaluation=known)

    def checkpoint_splits(
        self, tokenizer: Any, names: Sequence[str], choose: Callable, *, train_file: str | None = None, **options: Any
    ) -> Iterator[Split]:
        splits = super().checkpoint_splits(tokenizer, names, choose)
        if train_file is None:
            return splits
        train = self.known_examples(train_file, tokenizer)
        return (self.with_knowledge(split, train, tokenizer) for split in splits)

    def labelled(self, split: Split) -> Split:
        """A split without the examples that have no labelled token."""
        kept = split.dataset.filter(lambda row: any(label != NO_TARGET for label in row["labels"]), desc="labelled")
        return replace(split, dataset=kept)

    def counts(self, split: Split) -> np.ndarray:
        """Labelled tokens of each example (N,)."""
        return np.array([sum(label != NO_TARGET for label in labels) for labels in split.dataset["labels"]])

    def slices(self, split: Split) -> Row:
        counts = self.counts(split)
        return {**split.of_units, **{name: np.repeat(each, counts) for name, each in super().slices(split).items()}}

    def by_example(self, split: Split, values: pd.Series) -> list[np.ndarray]:
        """Values of labelled tokens (T,) as those of each example."""
        return np.split(values.to_numpy(), self.counts(split).cumsum()[:-1])

    def judged(self, split: Split, examples: pd.DataFrame) -> pd.DataFrame:
        # a guarantee is of whole sequences, and the steps that it compares are of all tokens
        confidences = self.by_example(split, examples["confidence"])
        return pd.DataFrame({"confidence": [own.mean() for own in confidences if len(own)]})


class TokenClassification(PerToken):
    """A label for each word, trained and measured at its first token."""

    tag = "token-classification"
    script = "training/run_token_classification.py"
    auto_class = "AutoModelForTokenClassification"
    model_kind, data_kind = "a token classifier", "has a label for each word"
    arguments = WordArguments
    fields = ((WORDS, "text_column", ("tokens", "words"), "the lists of words"),)
    label_names, label_kind = ("ner_tags", "tags", "pos_tags", "label", "labels"), "their labels"
    labels_words, needs_offsets = True, True
    make_collator = partial(PaddingCollator, lists_of_labels=True)
    preprocess_logits = staticmethod(token_classes)
    metric_name = "word_accuracy"

    # ---- reading

    def read_file(self, path: str, reading: Reading) -> Dataset:
        if not is_folder(path) and format_of(path) == "text":
            raise ValueError(
                f"{path} is a text without labels: if it has CoNLL's format, a word and its tag on each line, let its "
                "name end in .conll"
            )
        return super().read_file(path, reading)

    def example(self, row: Row, columns: Columns) -> Row:
        return {WORDS: words_of(row, columns.inputs[WORDS])}

    def features(self, columns: Columns) -> Row:
        return {WORDS: List(Value("string"))}

    def label(self, row: Row, columns: Columns, declared: Sequence[str] = ()) -> Any:
        found, count = super().label(row, columns, declared), len(words_of(row, columns.inputs[WORDS]))
        # None are labels that are kept secret
        if found is not None and (not isinstance(found, list) or len(found) != count):
            raise ValueError(
                f"{columns.label} is {found!r:.60}: expected a list of labels, one for each of {count} words"
            )
        return found

    # ---- encoding

    def encode(self, examples: Dataset, tokenizer: Any, place: str) -> Dataset:
        """Token ids, `labels` of the first token of each word, and `word_ids`, beside words and slice columns.

        A tokenizer reads words with a space between them, as it reads the text that a pipeline is given.
        """
        limit = self.data.max_seq_length
        require_room(limit, tokenizer)

        def tokenize(batch: dict[str, list]) -> dict[str, list]:
            texts = [" ".join(words) for words in batch[WORDS]]
            encoded, lengths = within(tokenizer, limit, texts, return_offsets_mapping=True)
            word_ids = list(map(words_of_tokens, batch[WORDS], encoded.pop("offset_mapping")))
            require_tokens(batch[WORDS], (max(ids, default=-1) + 1 for ids in word_ids), place)
            labels = list(map(first_labels, word_ids, batch["label"]))
            return {**encoded, LENGTH: lengths, WORD_IDS: word_ids, "labels": labels}

        encoded = examples.map(tokenize, batched=True, num_proc=self.data.num_proc, desc="encoding")
        warn_of_cuts(encoded[LENGTH][:], limit, "max_seq_length", f"examples of {place}")
        rows = zip(*(encoded[name] for name in (WORDS, WORD_IDS, LENGTH)), strict=True)
        # those of a text that is cut are known already
        if lost := sum(len(words) - len({*ids} - {-1}) for words, ids, length in rows if length <= (limit or length)):
            warnings.warn(
                f"the tokenizer leaves nothing of {lost:,} words of {place}, which get no label", stacklevel=2
            )
        # Trainer would take a column `label` for those of tokens
        return encoded.rename_column("label", WORD_LABELS)

    def load_splits(self, tokenizer: Any) -> Splits:
        splits, names = super().load_splits(tokenizer), self.labels.names
        if is_iob(names) and not scores_entities(names):
            warnings.warn(
                "labels are of entities, whose scores need the package seqeval: pip install 'hf-recurrent[entities]'; "
                "words are scored alone",
                stacklevel=2,
            )
        if not self.data.label_all_tokens:
            return splits

        def labels(row: Row) -> Row:
            return {"labels": all_labels(row[WORD_IDS], row[WORD_LABELS], names)}

        return replace(splits, train=splits.train.map(labels, desc="labels"))

    def split(self, name: str, examples: Dataset, tokenizer: Any) -> Split:
        found = self.labelled(super().split(name, examples, tokenizer))
        if not len(found.dataset):
            raise ValueError(f"{self.source.place_of(name)} has no labelled word: name other examples")
        names = np.array(self.labels.names)
        return replace(found, of_units={"label": names[[label for _, label in labelled_words(found.dataset)]]})

    def known_examples(self, train_file: str, tokenizer: Any) -> Dataset:
        source = Source(self, files={"train": train_file}, known=self.labels, evaluates=True).data()
        return self.encode(source.splits["train"], tokenizer, source.place_of("train"))

    def with_knowledge(self, split: Split, train: Dataset, tokenizer: Any) -> Split:
        """A split with what training tells of words without their context: their usual label, and how usual that is.

        The labels of a word count beside one occurrence that has the labels of all words, so that no label is
        impossible.
        """
        seen: dict[str, Counter] = {}
        everywhere = np.ones(len(self.labels.names))
        for word, label in labelled_words(train):
            seen.setdefault(word, Counter())[label] += 1
            everywhere[label] += 1
        shares, right = [], []
        for word, label in labelled_words(split.dataset):
            known = seen.get(word, Counter())
            shares.append((known[label] + everywhere[label] / everywhere.sum()) / (known.total() + 1))
            right.append((known.most_common(1)[0][0] if known else everywhere.argmax()) == label)
        return replace(
            split,
            of_units={CONTEXT_FREE: -np.log2(shares), **split.of_units},
            baseline={"accuracy": float(np.mean(right)), "size": len(seen)},
        )

    # ---- training

    def metrics(self, answers: np.ndarray, labels: np.ndarray) -> Scores:
        known = labels != NO_TARGET
        return tag_scores(answers[known], labels[known], known.sum(1), self.labels.names)

    @property
    def scores(self) -> Sequence[str]:
        word = np.zeros(1, np.int64)
        return list(tag_scores(word, word, word + 1, self.labels.names))

    # ---- measuring

    def further_scores(self, split: Split, examples: pd.DataFrame) -> Row:
        found, true = (examples[name].to_numpy() for name in ("prediction", "label"))
        scores = tag_scores(found, true, self.counts(split), self.labels.names)
        del scores["accuracy"]
        return {"scores": scores, **self.labels.positive}

    def predictions(self, split: Split, examples: pd.DataFrame, model: Any, tokenizer: Any) -> Iterator[Row]:
        """The words of each example, and for each that is labelled its label, prediction and steps."""
        names, kept = np.array(self.labels.names), ("label", "prediction", "steps")
        columns = {name: self.by_example(split, examples[name]) for name in kept if name in examples}
        for number, words in enumerate(split.dataset[WORDS]):
            row = {name: values[number] for name, values in columns.items()}
            tags = {f"{name}s": names[row.pop(name)].tolist() for name in ("label", "prediction")}
            yield {WORDS: words, **plain(row), **tags}

    # ---- for a card

    def card_example(self, split: Split, tokenizer: Any) -> Row:
        texts = [" ".join(words) for words in split.dataset[WORDS]]
        fitting = [text for text in texts if len(text) <= EXAMPLE_CHARACTERS]
        return {"text": max(fitting, key=len, default=texts[0][:EXAMPLE_CHARACTERS])}

    def compared(self, splits: Splits | None) -> list[Row]:
        baselines = {split.name: split.baseline for split in splits.evaluation} if splits else {}
        return [
            {
                "name": "the most frequent label of each word in training",
                # as a model with a parameter for each word
                "parameters": int(next(iter(baselines.values()))["size"]),
                "values": {name: [baseline["accuracy"]] for name, baseline in baselines.items()},
                "same_model": False,
            }
        ]


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
    return [
        first if first != NO_TARGET or number < 0 else inside.get(labels[number], labels[number])
        for number, first in zip(word_ids, first_labels(word_ids, labels), strict=True)
    ]


def labelled_words(examples: Dataset) -> Iterator[tuple[str, int]]:
    """The words that have a labelled token, in order, and their labels."""
    for words, numbers, labels in zip(*(examples[name] for name in (WORDS, WORD_IDS, "labels")), strict=True):
        yield from ((words[number], label) for number, label in zip(numbers, labels, strict=True) if label != NO_TARGET)
