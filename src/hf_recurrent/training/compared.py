"""Finished runs over the same documents, for the card of another one."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from safetensors import safe_open

from ..analysis.tables import RECURRENCE_FILE
from ..hub.card import Compared
from .run_folder import digest, read_run

# settings that decide which documents a run is evaluated on, and as which tokens
SAME_DOCUMENTS = (
    *("benchmark_config", "benchmark_params", "tokenizer", "tokenizer_vocab_size", "segment_length"),
    "max_eval_samples",
)
# what a table counts, so that files that changed between two runs are noticed
COUNTS = ("documents", "tokens", "bytes")


def compared_runs(
    folders: Sequence[str], settings: dict[str, Any], tables: Mapping[str, dict[str, Any]], metric: str
) -> list[Compared]:
    """What finished runs came to on their test splits; runs of one title are runs of one model.

    Args:
        folders: of runs of `run_clm_accelerate.py`.
        settings: of the run they are compared with.
        tables: test split -> its `recurrence_table`, of that run.
        metric: key of the value in a `recurrence_table`.

    Raises:
        ValueError: a folder holds no finished run, this very one again, or one that read other documents.
    """
    models: dict[str, Compared] = {}
    for folder in map(Path, folders):
        run = read_run(folder)
        statistics = folder / RECURRENCE_FILE
        if run is None or not run["finished"] or not statistics.is_file():
            raise ValueError(
                f"compare_with: {folder} holds no finished run over documents: let it finish, then give the same "
                "command again"
            )
        for name in SAME_DOCUMENTS:
            theirs, ours = run["settings"].get(name), settings.get(name)
            if theirs != ours:
                raise ValueError(f"compare_with: {folder} has {name} {theirs!r}, this run {ours!r}: compare equals")
        if run["digest"] == digest(settings):
            raise ValueError(f"compare_with: {folder} holds this very run, with the same seed: leave it out")
        recipe = yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))
        title = recipe.get("title") or folder.name
        model = models.setdefault(
            title, Compared(title, num_parameters(folder), {}, same_model=title == settings.get("title"))
        )
        for split, table in json.loads(statistics.read_text(encoding="utf-8"))["splits"].items():
            counts = [{name: one.get(name) for name in COUNTS} for one in (table, tables.get(split, {}))]
            if counts[0] != counts[1]:
                raise ValueError(f"compare_with: {folder} read {counts[0]} as {split}, this run {counts[1]}")
            model.values.setdefault(split, []).append(table[metric])
    return list(models.values())


def num_parameters(folder: Path) -> int:
    """Of a checkpoint's weights; tied ones are stored once."""
    total = 0
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="np") as weights:
            names = weights.keys()
            total += sum(math.prod(weights.get_slice(name).get_shape()) for name in names)
    return total


def require_runs(folders: Sequence[str]) -> None:
    """Raise a ValueError for a folder where no run has begun."""
    for folder in map(Path, folders):
        if read_run(folder) is None:
            raise ValueError(f"compare_with: {folder} holds no run: give the output_dir of one")
