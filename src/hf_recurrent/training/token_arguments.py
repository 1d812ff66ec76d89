"""The settings of runs that label a user's own words, or predict masked tokens of own documents."""

# HfArg makes dataclass fields
# ruff: noqa: RUF009

from dataclasses import dataclass
from typing import Any, ClassVar

from transformers.hf_argparser import HfArg

from ..text_data.words import WordSource
from .arguments import DataArguments, LanguageDataArguments, ModelArguments, RecurrentTrainingArguments
from .objectives import MASKED_MODELLING, TOKEN_CLASSIFICATION, Objective
from .report_arguments import TimedReportArguments
from .values import check_numbers


@dataclass
class WordDataArguments(DataArguments):
    """A user's own words with a label for each."""

    own_objective: ClassVar[Objective] = TOKEN_CLASSIFICATION

    text_column: str | None = HfArg(
        default=None, aliases=["--text_column_name"], help="The column of lists of words; tokens or words if unset."
    )
    label_column: str | None = HfArg(
        default=None,
        aliases=["--label_column_name"],
        help="The column of lists of labels, one for each word; ner_tags, tags, pos_tags, label or labels if unset.",
    )
    label_list: list[str] = HfArg(
        default_factory=list, help="Names of all labels in the order of their ids; else in alphabetical order."
    )
    label_all_tokens: bool = HfArg(
        default=False, help="Train all tokens of a word to have its label, rather than the first one alone."
    )

    def make_source(self) -> WordSource:
        columns = () if self.text_column is None else (self.text_column,)
        options: dict[str, Any] = {"label_column": self.label_column, "label_names": tuple(self.label_list)}
        return WordSource(**self.source_options(), text_columns=columns, **options)


@dataclass
class MaskedDataArguments(LanguageDataArguments):
    """A user's own documents, of which some tokens are masked and predicted."""

    own_objective: ClassVar[Objective] = MASKED_MODELLING

    mlm_probability: float = HfArg(default=0.15, help="The share of tokens that are masked, and predicted.")

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.streaming:
            raise ValueError(
                "streaming is true: how often tokens occur in training is counted first; leave it out, or train a "
                "causal language model"
            )
        super().__post_init__()


WORD_ARGUMENT_TYPES = (ModelArguments, WordDataArguments, TimedReportArguments, RecurrentTrainingArguments)
MASKED_ARGUMENT_TYPES = (ModelArguments, MaskedDataArguments, TimedReportArguments, RecurrentTrainingArguments)
