"""`hf-recurrent train`."""

from pathlib import Path
from typing import Annotated

import typer

from ..benchmarks.registry import list_benchmarks
from ..data.reading import Reading, csv_table, format_of, is_folder, require_columns
from ..recipes import flags_of, no_recipe, recipe_files, recipe_path
from ..registry import ARCHITECTURES
from ..tasks import TASKS
from ..utils import require_known
from .console import interruptible, out
from .options import a_file, a_place

# words that ask for help
HELP, HELP_ALL = {"-h", "--help"}, {"--help_all", "--help-all"}
# the flags that are asked for most, by what they are about; how the rest of a command line is read, training decides
FLAGS = {
    "model": {
        "model_type": "architecture of a new model: gut, ut, sut, ...",
        "model_name_or_path": "checkpoint to fine-tune instead",
        "config": "fields of the model's config: '{hidden_size: 128, halting: none}'",
    },
    "data": {
        "benchmark": "a benchmark (`hf-recurrent benchmark list`), unless you have data of your own",
        "benchmark_config": "its configuration",
        "benchmark_params": "parameters of that: '{max_depth: 4}'",
        "data_dir": "the authors' own files",
        "max_train_samples": "train on so many random examples only",
        "max_eval_samples": "evaluate so many of each split only",
    },
    "your own data": {
        "train_file": "CSV, TSV, JSON(L), Parquet, text, or a folder of texts for each label",
        "validation_file": "the same to validate on, and test_file to test on",
        "dataset_name": "or a data set of the Hub, with dataset_config_name",
        "task_name": "or a task of GLUE or SuperGLUE: sst2, mnli, ...",
        "task": "text-classification, text-generation, translation, token-classification, fill-mask, ...",
        "text_column": "column of texts, or two of pairs; and label_column",
        "source_column": "of sources to turn into those of target_column",
        "tokenizer": "bpe, words or bytes, trained on your texts; or one of the Hub",
        "max_seq_length": "cut texts after so many tokens",
    },
    "training": {
        "output_dir": "folder of the run; the same command again resumes it",
        "max_steps": "optimiser steps",
        "num_train_epochs": "or passes over the training data",
        "per_device_train_batch_size": "examples of a batch",
        "learning_rate": "peak learning rate",
        "lr_schedule": "how the learning rate changes",
        "warmup_steps": "steps over which it rises",
        "eval_strategy": "when to evaluate on the way: steps, epoch, no",
        "eval_steps": "steps between evaluations",
        "save_steps": "steps between checkpoints",
        "seed": "seed of weights, dropout and order",
        "bf16": "compute in bfloat16",
        "use_cpu": "leave GPUs alone",
    },
    "result": {
        "title": "title of the model card",
        "keep_checkpoints": "keep checkpoint-N folders of a finished run",
        "push_to_hub": "publish the finished run",
        "hub_model_id": "as owner/name",
    },
}
# flags of paths to read, and of columns
CHECKS = {**dict.fromkeys(("train_file", "validation_file", "test_file"), a_file), "model_name_or_path": a_place}
COLUMN_FLAGS = {"text_column", "label_column", "source_column", "target_column", "slice_by"}

USAGE = """\
Usage: hf-recurrent train [RECIPE] [--flag value ...]

Train a model, evaluate it, and leave a folder that can be published. The same command again resumes
it. RECIPE is a YAML file or a name of `hf-recurrent recipes list`; its keys are flags as well, and
flags win. Several processes: accelerate launch -m hf_recurrent.train [RECIPE] [--flag value ...]

  hf-recurrent train cpu/listops_gut --output_dir runs/listops_gut
  hf-recurrent train my.yaml --output_dir runs/mine --max_steps 100 --config '{hidden_size: 128}'
"""
ALL_FLAGS = "All flags of a task, with transformers' TrainingArguments: hf-recurrent train --task TASK --help_all"


def completed(incomplete: str) -> list[str]:
    """Recipes whose names begin so."""
    return [name for name in recipe_files() if name.startswith(incomplete)]


def train(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RECIPE] [--flag value ...]", autocompletion=completed, help="See --help."),
    ] = None,
) -> None:
    """Train by a recipe or flags, evaluate, and leave a folder that can be published; again, to resume."""
    words = arguments or []
    if not words or HELP & {*words}:
        return show_help()
    words = ["--help" if word in HELP_ALL else word for word in words]
    check_words(words)
    from ..training.run import run_and_print

    with interruptible():
        run_and_print(words)


def check_words(words: list[str]) -> None:
    """Refuse what is not there before anything slow is imported: a recipe, file, checkpoint, column or name."""
    recipe, flags = recipe_path(words), flags_of(words)
    if recipe is not None and not recipe.is_file():
        raise typer.BadParameter(no_recipe(words[0]))
    for name, check in CHECKS.items():
        for value in flags.get(name, ()):
            check(value)
    for name, names in {"model_type": ARCHITECTURES.keys, "task": TASKS.keys, "benchmark": list_benchmarks}.items():
        for value in flags.get(name, ()):
            require_known(name, value, names())
    path = Path(*flags.get("train_file", ())[-1:])
    if path.is_file() and not is_folder(path) and format_of(path) == "csv":
        given = {name: flags[name][-1] for name in ("encoding", "delimiter", "quoting") if flags.get(name)}
        try:
            with (reading := Reading(**given)).open(path) as file:
                columns = csv_table(file, path, reading)[0]
        except (ValueError, LookupError):
            # reading it reports what is wrong
            return
        for flag in COLUMN_FLAGS & flags.keys():
            for column in ",".join(flags[flag]).split(","):
                require_columns({flag: column.strip()}, columns, path.name)


def show_help() -> None:
    """Print the usage and the flags that are asked for most."""
    width = max(len(name) for flags in FLAGS.values() for name in flags)
    lines = [USAGE]
    for title, flags in FLAGS.items():
        lines += [f"{title}:", *(f"  --{name:{width}}  {text}" for name, text in flags.items()), ""]
    out.print("\n".join([*lines, ALL_FLAGS]), markup=False, soft_wrap=True)
