"""From a recipe to encoded splits."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader
from transformers import DataCollatorForTokenClassification, DataCollatorWithPadding

from ..analysis.halting import TokenKinds
from ..benchmarks import BenchmarkInfo, benchmark_info, load_benchmark, read_labels
from .arguments import BenchmarkArguments, DataArguments
from .recipes import near_matches
from .sampling import row_lengths
from .token_kinds import kinds_of

if TYPE_CHECKING:
    from datasets import Dataset

MODEL_INPUTS = ["input_ids", "attention_mask", "token_type_ids", "labels"]


@dataclass(frozen=True)
class EvaluationSplit:
    """An encoded test split: `name` is 'split' of the training configuration or 'config/split' of another.

    `kinds` tells the kinds of tokens apart that halting statistics of a language model are kept for.
    """

    name: str
    dataset: "Dataset"
    slice_columns: tuple[str, ...]
    kinds: TokenKinds | None = None

    @property
    def slices(self) -> dict[str, list]:
        return {name: self.dataset[name][:] for name in self.slice_columns}

    def batches(self, tokenizer: Any, batch_size: int) -> DataLoader:
        """Padded batches in the order of the rows."""
        rows = self.dataset.select_columns([name for name in MODEL_INPUTS if name in self.dataset.column_names])
        return DataLoader(rows, batch_size=batch_size, collate_fn=collator(tokenizer, rows))


@dataclass(frozen=True)
class Splits:
    """`validation` maps names to the validation splits of the benchmark configuration, of which it may have none."""

    train: "Dataset"
    validation: "dict[str, Dataset]"
    evaluation: list[EvaluationSplit]


def collator(tokenizer: Any, rows: "Dataset") -> Callable[[list[dict]], dict[str, Any]]:
    """Pads rows to the longest of a batch; labels too, with -100, where there is one for each token."""
    per_token = not hasattr(rows.features["labels"], "dtype")
    return (DataCollatorForTokenClassification if per_token else DataCollatorWithPadding)(tokenizer)


def info_of(arguments: BenchmarkArguments) -> BenchmarkInfo:
    """The facts about the configuration to train on."""
    return benchmark_info(arguments.benchmark, arguments.benchmark_config)


def load_own_config(arguments: BenchmarkArguments) -> dict[str, "Dataset"]:
    """All splits of the configuration to train on, as rows of text."""
    return load_benchmark(
        arguments.benchmark,
        arguments.benchmark_config,
        num_proc=arguments.num_proc,
        cache_dir=arguments.cache_dir,
        data_dir=arguments.data_dir,
        **arguments.benchmark_params,
    )


def load_config(arguments: DataArguments, config: str) -> dict[str, "Dataset"]:
    """All splits of a configuration, as rows of text."""
    if config == arguments.benchmark_config:
        return load_own_config(arguments)
    options: dict[str, Any] = {"num_proc": arguments.num_proc, "cache_dir": arguments.cache_dir}
    return load_benchmark(arguments.benchmark, config, **options, **arguments.evaluate_params.get(config, {}))


def encode(rows: "Dataset", arguments: DataArguments, tokenizer: Any) -> "Dataset":
    """Token ids and `labels` beside the texts and slice columns.

    `labels` is the benchmark's `label`, or, where it has none, one label for each token: `read_labels`.
    """
    info, vocabulary = info_of(arguments), tokenizer.get_vocab()

    def tokenize(batch: dict[str, list]) -> dict[str, list]:
        encoded = dict(tokenizer(*(batch[column] for column in info.text_columns)))
        if not info.label_names:
            encoded["labels"] = [read_labels(ids, vocabulary) for ids in encoded["input_ids"]]
        return encoded

    encoded = rows.map(tokenize, batched=True, num_proc=arguments.num_proc, desc="encoding")
    return encoded.rename_column("label", "labels") if info.label_names else encoded


def some_rows(rows: "Dataset", limit: int | None) -> "Dataset":
    """At most `limit` rows, the same random ones each time: the authors' files are sorted by difficulty."""
    return rows if limit is None or limit >= len(rows) else rows.shuffle(seed=0).select(range(limit))


def by_length(rows: "Dataset") -> "Dataset":
    """Rows sorted by their tokens, so that batches hold little padding."""
    return rows.select(row_lengths(rows).argsort(kind="stable"))


def further_splits(arguments: DataArguments) -> Iterator[tuple[str, "Dataset"]]:
    """The splits that `evaluate_on` names, with their names."""
    loaded: dict[str, dict] = {}
    own = info_of(arguments)
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
    """Splits in their order, but first those that are as difficult as the training rows, where these are all alike."""
    same = {column: value.pop() for column in columns if len(value := set(train[column][:])) == 1}

    def differs(item: tuple[str, "Dataset"]) -> bool:
        return any(set(item[1][column][:]) != {value} for column, value in same.items())

    return dict(sorted(tests.items(), key=differs))


def require_train(splits: "dict[str, Dataset]", arguments: DataArguments) -> None:
    """Raise a ValueError if there is nothing to train on."""
    if "train" not in splits:
        raise ValueError(
            f"benchmark_config {arguments.benchmark_config!r} of {arguments.benchmark} has no train split to train on"
        )


def load_splits(
    arguments: DataArguments,
    tokenizer: Any,
    encode: Callable[["Dataset", DataArguments, Any], "Dataset"] = encode,
    split_type: type[EvaluationSplit] = EvaluationSplit,
) -> Splits:
    """Load and encode everything a run needs.

    `encode` makes token ids and labels of rows, `split_type` batches of test rows.

    Raises:
        ValueError: a configuration, parameter or split that does not exist, or no training rows.
    """
    own = load_config(arguments, arguments.benchmark_config)
    require_train(own, arguments)
    train = encode(some_rows(own["train"], arguments.max_train_samples), arguments, tokenizer)
    if arguments.max_length is not None:
        train = train.filter(lambda row: len(row["input_ids"]) <= arguments.max_length)
    if not len(train):
        raise ValueError("there are no training rows: raise max_length, max_train_samples or num_train")
    columns, kinds = info_of(arguments).slice_columns, kinds_of(arguments.benchmark, tokenizer)
    tests = {name: rows for name, rows in own.items() if name.startswith("test")}
    tests = {**training_like_first(own["train"], tests, columns), **dict(further_splits(arguments))}
    limit = arguments.max_eval_samples

    def prepare(rows: "Dataset") -> "Dataset":
        return by_length(encode(some_rows(rows, limit), arguments, tokenizer))

    return Splits(
        train=train,
        validation={name: prepare(rows) for name, rows in own.items() if name.startswith("validation")},
        evaluation=[split_type(name, prepare(rows), columns, kinds) for name, rows in tests.items()],
    )
