"""Contexts with several endings, of which one is right: the task `multiple-choice`."""

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any

from datasets import Dataset, List, Value

from ..data.batches import ChoiceCollator, within
from ..data.reading import LENGTH, Columns, text_of
from ..metrics.functional import Row
from .arguments import ChoiceArguments
from .base import EXAMPLE_CHARACTERS, Split, Task, numbered, require_room, warn_of_cuts

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
    fields = ((CONTEXT, "context_column"), ("start", "start_column"), (CHOICES, "ending_columns"))
    label_names = ("label",)
    reads_pairs = True
    make_collator = ChoiceCollator
    metric_name = "choice_accuracy"
    text_flags = "--context_column and --ending_columns"
    shown = (CONTEXT, CHOICES)

    # ---- reading

    def inputs_of(self, found: Sequence[str], place: str) -> tuple[Row, dict[str, str]]:
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
        named = {"context_column": data.context_column or USUAL_CONTEXT}
        named |= {} if start is None else {"start_column": start}
        inputs: Row = {CONTEXT: named["context_column"], CHOICES: tuple(endings)}
        inputs |= {} if start is None else {"start": start}
        return inputs, named | numbered("ending_columns", endings)

    def example(self, row: Row, columns: Columns) -> Row:
        start = columns.inputs.get("start")
        before = "" if start is None else f"{text_of(row, start)} "
        choices = [before + text_of(row, ending) for ending in columns.inputs[CHOICES]]
        return {CONTEXT: text_of(row, columns.inputs[CONTEXT]), CHOICES: choices}

    def features(self, columns: Columns) -> Row:
        return {CONTEXT: Value("string"), CHOICES: List(Value("string"))}

    def declared_labels(self, columns: Columns) -> tuple[str, ...]:
        return tuple(map(str, range(len(columns.inputs[CHOICES]))))

    # ---- encoding

    def encode(self, examples: Dataset, tokenizer: Any, place: str) -> Dataset:
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
        warn_of_cuts(encoded[LENGTH][:], limit, "max_seq_length", f"questions of {place}")
        return encoded.rename_column("label", "labels")

    def card_example(self, split: Split, tokenizer: Any) -> Row:
        row = split.dataset[0]
        texts = {"text": row[CONTEXT], "text_pair": row[CHOICES][row["labels"]]}
        return {name: text[:EXAMPLE_CHARACTERS] for name, text in texts.items()}


def in_groups(values: Iterable[Any], counts: Sequence[int]) -> list[list[Any]]:
    """Values, one after another, as lists of so many."""
    rest = iter(values)
    return [list(islice(rest, count)) for count in counts]
