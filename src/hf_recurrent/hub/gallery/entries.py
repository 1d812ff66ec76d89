"""The checkpoints of a gallery, read from their cards."""

import os
import re
from pathlib import Path
from types import SimpleNamespace

from ...registry import ARCHITECTURES
from ..card import METRICS
from ..findings import MODERATE, adaptivity, best_fixed_depth, chosen, time_saved
from ..results import RESULTS_FILE, read_results, rendered

Entry = SimpleNamespace
# letters that need no escaping in a link, a heading or a repository's name
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def card_folders(root: str | os.PathLike) -> list[Path]:
    """The folders of `root` that hold results, by name.

    Raises:
        ValueError: `root` is no folder, or holds no such folder.
    """
    folders = sorted(path.parent for path in Path(root).glob(f"[!.]*/{RESULTS_FILE}"))
    if not folders:
        reason = f"holds no folder with a {RESULTS_FILE}" if Path(root).is_dir() else "is not a folder"
        raise ValueError(f"root={str(root)!r} {reason}: pass one that holds checkpoint folders")
    return folders


def read_entry(folder: Path) -> Entry:
    """The checkpoint in `folder`: its `folder`, `name`, `results`, `files` (those that results render to) and columns.

    Raises:
        ValueError: its results cannot be used; the message names the folder.
    """
    if not NAME.fullmatch(folder.name):
        raise ValueError(f"{folder.name}: use letters, digits, '.', '_' and '-' in the name of a checkpoint folder")
    try:
        results = read_results(folder)
        if results is None or not results["splits"]:
            raise ValueError("it has no results of a run")
        files = rendered(results)
    except (ValueError, OSError) as error:
        raise ValueError(f"{folder.name}/{RESULTS_FILE} cannot be used: {error}") from error
    return Entry(folder=folder, name=folder.name, results=results, files=files, **columns(folder.name, results))


def columns(name: str, results: dict) -> dict:
    """The columns of a checkpoint in tables of several; numbers of the whole checkpoint are those of the first split.

    Returns:
        Among others `metric`, the measure (where a card has BLEU, exact match, a share as that of the others);
        `of_documents`, whether it is a loss of documents; `task`, the benchmark with its config; `mean_steps` of an
        example, or a token of documents; `trend`, how steps follow difficulty over the tested splits, or on the first
        one (None: depth is fixed); `leading`, the figure of steps that visibly grow with difficulty; `saved`, see
        `findings.time_saved`; `against_fixed`, the time at the calibrated setting over that of the best fixed depth;
        and `rank`, which sorts those first that think longer on harder input, by how closely steps follow difficulty,
        then by name.
    """
    metric = METRICS["exact_match" if results["metric"] == "bleu" else results["metric"]]
    splits, found, calibration = results["splits"], adaptivity(results), results["calibration"]
    main_split, table = next(iter(splits.items()))
    steps = table["max_depth"] if table["fixed_depth"] else table.get("mean_steps") or table["steps"]["mean"]
    trend = next(iter(found["rows"]), None)
    follows = trend is not None and trend["direction"] == "grow" and trend["above"] is not False
    rival = best_fixed_depth(calibration) if chosen(results) else None
    figures = [figure for figure in results["figures"] if trend and figure["column"] == trend["column"]]
    drawn = {figure["kind"]: figure["path"] for figure in reversed(figures)}
    leading = drawn.get("calibrated_steps", drawn.get("difficulty"))
    return {
        "architecture": ARCHITECTURES[results["model"]["type"]].prefix,
        "task": f"{results['data']['name']} {results['data']['config']}",
        "metric": metric,
        "of_documents": metric.in_bits,
        "main_split": main_split,
        "main_table": table,
        "mean_steps": float(steps),
        "adaptivity": found,
        "trend": trend,
        "leading": leading if follows and trend["spearman"] >= MODERATE else None,
        "saved": time_saved(results),
        "against_fixed": rival and calibration["calibrated"]["relative_time"] / rival["relative_time"],
        "rank": (not follows, -trend["spearman"] if trend and follows else 0.0, name),
    }


def read_gallery(root: str | os.PathLike) -> list[Entry]:
    """The checkpoints in the folders of `root` that hold results, by name.

    Raises:
        ValueError: `root` holds none, or a folder's results cannot be used; the message names the folder.
    """
    return [read_entry(folder) for folder in card_folders(root)]
