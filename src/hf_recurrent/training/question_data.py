"""Own questions as token ids: windows of contexts with the places of their answers, and choices.

Shapes: N windows, Q questions, S tokens of a window.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from ..text_data.source import LENGTH
from .arguments import DataArguments
from .data import (
    EvaluationSplit,
    Splits,
    by_length,
    load_splits,
    require_room,
    require_tokens,
    split_place,
    warn_of_cuts,
    within,
)
from .question_arguments import ChoiceDataArguments, SpanDataArguments

if TYPE_CHECKING:
    from datasets import Dataset

QUESTION, CONTEXT, ANSWERS, CHOICES = "question", "context", "answers", "choices"
# columns of windows: the number of their question, and the characters of the context that each token is of
NUMBER, OFFSETS = "number", "offsets"
# in the place of the characters of a token that is not of the context
OUTSIDE = (-1, -1)
# where windows that do not have the answer say so: at the token before the question
NO_ANSWER = 0


@dataclass(frozen=True)
class SpanRules:
    """How a span is chosen: its most tokens, and whether there may be no answer, at how much greater a score."""

    max_answer_length: int = 30
    may_lack: bool = False
    null_score_diff_threshold: float = 0.0

    @classmethod
    def of(cls, arguments: SpanDataArguments) -> "SpanRules":
        chosen = (arguments.version_2_with_negative, arguments.null_score_diff_threshold)
        return cls(arguments.max_answer_length, *chosen)


@dataclass(frozen=True)
class SpanSplit(EvaluationSplit):
    """A test split of questions, whose `dataset` are the windows of their contexts."""

    rules: SpanRules = field(default_factory=SpanRules)

    @cached_property
    def owners(self) -> np.ndarray:
        """The question of each window (N,), from 0 to Q - 1."""
        return np.unique(self.dataset[NUMBER][:], return_inverse=True)[1]

    @cached_property
    def questions(self) -> "Dataset":
        """A window of each question, which has its texts and difficulty."""
        return self.dataset.select(np.unique(self.owners, return_index=True)[1])

    @property
    def slices(self) -> dict[str, list]:
        return {name: self.questions[name][:] for name in self.slice_columns}


def load_spans(arguments: SpanDataArguments, tokenizer: Any) -> Splits:
    """Load and encode everything a run needs.

    Raises:
        ValueError: as `load_splits` and `require_answers`.
    """
    for split, rows in arguments.own.splits.items():
        require_answers(split, rows, arguments)
    splits = load_splits(arguments, tokenizer, encode_spans, SpanSplit)
    rules = SpanRules.of(arguments)
    return replace(splits, evaluation=[replace(split, rules=rules) for split in splits.evaluation])


def require_answers(split: str, rows: "Dataset", arguments: SpanDataArguments) -> None:
    """Raise a ValueError for questions without an answer, where all should have one."""
    lacking = sum(not answers["text"] for answers in rows[ANSWERS])
    if lacking and not arguments.version_2_with_negative:
        raise ValueError(
            f"{lacking:,} of {len(rows):,} questions of {split} have no answer: pass --version_2_with_negative if "
            "that is an answer, too, or leave them out"
        )


def question_split(name: str, rows: "Dataset", arguments: DataArguments, tokenizer: Any) -> EvaluationSplit:
    """A split of questions to evaluate a model on, encoded, sorted by length.

    Raises:
        ValueError: as `encode_spans`, `encode_choices` and `require_answers`.
    """
    columns, place = arguments.info.slice_columns, split_place(name, arguments)
    if not isinstance(arguments, SpanDataArguments):
        encoded = by_length(encode_choices(rows, arguments, tokenizer, place))
        return EvaluationSplit(name, encoded, columns, labels=arguments.own.labels)
    require_answers(name, rows, arguments)
    encoded = by_length(encode_spans(rows, arguments, tokenizer, place))
    return SpanSplit(name, encoded, columns, rules=SpanRules.of(arguments))


def encode_spans(examples: "Dataset", arguments: SpanDataArguments, tokenizer: Any, place: str) -> "Dataset":
    """Windows of contexts after their question: token ids, the ends of the first answer, and `offsets` in the context.

    A window without the whole answer has the answer at its first token. `length` is that of question and context.

    Raises:
        ValueError: a context without tokens, or a question that leaves it too little room.
    """
    limit, stride = arguments.max_seq_length, arguments.doc_stride
    require_room(limit, tokenizer, pair=True)

    def tokenize(batch: dict[str, list], numbers: list[int]) -> dict[str, list]:
        texts = batch[QUESTION], batch[CONTEXT]
        lengths = [len(ids) for ids in tokenizer(*texts, verbose=False)["input_ids"]]
        options: dict[str, Any] = {"verbose": False, "return_offsets_mapping": True}
        if limit is not None and max(lengths) > limit:
            require_windows(batch[QUESTION], lengths, limit, stride, tokenizer)
            options |= {"truncation": "only_second", "max_length": limit, "stride": stride}
        encoded = tokenizer(*texts, **options, return_overflowing_tokens=True)
        of_context = [encoded.sequence_ids(row) for row in range(len(encoded["input_ids"]))]
        columns = dict(encoded)
        owners, offsets = columns.pop("overflow_to_sample_mapping"), columns.pop("offset_mapping")
        offsets = [
            [pair if part == 1 else OUTSIDE for pair, part in zip(own, parts, strict=True)]
            for own, parts in zip(offsets, of_context, strict=True)
        ]
        answers = [batch[ANSWERS][owner] for owner in owners]
        ends = [
            span_columns(own, each["text"], each["answer_start"]) for own, each in zip(offsets, answers, strict=True)
        ]
        repeated = {name: [values[owner] for owner in owners] for name, values in batch.items()}
        columns |= {OFFSETS: offsets, "start_positions": [end[0] for end in ends]}
        columns |= {"end_positions": [end[1] for end in ends], NUMBER: [numbers[owner] for owner in owners]}
        return {**repeated, **columns, LENGTH: [lengths[owner] for owner in owners]}

    options = {"batched": True, "with_indices": True, "remove_columns": examples.column_names}
    encoded = examples.map(tokenize, **options, num_proc=arguments.num_proc, desc="encoding")
    found = np.array([any(end > start for start, end in own) for own in encoded[OFFSETS]])
    require_tokens(encoded, found, CONTEXT, place)
    return encoded


def require_windows(questions: Sequence[str], lengths: Sequence[int], limit: int, stride: int, tokenizer: Any) -> None:
    """Raise a ValueError for a question after which a window has no room for more of its context than windows share."""
    around = tokenizer.num_special_tokens_to_add(pair=True)
    for question, length in zip(questions, lengths, strict=True):
        if length <= limit:
            continue
        room = limit - around - len(tokenizer(question, add_special_tokens=False, verbose=False)["input_ids"])
        if room <= stride:
            raise ValueError(
                f"max_seq_length is {limit} and doc_stride {stride}: the question {question!r:.60} leaves "
                f"{max(room, 0)} tokens of a window for its context: raise max_seq_length, or lower doc_stride"
            )


def span_columns(offsets: Sequence[tuple[int, int]], texts: Sequence[str], starts: Sequence[int]) -> tuple[int, int]:
    """The columns of the first and the last token of the first answer; those of no answer where it is not all there.

    Args:
        offsets: the characters of the context that each token is of (S,), or `OUTSIDE`.
        texts, starts: of the answers.
    """
    if not texts:
        return NO_ANSWER, NO_ANSWER
    first, last = starts[0], starts[0] + len(texts[0].rstrip())
    inside = [column for column, (start, end) in enumerate(offsets) if start < last and end > first]
    of_context = [column for column, (_, end) in enumerate(offsets) if end >= 0]
    if not inside or offsets[of_context[0]][0] > first or offsets[of_context[-1]][1] < last:
        return NO_ANSWER, NO_ANSWER
    return inside[0], inside[-1]


def encode_choices(examples: "Dataset", arguments: DataArguments, tokenizer: Any, place: str) -> "Dataset":
    """Token ids of each choice after its context, and `labels`; `length` is that of the longest choice, uncut.

    Warns if texts are cut.

    Raises:
        ValueError: nothing is left of any choice by a cut.
    """
    limit = arguments.max_seq_length
    require_room(limit, tokenizer, pair=True)

    def tokenize(batch: dict[str, list]) -> dict[str, list]:
        counts = [len(choices) for choices in batch[CHOICES]]
        contexts = [text for text, count in zip(batch[CONTEXT], counts, strict=True) for _ in range(count)]
        encoded, lengths = within(tokenizer, limit, contexts, list(chain(*batch[CHOICES])))
        by_question = {name: in_groups(values, counts) for name, values in encoded.items()}
        return {**by_question, LENGTH: list(map(max, in_groups(lengths, counts)))}

    encoded = examples.map(tokenize, batched=True, num_proc=arguments.num_proc, desc="encoding")
    warn_of_cuts(np.asarray(encoded[LENGTH][:]), limit, "max_seq_length", f"questions of {place}")
    return encoded.rename_column("label", "labels")


def in_groups(values: Sequence[Any], counts: Sequence[int]) -> list[list[Any]]:
    """Values, one after another, as lists of so many."""
    rest = iter(values)
    return [[next(rest) for _ in range(count)] for count in counts]


def load_choices(arguments: ChoiceDataArguments, tokenizer: Any) -> Splits:
    """Load and encode everything a run needs.

    Raises:
        ValueError: as `load_splits`.
    """
    return load_splits(arguments, tokenizer, encode_choices)
