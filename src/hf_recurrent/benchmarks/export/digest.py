"""A hash of rows that depends on nothing but the rows."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def rows_digest(splits: Mapping[str, Iterable[Mapping[str, Any]]], label_names: Sequence[str]) -> str:
    """The sha256, in hexadecimal, of the rows of one config, whatever they are stored in.

    What is hashed are lines of JSON without spaces, non-ASCII characters escaped, each ended by a newline:
    `{"labels":[...]}` once, then for each split in alphabetical order `{"split":"..."}` and its rows in order.
    A row is an object with its columns in order.

    Args:
        splits: rows by split, such as a `DatasetDict` or what `load_dataset(..., streaming=True)` gives.
        label_names: the names of the labels 0, 1, ... (`features["label"].names`); none where there is no label.
    """
    content = hashlib.sha256(_line({"labels": list(label_names)}))
    for split in sorted(splits):
        content.update(_line({"split": split}))
        for row in splits[split]:
            content.update(_line(row))
    return content.hexdigest()


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
