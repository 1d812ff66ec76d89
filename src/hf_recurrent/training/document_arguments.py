"""What a recipe of `run_clm_accelerate.py` may say, beside model and report; names are those of `TrainingArguments`."""

from dataclasses import dataclass, field

from ..hub.publish import check_repo_id
from .arguments import BenchmarkArguments, ModelArguments, ReportArguments, require_known
from .objectives import DOCUMENT_SCRIPT, LONG_DOCUMENTS, script_of
from .schedules import check_schedule, schedule_names

OPTIMIZERS = ("adafactor", "adamw_torch")
# schedules of transformers that need more than steps, or the course of the loss
NOT_OFFERED = ("reduce_lr_on_plateau", "greedy", "warmup_stable_decay")


@dataclass
class DocumentArguments(BenchmarkArguments):
    """Which documents to train and evaluate on, as which tokens, in which segments."""

    benchmark: str = field(default=LONG_DOCUMENTS, metadata={"help": f"Benchmark name: {LONG_DOCUMENTS}."})
    tokenizer: str | None = field(
        default=None,
        metadata={
            "help": "bytes, bpe (trained on the training split), or a tokenizer's name on the Hub or folder; bytes, or "
            "that of the checkpoint to fine-tune, if unset."
        },
    )
    tokenizer_vocab_size: int | None = field(default=None, metadata={"help": "Tokens of a tokenizer that is trained."})
    segment_length: int = field(
        default=4096, metadata={"help": "Tokens of each row in one step; gradients do not go further back."}
    )
    predict_across_segments: bool = field(
        default=True,
        metadata={"help": "Predict the first token of the next segment too, which the authors' code leaves out."},
    )
    compare_with: list[str] = field(
        default_factory=list,
        metadata={"help": "Folders of finished runs over the same documents, for the card to compare this one with."},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.benchmark != LONG_DOCUMENTS:
            raise ValueError(
                f"benchmark {self.benchmark!r} has rows, not documents: use {script_of(self.benchmark)}, not "
                f"{DOCUMENT_SCRIPT}"
            )
        if (self.tokenizer == "bpe") is (self.tokenizer_vocab_size is None):
            raise ValueError(
                f"tokenizer is {self.tokenizer!r} and tokenizer_vocab_size {self.tokenizer_vocab_size}: bpe needs a "
                "size, others have theirs"
            )
        self.require_positive("tokenizer_vocab_size", "segment_length")


@dataclass
class DocumentTrainingArguments:
    """How to train, and where to leave and publish the result."""

    output_dir: str | None = field(default=None, metadata={"help": "Folder of the run."})
    per_device_train_batch_size: int = field(default=8, metadata={"help": "Rows that a process reads at a time."})
    gradient_accumulation_steps: int = field(
        default=1, metadata={"help": "Groups of so many rows, read one after another, that make one optimiser step."}
    )
    per_device_eval_batch_size: int = field(default=8, metadata={"help": "Rows of an evaluation."})
    max_steps: int = field(default=500_000, metadata={"help": "Optimiser steps."})
    optim: str = field(
        default="adafactor", metadata={"help": "adafactor (with momentum, as the paper's) or adamw_torch."}
    )
    learning_rate: float = field(
        default=1.0, metadata={"help": "What the schedule multiplies; of adafactor relative to the size of parameters."}
    )
    lr_schedule: str = field(
        default="rsqrt_std",
        metadata={"help": "rsqrt_std (the paper's), another of this package's, or a schedule of transformers."},
    )
    warmup_steps: int = field(default=1000, metadata={"help": "Optimiser steps over which the learning rate rises."})
    adam_beta1: float = field(default=0.9, metadata={"help": "Of adamw_torch."})
    adam_beta2: float = field(default=0.999, metadata={"help": "Of adamw_torch."})
    adam_epsilon: float = field(default=1e-8, metadata={"help": "Of adamw_torch."})
    weight_decay: float = field(default=0.0, metadata={"help": "Of adamw_torch, on all parameters."})
    max_grad_norm: float | None = field(default=None, metadata={"help": "Clip gradients to this norm; None: do not."})
    bf16: bool = field(default=False, metadata={"help": "Compute in bfloat16 where that is safe."})
    use_cpu: bool = field(default=False, metadata={"help": "Leave GPUs alone."})
    seed: int = field(default=42, metadata={"help": "Of weights, dropout and the order of documents."})
    eval_steps: int | None = field(
        default=None, metadata={"help": "Steps between evaluations on validation documents; None: none on the way."}
    )
    save_steps: int = field(default=1000, metadata={"help": "Steps between checkpoints."})
    save_total_limit: int = field(default=2, metadata={"help": "Most checkpoints to keep."})
    logging_steps: int = field(default=100, metadata={"help": "Steps between entries of the log."})
    resume_from_checkpoint: str | None = field(
        default=None, metadata={"help": "A checkpoint of such a run; the last one of output_dir if unset."}
    )
    disable_tqdm: bool = field(default=False, metadata={"help": "No progress bars."})
    push_to_hub: bool = field(default=False, metadata={"help": "Publish the finished run as hub_model_id."})
    hub_model_id: str | None = field(default=None, metadata={"help": "Repository on the Hub: owner/name."})
    hub_private_repo: bool | None = field(default=None, metadata={"help": "Whether a new repository is private."})
    hub_revision: str | None = field(default=None, metadata={"help": "Branch to publish to."})
    hub_token: str | None = field(default=None, metadata={"help": "Access token, instead of the one logged in with."})

    def __post_init__(self) -> None:
        if not self.output_dir:
            raise ValueError("output_dir is not set: give the run a folder, such as --output_dir runs/rec_fixed_skip")
        require_known("optim", self.optim, list(OPTIMIZERS))
        check_schedule(self.lr_schedule)
        if self.lr_schedule in NOT_OFFERED:
            known = ", ".join(name for name in schedule_names() if name not in NOT_OFFERED)
            raise ValueError(
                f"lr_schedule is {self.lr_schedule!r}, which needs more than steps: expected one of {known}"
            )
        if self.optim != "adamw_torch" and self.weight_decay:
            raise ValueError(f"weight_decay is {self.weight_decay}, which optim: {self.optim} has not: leave it at 0")
        self.check_ranges()
        if self.push_to_hub and self.hub_model_id is None:
            raise ValueError("push_to_hub needs hub_model_id: owner/name")
        if self.hub_model_id is not None:
            check_repo_id(self.hub_model_id, "hub_model_id")

    def check_ranges(self) -> None:
        for name in (
            *("per_device_train_batch_size", "gradient_accumulation_steps", "per_device_eval_batch_size", "max_steps"),
            *("eval_steps", "save_steps", "save_total_limit", "logging_steps"),
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}: expected at least 1")
        if self.warmup_steps < 0:
            raise ValueError(f"warmup_steps is {self.warmup_steps}: expected at least 0")
        for name in ("learning_rate", "max_grad_norm"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} is {value}: expected more than 0")


DOCUMENT_ARGUMENT_TYPES = (ModelArguments, DocumentArguments, ReportArguments, DocumentTrainingArguments)
