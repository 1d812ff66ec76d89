"""The authors' ListOps files.

`original` reads `train_d20s.tsv` and `test_d20s.tsv`, whichever exist, with lines of

    label<TAB>expression            9	( ( ( [MAX 2 ) 9 ) ] )

and `lra` reads `basic_train.tsv`, `basic_val.tsv` and `basic_test.tsv`, which start with a header line and
put the expression first. Every label is computed again, and a difference is an error.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..sampling import Shard, read_lines
from .expressions import make_row

# config -> split -> file
FILES = {
    "original": {"train": "train_d20s.tsv", "validation": "train_d20s.tsv", "test": "test_d20s.tsv"},
    "lra": {"train": "basic_train.tsv", "validation": "basic_val.tsv", "test": "basic_test.tsv"},
}
VALIDATION_ROWS = 1000
_HEADER = "Source\tTarget"


def plan(config_name: str, params: Mapping[str, Any], data_dir: Path) -> dict[str, list[Shard]]:
    """One shard per split whose file exists."""
    limit = params.get("max_train_length")
    return {
        split: [Shard(0, "file", (config_name, split, str(data_dir / name), limit))]
        for split, name in FILES[config_name].items()
        if (data_dir / name).is_file()
    }


def paths(shard: Shard) -> tuple[str, ...]:
    """The files that a shard is read from."""
    return (shard.payload[2],)


def rows(shard: Shard) -> Iterator[dict[str, object]]:
    """The rows of a file that belong to the shard's split."""
    config_name, split, path, limit = shard.payload
    swapped = config_name == "lra"
    in_train_file = config_name == "original" and split != "test"
    for number, line in read_lines(path):
        if swapped and number == 1:
            if line != _HEADER:
                raise ValueError(f"{path}:1: expected the header {_HEADER!r}, got {line[:80]!r}")
            continue
        if in_train_file and (number <= VALIDATION_ROWS) != (split == "validation"):
            continue
        row = _parse(line, swapped, f"{path}:{number}")
        if in_train_file and split == "train" and limit is not None and row["length"] > limit:
            continue
        yield row


def _parse(line: str, swapped: bool, place: str) -> dict[str, object]:
    form = "expression<TAB>label" if swapped else "label<TAB>expression"
    fields = line.split("\t")
    if len(fields) != 2:
        raise ValueError(f"{place}: expected '{form}', got {line[:80]!r}")
    expression, label = fields if swapped else reversed(fields)
    if label not in tuple("0123456789"):
        raise ValueError(f"{place}: expected a label from 0 to 9 ('{form}'), got {label[:80]!r}")
    tokens = [token for token in expression.split() if token not in ("(", ")")]
    try:
        row = make_row(tokens)
    except ValueError as error:
        raise ValueError(f"{place}: expected a ListOps expression: {error}") from error
    if row["label"] != int(label):
        raise ValueError(f"{place}: expected the label {row['label']}, the expression's value, got {label}")
    return row
