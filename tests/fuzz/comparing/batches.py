"""Random sequences, and batches of them with padding anywhere.

Shapes: B rows, S columns, T columns of the target.
"""

import random
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch

from fuzz.comparing.cases import Case, Row

Padding = Literal["none", "right", "left", "both", "inside"]
NO_LABEL = -100
NUM_ROWS, MAX_LENGTH = (1, 2, 2, 3, 4, 7), 11


class Batch(NamedTuple):
    """Arguments of a forward call, and where in them the tokens of its rows are."""

    arguments: dict[str, torch.Tensor]
    numbers: tuple[int, ...]  # of its rows in the case
    columns: tuple[tuple[int, ...], ...]  # of each row's tokens
    target_columns: tuple[tuple[int, ...], ...] = ()

    def at(self, rows: Sequence[int]) -> "Batch":
        """The batch of these of its rows."""
        return Batch(
            {name: value[list(rows)] for name, value in self.arguments.items()},
            *(tuple(each[row] for row in rows) if each else () for each in self[1:]),
        )


def drawn_rows(case_head: str, config, rng: random.Random) -> tuple[Row, ...]:
    """Random sequences that a model of a config takes."""
    two_stacks, siamese = config.is_encoder_decoder, config.pair_encoding == "siamese"
    rows = []
    for _ in range(rng.choice(NUM_ROWS)):
        ids = drawn_ids(config, rng, shortest=2 if siamese else 1)
        target = drawn_ids(config, rng) if two_stacks else ()
        second = rng.randint(1, len(ids) - 1) if siamese else 0
        labelled = (True, *(rng.random() < 0.8 for _ in (target or ids)[1:]))
        rows.append(Row(ids, second, drawn_label(case_head, config, rng), labelled, target))
    return tuple(rows)


def drawn_ids(config, rng: random.Random, shortest: int = 1) -> tuple[int, ...]:
    return tuple(rng.randrange(config.vocab_size) for _ in range(rng.randint(shortest, MAX_LENGTH)))


def drawn_label(case_head: str, config, rng: random.Random) -> float | int | tuple[float, ...]:
    if case_head == "ForSequenceClassification" and config.problem_type == "multi_label_classification":
        return tuple(float(rng.random() < 0.5) for _ in range(config.num_labels))
    number = config.num_labels == 1
    return round(rng.random(), 3) if number else rng.randrange(config.num_labels)


def places(lengths: Sequence[int], padding: Padding, rng: random.Random) -> tuple[tuple[tuple[int, ...], ...], int]:
    """Columns of the tokens of each row, and the number of all columns; "none" for rows of one length."""
    width = max(lengths) + (rng.randint(0, 3) if padding != "none" else 0)
    columns = []
    for length in lengths:
        if padding == "inside":
            columns.append(tuple(sorted(rng.sample(range(width), length))))
            continue
        first = {"left": width - length, "both": rng.randint(0, width - length)}.get(padding, 0)
        columns.append(tuple(range(first, first + length)))
    return tuple(columns), width


class Table(NamedTuple):
    """Where the tokens of rows are."""

    columns: tuple[tuple[int, ...], ...]
    width: int

    def filled(self, rows: Sequence[Sequence[int]], filler: Callable[[], int]) -> torch.Tensor:
        """Values of the rows' tokens, and others elsewhere: (B, S)."""
        table = [[filler() for _ in range(self.width)] for _ in rows]
        for line, row, columns in zip(table, rows, self.columns, strict=True):
            for column, value in zip(columns, row, strict=True):
                line[column] = value
        return torch.tensor(table)

    def mask(self) -> torch.Tensor:
        return self.filled([[1] * len(columns) for columns in self.columns], lambda: 0)


def arranged(case: Case, config, numbers: Sequence[int], padding: Padding, rng: random.Random) -> Batch:
    """The rows with these numbers, with padding there and anything in it."""
    rows = [case.rows[number] for number in numbers]
    table = Table(*places([len(row.ids) for row in rows], padding, rng))

    def any_id() -> int:
        return rng.randrange(config.vocab_size)

    arguments = {"input_ids": table.filled([row.ids for row in rows], any_id)}
    if padding != "none" or rng.random() < 0.5:
        arguments["attention_mask"] = table.mask().to(rng.choice((torch.long, torch.bool)))
    if case.siamese:
        types = [[int(index >= row.second) for index in range(len(row.ids))] for row in rows]
        arguments["token_type_ids"] = table.filled(types, lambda: rng.randrange(2))
    if case.head == "ForSequenceClassification":
        arguments["labels"] = torch.tensor([row.label for row in rows])
    elif case.head == "ForCausalLM":
        arguments["labels"] = table.filled([labels_of(row, row.ids) for row in rows], any_id)
    if not case.two_stacks:
        return Batch(arguments, tuple(numbers), table.columns)
    side = "both" if padding == "inside" else padding
    targets = Table(*places([len(row.target) for row in rows], side, rng))
    arguments |= decoder_arguments(case, config, rows, targets, rng)
    return Batch(arguments, tuple(numbers), table.columns, targets.columns)


def labels_of(row: Row, ids: tuple[int, ...]) -> list[int]:
    return [token if labelled else NO_LABEL for token, labelled in zip(ids, row.labelled, strict=True)]


def decoder_arguments(
    case: Case, config, rows: Sequence[Row], targets: Table, rng: random.Random
) -> dict[str, torch.Tensor]:
    """Inputs and labels of a decoder; its model may also derive its inputs, and where they are, from full labels."""
    shifted = [(config.decoder_start_token_id, *row.target[:-1]) for row in rows]
    inputs = {
        "decoder_input_ids": targets.filled(shifted, lambda: rng.randrange(config.vocab_size)),
        "decoder_attention_mask": targets.mask(),
    }
    if case.head != "ForConditionalGeneration":
        return inputs
    labels = {"labels": targets.filled([labels_of(row, row.target) for row in rows], lambda: NO_LABEL)}
    derived = all(all(row.labelled) for row in rows) and rng.random() < 0.5
    return labels if derived else inputs | labels
