"""What a recipe may say, as dataclasses; every field is a recipe key and a command-line flag."""

from dataclasses import dataclass, field
from typing import Any

import yaml
from transformers import TrainingArguments

from ..benchmarks import benchmark_info
from ..hub.publish import check_repo_id
from ..registry import ARCHITECTURES
from .recipes import near_matches
from .sampling import SAMPLINGS, require_one_choice_of_rows
from .schedules import SCHEDULES, check_schedule
from .selection import TIES

# of a batch, where nothing is said of it (that of transformers)
DEFAULT_ROWS = 8


def mapping(name: str, value: dict | str | None) -> dict[str, Any]:
    """A mapping, or the YAML or JSON of one as a flag gives it."""
    parsed = yaml.safe_load(value) if isinstance(value, str) else value
    if parsed is not None and not isinstance(parsed, dict):
        raise ValueError(f"{name} is {value!r}: expected a mapping such as '{{key: value}}'")
    return dict(parsed or {})


def require_known(kind: str, name: str, known: list[str]) -> None:
    """Raise a ValueError that lists what there is and what may have been meant."""
    if name not in known:
        raise ValueError(f"{kind} is {name!r}: expected one of {', '.join(known)}{near_matches(name, known)}")


def has_betas(optim: str) -> bool:
    """Whether an optimiser of transformers, by name, has Adam's betas; one that works layer by layer shows none."""
    return any(kind in optim for kind in ("adam", "ademamix", "lion")) and "layerwise" not in optim


@dataclass
class ModelArguments:
    """Which model to train: a fresh one of `model_type`, or the checkpoint `model_name_or_path`."""

    model_type: str | None = field(default=None, metadata={"help": "Family of a new model, such as gut."})
    model_name_or_path: str | None = field(
        default=None, metadata={"help": "Checkpoint to fine-tune instead of a new model."}
    )
    config: dict | str | None = field(default=None, metadata={"help": "Fields of the model's config."})
    attn_implementation: str | None = field(default=None, metadata={"help": "eager, sdpa or flash_attention_2."})

    def __post_init__(self) -> None:
        self.config = mapping("config", self.config)
        if (self.model_type is None) == (self.model_name_or_path is None):
            raise ValueError("set exactly one of model_type and model_name_or_path")
        if self.model_type is not None:
            require_known("model_type", self.model_type, list(ARCHITECTURES))


@dataclass
class BenchmarkArguments:
    """Which benchmark to train and evaluate on."""

    benchmark: str = field(default="listops", metadata={"help": "Benchmark name, such as listops."})
    benchmark_config: str | None = field(
        default=None, metadata={"help": "Its configuration; the benchmark's default if unset."}
    )
    benchmark_params: dict | str | None = field(default=None, metadata={"help": "Parameters of that configuration."})
    data_dir: str | None = field(
        default=None, metadata={"help": "Folder with the authors' own files, instead of generated rows."}
    )
    cache_dir: str | None = field(
        default=None, metadata={"help": "Where to keep the data, instead of the cache of datasets."}
    )
    num_proc: int | None = field(default=None, metadata={"help": "Processes that make and encode rows."})
    max_train_samples: int | None = field(default=None, metadata={"help": "Train on this many random rows only."})
    max_eval_samples: int | None = field(
        default=None, metadata={"help": "Evaluate this many random rows of each split only."}
    )

    def __post_init__(self) -> None:
        self.benchmark_params = mapping("benchmark_params", self.benchmark_params)
        info = benchmark_info(self.benchmark)
        if self.benchmark_config is None:
            self.benchmark_config = info.default_config
        require_known(f"benchmark_config ({self.place})", self.benchmark_config, list(info.configs))
        known = list(info.parameters[self.benchmark_config])
        for name in self.benchmark_params:
            require_known(f"benchmark_params (parameter of {self.benchmark} {self.benchmark_config})", name, known)
        self.require_positive("max_train_samples", "max_eval_samples")

    @property
    def place(self) -> str:
        """What a configuration's name is one of."""
        return f"config of benchmark {self.benchmark}"

    def require_positive(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}: expected at least 1, or nothing for no limit")


@dataclass
class DataArguments(BenchmarkArguments):
    """And on what of further configurations, and how long rows may be."""

    evaluate_on: list[str] = field(
        default_factory=list, metadata={"help": "Further test data: 'config' (all its test splits) or 'config/split'."}
    )
    evaluate_params: dict | str | None = field(
        default=None,
        metadata={
            "help": "Parameters of configurations in evaluate_on: {config: {parameter: value}}; data_dir is one."
        },
    )
    max_length: int | None = field(
        default=None,
        metadata={"help": "Drop training rows of more tokens, BOS and EOS counted. Evaluation is never cut."},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.evaluate_params = mapping("evaluate_params", self.evaluate_params)
        configs = list(benchmark_info(self.benchmark).configs)
        for entry in self.evaluate_on:
            require_known(f"evaluate_on ({self.place})", entry.partition("/")[0], configs)
            if entry.partition("/")[0] == self.benchmark_config:
                raise ValueError(f"evaluate_on holds {entry!r}: test splits of benchmark_config are evaluated anyway")
        named = {entry.partition("/")[0] for entry in self.evaluate_on}
        for config in self.evaluate_params:
            require_known("evaluate_params (a configuration in evaluate_on)", config, sorted(named))
        self.require_positive("max_length")


@dataclass
class ReportArguments:
    """What the run is called and what its card says of it."""

    title: str | None = field(default=None, metadata={"help": "Title of the model card."})
    paper_table: str = field(default="none", metadata={"help": "Which table of which paper the run reproduces."})
    paper_variants: dict | str | None = field(
        default=None,
        metadata={
            "help": "Changes by flags that the paper's tables have too, as {'config.pooling = cls': the row that they "
            "make of paper_table, or nothing if it stays the same}."
        },
    )
    notice: str | None = field(default=None, metadata={"help": "What a reader of the card must know first."})
    differences: list[str] = field(default_factory=list, metadata={"help": "What differs from the paper."})
    dataset_id: str | None = field(
        default=None, metadata={"help": "The benchmark's repository on the Hub, for evaluation results."}
    )
    keep_checkpoints: bool = field(default=False, metadata={"help": "Keep checkpoint-N folders of a finished run."})

    def __post_init__(self) -> None:
        self.paper_variants = mapping("paper_variants", self.paper_variants)


@dataclass
class RunArguments(ReportArguments):
    """And what it leaves behind of how a model halts."""

    thresholds: list[float] = field(
        default_factory=lambda: [0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999],
        metadata={"help": "Halting thresholds of the trade-off curve on the first split; none if empty."},
    )
    threshold_samples: int = field(default=500, metadata={"help": "Rows of the trade-off curve."})
    timing: bool = field(
        default=False, metadata={"help": "Report seconds of each training epoch and of each evaluation pass."}
    )
    write_predictions: bool = field(default=False, metadata={"help": "Write predictions/<split>.jsonl."})

    def __post_init__(self) -> None:
        super().__post_init__()
        for threshold in self.thresholds:
            if not 0.0 < threshold <= 1.0:
                raise ValueError(f"thresholds holds {threshold}: each must lie in (0, 1]")
        if self.threshold_samples < 1:
            raise ValueError(f"threshold_samples is {self.threshold_samples}: expected at least 1")


@dataclass
class RecurrentTrainingArguments(TrainingArguments):
    """`TrainingArguments` with the papers' schedules, weight decay and ponder warm-up.

    `push_to_hub` publishes the finished run as `hub_model_id`, checked as `hf_recurrent.hub.publish_checkpoint` does;
    checkpoints on the way are never sent.
    """

    lr_schedule: str | None = field(
        default=None,
        metadata={
            "help": "rootwarmup, justwarmup, cosine2, linearwarmup, rsqrt_std, inverse_sqrt_fairseq, or a schedule of "
            "transformers; lr_scheduler_type if unset."
        },
    )
    cycle_adam_beta1: bool = field(
        default=False,
        metadata={"help": "With linearwarmup, cycle adam_beta1 from 0.95 to 0.85 and back, as the authors' code does."},
    )
    decay_all_parameters: bool = field(
        default=True, metadata={"help": "Weight decay on biases, norms and embeddings too, as the papers' AdamW does."}
    )
    per_device_train_batch_size: int | None = field(
        default=None,
        metadata={"help": "Rows of a batch, per process and accumulated batch; 8 if neither this nor batch_tokens."},
    )
    batch_tokens: int | None = field(
        default=None,
        metadata={
            "help": "Rows of like length are batched up to so many tokens, padding counted, per process and "
            "accumulated batch; a siamese pair counts as two of its longer sentence."
        },
    )
    batch_sampling: str | None = field(
        default=None,
        metadata={
            "help": "with_replacement, by_length (batches of rows of like length, shuffled) or balanced_lengths (with "
            "replacement, every length equally often): full batches, drawn anew for each epoch; "
            "train_sampling_strategy if unset."
        },
    )
    best_model_on_ties: str = field(
        default="first", metadata={"help": "Which of equally good checkpoints is kept: the first or the latest."}
    )
    evaluation_depth: int | None = field(
        default=None,
        metadata={
            "help": "Depth steps of evaluations, and of the checkpoint that the run leaves, if they are not those of "
            "training."
        },
    )
    ponder_warmup_steps: int = field(
        default=0, metadata={"help": "Steps over which the ponder loss rises from 0 to its weight."}
    )
    early_stopping_patience: int | None = field(
        default=None, metadata={"help": "Evaluations without improvement that are tolerated; one more stops."}
    )
    logging_nan_inf_filter: bool = field(
        default=False, metadata={"help": "Hide NaN losses in logs; here they stop the run."}
    )
    save_total_limit: int | None = field(default=2, metadata={"help": "Most checkpoints to keep."})
    restore_callback_states_from_checkpoint: bool = field(
        default=True, metadata={"help": "Resume the patience counter and the clock too."}
    )

    def __post_init__(self) -> None:
        if not self.output_dir:
            # transformers would take ./trainer_output
            raise ValueError("output_dir is not set: give the run a folder, such as --output_dir runs/gut")
        if self.lr_schedule is not None:
            check_schedule(self.lr_schedule)
            if self.lr_schedule not in SCHEDULES:
                self.lr_scheduler_type = self.lr_schedule
        if self.cycle_adam_beta1 and self.lr_schedule != "linearwarmup":
            raise ValueError(f"cycle_adam_beta1 needs lr_schedule: linearwarmup, not {self.lr_schedule!r}")
        if self.cycle_adam_beta1 and not has_betas(getattr(self.optim, "value", self.optim)):
            raise ValueError(
                f"cycle_adam_beta1 sets a beta1 of Adam, which optim: {getattr(self.optim, 'value', self.optim)} has "
                "not: use an optim such as adamw_torch, or leave cycle_adam_beta1 out"
            )
        if self.batch_sampling is not None:
            require_known("batch_sampling", self.batch_sampling, list(SAMPLINGS))
        require_one_choice_of_rows(self)
        if self.per_device_train_batch_size is None:
            self.per_device_train_batch_size = DEFAULT_ROWS
        require_known("best_model_on_ties", self.best_model_on_ties, list(TIES))
        if self.evaluation_depth is not None and self.evaluation_depth < 1:
            raise ValueError(f"evaluation_depth is {self.evaluation_depth}: expected at least 1")
        if self.ponder_warmup_steps < 0:
            raise ValueError(f"ponder_warmup_steps is {self.ponder_warmup_steps}: expected at least 0")
        if self.early_stopping_patience is not None:
            if self.early_stopping_patience < 0:
                raise ValueError(f"early_stopping_patience is {self.early_stopping_patience}: expected at least 0")
            if not self.load_best_model_at_end:
                raise ValueError("early_stopping_patience needs load_best_model_at_end: true")
        if self.push_to_hub and self.hub_model_id is None:
            raise ValueError("push_to_hub needs hub_model_id: owner/name")
        if self.hub_model_id is not None:
            check_repo_id(self.hub_model_id, "hub_model_id")
        super().__post_init__()


ARGUMENT_TYPES = (ModelArguments, DataArguments, RunArguments, RecurrentTrainingArguments)
