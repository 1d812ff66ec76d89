"""Runs that answer a user's own questions, by a span of a text or by one of several choices."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from ..analysis.halting import HaltingRecord
from ..files import write_bytes
from .data import EvaluationSplit, Splits
from .evaluation import write_predictions
from .question_arguments import CHOICE_ARGUMENT_TYPES, SPAN_ARGUMENT_TYPES
from .question_data import ANSWERS, CONTEXT, QUESTION, SpanSplit, load_choices, load_spans
from .question_evaluation import evaluate_choices, evaluate_spans
from .token_card import choice_example, span_example
from .token_run import OwnRun


class SpanRun(OwnRun):
    """A run that finds the answers to questions in texts."""

    argument_types = SPAN_ARGUMENT_TYPES
    measure = staticmethod(evaluate_spans)

    def load_tokenizer(self) -> Any:
        return self.require_fast(super().load_tokenizer())

    def load_splits(self) -> Splits:
        return load_spans(self.data_args, self.tokenizer)

    def compute_metrics(self) -> Callable[[Any], dict[str, float]]:
        return self.objective.compute_metrics

    def shown_example(self) -> dict[str, Any]:
        return span_example(self.splits.evaluation[0].questions)

    def write_predictions(self, record: HaltingRecord, split: SpanSplit) -> None:
        """One JSON line per question: its texts, true answers, the answer given, its `f1` and steps."""
        kept = [name for name in ("answer", "f1", "steps") if name in record.examples]
        lines = []
        for example, found in zip(split.questions, record.examples[kept].to_dict("records"), strict=True):
            texts = {name: example[name] for name in (QUESTION, CONTEXT, *split.slice_columns)}
            lines.append(json.dumps({**texts, ANSWERS: example[ANSWERS]["text"], **found}))
        path = self.folder / "predictions" / f"{split.name}.jsonl"
        write_bytes(path, ("\n".join(lines) + "\n").encode())


class ChoiceRun(OwnRun):
    """A run that chooses from several answers."""

    argument_types = CHOICE_ARGUMENT_TYPES
    measure = staticmethod(evaluate_choices)

    def load_splits(self) -> Splits:
        return load_choices(self.data_args, self.tokenizer)

    def compute_metrics(self) -> Callable[[Any], dict[str, float]]:
        return self.objective.compute_metrics

    def scores(self) -> Sequence[str]:
        return self.objective.scores

    def shown_example(self) -> dict[str, Any]:
        return choice_example(self.splits.evaluation[0].dataset)

    def write_predictions(self, record: HaltingRecord, split: EvaluationSplit) -> None:
        path = self.folder / "predictions" / f"{split.name}.jsonl"
        write_predictions(path, split, record, int)
