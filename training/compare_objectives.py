"""Objectives side by side at equal optimiser steps: what a model of each learns about ListOps, and when it stops.

    OMP_NUM_THREADS=1 python training/compare_objectives.py --model_types gut --seeds 1
    python training/compare_objectives.py --report

Trains every model type, objective and seed that is asked for by the recipe `objectives`, one after another, and
evaluates each at full depth and by exit criteria. A run leaves one file, `<model type>-<objective>-<seed>.json` in
`results_dir`, and is not repeated where that exists; one that was stopped resumes from its last checkpoint. Seeds or
model types can so be shared out among processes. `--report` trains nothing: it renders `document`, which is
docs/objectives.md, from the files that are there.
"""

import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import HfArgumentParser

from hf_recurrent.analysis.evaluate import config_fields
from hf_recurrent.cli.console import quiet_libraries
from hf_recurrent.recipes import find_recipe
from hf_recurrent.tasks.checkpoints import Checkpoint, Request, evaluate_checkpoint, load_checkpoint
from hf_recurrent.training.recipes import read_mapping
from hf_recurrent.training.run import run as train_run
from hf_recurrent.utils import require_known, template, write_bytes, write_json

HERE = Path(__file__).parent
TEMPLATE = HERE / "objectives.md"
# fields of the config
FINAL = {"halting": "none", "depth_objective": "final"}
OBJECTIVES: dict[str, dict[str, Any]] = {
    "mixture": {"preset": "dynamic_halt"},
    "expected": {"preset": "dynamic_halt", "depth_objective": "expected"},
    "every_step": {"halting": "none", "depth_objective": "every_step"},
    "final": FINAL,
    "final_uniform": {**FINAL, "depth_sampling": "uniform", "depth_range": [3, 10]},
    "final_poisson": {**FINAL, "depth_sampling": "poisson_lognormal", "depth_range": [3, 20]},
}
# with the thresholds that the documentation names
CRITERIA = {"agreement": 1e-3, "confidence": 0.99, "convergence": 0.3}
BATCH_SIZE = 100


@dataclass
class Arguments:
    """Which runs, and where their files are."""

    model_types: list[str] = field(default_factory=lambda: ["gut", "ut"])
    objectives: list[str] = field(default_factory=lambda: list(OBJECTIVES))
    seeds: list[int] = field(default_factory=lambda: [1, 2, 3])
    recipe: str = "objectives"
    output_dir: Path = Path("runs/objectives")
    results_dir: Path = HERE.parent / "docs" / "objectives"
    document: Path = HERE.parent / "docs" / "objectives.md"
    report: bool = False

    def __post_init__(self) -> None:
        for name in self.objectives:
            require_known("objectives", name, list(OBJECTIVES))


def train(recipe: str, folder: Path, model_type: str, objective: str, seed: int) -> None:
    """Train one model into `folder`, or resume it; a finished one is left alone."""
    flags = {"model_type": model_type, "config": json.dumps(OBJECTIVES[objective]), "seed": seed, "output_dir": folder}
    train_run([recipe, *(f"--{name}={value}" for name, value in flags.items())])


def exits(config: Any) -> dict[str, dict[str, Any]]:
    """The ways to stop that a model is evaluated with, as fields of its config."""
    criteria = {name: {"exit_criterion": name, "exit_threshold": value} for name, value in CRITERIA.items()}
    full_depth = {"full depth": {"exit_criterion": "stability", "min_depth": config.num_hidden_layers}}
    learned = {} if config.halting == "none" else {"learned": {"exit_criterion": "learned"}}
    return {**full_depth, **learned, **criteria}


def evaluate(checkpoint: Checkpoint, request: Request, fields: dict[str, Any]) -> dict[str, Any]:
    """Accuracy and mean steps on the test split, overall and by depth, and Spearman of steps and depth."""
    with config_fields(checkpoint.model, **fields):
        table = evaluate_checkpoint(checkpoint, request, batch_size=BATCH_SIZE)["test"]
    by_depth = table["slices"]["depth"]
    return {
        **numbers(table),
        "spearman": by_depth["spearman"],
        "by_depth": [{"depth": row["low"], **numbers(row)} for row in by_depth["rows"]],
    }


def numbers(row: dict[str, Any]) -> dict[str, Any]:
    return {"n": row["n"], "accuracy": row["accuracy"], "mean_steps": row["steps"]["mean"]}


def run(arguments: Arguments, model_type: str, objective: str, seed: int) -> Path:
    """Train and evaluate one model -> the file of its results."""
    name = f"{model_type}-{objective}-{seed}"
    recipe, folder = read_mapping(find_recipe(arguments.recipe)), arguments.output_dir / name
    train(arguments.recipe, folder, model_type, objective, seed)
    checkpoint = load_checkpoint(folder, "cpu")
    request = Request(recipe["benchmark"], recipe["benchmark_config"], ("test",), recipe["benchmark_params"])
    results = {
        **{"model_type": model_type, "objective": objective, "seed": seed, "config": OBJECTIVES[objective]},
        "optimizer_steps": recipe["max_steps"],
        "exits": {
            name: evaluate(checkpoint, request, fields) for name, fields in exits(checkpoint.model.config).items()
        },
    }
    return write_json(arguments.results_dir / f"{name}.json", results)


def spread(values: Sequence[float | None], scale: float = 1.0, digits: int = 1, sign: str = "") -> str:
    """Mean ± standard deviation of some runs' numbers, or the mean alone of one run's; a dash where one has none."""
    if any(value is None for value in values):
        return "\u2013"
    scaled = [scale * value for value in values]
    mean = f"{statistics.mean(scaled):{sign}.{digits}f}"
    return f"{mean} ± {statistics.stdev(scaled):.{digits}f}" if len(scaled) > 1 else mean


def report_rows(results: Sequence[dict[str, Any]], model_type: str) -> Iterator[dict[str, Any]]:
    """A row for each objective and way to stop: percent of right answers, mean steps and Spearman over seeds."""
    for objective in OBJECTIVES:
        runs = [found for found in results if (found["model_type"], found["objective"]) == (model_type, objective)]
        for name in runs[0]["exits"] if runs else ():
            found = [each["exits"][name] for each in runs]
            by_depth = list(zip(*(each["by_depth"] for each in found), strict=True))
            yield {
                **{"objective": objective, "exit": name, "seeds": len(runs)},
                "accuracy": spread([each["accuracy"] for each in found], 100),
                "accuracies": [spread([row["accuracy"] for row in rows], 100) for rows in by_depth],
                "steps": [spread([row["mean_steps"] for row in rows]) for rows in by_depth],
                "spearman": spread([each["spearman"] for each in found], digits=2, sign="+"),
            }


def report(arguments: Arguments) -> Path:
    """Render the document from the files of results."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(arguments.results_dir.glob("*.json"))]
    model_types = sorted({found["model_type"] for found in results})
    tables = {name: list(report_rows(results, name)) for name in model_types}
    text = template(TEMPLATE).render(
        tables=tables, recipe=read_mapping(find_recipe(arguments.recipe)), criteria=CRITERIA
    )
    return write_bytes(arguments.document, text.encode())


def main() -> None:
    (arguments,) = HfArgumentParser(Arguments).parse_args_into_dataclasses()
    if arguments.report:
        print(report(arguments))
        return
    quiet_libraries()
    for seed in arguments.seeds:
        for model_type in arguments.model_types:
            for objective in arguments.objectives:
                done = arguments.results_dir / f"{model_type}-{objective}-{seed}.json"
                if not done.is_file():
                    run(arguments, model_type, objective, seed)
                print(f"{done.stem}: {done}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
