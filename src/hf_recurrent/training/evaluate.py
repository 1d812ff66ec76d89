"""Evaluate any checkpoint of this package on a benchmark or own examples: accuracy and halting, by split and slice."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
import yaml

from ..analysis.calibration import unusual_inputs
from ..benchmarks import benchmark_info
from ..benchmarks.export.card import DIGEST_PREFIX
from ..benchmarks.export.parquet import rows_digest
from ..hub.checkpoint import load_whole, one_line
from ..hub.inputs import check_texts, read_inputs
from ..hub.tasks import auto_class_of
from ..inference.processes import is_first
from ..models.common.exit_criteria import LEARNED
from .arguments import DataArguments
from .data import EvaluationSplit, load_config, some_examples
from .document_checkpoint import quiet
from .language_data import TextSplit
from .model import check_finite, check_place, checkpoint_config, load_saved_tokenizer, revision_options
from .objectives import (
    CLASSIFICATION,
    LANGUAGE_MODELLING,
    LONG_DOCUMENTS,
    MASKED_MODELLING,
    MULTIPLE_CHOICE,
    QUESTION_ANSWERING,
    SEQ2SEQ,
    TOKEN_CLASSIFICATION,
    Objective,
    objective_of,
)
from .own_examples import OwnExamples, own_arguments, settings_of_training
from .question_data import ChoiceSplit, SpanSplit
from .seq2seq_data import PairSplit, require_scores
from .seq2seq_evaluation import warn_of_longer
from .text_examples import chosen_blocks, next_token_splits
from .token_examples import Choice, masked_splits, word_splits

if TYPE_CHECKING:
    from datasets import Dataset


# of models that answer for a sequence, or write one; for each of its tokens; and by a span, or one of several
OF_SEQUENCES = (CLASSIFICATION, LANGUAGE_MODELLING, SEQ2SEQ)
OF_TOKENS = (TOKEN_CLASSIFICATION, MASKED_MODELLING)
OF_QUESTIONS = (QUESTION_ANSWERING, MULTIPLE_CHOICE)
# how examples are read, of which each has its answer
SPLITS: dict[Objective, type[EvaluationSplit]] = {
    CLASSIFICATION: EvaluationSplit,
    LANGUAGE_MODELLING: EvaluationSplit,
    SEQ2SEQ: PairSplit,
    QUESTION_ANSWERING: SpanSplit,
    MULTIPLE_CHOICE: ChoiceSplit,
}


@dataclass(frozen=True)
class Checkpoint:
    """A model with its head ready to evaluate, with its tokenizer, objective, `settings_of_training`, `read_inputs`."""

    name: str
    model: Any
    tokenizer: Any
    objective: Objective
    settings: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """The data to evaluate on.

    Attributes:
        benchmark: a benchmark of this package, or the name or folder of a published one.
        config: its configuration; None: the default one.
        splits: which splits; none given: its test splits.
        params: parameters of the configuration, if examples are generated.
        data_dir: folder with the authors' own files, instead of generated examples.
        limit: evaluate at most this many random examples of each split.
        own: a user's own examples instead of a benchmark.
    """

    benchmark: str = ""
    config: str | None = None
    splits: Sequence[str] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    data_dir: str | None = None
    limit: int | None = None
    own: OwnExamples | None = None


def load_checkpoint(
    name: str | os.PathLike,
    device: str | None = None,
    revision: str | None = None,
    dtype: torch.dtype | str = torch.float32,
    objectives: Sequence[Objective] = OF_SEQUENCES,
) -> Checkpoint:
    """A model of this package with a head for one of the `objectives`, from a folder or the Hub.

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
    objective = read_objective(name, options, objectives)
    model = load_whole(getattr(transformers, objective.auto_class), name, dtype=dtype, **options)
    check_finite(model, name)
    tokenizer = load_saved_tokenizer(name, **options)
    inputs = read_inputs(name, **options)
    settings = settings_of_training(name, objective, inputs)
    return Checkpoint(name, model.to(device).eval(), tokenizer, objective, settings, inputs)


def read_objective(name: str, options: Mapping[str, Any], objectives: Sequence[Objective] = OF_SEQUENCES) -> Objective:
    """The objective of a checkpoint, by the class that its config names; a base model passes for a classifier.

    Raises:
        ValueError: there is no such checkpoint, its architecture is not one of this package, or its head is for another
            task.
    """
    config = checkpoint_config("checkpoint", name, **options)
    found = auto_class_of({"model_type": config.model_type, "architectures": config.architectures})
    known = {objective.auto_class: objective for objective in objectives}
    if found is not None and found != "AutoModel" and found not in known:
        raise ValueError(
            f"the checkpoint {name} is of {config.architectures[0]}, which this command cannot run: load it with "
            f"{found}, or pass {', or '.join(objective.model_kind for objective in known.values())}"
        )
    return known.get(found, CLASSIFICATION)


def is_published(benchmark: str) -> bool:
    """Whether a benchmark is named by a folder or repository rather than by this package's name for it."""
    return "/" in benchmark or (benchmark != "" and Path(benchmark).is_dir())


def requested_data(checkpoint: Checkpoint, request: Request) -> DataArguments:
    """The data to evaluate a checkpoint on; a user's own with its labels.

    Raises:
        ValueError: as `data_arguments`, the checkpoint does not fit them, or they are long documents.
    """
    if request.own is not None:
        own = own_arguments(request.own, checkpoint, request.splits)
        if checkpoint.objective is CLASSIFICATION:
            check_texts(checkpoint.name, checkpoint.inputs, next(iter(own.own.readings.values())).columns.texts)
        return own
    arguments = data_arguments(request)
    if arguments.benchmark == LONG_DOCUMENTS:
        raise ValueError(f"benchmark is {LONG_DOCUMENTS!r}, which is read in segments: choose another benchmark")
    check_fit(checkpoint, arguments.benchmark, arguments.benchmark_config)
    return arguments


def data_arguments(request: Request) -> DataArguments:
    """Benchmark, configuration and parameters, checked: nothing is generated or downloaded but a card.

    Raises:
        ValueError: a benchmark or configuration that does not exist, or options that do not go together.
    """
    if is_published(request.benchmark):
        return _of_card(request)
    return DataArguments(
        benchmark=request.benchmark,
        benchmark_config=request.config,
        benchmark_params=dict(request.params),
        data_dir=request.data_dir,
    )


def _of_card(request: Request) -> DataArguments:
    """Benchmark and configuration by the card that `benchmark export` or `benchmark publish` wrote."""
    check_place("benchmark", request.benchmark)
    given = {"parameters (--set)": request.params, "data_dir": request.data_dir}
    unused = [name for name, value in given.items() if value]
    if unused:
        raise ValueError(f"{' and '.join(unused)}: the examples of {request.benchmark} are as they were published")
    benchmark, default, digests = read_export(request.benchmark)
    config = default if request.config is None else request.config
    if config not in digests:
        raise ValueError(f"config is {config!r}: {request.benchmark} has {', '.join(digests)}")
    return DataArguments(benchmark=benchmark, benchmark_config=config)


def read_export(place: str) -> tuple[str, str, dict[str, str]]:
    """An exported benchmark by its card: its name here, its default configuration, and digests of examples by these.

    Raises:
        ValueError: there is no card, or it is not one of this package's exports.
    """
    from huggingface_hub import DatasetCard

    folder = Path(place)
    if folder.is_dir() and not (folder / "README.md").is_file():
        raise ValueError(f"benchmark={place!r} has no README.md: it was not exported by this package")
    try:
        facts = DatasetCard.load(folder / "README.md" if folder.is_dir() else place).data.to_dict()
        own = facts["hf_recurrent"]
        defaults = [entry["config_name"] for entry in facts["configs"] if entry.get("default", False)]
        digests = {name: entry["digest"] for name, entry in own["configs"].items()}
        return own["benchmark"], next(iter([*defaults, *digests])), digests
    except (KeyError, TypeError, AttributeError, ValueError, StopIteration, yaml.YAMLError) as error:
        raise ValueError(f"benchmark={place!r} was not exported by this package") from error


def load_export(place: str, config: str) -> dict[str, "Dataset"]:
    """The splits of a configuration of an exported benchmark.

    Raises:
        ValueError: a file is damaged, or the examples have not the card's digest.
    """
    from datasets import load_dataset

    *_, digests = read_export(place)
    try:
        # the error says what it logs
        with quiet("datasets", logging.CRITICAL):
            splits = dict(load_dataset(place, config))
        label = next(iter(splits.values())).features.get("label")
        digest = DIGEST_PREFIX + rows_digest(splits, getattr(label, "names", None) or [])
    # a damaged file makes the loader fail in whatever way it happens to
    except Exception as error:
        reason = one_line(error.__cause__ or error)
        raise ValueError(
            f"benchmark={place!r}: {config!r} does not load ({reason}): export or download it again"
        ) from error
    if digest != digests[config]:
        raise ValueError(
            f"benchmark={place!r}: the examples of {config!r} do not have the digest in its README.md, so they are not "
            "those that were exported: export or download it again"
        )
    return splits


def load_examples(request: Request, arguments: DataArguments) -> dict[str, "Dataset"]:
    """The splits to evaluate, as texts.

    Raises:
        ValueError: a parameter or split that does not exist, or published examples that are not as they should be.
    """
    if request.own is None and is_published(request.benchmark):
        splits = load_export(request.benchmark, arguments.benchmark_config)
    else:
        splits = load_config(arguments, arguments.benchmark_config)
    wanted = wanted_splits(request, arguments, list(splits))
    return {split: some_examples(splits[split], request.limit) for split in wanted}


def wanted_splits(request: Request, arguments: DataArguments, found: Sequence[str]) -> list[str]:
    """The splits of those `found` that a request names or, without names, those for tests.

    Raises:
        ValueError: one does not exist.
    """
    for split in request.splits:
        if split not in found:
            place = f"{request.benchmark} ({arguments.benchmark_config})"
            raise ValueError(f"split is {split!r}: {place} has {', '.join(found)}")
    tests = list(found) if request.own is not None else [split for split in found if split.startswith("test")]
    return list(request.splits) or tests


def reads_texts(checkpoint: Checkpoint, request: Request) -> bool:
    """Whether a causal language model is to predict all tokens of a user's own texts."""
    return checkpoint.objective is LANGUAGE_MODELLING and request.own is not None


def evaluation_splits(
    checkpoint: Checkpoint,
    request: Request,
    arguments: DataArguments,
    choose: Choice | None = None,
    by_token: bool = False,
) -> Iterator[EvaluationSplit | TextSplit]:
    """The splits to evaluate a checkpoint on, encoded.

    Args:
        choose: chooses some of the rows of a split; None: as many random ones as the request says.
        by_token: let each predicted token of own texts count for itself.

    Raises:
        ValueError: as `load_examples`.
    """
    choose = choose or partial(some_examples, limit=request.limit)
    objective, tokenizer = checkpoint.objective, checkpoint.tokenizer
    if objective is MASKED_MODELLING or reads_texts(checkpoint, request):
        names = wanted_splits(request, arguments, list(arguments.own.places))
        blocks = chosen_blocks(arguments, tokenizer, names, choose)
        if objective is MASKED_MODELLING:
            yield from masked_splits(arguments, tokenizer, blocks, request.own.train_file)
        elif by_token:
            yield from next_token_splits(arguments, blocks)
        else:
            yield from (TextSplit(name, rows, arguments.pack, arguments.block_size) for name, rows in blocks)
        return
    examples = ((name, choose(rows)) for name, rows in load_examples(request, arguments).items())
    if objective is TOKEN_CLASSIFICATION:
        yield from word_splits(arguments, tokenizer, examples, request.own.train_file)
    else:
        yield from (SPLITS[objective].of(name, rows, arguments, tokenizer) for name, rows in examples)


def check_fit(checkpoint: Checkpoint, benchmark: str, config: str | None = None) -> None:
    """Raise a ValueError where a checkpoint cannot answer a benchmark: another task or labels, or unknown words."""
    info, objective = benchmark_info(benchmark, config), objective_of(benchmark)
    if benchmark_info(benchmark).label_names != info.label_names:
        # its configs have labels of their own
        benchmark = f"{benchmark} ({config})"
    if objective is not checkpoint.objective:
        raise ValueError(
            f"{checkpoint.name} is {checkpoint.objective.model_kind}, but {benchmark} {objective.data_kind}: evaluate "
            f"an {objective.auto_class} on it"
        )
    labels = [label for _, label in sorted(checkpoint.model.config.id2label.items())]
    if objective is CLASSIFICATION and labels != list(info.label_names):
        raise ValueError(
            f"{checkpoint.name} answers with {', '.join(map(str, labels))}, but the labels of {benchmark} are "
            f"{', '.join(info.label_names)}: evaluate it on the benchmark it was trained for"
        )
    unknown = checkpoint.tokenizer.unk_token_id
    missing = [word for word in info.vocabulary if unknown in checkpoint.tokenizer(word)["input_ids"]]
    if unknown is not None and missing:
        raise ValueError(f"the tokenizer of {checkpoint.name} does not know {' '.join(missing)}, words of {benchmark}")


def evaluate_checkpoint(
    checkpoint: Checkpoint,
    request: Request,
    *,
    batch_size: int = 64,
    max_depth: int | None = None,
    halting_threshold: float | None = None,
    progress: bool = False,
) -> dict[str, dict[str, Any]]:
    """Split name -> table of accuracy and halting statistics, overall and by difficulty (see `halting_table`).

    Where a calibrated model's inputs look unlike those of its calibration, a table has `unusual_inputs`, a sentence.

    Args:
        batch_size: examples in a batch, which have similar lengths.
        max_depth, halting_threshold: depth limit and threshold of this evaluation, instead of the checkpoint's.
        progress: show a progress bar for each split.
    """
    arguments = requested_data(checkpoint, request)
    criterion = checkpoint.model.config.capabilities.exit_criterion
    if halting_threshold is not None and criterion not in (None, LEARNED):
        raise ValueError(
            f"halting_threshold is {halting_threshold} but the checkpoint stops by exit_criterion={criterion!r}: pass "
            "exit_threshold, or exit_criterion='learned'"
        )
    if checkpoint.objective is SEQ2SEQ:
        require_scores(arguments)
    options = {"max_depth": max_depth, "halting_threshold": halting_threshold}
    config, tables = checkpoint.model.config, {}
    for split in evaluation_splits(checkpoint, request, arguments):
        if isinstance(split, PairSplit) and is_first():
            warn_of_longer(checkpoint.model, split)
        examples, table = split.measure(
            checkpoint.model, checkpoint.tokenizer, batch_size, **options, progress=progress
        )
        calibration = getattr(config, "exit_calibration", None)
        # it is of models that stop as they were calibrated
        if calibration is not None and max_depth is None and halting_threshold is None:
            unusual = unusual_inputs(calibration, split.judged(examples))
            table |= {} if unusual is None else {"unusual_inputs": unusual}
        tables[split.name] = table
    return tables
