"""Whether a card tells the exit and the size that the other files of its folder have."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from ..analysis.tables import CALIBRATION_FILE
from ..files import read_json
from ..models.common.exit_calibration import PROBE
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
    told = card["num_parameters"] if "training" not in card else card["training"]["num_parameters"]
    if config is not None and "quantization_config" not in config:
        problems += size_problems(told, folder)
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
    sizes = {}
    try:
        for path in sorted(folder.glob(WEIGHTS)):
            with safe_open(path, "pt") as weights:
                names = weights.keys()
                sizes |= {name: math.prod(weights.get_slice(name).get_shape()) for name in names}
    except (OSError, SafetensorError):
        return []
    stored = sum(sizes.values())
    fitted = sum(size for name, size in sizes.items() if PROBE in name)
    if not sizes or told in (stored, stored - fitted):
        return []
    return [f"it tells of {told:,} parameters, and the weights have {stored:,}: both should be of the same run"]
