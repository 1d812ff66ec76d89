"""A tiny run of each task, without dropout: processes that share its batches learn what one learns."""

from pathlib import Path
from typing import Any

from tiny_run import GLOBAL, QUIET, SIZES, TINY, TOKEN, write_recipe

from support.own_data import choice, question, tagged, write_file

UPDATES = 5
WITHOUT = {"dropout": 0.0, "attention_dropout": 0.0}
COMMON = {
    **QUIET,
    "max_steps": UPDATES,
    "logging_steps": 1,
    "save_steps": UPDATES,
    # updates in proportion to gradients, so that rounding stays small
    "learning_rate": 0.2,
    "optim": "adamw_torch",
    "adam_epsilon": 1.0,
    "max_grad_norm": 1.0,
}
EXAMPLES = {**COMMON, "per_device_train_batch_size": 4, "per_device_eval_batch_size": 4}
PREDICTED = {**EXAMPLES, "write_predictions": True}
BY_TOKENS = {**COMMON, "per_device_eval_batch_size": 4, "write_predictions": True}
OWN = {"model_type": "ut", "config": {**SIZES, **TOKEN, **WITHOUT}, "tokenizer": "words"}
PAIR_SIZES = {
    **TOKEN,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "attention_experts": 3,
    "attention_experts_per_token": 2,
    "num_attention_heads": 1,
    "head_dim": 8,
    "feed_forward_experts": 3,
    "feed_forward_experts_per_token": 2,
    "intermediate_size": 12,
    "relative_window": 1,
}
NO_DROPOUT = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout", "router_dropout"), 0.0)
# two windows a segment
BLOCKS = {**SIZES, "num_hidden_layers": 2, "window_size": 8, "num_state_vectors": 4}
CHUNKS = {"chunk_size": 6, "num_memory_slots": 3}
LISTOPS = {name: TINY[name] for name in ("model_type", "benchmark", "benchmark_params")}
BOOK = {"train_file": "BOOK", "test_file": "BOOK_TEST"}
PAIRS = {
    "model_type": "sut",
    "config": {**PAIR_SIZES, **NO_DROPOUT},
    "benchmark": "logical_inference_translation",
    "benchmark_params": {"num_train": 64, "num_validation": 8, "num_test": 12},
}
SEGMENTS = {
    **COMMON,
    "model_type": "block_recurrent",
    "config": {**BLOCKS, **WITHOUT},
    **{"benchmark": "long_documents", "benchmark_config": "folder", "data_dir": "TEXTS"},
    **{"segment_length": 16, "per_device_eval_batch_size": 2, "warmup_steps": 2},
    "per_device_train_batch_size": 1,
}
# name -> recipe; words in capitals stand for the files of `write_files`
RUNS: dict[str, dict[str, Any]] = {
    "classes": {**LISTOPS, **PREDICTED, "config": {**SIZES, **GLOBAL, **WITHOUT}},
    "answers": {
        **PREDICTED,
        "model_type": "gutlb",
        "config": {**SIZES, **GLOBAL, **WITHOUT, **CHUNKS},
        "benchmark": "flip_flop",
        "benchmark_params": {"train_length": 16, "num_train": 64, "num_validation": 12, "num_test": 10},
    },
    "blocks": {**OWN, **EXAMPLES, **BOOK, "task": "text-generation", "block_size": 16},
    "stream": {**OWN, **EXAMPLES, **BOOK, "task": "text-generation", "block_size": 16, "streaming": True},
    "pairs": {**PREDICTED, **PAIRS},
    "segments": SEGMENTS,
    "words": {**OWN, **PREDICTED, "task": "token-classification", "train_file": "WORDS", "test_file": "WORDS_TEST"},
    "masks": {**OWN, **EXAMPLES, **BOOK, "task": "fill-mask", "max_seq_length": 24},
    "spans": {**OWN, **PREDICTED, "task": "question-answering", "train_file": "SPANS", "test_file": "SPANS_TEST"},
    "choices": {**OWN, **PREDICTED, "task": "multiple-choice", "train_file": "CHOICES", "test_file": "CHOICES_TEST"},
}
# batches of like length, of which each process has others
TOKEN_RUNS = {
    "classes by tokens": {
        **LISTOPS,
        **BY_TOKENS,
        "config": {**SIZES, **GLOBAL, **WITHOUT},
        "batch_tokens": 90,
    },
    "pairs by tokens": {**BY_TOKENS, **PAIRS, "batch_tokens": 80},
}


def write_files(folder: Path) -> dict[str, str]:
    """The data of `RUNS` -> the words that stand for them, and their places."""
    rows = {
        "WORDS": [tagged(number) for number in range(48)],
        "SPANS": [question(number) for number in range(72) if number % 3 < 2],
        "CHOICES": [choice(number) for number in range(48)],
    }
    # five batches: two processes have other numbers of them
    rows |= {f"{name}_TEST": found[:18] for name, found in rows.items()}
    places = {name: write_file(folder / f"{name.lower()}.jsonl", found) for name, found in rows.items()}
    for name, lines in (("BOOK", 120), ("BOOK_TEST", 45)):
        text = "".join(f"Fellow citizens, {number % 12} years of work.\n" for number in range(lines))
        places[name] = write_file(folder / f"{name.lower()}.txt", text)
    # of one length: two processes of a row each read what one of two rows reads
    for split, count in (("train", 8), ("validation", 2), ("test", 3)):
        for number in range(count):
            write_file(folder / "texts" / split / f"{number}.txt", f"state {number} of {split[0]} window " * 6)
    return {**places, "TEXTS": str(folder / "texts")}


def arguments(name: str, folder: Path, places: dict[str, str], **changes: Any) -> list[str]:
    """The command line of a run, which leaves its results in `folder`."""
    found = (RUNS | TOKEN_RUNS)[name]
    recipe = {key: places.get(value, value) if isinstance(value, str) else value for key, value in found.items()}
    path = folder.with_name(f"{folder.name}.yaml")
    # each process writes the same
    draft = Path(write_recipe(path.with_suffix(f".{id(places)}"), {**recipe, **changes}))
    draft.replace(path)
    return [str(path), "--output_dir", str(folder)]
