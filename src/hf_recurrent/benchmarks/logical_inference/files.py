r"""The authors' logic files `train0` ... `train12` and `test0` ... `test12`, with lines of

    label<TAB>sentence<TAB>sentence            <	( a ( and b ) )	a

Train and validation come from `train0` ... `train6`, one after the other: every tenth pair is a validation
pair. The test split of `original` is `test7` ... `test12`; the compositional configs divide `train0` ...
`train6` only. Every label is computed again, and a difference is an error.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..sampling import Shard, read_lines
from .configs import MOST_OPERATORS, PATTERNS, VALIDATION_EVERY, is_held_out
from .sentences import RELATIONS, make_row

_FORM = "label<TAB>sentence<TAB>sentence"


def plan(config_name: str, params: Mapping[str, Any], data_dir: Path) -> dict[str, list[Shard]]:
    """One shard per split; a split whose files are not all there is left out."""
    most = params["max_train_operators"]
    train = [data_dir / f"train{n}" for n in range(most + 1)]
    test = train if config_name in PATTERNS else [data_dir / f"test{n}" for n in range(most + 1, MOST_OPERATORS + 1)]
    files = {"train": train, "validation": train, "test": test}
    return {
        split: [Shard(0, "file", (config_name, split, tuple(str(path) for path in paths)))]
        for split, paths in files.items()
        if all(path.is_file() for path in paths)
    }


def paths(shard: Shard) -> tuple[str, ...]:
    """The files that a shard is read from."""
    return shard.payload[2]


def rows(shard: Shard) -> Iterator[dict[str, object]]:
    """The rows of the files that belong to the shard's split."""
    config_name, split, files = shard.payload
    compositional = config_name in PATTERNS
    seen = 0  # pairs that are for train or validation
    for path in files:
        for number, line in read_lines(path):
            fields = line.split("\t")
            if len(fields) != 3:
                raise ValueError(f"{path}:{number}: expected '{_FORM}', got {line[:80]!r}")
            if compositional and is_held_out(config_name, *fields[1:]) != (split == "test"):
                continue
            if split != "test":
                seen += 1
                if (seen % VALIDATION_EVERY == 0) != (split == "validation"):
                    continue
            yield _parse(*fields, place=f"{path}:{number}")


def _parse(label: str, text: str, text_pair: str, place: str) -> dict[str, object]:
    if label not in RELATIONS:
        raise ValueError(f"{place}: expected a label out of {' '.join(RELATIONS)} ('{_FORM}'), got {label[:80]!r}")
    try:
        row = make_row(text, text_pair)
    except ValueError as error:
        raise ValueError(f"{place}: expected two sentences: {error}") from error
    expected = RELATIONS[row["label"]]
    if label != expected:
        raise ValueError(f"{place}: expected the label {expected}, by truth tables, got {label}")
    return row
