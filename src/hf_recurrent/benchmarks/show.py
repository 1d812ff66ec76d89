"""A few examples of a benchmark as text that a newcomer understands."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from .api import files_folder
from .benchmark import Benchmark
from .parameters import SIZES
from .registry import get_benchmark

# examples that are drawn per split to pick examples from
DRAWN = 64
MAX_LINES = 40
FEWEST_LINES = 4


@dataclass(frozen=True)
class Description:
    """An example, described.

    `texts` are its text columns, `label` the name of its label (empty for a benchmark without labels), `answer` the
    meaning of the label, or what else a model must find, `difficulty` its slice columns, `tree` its parse with the
    values of its parts; texts that people wrote have neither an answer nor a parse (both are empty), but `names`.
    """

    texts: dict[str, str]
    label: str
    answer: str
    difficulty: dict[str, int]
    tree: str
    names: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Example:
    """The columns (`row`) of an example of a benchmark, and the split it is from."""

    split: str
    row: dict[str, Any]


def render_example(
    name: str, example: Mapping[str, Any], max_lines: int = MAX_LINES, config_name: str | None = None
) -> str:
    """The parse of an example as indented text of at most `max_lines` lines, with the value of every sub-expression.

    Deep levels of tall trees are left out; their parents have the number of such lines. Of pixels, it is the picture.
    Only the text columns of `example` are read, in any spelling that `normalize_expression` understands.

    Raises:
        ValueError: for an unknown benchmark, one without parses, an example without its text columns, malformed text,
            too few lines.
    """
    benchmark = get_benchmark(name, config_name)
    if not benchmark.info.parse_meaning:
        raise ValueError(f"benchmark {name!r} has no parses: its examples are no expressions")
    if max_lines < FEWEST_LINES:
        raise ValueError(f"max_lines={max_lines!r}: expected an integer >= {FEWEST_LINES}")
    return benchmark.render(_texts(benchmark, example), max_lines)


def describe_example(
    name: str, example: Mapping[str, Any], max_lines: int = MAX_LINES, config_name: str | None = None
) -> Description:
    """A description of an example of the data set; `max_lines` is the height of its tree.

    `config_name` matters where columns differ by config; None: the default one.

    Raises:
        ValueError: as `render_example`, and for an example that lacks the label or a slice column of the benchmark.
    """
    benchmark = get_benchmark(name, config_name)
    info = benchmark.info
    tree = render_example(name, example, max_lines, config_name) if info.parse_meaning else ""
    texts = _texts(benchmark, example)
    columns = (*info.name_columns, *(["label"] if info.label_names else []), *info.slice_columns)
    missing = [column for column in columns if column not in example]
    if missing:
        raise ValueError(
            f"example={dict(example)!r}: expected the columns of an example of {name!r}, but not found: {missing}"
        )
    return Description(
        texts=texts,
        label=info.label_names[example["label"]] if info.label_names else "",
        answer=benchmark.describe_answer({**example, **texts}),
        difficulty={column: example[column] for column in info.slice_columns},
        tree=tree,
        names={column: example[column] for column in info.name_columns},
    )


def _texts(benchmark: Benchmark, example: Mapping[str, Any]) -> dict[str, str]:
    columns = benchmark.info.text_columns
    if not all(isinstance(example.get(column), str) for column in columns):
        raise ValueError(f"example={dict(example)!r}: expected text in {', '.join(columns)}")
    return {column: benchmark.normalize(example[column]) for column in columns}


def examples(
    name: str, config_name: str | None = None, n: int = 3, /, data_dir: str | os.PathLike | None = None, **params: Any
) -> list[Example]:
    """`n` examples of a config, from its easiest to its hardest.

    They are picked from a small data set that is drawn for them alone (`DRAWN` per split; sizes in `params`
    take precedence), and the whole one is not made. Its examples have the same distribution but are not the same.
    Of examples that are not generated but read, the first ones of each split are picked from.

    Args:
        n: how many; fewer come back where the small data set has fewer.
        data_dir: as for `load_benchmark`.
        **params: as for `load_benchmark`.

    Raises:
        ValueError: for a name, config, number or parameter that is not as it should be.
    """
    config_name = config_name or get_benchmark(name).info.default_config
    benchmark = get_benchmark(name, config_name)
    if n < 1:
        raise ValueError(f"n={n!r}: expected an integer >= 1")
    drawn = data_dir is None and benchmark.generated
    if drawn:
        sizes = {name: DRAWN for name in benchmark.info.parameters[config_name] if name in SIZES}
        plan = benchmark.plan(config_name, benchmark.resolve(config_name, {**sizes, **params}))
    else:
        resolved = benchmark.resolve(config_name, params, from_files=data_dir is not None)
        plan = benchmark.plan_files(config_name, resolved, files_folder(benchmark, config_name, resolved, data_dir))
    found = [
        Example(split, row)
        for split, shards in plan.items()
        for row in islice(chain.from_iterable(shard.examples() for shard in shards), None if drawn else DRAWN)
    ]
    found.sort(key=lambda example: [example.row[column] for column in benchmark.info.slice_columns])
    if n >= len(found):
        return found
    last = len(found) - 1
    return [found[round(i * last / max(1, n - 1))] for i in range(n)] if n > 1 else [found[last // 2]]
