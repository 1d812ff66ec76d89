"""Options that several commands take, and groups of them."""

import dataclasses
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from ..benchmarks.registry import list_benchmarks
from ..tasks import TASKS
from ..utils import mapping, near_names, require_known

if TYPE_CHECKING:
    from ..tasks.checkpoints import Request

# of files with examples
SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".parquet", ".txt", ".zip", ".gz")
# more of anything is a mistake
MOST = 1_000_000


def in_a_folder(path: Path | None) -> Path | None:
    """A path to write to, checked before any work: its folder can be written, or made."""
    if path is None or (path.exists() and not (path.is_file() or path.is_dir())):
        # a device or pipe is written to as it is
        return path
    above = next(place for place in path.absolute().parents if os.path.lexists(place))
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise typer.BadParameter(f"{path} would be in {above}, where nothing can be written")
    return path


def a_folder(path: Path | None) -> Path | None:
    """A folder to write into, checked before any work."""
    return path if path is None else in_a_folder(path / "file").parent


def a_file(path: Any) -> Any:
    """A file or folder to read, checked before imports that take seconds; None if an option is not given."""
    if path is not None and not Path(path).exists():
        raise typer.BadParameter(f"{path} does not exist{near_names(Path(path))}")
    return path


def a_place(reference: str | None) -> str | None:
    """A path or a name on the Hub, which is owner/name, checked as early."""
    path = Path(reference or "").expanduser()
    is_path = str(reference).startswith((".", "/", "~")) or path.suffix in SUFFIXES or len(path.parts) > 2
    if is_path or (len(path.parts) == 2 and path.parent.is_dir()):
        a_file(path)
    return reference


def a_benchmark(place: str | None) -> str | None:
    """A benchmark of this package, or a place as `a_place` checks it."""
    if place is not None and "/" not in place and not Path(a_place(place)).exists():
        require_known("benchmark", place, list_benchmarks())
    return place


def a_mapping(text: str | None) -> dict[str, Any]:
    """The parameters of a benchmark."""
    return mapping("--benchmark_params", text)


Folder = Annotated[Path, typer.Argument(metavar="FOLDER", exists=True, file_okay=False, help="The folder to publish.")]
BenchmarkParams = Annotated[
    str | None,
    typer.Option(
        callback=a_mapping,
        help="Parameters of the benchmark (`benchmark list NAME` names them): '{max_depth: 4, num_test: 100}'.",
    ),
]
Checkpoint = Annotated[str, typer.Argument(callback=a_place, help="Folder or Hub id of a checkpoint.")]
# of commands that evaluate a checkpoint on examples
Splits = Annotated[list[str] | None, typer.Option(help="May be repeated; the first test split if not given.")]
Limit = Annotated[int, typer.Option(min=1, help="Use this many random examples of each split.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the choice of examples.", hidden=True)]
BatchSize = Annotated[int, typer.Option(min=1, max=MOST, help="Examples in a batch.")]
Out = Annotated[
    Path | None,
    typer.Option(
        "--output", file_okay=False, callback=a_folder, help="Where to write; the checkpoint's folder if not given."
    ),
]
MaxDepth = Annotated[int | None, typer.Option(min=1, help="Depth limit instead of the checkpoint's.")]
HaltingThreshold = Annotated[
    float | None, typer.Option(min=0.0, max=1.0, help="Threshold instead of the checkpoint's.")
]
ExitCriterion = Annotated[
    Literal["learned", "convergence", "agreement", "stability", "confidence", "entropy", "probe"] | None,
    typer.Option(help="Exit criterion instead of the checkpoint's."),
]
ExitThreshold = Annotated[float | None, typer.Option(help="Its threshold; the criterion's default if not given.")]
CheckpointRevision = Annotated[str | None, typer.Option(help="Branch, tag or commit of the checkpoint.", hidden=True)]
Device = Annotated[str | None, typer.Option(help="Such as cpu or cuda:1; a GPU is used if there is one.")]
Dtype = Annotated[
    Literal["auto", "float32", "bfloat16", "float16"], typer.Option(help="Precision, by default as saved.")
]

# what commands take of the arguments of tasks' data: the rest is of training, or has a name of its own in commands
OF_BENCHMARKS = ("benchmark_config", "benchmark_params", "data_dir")
OF_DATASETS = ("dataset_config_name", "dataset_revision")
TRAINING = {
    *("task", "task_name", "train_file", "validation_file", "test_file", "train_split", "validation_split"),
    *("test_split", "validation_split_percentage", "label_list", "do_regression", "label_all_tokens", "tokenizer"),
    *("vocab_size", "benchmark", "evaluate_on", "evaluate_params", "cache_dir", "num_proc", "max_train_samples"),
    *("max_eval_samples", "max_length", "block_size", "streaming", "max_target_length", "num_merges"),
    *("segment_length", "eval_segment_length", "predict_across_segments", "source_lang", "target_lang"),
}
# the others are shown by --help_all
USUAL = {
    *("benchmark_config", "benchmark_params", "dataset_name", "text_column", "label_column", "slice_by", "encoding"),
    "on_error",
}
CHECKS = {"benchmark_params": a_mapping, "data_dir": a_file}


def data_options() -> dict[str, Any]:
    """Name -> annotation of the options by which tasks find and read examples, as training has them."""
    found: dict[str, Any] = {}
    for item in (item for arguments, _ in TASKS.values() for item in dataclasses.fields(arguments)):
        if item.name in TRAINING or item.name in found:
            continue
        kind = (get_args(item.type) if isinstance(item.type, UnionType) else (item.type,))[0]
        several = get_origin(kind) is list or item.name in ("text_column", "label_column")
        value = list[str] if several else kind if kind in (bool, int, float) else str
        option = typer.Option(help=item.metadata["help"], hidden=item.name not in USUAL, callback=CHECKS.get(item.name))
        found[item.name] = Annotated[value | None, option]
    return found


def own_file(text: str) -> Any:
    """An option for a file of a user's own examples."""
    return typer.Option(callback=a_file, help=text)


Benchmark = Annotated[
    str | None,
    typer.Argument(
        callback=a_benchmark,
        help="A benchmark (`hf-recurrent benchmark list`), or your own examples: a file (CSV, TSV, JSON, JSONL, "
        "Parquet, text), or a folder of texts for each label.",
    ),
]


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in values.items() if value not in (None, [], {})}


def refuse(place: str, options: Mapping[str, Any]) -> None:
    """Raise a ValueError for options that were given and have no meaning for a place."""
    for name, value in given(options).items():
        shown = " ".join(value) if isinstance(value, list) else value
        raise ValueError(f"--{name} {shown}: this is not for {place}, leave it out")


class Examples:
    """The examples that a command evaluates a checkpoint on: those of a benchmark, or a user's own."""

    def __init__(self, values: Mapping[str, Any]):
        self.arguments = given(values)
        self.benchmark = self.arguments.pop("benchmark", None)
        self.dataset = self.arguments.pop("dataset_name", None)

    def request(
        self,
        splits: Sequence[str] | None,
        limit: int | None = None,
        *,
        files: Mapping[str, str] | None = None,
        train_file: str | None = None,
        labelled: bool = True,
    ) -> "Request":
        """The data to evaluate on.

        Args:
            splits: which splits; None: those for tests.
            limit: the most examples of each.
            files: split -> further file of own examples.
            train_file: the examples of training.
            labelled: whether examples to classify need labels.

        Raises:
            ValueError: options do not go together.
        """
        from ..tasks.checkpoints import Request, holds_examples

        place, arguments, chosen, files = self.benchmark, dict(self.arguments), tuple(splits or ()), dict(files or {})
        if (place is None) == (self.dataset is None):
            which = "both are given" if place else "neither is given"
            raise ValueError(f"name a benchmark or a file of examples, or a data set with --dataset_name: {which}")
        of_benchmark, of_dataset = (
            {name: arguments.pop(name) for name in names if name in arguments} for names in (OF_BENCHMARKS, OF_DATASETS)
        )
        named = {f"{split}_file": path for split, path in files.items()}
        common = {"limit": limit, "train_file": train_file, "labelled": labelled, "arguments": arguments}
        if place is None:
            refuse("a data set", of_benchmark | named)
            dataset = (self.dataset, *map(of_dataset.get, OF_DATASETS))
            return Request(splits=chosen, dataset=dataset, **common)
        if not holds_examples(place):
            refuse(place, arguments | of_dataset | named | {"train_file": train_file})
            config, params, folder = map(of_benchmark.get, OF_BENCHMARKS)
            return Request(place, config, chosen, params or {}, folder, limit)
        refuse("a file", of_benchmark | of_dataset)
        if len(chosen) > 1:
            raise ValueError(f"split is {' and '.join(chosen)}: {place} is a single one, give it one name")
        name = (*chosen, "test")[0]
        if name in files:
            raise ValueError(f"split is {name!r}: {files[name]} is called so, give {place} another name")
        files = {name: place, **files}
        return Request(place, splits=tuple(files), files=files, **common)


DATA = data_options()
READING = ("encoding", "delimiter", "quoting", "on_error")
# parameter of a command -> the options in its place, and what it becomes
GROUPS: dict[str, tuple[dict[str, Any], Callable[[dict[str, Any]], Any]]] = {
    "examples": ({"benchmark": Benchmark, **DATA}, Examples),
    "unsliced_examples": (
        {"benchmark": Benchmark, **{name: kind for name, kind in DATA.items() if name != "slice_by"}},
        Examples,
    ),
    "reading": ({name: DATA[name] for name in READING}, given),
    "depth_options": (
        {
            "max_depth": MaxDepth,
            "halting_threshold": HaltingThreshold,
            "exit_criterion": ExitCriterion,
            "exit_threshold": ExitThreshold,
        },
        given,
    ),
}


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of groups in the place of its parameters that have their names."""
    signature, parameters = inspect.signature(command), []
    groups = {name: GROUPS[name] for name in signature.parameters if name in GROUPS}
    for parameter in signature.parameters.values():
        options, _ = groups.get(parameter.name, ({parameter.name: parameter.annotation}, None))
        default = None if parameter.name in groups else parameter.default
        parameters += [parameter.replace(name=name, annotation=kind, default=default) for name, kind in options.items()]

    @wraps(command)
    def run(**named: Any) -> None:
        for name, (options, made) in groups.items():
            named[name] = made({option: named.pop(option) for option in options})
        command(**named)

    run.__signature__ = signature.replace(parameters=parameters)
    return run
