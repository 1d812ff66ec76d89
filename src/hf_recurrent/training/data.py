"""Encoded splits of a recipe's benchmark."""

import reprlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from torch.utils.data import DataLoader

from ..analysis.evaluate import evaluate_batches
from ..analysis.halting import TokenKinds, halting_table
from ..analysis.tables import HALTING_FILE
from ..benchmarks import BenchmarkInfo, benchmark_info, load_benchmark, read_labels
from ..benchmarks.flip_flop.strings import INSTRUCTIONS
from ..files import plain
from ..metrics.classification import class_scores, number_scores, set_scores
from ..text_data.examples import CHOICES, PAIR
from ..text_data.labels import JOINED, MULTI, REGRESSION, SINGLE, Labels
from ..text_data.source import LENGTH
from .arguments import BenchmarkArguments, DataArguments
from .batches import PIECE, token_counts
from .collator import ChoiceCollator, PaddingCollator, SpanCollator
from .recipes import near_matches

if TYPE_CHECKING:
    from datasets import Dataset
    from typing_extensions import Self

# tokens of a heat map, and of a card's example, that stay readable
MAX_EXAMPLE_TOKENS = 40
# measured examples, and the table of a split
Measured = tuple[pd.DataFrame, dict[str, Any]]
MODEL_INPUTS = ["input_ids", "attention_mask", "token_type_ids", "labels", "start_positions", "end_positions"]


def collator(tokenizer: Any, examples: "Dataset") -> Callable[[list[dict]], dict[str, Any]]:
    """The collator that pads a batch to its longest example or choice; labels too, with -100, if each token has one."""
    if hasattr(examples.features["input_ids"].feature, "feature"):
        return ChoiceCollator(tokenizer)
    if "labels" not in examples.features:
        return SpanCollator(tokenizer)
    labels = examples.features["labels"]
    # sets of classes are lists of shares, of one length in all examples
    per_token = not hasattr(labels, "dtype") and not labels.feature.dtype.startswith("float")
    return PaddingCollator(tokenizer, lists_of_labels=per_token)


def load_own_config(arguments: BenchmarkArguments) -> dict[str, "Dataset"]:
    """All splits of the configuration to train on, as texts."""
    if arguments.own is not None:
        return arguments.own.splits
    return load_benchmark(
        arguments.benchmark,
        arguments.benchmark_config,
        num_proc=arguments.num_proc,
        cache_dir=arguments.cache_dir,
        data_dir=arguments.data_dir,
        **arguments.benchmark_params,
    )


def load_config(arguments: DataArguments, config: str) -> dict[str, "Dataset"]:
    """All splits of a configuration, as texts."""
    if config == arguments.benchmark_config:
        return load_own_config(arguments)
    options: dict[str, Any] = {"num_proc": arguments.num_proc, "cache_dir": arguments.cache_dir}
    return load_benchmark(arguments.benchmark, config, **options, **arguments.evaluate_params.get(config, {}))


def split_place(split: str, arguments: BenchmarkArguments) -> str:
    """Where the examples of a split are, for messages."""
    return arguments.benchmark if arguments.own is None else arguments.own.place_name(split)


def encode(examples: "Dataset", arguments: DataArguments, tokenizer: Any, place: str) -> "Dataset":
    """Token ids and `labels` beside the texts and slice columns; `place` is what messages call the examples.

    `labels` is the benchmark's `label`, or, where it has none, one label for each token: `read_labels`.
    """
    if arguments.own is not None:
        return encode_own(examples, arguments, tokenizer, place)
    info, vocabulary = arguments.info, tokenizer.get_vocab()

    def tokenize(batch: dict[str, list]) -> dict[str, list]:
        encoded = dict(tokenizer(*(batch[column] for column in info.text_columns)))
        if not info.label_names:
            encoded["labels"] = [read_labels(ids, vocabulary) for ids in encoded["input_ids"]]
        return encoded

    encoded = examples.map(tokenize, batched=True, num_proc=arguments.num_proc, desc="encoding")
    require_known_words(encoded, tokenizer, info, "input_ids")
    return encoded.rename_column("label", "labels") if info.label_names else encoded


def encode_own(examples: "Dataset", arguments: DataArguments, tokenizer: Any, place: str) -> "Dataset":
    """Token ids, `labels` and the `length` in tokens, before a cut to `max_seq_length`, beside texts and slice columns.

    Warns if texts are cut.

    Raises:
        ValueError: a text has no tokens, or nothing is left of any by a cut.
    """
    limit, columns = arguments.max_seq_length, arguments.info.text_columns
    require_room(limit, tokenizer, pair=len(columns) > 1)

    def tokenize(batch: dict[str, list]) -> dict[str, list]:
        encoded, lengths = within(tokenizer, limit, *(batch[column] for column in columns))
        return {**encoded, LENGTH: lengths}

    encoded = examples.map(tokenize, batched=True, num_proc=arguments.num_proc, desc="encoding")
    lengths = np.asarray(encoded[LENGTH][:])
    require_tokens(encoded, lengths > 0, columns[0], place)
    warn_of_cuts(lengths, limit, "max_seq_length", f"examples of {place}")
    return encoded.rename_column("label", "labels") if "label" in encoded.column_names else encoded


def require_room(limit: int | None, tokenizer: Any, pair: bool = False) -> None:
    """Raise a ValueError for a `max_seq_length` that leaves room for nothing of a text or pair."""
    around = tokenizer.num_special_tokens_to_add(pair=pair)
    if limit is not None and limit <= around:
        raise ValueError(
            f"max_seq_length is {limit}: the tokenizer puts {around} tokens around texts: expected more than those"
        )


def within(tokenizer: Any, limit: int | None, *texts: list[str], **more: list[str]) -> tuple[dict, list[int]]:
    """Texts as the tokenizer encodes them, cut to `limit` tokens, and their lengths in tokens before that."""
    encoded = dict(tokenizer(*texts, **more, verbose=False))
    lengths = [len(ids) for ids in encoded["input_ids"]]
    if limit is not None and max(lengths) > limit:
        encoded = dict(tokenizer(*texts, **more, truncation=True, max_length=limit))
    return encoded, lengths


def require_tokens(examples: "Dataset", has_tokens: np.ndarray, column: str, place: str) -> None:
    """Raise a ValueError for a text of own data that a tokenizer leaves nothing of."""
    if not has_tokens.all():
        text = examples[int(has_tokens.argmin())][column]
        raise ValueError(
            f"{place} has a text without any token, {reprlib.repr(text)}: choose another tokenizer, or "
            "leave such texts out"
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


def require_known_words(encoded: "Dataset", tokenizer: Any, info: BenchmarkInfo, *columns: str) -> None:
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


def some_examples(examples: "Dataset", limit: int | None) -> "Dataset":
    """At most `limit` examples, the same random ones each time: the authors' files are sorted by difficulty."""
    return examples if limit is None or limit >= len(examples) else examples.shuffle(seed=0).select(range(limit))


def by_length(examples: "Dataset") -> "Dataset":
    """Examples sorted by their number of tokens, so that batches hold little padding."""
    return examples.select(token_counts(examples).argsort(kind="stable"))


def further_splits(arguments: DataArguments) -> Iterator[tuple[str, "Dataset"]]:
    """The splits that `evaluate_on` names, with their names."""
    loaded: dict[str, dict] = {}
    own = arguments.info
    for entry in arguments.evaluate_on:
        config, _, split = entry.partition("/")
        other = benchmark_info(arguments.benchmark, config)
        if (other.text_columns, other.label_names) != (own.text_columns, own.label_names):
            raise ValueError(
                f"evaluate_on: {config} has other inputs or labels than {arguments.benchmark_config}, which the model "
                "is trained on: leave it out"
            )
        if config not in loaded:
            loaded[config] = load_config(arguments, config)
        splits = loaded[config]
        if split and split not in splits:
            raise ValueError(
                f"evaluate_on: {config} has no split {split!r}: it has {', '.join(splits)}{near_matches(split, splits)}"
            )
        for name in [split] if split else [name for name in splits if name.startswith("test")]:
            yield f"{config}/{name}", splits[name]


def training_like_first(
    train: "Dataset", tests: dict[str, "Dataset"], columns: tuple[str, ...]
) -> dict[str, "Dataset"]:
    """Splits in their order, but first those that are as difficult as the training data, if that is all alike."""
    # the length of own texts is not known yet
    known = [column for column in columns if column in train.column_names]
    same = {column: value.pop() for column in known if len(value := set(train[column][:])) == 1}

    def differs(item: tuple[str, "Dataset"]) -> bool:
        return any(set(item[1][column][:]) != {value} for column, value in same.items())

    return dict(sorted(tests.items(), key=differs))


def require_train(splits: "dict[str, Dataset]", arguments: DataArguments) -> None:
    """Raise a ValueError if there is nothing to train on."""
    if "train" not in splits:
        raise ValueError(
            f"benchmark_config {arguments.benchmark_config!r} of {arguments.benchmark} has no train split to train on"
        )


def flip_flop_kinds(tokenizer: Any) -> TokenKinds:
    """Kinds of tokens of a flip-flop string: write, ignore, read, and the bits after each of them."""
    numbers = tokenizer.convert_tokens_to_ids(list(INSTRUCTIONS))

    def of(input_ids: np.ndarray) -> np.ndarray:
        kinds = np.full(input_ids.shape, -1)
        for kind, number in enumerate(numbers):
            here = input_ids == number
            kinds[here] = kind
            kinds[:, 1:][here[:, :-1]] = len(INSTRUCTIONS) + kind
        return kinds

    return TokenKinds((*INSTRUCTIONS, *(f"bit after {word}" for word in INSTRUCTIONS)), of)


@dataclass(frozen=True)
class EvaluationSplit:
    """An encoded test split: `name` is 'split' of the training configuration or 'config/split' of another.

    `kinds` are the kinds of tokens that halting statistics of a language model are kept for, `labels` those of a user's
    own data. A subclass encodes and measures examples of one kind; `token_columns` are those that `max_length` limits,
    and `has_classes` says whether answers are numbers of classes.
    """

    encode: ClassVar = staticmethod(encode)
    token_columns: ClassVar[tuple[str, ...]] = ("input_ids",)
    has_classes: ClassVar[bool] = True
    statistics_file: ClassVar[str] = HALTING_FILE

    name: str
    dataset: "Dataset"
    slice_columns: tuple[str, ...]
    kinds: TokenKinds | None = None
    labels: Labels | None = None

    @classmethod
    def of(cls, name: str, rows: "Dataset", arguments: DataArguments, tokenizer: Any) -> "Self":
        """A split of texts, encoded, and sorted by length so that batches hold little padding."""
        encoded = cls.encode(rows, arguments, tokenizer, split_place(name, arguments))
        labels = None if arguments.own is None else arguments.own.labels
        kinds = flip_flop_kinds(tokenizer) if arguments.benchmark == "flip_flop" else None
        return cls(name, by_length(encoded), arguments.info.slice_columns, kinds, labels)

    @property
    def slices(self) -> dict[str, Any]:
        """Columns of difficulty, with a value for each measured example."""
        return {name: self.dataset[name][:] for name in self.slice_columns}

    @property
    def counted(self) -> dict[str, int]:
        """How much of the split a table counts, by its keys."""
        return {"n": len(self.dataset)}

    def batches(self, tokenizer: Any, batch_size: int) -> DataLoader:
        """Padded batches in the order of the examples."""
        examples = self.dataset.select_columns([name for name in MODEL_INPUTS if name in self.dataset.column_names])
        return DataLoader(examples, batch_size=batch_size, collate_fn=collator(tokenizer, examples))

    def measure(self, model: Any, tokenizer: Any, batch_size: int, **options: Any) -> Measured:
        """What a model answers to each example, and the table of its answers and steps (see `halting_table`).

        Args:
            options: `max_depth`, `halting_threshold` and `progress` of `evaluate_batches`.
        """
        batches = self.batches(tokenizer, batch_size)
        record = evaluate_batches(model, batches, slices=self.slices, kinds=self.kinds, **options)
        table = halting_table(record)
        if self.labels is not None and self.has_classes:
            table |= further_scores(record.examples, self.labels)
        return record.examples, table

    def judged(self, examples: pd.DataFrame) -> pd.DataFrame:
        """The inputs among measured examples, as a calibration compares them."""
        return examples

    def predictions(self, examples: pd.DataFrame, model: Any, tokenizer: Any) -> Iterator[dict[str, Any]]:
        """Slice columns of each example, names of label and prediction, and mean executed steps.

        A user's own examples, which are in another order here, have their texts too.
        """
        own = [] if self.labels is None else [*PAIR, *CHOICES]
        columns = (*(name for name in own if name in self.dataset.column_names), *self.slice_columns)
        name_of = model.config.id2label.__getitem__
        if "labelled" in examples:
            name_of = tokenizer.convert_ids_to_tokens
        elif not self.has_classes or (self.labels is not None and self.labels.problem_type != SINGLE):
            # names already, or numbers
            name_of = plain
        texts = {name: self.dataset[name][:] for name in columns}
        for number, example in enumerate(examples.to_dict("records")):
            answer = {name: name_of(example[name]) for name in ("label", "prediction")}
            steps = {name: example[name] for name in ("steps",) if name in example}
            yield {**{name: values[number] for name, values in texts.items()}, **answer, **steps}

    def short_example(self) -> dict[str, Any]:
        """The longest example of at most `MAX_EXAMPLE_TOKENS` tokens, or the shortest one."""
        lengths = [len(ids) for ids in self.dataset["input_ids"][:]]
        fitting = [i for i, length in enumerate(lengths) if length <= MAX_EXAMPLE_TOKENS]
        return self.dataset[fitting[-1] if fitting else 0]

    def figures(self, folder: Path, table: Mapping[str, Any], model: Any, tokenizer: Any) -> list[dict[str, Any]]:
        """Draw a table's figures into a folder, and list them for the card."""
        # matplotlib is loaded where figures are drawn alone
        from ..analysis.plots import save_halting_figures

        return save_halting_figures(folder, table, prefix=self.name)


def further_scores(examples: pd.DataFrame, labels: Labels) -> dict[str, Any]:
    """What a table says of a user's own labels: `scores` beside the one that it shows, and the class of `f1`."""
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


@dataclass(frozen=True)
class Splits:
    """`validation` maps names to the validation splits of the benchmark configuration, of which it may have none."""

    train: "Dataset"
    validation: "dict[str, Dataset]"
    evaluation: list[EvaluationSplit]


def load_splits(
    arguments: DataArguments, tokenizer: Any, split_type: type[EvaluationSplit] = EvaluationSplit
) -> Splits:
    """Load and encode everything a run needs.

    Raises:
        ValueError: a configuration, parameter or split that does not exist, or no training examples.
    """
    own = load_config(arguments, arguments.benchmark_config)
    require_train(own, arguments)
    chosen = some_examples(own["train"], arguments.max_train_samples)
    train = split_type.encode(chosen, arguments, tokenizer, split_place("train", arguments))
    if (most := arguments.max_length) is not None:
        train = train.filter(lambda row: all(len(row[name]) <= most for name in split_type.token_columns))
    if not len(train):
        raise ValueError("there are no training examples: raise max_length, max_train_samples or num_train")
    # own data may have none to test on
    no_test = arguments.own is not None and not any(name.startswith("test") for name in own)
    role = "validation" if no_test else "test"
    tests = {name: examples for name, examples in own.items() if name.startswith(role)}
    tests = training_like_first(own["train"], tests, arguments.info.slice_columns) | dict(further_splits(arguments))

    def prepared(name: str, examples: "Dataset") -> EvaluationSplit:
        return split_type.of(name, some_examples(examples, arguments.max_eval_samples), arguments, tokenizer)

    validation = {name: examples for name, examples in own.items() if name.startswith("validation")}
    return Splits(
        train=train,
        validation={name: prepared(name, examples).dataset for name, examples in validation.items()},
        evaluation=[prepared(name, examples) for name, examples in tests.items()],
    )
