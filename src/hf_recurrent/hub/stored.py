"""Whether a card is of the weights and the exit that are stored beside it."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from safetensors import safe_open

from ..files import read_json
from ..models.common.exit_calibration import PROBE, tensors_digest
from ..models.common.exit_criteria import FIXED, LEARNED
from .findings import has_exit

REMEDY = "run `hf-recurrent calibrate` with --card, which measures and shows what is stored"


def contradictions(folder: Path, card: Mapping[str, Any]) -> Iterator[str]:
    """What a card's data say otherwise than the config and the weights beside it, if they are there.

    Args:
        card: content of `card.json` or `converted.json`, of which a card can be rendered.
    """
    if not (folder / "config.json").is_file():
        return
    config, calibration = read_json(folder / "config.json"), card.get("calibration")
    record, shown = config.get("exit_calibration"), None
    stored = None if record is None or record.get("criterion") == FIXED else exit_of(config)
    if has_exit(calibration):
        chosen = calibration["chosen"]
        learned = chosen["criterion"] == LEARNED
        shown = (chosen["criterion"], chosen["threshold"], None if learned else chosen["patience"])
    if stored != shown:
        yield f"its calibrated exit is {shown}, that of config.json {stored}: {REMEDY}"
    measured = card.get("training", {}).get("weights")
    if measured is not None and stored_digest(folder) not in (None, measured):
        yield (
            "its results are of other weights than those beside it, which are of another run, were trained further or "
            f"were cast: put back the weights that were measured or, where there are exits, {REMEDY}"
        )


def exit_of(config: Mapping[str, Any]) -> tuple[str, float, int | None]:
    """Criterion, threshold and patience by which a model stops."""
    criterion = config.get("exit_criterion") or LEARNED
    if criterion == LEARNED:
        return criterion, config["halting_threshold"], None
    return criterion, config["exit_threshold"], config["exit_patience"]


def stored_digest(folder: str | os.PathLike) -> str | None:
    """`tensors_digest` of the weights in a folder without a fitted probe; None if there are none."""
    with ExitStack() as stack:
        parts = [stack.enter_context(safe_open(path, "pt")) for path in sorted(Path(folder).glob("model*.safetensors"))]
        weights = {name: part for part in parts for name in part.keys() if PROBE not in name}  # noqa: SIM118
        return tensors_digest((name, weights[name].get_tensor(name)) for name in sorted(weights)) if weights else None
