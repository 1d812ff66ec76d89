"""The arguments that say which data a task reads, and how; names are those of transformers' examples.

Each field is a key of a recipe and a flag. Tasks add the columns that they read.
"""

# `flag` makes dataclass fields
# ruff: noqa: RUF009

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from ..benchmarks import benchmark_info
from ..benchmarks.registry import get_benchmark
from ..utils import mapping, near_names, require_known
from .reading import Reading

# settings of which one chooses your own data
CHOOSING = ("task_name", "dataset_name", "train_file")
DEFAULT_BENCHMARK = "listops"
DEFAULT_HELD_OUT = 5
# setting -> its least and its greatest value, both allowed
RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("max_train_samples", "max_eval_samples", "max_length"), (1, math.inf)),
    **dict.fromkeys(("batch_tokens", "average_checkpoints", "evaluation_depth"), (1, math.inf)),
    **dict.fromkeys(("num_merges", "vocab_size", "max_seq_length", "per_device_train_batch_size"), (1, math.inf)),
    **dict.fromkeys(("segment_length", "eval_segment_length", "block_size", "max_answer_length"), (1, math.inf)),
    **dict.fromkeys(("per_device_eval_batch_size", "num_proc", "gradient_accumulation_steps"), (1, math.inf)),
    # a token besides the end-of-sequence token
    **dict.fromkeys(("max_source_length", "max_target_length"), (2, math.inf)),
    **dict.fromkeys(("ponder_warmup_steps", "short_first_steps", "early_stopping_patience"), (0, math.inf)),
    **dict.fromkeys(("doc_stride", "learning_rate", "save_total_limit", "warmup_steps"), (0, math.inf)),
    "mlm_probability": (0, 1),
    "short_first_share": (0, 0.99),
    "short_first_power": (1e-6, math.inf),
    "validation_split_percentage": (1, 99),
}


def flag(*, help: str, aliases: Sequence[str] = (), **default: Any) -> Any:
    """A field that is a flag, as transformers' `HfArg` makes it, without importing transformers.

    Args:
        aliases: other names of the flag.
        default: `default` or `default_factory`.
    """
    metadata: dict[str, Any] = {"help": help} | ({"aliases": list(aliases)} if aliases else {})
    return dataclasses.field(metadata=metadata, **default)


def check_numbers(arguments: Any, *positive: str) -> None:
    """Raise a ValueError for a number of an argument dataclass, or in a list of it, outside its range in `RANGES`.

    Args:
        positive: names of further fields, which are whole numbers from 1.
    """
    ranges = RANGES | dict.fromkeys(positive, (1, math.inf))
    for field in dataclasses.fields(arguments):
        value = getattr(arguments, field.name)
        if field.name not in ranges or value is None:
            continue
        low, high = ranges[field.name]
        for number in value if isinstance(value, list) else [value]:
            # NaN is in no range
            if not low <= number <= high or number == math.inf:
                most = "" if high == math.inf else f" to {high}"
                raise ValueError(f"{field.name} is {number}: expected a number from {low}{most or ' on'}")


def conflict(arguments: Any, first: str, second: str, both: str) -> ValueError:
    """The error for two settings of an argument dataclass of which one alone may be given; `both` is what they do."""
    given = f"{first} is {getattr(arguments, first)!r} and {second} {getattr(arguments, second)!r}"
    return ValueError(f"{given}: both {both}, set one of them")


@dataclass
class DataArguments:
    """The data: files or a data set of yours, or a benchmark.

    Attributes:
        for_benchmarks: fields of a task that benchmarks have, too.
        length_setting: what limits texts instead of `max_length`, if anything does.
    """

    for_benchmarks: ClassVar[frozenset[str]] = frozenset()
    length_setting: ClassVar[str | None] = None

    task: str | None = flag(
        default=None,
        help="The task of your data: text-classification, text-generation, translation, token-classification, "
        "entity-spans, fill-mask, question-answering, multiple-choice or long-documents, where no other setting tells.",
    )
    train_file: str | None = flag(
        default=None,
        help="Training examples: CSV, TSV, JSON, JSONL, Parquet or text; a folder or zip file with a folder of text "
        "files for each label.",
    )
    validation_file: str | None = flag(default=None, help="Validation examples, in the same forms.")
    test_file: str | None = flag(default=None, help="Test examples, in the same forms.")
    dataset_name: str | None = flag(default=None, help="A data set of the Hub, or a folder that datasets loads.")
    dataset_config_name: str | None = flag(default=None, help="The configuration of the data set.")
    dataset_revision: str | None = flag(default=None, help="The branch, tag or commit of the data set.")
    train_split: str | None = flag(
        default=None, aliases=["--train_split_name"], help="Split of the data set to train on; train if unset."
    )
    validation_split: str | None = flag(
        default=None, aliases=["--validation_split_name"], help="Split to validate on; validation if unset."
    )
    test_split: str | None = flag(default=None, aliases=["--test_split_name"], help="Split to test on; test if unset.")
    validation_split_percentage: int | None = flag(
        default=None, help="Percentage of the training examples to evaluate on if there is no other split; 5 if unset."
    )
    slice_by: list[str] = flag(
        default_factory=list, help="Columns of difficulty; results are shown for each of their values."
    )
    encoding: str = flag(default="utf-8", help="Encoding of text files.")
    delimiter: str | None = flag(default=None, help="Delimiter of CSV files; by the end of the file's name if unset.")
    quoting: str = flag(default="minimal", help="minimal, or none: quotes in CSV files are characters like others.")
    on_error: str = flag(default="raise", help="raise, or skip: leave broken rows out, and report how many.")
    tokenizer: str | None = flag(
        default=None,
        aliases=["--tokenizer_name"],
        help="bpe, words or bytes, trained on the training texts; or a tokenizer's name on the Hub or folder. The "
        "checkpoint's if unset, or else bpe.",
    )
    vocab_size: int | None = flag(default=None, help="Tokens of a tokenizer that is trained.")
    max_seq_length: int | None = flag(
        default=None, help="Truncate texts to this many tokens; the number of truncated texts is reported."
    )
    benchmark: str = flag(default=DEFAULT_BENCHMARK, help="A benchmark of this package instead, such as listops.")
    benchmark_config: str | None = flag(default=None, help="Its configuration; the benchmark's default if unset.")
    benchmark_params: dict | str | None = flag(default=None, help="Parameters of that configuration.")
    data_dir: str | None = flag(default=None, help="Folder with the authors' files, instead of generated examples.")
    evaluate_on: list[str] = flag(
        default_factory=list, help="Further test data: 'config' (all its test splits) or 'config/split'."
    )
    evaluate_params: dict | str | None = flag(
        default=None, help="Parameters of configurations in evaluate_on: {config: {parameter: value}}; data_dir is one."
    )
    cache_dir: str | None = flag(default=None, help="Where to keep the data, instead of the cache of datasets.")
    num_proc: int | None = flag(
        default=None, aliases=["--preprocessing_num_workers"], help="Processes that make and encode examples."
    )
    max_train_samples: int | None = flag(default=None, help="Train on this many random examples only.")
    max_eval_samples: int | None = flag(default=None, help="Evaluate this many random examples of each split only.")
    max_length: int | None = flag(
        default=None,
        help="Drop training examples of more tokens, BOS and EOS counted. Evaluation examples are all kept.",
    )

    # of the Hub; that of the model's arguments
    token: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        if self.max_length is not None and self.length_setting is not None:
            raise ValueError(f"max_length is {self.max_length}: the length of texts here is {self.length_setting}")
        self.benchmark_params = mapping("benchmark_params", self.benchmark_params)
        self.evaluate_params = mapping("evaluate_params", self.evaluate_params)
        check_numbers(self)
        if self.is_own:
            self.check_own()
        else:
            self.check_benchmark()

    @property
    def is_own(self) -> bool:
        """Whether a user's own data were chosen, rather than a benchmark."""
        return any(getattr(self, name, None) is not None for name in CHOOSING)

    @property
    def files(self) -> dict[str, str]:
        """Split -> file."""
        paths = {split: getattr(self, f"{split}_file") for split in ("train", "validation", "test")}
        return {split: path for split, path in paths.items() if path is not None}

    @property
    def held_out_percentage(self) -> int:
        return DEFAULT_HELD_OUT if self.validation_split_percentage is None else self.validation_split_percentage

    @property
    def reading(self) -> Reading:
        streaming = getattr(self, "streaming", False)
        return Reading(self.encoding, self.delimiter, self.quoting, self.on_error, self.cache_dir, streaming)

    @property
    def name(self) -> str:
        """The data as messages call them."""
        chosen = next((name for name in CHOOSING if getattr(self, name, None) is not None), "benchmark")
        return f"{chosen} {getattr(self, chosen)!r}"

    @property
    def given(self) -> dict[str, Any]:
        """The settings that differ from their defaults."""
        values = {}
        for item in fields(self):
            default = item.default_factory() if callable(item.default_factory) else item.default
            if getattr(self, item.name) not in (default, None, [], {}):
                values[item.name] = getattr(self, item.name)
        return values

    def refuse(self, names: Iterable[str], reason: str) -> None:
        """Raise a ValueError for a setting that was given and does not apply."""
        for name, value in self.given.items():
            if name in names:
                raise ValueError(f"{name} is {value!r}, {reason}")

    def check_own(self) -> None:
        """Raise a ValueError for settings of a user's own data that do not go together."""
        given = self.given
        chosen = [name for name in (*CHOOSING, "benchmark") if name in given]
        if len(chosen) > 1:
            raise conflict(self, *chosen[:2], "choose the data")
        of_benchmarks = ("benchmark_config", "benchmark_params", "data_dir", "evaluate_on", "evaluate_params")
        self.refuse(of_benchmarks, "which is for benchmarks: leave it out")
        if self.train_file is None:
            self.refuse(("validation_file", "test_file"), "which goes with a train_file: leave it out")
        else:
            of_datasets = ("dataset_config_name", "dataset_revision", "train_split", "validation_split", "test_split")
            self.refuse(of_datasets, "but train_file names a file: leave it out")
        for split, path in self.files.items():
            if not Path(path).exists():
                raise ValueError(f"{split}_file is {path!r}: there is no such file or folder{near_names(Path(path))}")
        others = [name for name in ("validation_file", "test_file", "validation_split", "test_split") if name in given]
        if others:
            self.refuse(["validation_split_percentage"], f"but {others[0]} is given, so that nothing is held out")
        # its settings are checked
        self.reading  # noqa: B018
        if self.tokenizer not in (None, "bpe", "words"):
            self.refuse(["vocab_size"], f"and tokenizer {self.tokenizer!r} has its own size: leave vocab_size out")

    def check_benchmark(self) -> None:
        """Raise a ValueError for settings of a benchmark that do not exist, or are for a user's own data."""
        shared = {item.name for item in fields(DataArguments)} - OWN | self.for_benchmarks
        own = {item.name for item in fields(self)} - shared
        self.refuse(own, "which is for your own data: name it with train_file or dataset_name")
        info = benchmark_info(self.benchmark)
        place = f"config of benchmark {self.benchmark}"
        self.benchmark_config = self.benchmark_config or info.default_config
        require_known(f"benchmark_config ({place})", self.benchmark_config, list(info.configs))
        self.check_parameters(self.benchmark_config, self.benchmark_params)
        named = [entry.partition("/")[0] for entry in self.evaluate_on]
        for entry, config in zip(self.evaluate_on, named, strict=True):
            require_known(f"evaluate_on ({place})", config, list(info.configs))
            if config == self.benchmark_config:
                raise ValueError(f"evaluate_on holds {entry!r}: test splits of benchmark_config are evaluated anyway")
        for config, params in self.evaluate_params.items():
            require_known("evaluate_params (a configuration in evaluate_on)", config, named)
            self.evaluate_params[config] = params = mapping(f"evaluate_params of {config}", params)
            self.check_parameters(config, {name: value for name, value in params.items() if name != "data_dir"})

    def check_parameters(self, config: str, params: dict[str, Any]) -> None:
        """Raise a ValueError for a parameter that a configuration does not take, or a bad value."""
        benchmark = get_benchmark(self.benchmark).member(config)
        known = list(benchmark_info(self.benchmark).parameters[config])
        for name in params:
            require_known(f"benchmark_params (parameter of {self.benchmark} {config})", name, known)
        benchmark.checked(config, params, benchmark.info.parameters[config])

    def check_files(self) -> None:
        """Raise a ValueError for parameters of a benchmark that do not go together, or do not go with `data_dir`."""
        if not self.is_own:
            benchmark = get_benchmark(self.benchmark).member(self.benchmark_config)
            benchmark.resolve(self.benchmark_config, self.benchmark_params, from_files=self.data_dir is not None)


# fields of a user's own data
OWN = {
    *("train_file", "validation_file", "test_file", "dataset_name", "dataset_config_name", "dataset_revision"),
    *("train_split", "validation_split", "test_split", "validation_split_percentage", "slice_by", "encoding"),
    *("delimiter", "quoting", "on_error", "tokenizer", "vocab_size", "max_seq_length"),
}
