"""Own questions as token ids: windows of contexts with the places of their answers, and choices.

Shapes: N windows, Q questions, S tokens of a window.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from ..analysis.halting import halting_table
from ..text_data.source import LENGTH
from .arguments import DataArguments
from .data import EvaluationSplit, Measured, require_room, require_tokens, warn_of_cuts, within
from .question_arguments import SpanDataArguments
from .question_evaluation import ANSWERS, CONTEXT, OFFSETS, QUESTION, collect_spans

if TYPE_CHECKING:
    from datasets import Dataset

CHOICES = "choices"
# a column of windows: the number of their question
NUMBER = "number"
# in the place of the characters of a token that is not of the context
OUTSIDE = (-1, -1)
# where windows that do not have the answer say so: at the token before the question
NO_ANSWER = 0


def require_answers(rows: "Dataset", arguments: SpanDataArguments, place: str) -> None:
    """Raise a ValueError for questions without an answer, where all should have one."""
    lacking = sum(not answers["text"] for answers in rows[ANSWERS])
    if lacking and not arguments.version_2_with_negative:
        raise ValueError(
            f"{lacking:,} of {len(rows):,} questions of {place} have no answer: pass --version_2_with_negative if "
            "that is an answer, too, or leave them out"
        )


def encode_spans(examples: "Dataset", arguments: SpanDataArguments, tokenizer: Any, place: str) -> "Dataset":
    """Windows of contexts after their question: token ids, the ends of the first answer, and `offsets` in the context.

    A window without the whole answer has the answer at its first token. `length` is that of question and context.

    Raises:
        ValueError: as `require_answers`; a context without tokens, or a question that leaves it too little room.
    """
    require_answers(examples, arguments, place)
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


@dataclass(frozen=True)
class SpanSplit(EvaluationSplit):
    """A test split of questions: windows of their contexts, and `rules` by which spans are chosen."""

    encode: ClassVar = staticmethod(encode_spans)

    rules: SpanDataArguments | None = None

    @classmethod
    def of(cls, name: str, rows: "Dataset", arguments: SpanDataArguments, tokenizer: Any) -> "SpanSplit":
        return replace(super().of(name, rows, arguments, tokenizer), rules=arguments)

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

    def measure(self, model: Any, tokenizer: Any, batch_size: int, **options: Any) -> Measured:
        """What a model answers, and its table (see `halting_table`), whose `accuracy` is exact match, with `scores`."""
        record = collect_spans(model, tokenizer, self, batch_size, **options)
        return record.examples, {**halting_table(record), "scores": {"f1": float(record.examples["f1"].mean())}}

    def predictions(self, examples: pd.DataFrame, model: Any, tokenizer: Any) -> Iterator[dict[str, Any]]:
        """The texts of each question, its true answers, the answer given, its `f1` and steps."""
        kept = [name for name in ("answer", "f1", "steps") if name in examples]
        for row, found in zip(self.questions, examples[kept].to_dict("records"), strict=True):
            texts = {name: row[name] for name in (QUESTION, CONTEXT, *self.slice_columns)}
            yield {**texts, ANSWERS: row[ANSWERS]["text"], **found}


@dataclass(frozen=True)
class ChoiceSplit(EvaluationSplit):
    """A test split of questions with several answers."""

    encode: ClassVar = staticmethod(encode_choices)
    has_classes: ClassVar[bool] = False
