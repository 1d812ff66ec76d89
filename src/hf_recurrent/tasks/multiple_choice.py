"""Contexts with several endings, of which one is right: the task `multiple-choice`."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..data.batches import ChoiceCollator, within
from ..data.columns import LENGTH, Columns, check_slices, has_column, require_columns, text_of
from ..data.labels import SINGLE
from ..files import plain
from .arguments import ChoiceArguments
from .base import EXAMPLE_CHARACTERS, Split, Task, require_room, warn_of_cuts
from .metrics import with_ponder_metrics

if TYPE_CHECKING:
    from datasets import Dataset

CONTEXT, CHOICES = "context", "choices"
# columns of SWAG: what comes before all endings, what begins each of them, and how the endings' names begin
USUAL_CONTEXT, USUAL_START, USUAL_ENDING = "sent1", "sent2", "ending"


class MultipleChoice(Task):
    """The choice among several endings of a context."""

    tag = "multiple-choice"
    script = "training/run_multiple_choice.py"
    auto_class = "AutoModelForMultipleChoice"
    model_kind, data_kind = "a multiple-choice model", "has answers to choose from"
    arguments = ChoiceArguments
    metric_name = "choice_accuracy"
    has_classes = False
    text_flags = "--context_column and --ending_columns"

    # ---- reading

    def columns(self, found: Sequence[str], place: str, needs_label: bool = True) -> Columns:
        data = self.data
        start, endings = data.start_column, list(data.ending_columns)
        if start is None and data.context_column is None and USUAL_START in found:
            start = USUAL_START
        if not endings:
            numbers = (name.removeprefix(USUAL_ENDING) for name in found if name.startswith(USUAL_ENDING))
            endings = [f"{USUAL_ENDING}{number}" for number in sorted(filter(str.isdecimal, numbers), key=int)]
        if len(endings) < 2:
            raise ValueError(
                f"{place} has the columns {', '.join(map(repr, found))}: name the two or more to choose from with "
                "--ending_columns"
            )
        label = data.label_column or "label"
        named = {"context_column": data.context_column or USUAL_CONTEXT}
        named |= {"label_column": label} if needs_label else {}
        named |= {} if start is None else {"start_column": start}
        named |= {f"ending_columns ({number})": name for number, name in enumerate(endings, 1)}
        require_columns(named, found, place)
        inputs: dict[str, Any] = {CONTEXT: named["context_column"], CHOICES: tuple(endings)}
        inputs |= {} if start is None else {"start": start}
        return Columns(inputs, label if has_column(found, label) else None, check_slices(data.slice_by, found, place))

    def example(self, row: Mapping[str, Any], columns: Columns) -> dict[str, Any]:
        start = columns.inputs.get("start")
        before = "" if start is None else f"{text_of(row, start)} "
        choices = [before + text_of(row, ending) for ending in columns.inputs[CHOICES]]
        return {CONTEXT: text_of(row, columns.inputs[CONTEXT]), CHOICES: choices}

    def features(self, columns: Columns) -> dict[str, Any]:
        from datasets import List, Value

        return {CONTEXT: Value("string"), CHOICES: List(Value("string"))}

    def declared_labels(self, columns: Columns) -> tuple[str, ...]:
        return tuple(map(str, range(len(columns.inputs[CHOICES]))))

    def column_facts(self, columns: Columns) -> dict[str, Any]:
        start = columns.inputs.get("start")
        texts = [columns.inputs[CONTEXT], *columns.inputs[CHOICES]]
        return {"text_column": texts, "label_column": columns.label, "start_column": start}

    def training_texts(self) -> Iterator[str]:
        for batch in self.source.splits["train"].select_columns([CONTEXT, CHOICES]).iter(1000):
            yield from batch[CONTEXT]
            yield from (" ".join(choices) for choices in batch[CHOICES])

    # ---- encoding

    def encode(self, examples: "Dataset", tokenizer: Any, place: str, info: Any = None) -> "Dataset":
        """Token ids of each choice after its context, and `labels`; `length` is that of the longest choice, uncut."""
        limit = self.data.max_seq_length
        require_room(limit, tokenizer, pair=True)

        def tokenize(batch: dict[str, list]) -> dict[str, list]:
            counts = [len(choices) for choices in batch[CHOICES]]
            contexts = [text for text, count in zip(batch[CONTEXT], counts, strict=True) for _ in range(count)]
            encoded, lengths = within(tokenizer, limit, contexts, list(chain(*batch[CHOICES])))
            by_question = {name: in_groups(values, counts) for name, values in encoded.items()}
            return {**by_question, LENGTH: list(map(max, in_groups(lengths, counts)))}

        encoded = examples.map(tokenize, batched=True, num_proc=self.data.num_proc, desc="encoding")
        warn_of_cuts(np.asarray(encoded[LENGTH][:]), limit, "max_seq_length", f"questions of {place}")
        return encoded.rename_column("label", "labels")

    def collator(self, tokenizer: Any, examples: Any = None, seed: int = 0) -> ChoiceCollator:
        return ChoiceCollator(tokenizer)

    def pair_types(self, model: Any) -> bool:
        return model.config.get("pair_encoding", "joint") == "joint"

    def config_fields(self) -> dict[str, Any]:
        names = self.labels.names
        labels = {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
        return {**labels, "problem_type": SINGLE}

    def compute_metrics(self, prediction: Any) -> dict[str, float]:
        return with_ponder_metrics(
            prediction, lambda logits, labels: {"accuracy": float((logits.argmax(-1) == labels).mean())}
        )

    # ---- measuring

    def predictions(self, split: Split, examples: pd.DataFrame, model: Any, tokenizer: Any) -> Iterator[dict[str, Any]]:
        texts = {name: split.dataset[name][:] for name in (CONTEXT, CHOICES, *split.slice_columns)}
        kept = [name for name in ("label", "prediction", "steps") if name in examples]
        for number, example in enumerate(examples[kept].to_dict("records")):
            yield {**{name: values[number] for name, values in texts.items()}, **plain(example)}

    # ---- for a card

    def card_example(self, split: Split, tokenizer: Any) -> dict[str, Any]:
        row = split.dataset[0]
        texts = (row[CONTEXT], row[CHOICES][row["labels"]])
        return dict(zip(("text", "text_pair"), (text[:EXAMPLE_CHARACTERS] for text in texts), strict=True))


def in_groups(values: Sequence[Any], counts: Sequence[int]) -> list[list[Any]]:
    """Values, one after another, as lists of so many."""
    rest = iter(values)
    return [[next(rest) for _ in range(count)] for count in counts]
