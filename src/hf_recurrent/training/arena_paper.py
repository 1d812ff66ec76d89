"""What "Investigating Recurrent Transformers with Dynamic Halt" reports of Long Range Arena for a run like its own."""

import re
from collections.abc import Collection
from typing import Any

from ..benchmarks import benchmark_info
from ..hub.paper_results import PaperResult
from ..hub.paper_results_lra import ROWS, TABLE_4, arena_cell, is_like_theirs
from .arguments import DataArguments

BENCHMARK, TEST = "lra", "test"
# how a recipe says which cell of the paper's table it reproduces
CELL = re.compile(r"Investigating Recurrent Transformers with Dynamic Halt, Table 4 \(LRA\), (\w+), row (\w+)")
# of the authors' test splits; that of Retrieval is as others report it
TEST_ROWS = {"ListOps": 2000, "Text": 25_000, "Retrieval": 17_437, "Image": 10_000, "Pathfinder": 20_000}
# another draw of the same distribution
SAME_DISTRIBUTION = ("seed",)


def arena_results(
    row: str, data: DataArguments, config: Any, steps: int, splits: Collection[str], num_test: int | None = None
) -> dict[str, PaperResult]:
    """The paper's accuracy on the test split, where the run is as the paper's.

    `row` names a cell of Table 4, and data, width and least optimiser steps are the paper's. Rows may be the authors'
    own, from `data_dir`: then the test split must have as many rows as theirs.
    """
    found = CELL.fullmatch(row)
    if found is None or data.benchmark != BENCHMARK or found[1] not in TABLE_4 or found[2] not in ROWS:
        return {}
    if not is_like_theirs(found[1], found[2], data.benchmark_config, config.hidden_size, steps):
        return {}
    if data.data_dir is not None and num_test is not None and num_test != TEST_ROWS[found[1]]:
        return {}
    limited = data.max_train_samples is not None or data.max_eval_samples is not None
    defaults = benchmark_info(BENCHMARK, data.benchmark_config).parameters[data.benchmark_config]
    given = {name: value for name, value in data.benchmark_params.items() if name not in SAME_DISTRIBUTION}
    if limited or TEST not in splits or {**defaults, **given} != dict(defaults):
        return {}
    return {TEST: arena_cell(found[1], found[2])}
