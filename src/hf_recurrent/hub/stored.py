"""Whether a card tells the exit, the weights and the results that the other files of its folder have."""

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from ..analysis.tables import CALIBRATION_FILE, HALTING_FILE, RECURRENCE_FILE
from ..files import read_json
from ..models.common.exit_calibration import PROBE, tensors_digest
from ..models.common.exit_criteria import CRITERIA, LEARNED
from .findings import has_exit

CONFIG_FILE, WEIGHTS = "config.json", "model*.safetensors"
# config fields that decide when a model stops, where they are left out
DEFAULTS = {"exit_criterion": LEARNED, "min_steps": 1}


def contradictions(folder: Path, card: Mapping[str, Any]) -> list[str]:
    """What a card's data tell otherwise than the config, the calibration and the weights beside it, if they are there.

    Args:
        card: content of `card.json` or `converted.json`, of which a card can be rendered.
    """
    problems = []
    config, calibration = (parsed(folder / name) for name in (CONFIG_FILE, CALIBRATION_FILE))
    if config is not None:
        problems += exit_problems(card, config)
    told = card.get("calibration")
    if calibration is not None and not problems and (told or {}).get("chosen") != calibration.get("chosen"):
        problems.append(f"it does not tell the exit of {CALIBRATION_FILE}: {REMEDY}")
    training = card.get("training", {})
    if config is not None and "quantization_config" not in config:
        told = training.get("num_parameters", card.get("num_parameters"))
        problems += size_problems(told, folder) or weights_problems(training.get("weights"), folder)
    for name in (HALTING_FILE, RECURRENCE_FILE):
        problems += table_problems(card, folder / name)
    return problems


REMEDY = "run `hf-recurrent calibrate` with --card, which measures and shows what is stored"


def parsed(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None of another one, which loading refuses."""
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def exit_problems(card: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """Whether a model stops otherwise than its card tells."""
    told, stored = card.get("calibration"), config.get("exit_calibration")
    if has_exit(told) and stored is None:
        return [
            f"it tells of a calibrated exit, and {CONFIG_FILE} has none: the weights or the exit were changed since; "
            f"{REMEDY}"
        ]
    if not has_exit(told) and stored is not None:
        return [f"it does not tell the calibrated exit of {CONFIG_FILE}: {REMEDY}"]
    wrong = []
    for name, value in exit_fields(card).items():
        found = DEFAULTS.get(name) if config.get(name) is None else config[name]
        if found != value:
            wrong.append(f"{name}={found!r} instead of {value!r}")
    return [f"{CONFIG_FILE} stops otherwise than it tells, by {', '.join(wrong)}: {REMEDY}"] if wrong else []


def exit_fields(card: Mapping[str, Any]) -> dict[str, Any]:
    """Config fields of a model that stops as its card tells, those of them that it tells."""
    calibration = card.get("calibration")
    if has_exit(calibration):
        chosen = calibration["chosen"]
        fields = {"num_hidden_layers": calibration["max_steps"], "min_steps": chosen["min_steps"]}
        if chosen["criterion"] == LEARNED:
            return fields | {"exit_criterion": LEARNED, "halting_threshold": chosen["threshold"]}
        settings = {f"exit_{name}": chosen[name] for name in ("criterion", "threshold", "patience")}
        return fields | settings
    if "halting" not in card:
        return {}
    return {"exit_criterion": card["halting"] if card["halting"] in CRITERIA else LEARNED}


def size_problems(told: int, folder: Path) -> list[str]:
    """Whether the weights of a folder have another number of parameters than its card tells."""
    try:
        with stored_weights(folder) as weights:
            sizes = {name: math.prod(part.get_slice(name).get_shape()) for name, part in weights.items()}
    except (OSError, SafetensorError):
        return []
    stored = sum(sizes.values())
    fitted = sum(size for name, size in sizes.items() if PROBE in name)
    if not sizes or told in (stored, stored - fitted):
        return []
    return [f"it tells of {told:,} parameters, and the weights have {stored:,}: both should be of the same run"]


def weights_problems(told: str | None, folder: Path) -> list[str]:
    """Whether the weights of a folder are others than those by whose digest, if it is `told`, results were measured."""
    try:
        stored = None if told is None else stored_digest(folder)
    except (OSError, SafetensorError):
        return []
    if stored in (None, told):
        return []
    return [
        "its results are of other weights than those beside it, which are of another run, were trained further or were "
        f"cast: put back the weights that were measured or, where there are exits, {REMEDY}"
    ]


def stored_digest(folder: str | os.PathLike) -> str | None:
    """`tensors_digest` of the weights in a folder but for a fitted probe; None if there are none."""
    with stored_weights(Path(folder)) as weights:
        names = sorted(name for name in weights if PROBE not in name)
        return tensors_digest((name, weights[name].get_tensor(name)) for name in names) if names else None


@contextmanager
def stored_weights(folder: Path) -> Iterator[dict[str, Any]]:
    """Name of each weight in a folder -> the open file that has it."""
    with ExitStack() as stack:
        parts = [stack.enter_context(safe_open(path, "pt")) for path in sorted(folder.glob(WEIGHTS))]
        yield {name: part for part in parts for name in part.keys()}  # noqa: SIM118 (a file is no mapping)


def table_problems(card: Mapping[str, Any], path: Path) -> list[str]:
    """Whether a file of statistics has other results of a card's splits than the card."""
    splits = (parsed(path) or {}).get("splits")
    if not isinstance(splits, dict):
        return []
    told = {result["split"]: result["table"] for result in card.get("results", [])}
    wrong = [split for split, table in told.items() if splits.get(split, table) != table]
    if not wrong:
        return []
    return [f"{path.name} has other results of {', '.join(wrong)}: both should be of the same run"]
