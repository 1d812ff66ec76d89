"""Questions that are answered by spans of texts: `question-answering`.

Shapes: B windows of a batch, N of all, Q questions, S tokens of a window, L maximum depth steps.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from datasets import Dataset, List, Value

from ..analysis.answers import as_numpy, best_spans, join_batches, to_device
from ..analysis.evaluate import each_batch
from ..analysis.halting import HaltingRecord, halting_columns, halting_table, unit_kind
from ..data.batches import SpanCollator, padded
from ..data.reading import LENGTH, Columns, value_of
from ..metrics.answers import exact_match, f1, normalized
from ..metrics.functional import Row, Scores
from ..utils import parse_json
from .arguments import SpanArguments
from .base import EXAMPLE_CHARACTERS, Measured, Split, Task, require_room, require_tokens

QUESTION, CONTEXT, ANSWERS = "question", "context", "answers"
# keys of answers: their texts, and where these begin in the context
TEXT, START = "text", "answer_start"
# columns of windows: the characters of the context that each token is of, and the number of their question
OFFSETS, NUMBER = "offsets", "number"
# in the place of the characters of a token that is not of the context
OUTSIDE = (-1, -1)
# where windows that do not have the answer say so: at the token before the question
NO_ANSWER = 0
# how columns of windows become those of a question; others are means
BY_QUESTION = {"deepest": "max", "step_counts": "sum"}


class QuestionAnswering(Task):
    """The span of a context that answers a question, read in windows."""

    tag = "question-answering"
    script = "training/run_qa.py"
    auto_class = "AutoModelForQuestionAnswering"
    model_kind, data_kind = "a model that answers questions by spans", "has questions and contexts"
    arguments = SpanArguments
    fields = (
        (QUESTION, "question_column", (QUESTION,), "the questions"),
        (CONTEXT, "context_column", (CONTEXT,), "the contexts"),
        (ANSWERS, "answer_column", (ANSWERS,), "the answers"),
    )
    needs_offsets, reads_pairs = True, True
    make_collator = SpanCollator
    text_flags = "--question_column and --context_column"
    scores = ("span_accuracy",)
    metric_name = "span_exact_match"
    as_trained = ("doc_stride", "max_answer_length", "version_2_with_negative", "null_score_diff_threshold")

    # ---- reading

    def example(self, row: Row, columns: Columns) -> Row:
        """A question, a context, and the `answers` within that: their texts and where these begin, in characters.

        Answers are as SQuAD has them, also written as JSON in a table of texts.
        """
        *texts, column = columns.texts
        example = super().example(row, Columns(dict(zip((QUESTION, CONTEXT), texts, strict=True))))
        answers = value_of(row, column)
        if isinstance(answers, str):
            answers = parse_json(answers, f"{column} is {answers!r:.60}, which")
        try:
            pairs = list(zip(answers[TEXT], answers[START], strict=True))
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(
                f"{column} is {answers!r:.60}: expected lists of the answers' texts and of their first characters in "
                'the context, such as {"text": ["Paris"], "answer_start": [17]}'
            ) from error
        for text, start in pairs:
            there = example[CONTEXT][start:] if type(start) is int and start >= 0 else ""
            if not isinstance(text, str) or not text.strip() or not there.startswith(text):
                raise ValueError(
                    f"{column} is an answer {text!r:.60} at {start!r:.60}, where the context has {there[:60]!r}: "
                    "expected the characters there"
                )
        return {**example, ANSWERS: {TEXT: list(answers[TEXT]), START: list(answers[START])}}

    def features(self, columns: Columns) -> Row:
        answers = {TEXT: List(Value("string")), START: List(Value("int64"))}
        return {**super().features(columns), ANSWERS: answers}

    # ---- encoding

    def encode(self, examples: Dataset, tokenizer: Any, place: str) -> Dataset:
        """Windows of contexts after their question: token ids, the ends of the first answer, `offsets` in the context.

        A window without the whole answer has the answer at its first token. `length` is that of question and context.

        Raises:
            ValueError: a question without an answer, where all should have one; a context without tokens; or a question
                that leaves it too little room.
        """
        lacking = sum(not answers[TEXT] for answers in examples[ANSWERS])
        if lacking and not self.data.version_2_with_negative:
            raise ValueError(
                f"{lacking:,} of {len(examples):,} questions of {place} have no answer: pass --version_2_with_negative "
                "if that is an answer, too, or leave them out"
            )
        limit, stride = self.data.max_seq_length, self.data.doc_stride
        require_room(limit, tokenizer, pair=True)

        def tokenize(batch: dict[str, list], numbers: list[int]) -> dict[str, list]:
            texts = batch[QUESTION], batch[CONTEXT]
            lengths = [len(ids) for ids in tokenizer(*texts, verbose=False)["input_ids"]]
            cut: Row = {}
            if limit is not None and max(lengths) > limit:
                require_windows(batch[QUESTION], lengths, limit, stride, tokenizer)
                cut = {"truncation": "only_second", "max_length": limit, "stride": stride}
            options = {"return_offsets_mapping": True, "return_overflowing_tokens": True, "verbose": False}
            windows = tokenizer(*texts, **options, **cut)
            offsets = [
                [pair if part == 1 else OUTSIDE for pair, part in zip(own, windows.sequence_ids(row), strict=True)]
                for row, own in enumerate(windows.pop("offset_mapping"))
            ]
            owners, whole = windows.pop("overflow_to_sample_mapping"), {**batch, NUMBER: numbers, LENGTH: lengths}
            columns = {name: [values[owner] for owner in owners] for name, values in whole.items()}
            require_tokens(columns[CONTEXT], (any(end > start for start, end in own) for own in offsets), place)
            ends = np.array(list(map(span_columns, offsets, columns[ANSWERS])))
            return {**columns, **windows, OFFSETS: offsets, **dict(zip(SpanCollator.ends, ends.T, strict=True))}

        options = {"batched": True, "with_indices": True, "remove_columns": examples.column_names}
        return examples.map(tokenize, **options, num_proc=self.data.num_proc, desc="encoding")

    # ---- training

    # Trainer calls it with logits (B, S) of both ends of a span
    @staticmethod
    def preprocess_logits(logits: tuple[torch.Tensor, ...], labels: Any) -> Any:
        """The likeliest columns of both ends (B, 2); other outputs stay."""
        first, last, *rest = logits
        ends = torch.stack([first.argmax(-1), last.argmax(-1)], dim=1)
        return (ends, *rest) if rest else ends

    def metrics(self, answers: np.ndarray, labels: tuple[np.ndarray, np.ndarray]) -> Scores:
        """`span_accuracy` and `no_answer_accuracy` of windows, of which a question may have several.

        The first is the share of the windows with the whole answer in which both its ends are predicted, the second
        that of the others in which no answer is predicted. Either is missing where there are no such windows.
        """
        true = np.stack(labels, axis=1)
        right, has_answer = (answers == true).all(1), true[:, 0] != NO_ANSWER
        shares = {"span_accuracy": right[has_answer], "no_answer_accuracy": right[~has_answer]}
        return {name: float(each.mean()) for name, each in shares.items() if len(each)}

    # ---- measuring

    def owners(self, split: Split) -> np.ndarray:
        """The question of each window (N,), from 0 to Q - 1."""
        return np.array(split.dataset[NUMBER][:])

    def questions(self, split: Split) -> Dataset:
        """A window of each question, which has its texts and difficulty."""
        return split.dataset.select(np.unique(self.owners(split), return_index=True)[1])

    def slices(self, split: Split) -> Row:
        return super().slices(replace(split, dataset=self.questions(split)))

    def measure(self, split: Split, model: Any, tokenizer: Any, batch_size: int, **options: Any) -> Measured:
        """What a model answers, and its table, whose `accuracy` is exact match, with `scores`.

        `label` is the first true answer as SQuAD compares answers, and `prediction` the same where the answer is any
        true one, or else the answer itself: they are equal just where it is an exact match.
        """
        progress = "reading questions" if options.pop("progress", False) else None
        run = {name: options.get(name) for name in ("max_depth", "halting_threshold")}
        config, longest, owners = model.config, self.data.max_answer_length, self.owners(split)
        depth = run["max_depth"] or config.num_hidden_layers

        def of_batch(numbered: tuple[int, Row]) -> tuple[dict[str, np.ndarray], dict, str | None]:
            """Answers of windows, and their halting and its unit."""
            first, batch = numbered[0] * batch_size, numbered[1]
            inputs = to_device({name: value for name, value in batch.items() if name not in SpanCollator.ends}, model)
            output = model(**inputs, output_halting=config.capabilities.halts, **run)
            offsets = split.dataset[first : first + len(batch["input_ids"])][OFFSETS]
            found = window_answers(output, offsets, longest)
            if not config.capabilities.halts:
                return found, {}, None
            return found, halting_columns(output, config, depth), unit_kind(output, config)

        found = each_batch(model, enumerate(split.batches(tokenizer, batch_size)), of_batch, progress=progress)
        windows, halting, units = zip(*found, strict=True)
        columns = self.question_answers(pd.DataFrame(join_batches(windows)), owners, self.questions(split))
        for name, values in join_batches(halting).items():
            of_questions = pd.DataFrame(values).groupby(owners).agg(BY_QUESTION.get(name, "mean")).to_numpy()
            columns[name] = of_questions if values.ndim > 1 else of_questions[:, 0]
        record = HaltingRecord.of_run(config, columns, split.slices, unit=units[0], **run)
        return record.examples, {**halting_table(record), "scores": {"f1": float(record.examples["f1"].mean())}}

    def question_answers(self, windows: pd.DataFrame, owners: np.ndarray, questions: Dataset) -> dict[str, np.ndarray]:
        """Columns (Q,) `label`, `prediction`, `answer`, `f1`, `confidence`, from the best window of each question."""
        of_questions, rules = windows.groupby(owners), self.data
        windows = windows.assign(null_score=of_questions["null_score"].transform("min"))
        best = windows.loc[of_questions["score"].idxmax()]
        answers = []
        for question, window in zip(questions, best.itertuples(), strict=True):
            lacks = rules.version_2_with_negative and (
                window.null_score - window.score > rules.null_score_diff_threshold
            )
            answer, true = "" if lacks else question[CONTEXT][window.begin : window.end], question[ANSWERS][TEXT]
            label = normalized(true[0]) if true else ""
            prediction = label if exact_match(answer, true) else normalized(answer)
            answers.append((label, prediction, answer, f1(answer, true), window.confidence))
        frame = pd.DataFrame(answers, columns=["label", "prediction", "answer", "f1", "confidence"])
        return {name: frame[name].to_numpy() for name in frame}

    def predictions(self, split: Split, examples: pd.DataFrame, model: Any, tokenizer: Any) -> Iterator[Row]:
        """The texts of each question, its true answers, the answer given, its `f1` and steps."""
        kept = [name for name in ("answer", "f1", "steps") if name in examples]
        for row, found in zip(self.questions(split), examples[kept].to_dict("records"), strict=True):
            texts = {name: row[name] for name in (QUESTION, CONTEXT, *split.slice_columns)}
            yield {**texts, ANSWERS: row[ANSWERS][TEXT], **found}

    # ---- for a card

    def card_example(self, split: Split, tokenizer: Any) -> Row:
        """The question, context and answer of the shortest one; of a long context what stands around the answer."""
        row = min(self.questions(split), key=lambda row: len(row[QUESTION]) + len(row[CONTEXT]))
        context, answers = row[CONTEXT], row[ANSWERS]
        place = next(iter(answers[START]), 0) if len(context) > EXAMPLE_CHARACTERS else 0
        shown = context[max(place - EXAMPLE_CHARACTERS // 2, 0) :][:EXAMPLE_CHARACTERS]
        return {"text": row[QUESTION], "text_pair": shown, "answer": next(iter(answers[TEXT]), None)}


def require_windows(questions: Sequence[str], lengths: Sequence[int], limit: int, stride: int, tokenizer: Any) -> None:
    """Raise a ValueError for a question after which a window has no room for more of its context than windows share."""
    around = tokenizer.num_special_tokens_to_add(pair=True)
    for question in (text for text, length in zip(questions, lengths, strict=True) if length > limit):
        room = limit - around - len(tokenizer(question, add_special_tokens=False, verbose=False)["input_ids"])
        if room <= stride:
            raise ValueError(
                f"max_seq_length is {limit} and doc_stride {stride}: the question {question!r:.60} leaves "
                f"{max(room, 0)} tokens of a window for its context: raise max_seq_length, or lower doc_stride"
            )


def span_columns(offsets: Sequence[tuple[int, int]], answers: Mapping[str, Sequence]) -> tuple[int, int]:
    """The columns of the first and the last token of the first answer; those of no answer where it is not all there.

    Args:
        offsets: the characters of the context that each token is of (S,), or `OUTSIDE`.
        answers: their texts and starts, as in SQuAD.
    """
    if not answers[TEXT]:
        return NO_ANSWER, NO_ANSWER
    first = answers[START][0]
    last = first + len(answers[TEXT][0].rstrip())
    inside = [column for column, (start, end) in enumerate(offsets) if start < last and end > first]
    of_context = [pair for pair in offsets if pair[1] >= 0]
    if not inside or of_context[0][0] > first or of_context[-1][1] < last:
        return NO_ANSWER, NO_ANSWER
    return inside[0], inside[-1]


def window_answers(output: Any, offsets: list[list], longest: int) -> dict[str, np.ndarray]:
    """Columns (B,) of windows: characters `begin` to `end` of the likeliest span, its `score` and `confidence`, and the
    `null_score` of no answer.

    Args:
        offsets: the characters of the context that each token of a window is of.
        longest: the most tokens of a span.
    """
    first, last = output.start_logits.float(), output.end_logits.float()
    begin, end = (padded([[pair[side] for pair in own] for own in offsets], -1).to(first.device) for side in (0, 1))
    score, *ends = best_spans(first.log_softmax(-1), last.log_softmax(-1), end > begin, longest)
    rows = torch.arange(len(first), device=first.device)
    return {
        "begin": begin[rows, ends[0]].cpu().numpy(),
        "end": end[rows, ends[1]].cpu().numpy(),
        "confidence": as_numpy(score.exp()),
        # as of windows of one question they are compared before the softmax
        "score": as_numpy(first[rows, ends[0]] + last[rows, ends[1]]),
        "null_score": as_numpy(first[:, NO_ANSWER] + last[:, NO_ANSWER]),
    }
