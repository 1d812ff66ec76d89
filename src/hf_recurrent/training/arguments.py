"""The settings of recipes, as dataclasses; every field is a recipe key and a command-line flag."""

# HfArg makes dataclass fields
# ruff: noqa: RUF009

from dataclasses import dataclass
from typing import Any, ClassVar

from transformers import Seq2SeqTrainingArguments, TrainingArguments
from transformers.hf_argparser import HfArg

from ..benchmarks import BenchmarkInfo, benchmark_info
from ..benchmarks.registry import get_benchmark
from ..registry import ARCHITECTURES
from ..text_data.documents import DocumentSource
from ..text_data.source import TextSource
from .objectives import CLASSIFICATION, DOCUMENT_SCRIPT, LONG_DOCUMENTS, SEQ2SEQ, TEXT_MODELLING, Objective, script_of
from .optimization import SCHEDULES, check_schedule, schedule_names
from .recipes import mapping, require_known
from .report_arguments import ReportArguments, RunArguments, TimedReportArguments
from .text_arguments import (
    CHOOSING,
    BlockArguments,
    DocumentTextArguments,
    LabelArguments,
    PairColumnArguments,
    TextArguments,
)
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
class OwnDataArguments(TextArguments, BenchmarkArguments):
    """The benchmark or a user's own data."""

    def __post_init__(self) -> None:
        if self.is_own and self.benchmark_config is not None:
            raise ValueError(
                f"benchmark_config is {self.benchmark_config!r}, which is of a benchmark: the configuration of a data "
                "set is dataset_config_name"
            )
        super().__post_init__()
        self.check_own()

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
            raise ValueError(
                f"{unused[0]} is {getattr(self, unused[0])!r} and {chosen} {getattr(self, chosen)!r}: a benchmark and "
                "your own data, set one of them"
            )
        self.own = self.make_source()
        self.benchmark, self.benchmark_config = self.own.place, self.own.config

    def make_source(self) -> TextSource:
        """The user's own data."""
        return TextSource(**self.source_options(), cache_dir=self.cache_dir)


@dataclass
class DataArguments(OwnDataArguments):
    """The benchmark or a user's own data, further test data and the maximum length of training examples."""

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
class LabelledDataArguments(LabelArguments, DataArguments):
    """The benchmark, or a user's own texts with labels."""

    def __post_init__(self) -> None:
        self.check_labels()
        super().__post_init__()

    def make_source(self) -> TextSource:
        return TextSource(**self.source_options(), **self.label_options(), cache_dir=self.cache_dir)


@dataclass
class LanguageDataArguments(BlockArguments, DataArguments):
    """A user's own documents for a language model."""

    own_objective: ClassVar[Objective] = TEXT_MODELLING

    train_file: str | None = HfArg(default=None, help=DOCUMENT_FILE)

    def __post_init__(self) -> None:
        self.name_blocks()
        super().__post_init__()
        self.check_blocks()

    def make_source(self) -> DocumentSource:
        options = {**self.source_options(), **self.document_options(), "line_by_line": self.line_by_line}
        return DocumentSource(**options, streaming=self.streaming, cache_dir=self.cache_dir)


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
                "it those of steps and halting; leave it out"
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
class PairArguments(PairColumnArguments, DataArguments):
    """The benchmark or a user's own data of sources and targets, and the vocabulary of its tokenizer."""

    own_objective: ClassVar[Objective] = SEQ2SEQ

    num_merges: int | None = HfArg(
        default=None, help="Merges of the BPE that is trained on texts of wmt14_en_de; 32,764 if unset."
    )

    def __post_init__(self) -> None:
        self.check_pairs()
        if self.max_seq_length is not None:
            raise ValueError(
                f"max_seq_length is {self.max_seq_length}: set max_source_length and max_target_length, which cut "
                "sources and targets"
            )
        super().__post_init__()

    def make_source(self) -> TextSource:
        return TextSource(pairs=True, **self.source_options(), **self.pair_options(), cache_dir=self.cache_dir)


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
        if self.label_smoothing_factor:
            raise ValueError(
                f"label_smoothing_factor is {self.label_smoothing_factor}: it would replace the model's loss and with "
                "it the auxiliary ones; let the model smooth labels, with config: {label_smoothing: "
                f"{self.label_smoothing_factor}}}"
            )
        if self.predict_with_generate:
            raise ValueError(
                "predict_with_generate is true: leave it out; evaluations on the way know what greedy decoding gets "
                "right without it, from one pass with the target, and at the end targets are written in any case"
            )
        check_numbers(self)
        if self.batch_tokens is not None:
            raise ValueError(
                f"batch_tokens is {self.batch_tokens}: set max_tokens, which limits sources and targets alike"
            )
        if self.max_tokens is not None and self.batch_sampling is not None:
            raise ValueError(
                f"max_tokens is {self.max_tokens} and batch_sampling {self.batch_sampling!r}: both choose the examples "
                "of a batch, set one of them"
            )
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
                raise ValueError(
                    f"vocab_size is {self.vocab_size} and tokenizer_vocab_size {self.tokenizer_vocab_size}: both are "
                    "the size of the tokenizer, set one of them"
                )
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
        return DocumentSource(**self.source_options(), **self.document_options(), cache_dir=self.cache_dir)


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
