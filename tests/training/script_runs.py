"""A tiny run of each training script, without dropout: processes that share its batches learn what one learns."""

import json
import os
from pathlib import Path
from typing import Any

import yaml
from document_runs import TINY_DOCUMENTS
from seq2seq_runs import NO_DROPOUT
from seq2seq_runs import SIZES as PAIR_SIZES
from test_question_runs import choice, question
from test_token_runs import examples
from tiny_run import TINY

from hf_recurrent.training.objectives import (
    CLASSIFICATION,
    DOCUMENT_SCRIPT,
    LANGUAGE_MODELLING,
    MASKED_MODELLING,
    MULTIPLE_CHOICE,
    QUESTION_ANSWERING,
    SEQ2SEQ,
    TOKEN_CLASSIFICATION,
)

UPDATES = 5
WITHOUT = {"dropout": 0.0, "attention_dropout": 0.0}
COMMON = {
    "max_steps": UPDATES,
    "logging_steps": 1,
    # updates in proportion to gradients, so that rounding stays small
    "learning_rate": 0.2,
    "optim": "adamw_torch",
    "adam_epsilon": 1.0,
    "max_grad_norm": 1.0,
    "use_cpu": True,
    "disable_tqdm": True,
    "save_steps": UPDATES,
}
EXAMPLES = {**COMMON, "per_device_train_batch_size": 4, "per_device_eval_batch_size": 4}
PREDICTED = {**EXAMPLES, "write_predictions": True}
OWN = {"model_type": "ut", "config": {**TINY["config"], **WITHOUT, "halting": "token"}, "tokenizer": "words"}
# name -> script and recipe; words in capitals stand for the files of `write_files`
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "classes": (
        CLASSIFICATION.script,
        {
            **{name: TINY[name] for name in ("model_type", "benchmark", "benchmark_params", "thresholds")},
            **PREDICTED,
            "config": {**TINY["config"], **WITHOUT},
            "threshold_samples": 8,
        },
    ),
    "answers": (
        LANGUAGE_MODELLING.script,
        {
            **PREDICTED,
            "model_type": "gutlb",
            "config": {**TINY["config"], **WITHOUT, "chunk_size": 6, "num_memory_slots": 3},
            "benchmark": "flip_flop",
            "benchmark_params": {"train_length": 16, "num_train": 64, "num_validation": 12, "num_test": 10},
        },
    ),
    "blocks": (
        LANGUAGE_MODELLING.script,
        {
            **OWN,
            **EXAMPLES,
            "task": "text-generation",
            "train_file": "BOOK",
            "test_file": "BOOK_TEST",
            "block_size": 16,
        },
    ),
    "stream": (
        LANGUAGE_MODELLING.script,
        {
            **OWN,
            **EXAMPLES,
            **{"task": "text-generation", "train_file": "BOOK", "test_file": "BOOK_TEST", "block_size": 16},
            "streaming": True,
        },
    ),
    "pairs": (
        SEQ2SEQ.script,
        {
            **PREDICTED,
            "model_type": "sut",
            "config": {**PAIR_SIZES, **NO_DROPOUT},
            "benchmark": "logical_inference_translation",
            "benchmark_params": {"num_train": 64, "num_validation": 8, "num_test": 12},
        },
    ),
    "segments": (
        DOCUMENT_SCRIPT,
        {
            **{name: value for name, value in TINY_DOCUMENTS.items() if name != "eval_steps"},
            **COMMON,
            "config": {**TINY_DOCUMENTS["config"], **WITHOUT},
            "data_dir": "TEXTS",
            "per_device_train_batch_size": 1,
            "gradient_accumulation_steps": 1,
        },
    ),
    "words": (TOKEN_CLASSIFICATION.script, {**OWN, **PREDICTED, "train_file": "WORDS", "test_file": "WORDS_TEST"}),
    "masks": (
        MASKED_MODELLING.script,
        {**OWN, **EXAMPLES, "train_file": "BOOK", "test_file": "BOOK_TEST", "max_seq_length": 24},
    ),
    "spans": (QUESTION_ANSWERING.script, {**OWN, **PREDICTED, "train_file": "SPANS", "test_file": "SPANS_TEST"}),
    "choices": (MULTIPLE_CHOICE.script, {**OWN, **PREDICTED, "train_file": "CHOICES", "test_file": "CHOICES_TEST"}),
}


def write_files(folder: Path) -> dict[str, str]:
    """The data of `RUNS`, a dataset a file -> the words that stand for them, and their places."""
    rows = {
        "WORDS": examples(48),
        "SPANS": [question(number) for number in range(72) if number % 3 < 2],
        "CHOICES": [choice(number) for number in range(48)],
    }
    # five batches: two processes have other numbers of them
    rows |= {f"{name}_TEST": found[:18] for name, found in rows.items()}
    places = {"TEXTS": folder / "texts"}
    for name, lines in rows.items():
        places[name] = folder / f"{name.lower()}.jsonl"
        places[name].write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    for name, lines in (("BOOK", 120), ("BOOK_TEST", 45)):
        places[name] = folder / f"{name.lower()}.txt"
        places[name].write_text("".join(f"Fellow citizens, {number % 12} years of work.\n" for number in range(lines)))
    # of one length: two processes of a row each read what one of two rows reads
    for split, count in (("train", 8), ("validation", 2), ("test", 3)):
        (places["TEXTS"] / split).mkdir(parents=True)
        for number in range(count):
            (places["TEXTS"] / split / f"{number}.txt").write_text(f"state {number} of {split[0]} window " * 6)
    return {name: str(place) for name, place in places.items()}


def arguments(name: str, folder: Path, places: dict[str, str], **changes: Any) -> list[str]:
    """The command line of a run, which leaves its results in `folder`."""
    recipe = {
        key: places.get(value, value) if isinstance(value, str) else value for key, value in RUNS[name][1].items()
    }
    path = folder.with_suffix(".yaml")
    # each process writes the same
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(yaml.safe_dump({**recipe, **changes}))
    draft.replace(path)
    return [str(path), "--output_dir", str(folder)]
