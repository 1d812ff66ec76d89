"""Checkpoints with their task, and the examples that a command evaluates them on."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from datasets import Dataset

from ..analysis.calibration import unusual_inputs
from ..benchmarks import list_benchmarks
from ..data.batches import NO_LIMIT
from ..data.documents import DocumentSource
from ..data.labels import REGRESSION, SINGLE, TOKENS, Labels
from ..data.loading import Source
from ..data.tokenizers import load_saved_tokenizer
from ..deploy.processes import is_first
from ..hub.card import auto_class_of
from ..hub.checkpoint import check_finite, checkpoint_config, load_whole, revision_options
from ..hub.results import check_texts, read_results
from ..metrics.functional import Row
from ..models.config.exit_criteria import LEARNED
from ..models.heads.classification import predicts_number
from ..utils import RecipeLoader, near_names, one_line, parse_yaml
from . import TASKS, get_task, task_of_benchmark
from .base import Split, Task, some_examples
from .text_classification import METRICS
from .text_generation import Documents
from .translation import Translation, warn_of_longer

# chooses some of the rows of a split
Choice = Callable[[Dataset], Dataset]
RECIPE_FILE = "recipe.yaml"
# columns that are as in training where examples have them, unless others are named
COLUMNS = (
    *("text_column", "label_column", "source_column", "target_column", "start_column"),
    *("question_column", "context_column", "answer_column", "ending_columns"),
)


@dataclass(frozen=True)
class Checkpoint:
    """A model with its head ready to evaluate, its tokenizer and task.

    Attributes:
        settings: how training read the examples, by the names of the flags.
        results: what its card says, see `hub.results`; None where it has none.
    """

    name: str
    model: Any
    tokenizer: Any
    task: type[Task]
    settings: Row = field(default_factory=dict)
    results: Row | None = None

    @property
    def trained_file(self) -> str | None:
        """The name of the file of training, if it is known."""
        return (data_parameters(self.results).get("files") or {}).get("train")


def data_parameters(results: Row | None) -> Row:
    """What results say of how training read its data."""
    return ((results or {}).get("data") or {}).get("parameters") or {}


@dataclass(frozen=True)
class Request:
    """The data to evaluate on: a benchmark, or a user's own examples.

    Attributes:
        benchmark: a benchmark of this package.
        config: its configuration; None: the default one.
        splits: which splits; none given: its test splits.
        params: parameters of the configuration, if examples are generated.
        data_dir: folder with the authors' files, instead of generated examples.
        limit: evaluate at most this many random examples of each split.
        files: split -> file of a user's own examples.
        dataset: name, configuration and revision of a data set of the Hub instead.
        arguments: further arguments of the task's data, by their names; None is one that is not given.
        train_file: the examples of training, by which words and tokens are known without their context.
        labelled: whether examples to classify need labels.
    """

    benchmark: str = ""
    config: str | None = None
    splits: Sequence[str] = ()
    params: Row = field(default_factory=dict)
    data_dir: str | None = None
    limit: int | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    dataset: tuple[str, str | None, str | None] | None = None
    arguments: Row = field(default_factory=dict)
    train_file: str | None = None
    labelled: bool = True

    @property
    def is_own(self) -> bool:
        return bool(self.files) or self.dataset is not None


def holds_examples(place: str) -> bool:
    """Whether a place is a file of a user's examples or a folder of texts by label, rather than a benchmark.

    Raises:
        ValueError: it is neither.
    """
    if place in list_benchmarks():
        return False
    path = Path(place)
    if not path.exists():
        near = near_names(path) or "; pass a data set of the Hub as --dataset_name"
        raise ValueError(f"{place!r}: there is no such file or folder{near}")
    return True


def load_checkpoint(
    name: str | os.PathLike,
    device: str | None = None,
    revision: str | None = None,
    dtype: torch.dtype | str = torch.float32,
    tasks: Sequence[str] = tuple(TASKS),
) -> Checkpoint:
    """A model of this package with a head for one of the `tasks`, from a folder or the Hub.

    `device`: its device; None: a GPU if there is one. `dtype`: "auto" for that of the checkpoint.

    Raises:
        ValueError: there is no such checkpoint, it is not of this package, or its weights are not finite.
    """
    name = os.fspath(name)
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        # some devices compute nothing, as `meta`
        torch.ones(1, device=device).tolist()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"device={device!r} is not available here: {one_line(error)}") from error
    options = revision_options(name, revision)
    task = read_task(name, options, tasks)
    model = load_whole(getattr(transformers, task.auto_class), name, dtype=dtype, **options)
    check_finite(model, name)
    tokenizer, results = load_saved_tokenizer(name, **options), read_results(name, **options)
    trained = {**recipe_of_training(name), **data_parameters(results)}
    # of several tasks with the same models
    named = trained.get("task")
    if named in TASKS and get_task(named).auto_class == task.auto_class:
        task = get_task(named)
    known = {item.name for item in fields(task.arguments)}
    settings = {key: value for key, value in trained.items() if key in known & {*COLUMNS, *task.as_trained}}
    if "block_size" in known and (size := trained.get("block_size", trained.get("max_seq_length"))):
        settings["max_seq_length"] = size
    return Checkpoint(name, model.to(device).eval(), tokenizer, task, settings, results)


def recipe_of_training(name: str) -> Row:
    """The recipe in the folder of a run or in a copy of it; empty for any other checkpoint."""
    try:
        found = parse_yaml((Path(name) / RECIPE_FILE).read_text(encoding="utf-8"), RECIPE_FILE, RecipeLoader)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def read_task(name: str, options: Row, tasks: Sequence[str] = tuple(TASKS)) -> type[Task]:
    """The task of a checkpoint, by the class that its config names; a base model passes for a classifier.

    Raises:
        ValueError: there is no such checkpoint, its architecture is not one of this package, or its head is for another
            task.
    """
    config = checkpoint_config("checkpoint", name, **options)
    found = auto_class_of({"model_type": config.model_type, "architectures": config.architectures})
    known = [get_task(tag) for tag in tasks]
    if found not in (None, "AutoModel", *(task.auto_class for task in known)):
        raise ValueError(
            f"the checkpoint {name} is of {config.architectures[0]}, which this command cannot run: load it with "
            f"{found}, or pass {', or '.join(dict.fromkeys(task.model_kind for task in known))}"
        )
    return next((task for task in known if task.auto_class == found), get_task("text-classification"))


def requested_task(checkpoint: Checkpoint, request: Request) -> Task:
    """The checkpoint's task on the data of a request; a user's own with the checkpoint's labels.

    Raises:
        ValueError: the data do not exist, or do not fit the checkpoint.
    """
    if request.is_own:
        return own_task(checkpoint, request)
    benchmark, params = request.benchmark, dict(request.params)
    if benchmark == "long_documents":
        raise ValueError(f"benchmark is {benchmark!r}, which is read in segments: choose another benchmark")
    kind = get_task(task_of_benchmark(benchmark))
    if kind is not checkpoint.task:
        raise ValueError(
            f"{checkpoint.name} is {checkpoint.task.model_kind}, but {benchmark} {kind.data_kind}: evaluate an "
            f"{kind.auto_class} on it"
        )
    chosen = {"benchmark_config": request.config, "benchmark_params": params, "data_dir": request.data_dir}
    task = kind(kind.arguments(benchmark=benchmark, **chosen))
    labels = [str(label) for _, label in sorted(checkpoint.model.config.id2label.items())]
    if task.labels is not None and labels != list(task.labels.names):
        raise ValueError(
            f"{checkpoint.name} answers with {', '.join(labels)}, but the labels of {benchmark} are "
            f"{', '.join(task.labels.names)}: evaluate it on the benchmark it was trained for"
        )
    return task


def own_task(checkpoint: Checkpoint, request: Request) -> Task:
    """The checkpoint's task on a user's own examples, which are read as training read its own; nothing is read yet.

    Raises:
        ValueError: arguments do not go together, or with the checkpoint.
    """
    kind = checkpoint.task
    given = {name: value for name, value in request.arguments.items() if value not in (None, [])}
    known = {item.name for item in fields(kind.arguments)}
    for name in given:
        if name not in known:
            raise ValueError(f"{name} is {given[name]!r}, but {checkpoint.name} is {kind.model_kind}: leave it out")
    if request.train_file is not None and not kind.by_token:
        raise ValueError(
            f"train_file is {request.train_file!r}, but {checkpoint.name} is {kind.model_kind}: leave it out, it is "
            "for models of words or masked tokens"
        )
    trained = {name: value for name, value in checkpoint.settings.items() if value is not None}
    columns = {name: trained.pop(name) for name in COLUMNS if name in trained}
    by_line = trained.get("line_by_line", False)
    if given.get("pack") or given.get("line_by_line", by_line) != by_line:
        # lines are not packed, and whole files are
        trained = {name: value for name, value in trained.items() if name not in ("line_by_line", "pack")}
    given = trained | given
    if checkpoint.tokenizer.model_max_length < NO_LIMIT:
        # as training cut them
        limit = "max_source_length" if kind.tag == "translation" else "max_seq_length"
        given.setdefault(limit, checkpoint.tokenizer.model_max_length)
    if kind.tag == "question-answering" and "max_seq_length" in given:
        # the usual share of a window
        given.setdefault("doc_stride", min(given["max_seq_length"] // 3, kind.arguments.doc_stride))
    places = {"train_file": next(iter(request.files.values()), None)}
    if request.dataset is not None:
        places = dict(zip(("dataset_name", "dataset_config_name", "dataset_revision"), request.dataset, strict=True))
    task = kind(kind.arguments(**places, **given))
    options = {
        "files": dict(request.files) or None,
        "known": known_labels(checkpoint),
        "evaluates": True,
        "wanted": tuple(request.splits),
        "labelled": request.labelled or kind.tag != "text-classification",
        "trained": columns,
    }
    if isinstance(task, Documents):
        task.documents = DocumentSource(task, **options)
        return task
    source = Source(task, **options)
    check_texts(checkpoint.name, checkpoint.results, next(iter(source.columns.values())).texts)
    task.source = source.data()
    return task


def metric_of(checkpoint: Checkpoint) -> str:
    """The measure of a checkpoint's tables, one of `hub.card.METRICS`."""
    return METRICS.get(checkpoint.model.config.problem_type, checkpoint.task.metric_name)


def known_labels(checkpoint: Checkpoint) -> Labels | None:
    """The labels that a classifier of texts or words answers with; None of other models."""
    config, tag = checkpoint.model.config, checkpoint.task.tag
    names = tuple(str(name) for _, name in sorted(config.id2label.items()))
    if tag == "token-classification":
        return Labels(TOKENS, names)
    if tag != "text-classification":
        return None
    return Labels(REGRESSION) if predicts_number(config) else Labels(config.problem_type or SINGLE, names)


def wanted_splits(request: Request, task: Task, found: Sequence[str]) -> list[str]:
    """The splits of those `found` that a request names or, without names, those for tests.

    Raises:
        ValueError: one does not exist.
    """
    for split in request.splits:
        if split not in found:
            place = f"{request.benchmark} ({task.data.benchmark_config})"
            raise ValueError(f"split is {split!r}: {place} has {', '.join(found)}")
    tests = list(found) if request.is_own else [split for split in found if split.startswith("test")]
    return list(request.splits) or tests


def evaluation_splits(
    checkpoint: Checkpoint, request: Request, task: Task, choose: Choice | None = None, by_token: bool = False
) -> Iterator[Split]:
    """The splits to evaluate a checkpoint on, encoded.

    Args:
        choose: chooses some of the rows of a split; None: as many random ones as the request says.
        by_token: let each predicted token of a user's own texts count for itself.

    Raises:
        ValueError: a split does not exist, or examples cannot be used.
    """
    of_documents = isinstance(task, Documents) and task.data.is_own
    names = wanted_splits(request, task, list(task.documents.rows if of_documents else task.source.splits))
    choose = choose or partial(some_examples, limit=request.limit)
    options = {"train_file": request.train_file, "by_token": by_token}
    return task.checkpoint_splits(checkpoint.tokenizer, names, choose, **options)


def evaluate_checkpoint(
    checkpoint: Checkpoint,
    request: Request,
    *,
    batch_size: int = 64,
    max_depth: int | None = None,
    halting_threshold: float | None = None,
    progress: bool = False,
) -> dict[str, Row]:
    """Split name -> table of accuracy and halting statistics, overall and by difficulty (see `halting_table`).

    Where a calibrated model's inputs look unlike those of its calibration, a table has `unusual_inputs`, a sentence.

    Args:
        batch_size: examples in a batch, which have similar lengths.
        max_depth, halting_threshold: depth limit and threshold of this evaluation, instead of the checkpoint's.
        progress: show a progress bar for each split.
    """
    task, model, tables = requested_task(checkpoint, request), checkpoint.model, {}
    criterion = model.config.capabilities.exit_criterion
    if halting_threshold is not None and criterion not in (None, LEARNED):
        raise ValueError(
            f"halting_threshold is {halting_threshold} but the checkpoint stops by exit_criterion={criterion!r}: pass "
            "exit_threshold, or exit_criterion='learned'"
        )
    if isinstance(task, Translation):
        task.check()
    # a calibration is of models that stop as they were calibrated
    as_calibrated = max_depth is None and halting_threshold is None
    calibration = getattr(model.config, "exit_calibration", None) if as_calibrated else None
    options = {"max_depth": max_depth, "halting_threshold": halting_threshold, "progress": progress}
    for split in evaluation_splits(checkpoint, request, task):
        if isinstance(task, Translation) and is_first():
            warn_of_longer(model, split)
        examples, tables[split.name] = split.measure(model, checkpoint.tokenizer, batch_size, **options)
        if calibration and (unusual := unusual_inputs(calibration, task.judged(split, examples))):
            tables[split.name]["unusual_inputs"] = unusual
    return tables
