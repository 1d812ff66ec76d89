"""What a run of `training/run_clm.py` leaves behind, but for the training: a small language model of random weights."""

import shutil
from types import SimpleNamespace

import torch
from transformers import AutoConfig, AutoModelForCausalLM

import hf_recurrent  # noqa: F401 - registers the families
from hf_recurrent.benchmarks import build_tokenizer
from hf_recurrent.hub import write_results
from hf_recurrent.hub.checkpoint import save_checkpoint
from hf_recurrent.tasks import get_task
from hf_recurrent.training.arguments import ReportArguments
from hf_recurrent.training.results import evaluate_run, run_results
from support.families import papers_halting

PARAMETERS = {"train_length": 16, "num_train": 8, "num_validation": 6, "num_test": 12, "test_p_ignore": [0.1, 0.8]}
TINY = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 3}
CHUNKS = {"chunk_size": 5, "num_memory_slots": 3}


def make_language_run(folder, cache, family, **fields):
    """Write a checkpoint with card, statistics and figures into the new `folder`."""
    tokenizer = build_tokenizer("flip_flop")
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        family, vocab_size=len(tokenizer), lm_head="mlp", **{**TINY, **papers_halting(family), **fields}
    )
    model = AutoModelForCausalLM.from_config(config)
    # a word, never a special token
    torch.nn.init.constant_(model.get_output_embeddings().bias[: len(tokenizer.all_special_ids)], -100.0)
    save_checkpoint(model.eval(), folder, tokenizer)
    kind = get_task("text-generation")
    task = kind(kind.arguments(benchmark="flip_flop", benchmark_params=PARAMETERS, cache_dir=str(cache)))
    report = ReportArguments()
    splits = task.load_splits(tokenizer).evaluation
    run = SimpleNamespace(argv=["tiny.yaml"], folder=folder, model=model, tokenizer=tokenizer, task=task, report=report)
    run.tables, run.shown = evaluate_run(model, tokenizer, splits, folder, report, 8)
    run.evaluated_splits = lambda: splits
    run.args, run.num_processes, run.device = SimpleNamespace(hub_model_id=None, seed=0), 1, torch.device("cpu")
    run.facts = {"seconds": 1.0, "steps": 0, "trained_depth": config.num_hidden_layers}
    run.flags, run.changes, run.history, run.base_model, run.splits = {}, [], [], None, None
    write_results(folder, run_results(run))
    return folder


def copied(folder, target):
    """A run's folder in a gallery, which holds no code."""
    return shutil.copytree(folder, target / folder.name, ignore=shutil.ignore_patterns("*.py"))
