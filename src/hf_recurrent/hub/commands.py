"""Commands on a card, with which everybody measures its numbers again."""

import json
import shlex
from collections.abc import Iterator

from ..files import plain
from ..models.common.exit_criteria import FIXED, LEARNED
from .card_data import CardData
from .findings import measured_as_trained

LIMIT = "max_eval_samples"


def commands(data: CardData) -> dict[str, str | None]:
    """The commands by their names in the templates."""
    return {"evaluation_command": evaluation_command(data), "calibration_command": calibration_command(data)}


def evaluation_command(data: CardData) -> str | None:
    """The command that evaluates the checkpoint again on the test splits of its own configuration.

    None where it was evaluated on the authors' own files or a user's data, which not everybody has.
    """
    settings = benchmark_settings(data)
    if settings is None:
        return None
    arguments = ["hf-recurrent", "evaluate", data.repo_id, *settings]
    if data.of_documents:
        arguments += ["--segment-length", str(data.results[0].table["segment_length"])]
    if LIMIT in data.benchmark.parameters:
        arguments += ["--limit", str(data.benchmark.parameters[LIMIT])]
    threshold = data.results[0].table.get("threshold")
    if measured_as_trained(data.calibration, data.halting, threshold):
        # as it was trained, to the depth of that time
        learned = data.calibration["chosen"]["criterion"] == LEARNED
        arguments += ["--halting-threshold", str(threshold)] if learned else ["--exit-criterion", LEARNED]
        arguments += ["--max-depth", str(data.max_depth)]
    return shlex.join(arguments)


def calibration_command(data: CardData) -> str | None:
    """The command that chooses the card's exit again, into a copy of the checkpoint, which has its full depth.

    None without an exit, or where it was chosen on other examples than those of the card's benchmark, or on some that
    not everybody has; and for cards of earlier versions, which do not tell the criteria it was chosen from.
    """
    found, settings = data.calibration, benchmark_settings(data)
    if found is None or found["chosen"] is None or "tried" not in found or settings is None:
        return None
    if (found["benchmark"], found["benchmark_config"]) != (data.benchmark.name, data.benchmark.config):
        return None
    # pandas is slow to import, and only rendering a card needs it
    from ..analysis.calibration import ALL_TESTS, DIFFERS, MEAN_DEPTH

    tests = {split: row["n"] for split, row in found["tests"].items() if split != ALL_TESTS}
    arguments = ["hf-recurrent", "calibrate", data.repo_id, *settings, "--split", found["split"]]
    for split in tests:
        arguments += ["--test_split", split]
    for criterion in found["tried"]:
        arguments += ["--criterion", criterion]
    arguments += ["--limit", str(max(found["n"], *tests.values(), 0))]
    if found.get("seed"):
        arguments += ["--seed", str(found["seed"])]
    if found["budget"] is not None:
        measure = "depth" if found["budget"]["measure"] == MEAN_DEPTH else "time"
        arguments += ["--budget", f"{measure}={found['budget']['most']}"]
    else:
        arguments += ["--tolerance", str(found["tolerance"]), "--confidence", str(found["confidence"])]
    if found["risk"] == DIFFERS:
        arguments.append("--without_labels")
    # earlier versions chose from exits alone
    if found.get("only_exits", True):
        arguments.append("--only_exits")
    if found["chosen"]["criterion"] == FIXED:
        # the checkpoint takes fewer steps now
        arguments += ["--max_depth", str(found["max_depth"])]
    if found["difficulty"] is not None:
        arguments += ["--difficulty", found["difficulty"]]
    return shlex.join([*arguments, "--output", "calibrated"])


def benchmark_settings(data: CardData) -> list[str] | None:
    """The words of a command that name the benchmark and its settings; None if not everybody has its examples."""
    if data.benchmark.is_own:
        return None
    # all benchmarks are slow to import, and only rendering a card needs them
    from ..benchmarks import benchmark_info

    benchmark = data.benchmark
    defaults = benchmark_info(benchmark.name).parameters.get(benchmark.config, {})
    given = {**benchmark.parameters, "seed": benchmark.seed}
    if "rows" in given or not any(name in given for name in defaults if name != "seed"):
        return None
    changed = {
        name: plain(given[name])
        for name, default in defaults.items()
        if name in given and plain(given[name]) != plain(default)
    }
    return [benchmark.name, "--config", benchmark.config, *set_options(changed)]


def set_options(parameters: dict[str, object]) -> Iterator[str]:
    for name, value in parameters.items():
        yield from ("--set", f"{name}={json.dumps(value, separators=(',', ':'))}")
