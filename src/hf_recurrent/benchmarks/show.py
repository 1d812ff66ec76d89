"""A few rows of a benchmark as text that a newcomer understands."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from .api import files_folder, resolve_params
from .parameters import resolve, unknown
from .registry import Family, get_family

# rows that are drawn per split to pick examples from
DRAWN = 64
SIZES = ("num_train", "num_validation", "num_test")
MAX_LINES = 40
FEWEST_LINES = 4


@dataclass(frozen=True)
class Description:
    """A row in words.

    `texts` are its text columns, `label` the name of its label (empty for a benchmark without labels), `answer` what
    the label says, or what else a model must find, `difficulty` its slice columns, `tree` its parse with the values
    of its parts; texts that people wrote have neither an answer nor a parse (both are empty), but `names`.
    """

    texts: dict[str, str]
    label: str
    answer: str
    difficulty: dict[str, int]
    tree: str
    names: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Example:
    """A row of a benchmark and the split it is from."""

    split: str
    row: dict[str, Any]


def parse_tree(name: str, row: Mapping[str, Any], max_lines: int = MAX_LINES, config_name: str | None = None) -> str:
    """The parse of a row as indented text of at most `max_lines` lines, with the value of every sub-expression.

    Deep levels of tall trees are left out; their parents say how many lines that are. Of pixels, it is the picture.
    Only the text columns of `row` are read, in any spelling that `normalize_expression` understands.

    Raises:
        ValueError: for an unknown benchmark, one without parses, a row without its text columns, malformed text, too
            few lines.
    """
    family = get_family(name, config_name)
    if family.trees is None:
        raise ValueError(f"benchmark {name!r} has no parses: its rows are no expressions")
    if isinstance(max_lines, bool) or not isinstance(max_lines, int) or max_lines < FEWEST_LINES:
        raise ValueError(f"max_lines={max_lines!r}: expected an integer >= {FEWEST_LINES}")
    return family.trees.tree(_texts(family, row), max_lines)


def describe_row(
    name: str, row: Mapping[str, Any], max_lines: int = MAX_LINES, config_name: str | None = None
) -> Description:
    """Everything about a row of the data set in words; `max_lines` is the height of its tree.

    `config_name` matters where columns differ by config; None: the default one.

    Raises:
        ValueError: as `parse_tree`, and for a row that lacks the label or a slice column of the benchmark.
    """
    family = get_family(name, config_name)
    info = family.info
    tree = "" if family.trees is None else parse_tree(name, row, max_lines, config_name)
    texts = _texts(family, row)
    columns = (*info.name_columns, *(["label"] if info.label_names else []), *info.slice_columns)
    missing = [column for column in columns if column not in row]
    if missing:
        raise ValueError(f"row={dict(row)!r}: expected the columns of a row of {name!r}, but not found: {missing}")
    return Description(
        texts=texts,
        label=_label(info.label_names, row["label"]) if info.label_names else "",
        answer="" if family.trees is None else family.trees.answer({**row, **texts}),
        difficulty={column: row[column] for column in info.slice_columns},
        tree=tree,
        names={column: row[column] for column in info.name_columns},
    )


def _label(names: Sequence[str], label: Any) -> str:
    if isinstance(label, bool) or not isinstance(label, int) or not 0 <= label < len(names):
        raise ValueError(f"label={label!r}: expected an integer from 0 to {len(names) - 1}")
    return names[label]


def _texts(family: Family, row: Mapping[str, Any]) -> dict[str, str]:
    columns = family.info.text_columns
    if not all(isinstance(row.get(column), str) for column in columns):
        raise ValueError(f"row={dict(row)!r}: expected text in {', '.join(columns)}")
    return {column: family.normalize(row[column]) for column in columns}


def examples(
    name: str, config_name: str | None = None, n: int = 3, /, data_dir: str | os.PathLike | None = None, **params: Any
) -> list[Example]:
    """`n` rows of a config, from its easiest to its hardest.

    They are picked from a small data set that is drawn for them alone (`DRAWN` rows per split; sizes in `params`
    say otherwise), and the whole one is not made. Its rows have the same distribution but are not the same rows.
    Of rows that are not generated but read, the first ones of each split are picked from.

    Args:
        n: how many; fewer come back where the small data set has fewer.
        data_dir: as for `load_benchmark`.
        **params: as for `load_benchmark`.

    Raises:
        ValueError: for a name, config, number or parameter that is not as it should be.
    """
    info = get_family(name).info
    config_name = info.default_config if config_name is None else config_name
    if config_name not in info.configs:
        raise unknown("config", config_name, info.configs, of=f" of benchmark {name!r}")
    family = get_family(name, config_name)
    info = family.info
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"n={n!r}: expected an integer >= 1")
    if data_dir is None and family.splits is not None:
        found = _drawn(family, config_name, params)
    else:
        found = _read(family, config_name, params, data_dir)
    found.sort(key=lambda example: [example.row[column] for column in info.slice_columns])
    if n >= len(found):
        return found
    last = len(found) - 1
    return [found[round(i * last / max(1, n - 1))] for i in range(n)] if n > 1 else [found[last // 2]]


def _drawn(family: Family, config_name: str, params: Mapping[str, Any]) -> list[Example]:
    defaults = family.info.parameters[config_name]
    sizes = {key: DRAWN for key in defaults if key in SIZES}
    context = f"benchmark {family.info.name!r}, config {config_name!r}"
    resolved = resolve(family.configs.PARAMETERS, defaults, {**sizes, **params}, context)
    plan = family.splits.plan(config_name, family.configs.complete(config_name, resolved))
    return [Example(split, row) for split, shards in plan.items() for shard in shards for row in family.rows(shard)]


def _read(
    family: Family, config_name: str, params: Mapping[str, Any], data_dir: str | os.PathLike | None
) -> list[Example]:
    resolved = resolve_params(family, config_name, params, from_files=data_dir is not None)
    plan = family.files.plan(config_name, resolved, files_folder(family, config_name, resolved, data_dir))
    rows = {split: chain.from_iterable(map(family.rows, shards)) for split, shards in plan.items()}
    return [Example(split, row) for split, own in rows.items() for row in islice(own, DRAWN)]
