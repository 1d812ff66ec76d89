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
from ..hub.card import Benchmark, Paper, Picture, Plot, Routing, Training
from ..hub.findings import NO_DIFFICULTY, above_majority, steps_name, trends
from ..hub.tasks import task_for
from ..registry import ARCHITECTURES
from ..templating import percent
from .arguments import DataArguments, ReportArguments, RunArguments
from .evaluation import Evaluation
from .example import example_of
from .objectives import CLASSIFICATION, LANGUAGE_MODELLING, Objective, objective_of
from .paper import paper_claims, paper_results, split_results
from .selection import Selection, selection_words

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
NEURAL_DATA_ROUTER = Paper(
    title="The Neural Data Router: Adaptive Control Flow in Transformers Improves Systematic Generalization",
    url="https://arxiv.org/abs/2110.07732",
    bibtex="""@inproceedings{csordas2022neural,
  title = {The Neural Data Router: Adaptive Control Flow in Transformers Improves Systematic Generalization},
  author = {Csord{\\'a}s, R{\\'o}bert and Irie, Kazuki and Schmidhuber, J{\\"u}rgen},
  booktitle = {International Conference on Learning Representations},
  year = {2022}
}""",
)
BLOCK_RECURRENT = Paper(
    title="Block-Recurrent Transformers",
    url="https://arxiv.org/abs/2203.07852",
    bibtex="""@inproceedings{hutchins2022block,
  title = {Block-Recurrent Transformers},
  author = {Hutchins, DeLesley and Schlag, Imanol and Wu, Yuhuai and Dyer, Ethan and Neyshabur, Behnam},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2022}
}""",
)
SPARSE_UNIVERSAL = Paper(
    title="Sparse Universal Transformer",
    url="https://arxiv.org/abs/2310.07096",
    bibtex="""@inproceedings{tan2023sparse,
  title = {Sparse Universal Transformer},
  author = {Tan, Shawn and Shen, Yikang and Chen, Zhenfang and Courville, Aaron and Gan, Chuang},
  booktitle = {Conference on Empirical Methods in Natural Language Processing},
  year = {2023}
}""",
)
PAPERS = {paper.title: paper for paper in (DYNAMIC_HALT, NEURAL_DATA_ROUTER, BLOCK_RECURRENT, SPARSE_UNIVERSAL)}
# flags whose values are places on the machine of the run
PLACES = ("output_dir", "data_dir", "cache_dir", "resume_from_checkpoint", "logging_dir")
# without these there is nothing to run on
DATA = "data_dir"
# where the result goes says nothing of how it came about, and a token is nobody's business
PUBLISHING = ("push_to_hub", "hub_model_id", "hub_private_repo", "hub_revision", "hub_token", "hub_strategy")
LEFT_OUT = PLACES + PUBLISHING


@dataclass(frozen=True)
class RunFacts:
    """What a card says of the training: `wall_time` in seconds, `steps` optimiser steps, `processes` in parallel.

    `changes` are what flags made different from the recipe, as `changes_by_flags` tells it; `selection` is how the
    checkpoint was chosen; `trained_depth` the depth steps of training, if they are not those of the checkpoint;
    `averaged` the optimiser steps of the checkpoints that it is the mean of.
    """

    argv: Sequence[str]
    name: str
    hub_model_id: str | None
    seed: int
    wall_time: float
    steps: int
    processes: int
    device: torch.device
    changes: Sequence[str] = ()
    selection: Selection | None = None
    trained_depth: int | None = None
    averaged: Sequence[int] = ()


def recipe_name(argv: Sequence[str]) -> str | None:
    """A recipe's path from the repository's root, or its file name."""
    if not argv or argv[0].startswith("-"):
        return None
    parts = Path(argv[0]).parts
    return "/".join(parts[parts.index("training") :]) if "training" in parts else parts[-1]


def command(argv: Sequence[str], script: str = CLASSIFICATION.script) -> str:
    """The command that made the run, without folders of the machine it ran on; of data_dir its last part is told."""
    recipe = recipe_name(argv)
    words, rest = ["accelerate", "launch", script], list(argv)
    if recipe is not None:
        words.append(recipe)
        rest.pop(0)
    keep, given = True, False
    for word in rest:
        if word.startswith("--"):
            flag, equals, value = word.lstrip("-").partition("=")
            flag = flag.replace("-", "_")
            keep, given = flag not in LEFT_OUT or flag == DATA, flag == DATA
            if given and equals:
                word = f"--{DATA}={Path(value).name}"
        if keep:
            words.append(Path(word).name if Path(word).is_absolute() or (given and not word.startswith("--")) else word)
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


def claim(title: str, split: str, table: dict[str, Any], objective: Objective = CLASSIFICATION) -> str:
    """What the model does and how well, in one sentence."""
    right, n = percent(table["accuracy"]), f"{table['n']:,}"
    done = f"{right} of {n} examples of the `{split}` split right"
    if objective is LANGUAGE_MODELLING:
        done = f"the last read of {right} of {n} strings of the `{split}` split right"
    text = f"{title}: {done}, where the most frequent answer gives {percent(table['majority_baseline'])}"
    if table["fixed_depth"]:
        return f"{text}, in a fixed {table['max_steps']} depth steps."
    return f"{text}, in {table['steps']['mean']:.1f} of at most {table['max_steps']} depth steps on average."


def limitations(
    benchmark: str,
    tables: Mapping[str, dict[str, Any]],
    objective: Objective = CLASSIFICATION,
    config: str | None = None,
) -> list[str]:
    """What a reader must not expect, from the tables by split, the first of which is the claim's."""
    info = benchmark_info(benchmark, config)
    (split, table), *others = tables.items()
    kind = "synthetic benchmark" if info.synthetic else "benchmark"
    reads = "the vocabulary" if info.modality == "words" else info.modality
    lines = [f"It reads {reads} of the {kind} `{benchmark}` and nothing else."]
    if objective is LANGUAGE_MODELLING:
        lines.append("It was trained on the answers to reads alone: what it generates elsewhere means nothing.")
    lines.append("One run with one seed: no spread over seeds is known.")
    lost = [f"`{name}`" for name, found in tables.items() if not above_majority(found)]
    if lost:
        where = ", ".join(lost)
        lines.append(f"Within two standard errors, it is no better than the most frequent answer on {where}.")
    worst = min(others, key=lambda item: item[1]["accuracy"], default=None)
    if worst is not None and worst[1]["accuracy"] < table["accuracy"]:
        lines.append(
            f"Away from its training distribution it is weaker: {percent(worst[1]['accuracy'])} on `{worst[0]}`."
        )
    shrinking = [item["column"] for item in trends(table) if item["direction"] == "shrink"]
    shrinking = [column for column in shrinking if column not in NO_DIFFICULTY]
    if shrinking and not table["fixed_depth"]:
        lines.append(
            f"It does not think longer on harder input: on `{split}`, {steps_name(table)} shrink with "
            f"{', '.join(shrinking)}."
        )
    return lines


def history(facts: RunFacts, config: Any) -> list[str]:
    """What a reader must know of how the checkpoint came about to judge its numbers."""
    lines = [] if facts.selection is None else [selection_words(facts.selection, facts.averaged)]
    if facts.trained_depth is not None:
        lines.append(
            f"It was trained with {facts.trained_depth} depth steps and evaluated with {config.num_hidden_layers}, "
            "which it takes unless `max_steps` says otherwise."
        )
    return lines


def benchmark_facts(data: DataArguments, dataset_id: str | None) -> Benchmark:
    info = benchmark_info(data.benchmark, data.benchmark_config)
    parameters = {**info.parameters[data.benchmark_config], **data.benchmark_params}
    limits = {"max_train_samples": data.max_train_samples, "max_eval_samples": data.max_eval_samples}
    parameters |= {name: value for name, value in limits.items() if value is not None}
    if data.data_dir is not None:
        parameters = {**data.benchmark_params, "rows": "read from the files of data_dir"}
    return Benchmark(
        name=info.name,
        config=data.benchmark_config,
        version=info.version,
        seed=parameters.get("seed", 0),
        parameters={name: value for name, value in parameters.items() if name != "seed" and value is not None},
        dataset_id=dataset_id,
        description=info.description,
    )


def chunks_of(config: Any) -> dict[str, Any] | None:
    """How a model reads chunk by chunk or window by window, for its card; None if it reads at once."""
    if hasattr(config, "window_size"):
        names = ("window_size", *(("num_state_vectors",) if config.recurrent_layers else ()))
        return {name: getattr(config, name) for name in names}
    chunking = getattr(config, "chunking", None)
    if chunking is None:
        return None
    size = "num_chunks" if chunking == "count" else "chunk_size"
    return {name: getattr(config, name) for name in ("chunking", size, "num_memory_slots")}


def training_facts(model: Any, run: ReportArguments, facts: RunFacts, script: str) -> Training:
    paper_table, differences = paper_claims(run, facts.changes)
    return Training(
        command=command(facts.argv, script),
        recipe=recipe_name(facts.argv) or "flags",
        paper_table=paper_table,
        seed=facts.seed,
        wall_time=facts.wall_time,
        hardware=hardware(facts.processes, facts.device),
        num_parameters=model.num_parameters(),
        versions={"python": platform.python_version()}
        | {package: importlib.metadata.version(package) for package in PACKAGES},
        steps=facts.steps,
        differences_from_paper=differences,
    )


def card_data(model: Any, data: DataArguments, run: RunArguments, evaluation: Evaluation, facts: RunFacts) -> CardData:
    """Everything the card of this run says."""
    config, objective = model.config, objective_of(data.benchmark)
    info = benchmark_info(data.benchmark, data.benchmark_config)
    split, table = next(iter(evaluation.tables.items()))
    family = ARCHITECTURES[config.model_type]
    title = run.title or f"{family.prefix} on {data.benchmark}"
    paper = paper_results(run, data, config, facts.steps, evaluation.tables, facts.changes)
    return CardData(
        model_name=title,
        repo_id=facts.hub_model_id or facts.name,
        family=config.model_type,
        claim=claim(title, split, table, objective),
        notice=run.notice,
        task=task_for(objective.auto_class),
        metric="last_read_accuracy" if objective is LANGUAGE_MODELLING else "accuracy",
        max_steps=config.num_hidden_layers,
        halting=table["halting"],
        chunks=chunks_of(config),
        paper=PAPERS[family.paper],
        benchmark=benchmark_facts(data, run.dataset_id),
        training=training_facts(model, run, facts, objective.script),
        results=split_results(evaluation.tables, paper),
        example=example_of(evaluation.example, info, objective),
        limitations=[
            *limitations(data.benchmark, evaluation.tables, objective, data.benchmark_config),
            *history(facts, config),
        ],
        plots=[Plot(**plot, split=split) for plot in evaluation.plots],
        routing=[Routing(**example) for example in evaluation.routing],
        pictures=[Picture(**example) for example in evaluation.pictures],
        threshold_curve=evaluation.curve,
        threshold_rows=evaluation.curve_rows,
        date=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    )
