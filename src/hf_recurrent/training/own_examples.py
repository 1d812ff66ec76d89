"""A user's own examples for a checkpoint: files or a data set, read as the checkpoint's task needs them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..analysis.text_batches import NO_LIMIT
from ..benchmarks import list_benchmarks
from ..models.common.classification import predicts_number
from ..templating import near_names
from ..text_data.evaluation_source import (
    ChoiceEvaluationSource,
    DocumentEvaluationSource,
    EvaluationSource,
    SpanEvaluationSource,
    WordEvaluationSource,
)
from ..text_data.labels import MULTI, REGRESSION, SINGLE, TOKENS, Labels
from ..text_data.places import TEXT_FILES
from ..text_data.rows import SUFFIXES
from .arguments import DataArguments, LabelledDataArguments, LanguageDataArguments, PairArguments
from .objectives import (
    CLASSIFICATION,
    LANGUAGE_MODELLING,
    MASKED_MODELLING,
    MULTIPLE_CHOICE,
    QUESTION_ANSWERING,
    SEQ2SEQ,
    TOKEN_CLASSIFICATION,
    Objective,
)
from .question_arguments import ChoiceDataArguments, SpanDataArguments
from .recipes import RECIPE_FILE, read_mapping
from .token_arguments import MaskedDataArguments, WordDataArguments

if TYPE_CHECKING:
    from .evaluate import Checkpoint

# settings of blocks of texts
OF_BLOCKS = ("max_seq_length", "pack", "line_by_line", "keep_linebreaks")
# columns that are as in training where examples have them, unless others are named
COLUMNS = ("text_column", "label_column", "source_column", "target_column", "start_column")
# settings that are as in training, unless others are given; the length of blocks is, too, others are the tokenizer's
AS_TRAINED = (
    *("label_delimiter", "source_prefix", "pack", "line_by_line", "keep_linebreaks", "mlm_probability", "doc_stride"),
    *("max_answer_length", "version_2_with_negative", "null_score_diff_threshold"),
)
ARGUMENTS: dict[Objective, type[DataArguments]] = {
    CLASSIFICATION: LabelledDataArguments,
    SEQ2SEQ: PairArguments,
    TOKEN_CLASSIFICATION: WordDataArguments,
    LANGUAGE_MODELLING: LanguageDataArguments,
    MASKED_MODELLING: MaskedDataArguments,
    QUESTION_ANSWERING: SpanDataArguments,
    MULTIPLE_CHOICE: ChoiceDataArguments,
}
# where examples come from, if not a `TextSource`'s places
SOURCES = {
    TOKEN_CLASSIFICATION: WordEvaluationSource,
    LANGUAGE_MODELLING: DocumentEvaluationSource,
    MASKED_MODELLING: DocumentEvaluationSource,
    QUESTION_ANSWERING: SpanEvaluationSource,
    MULTIPLE_CHOICE: ChoiceEvaluationSource,
}
# models of which training tells what is known without context
WITHOUT_CONTEXT = (TOKEN_CLASSIFICATION, MASKED_MODELLING)


@dataclass(frozen=True)
class OwnExamples:
    """Where a user's examples are, and how they are read; names are those of the flags of training.

    Attributes:
        files: split -> file, or folder of texts by label; none of a data set.
        dataset_name, dataset_config_name, dataset_revision: a data set of the Hub, or a folder that `datasets` loads.
        settings: further flags, of columns, lengths and scores; None is one that is not set.
        title: what the data are called, if not by their file.
        train_file: the examples of training, by which words and tokens are known without their context.
        labelled: whether examples to classify need labels.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    dataset_name: str | None = None
    dataset_config_name: str | None = None
    dataset_revision: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    title: str | None = None
    train_file: str | None = None
    labelled: bool = True


def holds_examples(place: str) -> bool:
    """Whether a place is a file of a user's examples or a folder of texts by label, rather than a benchmark.

    Raises:
        ValueError: it looks like such a file, and there is none.
    """
    path = Path(place)
    if place in list_benchmarks():
        return False
    # an exported benchmark has a card; a README beside folders of texts is none
    texts = any(next(path.glob(f"*/**/{name}"), None) for name in TEXT_FILES)
    if path.is_file() or (path.is_dir() and (texts or not (path / "README.md").is_file())):
        return True
    if path.suffix in (*SUFFIXES, ".zip", ".gz"):
        raise ValueError(f"{place!r}: there is no such file{near_names(path)}")
    return False


def settings_of_training(name: str, objective: Objective, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """How training read a checkpoint's examples, by its `inputs` and, in the folder of a run, by its recipe."""
    settings, known = {**recipe_of_training(name), **inputs.get("settings", {})}, known_settings(objective)
    found = {key: value for key, value in settings.items() if key in COLUMNS or (key in AS_TRAINED and key in known)}
    size = settings.get("block_size", settings.get("max_seq_length")) if "block_size" in known else None
    return found if size is None else {**found, "max_seq_length": size}


def known_settings(objective: Objective) -> set[str]:
    """The settings of a user's own data for an objective; of benchmarks' documents those that all data have."""
    return {item.name for item in fields(ARGUMENTS.get(objective, DataArguments))}


def recipe_of_training(name: str) -> dict[str, Any]:
    """The recipe in the folder of a run or in a copy of it; empty for any other checkpoint."""
    try:
        return read_mapping(Path(name) / RECIPE_FILE)
    except (OSError, ValueError):
        return {}


def with_encoding(message: str, name: str) -> str:
    """A message that asks for a file's encoding, with that of the files that a checkpoint was trained on.

    It is not taken unasked: another file may have another encoding, and in latin-1 every byte is a letter.
    """
    trained = recipe_of_training(name).get("encoding")
    if trained is None or "--encoding" not in message:
        return message
    return f"{message}; {name} was trained with --encoding {trained}"


def columns_of_training(settings: Mapping[str, Any], objective: Objective) -> dict[str, Any]:
    """The columns among `settings_of_training`, by the fields of sources: several of texts, one of anything else."""
    found = {name: settings[name] for name in COLUMNS if settings.get(name)}
    texts = found.pop("text_column", ())
    texts = (texts,) if isinstance(texts, str) else tuple(texts)
    if objective is QUESTION_ANSWERING:
        names = ("question_column", "context_column", "answer_column")
        known = dict(zip(names, (*texts, found.pop("label_column", None)), strict=False))
    elif objective is MULTIPLE_CHOICE:
        known = {"context_column": next(iter(texts), None), "ending_columns": texts[1:]}
    else:
        known = {"text_columns": texts}
    return {**found, **{name: value for name, value in known.items() if value}}


def own_arguments(own: OwnExamples, checkpoint: "Checkpoint", splits: Sequence[str] = ()) -> DataArguments:
    """The arguments of a run on the examples, whose `own` has the checkpoint's labels; nothing is read yet.

    Args:
        splits: of a data set, which splits; none given: those for tests.

    Raises:
        ValueError: settings do not go together, or with the checkpoint.
    """
    objective = checkpoint.objective
    given = {name: value for name, value in own.settings.items() if value not in (None, [])}
    if objective in SOURCES and "text_column" in given:
        (column, *others) = given["text_column"]
        if others:
            names = ", ".join(given["text_column"])
            raise ValueError(f"text_column is {names}: name one column, for the model reads no pairs")
        given["text_column"] = column
    known = known_settings(objective)
    for name in given:
        if name not in known:
            raise ValueError(
                f"{name} is {given[name]!r}, but {checkpoint.name} is {objective.model_kind}: leave it out"
            )
    if own.train_file is not None and objective not in WITHOUT_CONTEXT:
        raise ValueError(
            f"train_file is {own.train_file!r}, but {checkpoint.name} is {objective.model_kind}: it tells of words or "
            "tokens without their context, leave it out"
        )
    trained = {name: value for name, value in checkpoint.settings.items() if name not in COLUMNS}
    by_line = given.get("line_by_line")
    if given.get("pack") or (by_line is not None and by_line != trained.get("line_by_line", False)):
        # lines are not packed, and whole files are
        trained = {name: value for name, value in trained.items() if name not in ("line_by_line", "pack")}
    given = {**trained, **given}
    limit = checkpoint.tokenizer.model_max_length
    if limit < NO_LIMIT:
        # as training cut them
        given.setdefault("max_source_length" if objective == SEQ2SEQ else "max_seq_length", limit)
    if "pack" in known:
        given.setdefault("max_seq_length", LanguageDataArguments.block_size)
    if objective == QUESTION_ANSWERING and "max_seq_length" in given:
        # the usual share of a window
        given.setdefault("doc_stride", min(given["max_seq_length"] // 3, SpanDataArguments.doc_stride))
    # the settings of a run on one of the files; where the examples are is said below
    first = next(iter(own.files.values()), None)
    names = ("dataset_name", "dataset_config_name", "dataset_revision")
    places = {"train_file": first} | {name: getattr(own, name) for name in names}
    arguments = ARGUMENTS[objective](**places, **given)
    source = {item.name: getattr(arguments.own, item.name) for item in fields(arguments.own)}
    source |= {"files": own.files, "known": known_labels(checkpoint), "wanted": tuple(splits), "title": own.title}
    source["trained_columns"] = columns_of_training(checkpoint.settings, objective)
    source["labelled"] = own.labelled or objective is not CLASSIFICATION
    arguments.own = SOURCES.get(objective, EvaluationSource)(**source)
    # files have no configurations
    arguments.benchmark, arguments.benchmark_config = arguments.own.place, own.dataset_config_name or ""
    return arguments


def known_labels(checkpoint: "Checkpoint") -> Labels | None:
    """The labels that a classifier answers with; None of other models."""
    config, objective = checkpoint.model.config, checkpoint.objective
    if objective not in (CLASSIFICATION, TOKEN_CLASSIFICATION):
        return None
    names = tuple(str(name) for _, name in sorted(config.id2label.items()))
    if objective is TOKEN_CLASSIFICATION:
        return Labels(TOKENS, names)
    if predicts_number(config):
        return Labels(REGRESSION)
    return Labels(MULTI if config.problem_type == MULTI else SINGLE, names)
