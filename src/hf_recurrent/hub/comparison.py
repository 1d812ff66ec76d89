"""Other models compared with that of a card, on the same examples: runs with other seeds, and baselines."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

from ..utils import Json
from .card import METRICS
from .results import RESULTS_FILE, read_results


def compared(results: Json, folders: Sequence[str | os.PathLike]) -> list[dict]:
    """The `compared` of results: finished runs on the same splits; runs of one title and size are runs of one model.

    Args:
        folders: output folders of runs.

    Raises:
        ValueError: a folder has no results, or results of other examples, or of a run that is compared already.
    """
    key, runs = METRICS[results["metric"]].key, [run_of(results)]
    models: dict[tuple, dict] = {}
    for folder in folders:
        other = read_results(folder)
        if other is None or other["training"] is None:
            raise ValueError(f"{folder} has no {RESULTS_FILE} of a run: give the output folder of a finished run")
        shared = [split for split in results["splits"] if split in other["splits"]]
        if not shared or examples_of(results, shared) != examples_of(other, shared):
            raise ValueError(f"{folder} was measured on other examples than this card: compare runs on the same ones")
        run = run_of(other)
        if run in runs:
            raise ValueError(f"{folder} holds the run {run}, which is compared already: leave it out")
        runs.append(run)
        title, parameters, _ = run
        model = {"name": title, "parameters": parameters, "values": {}, "same_model": run[:2] == runs[0][:2]}
        values = models.setdefault(run[:2], model)["values"]
        for split in shared:
            values.setdefault(split, []).append(other["splits"][split][key])
    return list(models.values())


def examples_of(results: Json, splits: Iterable[str]) -> list[Any]:
    """What the numbers of splits depend on beside the model: the metric, the data, and how many examples there are."""
    data = [results["data"][name] for name in ("name", "config", "version", "seed")]
    tables = (results["splits"][split] for split in splits)
    return [results["metric"], data, [table.get("n", table.get("tokens")) for table in tables]]


def run_of(results: Json) -> tuple[str, int, int]:
    """Title, parameters and seed."""
    return results["title"], results["model"]["parameters"], results["training"]["seed"]
