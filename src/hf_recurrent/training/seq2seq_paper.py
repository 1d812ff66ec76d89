"""What "Sparse Universal Transformer" reports for a run that is as the paper's."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..benchmarks import benchmark_info
from ..hub.card import SplitResult
from ..hub.paper_results_sparse import SPARSE_UNIVERSAL_TABLES, SparseRow
from .arguments import DataArguments, ReportArguments
from .paper import SAME_DISTRIBUTION, within_tables
from .seq2seq_scores import text_form

# how a recipe says which row of the paper's tables it reproduces
TABLE_ROW = re.compile(r"Sparse Universal Transformer, Table (\d)\b.*\brow (.+)")
TEST = "test"


def paper_row(run: ReportArguments, data: DataArguments, config: Any, changes: Sequence[str]) -> SparseRow | None:
    """The row that a run reproduces: sizes are those that the paper tells, and nothing else was changed by flags.

    None where there is no such row, or the data are others than its.
    """
    named, rest = within_tables(run, changes)
    found = TABLE_ROW.search(named)
    row = None if found is None else SPARSE_UNIVERSAL_TABLES.get(int(found[1]), {}).get(found[2])
    limited = data.max_train_samples is not None or data.max_eval_samples is not None
    if row is None or rest or limited or data.benchmark != row.benchmark:
        return None
    # BLEU of plain texts is another measure than the paper's
    if row.bleu is not None and text_form(data) == "plain":
        return None
    defaults = benchmark_info(data.benchmark).parameters[data.benchmark_config]
    given = {name: value for name, value in data.benchmark_params.items() if name not in SAME_DISTRIBUTION}
    # the form of the authors' texts is not another distribution
    given.pop("text_form", None)
    same = {**defaults, **given} == dict(defaults)
    return row if same and all(getattr(config, name) == value for name, value in row.sizes.items()) else None


def pair_results(tables: Mapping[str, dict[str, Any]], row: SparseRow | None, config: str) -> list[SplitResult]:
    """Each split's table beside what the paper reports for the test split of a configuration."""
    results = []
    for name, table in tables.items():
        if row is None or name != TEST:
            results.append(SplitResult(name, table))
            continue
        mean, std = row.accuracy.get(config, (None, None))
        # slices are those of the configuration that is sliced in the paper, which has no single number there
        slices = {} if mean is not None else {column: dict(values) for column, values in row.slices.items()}
        results.append(SplitResult(name, table, mean, slices, paper_std=std, paper_bleu=row.bleu))
    return results
