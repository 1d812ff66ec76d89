"""Evaluate any checkpoint of this package on a benchmark or own examples: accuracy and halting, by split and slice."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import torch
import transformers
import yaml

from ..analysis.calibration import unusual_inputs
from ..analysis.halting import collect_halting, halting_table
from ..benchmarks import benchmark_info
from ..benchmarks.export.card import DIGEST_PREFIX
from ..benchmarks.export.parquet import rows_digest
from ..hub.checkpoint import load_whole, one_line
from ..hub.inputs import check_texts, read_inputs
from ..hub.tasks import auto_class_of
from ..inference.processes import is_first
from ..models.common.exit_criteria import LEARNED
from .arguments import DataArguments, LanguageDataArguments
from .data import EvaluationSplit, by_length, encode, kinds_of, load_config, some_examples, split_place
from .document_checkpoint import quiet
from .evaluation import further_scores
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
from .question_data import question_split
from .question_evaluation import evaluate_choices, evaluate_spans
from .seq2seq_data import PairSplit, encode_pairs
from .seq2seq_evaluation import Decoding, collect_pairs, pair_table, require_scores
from .text_examples import NextTokenSplit, chosen_blocks, evaluate_texts, next_token_splits
from .token_data import TokenSplit
from .token_evaluation import evaluate_tokens
from .token_examples import Choice, masked_splits, word_splits

if TYPE_CHECKING:
    from datasets import Dataset


# of models that answer for a sequence, or write one; for each of its tokens; and by a span, or one of several
OF_SEQUENCES = (CLASSIFICATION, LANGUAGE_MODELLING, SEQ2SEQ)
OF_TOKENS = (TOKEN_CLASSIFICATION, MASKED_MODELLING)
OF_QUESTIONS = (QUESTION_ANSWERING, MULTIPLE_CHOICE)


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
    exported = read_export(request.benchmark)
    config = exported.default_config if request.config is None else request.config
    if config not in exported.digests:
        raise ValueError(f"config is {config!r}: {request.benchmark} has {', '.join(exported.digests)}")
    return DataArguments(benchmark=exported.benchmark, benchmark_config=config)


class Export(NamedTuple):
    """An exported benchmark by its card: its name here, and the digest of the examples of each configuration."""

    benchmark: str
    digests: dict[str, str]
    default_config: str


def read_export(place: str) -> Export:
    """The card of a folder or Hub id.

    Raises:
        ValueError: there is none, or it is not one of this package's exports.
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
        return Export(own["benchmark"], digests, next(iter([*defaults, *digests])))
    except (KeyError, TypeError, AttributeError, ValueError, StopIteration, yaml.YAMLError) as error:
        raise ValueError(f"benchmark={place!r} was not exported by this package") from error


def load_export(place: str, config: str) -> dict[str, "Dataset"]:
    """The splits of a configuration of an exported benchmark.

    Raises:
        ValueError: a file is damaged, or the examples have other labels than the benchmark, or not the card's digest.
    """
    from datasets import load_dataset

    exported = read_export(place)
    remedy = "export or download it again"
    try:
        # the error says what it logs
        with quiet("datasets", logging.CRITICAL):
            splits = dict(load_dataset(place, config))
    # a damaged file makes the loader fail in whatever way it happens to
    except Exception as error:
        reason = one_line(error.__cause__ or error)
        raise ValueError(f"benchmark={place!r}: {config!r} does not load ({reason}): {remedy}") from error
    labels = list(benchmark_info(exported.benchmark, config).label_names)
    for name, rows in splits.items():
        found = list(getattr(rows.features.get("label"), "names", None) or [])
        if found != labels:
            raise ValueError(
                f"benchmark={place!r}: the labels of its split {name} are {', '.join(found) or 'none'}, but those of "
                f"{exported.benchmark} are {', '.join(labels) or 'none'}: {remedy}"
            )
    digest = DIGEST_PREFIX + rows_digest(splits, labels)
    if digest != exported.digests[config]:
        raise ValueError(
            f"benchmark={place!r}: the examples of {config!r} do not have the digest in its README.md, so they are not "
            f"those that were exported: {remedy}"
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


def load_token_splits(
    checkpoint: Checkpoint, request: Request, arguments: DataArguments, choose: Choice
) -> Iterator[TokenSplit | NextTokenSplit]:
    """The splits to evaluate a model on that answers for each token, encoded.

    Args:
        choose: chooses some of the rows of a split.

    Raises:
        ValueError: as `load_examples`.
    """
    tokenizer, train_file = checkpoint.tokenizer, request.own.train_file
    if checkpoint.objective in (MASKED_MODELLING, LANGUAGE_MODELLING):
        choices = dict.fromkeys(wanted_splits(request, arguments, list(arguments.own.places)), choose)
        if checkpoint.objective is LANGUAGE_MODELLING:
            return next_token_splits(arguments, tokenizer, choices)
        return masked_splits(arguments, tokenizer, choices, train_file)
    found = load_examples(replace(request, limit=None), arguments)
    return word_splits(arguments, tokenizer, {name: choose(rows) for name, rows in found.items()}, train_file)


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
    max_steps: int | None = None,
    halting_threshold: float | None = None,
    progress: bool = False,
) -> dict[str, dict[str, Any]]:
    """Split name -> table of accuracy and halting statistics, overall and by difficulty (see `halting_table`).

    Where a calibrated model's inputs look unlike those of its calibration, a table has `unusual_inputs`, a sentence.

    Args:
        batch_size: examples in a batch, which have similar lengths.
        max_steps, halting_threshold: depth limit and threshold of this evaluation, instead of the checkpoint's.
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
    options = {"max_steps": max_steps, "halting_threshold": halting_threshold, "progress": progress}
    if checkpoint.objective in OF_TOKENS:
        return evaluate_token_splits(checkpoint, request, arguments, batch_size, options)
    if reads_texts(checkpoint, request):
        return evaluate_text_splits(checkpoint, request, arguments, batch_size, options)
    if checkpoint.objective in OF_QUESTIONS:
        return evaluate_question_splits(checkpoint, request, arguments, batch_size, options)
    columns = arguments.info.slice_columns
    kinds = kinds_of(arguments.benchmark, checkpoint.tokenizer)
    labels = None if arguments.own is None else arguments.own.labels
    tables = {}
    for split, examples in load_examples(request, arguments).items():
        place = split_place(split, arguments)
        if checkpoint.objective is SEQ2SEQ:
            pairs = PairSplit(split, by_length(encode_pairs(examples, arguments, checkpoint.tokenizer, place)), columns)
            decoding = Decoding.of(checkpoint.model)
            if is_first():
                decoding.warn_of_longer(pairs)
            record = collect_pairs(
                *(checkpoint.model, checkpoint.tokenizer, pairs),
                batch_size=batch_size,
                decoding=decoding,
                **options,
            )
            tables[split] = pair_table(record, arguments)
            continue
        examples = by_length(encode(examples, arguments, checkpoint.tokenizer, place))
        encoded = EvaluationSplit(split, examples, columns, kinds)
        batches = encoded.batches(checkpoint.tokenizer, batch_size)
        record = collect_halting(checkpoint.model, batches, slices=encoded.slices, kinds=kinds, **options)
        tables[split] = halting_table(record)
        if labels is not None:
            tables[split] |= further_scores(record, labels)
        add_unusual_inputs(tables[split], checkpoint.model.config, record.examples, options)
    return tables


def evaluate_token_splits(
    checkpoint: Checkpoint, request: Request, arguments: DataArguments, batch_size: int, options: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """`evaluate_checkpoint` of a model that answers for each token."""
    tables = {}
    choose = partial(some_examples, limit=request.limit)
    for split in load_token_splits(checkpoint, request, arguments, choose):
        record, table = evaluate_tokens(checkpoint.model, checkpoint.tokenizer, split, batch_size, **options)
        # a promise is of whole sequences, and the steps that it compares are of all tokens
        confidences = split.by_example(record.examples["confidence"].to_numpy())
        examples = pd.DataFrame({"confidence": [np.mean(own) for own in confidences if own]})
        add_unusual_inputs(table, checkpoint.model.config, examples, options)
        tables[split.name] = table
    return tables


def evaluate_text_splits(
    checkpoint: Checkpoint,
    request: Request,
    arguments: LanguageDataArguments,
    batch_size: int,
    options: Mapping[str, Any],
) -> dict[str, dict[str, Any]]:
    """Split name -> losses of a causal language model on own texts, see `text_table`."""
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    choose = partial(some_examples, limit=request.limit)
    names = wanted_splits(request, arguments, list(arguments.own.places))
    tables = {}
    for name, rows in chosen_blocks(arguments, tokenizer, dict.fromkeys(names, choose)):
        split = TextSplit(name, rows, arguments.pack)
        found, tables[name] = evaluate_texts(model, tokenizer, split, arguments.block_size, batch_size, **options)
        examples = pd.DataFrame({"confidence": found.confidence}).dropna()
        add_unusual_inputs(tables[name], model.config, examples, options)
    return tables


def evaluate_question_splits(
    checkpoint: Checkpoint, request: Request, arguments: DataArguments, batch_size: int, options: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """`evaluate_checkpoint` of a model that answers questions."""
    measure = evaluate_spans if checkpoint.objective is QUESTION_ANSWERING else evaluate_choices
    tables = {}
    for name, rows in load_examples(request, arguments).items():
        split = question_split(name, rows, arguments, checkpoint.tokenizer)
        record, tables[name] = measure(checkpoint.model, checkpoint.tokenizer, split, batch_size, **options)
        add_unusual_inputs(tables[name], checkpoint.model.config, record.examples, options)
    return tables


def add_unusual_inputs(table: dict[str, Any], config: Any, examples: pd.DataFrame, options: Mapping[str, Any]) -> None:
    """Let a table say how inputs differ from those of the model's calibration, if it stops as it was calibrated."""
    calibration = getattr(config, "exit_calibration", None)
    if calibration is None or options["max_steps"] is not None or options["halting_threshold"] is not None:
        return
    unusual = unusual_inputs(calibration, examples)
    if unusual is not None:
        table["unusual_inputs"] = unusual
