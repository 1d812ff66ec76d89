"""The settings of recipes, as dataclasses; every field is a recipe key and a command-line flag."""

# HfArg makes dataclass fields
# ruff: noqa: RUF009

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from transformers import Seq2SeqTrainingArguments, TrainingArguments
from transformers.hf_argparser import HfArg

from ..benchmarks import BenchmarkInfo, benchmark_info
from ..benchmarks.registry import get_benchmark
from ..registry import ARCHITECTURES
from ..templating import near_names
from ..text_data.documents import DocumentSource
from ..text_data.source import TextSource
from ..text_data.tasks import OTHERS, TASKS
from .objectives import CLASSIFICATION, DOCUMENT_SCRIPT, LONG_DOCUMENTS, SEQ2SEQ, TEXT_MODELLING, Objective, script_of
from .optimization import SCHEDULES, check_schedule, schedule_names
from .recipes import conflict, mapping, require_known
from .report_arguments import ReportArguments, RunArguments, TimedReportArguments
from .text_arguments import CHOOSING, FILES, HELD_OUT_FOR, ON_ERROR, PAIR_METRICS, SCRIPTS, DocumentTextArguments
from .trainer_checks import check_choices
from .values import check_numbers

# of transformers
DEFAULT_BATCH_SIZE = 8
# equally good checkpoints: which of them is the best one
TIES = ("first", "latest")
# metrics that are better if lower
LOSSES = ("loss", "nll", "perplexity", "mse", "ponder_cost", "ponder_steps")
DOCUMENT_FILE = (
    "Training documents: a text file, which is one; a folder or zip file of them; or a CSV, TSV, JSON, JSONL or "
    "Parquet file with one in each row."
)
DOCUMENT_OPTIMIZERS = ("adafactor", "adamw_torch")
# schedules of transformers that need more than steps, or the course of the loss
NOT_OFFERED = ("reduce_lr_on_plateau", "greedy", "warmup_stable_decay")


@dataclass
class ModelArguments:
    """Which model to train: a fresh one of `model_type`, or the checkpoint `model_name_or_path`."""

    model_type: str | None = HfArg(default=None, help="Architecture of a new model, such as gut.")
    model_name_or_path: str | None = HfArg(
        default=None,
        help="Checkpoint to fine-tune instead of a new model: of this package, or one that from_pretrained_recurrent "
        "loads, such as albert/albert-base-v2.",
    )
    model_revision: str | None = HfArg(default=None, help="Its branch, tag or commit on the Hub.")
    ignore_mismatched_sizes: bool = HfArg(
        default=False, help="Start weights of the checkpoint anew that have another size, as those of other labels."
    )
    freeze_base_model: bool = HfArg(
        default=False,
        help="Train what the checkpoint has no weights for, and the head, alone: its other weights stay as they are.",
    )
    token: str | None = HfArg(
        default=None, help="Access token for checkpoints, tokenizers and data sets; the one logged in with if unset."
    )
    config: dict | str | None = HfArg(default=None, help="Fields of the model's config.")
    embeddings_from: str | None = HfArg(
        default=None, help="Checkpoint, of any architecture of transformers, to take the token embeddings from."
    )
    attn_implementation: str | None = HfArg(default=None, help="eager, sdpa, flash_attention_2 or flex_attention.")

    def __post_init__(self) -> None:
        self.config = mapping("config", self.config)
        if (self.model_type is None) == (self.model_name_or_path is None):
            raise ValueError(
                "set exactly one of model_type and model_name_or_path, such as --model_type gut for a new model; "
                f"there are {', '.join(ARCHITECTURES)}"
            )
        for name in ("model_revision", "ignore_mismatched_sizes", "freeze_base_model"):
            if self.model_name_or_path is None and getattr(self, name):
                raise ValueError(f"{name} is {getattr(self, name)!r}: it is for a checkpoint, model_name_or_path")
        if self.model_type is not None:
            require_known("model_type", self.model_type, list(ARCHITECTURES))

    @property
    def hub_options(self) -> dict[str, Any]:
        """Arguments of the loaders of the checkpoint to fine-tune."""
        found = {"revision": self.model_revision, "token": self.token}
        return {name: value for name, value in found.items() if value is not None}


@dataclass
class BenchmarkArguments:
    """Which benchmark to train and evaluate on.

    Attributes:
        own: a user's own data instead; None for a benchmark.
        own_objective: what models learn of such data.
    """

    own: ClassVar[TextSource | None] = None
    own_objective: ClassVar[Objective] = CLASSIFICATION

    benchmark: str = HfArg(default="listops", help="Benchmark name, such as listops.")
    benchmark_config: str | None = HfArg(default=None, help="Its configuration; the benchmark's default if unset.")
    benchmark_params: dict | str | None = HfArg(default=None, help="Parameters of that configuration.")
    data_dir: str | None = HfArg(
        default=None, help="Folder with the authors' own files, instead of generated examples."
    )
    cache_dir: str | None = HfArg(default=None, help="Where to keep the data, instead of the cache of datasets.")
    num_proc: int | None = HfArg(
        default=None, aliases=["--preprocessing_num_workers"], help="Processes that make and encode examples."
    )
    max_train_samples: int | None = HfArg(default=None, help="Train on this many random examples only.")
    max_eval_samples: int | None = HfArg(default=None, help="Evaluate this many random examples of each split only.")

    def __post_init__(self) -> None:
        self.benchmark_params = mapping("benchmark_params", self.benchmark_params)
        check_numbers(self)
        info = benchmark_info(self.benchmark)
        if self.benchmark_config is None:
            self.benchmark_config = info.default_config
        require_known(f"benchmark_config ({self.place})", self.benchmark_config, list(info.configs))
        known = list(info.parameters[self.benchmark_config])
        for name in self.benchmark_params:
            require_known(f"benchmark_params (parameter of {self.benchmark} {self.benchmark_config})", name, known)
        self.check_parameters(self.benchmark_config, self.benchmark_params)

    def check_parameters(self, config: str, params: dict[str, Any]) -> None:
        """Raise a ValueError for a parameter that a configuration does not take, or a bad value."""
        benchmark = get_benchmark(self.benchmark).member(config)
        benchmark.checked(config, params, benchmark.info.parameters[config])

    @property
    def info(self) -> BenchmarkInfo:
        """The facts about the configuration to train on; a user's own data are read for them."""
        return benchmark_info(self.benchmark, self.benchmark_config) if self.own is None else self.own.info

    def check_data(self) -> None:
        """Raise a ValueError for parameters that do not go together, or do not go with `data_dir`."""
        if self.own is not None:
            return
        benchmark = get_benchmark(self.benchmark).member(self.benchmark_config)
        benchmark.resolve(self.benchmark_config, self.benchmark_params, from_files=self.data_dir is not None)

    @property
    def place(self) -> str:
        """The benchmark, for messages about its configurations."""
        return f"config of benchmark {self.benchmark}"


@dataclass
class OwnDataArguments(BenchmarkArguments):
    """Own data instead of a benchmark: files, or a data set of the Hub; its columns; and the tokenizer.

    Attributes:
        shared: fields that are for benchmarks, too.
    """

    shared: ClassVar[frozenset[str]] = frozenset()

    task: str | None = HfArg(
        default=None,
        help="text-classification, text-generation, translation (of sources into targets), token-classification, "
        "fill-mask, question-answering or multiple-choice, where neither the script nor another setting says what own "
        "data are for.",
    )
    dataset_name: str | None = HfArg(default=None, help="A data set of the Hub, or a folder that datasets loads.")
    dataset_config_name: str | None = HfArg(default=None, help="Its configuration.")
    dataset_revision: str | None = HfArg(default=None, help="Its branch, tag or commit.")
    train_file: str | None = HfArg(
        default=None,
        help="Training examples: CSV, TSV, JSON, JSONL, Parquet or text; a folder or zip file with a folder of text "
        "files for each label.",
    )
    validation_file: str | None = HfArg(default=None, help="The same, for validation.")
    test_file: str | None = HfArg(default=None, help="The same, for tests.")
    train_split: str | None = HfArg(
        default=None, aliases=["--train_split_name"], help="Split of the data set to train on; train if unset."
    )
    validation_split: str | None = HfArg(
        default=None, aliases=["--validation_split_name"], help="To validate on; validation if unset."
    )
    test_split: str | None = HfArg(default=None, aliases=["--test_split_name"], help="To test on; test if unset.")
    validation_split_percentage: int | None = HfArg(
        default=None,
        help="Percentage of the training examples to evaluate on, where there is no other split; 5 if unset.",
    )
    slice_by: list[str] = HfArg(
        default_factory=list, help="Columns by which results are sliced, beside the length in tokens."
    )
    encoding: str = HfArg(default="utf-8", help="Encoding of text files.")
    on_error: str = HfArg(default="raise", help="raise, or skip: leave broken rows out, and count them.")
    tokenizer: str | None = HfArg(
        default=None,
        aliases=["--tokenizer_name"],
        help="bpe, words or bytes, trained on the training texts; or a tokenizer's name on the Hub or folder. That of "
        "the checkpoint to fine-tune if unset, or else bpe.",
    )
    vocab_size: int | None = HfArg(default=None, help="Tokens of a tokenizer that is trained.")
    max_seq_length: int | None = HfArg(default=None, help="Cut texts after so many tokens; how many were cut is said.")

    def __post_init__(self) -> None:
        if self.is_own and self.benchmark_config is not None:
            raise ValueError(
                f"benchmark_config is {self.benchmark_config!r}, which is of a benchmark: the configuration of a data "
                "set is dataset_config_name"
            )
        super().__post_init__()
        if self.is_own:
            self.check_own()
        else:
            self.refuse_unused()

    @property
    def is_own(self) -> bool:
        """Whether a user's own data were chosen, rather than a benchmark."""
        return any(getattr(self, name, None) is not None for name in CHOOSING)

    def check_own(self) -> None:
        """Raise a ValueError for settings of own data that do not go together."""
        chosen = [name for name in CHOOSING if getattr(self, name, None) is not None]
        if len(chosen) > 1:
            raise conflict(self, *chosen[:2], "choose the data")
        for split, name in FILES.items():
            path = getattr(self, name)
            if path is None:
                continue
            if self.train_file is None:
                raise ValueError(f"{name} is {path!r} without train_file: it goes with a train_file")
            if not Path(path).exists():
                raise ValueError(f"{name} is {path!r}: there is no such file or folder{near_names(Path(path))}")
            if getattr(self, f"{split}_split") is not None:
                raise ValueError(f"{split}_split is a split of a data set, but {name} names a file: set one of them")
        others = [name for name in HELD_OUT_FOR if getattr(self, name) is not None]
        if others and self.validation_split_percentage is not None:
            raise ValueError(
                f"validation_split_percentage is {self.validation_split_percentage} and {others[0]} "
                f"{getattr(self, others[0])!r}, so that no training examples are held out: set one of them"
            )
        for name in ("dataset_config_name", "dataset_revision"):
            if self.train_file is not None and getattr(self, name) is not None:
                raise ValueError(f"{name} is {getattr(self, name)!r}, but train_file names a file: leave it out")
        require_known("on_error", self.on_error, list(ON_ERROR))
        if self.task is not None:
            require_known("task", self.task, list(SCRIPTS))
        try:
            "".encode(self.encoding)
        except LookupError as error:
            raise ValueError(
                f"encoding is {self.encoding!r}: expected one that Python knows, such as latin-1"
            ) from error
        if self.vocab_size is not None and self.tokenizer not in (None, "bpe", "words"):
            raise ValueError(
                f"vocab_size is {self.vocab_size} and tokenizer {self.tokenizer!r}, which has its own size: leave "
                "vocab_size out"
            )

    def source_options(self) -> dict[str, Any]:
        """The fields of a `TextSource` that every objective has."""
        files = {split: getattr(self, name) for split, name in FILES.items() if getattr(self, name) is not None}
        options = {
            "dataset_name": self.dataset_name,
            "dataset_config_name": self.dataset_config_name,
            "revision": self.dataset_revision,
            "files": files,
            "split_names": {split: getattr(self, f"{split}_split") for split in FILES},
            "slice_by": tuple(self.slice_by),
            "encoding": self.encoding,
            "on_error": self.on_error,
            "cache_dir": self.cache_dir,
        }
        if self.validation_split_percentage is not None:
            options["validation_split_percentage"] = self.validation_split_percentage
        return options

    def refuse_unused(self) -> None:
        """Raise a ValueError for settings of own data where there is none."""
        for field in fields(self):
            if field.name not in OWN_FIELDS - self.shared:
                continue
            default = field.default_factory() if callable(field.default_factory) else field.default
            value = getattr(self, field.name)
            if value != default:
                raise ValueError(
                    f"{field.name} is {value!r}, which is for your own data: name it with train_file or dataset_name"
                )

    def choose_own(self) -> None:
        """Let the user's own data take the benchmark's place.

        Raises:
            ValueError: settings of a benchmark are given, too.
        """
        given = ("benchmark_params", "data_dir", "evaluate_on", "evaluate_params")
        unused = [name for name in given if getattr(self, name, None)]
        if self.benchmark != type(self).benchmark:
            unused.insert(0, "benchmark")
        if unused:
            chosen = next(name for name in CHOOSING if getattr(self, name, None) is not None)
            raise conflict(self, unused[0], chosen, "name data, a benchmark and your own")
        self.own = self.make_source()
        self.benchmark, self.benchmark_config = self.own.place, self.own.config

    def make_source(self) -> TextSource:
        """The user's own data."""
        return TextSource(**self.source_options())


@dataclass
class DataArguments(OwnDataArguments):
    """The benchmark or a user's own data, further test data and the maximum length of training examples.

    Attributes:
        length_setting: what limits texts instead of `max_length`, if anything does.
    """

    length_setting: ClassVar[str | None] = None

    evaluate_on: list[str] = HfArg(
        default_factory=list, help="Further test data: 'config' (all its test splits) or 'config/split'."
    )
    evaluate_params: dict | str | None = HfArg(
        default=None, help="Parameters of configurations in evaluate_on: {config: {parameter: value}}; data_dir is one."
    )
    max_length: int | None = HfArg(
        default=None,
        help="Drop training examples of more tokens, BOS and EOS counted. Evaluation examples are all kept.",
    )

    def __post_init__(self) -> None:
        if self.max_length is not None and self.length_setting is not None:
            raise ValueError(f"max_length is {self.max_length}: the length of own texts here is {self.length_setting}")
        super().__post_init__()
        self.evaluate_params = mapping("evaluate_params", self.evaluate_params)
        if self.is_own:
            self.choose_own()
            return
        configs = list(benchmark_info(self.benchmark).configs)
        for entry in self.evaluate_on:
            require_known(f"evaluate_on ({self.place})", entry.partition("/")[0], configs)
            if entry.partition("/")[0] == self.benchmark_config:
                raise ValueError(f"evaluate_on holds {entry!r}: test splits of benchmark_config are evaluated anyway")
        named = {entry.partition("/")[0] for entry in self.evaluate_on}
        for config, own in self.evaluate_params.items():
            require_known("evaluate_params (a configuration in evaluate_on)", config, sorted(named))
            self.evaluate_params[config] = own = mapping(f"evaluate_params of {config}", own)
            self.check_parameters(config, {name: value for name, value in own.items() if name != "data_dir"})


@dataclass
class LabelledDataArguments(DataArguments):
    """The benchmark, or the columns of a user's own texts with labels."""

    task_name: str | None = HfArg(default=None, help=f"A task of GLUE or SuperGLUE: {', '.join(TASKS)}.")
    text_column: list[str] = HfArg(
        default_factory=list,
        aliases=["--text_column_names"],
        help="The column of texts, or the two of pairs of texts; those with usual names if unset.",
    )
    label_column: str | None = HfArg(
        default=None,
        aliases=["--label_column_name"],
        help="The column of labels; label if unset. Lists are several labels, numbers with a fraction a regression.",
    )
    label_list: list[str] = HfArg(
        default_factory=list, help="Names of all labels in the order of their ids; else in alphabetical order."
    )
    label_delimiter: str | None = HfArg(
        default=None, help="Text between the labels of an example that has several, in files without lists."
    )
    do_regression: bool | None = HfArg(default=None, help="Whether labels are numbers to predict.")

    def __post_init__(self) -> None:
        if self.task_name is not None:
            self.task_name = self.task_name.lower()
            if self.task_name in OTHERS:
                raise ValueError(
                    f"task_name is {self.task_name!r}, which {OTHERS[self.task_name]}: expected one of "
                    f"{', '.join(TASKS)}, which classify a text or a pair"
                )
            require_known("task_name", self.task_name, list(TASKS))
            fixed = ("text_column", "label_column", "label_list", "dataset_config_name", "train_split", "do_regression")
            for name in fixed:
                if getattr(self, name) not in (None, []):
                    raise ValueError(
                        f"{name} is {getattr(self, name)!r} and task_name {self.task_name!r}, which has its own: leave "
                        f"{name} out"
                    )
        if len(self.text_column) == 1:
            # transformers' examples take names with commas between them
            self.text_column = [name.strip() for name in self.text_column[0].split(",")]
        if self.label_delimiter == "":
            raise ValueError("label_delimiter is '': expected the text between labels, such as ;")
        if self.do_regression and self.label_delimiter is not None:
            raise ValueError(
                f"do_regression is true and label_delimiter {self.label_delimiter!r}: a number has no delimiter"
            )
        super().__post_init__()

    def make_source(self) -> TextSource:
        columns = {"text_columns": tuple(self.text_column), "label_column": self.label_column}
        names = {"label_names": tuple(self.label_list), "label_delimiter": self.label_delimiter}
        kind = {"task_name": self.task_name, "do_regression": self.do_regression}
        return TextSource(**self.source_options(), **columns, **names, **kind)


@dataclass
class LanguageDataArguments(DocumentTextArguments, DataArguments):
    """A user's own documents as blocks of tokens for a language model.

    Attributes:
        length_name: the field that the user has set the length of blocks by, for messages.
    """

    own_objective: ClassVar[Objective] = TEXT_MODELLING
    length_setting: ClassVar[str] = "block_size"
    length_name: ClassVar[str] = "block_size"

    block_size: int = HfArg(
        default=512, help="Tokens of a block: what a model is trained on and evaluated on in one piece."
    )
    pack: bool | None = HfArg(
        default=None,
        help="Join documents, with an end-of-text token after each, and cut them into blocks; else a block is the "
        "beginning of one document. True if unset, but for line_by_line.",
    )
    streaming: bool = HfArg(
        default=False, help="Read and encode documents while training, without a copy of them; needs max_steps."
    )

    max_seq_length: int | None = HfArg(default=None, help="Tokens of a block; the same as block_size.")
    line_by_line: bool = HfArg(
        default=False, help="Each line of a text file is a document, and a block the beginning of one document."
    )
    train_file: str | None = HfArg(default=None, help=DOCUMENT_FILE)

    def __post_init__(self) -> None:
        if self.max_seq_length is not None:
            if self.block_size != type(self).block_size:
                raise conflict(self, "max_seq_length", "block_size", "are the tokens of a block")
            self.block_size, self.max_seq_length, self.length_name = self.max_seq_length, None, "max_seq_length"
        super().__post_init__()
        if self.pack and self.line_by_line:
            raise ValueError(
                "pack is True and line_by_line True: a line is a document, and a block the beginning of one; leave one "
                "of them out"
            )
        if self.pack is None:
            self.pack = not self.line_by_line
        if self.block_size < 2:
            raise ValueError(f"{self.length_name} is {self.block_size}: a block needs 2 tokens or more, to predict one")
        if self.slice_by and self.pack:
            raise ValueError(
                f"slice_by is {', '.join(self.slice_by)}: blocks hold parts of several documents; pass "
                "--line_by_line, for one document a block"
            )
        if self.num_proc is not None:
            raise ValueError(
                f"num_proc is {self.num_proc}: own documents are encoded by the tokenizer's threads; leave it out"
            )

    def make_source(self) -> DocumentSource:
        options = {"line_by_line": self.line_by_line, "streaming": self.streaming}
        return DocumentSource(**self.source_options(), **self.document_options(), **options)


@dataclass
class RecurrentTrainingArguments(TrainingArguments):
    """`TrainingArguments` with the papers' schedules, weight decay and ponder warm-up.

    `push_to_hub` publishes the finished run as `hub_model_id`, checked as `hf_recurrent.hub.publish_checkpoint` does;
    checkpoints on the way are never sent.
    """

    lr_schedule: str | None = HfArg(
        default=None,
        help="rootwarmup, justwarmup, cosine2, linearwarmup, rsqrt_std, inverse_sqrt_fairseq, or a schedule of "
        "transformers; lr_scheduler_type if unset.",
    )
    cycle_adam_beta1: bool = HfArg(
        default=False, help="With linearwarmup, cycle adam_beta1 from 0.95 to 0.85 and back, as the authors' code does."
    )
    decay_all_parameters: bool = HfArg(
        default=True, help="Weight decay on biases, norms and embeddings too, as the papers' AdamW does."
    )
    per_device_train_batch_size: int | None = HfArg(
        default=None, help="Examples of a batch, per process and accumulated batch; 8 if neither this nor batch_tokens."
    )
    batch_tokens: int | None = HfArg(
        default=None,
        help="Examples of like length are batched up to so many tokens, padding counted, per process and accumulated "
        "batch; a siamese pair counts as two of its longer sentence.",
    )
    batch_sampling: str | None = HfArg(
        default=None,
        help="with_replacement, by_length (batches of like length, shuffled), balanced_lengths (with replacement, all "
        "lengths equally often) or short_first (the same, but the longest length that is drawn grows from batch to "
        "batch, and later epochs are by_length): full batches, drawn anew for each epoch; train_sampling_strategy if "
        "unset.",
    )
    short_first_steps: int = HfArg(
        default=0, help="Optimiser steps until short_first draws all lengths; 0: those of the first epoch."
    )
    short_first_share: float = HfArg(
        default=0.0, help="The share of the lengths that short_first draws from the first step on, the shortest ones."
    )
    short_first_power: float = HfArg(
        default=1.0,
        help="Of the other lengths, short_first draws the share of these steps to this power: above 1, short examples "
        "are trained on longer.",
    )
    best_model_on_ties: str = HfArg(
        default="first", help="Which of equally good checkpoints is kept: the first or the latest."
    )
    evaluation_depth: int | None = HfArg(
        default=None,
        help="Depth steps of evaluations, and of the checkpoint that the run leaves, if they are not those of "
        "training.",
    )
    ponder_warmup_steps: int = HfArg(default=0, help="Steps over which the ponder loss rises from 0 to its weight.")
    cuda_graphs: bool = HfArg(
        default=False,
        help="Replay forward and backward passes as CUDA graphs, which takes less time where models are small.",
    )
    early_stopping_patience: int | None = HfArg(
        default=None, help="Evaluations without improvement that are tolerated; one more stops."
    )
    logging_nan_inf_filter: bool = HfArg(default=False, help="Hide NaN losses in logs; here they stop the run.")
    save_total_limit: int | None = HfArg(default=2, help="Maximum number of checkpoints to keep.")
    restore_callback_states_from_checkpoint: bool = HfArg(
        default=True, help="Resume the patience counter and the clock too."
    )

    def __post_init__(self) -> None:
        if not self.output_dir:
            # transformers would take ./trainer_output
            raise ValueError("output_dir is not set: give the run a folder, such as --output_dir runs/gut")
        check_numbers(self)
        if self.label_smoothing_factor:
            raise ValueError(
                f"label_smoothing_factor is {self.label_smoothing_factor}: it would replace the model's loss, and with "
                "it those of steps and halting; leave it out, or let a model of sources and targets smooth labels, "
                f"with config: {{label_smoothing: {self.label_smoothing_factor}}}"
            )
        if self.lr_schedule is not None:
            check_schedule(self.lr_schedule)
            other = getattr(self.lr_scheduler_type, "value", self.lr_scheduler_type)
            if other not in ("linear", self.lr_schedule):
                raise ValueError(
                    f"lr_schedule is {self.lr_schedule!r} and lr_scheduler_type {other!r}: both choose the "
                    "schedule, set one of them"
                )
            if self.lr_schedule not in SCHEDULES:
                self.lr_scheduler_type = self.lr_schedule
        if self.cycle_adam_beta1 and self.lr_schedule != "linearwarmup":
            raise ValueError(f"cycle_adam_beta1 needs lr_schedule: linearwarmup, not {self.lr_schedule!r}")
        check_choices(self)
        if self.per_device_train_batch_size is None:
            self.per_device_train_batch_size = DEFAULT_BATCH_SIZE
        require_known("best_model_on_ties", self.best_model_on_ties, list(TIES))
        if self.early_stopping_patience is not None and not self.load_best_model_at_end:
            raise ValueError("early_stopping_patience needs load_best_model_at_end: true")
        if self.metric_for_best_model is not None and self.greater_is_better is None:
            self.greater_is_better = not self.metric_for_best_model.endswith(LOSSES)
        super().__post_init__()
        # transformers makes these whole if they are above 1, and else takes them for a fraction of training
        for name in ("logging_steps", "eval_steps", "save_steps"):
            if getattr(self, name) == 1:
                setattr(self, name, 1)


@dataclass
class PairArguments(DataArguments):
    """The benchmark, or the columns of a user's own sources and targets, their lengths, and their score."""

    own_objective: ClassVar[Objective] = SEQ2SEQ

    source_column: str | None = HfArg(
        default=None,
        aliases=["--text_column"],
        help="The column of own sources, such as document or translation.de; source if unset.",
    )
    target_column: str | None = HfArg(
        default=None,
        aliases=["--summary_column"],
        help="The column of own targets, such as summary or translation.en; target if unset.",
    )
    source_lang: str | None = HfArg(
        default=None, help="Key of the sources in a column translation of texts by language, such as de."
    )
    target_lang: str | None = HfArg(default=None, help="Key of the targets there, such as en.")
    source_prefix: str | None = HfArg(default=None, help="Text before every own source, white space included.")
    max_source_length: int | None = HfArg(
        default=None, help="Cut own sources after so many tokens; how many were cut is said."
    )
    max_target_length: int | None = HfArg(
        default=None, help="The same for own targets in training; written ones are compared with whole targets."
    )
    metric_name: str | None = HfArg(
        default=None, help=f"The score of own targets: {' or '.join(PAIR_METRICS)}; exact_match if unset."
    )
    num_merges: int | None = HfArg(
        default=None, help="Merges of the BPE that is trained on texts of wmt14_en_de; 32,764 if unset."
    )

    def __post_init__(self) -> None:
        if (self.source_lang is None) != (self.target_lang is None):
            given = "source_lang" if self.target_lang is None else "target_lang"
            raise ValueError(f"{given} is {getattr(self, given)!r}: name both languages, source_lang and target_lang")
        columns = [name for name in ("source_column", "target_column") if getattr(self, name) is not None]
        if self.source_lang is not None and columns:
            raise conflict(self, "source_lang", columns[0], "name the column")
        if self.metric_name is not None:
            require_known("metric_name", self.metric_name, list(PAIR_METRICS))
        if self.max_seq_length is not None:
            raise ValueError(
                f"max_seq_length is {self.max_seq_length}: set max_source_length and max_target_length, which cut "
                "sources and targets"
            )
        super().__post_init__()

    def make_source(self) -> TextSource:
        columns = (self.source_column, self.target_column)
        if self.source_lang is not None:
            columns = (f"translation.{self.source_lang}", f"translation.{self.target_lang}")
        options = {"source_column": columns[0], "target_column": columns[1], "source_prefix": self.source_prefix or ""}
        return TextSource(pairs=True, **self.source_options(), **options)


@dataclass
class Seq2SeqArguments(RecurrentTrainingArguments, Seq2SeqTrainingArguments):
    """`RecurrentTrainingArguments` with batches by tokens, averaged checkpoints and decoding.

    Labels are smoothed by the model (`config: {label_smoothing: 0.1}`).
    """

    max_tokens: int | None = HfArg(
        default=None,
        help="Examples of like length are batched up to so many tokens of source or target, padding counted, per "
        "process and accumulated batch; per_device_train_batch_size examples if unset.",
    )
    average_checkpoints: int | None = HfArg(
        default=None, help="Keep so many of the best checkpoints by metric_for_best_model, and leave their average."
    )
    generation_num_beams: int | None = HfArg(
        default=None, aliases=["--num_beams"], help="Beams of the search for a target; 1, greedy decoding, if unset."
    )
    generation_length_penalty: float = HfArg(
        default=1.0, help="Exponent of the length by which beam search divides log-likelihoods."
    )

    def __post_init__(self) -> None:
        if self.predict_with_generate:
            raise ValueError("predict_with_generate is true: leave it out, targets are written at the end in any case")
        if self.batch_tokens is not None:
            raise ValueError(
                f"batch_tokens is {self.batch_tokens}: set max_tokens, which limits sources and targets alike"
            )
        if self.max_tokens is not None and self.batch_sampling is not None:
            raise conflict(self, "max_tokens", "batch_sampling", "choose the examples of a batch")
        if self.average_checkpoints is not None and not self.load_best_model_at_end:
            raise ValueError("average_checkpoints needs load_best_model_at_end: true, and a metric_for_best_model")
        if self.average_checkpoints is not None and self.save_total_limit == 1:
            raise ValueError(
                f"average_checkpoints is {self.average_checkpoints} and save_total_limit 1, with which all checkpoints "
                "but the best one go in the end: set save_total_limit to 2 or more, which the best ones come on top of"
            )
        if self.load_best_model_at_end and self.metric_for_best_model is None:
            self.metric_for_best_model = "nll"
        super().__post_init__()


# settings of own data alone
OWN_FIELDS = frozenset(
    field.name
    for cls in (OwnDataArguments, LabelledDataArguments, LanguageDataArguments, PairArguments)
    for field in fields(cls)
    if field.name not in {other.name for other in fields(BenchmarkArguments)}
) - {"evaluate_on", "evaluate_params", "max_length", "num_merges"}


@dataclass
class DocumentArguments(DocumentTextArguments, OwnDataArguments):
    """The documents to train and evaluate on, their tokenizer and the length of segments."""

    shared: ClassVar[frozenset[str]] = frozenset({"tokenizer"})
    own_objective: ClassVar[Objective] = TEXT_MODELLING

    benchmark: str = HfArg(default=LONG_DOCUMENTS, help=f"Benchmark name: {LONG_DOCUMENTS}.")
    tokenizer: str | None = HfArg(
        default=None,
        aliases=["--tokenizer_name"],
        help="bytes, bpe or, of own documents, words (trained on the training split), or a tokenizer's name on the Hub "
        "or folder; bytes, or that of the checkpoint to fine-tune, if unset.",
    )
    tokenizer_vocab_size: int | None = HfArg(default=None, help="Tokens of a tokenizer that is trained.")
    vocab_size: int | None = HfArg(default=None, help="The same.")
    train_file: str | None = HfArg(default=None, help=DOCUMENT_FILE)
    segment_length: int = HfArg(
        default=4096, help="Tokens of each sequence in one step; gradients do not go further back."
    )
    eval_segment_length: int | None = HfArg(
        default=None,
        help="Tokens of each sequence in one step of the evaluation at the end; segment_length if unset. Only what a "
        "reset forgets depends on it.",
    )
    predict_across_segments: bool = HfArg(
        default=True, help="Predict the first token of the next segment too, which the authors' code leaves out."
    )
    compare_with: list[str] = HfArg(
        default_factory=list,
        help="Folders of finished runs over the same documents, for the card to compare this one with.",
    )

    def __post_init__(self) -> None:
        if self.vocab_size is not None:
            if self.tokenizer_vocab_size is not None:
                raise conflict(self, "vocab_size", "tokenizer_vocab_size", "are the size of the tokenizer")
            self.tokenizer_vocab_size, self.vocab_size = self.vocab_size, None
        super().__post_init__()
        if self.is_own:
            self.check_own_documents()
            self.choose_own()
            return
        if self.benchmark != LONG_DOCUMENTS:
            raise ValueError(
                f"benchmark {self.benchmark!r} has short examples, not documents: use {script_of(self.benchmark)}, not "
                f"{DOCUMENT_SCRIPT}"
            )
        if (self.tokenizer == "bpe") is (self.tokenizer_vocab_size is None):
            raise ValueError(
                f"tokenizer is {self.tokenizer!r} and tokenizer_vocab_size {self.tokenizer_vocab_size}: bpe needs a "
                "size, others have theirs"
            )

    @property
    def evaluated_length(self) -> int:
        """Tokens of each sequence in one step of the evaluation."""
        return self.segment_length if self.eval_segment_length is None else self.eval_segment_length

    def check_own_documents(self) -> None:
        """Raise a ValueError for settings that own documents do not have here."""
        for name in ("max_seq_length", "slice_by"):
            if getattr(self, name):
                raise ValueError(
                    f"{name} is {getattr(self, name)}: documents are read to their ends, and results are by position; "
                    "leave it out"
                )
        if self.tokenizer_vocab_size is not None and self.tokenizer not in ("bpe", "words"):
            raise ValueError(
                f"tokenizer is {self.tokenizer!r} and tokenizer_vocab_size {self.tokenizer_vocab_size}: bpe and words "
                "have a size to choose"
            )

    def make_source(self) -> DocumentSource:
        return DocumentSource(**self.source_options(), **self.document_options())


@dataclass
class DocumentTrainingArguments:
    """Training over documents, and the folder and repository of the result; names are those of `TrainingArguments`."""

    output_dir: str | None = HfArg(default=None, help="Folder of the run.")
    per_device_train_batch_size: int = HfArg(default=8, help="Sequences that a process reads at a time.")
    gradient_accumulation_steps: int = HfArg(
        default=1, help="Groups of so many sequences, read one after another, that make one optimiser step."
    )
    per_device_eval_batch_size: int = HfArg(default=8, help="Sequences of an evaluation batch.")
    max_steps: int = HfArg(default=500_000, help="Optimiser steps.")
    optim: str = HfArg(default="adafactor", help="adafactor (with momentum, as the paper's) or adamw_torch.")
    learning_rate: float = HfArg(
        default=1.0,
        help="Base learning rate, multiplied by the schedule; of adafactor relative to the size of parameters.",
    )
    lr_schedule: str = HfArg(
        default="rsqrt_std", help="rsqrt_std (the paper's), another of this package's, or a schedule of transformers."
    )
    warmup_steps: int = HfArg(default=1000, help="Optimiser steps over which the learning rate rises.")
    adam_beta1: float = HfArg(default=0.9, help="Of adamw_torch.")
    adam_beta2: float = HfArg(default=0.999, help="Of adamw_torch.")
    adam_epsilon: float = HfArg(default=1e-8, help="Of adamw_torch.")
    weight_decay: float = HfArg(default=0.0, help="Of adamw_torch, on all parameters.")
    max_grad_norm: float | None = HfArg(default=None, help="Clip gradients to this norm; None: do not.")
    bf16: bool = HfArg(default=False, help="Compute in bfloat16 where that is safe.")
    use_cpu: bool = HfArg(default=False, help="Leave GPUs alone.")
    seed: int = HfArg(default=42, help="Of weights, dropout and the order of documents.")
    eval_steps: int | None = HfArg(
        default=None, help="Steps between evaluations on validation documents; None: none on the way."
    )
    save_steps: int = HfArg(default=1000, help="Steps between checkpoints.")
    save_total_limit: int = HfArg(default=2, help="Maximum number of checkpoints to keep.")
    logging_steps: int = HfArg(default=100, help="Steps between entries of the log.")
    resume_from_checkpoint: str | None = HfArg(
        default=None, help="A checkpoint of such a run; the last one of output_dir if unset."
    )
    disable_tqdm: bool = HfArg(default=False, help="No progress bars.")
    push_to_hub: bool = HfArg(default=False, help="Publish the finished run as hub_model_id.")
    hub_model_id: str | None = HfArg(default=None, help="Repository on the Hub: owner/name.")
    hub_private_repo: bool | None = HfArg(default=None, help="Whether a new repository is private.")
    hub_revision: str | None = HfArg(default=None, help="Branch to publish to.")
    hub_token: str | None = HfArg(default=None, help="Access token, instead of the one logged in with.")

    def __post_init__(self) -> None:
        if not self.output_dir:
            raise ValueError("output_dir is not set: give the run a folder, such as --output_dir runs/rec_fixed_skip")
        check_numbers(self, "max_steps", "eval_steps", "save_steps", "logging_steps")
        require_known("optim", self.optim, list(DOCUMENT_OPTIMIZERS))
        check_schedule(self.lr_schedule)
        if self.lr_schedule in NOT_OFFERED:
            known = ", ".join(name for name in schedule_names() if name not in NOT_OFFERED)
            raise ValueError(
                f"lr_schedule is {self.lr_schedule!r}, which needs more than steps: expected one of {known}"
            )
        if self.optim != "adamw_torch" and self.weight_decay:
            raise ValueError(f"weight_decay is {self.weight_decay}, which optim: {self.optim} has not: leave it at 0")


ARGUMENT_TYPES = (ModelArguments, LabelledDataArguments, RunArguments, RecurrentTrainingArguments)
LANGUAGE_ARGUMENT_TYPES = (ModelArguments, LanguageDataArguments, TimedReportArguments, RecurrentTrainingArguments)
SEQ2SEQ_ARGUMENT_TYPES = (ModelArguments, PairArguments, TimedReportArguments, Seq2SeqArguments)
DOCUMENT_ARGUMENT_TYPES = (ModelArguments, DocumentArguments, ReportArguments, DocumentTrainingArguments)
