"""The card of a finished run, from its recipe and its evaluation."""

import datetime
import importlib.metadata
import platform
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..benchmarks import benchmark_info
from ..hub import CardData
from ..hub.card import Benchmark, Example, Paper, Plot, SplitResult, Training
from ..hub.trend import above_majority, trends
from ..registry import FAMILIES
from .arguments import DataArguments, RunArguments
from .evaluation import Evaluation

SCRIPT = "training/run_glue_style.py"
PACKAGES = ("hf-recurrent", "torch", "transformers", "accelerate", "datasets", "numpy")
DYNAMIC_HALT = Paper(
    title="Investigating Recurrent Transformers with Dynamic Halt",
    url="https://arxiv.org/abs/2402.00976",
    bibtex="""@article{raychowdhury2024investigating,
  title = {Investigating Recurrent Transformers with Dynamic Halt},
  author = {Ray Chowdhury, Jishnu and Caragea, Cornelia},
  journal = {arXiv preprint arXiv:2402.00976},
  year = {2024}
}""",
)
PAPERS = {DYNAMIC_HALT.title: DYNAMIC_HALT}
# flags whose values are places on the machine of the run
PLACES = ("output_dir", "data_dir", "cache_dir", "resume_from_checkpoint", "logging_dir")
# where the result goes says nothing of how it came about, and a token is nobody's business
PUBLISHING = ("push_to_hub", "hub_model_id", "hub_private_repo", "hub_revision", "hub_token", "hub_strategy")
LEFT_OUT = PLACES + PUBLISHING


@dataclass(frozen=True)
class RunFacts:
    """What a card says of the training: `wall_time` in seconds, `steps` optimiser steps, `processes` in parallel."""

    argv: Sequence[str]
    name: str
    hub_model_id: str | None
    seed: int
    wall_time: float
    steps: int
    processes: int
    device: torch.device


def recipe_name(argv: Sequence[str]) -> str | None:
    """A recipe's path from the repository's root, or its file name."""
    if not argv or argv[0].startswith("-"):
        return None
    parts = Path(argv[0]).parts
    return "/".join(parts[parts.index("training") :]) if "training" in parts else parts[-1]


def command(argv: Sequence[str]) -> str:
    """The command that made the run, without folders of the machine it ran on."""
    recipe = recipe_name(argv)
    words, rest = ["accelerate", "launch", SCRIPT], list(argv)
    if recipe is not None:
        words.append(recipe)
        rest.pop(0)
    keep = True
    for word in rest:
        if word.startswith("--"):
            keep = word.lstrip("-").replace("-", "_").partition("=")[0] not in LEFT_OUT
        if keep:
            words.append(Path(word).name if Path(word).is_absolute() else word)
    return shlex.join([*words, "--output_dir", "run"])


def recipe_of(settings: dict[str, Any]) -> dict[str, Any]:
    """The recipe of a run, without places on the machine it ran on and without where it was published."""
    return {name: value for name, value in settings.items() if name not in LEFT_OUT}


def hardware(processes: int, device: torch.device) -> str:
    if device.type == "cuda":
        return f"{processes} x {torch.cuda.get_device_name(device)}"
    cores = torch.get_num_threads()
    return f"CPU ({platform.machine()}), {processes} process{'es' if processes > 1 else ''} of {cores} thread" + (
        "s" if cores > 1 else ""
    )


def claim(title: str, split: str, table: dict[str, Any]) -> str:
    """What the model does and how well, in one sentence."""
    text = (
        f"{title}: {100 * table['accuracy']:.1f}% of {table['n']:,} examples of the `{split}` split right, where the "
        f"most frequent answer gives {100 * table['majority_baseline']:.1f}%"
    )
    if table["fixed_depth"]:
        return f"{text}, in a fixed {table['max_steps']} depth steps."
    return f"{text}, in {table['steps']['mean']:.1f} of at most {table['max_steps']} depth steps on average."


def limitations(benchmark: str, tables: Mapping[str, dict[str, Any]]) -> list[str]:
    """What a reader must not expect, from the tables by split, the first of which is the claim's."""
    (split, table), *others = tables.items()
    lines = [
        f"It reads the vocabulary of the synthetic benchmark `{benchmark}` and nothing else.",
        "One run with one seed: no spread over seeds is known.",
    ]
    lost = [f"`{name}`" for name, found in tables.items() if not above_majority(found)]
    if lost:
        where = ", ".join(lost)
        lines.append(f"Within two standard errors, it is no better than the most frequent answer on {where}.")
    worst = min(others, key=lambda item: item[1]["accuracy"], default=None)
    if worst is not None and worst[1]["accuracy"] < table["accuracy"]:
        lines.append(
            f"Away from its training distribution it is weaker: {100 * worst[1]['accuracy']:.1f}% on `{worst[0]}`."
        )
    shrinking = [item["column"] for item in trends(table) if item["direction"] == "shrink"]
    if shrinking and not table["fixed_depth"]:
        lines.append(
            f"It does not think longer on harder input: on `{split}`, steps shrink with {', '.join(shrinking)}."
        )
    return lines


def benchmark_facts(data: DataArguments, dataset_id: str | None) -> Benchmark:
    info = benchmark_info(data.benchmark)
    parameters = {**info.parameters[data.benchmark_config], **data.benchmark_params}
    limits = {"max_train_samples": data.max_train_samples, "max_eval_samples": data.max_eval_samples}
    parameters |= {name: value for name, value in limits.items() if value is not None}
    if data.data_dir is not None:
        parameters = {**data.benchmark_params, "rows": "the authors' own files"}
    return Benchmark(
        name=info.name,
        config=data.benchmark_config,
        version=info.version,
        seed=parameters.get("seed", 0),
        parameters={name: value for name, value in parameters.items() if name != "seed" and value is not None},
        dataset_id=dataset_id,
        description=info.description,
    )


def card_data(model: Any, data: DataArguments, run: RunArguments, evaluation: Evaluation, facts: RunFacts) -> CardData:
    """Everything the card of this run says."""
    config = model.config
    split, table = next(iter(evaluation.tables.items()))
    family = FAMILIES[config.model_type]
    title = run.title or f"{family.prefix} on {data.benchmark}"
    texts = [evaluation.example[name] for name in benchmark_info(data.benchmark).text_columns]
    return CardData(
        model_name=title,
        repo_id=facts.hub_model_id or facts.name,
        family=config.model_type,
        claim=claim(title, split, table),
        notice=run.notice,
        max_steps=config.num_hidden_layers,
        halting=table["halting"],
        paper=PAPERS[family.paper],
        benchmark=benchmark_facts(data, run.dataset_id),
        training=Training(
            command=command(facts.argv),
            recipe=recipe_name(facts.argv) or "flags",
            paper_table=run.paper_table,
            seed=facts.seed,
            wall_time=facts.wall_time,
            hardware=hardware(facts.processes, facts.device),
            num_parameters=model.num_parameters(),
            versions={"python": platform.python_version()}
            | {package: importlib.metadata.version(package) for package in PACKAGES},
            steps=facts.steps,
            differences_from_paper=run.differences,
        ),
        results=[SplitResult(name, result) for name, result in evaluation.tables.items()],
        example=Example(*texts),
        limitations=limitations(data.benchmark, evaluation.tables),
        plots=[Plot(**plot, split=split) for plot in evaluation.plots],
        threshold_curve=evaluation.curve,
        threshold_rows=evaluation.curve_rows,
        date=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    )
