"""What a run on long documents leaves behind, but for the training: a small model of random weights."""

import numpy as np
import torch
from datasets import Dataset
from transformers import AutoConfig, AutoModelForCausalLM

import hf_recurrent  # noqa: F401 - registers the families
from hf_recurrent.analysis.losses import evaluate_split
from hf_recurrent.analysis.plots import save_figures
from hf_recurrent.hub import write_results
from hf_recurrent.hub.checkpoint import save_checkpoint
from support.families import VOCAB_SIZE, papers_halting
from support.results import make_document_results
from support.tokenizer import make_tokenizer

TINY = {"vocab_size": VOCAB_SIZE, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}


def make_rows(lengths=(40, 9, 25), seed=0):
    generator = np.random.default_rng(seed)
    texts = [" ".join(f"w{word}" for word in generator.integers(4, VOCAB_SIZE, length)) for length in lengths]
    sizes = {"num_bytes": [len(text) for text in texts], "num_words": list(lengths)}
    return Dataset.from_dict({"text": texts, **sizes})


def make_document_model(family="block_recurrent", **fields):
    torch.manual_seed(0)
    by_family = {"block_recurrent": {"window_size": 4, "num_state_vectors": 3, "num_hidden_layers": 2}}
    own = {**papers_halting(family), **by_family.get(family, {}), **fields}
    config = AutoConfig.for_model(family, **TINY, **own)
    return AutoModelForCausalLM.from_config(config).eval()


def make_document_run(folder, model=None, **changes):
    """Write a checkpoint with card, statistics and figures into the new `folder`."""
    model, tokenizer = make_document_model() if model is None else model, make_tokenizer()
    save_checkpoint(model, folder, tokenizer)
    tables = {
        split: {
            "distribution": "as in training",
            **evaluate_split(model, tokenizer, make_rows(seed=seed), segment_length=8),
        }
        for seed, split in enumerate(("test", "validation"))
    }
    figures = [
        {**plot, "split": split}
        for split, table in tables.items()
        for plot in save_figures(folder, table, prefix=split)
    ]
    facts = {
        "type": model.config.model_type,
        "parameters": model.num_parameters(),
        "max_depth": model.config.num_hidden_layers,
        "halting": tables["test"]["halting"],
    }
    fields = {"name": folder.name, "model": facts, "splits": tables, "figures": figures}
    write_results(folder, make_document_results(**{**fields, **changes}))
    return folder
