"""Own words with labels: token ids and labels of tokens, and what training tells of each word without its context.

Shapes: N examples, S tokens of an example, T labelled tokens of all examples.
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from ..analysis.evaluate import evaluate_batches
from ..analysis.halting import halting_table
from ..analysis.maps import token_heat_map
from ..models.common.token_targets import NO_TARGET
from ..text_data.source import LENGTH
from ..text_data.word_tokens import first_tokens, words_of_tokens
from .arguments import DataArguments
from .data import EvaluationSplit, Measured, Splits, load_splits, require_room, require_tokens, warn_of_cuts, within
from .metrics import perplexity, tag_scores
from .token_arguments import WordDataArguments

if TYPE_CHECKING:
    from datasets import Dataset

# columns of encoded examples: words, their labels, and the number of the word that each token is of, -1 for none
WORDS, WORD_LABELS, WORD_IDS = "words", "word_labels", "word_ids"
# bits by which a label, or a masked token, is unexpected for who knows frequencies in training and no context
CONTEXT_FREE = "context_free_bits"


def encode_words(examples: "Dataset", arguments: DataArguments, tokenizer: Any, place: str) -> "Dataset":
    """Token ids, `labels` of the first token of each word, and `word_ids`, beside words and slice columns.

    A tokenizer reads words with a space between them, as it reads the text that a pipeline is given.

    Warns if examples are cut, or the tokenizer leaves nothing of words.

    Raises:
        ValueError: nothing is left of an example.
    """
    limit = arguments.max_seq_length
    require_room(limit, tokenizer)

    def tokenize(batch: dict[str, list]) -> dict[str, list]:
        texts = [" ".join(words) for words in batch[WORDS]]
        encoded, lengths = within(tokenizer, limit, texts, return_offsets_mapping=True)
        offsets = encoded.pop("offset_mapping")
        word_ids = [words_of_tokens(*pair) for pair in zip(batch[WORDS], offsets, strict=True)]
        labels = [first_labels(*pair) for pair in zip(word_ids, batch["label"], strict=True)]
        return {**encoded, LENGTH: lengths, WORD_IDS: word_ids, "labels": labels}

    encoded = examples.map(tokenize, batched=True, num_proc=arguments.num_proc, desc="encoding")
    lengths = np.asarray(encoded[LENGTH][:])
    found = np.array([len({*numbers} - {-1}) for numbers in encoded[WORD_IDS]])
    require_tokens(encoded, found > 0, WORDS, place)
    warn_of_cuts(lengths, limit, "max_seq_length", f"examples of {place}")
    uncut = lengths <= limit if limit is not None else np.full(len(lengths), True)
    lost = int((np.array([len(words) for words in encoded[WORDS]]) - found)[uncut].sum())
    if lost:
        warnings.warn(f"the tokenizer leaves nothing of {lost:,} words of {place}, which get no label", stacklevel=2)
    # Trainer would take a column `label` for those of tokens
    return encoded.rename_column("label", WORD_LABELS)


def first_labels(word_ids: list[int], labels: list[int]) -> list[int]:
    """The labels (S,) of tokens that are the first of a word; -100 of others."""
    found = [NO_TARGET] * len(word_ids)
    for number, place in first_tokens(word_ids).items():
        found[place] = labels[number]
    return found


def all_labels(word_ids: list[int], labels: list[int], names: tuple[str, ...]) -> list[int]:
    """The labels (S,) of all tokens of words; after the first one, B- of a label is I-, where there is such a label."""
    inside = {number: names.index(f"I-{name[2:]}") for number, name in begins(names)}
    firsts = first_labels(word_ids, labels)
    return [
        first if first != NO_TARGET or number < 0 else inside.get(labels[number], labels[number])
        for number, first in zip(word_ids, firsts, strict=True)
    ]


def begins(names: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Numbers and names of labels B-... that have a label I-... beside them."""
    return ((number, name) for number, name in enumerate(names) if name[:2] == "B-" and f"I-{name[2:]}" in names)


@dataclass(frozen=True)
class TokenSplit(EvaluationSplit):
    """An encoded test split of which each labelled token counts.

    `of_tokens` are columns of difficulty that tokens have (T,), and `baseline` the scores of a model that knows a word
    or token, but not its context.
    """

    encode: ClassVar = staticmethod(encode_words)

    of_tokens: Mapping[str, np.ndarray] = field(default_factory=dict)
    baseline: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def counts(self) -> np.ndarray:
        """Labelled tokens of each example (N,)."""
        return np.array([sum(label != NO_TARGET for label in labels) for labels in self.dataset["labels"]])

    @property
    def slices(self) -> dict[str, Any]:
        """Columns of difficulty, with a value for each labelled token."""
        of_texts = {name: np.repeat(values, self.counts) for name, values in super().slices.items()}
        return {**self.of_tokens, **of_texts}

    @property
    def counted(self) -> dict[str, int]:
        return {"n": int(self.counts.sum())}

    def by_example(self, values: np.ndarray) -> list[list[Any]]:
        """Values of labelled tokens (T,) as those of each example."""
        return [part.tolist() for part in np.split(values, self.counts.cumsum()[:-1])]

    def measure(self, model: Any, tokenizer: Any, batch_size: int, **options: Any) -> Measured:
        """What a model predicts of each labelled token, and the table of these (see `halting_table`) with `scores`."""
        record = evaluate_batches(model, self.batches(tokenizer, batch_size), slices=self.slices, **options)
        examples, table = record.examples, halting_table(record)
        if self.labels is not None:
            found, labels = (examples[name].to_numpy() for name in ("prediction", "label"))
            scores = tag_scores(found, labels, self.counts, self.labels.names)
            del scores["accuracy"]
            return examples, {**table, "scores": scores, **self.labels.positive}
        nll = float(examples["nll"].mean())
        scores = {"nll": nll, "perplexity": perplexity(nll)}
        if "nll" in self.baseline:
            scores["perplexity_of_frequencies"] = perplexity(self.baseline["nll"])
        return examples, {**table, "scores": scores}

    def judged(self, examples: pd.DataFrame) -> pd.DataFrame:
        # a promise is of whole sequences, and the steps that it compares are of all tokens
        confidences = self.by_example(examples["confidence"].to_numpy())
        return pd.DataFrame({"confidence": [np.mean(own) for own in confidences if own]})

    def predictions(self, examples: pd.DataFrame, model: Any, tokenizer: Any) -> Iterator[dict[str, Any]]:
        """The words of each example, and for each that is labelled its label, prediction and steps."""
        names = self.labels.names
        kept = [name for name in ("label", "prediction", "steps") if name in examples]
        columns = (self.by_example(examples[name].to_numpy()) for name in kept)
        for words, *values in zip(self.dataset[WORDS], *columns, strict=True):
            row = dict(zip(kept, values, strict=True))
            row |= {f"{name}s": [names[i] for i in row.pop(name)] for name in ("label", "prediction")}
            yield {WORDS: words, **row}

    def figures(self, folder: Path, table: Mapping[str, Any], model: Any, tokenizer: Any) -> list[dict[str, Any]]:
        # matplotlib is loaded where figures are drawn alone
        from ..analysis.plots import save_halting_figures

        heat_map = token_heat_map(model, tokenizer, self.short_example()) if table["unit"] == "token" else None
        return save_halting_figures(folder, table, prefix=self.name, heat_map=heat_map)


def load_words(arguments: WordDataArguments, tokenizer: Any) -> Splits:
    """Load and encode everything a run needs.

    Raises:
        ValueError: as `load_splits`.
    """
    splits = load_splits(arguments, tokenizer, TokenSplit)
    names, train = arguments.own.labels.names, splits.train
    evaluation = [with_knowledge(split, train) for split in splits.evaluation]
    if arguments.label_all_tokens:
        train = train.map(lambda row: {"labels": all_labels(row[WORD_IDS], row[WORD_LABELS], names)}, desc="labels")
    return replace(splits, train=train, evaluation=evaluation)


def with_labels(split: TokenSplit) -> TokenSplit:
    """A split of words whose labels are a column of difficulty."""
    names = np.array(split.labels.names)
    return replace(split, of_tokens={"label": names[[label for _, label in labelled_words(split.dataset)]]})


def with_knowledge(split: TokenSplit, train: "Dataset") -> TokenSplit:
    """A split with what training tells of words without their context: their usual label, and how usual that is.

    The labels of a word count beside one occurrence that has the labels of all words, so that no label is impossible.
    """
    names = split.labels.names
    seen: dict[str, Counter] = {}
    for word, label in labelled_words(train):
        seen.setdefault(word, Counter())[label] += 1
    everywhere = np.ones(len(names))
    for labels in seen.values():
        everywhere[list(labels)] += list(labels.values())
    usual = {word: labels.most_common(1)[0][0] for word, labels in seen.items()}
    pairs, unseen = list(labelled_words(split.dataset)), Counter()
    shares = [
        (seen.get(word, unseen)[label] + everywhere[label] / everywhere.sum()) / (seen.get(word, unseen).total() + 1)
        for word, label in pairs
    ]
    right = [usual.get(word, everywhere.argmax()) == label for word, label in pairs]
    return replace(
        split,
        of_tokens={CONTEXT_FREE: -np.log2(shares), **with_labels(split).of_tokens},
        baseline={"accuracy": float(np.mean(right)), "size": len(usual)},
    )


def labelled_words(examples: "Dataset") -> Iterator[tuple[str, int]]:
    """The words that have a labelled token, in order, and their labels."""
    for words, numbers, labels in zip(*(examples[name] for name in (WORDS, WORD_IDS, "labels")), strict=True):
        yield from ((words[number], label) for number, label in zip(numbers, labels, strict=True) if label != NO_TARGET)
