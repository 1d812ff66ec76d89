"""What every task has: its arguments, the examples that it reads, their encoding, and the measures of a model."""

import reprlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from torch.utils.data import DataLoader

from ..analysis.evaluate import evaluate_batches
from ..analysis.halting import TokenKinds, halting_table
from ..benchmarks import benchmark_info, build_tokenizer
from ..data.arguments import DataArguments
from ..data.batches import PIECE, PaddingCollator, token_counts
from ..data.columns import Columns
from ..data.labels import Labels, raw_label
from ..data.loading import Data, benchmark_data, benchmark_labels, load_data
from ..data.reading import Reading, folder_texts, is_folder, read_rows
from ..data.tokenizers import TRAINED_KINDS, load_saved_tokenizer, load_tokenizer, train_tokenizer
from ..templating import near_matches

if TYPE_CHECKING:
    from datasets import Dataset

# tokens of a heat map, and of a card's example, that stay readable
MAX_EXAMPLE_TOKENS = 40
# characters of a card's example
EXAMPLE_CHARACTERS = 160
MODEL_INPUTS = ["input_ids", "attention_mask", "token_type_ids", "labels", "start_positions", "end_positions"]
# fields of texts, and of lists of texts
TEXTS = ("text", "text_pair", "source", "target", "words", "question", "context")
# measured examples, and the table of a split
Measured = tuple[pd.DataFrame, dict[str, Any]]


@dataclass(frozen=True)
class Split:
    """An encoded split to evaluate: `name` is 'split' of the training configuration or 'config/split' of another.

    Attributes:
        dataset: encoded examples, sorted by length so that batches hold little padding.
        slice_columns: by which results are sliced.
        of_units: columns of difficulty of the units that count, such as labelled tokens.
        baseline: scores of a model that knows less, by their names.
        kinds: kinds of tokens that halting statistics of a language model are kept for.
    """

    task: "Task"
    name: str
    dataset: "Dataset"
    slice_columns: tuple[str, ...] = ()
    of_units: Mapping[str, Any] = field(default_factory=dict)
    baseline: Mapping[str, float] = field(default_factory=dict)
    kinds: TokenKinds | None = None

    @cached_property
    def slices(self) -> dict[str, Any]:
        """Columns of difficulty, with a value for each unit that counts."""
        return self.task.slices(self)

    @property
    def counted(self) -> dict[str, int]:
        """How much of the split a table counts, by its keys."""
        return self.task.counted(self)

    def batches(self, tokenizer: Any, batch_size: int) -> DataLoader:
        """Padded batches in the order of the examples."""
        return self.task.batches(self, tokenizer, batch_size)

    def measure(self, model: Any, tokenizer: Any, batch_size: int, **options: Any) -> Measured:
        """What a model answers, and the table of its answers and steps.

        Args:
            options: `max_depth`, `halting_threshold` and `progress`.
        """
        return self.task.measure(self, model, tokenizer, batch_size, **options)


@dataclass(frozen=True)
class Splits:
    """Encoded splits of a run; `validation` may be empty."""

    train: "Dataset"
    validation: "dict[str, Dataset]"
    evaluation: list[Split]


class Task:
    """A task, by its tag on the Hub. A subclass is one kind of data, of models and of measures.

    Attributes:
        tag: the pipeline tag.
        script: the training script.
        auto_class: of its models.
        model_kind: a model of the task, as messages call it.
        arguments: the class of `data`.
        frame: what the tokenizers that are trained for it put around texts, see `train_tokenizer`.
        metric: the measure of its tables, one of `hub.card.METRICS`.
        has_labels: whether examples have labels that are read from a column.
        labels_words: whether a label is a list with one for each word.
        text_flags: what names the columns of texts.
        token_columns: the columns that `max_length` limits.
        has_classes: whether answers are numbers of classes.
        needs_offsets: whether the tokenizer must tell the characters of tokens.
        explains: whether a card shows a trade-off curve of thresholds and maps of an example.
        preprocess_logits: of `Trainer`.
        as_trained: settings that other commands take as training had them.
    """

    tag: ClassVar[str]
    script: ClassVar[str]
    auto_class: ClassVar[str]
    model_kind: ClassVar[str]
    data_kind: ClassVar[str] = ""
    arguments: ClassVar[type[DataArguments]] = DataArguments
    frame: ClassVar[str] = "classification"
    metric_name: ClassVar[str] = "accuracy"
    has_labels: ClassVar[bool] = True
    labels_words: ClassVar[bool] = False
    text_flags: ClassVar[str] = "--text_column"
    token_columns: ClassVar[tuple[str, ...]] = ("input_ids",)
    has_classes: ClassVar[bool] = True
    needs_offsets: ClassVar[bool] = False
    explains: ClassVar[bool] = False
    preprocess_logits: ClassVar[Callable | None] = None
    as_trained: ClassVar[tuple[str, ...]] = ()

    def __init__(self, data: DataArguments):
        self.data = data

    # ---- reading

    def read_file(self, path: str, reading: Reading) -> "Dataset":
        """The rows of a file, folder or zip file."""
        return folder_texts(path, reading, in_folders=True) if is_folder(path) else read_rows(path, reading)

    def columns(self, found: Sequence[str], place: str, needs_label: bool = True) -> Columns:
        """The columns of a table, those that flags name or with usual names.

        Raises:
            ValueError: a column is not there, or none can be guessed.
        """
        raise NotImplementedError

    def example(self, row: Mapping[str, Any], columns: Columns) -> dict[str, Any]:
        """The fields of an example but its label. Raises a ValueError, which does not name the row."""
        raise NotImplementedError

    def features(self, columns: Columns) -> dict[str, Any]:
        """The types of the fields of an example."""
        raise NotImplementedError

    def label(self, row: Mapping[str, Any], columns: Columns, declared: Sequence[str] = ()) -> Any:
        """The label of a row as a text, or a list of texts; None where it has none.

        Args:
            declared: the names of labels, where the data declare them; values are then their numbers.

        Raises:
            ValueError: the value is no label; the message does not name the row.
        """
        delimiter = getattr(self.data, "label_delimiter", None)
        return raw_label(row, columns.label, declared, delimiter, self.labels_words)

    def check_label(self, example: Mapping[str, Any], label: Any, column: Any) -> None:
        """Raise a ValueError for a label that does not fit its example."""

    def declared_labels(self, columns: Columns) -> tuple[str, ...]:
        """The names of labels that are numbers, where the task itself gives them."""
        return ()

    def reading_options(self) -> list[Any]:
        """What `example` and `label` depend on besides the columns."""
        return [getattr(self.data, "label_delimiter", None)]

    def column_facts(self, columns: Columns) -> dict[str, Any]:
        """The columns, for a card, by the names of their flags."""
        return {"text_column": list(columns.texts), "label_column": columns.label}

    @cached_property
    def source(self) -> Data:
        """The examples that a run trains and evaluates on."""
        return load_data(self)

    @property
    def labels(self) -> Labels | None:
        """The labels of the examples; those of a benchmark are known before it is loaded."""
        data = self.data
        return self.source.labels if data.is_own else benchmark_labels(data.benchmark, data.benchmark_config)

    # ---- encoding

    @property
    def text_limit(self) -> int | None:
        """The most tokens of a text that a model reads; None: there is no limit."""
        return self.data.max_seq_length

    def limit_length(self, most: int) -> None:
        """Cut texts to the positions that a model has."""
        self.data.max_seq_length = most if self.data.max_seq_length is None else min(self.data.max_seq_length, most)

    def load_tokenizer(self, model: Any, checkpoint: Path | None = None) -> Any:
        """The tokenizer of the checkpoint to fine-tune, of the benchmark, or one for a user's own texts.

        Raises:
            ValueError: it cannot be had, or a checkpoint is to take another one than its own.
        """
        name, data = model.model_name_or_path, self.data
        if name is not None:
            require_no_tokenizer(name, data.tokenizer, data.vocab_size)
            # transformers' ALBERT has no types of tokens by default
            original = model.is_original
            load = load_tokenizer if original else load_saved_tokenizer
            found = load(name, **({"frame": self.frame} if original else {}), **model.hub_options)
        elif not data.is_own:
            return build_tokenizer(data.benchmark, data.benchmark_config)
        elif data.tokenizer not in (None, *TRAINED_KINDS):
            found = load_tokenizer(data.tokenizer, frame=self.frame, token=model.token)
        else:
            return train_tokenizer(data.tokenizer or "bpe", self.training_texts(), data.vocab_size, frame=self.frame)
        if self.needs_offsets and not found.is_fast:
            raise ValueError(
                f"tokenizer is {data.tokenizer or name!r}, which does not tell the words of tokens: take a fast one"
            )
        return found

    def training_texts(self) -> Iterator[str]:
        """All texts of the training examples, which may be lists of words."""
        examples = self.source.splits["train"]
        for batch in examples.select_columns([name for name in TEXTS if name in examples.column_names]).iter(1000):
            for texts in batch.values():
                yield from (text if isinstance(text, str) else " ".join(text) for text in texts)

    def encode(self, examples: "Dataset", tokenizer: Any, place: str, info: Any = None) -> "Dataset":
        """Token ids and `labels` beside the texts and slice columns; `place` is what messages call the examples.

        Args:
            info: the facts of a benchmark, if they are its examples.
        """
        raise NotImplementedError

    def collator(self, tokenizer: Any, examples: Any = None, seed: int = 0) -> Callable[[list[dict]], dict[str, Any]]:
        """Makes padded batches of encoded examples."""
        return PaddingCollator(tokenizer)

    def split(self, name: str, examples: "Dataset", tokenizer: Any, data: Data) -> Split:
        """A split of texts, encoded and sorted by length."""
        encoded = self.encode(examples, tokenizer, data.place_of(name), data.info)
        return Split(self, name, by_length(encoded), data.slice_columns)

    def load_splits(self, tokenizer: Any) -> Splits:
        """Load and encode everything a run needs.

        Raises:
            ValueError: a configuration, parameter or split that does not exist, or no training examples.
        """
        arguments, data = self.data, self.source
        if "train" not in data.splits:
            raise ValueError(
                f"benchmark_config {data.config!r} of {data.name} has no train split to train on: choose another one"
            )
        chosen = some_examples(data.splits["train"], arguments.max_train_samples)
        train = self.encode(chosen, tokenizer, data.place_of("train"), data.info)
        if (most := arguments.max_length) is not None:
            train = train.filter(lambda row: all(len(row[name]) <= most for name in self.token_columns))
        if not len(train):
            raise ValueError("there are no training examples: raise max_length, max_train_samples or num_train")
        # own data may have none to test on
        has_tests = not data.is_own or any(name.startswith("test") for name in data.splits)
        tests = {n: rows for n, rows in data.splits.items() if n.startswith("test" if has_tests else "validation")}
        tests = training_like_first(data.splits["train"], tests, data.slice_columns) | dict(self.further_splits())

        def prepared(name: str, examples: "Dataset") -> Split:
            return self.split(name, some_examples(examples, arguments.max_eval_samples), tokenizer, data)

        validation = {name: rows for name, rows in data.splits.items() if name.startswith("validation")}
        return Splits(
            train=train,
            validation={name: prepared(name, examples).dataset for name, examples in validation.items()},
            evaluation=[prepared(name, examples) for name, examples in tests.items()],
        )

    def further_splits(self) -> "Iterator[tuple[str, Dataset]]":
        """The splits that `evaluate_on` names, with their names."""
        arguments, loaded = self.data, {}
        for entry in arguments.evaluate_on:
            config, _, split = entry.partition("/")
            own, other = (benchmark_info(arguments.benchmark, name) for name in (arguments.benchmark_config, config))
            if (other.text_columns, other.label_names) != (own.text_columns, own.label_names):
                raise ValueError(
                    f"evaluate_on: {config} has other inputs or labels than {arguments.benchmark_config}, which the "
                    "model is trained on: leave it out"
                )
            if config not in loaded:
                loaded[config] = benchmark_data(arguments, config, arguments.evaluate_params.get(config, {})).splits
            splits = loaded[config]
            if split and split not in splits:
                raise ValueError(
                    f"evaluate_on: {config} has no split {split!r}: it has {', '.join(splits)}"
                    f"{near_matches(split, splits)}"
                )
            for name in [split] if split else [name for name in splits if name.startswith("test")]:
                yield f"{config}/{name}", splits[name]

    def with_training(self, split: Split, train_file: str, tokenizer: Any) -> Split:
        """A split with what the examples of training tell of its units without their context."""
        raise NotImplementedError

    # ---- models and training

    def config_fields(self) -> dict[str, Any]:
        """Fields of a model's config that follow from the data."""
        return {}

    def pair_types(self, model: Any) -> bool:
        """Whether a model reads pairs of texts as one sequence each, in which types tell them apart."""
        return False

    def check(self, args: Any, report: Any) -> None:
        """Raise a ValueError for settings of a run that the task does not take."""

    def compute_metrics(self, prediction: Any) -> dict[str, float]:
        """The metrics of `Trainer`'s evaluations on the way."""
        raise NotImplementedError

    @property
    def scores(self) -> Sequence[str]:
        """The names of `compute_metrics`, without ponder statistics."""
        return ("accuracy",)

    @property
    def metric(self) -> str:
        """The measure of the tables, one of `hub.card.METRICS`."""
        return self.metric_name

    def finalize(self, model: Any, splits: Splits, args: Any) -> None:
        """Set what the saved model needs to answer."""

    # ---- measuring

    def slices(self, split: Split) -> dict[str, Any]:
        return {name: split.dataset[name][:] for name in split.slice_columns}

    def counted(self, split: Split) -> dict[str, int]:
        return {"n": len(split.dataset)}

    def batches(self, split: Split, tokenizer: Any, batch_size: int) -> DataLoader:
        examples = split.dataset.select_columns([name for name in MODEL_INPUTS if name in split.dataset.column_names])
        return DataLoader(examples, batch_size=batch_size, collate_fn=self.collator(tokenizer, examples))

    def measure(self, split: Split, model: Any, tokenizer: Any, batch_size: int, **options: Any) -> Measured:
        batches = split.batches(tokenizer, batch_size)
        record = evaluate_batches(model, batches, slices=split.slices, kinds=split.kinds, **options).record
        return record.examples, halting_table(record)

    def judged(self, split: Split, examples: pd.DataFrame) -> pd.DataFrame:
        """The inputs among measured examples, as a calibration compares them."""
        return examples

    def predictions(self, split: Split, examples: pd.DataFrame, model: Any, tokenizer: Any) -> Iterator[dict[str, Any]]:
        """A row for each measured example: its slice columns, label, prediction and mean executed steps."""
        raise NotImplementedError

    # ---- for a card

    def figures(
        self, split: Split, folder: Path, table: Mapping[str, Any], model: Any, tokenizer: Any
    ) -> list[dict[str, Any]]:
        """Draw a table's figures into a folder, and list them."""
        # matplotlib is loaded where figures are drawn alone
        from ..analysis.plots import save_figures

        return save_figures(folder, table, prefix=split.name)

    def card_example(self, split: Split, tokenizer: Any) -> dict[str, Any]:
        """The example of the usage section: `text`, and `text_pair` and `answer` where there are."""
        raise NotImplementedError

    def metric_of_tables(self, tables: Mapping[str, Mapping[str, Any]]) -> str:
        """The measure of the tables of a run."""
        return self.metric

    def compared(self, splits: Splits | None) -> list[dict[str, Any]]:
        """Simpler models of the same examples, as `compared` of `hub.results`."""
        return []

    def limitations(self) -> Iterator[str]:
        """Sentences on what the data and settings leave open."""
        yield from ()


def some_examples(examples: "Dataset", limit: int | None) -> "Dataset":
    """At most `limit` examples, the same random ones each time: the authors' files are sorted by difficulty."""
    return examples if limit is None or limit >= len(examples) else examples.shuffle(seed=0).select(range(limit))


def by_length(examples: "Dataset") -> "Dataset":
    """Examples sorted by their number of tokens."""
    return examples.select(token_counts(examples).argsort(kind="stable"))


def training_like_first(train: "Dataset", tests: "dict[str, Dataset]", columns: Sequence[str]) -> "dict[str, Dataset]":
    """Splits in their order, but first those that are as difficult as the training data, if that is all alike."""
    # the length of own texts is not known yet
    known = [column for column in columns if column in train.column_names]
    same = {column: value.pop() for column in known if len(value := set(train[column][:])) == 1}

    def differs(item: "tuple[str, Dataset]") -> bool:
        return any(set(item[1][column][:]) != {value} for column, value in same.items())

    return dict(sorted(tests.items(), key=differs))


def short_example(split: Split) -> dict[str, Any]:
    """The longest example of at most `MAX_EXAMPLE_TOKENS` tokens, or the shortest one."""
    lengths = [len(ids) for ids in split.dataset["input_ids"][:]]
    fitting = [place for place, length in enumerate(lengths) if length <= MAX_EXAMPLE_TOKENS]
    return split.dataset[fitting[-1] if fitting else 0]


def require_room(limit: int | None, tokenizer: Any, pair: bool = False) -> None:
    """Raise a ValueError for a `max_seq_length` that leaves room for nothing of a text or pair."""
    around = tokenizer.num_special_tokens_to_add(pair=pair)
    if limit is not None and limit <= around:
        raise ValueError(
            f"max_seq_length is {limit}, and the tokenizer puts {around} tokens around texts: pass more than those"
        )


def require_tokens(examples: "Dataset", has_tokens: np.ndarray, column: str, place: str) -> None:
    """Raise a ValueError for a text that a tokenizer leaves nothing of."""
    if not has_tokens.all():
        text = examples[int(has_tokens.argmin())][column]
        raise ValueError(
            f"{place} has a text without any token, {reprlib.repr(text)}: choose another tokenizer, or leave such "
            "texts out"
        )


def warn_of_cuts(lengths: np.ndarray, limit: int | None, flag: str, texts: str) -> None:
    """Say how many of the texts were cut."""
    cut = 0 if limit is None else int((lengths > limit).sum())
    if cut:
        warnings.warn(
            f"{cut:,} of {len(lengths):,} {texts} have more than {flag}={limit} tokens, at most {lengths.max():,}, and "
            "were cut",
            stacklevel=3,
        )


def require_known_words(encoded: "Dataset", tokenizer: Any, info: Any, *columns: str) -> None:
    """Raise a ValueError for an example of a benchmark with a fixed vocabulary that has an unknown word."""
    unknown = tokenizer.unk_token_id
    if unknown is None or not info.vocabulary:
        return
    import pyarrow.compute as pc

    for column in columns:
        start = 0
        for piece in encoded.select_columns([column]).with_format("arrow").iter(PIECE):
            places = pc.index(pc.list_flatten(piece[column]), unknown).as_py()
            if places >= 0:
                row = start + pc.list_parent_indices(piece[column])[places].as_py()
                texts = {name: reprlib.repr(encoded[row][name]) for name in info.text_columns}
                raise ValueError(
                    f"an example of {info.name} holds a word that the tokenizer does not know: "
                    f"{', '.join(f'{name} {text}' for name, text in texts.items())}; its words are "
                    f"{' '.join(info.vocabulary)}"
                )
            start += piece.num_rows


def label_fields(labels: Labels | None) -> dict[str, Any]:
    """Fields of a classifier's config that follow from the names of its labels."""
    names = () if labels is None else labels.names
    return {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}} if names else {}


def require_no_tokenizer(name: str, tokenizer: str | None, vocab_size: int | None) -> None:
    """Raise a ValueError for settings of another tokenizer than that of the checkpoint to fine-tune."""
    for setting, value in (("tokenizer", tokenizer), ("vocab_size", vocab_size)):
        if value is not None:
            raise ValueError(f"{setting} is {value!r}, but {name} has its own tokenizer: leave it out")
