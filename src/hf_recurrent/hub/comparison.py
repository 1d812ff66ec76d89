"""Other models compared with that of a card, on the same examples: runs with other seeds, and baselines."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from .results import RESULTS_FILE, read_results
from .tasks import METRICS


def compared(results: Mapping[str, Any], folders: Sequence[str | os.PathLike]) -> list[dict[str, Any]]:
    """The `compared` of results: finished runs on the same splits; runs of one title and size are runs of one model.

    Args:
        folders: output folders of runs.

    Raises:
        ValueError: a folder has no results, or results of other examples, or of a run that is compared already.
    """
    models: dict[tuple, dict[str, Any]] = {}
    seen = [run_of(results)]
    for folder in folders:
        other = finished(folder)
        ours, theirs = measured(results), measured(other)
        shared = [split for split in ours if split in theirs]
        same = all(results["data"][name] == other["data"][name] for name in ("name", "config", "version", "seed"))
        same = same and results["metric"] == other["metric"]
        if not (shared and same and all(ours[split][0] == theirs[split][0] for split in shared)):
            raise ValueError(f"{folder} was measured on other examples than this card: compare runs on the same ones")
        if run_of(other) in seen:
            raise ValueError(f"{folder} holds the run {run_of(other)}, which is compared already: leave it out")
        seen.append(run_of(other))
        title, parameters, _ = run_of(other)
        fresh = {"name": title, "parameters": parameters, "values": {}, "same_model": run_of(other)[:2] == seen[0][:2]}
        values = models.setdefault((title, parameters), fresh)["values"]
        for split in shared:
            values.setdefault(split, []).append(theirs[split][1])
    return list(models.values())


def finished(folder: str | os.PathLike) -> dict[str, Any]:
    """The results of a finished run; a ValueError where there are none."""
    found = read_results(folder)
    if found is None or found["training"] is None:
        raise ValueError(f"{folder} has no {RESULTS_FILE} of a run: give the output folder of a finished run")
    return found


def run_of(results: Mapping[str, Any]) -> tuple[str, int, int]:
    """Title, parameters and seed."""
    return results["title"], results["model"]["parameters"], results["training"]["seed"]


def measured(results: Mapping[str, Any]) -> dict[str, tuple[int, float]]:
    """Split -> how many examples or tokens it has, and the value of the metric."""
    key = METRICS[results["metric"]].key
    return {split: (table.get("n", table.get("tokens")), table[key]) for split, table in results["splits"].items()}
