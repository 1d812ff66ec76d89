"""What every task has: its arguments, the examples that it reads, their encoding, and the measures of a model."""

import reprlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import pandas as pd
from torch.utils.data import DataLoader

from ..analysis.evaluate import evaluate_batches
from ..analysis.halting import halting_table
from ..benchmarks import benchmark_info, build_tokenizer
from ..data.arguments import DataArguments
from ..data.batches import PaddingCollator, token_counts
from ..data.labels import Labels, raw_label
from ..data.loading import Data, benchmark_data, benchmark_labels, load_data
from ..data.reading import (
    Columns,
    Reading,
    check_slices,
    chosen,
    folder_texts,
    has_column,
    is_folder,
    read_rows,
    require_columns,
    text_of,
)
from ..data.tokenizers import PADDING_SIDES, TRAINED_KINDS, load_saved_tokenizer, load_tokenizer, train_tokenizer
from ..metrics.functional import Row, Scores, with_ponder_metrics
from ..utils import plain, require_known

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
Measured = tuple[pd.DataFrame, Row]


@dataclass(frozen=True)
class Split:
    """An encoded split to evaluate: `name` is 'split' of the training configuration or 'config/split' of another.

    Attributes:
        dataset: encoded examples, sorted by length so that batches hold little padding.
        slice_columns: by which results are sliced.
        of_units: columns of difficulty of the units that count, such as labelled tokens.
        baseline: scores of a model that knows less, by their names.
    """

    task: "Task"
    name: str
    dataset: "Dataset"
    slice_columns: tuple[str, ...] = ()
    of_units: Row = field(default_factory=dict)
    baseline: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def slices(self) -> Row:
        """Columns of difficulty, with a value for each unit that counts."""
        return self.task.slices(self)

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
    validation: dict[str, "Dataset"]
    evaluation: list[Split]


class Task:
    """A task, by its tag on the Hub. A subclass is one kind of data, of models and of measures.

    Attributes:
        tag: the pipeline tag.
        script: the training script.
        auto_class: of its models.
        model_kind, data_kind: a model of the task, and its data, as messages call them.
        arguments: the class of `data`.
        fields: of examples: their name, the flag that names the column and, for `inputs_of`, its usual names and what
            it has.
        label_names, label_kind: usual names of the column of labels, and what it has; none without labels.
        labels_words: whether a label is a list with one for each word.
        text_flags: what names the columns of texts.
        as_trained: settings that other commands take as training had them.
        frame: "classification", "language" or "seq2seq": the special tokens around a text and the padding side of the
            task's tokenizers, see `train_tokenizer`.
        default_tokenizer: the kind of tokenizer that is trained if none is named.
        needs_offsets: whether the task needs the character offsets of tokens, and with them a fast tokenizer.
        limit_name: the setting that limits the tokens of a text.
        reads_pairs: whether examples are pairs of texts.
        make_collator: makes the collator of padded batches, from a tokenizer.
        preprocess_logits: of `Trainer`.
        scores: the names of `metrics`.
        metric_name: the measure of its tables, one of `hub.card.METRICS`.
        by_token: whether each labelled token counts.
        shown: the columns of examples that predictions quote.
        explains: whether a card shows a trade-off curve of thresholds and maps of an example.
    """

    tag: str
    script: str
    auto_class: str
    model_kind: str
    data_kind: str
    arguments = DataArguments
    fields: Sequence[tuple[Any, ...]] = ()
    label_names: Sequence[str] = ()
    label_kind = "the labels"
    labels_words = False
    text_flags = "--text_column"
    as_trained: Sequence[str] = ()
    frame = "classification"
    default_tokenizer = "bpe"
    needs_offsets = False
    limit_name = "max_seq_length"
    reads_pairs = False
    make_collator: Callable[[Any], Callable] = PaddingCollator
    preprocess_logits: Callable | None = None
    scores: Sequence[str] = ("accuracy",)
    metric_name = "accuracy"
    by_token = False
    shown: Sequence[str] = ()
    explains = False

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
        inputs, named = self.inputs_of(found, place)
        label = None
        if self.label_names:
            label = self.data.label_column or next((name for name in self.label_names if name in found), None)
            if needs_label:
                label = named["label_column"] = chosen("label_column", label, (), found, place, self.label_kind)
            elif label is not None and not has_column(found, label):
                label = None
        require_columns(named, found, place)
        return Columns(inputs, label, check_slices(self.data.slice_by, found, place))

    def inputs_of(self, found: Sequence[str], place: str) -> tuple[Row, dict[str, str]]:
        """The columns of a table by the fields of examples, and by the flags that name them."""
        inputs, named = {}, {}
        for name, flag, usual, what in self.fields:
            # a single column needs no name
            known = usual if len(found) > 1 else found
            inputs[name] = named[flag] = chosen(flag, getattr(self.data, flag), known, found, place, what)
        return inputs, named

    def example(self, row: Row, columns: Columns) -> Row:
        """The fields of an example but its label. Raises a ValueError, which does not name the row."""
        return {name: text_of(row, column) for name, column in columns.inputs.items()}

    def features(self, columns: Columns) -> Row:
        """The types of the fields of an example."""
        from datasets import Value

        return dict.fromkeys(columns.inputs, Value("string"))

    def label(self, row: Row, columns: Columns, declared: Sequence[str] = ()) -> Any:
        """The label of a row as a text, or a list of texts; None where it has none.

        Args:
            declared: the names of labels, where the data declare them; values are then their numbers.

        Raises:
            ValueError: the value is no label; the message does not name the row.
        """
        delimiter = getattr(self.data, "label_delimiter", None)
        return raw_label(row, columns.label, declared, delimiter, self.labels_words)

    def declared_labels(self, columns: Columns) -> tuple[str, ...]:
        """The names of labels that are numbers, where the task itself gives them."""
        return ()

    def column_facts(self, columns: Columns) -> Row:
        """The columns by the names of their flags, for a card and for later evaluations."""
        return {**{flag: columns.inputs.get(name) for name, flag, *_ in self.fields}, "label_column": columns.label}

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
        return getattr(self.data, self.limit_name)

    def limit_length(self, most: int) -> None:
        """Cut texts to the positions that a model has."""
        limit = self.text_limit
        if limit is None or limit > most:
            setattr(self.data, self.limit_name, most)
            if limit is not None:
                warnings.warn(f"texts are cut to {most} tokens: the model has no more positions", stacklevel=2)

    def load_tokenizer(self, model: Any, checkpoint: Path | None = None) -> Any:
        """The tokenizer of the checkpoint to fine-tune, of the benchmark, or one for a user's own texts.

        Args:
            checkpoint: of the run, to go on from.

        Raises:
            ValueError: it cannot be had, does not suit, or a checkpoint is to take another one than its own.
        """
        name, data = model.model_name_or_path, self.data
        if name is not None:
            for setting in ("tokenizer", "vocab_size"):
                if getattr(data, setting) is not None:
                    raise ValueError(
                        f"{setting} is {getattr(data, setting)!r}, but {name} has its own tokenizer: leave it out"
                    )
            # transformers' ALBERT has no types of tokens by default
            load = partial(load_tokenizer, frame=self.frame) if model.is_original else load_saved_tokenizer
            return self.suited(load(name, **model.hub_options), name)
        if not data.is_own:
            return self.benchmark_tokenizer(checkpoint)
        name = data.tokenizer or self.default_tokenizer
        if name in TRAINED_KINDS:
            return self.suited(train_tokenizer(name, self.training_texts(), data.vocab_size, frame=self.frame), name)
        return self.suited(load_tokenizer(name, frame=self.frame, token=model.token), name)

    def benchmark_tokenizer(self, checkpoint: Path | None) -> Any:
        """The tokenizer of the benchmark."""
        return build_tokenizer(self.data.benchmark, self.data.benchmark_config)

    def suited(self, tokenizer: Any, name: str) -> Any:
        """Check that a tokenizer suits the task, and let it pad on the side of the task's frame.

        Args:
            name: the name, folder or kind of the tokenizer, for messages.

        Raises:
            ValueError: the tokenizer lacks what the task needs.
        """
        if self.needs_offsets and not tokenizer.is_fast:
            raise ValueError(
                f"tokenizer is {name!r}, a {type(tokenizer).__name__}, which is written in Python and gives no "
                "character offsets of tokens: take a fast one"
            )
        tokenizer.padding_side = tokenizer.init_kwargs["padding_side"] = PADDING_SIDES[self.frame]
        return tokenizer

    def training_texts(self) -> Iterator[str]:
        """All texts of the training examples, which may be lists of words or of choices."""
        examples = self.source.splits["train"]
        names = [name for name in (*TEXTS, "choices") if name in examples.column_names]
        for batch in examples.select_columns(names).iter(1000):
            for texts in batch.values():
                yield from (text if isinstance(text, str) else " ".join(text) for text in texts)

    def encode(self, examples: "Dataset", tokenizer: Any, place: str) -> "Dataset":
        """Token ids and `labels` beside the texts and slice columns; `place` is what messages call the examples."""
        raise NotImplementedError

    def collator(self, tokenizer: Any, seed: int = 0) -> Callable[[list[dict]], Row]:
        """Makes padded batches of encoded examples."""
        return self.make_collator(tokenizer)

    def split(self, name: str, examples: "Dataset", tokenizer: Any) -> Split:
        """A split of texts, encoded and sorted by length."""
        encoded = self.encode(examples, tokenizer, self.source.place_of(name))
        return Split(self, name, by_length(encoded), self.source.slice_columns)

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
        examples = some_examples(data.splits["train"], arguments.max_train_samples)
        train = self.encode(examples, tokenizer, data.place_of("train"))
        if (most := arguments.max_length) is not None:
            # targets are labels
            limited = ("input_ids", "labels") if self.frame == "seq2seq" else ("input_ids",)
            train = train.filter(lambda row: all(len(row[name]) <= most for name in limited))
        if not len(train):
            raise ValueError("there are no training examples: raise max_length, max_train_samples or num_train")
        named = {
            role: {name: rows for name, rows in data.splits.items() if name.startswith(role)}
            for role in ("validation", "test")
        }
        # own data may have none to test on
        tests = named["test"] or (named["validation"] if arguments.is_own else {})
        tests = training_like_first(data.splits["train"], tests, data.slice_columns) | dict(self.further_splits())

        def prepared(splits: dict[str, "Dataset"]) -> list[Split]:
            limit = arguments.max_eval_samples
            return [self.split(name, some_examples(rows, limit), tokenizer) for name, rows in splits.items()]

        validation = {split.name: split.dataset for split in prepared(named["validation"])}
        return Splits(train, validation, prepared(tests))

    def further_splits(self) -> Iterator[tuple[str, "Dataset"]]:
        """The splits that `evaluate_on` names, with their names."""
        arguments = self.data
        for entry in arguments.evaluate_on:
            own = benchmark_info(arguments.benchmark, arguments.benchmark_config)
            config, _, split = entry.partition("/")
            other = benchmark_info(arguments.benchmark, config)
            if (other.text_columns, other.label_names) != (own.text_columns, own.label_names):
                raise ValueError(
                    f"evaluate_on: {config} has other inputs or labels than {arguments.benchmark_config}, which the "
                    "model is trained on: leave it out"
                )
            splits = benchmark_data(arguments, config, arguments.evaluate_params.get(config, {})).splits
            if split:
                require_known(f"evaluate_on: split of {config}", split, splits)
            for name in [split] if split else [name for name in splits if name.startswith("test")]:
                yield f"{config}/{name}", splits[name]

    def checkpoint_splits(
        self, tokenizer: Any, names: Sequence[str], choose: Callable, **options: Any
    ) -> Iterator[Split]:
        """Splits to evaluate a checkpoint on, encoded.

        Args:
            choose: chooses some of the rows of a split.
            options: `train_file`, the examples of training, by which words and tokens are known without their context;
                `by_token`, to let each predicted token of a user's own texts count for itself.
        """
        for name in names:
            yield self.split(name, choose(self.source.splits[name]), tokenizer)

    # ---- models and training

    def config_fields(self) -> Row:
        """Fields of a model's config that follow from the labels."""
        labels = self.labels if self.label_names else None
        if labels is None:
            return {}
        fields: Row = {"problem_type": None if self.labels_words else labels.problem_type}
        if not labels.names:
            return {**fields, "num_labels": 1}
        return {**fields, "id2label": dict(enumerate(labels.names)), "label2id": labels.ids}

    def pair_types(self, model: Any) -> bool:
        """Whether a model reads pairs of texts as one sequence each, in which types tell them apart."""
        return self.reads_pairs and model.config.get("pair_encoding", "joint") == "joint"

    def check(self, args: Any, report: Any) -> None:
        """Raise a ValueError for settings of a run that the task does not take."""

    def compute_metrics(self, prediction: Any) -> Scores:
        """The metrics of `Trainer`'s evaluations on the way."""
        return with_ponder_metrics(prediction, self.metrics)

    def metrics(self, answers: Any, labels: Any) -> Scores:
        """The metrics of a model's first output, or of what `preprocess_logits` keeps of it, and the labels."""
        return {"accuracy": float((answers.argmax(-1) == labels).mean())}

    @property
    def metric(self) -> str:
        """The measure of the tables, one of `hub.card.METRICS`."""
        return self.metric_name

    def metric_of(self, tables: Mapping[str, Row]) -> str:
        """The measure of the tables of a run: bytes of texts are the same for all tokenizers, if they are known."""
        table = next(iter(tables.values()))
        if "carries" in table and not (table["exact_bytes"] and table["bits_per_byte"] is not None):
            return "bits_per_token"
        return self.metric

    def finalize(self, model: Any, splits: Splits, args: Any) -> None:
        """Set what the saved model needs to answer."""

    # ---- measuring

    def slices(self, split: Split) -> Row:
        return {name: split.dataset[name][:] for name in split.slice_columns}

    def batches(self, split: Split, tokenizer: Any, batch_size: int) -> DataLoader:
        examples = split.dataset.select_columns([name for name in MODEL_INPUTS if name in split.dataset.column_names])
        return DataLoader(examples, batch_size=batch_size, collate_fn=self.collator(tokenizer))

    def measure(self, split: Split, model: Any, tokenizer: Any, batch_size: int, **options: Any) -> Measured:
        batches = split.batches(tokenizer, batch_size)
        record = evaluate_batches(model, batches, slices=split.slices, **options).record
        return record.examples, halting_table(record) | self.further_scores(split, record.examples)

    def further_scores(self, split: Split, examples: pd.DataFrame) -> Row:
        """What a table says of answers beside their accuracy: `scores`, and what they are of."""
        return {}

    def judged(self, split: Split, examples: pd.DataFrame) -> pd.DataFrame:
        """The inputs among measured examples, as a calibration compares them."""
        return examples

    def predictions(self, split: Split, examples: pd.DataFrame, model: Any, tokenizer: Any) -> Iterator[Row]:
        """A row for each measured example: its texts and slice columns, label, prediction and mean executed steps."""
        names = (*(self.shown if self.data.is_own else ()), *split.slice_columns)
        texts = {name: split.dataset[name][:] for name in names if name in split.dataset.column_names}
        for number, row in enumerate(examples.to_dict("records")):
            found = {name: self.readable(row[name], model, tokenizer) for name in ("label", "prediction")}
            found |= {"steps": row["steps"]} if "steps" in row else {}
            yield {name: values[number] for name, values in texts.items()} | found

    def readable(self, answer: Any, model: Any, tokenizer: Any) -> Any:
        """A label or an answer for readers."""
        return plain(answer)

    # ---- for a card

    def figures(self, split: Split, folder: Path, table: Row, model: Any, tokenizer: Any) -> list[Row]:
        """Draw a table's figures into a folder, and list them."""
        # matplotlib is loaded where figures are drawn alone
        from ..analysis.explain.card import token_heat_map
        from ..analysis.plots import save_figures

        shows_tokens = self.by_token and table["unit"] == "token"
        heat_map = token_heat_map(model, tokenizer, short_example(split)) if shows_tokens else None
        return save_figures(folder, table, prefix=split.name, heat_map=heat_map)

    def card_example(self, split: Split, tokenizer: Any) -> Row:
        """The example of the usage section: `text`, and `text_pair` and `answer` where there are."""
        raise NotImplementedError

    def compared(self, splits: Splits | None) -> list[Row]:
        """Simpler models of the same examples, as `compared` of `hub.results`."""
        return []

    def limitations(self) -> Iterator[str]:
        """Sentences on what the data and settings leave open."""
        yield from ()


def numbered(flag: str, names: Sequence[str]) -> dict[str, str]:
    """The columns of a flag, with a number after it where there are several."""
    return {f"{flag} ({number})" if len(names) > 1 else flag: name for number, name in enumerate(names, 1)}


def some_examples(examples: "Dataset", limit: int | None) -> "Dataset":
    """At most `limit` examples, the same random ones each time: the authors' files are sorted by difficulty."""
    return examples if limit is None or limit >= len(examples) else examples.shuffle(seed=0).select(range(limit))


def by_length(examples: "Dataset") -> "Dataset":
    """Examples sorted by their number of tokens."""
    return examples.select(token_counts(examples).argsort(kind="stable"))


def training_like_first(train: "Dataset", tests: dict[str, "Dataset"], columns: Sequence[str]) -> dict[str, "Dataset"]:
    """Splits in their order, but first those that are as difficult as the training data, if that is all alike."""
    # the length of own texts is not known yet
    known = [column for column in columns if column in train.column_names]
    same = {column: value.pop() for column in known if len(value := set(train[column][:])) == 1}

    def differs(item: "tuple[str, Dataset]") -> bool:
        return any(set(item[1][column][:]) != {value} for column, value in same.items())

    return dict(sorted(tests.items(), key=differs))


def short_example(split: Split) -> Row:
    """The longest example of at most `MAX_EXAMPLE_TOKENS` tokens, or the shortest one."""
    (fitting,) = (token_counts(split.dataset) <= MAX_EXAMPLE_TOKENS).nonzero()
    return split.dataset[int(max(fitting, default=0))]


def beginning(text: str) -> str:
    """The first words of a text, without those that look like file names."""
    words = (word for word in text[: 2 * EXAMPLE_CHARACTERS].split() if not any(sign in word for sign in "/\\~"))
    return shorten(" ".join(words), EXAMPLE_CHARACTERS, placeholder="")


def require_room(limit: int | None, tokenizer: Any, pair: bool = False) -> None:
    """Raise a ValueError for a `max_seq_length` that leaves room for nothing of a text or pair."""
    around = tokenizer.num_special_tokens_to_add(pair=pair)
    if limit is not None and limit <= around:
        raise ValueError(
            f"max_seq_length is {limit}, and the tokenizer puts {around} tokens around texts: pass more than those"
        )


def require_tokens(texts: Sequence[Any], counts: Iterable[int], place: str) -> None:
    """Raise a ValueError for a text of which the tokenizer keeps no token."""
    for text, count in zip(texts, counts, strict=True):
        if not count:
            raise ValueError(
                f"{place} has a text without any token, {reprlib.repr(text)}: choose another tokenizer, or leave such "
                "texts out"
            )


def warn_of_cuts(lengths: Sequence[int], limit: int | None, flag: str, texts: str) -> None:
    """Say how many of the texts were cut."""
    cut = [length for length in lengths if limit is not None and length > limit]
    if cut:
        warnings.warn(
            f"{len(cut):,} of {len(lengths):,} {texts} have more than {flag}={limit} tokens, at most {max(cut):,}, and "
            "were cut",
            stacklevel=3,
        )


def require_known_words(encoded: "Dataset", tokenizer: Any, info: Any, *columns: str) -> None:
    """Raise a ValueError for an example of a benchmark with a fixed vocabulary that has an unknown word."""
    unknown = tokenizer.unk_token_id
    if unknown is None or not info.vocabulary:
        return
    for column in columns:
        for number, ids in enumerate(encoded[column]):
            if unknown in ids:
                row = encoded[number]
                texts = ", ".join(f"{name} {reprlib.repr(row[name])}" for name in info.text_columns)
                raise ValueError(
                    f"an example of {info.name} holds a word that the tokenizer does not know: {texts}; its words are "
                    f"{' '.join(info.vocabulary)}"
                )
