"""Benchmarks whose answers can be computed, long documents, and sources with targets; `list_benchmarks` names them.

>>> from hf_recurrent.benchmarks import build_tokenizer, load_benchmark
>>> splits = load_benchmark("listops", num_train=2000, num_validation=200, num_test=200)
>>> splits["test"][0]["text"], splits["test"][0]["depth"]
>>> tokenizer = build_tokenizer("listops")
"""

from .api import build_tokenizer, load_benchmark, normalize_expression
from .flip_flop.strings import Read, check_string, read_labels
from .info import BenchmarkInfo
from .registry import benchmark_info, list_benchmarks
from .sequence_tokenizers import sequence_tokenizer
from .show import Description, Example, describe_example, examples, render_example
from .tasks import task_id
from .tokenizers import document_tokenizer, encode_document

__all__ = [
    "BenchmarkInfo",
    "Description",
    "Example",
    "Read",
    "benchmark_info",
    "build_tokenizer",
    "check_string",
    "describe_example",
    "document_tokenizer",
    "encode_document",
    "examples",
    "list_benchmarks",
    "load_benchmark",
    "normalize_expression",
    "read_labels",
    "render_example",
    "sequence_tokenizer",
    "task_id",
]
