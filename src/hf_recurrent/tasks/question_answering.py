"""Questions that are answered by spans of texts: `question-answering`.

Shapes: B windows of a batch, N of all, Q questions, S tokens of a window, L maximum depth steps.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import torch

from ..analysis.answers import as_numpy, best_spans, join_batches, to_device
from ..analysis.evaluate import each_batch
from ..analysis.halting import HaltingRecord, halting_columns, halting_table, unit_kind
from ..data.batches import SpanCollator
from ..data.columns import LENGTH, Columns, check_slices, require_columns, text_of, value_of
from ..files import parse_json
from ..metrics.answers import exact_match, f1, normalized
from .arguments import SpanArguments
from .base import EXAMPLE_CHARACTERS, Measured, Split, Task, require_room, require_tokens
from .metrics import with_ponder_metrics

if TYPE_CHECKING:
    from datasets import Dataset

QUESTION, CONTEXT, ANSWERS = "question", "context", "answers"
# keys of answers: their texts, and where these begin in the context
TEXT, START = "text", "answer_start"
# columns of windows: the characters of the context that each token is of, and the number of their question
OFFSETS, NUMBER = "offsets", "number"
# in the place of the characters of a token that is not of the context
OUTSIDE = (-1, -1)
# where windows that do not have the answer say so: at the token before the question
NO_ANSWER = 0


class QuestionAnswering(Task):
    """The span of a context that answers a question, read in windows."""

    tag = "question-answering"
    script = "training/run_qa.py"
    auto_class = "AutoModelForQuestionAnswering"
    model_kind, data_kind = "a model that answers questions by spans", "has questions and contexts"
    arguments = SpanArguments
    metric_name = "span_exact_match"
    has_labels, needs_offsets = False, True
    text_flags = "--question_column and --context_column"
    scores: ClassVar[Sequence[str]] = ("span_accuracy",)
    as_trained: ClassVar = (
        *("doc_stride", "max_answer_length", "version_2_with_negative", "null_score_diff_threshold"),
    )

    # ---- reading

    def columns(self, found: Sequence[str], place: str, needs_label: bool = True) -> Columns:
        data = self.data
        named = {
            "question_column": data.question_column or QUESTION,
            "context_column": data.context_column or CONTEXT,
            "answer_column": data.answer_column or ANSWERS,
        }
        require_columns(named, found, place)
        fields = dict(zip((QUESTION, CONTEXT, ANSWERS), named.values(), strict=True))
        return Columns(fields, None, check_slices(data.slice_by, found, place))

    def example(self, row: Mapping[str, Any], columns: Columns) -> dict[str, Any]:
        """A question, a context, and the `answers` within that: their texts and where these begin, in characters.

        Answers are as SQuAD has them, also written as JSON in a table of texts.
        """
        example = {name: text_of(row, columns.inputs[name]) for name in (QUESTION, CONTEXT)}
        column, context = columns.inputs[ANSWERS], example[CONTEXT]
        answers = value_of(row, column)
        if isinstance(answers, str):
            answers = parse_json(answers, f"{column} is {answers!r:.60}, which")
        lists = [answers.get(key) for key in (TEXT, START)] if isinstance(answers, Mapping) else [None]
        if not all(isinstance(values, list) for values in lists) or len(set(map(len, lists))) > 1:
            raise ValueError(
                f"{column} is {answers!r:.60}: expected lists of the answers' texts and of their first characters in "
                'the context, such as {"text": ["Paris"], "answer_start": [17]}'
            )
        for text, start in zip(*lists, strict=True):
            stands = isinstance(text, str) and text.strip() and type(start) is int and start >= 0
            if not stands or not context.startswith(text, start):
                raise ValueError(
                    f"{column} is an answer {text!r:.60} at {start!r:.60}, where the context has "
                    f"{context[start : start + 60] if type(start) is int else None!r}: expected the characters there"
                )
        return {**example, ANSWERS: dict(zip((TEXT, START), lists, strict=True))}

    def features(self, columns: Columns) -> dict[str, Any]:
        from datasets import List, Value

        text = Value("string")
        return {QUESTION: text, CONTEXT: text, ANSWERS: {TEXT: List(text), START: List(Value("int64"))}}

    def column_facts(self, columns: Columns) -> dict[str, Any]:
        question, context, answers = columns.texts
        return {"text_column": [question, context], "label_column": answers}

    # ---- encoding

    def encode(self, examples: "Dataset", tokenizer: Any, place: str, info: Any = None) -> "Dataset":
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
            ends = [span_columns(own, each[TEXT], each[START]) for own, each in zip(offsets, answers, strict=True)]
            repeated = {name: [values[owner] for owner in owners] for name, values in batch.items()}
            columns |= {OFFSETS: offsets, "start_positions": [end[0] for end in ends]}
            columns |= {"end_positions": [end[1] for end in ends], NUMBER: [numbers[owner] for owner in owners]}
            return {**repeated, **columns, LENGTH: [lengths[owner] for owner in owners]}

        options = {"batched": True, "with_indices": True, "remove_columns": examples.column_names}
        encoded = examples.map(tokenize, **options, num_proc=self.data.num_proc, desc="encoding")
        found = np.array([any(end > start for start, end in own) for own in encoded[OFFSETS]])
        require_tokens(encoded, found, CONTEXT, place)
        return encoded

    def collator(self, tokenizer: Any, examples: Any = None, seed: int = 0) -> SpanCollator:
        return SpanCollator(tokenizer)

    def pair_types(self, model: Any) -> bool:
        return model.config.get("pair_encoding", "joint") == "joint"

    # Trainer calls it with logits (B, S) of both ends of a span
    @staticmethod
    def span_ends(logits: tuple[torch.Tensor, ...], labels: tuple[torch.Tensor, ...]) -> Any:
        """The likeliest columns of both ends and the first token's (B, 3); other outputs stay."""
        first, last, *rest = logits
        # that of padding is the least number of a type that may have been half precision
        is_read = first > torch.finfo(torch.float16).min
        ends = torch.stack([first.argmax(-1), last.argmax(-1), is_read.int().argmax(-1)], dim=1)
        return (ends, *rest) if rest else ends

    preprocess_logits: ClassVar[Callable | None] = span_ends

    def compute_metrics(self, prediction: Any) -> dict[str, float]:
        """`span_accuracy` and `no_answer_accuracy` of windows, of which a question may have several.

        The first is the share of the windows with the whole answer in which both its ends are predicted, the second
        that of the others in which no answer is predicted. Either is missing where there are no such windows.
        """

        def scores(columns: np.ndarray, labels: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
            true = np.stack(labels, axis=1)
            right = (columns[:, :2] == true).all(1)
            has_answer = true[:, 0] != columns[:, 2]
            shares = {"span_accuracy": right[has_answer], "no_answer_accuracy": right[~has_answer]}
            return {name: float(each.mean()) for name, each in shares.items() if len(each)}

        return with_ponder_metrics(prediction, scores)

    # ---- measuring

    def owners(self, split: Split) -> np.ndarray:
        """The question of each window (N,), from 0 to Q - 1."""
        return np.unique(split.dataset[NUMBER][:], return_inverse=True)[1]

    def questions(self, split: Split) -> "Dataset":
        """A window of each question, which has its texts and difficulty."""
        return split.dataset.select(np.unique(self.owners(split), return_index=True)[1])

    def slices(self, split: Split) -> dict[str, Any]:
        questions = self.questions(split)
        return {name: questions[name][:] for name in split.slice_columns}

    def measure(self, split: Split, model: Any, tokenizer: Any, batch_size: int, **options: Any) -> Measured:
        """What a model answers, and its table, whose `accuracy` is exact match, with `scores`.

        `label` is the first true answer as SQuAD compares answers, and `prediction` the same where the answer is any
        true one, or else the answer itself: they are equal just where it is an exact match.
        """
        progress = options.pop("progress", False)
        run = {name: options.get(name) for name in ("max_depth", "halting_threshold")}
        config = model.config
        depth = run["max_depth"] or config.num_hidden_layers
        halts, longest = config.capabilities.halts, self.data.max_answer_length

        def of_batch(numbered: tuple[int, Mapping[str, Any]]) -> tuple[dict[str, np.ndarray], str | None]:
            first, batch = numbered[0] * batch_size, numbered[1]
            inputs = to_device({name: value for name, value in batch.items() if name not in SpanCollator.ends}, model)
            output = model(**inputs, output_halting=halts, **run)
            offsets = split.dataset[first : first + len(batch["input_ids"])][OFFSETS]
            found = window_answers(output, inputs["attention_mask"].bool(), offsets, longest)
            if not halts:
                return found, None
            return found | halting_columns(output, config, depth), unit_kind(output, config)

        batches = enumerate(split.batches(tokenizer, batch_size))
        found = each_batch(model, batches, of_batch, progress="reading questions" if progress else None)
        windows, unit, owners = join_batches(columns for columns, _ in found), found[0][1], self.owners(split)
        answers = self.question_answers(windows, owners, self.questions(split))
        halting = by_question(windows, owners) if halts else {}
        record = HaltingRecord.of_run(config, answers | halting, split.slices, unit=unit, **run)
        return record.examples, {**halting_table(record), "scores": {"f1": float(record.examples["f1"].mean())}}

    def question_answers(
        self, windows: Mapping[str, np.ndarray], owners: np.ndarray, questions: "Dataset"
    ) -> dict[str, np.ndarray]:
        """Columns (Q,) `label`, `prediction`, `answer`, `f1`, `confidence`, from the best window of each question."""
        # of each question the last one, which has the greatest score
        order = np.lexsort((windows["score"], owners))
        best = order[np.append(np.flatnonzero(np.diff(owners[order])), len(order) - 1)]
        null = np.full(len(best), np.inf)
        np.minimum.at(null, owners, windows["null_score"])
        rules = self.data
        empty = rules.version_2_with_negative & (null - windows["score"][best] > rules.null_score_diff_threshold)
        spans = zip(windows["begin"][best], windows["end"][best], empty, strict=True)
        true = [own[TEXT] for own in questions[ANSWERS]]
        answers = [
            "" if lacks else text[begin:end]
            for text, (begin, end, lacks) in zip(questions[CONTEXT], spans, strict=True)
        ]
        label = [normalized(own[0]) if own else "" for own in true]
        right = [exact_match(*pair) for pair in zip(answers, true, strict=True)]
        given = [
            own if matches else normalized(answer) for own, matches, answer in zip(label, right, answers, strict=True)
        ]
        return {
            "label": np.array(label, object),
            "prediction": np.array(given, object),
            "answer": np.array(answers, object),
            "f1": np.array([f1(*pair) for pair in zip(answers, true, strict=True)]),
            "confidence": windows["confidence"][best],
        }

    def predictions(self, split: Split, examples: pd.DataFrame, model: Any, tokenizer: Any) -> Iterator[dict[str, Any]]:
        """The texts of each question, its true answers, the answer given, its `f1` and steps."""
        kept = [name for name in ("answer", "f1", "steps") if name in examples]
        for row, found in zip(self.questions(split), examples[kept].to_dict("records"), strict=True):
            texts = {name: row[name] for name in (QUESTION, CONTEXT, *split.slice_columns)}
            yield {**texts, ANSWERS: row[ANSWERS][TEXT], **found}

    # ---- for a card

    def card_example(self, split: Split, tokenizer: Any) -> dict[str, Any]:
        """The question, context and answer of the shortest one; of a long context what stands around the answer."""
        questions = self.questions(split)
        sizes = [len(row[QUESTION]) + len(row[CONTEXT]) for row in questions]
        row = questions[sizes.index(min(sizes))]
        context, answers = row[CONTEXT], row[ANSWERS]
        place = answers[START][0] if answers[TEXT] else 0
        before = max(place - EXAMPLE_CHARACTERS // 2, 0) if len(context) > EXAMPLE_CHARACTERS else 0
        shown = context[before : before + EXAMPLE_CHARACTERS]
        return {"text": row[QUESTION], "text_pair": shown, "answer": next(iter(answers[TEXT]), None)}


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


def window_answers(output: Any, mask: torch.Tensor, offsets: list[list], longest: int) -> dict[str, np.ndarray]:
    """Columns (B,) of windows: characters `begin` to `end` of the likeliest span, its `score` and `confidence`, and the
    `null_score` of no answer.

    Args:
        mask: (B, S), of the inputs.
        offsets: the characters of the context that each token of a window is of.
        longest: the most tokens of a span.
    """
    characters = torch.full((*mask.shape, 2), -1, device=mask.device)
    characters[mask] = torch.tensor([pair for own in offsets for pair in own], device=mask.device)
    allowed = mask & (characters[..., 1] > characters[..., 0])
    ends = [logits.float().log_softmax(-1) for logits in (output.start_logits, output.end_logits)]
    score, start, end = best_spans(*ends, allowed, longest)
    rows = torch.arange(len(mask), device=mask.device)
    before = mask.long().argmax(1)
    logits = [each.float() for each in (output.start_logits, output.end_logits)]
    return {
        "begin": characters[rows, start, 0].cpu().numpy(),
        "end": characters[rows, end, 1].cpu().numpy(),
        "confidence": as_numpy(score.exp()),
        # as of windows of one question they are compared before the softmax
        "score": as_numpy(logits[0][rows, start] + logits[1][rows, end]),
        "null_score": as_numpy(logits[0][rows, before] + logits[1][rows, before]),
    }


def by_question(windows: Mapping[str, np.ndarray], owners: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of halting (N, ...) of windows as those of their questions (Q, ...)."""
    counts = np.bincount(owners)
    found: dict[str, np.ndarray] = {}
    for name in ("steps", "forced", "mass", "ponder_cost", "step_counts", "deepest"):
        values = windows[name]
        if name == "deepest":
            found[name] = np.zeros(len(counts), values.dtype)
            np.maximum.at(found[name], owners, values)
            continue
        found[name] = np.zeros((len(counts), *values.shape[1:]), values.dtype)
        np.add.at(found[name], owners, values)
        if name != "step_counts":
            found[name] = (found[name].T / counts).T
    return found
