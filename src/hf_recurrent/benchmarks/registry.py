"""The one table of benchmarks: where the class of each is. A benchmark is imported when it is used."""

from functools import cache
from importlib import import_module

from .benchmark import Benchmark
from .info import BenchmarkInfo
from .parameters import unknown

# name -> module, class. The class name is part of cache keys
BENCHMARKS = {
    "listops": ("listops.benchmark", "ListOps"),
    "logical_inference": ("logical_inference.benchmark", "LogicalInference"),
    "flip_flop": ("flip_flop.benchmark", "FlipFlop"),
    "compositional_table_lookup": ("compositional_table_lookup.benchmark", "CompositionalTableLookup"),
    "simple_arithmetic": ("simple_arithmetic.benchmark", "SimpleArithmetic"),
    "listops_depth": ("listops_depth.benchmark", "ListOpsDepth"),
    "long_documents": ("long_documents.benchmark", "LongDocuments"),
    "logical_inference_translation": ("logical_inference.translation", "LogicalInferenceTranslation"),
    "cfq": ("cfq.benchmark", "CompositionalFreebaseQuestions"),
    "wmt14_en_de": ("wmt14_en_de.benchmark", "WMT14EnglishGerman"),
    "lra": ("lra.benchmark", "LongRangeArena"),
}


@cache
def get_benchmark(name: str, config_name: str | None = None) -> Benchmark:
    """A benchmark by name; with `config_name`, that of a config where configs differ in their facts.

    Raises ValueError for an unknown benchmark or config.
    """
    if name not in BENCHMARKS:
        raise unknown("benchmark", name, BENCHMARKS)
    module, class_name = BENCHMARKS[name]
    return getattr(import_module(f".{module}", __package__), class_name)().member(config_name)


def list_benchmarks() -> list[str]:
    """The names that `load_benchmark` knows."""
    return list(BENCHMARKS)


def benchmark_info(name: str, config_name: str | None = None) -> BenchmarkInfo:
    """The facts about a benchmark: its configs, labels, columns, vocabulary, parameters and paper.

    `config_name` matters where these differ by config, as in `lra`; None: those of the default config.
    """
    return get_benchmark(name, config_name).info
