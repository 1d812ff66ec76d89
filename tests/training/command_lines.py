"""Runs that have read their command lines alone, and the models that they would train."""

from typing import Any

import torch

from hf_recurrent.registry import ARCHITECTURES
from hf_recurrent.training.documents import DocumentRun
from hf_recurrent.training.model import make_config
from hf_recurrent.training.run import chosen_task
from hf_recurrent.training.stages import Run


def read(*argv: Any, output_dir: str = "unused") -> Run:
    """The run of a recipe and flags, on a CPU."""
    words = [*map(str, argv), "--output_dir", output_dir, "--use_cpu", "true", "--bf16", "false"]
    task = chosen_task(words)
    return (DocumentRun if task == "long-documents" else Run)(words, task)


def config_of(run: Run, tokenizer: Any = None) -> Any:
    tokenizer = run.task.load_tokenizer(run.model_args) if tokenizer is None else tokenizer
    return make_config(run.model_args, run.task, tokenizer)


def model_of(run: Run, config: Any) -> torch.nn.Module:
    """The model without weights."""
    with torch.device("meta"):
        return ARCHITECTURES[config.model_type].model_class(run.task.auto_class)(config)
