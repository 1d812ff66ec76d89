"""Which row of a paper's table a run reproduces, and what that row says."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..benchmarks import benchmark_info
from ..hub.card import SplitResult
from ..hub.paper_results import (
    BLOCK_RECURRENT_PG19,
    BLOCK_RECURRENT_WIDTH,
    NEURAL_DATA_ROUTER_TABLES,
    PAPER_DATA,
    PAPER_STEPS,
    PAPER_WIDTH,
    TABLE_3,
    PaperResult,
    flip_flop_result,
    neural_data_router_results,
)
from .arena_paper import BENCHMARK as ARENA
from .arena_paper import TEST, arena_results
from .arguments import DataArguments, ReportArguments, RunArguments

if TYPE_CHECKING:
    from .document_arguments import DocumentArguments

# how a recipe says which row of the paper's table it reproduces, and how flip-flop names a test split
TABLE_ROW = re.compile(r"Table 3\b.*\brow (.+)")
FLIP_FLOP_SPLIT = re.compile(r"test_(\d+)_p(\d+)")
NEURAL_DATA_ROUTER_ROW = re.compile(r"Neural Data Router, Table (\d)\b.*\brow (.+)")
BLOCK_RECURRENT_ROW = re.compile(r"Block-Recurrent Transformers, Table (\d) \((PG19 \w+)\), row (.+)")
# of T5's vocabulary of 32,000, which its models of all sizes share
T5_TOKENIZERS = tuple(f"google-t5/t5-{size}" for size in ("small", "base", "large", "3b", "11b"))
# what of the data a recipe or flag may say without leaving the paper's: another draw of the same distribution
SAME_DISTRIBUTION = ("seed", "disjoint")


def within_tables(run: ReportArguments, changes: Sequence[str]) -> tuple[str, list[str]]:
    """The row that a run reproduces, given what flags changed, and the changes that no table of the paper has.

    A change with a row of its own (`paper_variants`) only counts where none before it has led to another row.
    """
    row, rest = run.paper_table, []
    for change in changes:
        name = change.rpartition(" (")[0]
        other = run.paper_variants.get(name)
        if name not in run.paper_variants or (other is not None and row != run.paper_table):
            rest.append(change)
        elif other is not None:
            row = other
    return row, rest


def paper_claims(run: ReportArguments, changes: Sequence[str]) -> tuple[str, list[str]]:
    """Which table a run reproduces and what differs from the paper: a recipe's words, and what flags changed of it."""
    row, rest = within_tables(run, changes)
    named = not row.startswith("none")
    if not rest or not (named or run.differences):
        return row, run.differences
    changed = f"changed by flags: {', '.join(rest)}"
    return f"{row}, but {changed}" if named else row, [*run.differences, changed]


def paper_results(
    run: RunArguments, data: DataArguments, config: Any, steps: int, splits: Iterable[str], changes: Sequence[str] = ()
) -> dict[str, PaperResult]:
    """The paper's results for those of `splits` that it has, where the run is as the paper's.

    The recipe names a row of a table, and width, training data and optimiser steps are the paper's. Otherwise none,
    as the numbers would not compare.
    """
    row, rest = within_tables(run, changes)
    if data.benchmark == ARENA:
        # its texts and images are read from files
        num_test = splits.get(TEST, {}).get("n") if isinstance(splits, Mapping) else None
        return {} if rest else arena_results(row, data, config, steps, splits, num_test)
    if data.data_dir is not None or data.max_train_samples is not None:
        return {}
    found = NEURAL_DATA_ROUTER_ROW.search(row)
    if found is not None:
        return {} if rest else router_results(int(found[1]), found[2], data, config, steps, splits)
    return flip_flop_results(run, data, config, steps, splits)


def flip_flop_results(
    run: RunArguments, data: DataArguments, config: Any, steps: int, splits: Iterable[str]
) -> dict[str, PaperResult]:
    found = TABLE_ROW.search(run.paper_table)
    if data.benchmark != "flip_flop" or found is None or found[1] not in TABLE_3:
        return {}
    parameters = {**benchmark_info(data.benchmark).parameters[data.benchmark_config], **data.benchmark_params}
    alike = all(parameters.get(name) == value for name, value in PAPER_DATA.items())
    if not (alike and steps >= PAPER_STEPS and config.hidden_size == PAPER_WIDTH):
        return {}
    splits = {name: FLIP_FLOP_SPLIT.fullmatch(name) for name in splits}
    results = {name: flip_flop_result(found[1], *map(int, match.groups())) for name, match in splits.items() if match}
    return {name: result for name, result in results.items() if result is not None}


def router_results(
    table: int, row: str, data: DataArguments, config: Any, steps: int, splits: Iterable[str]
) -> dict[str, PaperResult]:
    """Of a row of the Neural Data Router's tables: its own data, `test` being its IID column and `test_ood` the other.

    Its benchmark's default data are the paper's; softmax attention without gates was chosen and tested at other depths.
    """
    known = NEURAL_DATA_ROUTER_TABLES.get(table, {}).get(row)
    if known is None or data.benchmark != known.benchmark or config.hidden_size != known.width:
        return {}
    given = {name: value for name, value in data.benchmark_params.items() if name not in SAME_DISTRIBUTION}
    defaults = benchmark_info(data.benchmark).parameters[data.benchmark_config]
    if {**defaults, **given} != {**defaults, **known.data}:
        return {}
    results = neural_data_router_results(known, data.benchmark_config, steps)
    return {split: results[split] for split in splits if split in results}


def document_bits(
    run: ReportArguments, data: "DocumentArguments", config: Any, steps: int, rows: int, changes: Sequence[str] = ()
) -> float | None:
    """The paper's bits per token on the test split, where the run is as the paper's: whole PG19, and so many tokens.

    `rows` are those of an optimiser step, over all processes.
    """
    row, rest = within_tables(run, changes)
    found = BLOCK_RECURRENT_ROW.fullmatch(row)
    cell = None if found is None else BLOCK_RECURRENT_PG19.get((int(found[1]), found[2], found[3]))
    whole = data.benchmark_config == "pg19" and data.max_train_samples is None and data.max_eval_samples is None
    if cell is None or rest or not whole or data.data_dir is not None or data.benchmark_params:
        return None
    tokens = rows * data.segment_length
    as_theirs = steps >= cell.steps and tokens == cell.tokens and config.hidden_size == BLOCK_RECURRENT_WIDTH
    known = (None, "bytes") if found[2] == "PG19 bytes" else T5_TOKENIZERS
    return cell.bits_per_token if as_theirs and data.tokenizer in known else None


def split_results(tables: Mapping[str, dict[str, Any]], paper: Mapping[str, PaperResult]) -> list[SplitResult]:
    """Each split's table beside what the paper reports for it: a median with mean and deviation, or these alone."""
    results = []
    for name, table in tables.items():
        median, mean, std = paper.get(name, (None, None, None))
        if median is None:
            results.append(SplitResult(name, table, mean, paper_std=std))
        else:
            results.append(SplitResult(name, table, median, paper_mean=mean, paper_std=std))
    return results
