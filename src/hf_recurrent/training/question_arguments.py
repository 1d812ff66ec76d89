"""The settings of runs on a user's own questions: with texts that have the answers, or with answers to choose from."""

# HfArg makes dataclass fields
# ruff: noqa: RUF009

from dataclasses import dataclass
from typing import ClassVar

from transformers.hf_argparser import HfArg

from ..text_data.questions import ChoiceSource, SpanSource
from .arguments import DataArguments, ModelArguments, RecurrentTrainingArguments
from .objectives import MULTIPLE_CHOICE, QUESTION_ANSWERING, Objective
from .report_arguments import TimedReportArguments
from .values import check_numbers


@dataclass
class SpanDataArguments(DataArguments):
    """A user's own questions with texts that have the answers."""

    own_objective: ClassVar[Objective] = QUESTION_ANSWERING
    length_setting: ClassVar[str] = "max_seq_length"

    question_column: str | None = HfArg(default=None, help="The column of questions; question if unset.")
    context_column: str | None = HfArg(
        default=None, help="The column of the texts that have the answers; context if unset."
    )
    answer_column: str | None = HfArg(
        default=None,
        help='The column of answers; answers if unset: {"text": [...], "answer_start": [...]}, as of SQuAD.',
    )
    max_seq_length: int | None = HfArg(
        default=384, help="Tokens of a question and its context; longer contexts are read in several windows."
    )
    doc_stride: int = HfArg(default=128, help="Tokens of a context that a window and the next one share.")
    max_answer_length: int = HfArg(default=30, help="The most tokens of an answer that is given.")
    version_2_with_negative: bool = HfArg(default=False, help="Some questions have no answer, which is one to learn.")
    null_score_diff_threshold: float = HfArg(
        default=0.0, help="No answer is given if its score is greater by more than that than an answer's."
    )

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.max_seq_length is not None and self.doc_stride >= self.max_seq_length:
            raise ValueError(
                f"doc_stride is {self.doc_stride} and max_seq_length {self.max_seq_length}: windows share fewer tokens "
                "than they have"
            )
        if self.null_score_diff_threshold and not self.version_2_with_negative:
            raise ValueError(
                f"null_score_diff_threshold is {self.null_score_diff_threshold}, and every question has an answer: "
                "pass --version_2_with_negative, or leave it out"
            )
        super().__post_init__()

    def make_source(self) -> SpanSource:
        columns = {name: getattr(self, name) for name in ("question_column", "context_column", "answer_column")}
        return SpanSource(**self.source_options(), **columns)


@dataclass
class ChoiceDataArguments(DataArguments):
    """A user's own contexts with several endings, of which one is right."""

    own_objective: ClassVar[Objective] = MULTIPLE_CHOICE
    length_setting: ClassVar[str] = "max_seq_length"

    context_column: str | None = HfArg(default=None, help="The column of contexts or questions; sent1 if unset.")
    start_column: str | None = HfArg(
        default=None, help="The column of a text that begins every ending; sent2 if context_column is unset, too."
    )
    ending_columns: list[str] = HfArg(
        default_factory=list, help="The columns of what to choose from; ending0, ending1 and so on if unset."
    )
    label_column: str | None = HfArg(
        default=None,
        aliases=["--label_column_name"],
        help="The column with the number of the right ending, from 0; label if unset.",
    )

    def make_source(self) -> ChoiceSource:
        columns = {name: getattr(self, name) for name in ("context_column", "start_column", "label_column")}
        endings = tuple(self.ending_columns)
        return ChoiceSource(**self.source_options(), **columns, ending_columns=endings)


SPAN_ARGUMENT_TYPES = (ModelArguments, SpanDataArguments, TimedReportArguments, RecurrentTrainingArguments)
CHOICE_ARGUMENT_TYPES = (ModelArguments, ChoiceDataArguments, TimedReportArguments, RecurrentTrainingArguments)
