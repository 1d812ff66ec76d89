"""What a recipe of `training/run_seq2seq.py` may say beside what the other scripts know."""

from dataclasses import dataclass, field

from transformers import Seq2SeqTrainingArguments

from .arguments import DataArguments, ModelArguments, RecurrentTrainingArguments, ReportArguments

# of these, a lower value is the better one
LOSSES = ("loss", "nll")


@dataclass
class PairArguments(DataArguments):
    """And into how many pieces words are cut."""

    num_merges: int | None = field(
        default=None,
        metadata={"help": "Merges of the BPE that is trained on texts of wmt14_en_de; 32,764 if unset."},
    )


@dataclass
class PairReportArguments(ReportArguments):
    """And what it leaves behind of its evaluation."""

    timing: bool = field(
        default=False, metadata={"help": "Report seconds of each training epoch and of each evaluation pass."}
    )
    write_predictions: bool = field(default=False, metadata={"help": "Write predictions/<split>.jsonl."})


@dataclass
class Seq2SeqArguments(RecurrentTrainingArguments, Seq2SeqTrainingArguments):
    """`RecurrentTrainingArguments` with batches by tokens, averaged checkpoints and decoding.

    Labels are smoothed by the model (`config: {label_smoothing: 0.1}`).
    """

    max_tokens: int | None = field(
        default=None,
        metadata={
            "help": "Rows of like length are batched up to so many tokens of source or target, padding counted, per "
            "process and accumulated batch; per_device_train_batch_size rows if unset."
        },
    )
    average_checkpoints: int | None = field(
        default=None,
        metadata={"help": "Keep so many of the best checkpoints by metric_for_best_model, and leave their average."},
    )
    generation_length_penalty: float = field(
        default=1.0, metadata={"help": "Exponent of the length by which beam search divides log-likelihoods."}
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
        for name in ("max_tokens", "average_checkpoints", "generation_num_beams", "generation_max_length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}: expected at least 1, or nothing")
        if self.batch_tokens is not None:
            raise ValueError(
                f"batch_tokens is {self.batch_tokens}: set max_tokens, which limits sources and targets alike"
            )
        if self.max_tokens is not None and self.batch_sampling is not None:
            raise ValueError(
                f"max_tokens is {self.max_tokens} and batch_sampling {self.batch_sampling!r}: both choose the rows of "
                "a batch, set one of them"
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
        if self.metric_for_best_model is not None and self.greater_is_better is None:
            self.greater_is_better = not self.metric_for_best_model.endswith(LOSSES)
        super().__post_init__()


SEQ2SEQ_ARGUMENT_TYPES = (ModelArguments, PairArguments, PairReportArguments, Seq2SeqArguments)
