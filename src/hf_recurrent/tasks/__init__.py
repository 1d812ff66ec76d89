"""Tasks by the Hub's pipeline tags: one file a task has all that is its own.

A new task is its arguments, a file with a subclass of `Task`, a line in `TASKS`, and a head of the models.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ..benchmarks import benchmark_info
from ..utils import require_known
from . import arguments

if TYPE_CHECKING:
    from .base import Task

# tag -> its arguments, and its class, which is imported when needed: it is slow to import
TASKS = {
    "text-classification": (arguments.ClassificationArguments, "TextClassification"),
    "text-generation": (arguments.TextArguments, "TextGeneration"),
    "translation": (arguments.PairArguments, "Translation"),
    "token-classification": (arguments.WordArguments, "TokenClassification"),
    "entity-spans": (arguments.EntityArguments, "EntitySpans"),
    "fill-mask": (arguments.MaskArguments, "FillMask"),
    "question-answering": (arguments.SpanArguments, "QuestionAnswering"),
    "multiple-choice": (arguments.ChoiceArguments, "MultipleChoice"),
    # generation, of documents that are read in segments
    "long-documents": (arguments.LongDocumentArguments, "LongDocuments"),
}
# tasks whose models answer a text, and each word or masked token
OF_TEXTS, OF_WORDS = ("text-classification", "text-generation", "translation"), ("token-classification", "fill-mask")


def get_task(tag: str) -> "type[Task]":
    """The class of a task.

    Raises:
        ValueError: there is no such task.
    """
    require_known("task", tag, list(TASKS))
    return getattr(import_module(f".{tag.replace('-', '_')}", __package__), TASKS[tag][1])


def name_of(task: "Task | type[Task]") -> str:
    """The name of a task in `TASKS`, which is that of its file."""
    return task.__module__.rpartition(".")[2].replace("_", "-")


def task_of_benchmark(benchmark: str) -> str:
    """The task of a benchmark of this package: texts without labels are predicted themselves."""
    if benchmark == "long_documents":
        return benchmark.replace("_", "-")
    info = benchmark_info(benchmark)
    return "translation" if info.target_column else "text-classification" if info.label_names else "text-generation"
