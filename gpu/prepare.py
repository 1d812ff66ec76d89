"""Benchmark data as files of token ids, so that recipes train where `datasets` is not installed.

    python -m gpu.prepare
    python -m gpu.prepare --recipes flip_flop_tlb --output build/gpu-data

One safetensors file for each configuration of a benchmark, named by both, with the first examples of every split: as
many as fit into `--mebibytes` in all, shared evenly. Evaluation splits have at most a fifth of a file.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

from hf_recurrent.benchmarks import benchmark_info, build_tokenizer, read_labels
from hf_recurrent.benchmarks.registry import get_benchmark
from hf_recurrent.recipes import find_recipe
from hf_recurrent.training.recipes import read_mapping

# cheapest first
RECIPES = (
    "flip_flop_tlb",
    "compositional_table_lookup_ndr",
    "flip_flop_gut",
    "flip_flop_ut",
    "simple_arithmetic_ndr",
    "logical_inference_ut",
    "logical_inference_gut",
    "listops_depth_ndr",
    "listops_gut",
)
MEBIBYTES, EVALUATION_SHARE, MEBIBYTE = 40.0, 0.2, 2**20
# beside token ids: where a row ends, and its label
BYTES_OF_ROW = 8


class Examples(torch.utils.data.Dataset):
    """A split: rows of token ids with labels, which a collator pads."""

    def __init__(self, columns: dict[str, np.ndarray], vocabulary: dict[str, int] | None):
        """`vocabulary`: of a language model, whose labels follow from the ids; None for classes."""
        self.columns, self.vocabulary = columns, vocabulary

    def __len__(self) -> int:
        return len(self.columns["ends"])

    def __getitem__(self, place: int) -> dict[str, Any]:
        if not 0 <= place < len(self):
            raise IndexError(place)
        ends = self.columns["ends"]
        row = slice(int(ends[place - 1]) if place else 0, int(ends[place]))
        found: dict[str, Any] = {"input_ids": self.columns["ids"][row].astype(np.int64).tolist()}
        if "types" in self.columns:
            found["token_type_ids"] = self.columns["types"][row].astype(np.int64).tolist()
        known = self.vocabulary
        found["labels"] = (
            int(self.columns["labels"][place]) if known is None else read_labels(found["input_ids"], known)
        )
        return found


def file_of(folder: Path, benchmark: str, config: str) -> Path:
    return folder / f"{benchmark}-{config}.safetensors"


def source_of(name: str) -> tuple[str, str, dict[str, Any]]:
    """Benchmark, configuration and parameters of a recipe."""
    recipe = read_mapping(find_recipe(name))
    benchmark = recipe["benchmark"]
    config = recipe.get("benchmark_config") or get_benchmark(benchmark).info.default_config
    return benchmark, config, recipe.get("benchmark_params", {})


def encoded(benchmark: str, config: str, split: list, most_bytes: float) -> dict[str, np.ndarray]:
    """The first examples of a split, as many as fit into so many bytes."""
    info, tokenizer = benchmark_info(benchmark, config), build_tokenizer(benchmark, config)
    ids: list[int] = []
    types: list[int] = []
    ends, labels = [], []
    for example in (example for shard in split for example in shard.examples()):
        row = tokenizer(*(example[column] for column in info.text_columns))
        ids += row["input_ids"]
        types += row.get("token_type_ids", [])
        ends.append(len(ids))
        if info.label_names:
            label = example["label"]
            labels.append(label if isinstance(label, int) else info.label_names.index(label))
        if len(ids) + len(types) + BYTES_OF_ROW * len(ends) > most_bytes:
            break
    columns = {"ids": np.array(ids, smallest(len(tokenizer))), "ends": np.array(ends, np.int32)}
    if len(types) and max(types) > 0:
        columns["types"] = np.array(types, np.uint8)
    return columns | ({"labels": np.array(labels, np.int16)} if labels else {})


def smallest(values: int) -> type:
    return np.uint8 if values <= 256 else np.int32


def prepare(recipes: tuple[str, ...], folder: Path, mebibytes: float) -> Iterator[str]:
    """Write the files of the recipes' benchmarks -> a line about each."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = {source_of(name)[:2]: source_of(name)[2] for name in recipes}
    for (benchmark, config), params in sources.items():
        member = get_benchmark(benchmark, config)
        splits = member.plan(config, member.resolve(config, params))
        share = mebibytes * MEBIBYTE / len(sources)
        of_evaluation = EVALUATION_SHARE * share / max(1, len(splits) - 1)
        tensors = {}
        for split, shards in splits.items():
            room = share * (1 - EVALUATION_SHARE) if split == "train" else of_evaluation
            found = encoded(benchmark, config, shards, 0.9 * room)
            tensors |= {f"{split}.{name}": values for name, values in found.items()}
        path = file_of(folder, benchmark, config)
        save_file(tensors, path)
        rows = ", ".join(f"{split} {len(tensors[f'{split}.ends']):,}" for split in splits)
        yield f"{path}: {path.stat().st_size / MEBIBYTE:.1f} MiB; {rows}"


def load_splits(folder: Path, name: str) -> dict[str, Examples]:
    """The prepared splits of a recipe's benchmark.

    Raises:
        FileNotFoundError: they have not been prepared.
    """
    benchmark, config, _ = source_of(name)
    path = file_of(folder, benchmark, config)
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}: run `python -m gpu.prepare` first")
    tensors, vocabulary = load_file(path), None
    if not benchmark_info(benchmark, config).label_names:
        vocabulary = build_tokenizer(benchmark, config).get_vocab()
    splits: dict[str, dict[str, np.ndarray]] = {}
    for key, values in tensors.items():
        split, _, column = key.rpartition(".")
        splits.setdefault(split, {})[column] = values
    return {split: Examples(columns, vocabulary) for split, columns in splits.items()}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m gpu.prepare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=RECIPES)
    parser.add_argument("--output", type=Path, default=Path("build/gpu-data"))
    parser.add_argument("--mebibytes", type=float, default=MEBIBYTES, help="of all files together")
    args = parser.parse_args(arguments)
    for line in prepare(tuple(args.recipes), args.output, args.mebibytes):
        print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
