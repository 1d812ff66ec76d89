"""What a run on long documents leaves behind, but for the training: a small model of random weights."""

import numpy as np
import torch
from datasets import Dataset
from document_card import make_document_card
from transformers import AutoConfig, AutoModelForCausalLM

import hf_recurrent  # noqa: F401 - registers the families
from hf_recurrent.analysis.plots import save_recurrence_figures
from hf_recurrent.analysis.recurrence import evaluate_split
from hf_recurrent.analysis.tables import RECURRENCE_FILE, write_tables
from hf_recurrent.hub.card import Compared, Plot, SplitResult, write_card
from hf_recurrent.hub.checkpoint import save_checkpoint
from support.families import VOCAB_SIZE, papers_halting
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
        split: evaluate_split(model, tokenizer, make_rows(seed=seed), segment_length=8)
        for seed, split in enumerate(("test", "validation"))
    }
    write_tables(folder, RECURRENCE_FILE, tables)
    plots = [
        Plot(**plot, split=split)
        for split, table in tables.items()
        for plot in save_recurrence_figures(folder, table, prefix=split)
    ]
    compared = [Compared("Slide with one more layer", 999, {"test": [2.0, 3.0]})]
    card = {
        "repo_id": folder.name,
        "family": model.config.model_type,
        "table": tables["test"],
        "max_depth": model.config.num_hidden_layers,
        "results": [SplitResult(split, table) for split, table in tables.items()],
        "compared": compared,
        "plots": plots,
        **changes,
    }
    card = make_document_card(**card)
    training = {**card.to_dict()["training"], "num_parameters": model.num_parameters()}
    write_card(folder, type(card).from_dict({**card.to_dict(), "training": training}))
    return folder
