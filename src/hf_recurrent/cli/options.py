"""Options that several commands take."""

import inspect
import os
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..templating import near_names
from .console import hyphenated

if TYPE_CHECKING:
    from ..training.evaluate import Request

# of files with examples
SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".parquet", ".txt", ".zip", ".gz")
DTYPES = ("auto", "float32", "bfloat16", "float16")
# more of anything is a mistake
MOST = 1_000_000


def in_a_folder(path: Path | None) -> Path | None:
    """A path to write to, checked before any work: its folder can be written, or made."""
    if path is None or (path.exists() and not (path.is_file() or path.is_dir())):
        # a device or pipe is written to as it is
        return path
    above = next(place for place in path.absolute().parents if os.path.lexists(place))
    if not above.is_dir():
        raise typer.BadParameter(f"{path} would be in {above}, which is a file")
    if not os.access(above, os.W_OK | os.X_OK):
        raise typer.BadParameter(f"{path} would be in {above}, where nothing can be written")
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise typer.BadParameter(f"{str(path)!r} is not UTF-8") from error
    return path


def a_place(reference: str | None) -> str | None:
    """A path or a name on the Hub, checked before imports that take seconds: a mistyped path is refused."""
    if reference is None:
        return None
    path = Path(reference).expanduser()
    # a name on the Hub is owner/name
    is_path = reference.startswith((".", "/", "~")) or path.suffix in SUFFIXES or len(path.parts) > 2
    if is_path or (len(path.parts) == 2 and path.parent.is_dir()):
        a_file(path)
    return reference


def a_file(path: Any) -> Any:
    """A file or folder to read, checked as early; None if an option is not given."""
    if path is not None and not Path(path).exists():
        raise typer.BadParameter(f"{path} does not exist{near_names(Path(path))}")
    return path


def a_folder(path: Path | None) -> Path | None:
    """A folder to write into, checked before any work."""
    return path if path is None else in_a_folder(path / "file").parent


Folder = Annotated[Path, typer.Argument(metavar="FOLDER", exists=True, file_okay=False, help="The folder to publish.")]
RepoId = Annotated[str, typer.Argument(help="Where to: owner/name.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check and list the files; send nothing.")]
Private = Annotated[
    bool | None,
    typer.Option(
        "--private/--public", help="Visibility. If not given: private after training on your own data, else public."
    ),
]
Revision = Annotated[str | None, typer.Option(help="Branch to commit to, made from main if it does not exist.")]
Tag = Annotated[str | None, typer.Option(help="Name to give to the commit.")]
Message = Annotated[str | None, typer.Option(help="Summary of the commit.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="A parameter of the benchmark (see `benchmark list NAME`); may be repeated."
    ),
]

Checkpoint = Annotated[str, typer.Argument(callback=a_place, help="Folder or Hub id of a checkpoint.")]
# of commands that evaluate a checkpoint on examples
Splits = Annotated[list[str] | None, typer.Option(help="May be repeated; the first test split if not given.")]
Limit = Annotated[int, typer.Option(min=1, help="Use this many random examples of each split.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the choice of examples.")]
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
    str | None, typer.Option(help="Exit criterion instead of the checkpoint's: learned, convergence, ...")
]
ExitThreshold = Annotated[float | None, typer.Option(help="Its threshold; the criterion's default if not given.")]
CheckpointRevision = Annotated[str | None, typer.Option(help="Branch, tag or commit of the checkpoint.")]
Device = Annotated[str | None, typer.Option(help="Such as cpu or cuda:1; a GPU is used if there is one.")]
Dtype = Annotated[str, typer.Option(help="Precision: auto, as saved; float32, bfloat16 or float16.")]


def precision(name: str) -> str:
    """A dtype, if it is one of `DTYPES`. Raises ValueError for another one."""
    if name not in DTYPES:
        raise ValueError(f"dtype is {name!r}: expected one of {', '.join(DTYPES)}")
    return name


OWN = "Your own examples"


def own_option(text: str, *names: str) -> Any:
    """An option for a user's own examples."""
    return typer.Option(*names, help=text, rich_help_panel=OWN)


def own_file(text: str) -> Any:
    """An option for a file of a user's own examples."""
    return typer.Option(callback=a_file, help=text, rich_help_panel=OWN)


class Examples(NamedTuple):
    """The examples that a command evaluates a checkpoint on, as options: those of a benchmark, or a user's own.

    A command has all of them by `takes_examples`.
    """

    benchmark: Annotated[
        str | None,
        typer.Argument(
            callback=a_place,
            help="A benchmark (`hf-recurrent benchmark list`), or the folder or Hub id of an exported one; or your own "
            "examples: a CSV, TSV, JSON, JSONL, Parquet or text file, or a folder of text files for each label.",
        ),
    ] = None
    config: Annotated[str | None, typer.Option(help="Configuration; the default one if not given.")] = None
    set_: Settings = None
    data_dir: Annotated[str | None, typer.Option(callback=a_file, help="Folder with the authors' own files.")] = None
    dataset_name: Annotated[
        str | None, own_option("A data set of the Hub, or a folder that datasets loads, instead of a file.")
    ] = None
    dataset_revision: Annotated[str | None, own_option("Its branch, tag or commit.")] = None
    text_column: Annotated[
        list[str] | None, own_option("Column of texts; twice for pairs. That of training if not given.")
    ] = None
    label_column: Annotated[str | None, own_option("Column of labels; that of training, or label.")] = None
    label_delimiter: Annotated[str | None, own_option("Text between the labels of an example with several.")] = None
    source_column: Annotated[
        str | None, own_option("Column of an encoder-decoder's sources; as in training if unset.")
    ] = None
    target_column: Annotated[str | None, own_option("Column of its targets; as in training if unset.")] = None
    source_prefix: Annotated[str | None, own_option("Text before every source; as in training if unset.")] = None
    slice_by: Annotated[list[str] | None, own_option("Column to slice results by; may be repeated.")] = None
    max_seq_length: Annotated[int | None, own_option("Cut texts after so many tokens; as in training if unset.")] = None
    mlm_probability: Annotated[
        float | None, own_option("Share of tokens masked for a masked language model; as in training, or 0.15.")
    ] = None
    line_by_line: Annotated[
        bool | None,
        own_option(
            "Each line of a text file is a document by itself, not a part of one; as in training if unset.",
            "--line-by-line/--no-line-by-line",
        ),
    ] = None
    pack: Annotated[
        bool | None,
        own_option(
            "Join texts, and cut them into blocks, or read the beginning of each; as in training if unset.",
            "--pack/--no-pack",
        ),
    ] = None
    keep_linebreaks: Annotated[
        bool | None,
        own_option(
            "Keep the line breaks of text files, or take spaces for them; as in training if unset.",
            "--keep-linebreaks/--no-keep-linebreaks",
        ),
    ] = None
    question_column: Annotated[str | None, own_option("Column of questions; question if not given.")] = None
    context_column: Annotated[
        str | None, own_option("Column of the texts that have the answers, or that go on; context or sent1.")
    ] = None
    answer_column: Annotated[str | None, own_option("Column of answers within the context; answers.")] = None
    start_column: Annotated[str | None, own_option("Column of a text that begins every ending; sent2.")] = None
    ending_columns: Annotated[list[str] | None, own_option("Column of an ending; once for each. ending0 ...")] = None
    doc_stride: Annotated[
        int | None, own_option("Tokens of a context that its windows share; as in training, or 128.")
    ] = None
    max_answer_length: Annotated[int | None, own_option("The most tokens of an answer; as in training, or 30.")] = None
    version_2_with_negative: Annotated[
        bool | None,
        own_option(
            "Some questions have no answer; as in training if unset.",
            "--version-2-with-negative/--no-version-2-with-negative",
        ),
    ] = None
    null_score_diff_threshold: Annotated[
        float | None, own_option("How much likelier no answer must be than the best one to be given; as in training.")
    ] = None
    max_source_length: Annotated[int | None, own_option("Cut sources after so many tokens, as in training.")] = None
    metric_name: Annotated[str | None, own_option("Score of targets: exact_match or bleu.")] = None
    encoding: Annotated[str | None, own_option("Encoding of text files; utf-8 if not given.")] = None
    on_error: Annotated[str | None, own_option("raise, or skip: leave broken rows out, and count them.")] = None

    def request(
        self,
        splits: Sequence[str] | None,
        limit: int | None = None,
        *,
        own_split: str = "test",
        files: dict[str, str] | None = None,
        train_file: str | None = None,
    ) -> "Request":
        """The data to evaluate on.

        Args:
            splits: which splits; None: those for tests.
            limit: the most examples of each.
            own_split: what a file of own examples is called, if `splits` do not say.
            files: split -> further file of own examples.
            train_file: the examples of training, see `OwnExamples`.

        Raises:
            ValueError: options do not go together.
        """
        from ..benchmarks.export.settings import parse_settings
        from ..training.evaluate import Request
        from ..training.own_examples import OwnExamples, holds_examples

        place, chosen = self.benchmark, tuple(splits or ())
        if (place is None) == (self.dataset_name is None):
            given = "both are given" if place else "neither is given"
            raise ValueError(f"name a benchmark or a file of examples, or a data set with --dataset-name: {given}")
        from_file = place is not None and holds_examples(place)
        settings = {name: getattr(self, name) for name in OWN_SETTINGS}
        named = {f"{split}_file": path for split, path in (files or {}).items()}
        if place is not None and not from_file:
            given = {"dataset_revision": self.dataset_revision, **named, "train_file": train_file}
            self.refuse(place, {**settings, **given})
            return Request(place, self.config, chosen, parse_settings(self.set_ or ()), self.data_dir, limit)
        self.refuse(place or self.dataset_name, {"set": self.set_, "data_dir": self.data_dir})
        if not from_file:
            self.refuse("a data set", named)
            data_set = (self.dataset_name, self.config, self.dataset_revision)
            own = OwnExamples({}, *data_set, settings, train_file=train_file)
            return Request(splits=chosen, limit=limit, own=own)
        self.refuse("a file", {"config": self.config, "dataset_revision": self.dataset_revision})
        if len(chosen) > 1:
            raise ValueError(f"split is {' and '.join(chosen)}: {place} is a single one, give it one name")
        found = {(*chosen, own_split)[0]: place, **(files or {})}
        own = OwnExamples(found, settings=settings, train_file=train_file)
        return Request(place, splits=tuple(found), limit=limit, own=own)

    @staticmethod
    def refuse(place: str, options: dict[str, Any]) -> None:
        """Raise a ValueError for options that were given and have no meaning for a place."""
        for name, value in options.items():
            if value not in (None, [], (), {}):
                shown = (" ".join(value) if isinstance(value, list) else value) or repr(value)
                raise ValueError(f"--{name.replace('_', '-')} {shown}: this is not for {place}, leave it out")


OWN_SETTINGS = Examples._fields[Examples._fields.index("text_column") :]


def names_encoding(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose errors that ask for a file's encoding name that of its checkpoint's training."""

    @wraps(command)
    def run(checkpoint: str, *values: Any, **named: Any) -> None:
        try:
            command(checkpoint, *values, **named)
        except ValueError as error:
            from ..training.own_examples import with_encoding

            message = with_encoding(str(error), checkpoint)
            if message == str(error):
                raise
            raise ValueError(message) from error

    return run


def takes_examples(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of `Examples` in the place of its parameter `examples`."""
    signature, parameters = inspect.signature(command), []
    for parameter in signature.parameters.values():
        if parameter.name == "examples":
            parameters += [
                inspect.Parameter(
                    *(name, parameter.kind), default=Examples._field_defaults[name], annotation=annotation
                )
                for name, annotation in Examples.__annotations__.items()
            ]
        else:
            parameters.append(parameter)

    @wraps(command)
    def run(*values: Any, **named: Any) -> None:
        bound = run.__signature__.bind(*values, **named)
        bound.apply_defaults()
        given = bound.arguments
        examples = Examples(**{name: given.pop(name) for name in Examples._fields})
        try:
            command(**given, examples=examples)
        except ValueError as error:
            # those of training spell flags as recipes do
            raise ValueError(hyphenated(str(error))) from error

    run.__signature__ = signature.replace(parameters=parameters)
    return names_encoding(run)
