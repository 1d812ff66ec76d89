"""Evaluate any checkpoint of this package on any benchmark: accuracy and halting, by split and by slice."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
import yaml
from transformers import AutoTokenizer

from ..analysis.calibration import unusual_inputs
from ..analysis.halting import collect_halting, halting_table
from ..benchmarks import benchmark_info
from ..hub.checkpoint import load_whole, one_line, read_config
from ..hub.tasks import auto_class_of
from ..models.common.exit_criteria import LEARNED
from .arguments import DataArguments
from .data import EvaluationSplit, by_length, encode, info_of, kinds_of, load_config, some_examples
from .model import check_finite
from .objectives import CLASSIFICATION, LANGUAGE_MODELLING, SEQ2SEQ, Objective, objective_of
from .seq2seq_data import PairSplit, encode_pairs
from .seq2seq_evaluation import Decoding, collect_pairs, pair_table

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class Checkpoint:
    """A classifier or causal language model ready to evaluate, with its tokenizer and objective."""

    name: str
    model: Any
    tokenizer: Any
    objective: Objective


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
    """

    benchmark: str
    config: str | None = None
    splits: Sequence[str] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    data_dir: str | None = None
    limit: int | None = None


def load_checkpoint(
    name: str | os.PathLike,
    device: str | None = None,
    revision: str | None = None,
    dtype: torch.dtype | str = torch.float32,
) -> Checkpoint:
    """A classifier or language model of this package, from a folder or the Hub.

    `device`: its device; None: a GPU if there is one. `dtype`: "auto" for that of the checkpoint.

    Raises:
        ValueError: there is no such checkpoint, it is not of this package, or its weights are not finite.
    """
    name = os.fspath(name)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    check_device(device)
    check_place("checkpoint", name)
    options = {} if revision is None else {"revision": revision}
    objective = read_objective(name, options)
    model = load_whole(getattr(transformers, objective.auto_class), name, dtype=dtype, **options)
    check_finite(model, name)
    if Path(name).is_dir() and not (Path(name) / "tokenizer_config.json").is_file():
        raise ValueError(f"{name} has no tokenizer, and a benchmark is text: save one beside the model")
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, **options)
    # a damaged file makes the loader fail in whatever way it happens to
    except Exception as error:
        raise ValueError(f"the tokenizer of {name} does not load: {one_line(error)}") from error
    return Checkpoint(name, model.to(device).eval(), tokenizer, objective)


def read_objective(name: str, options: Mapping[str, Any]) -> Objective:
    """The objective of a checkpoint, by the class that its config names; a base model passes for a classifier.

    Raises:
        ValueError: there is no such checkpoint, or its architecture is not one of this package.
    """
    from huggingface_hub.errors import StrictDataclassError

    try:
        config = read_config(name, **options)
    except (OSError, ValueError, TypeError, StrictDataclassError) as error:
        raise ValueError(f"{name} does not load: {one_line(error)}") from error
    found = auto_class_of({"model_type": config.model_type, "architectures": config.architectures})
    known = {objective.auto_class: objective for objective in (LANGUAGE_MODELLING, SEQ2SEQ)}
    return known.get(found, CLASSIFICATION)


def check_device(device: str) -> None:
    """Raise a ValueError for a device that torch does not have here."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device={device!r} is not available here: {one_line(error)}") from error


def check_place(argument: str, name: str) -> None:
    """Raise a ValueError for a name that can only be that of a folder, if there is none."""
    if not Path(name).expanduser().is_dir() and (name.startswith(("/", ".", "~")) or name.count("/") > 1):
        raise ValueError(f"{argument}={name!r}: there is no such folder")


def is_published(benchmark: str) -> bool:
    """Whether a benchmark is named by a folder or repository rather than by this package's name for it."""
    return "/" in benchmark or Path(benchmark).is_dir()


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
    from huggingface_hub import DatasetCard

    given = {"parameters (--set)": request.params, "data_dir": request.data_dir}
    unused = [name for name, value in given.items() if value]
    if unused:
        raise ValueError(f"{' and '.join(unused)}: the examples of {request.benchmark} are as they were published")
    check_place("benchmark", request.benchmark)
    place = Path(request.benchmark)
    if place.is_dir() and not (place / "README.md").is_file():
        raise ValueError(f"benchmark={request.benchmark!r} has no README.md: it was not exported by this package")
    try:
        facts = DatasetCard.load(place / "README.md" if place.is_dir() else request.benchmark).data.to_dict()
        name = facts["hf_recurrent"]["benchmark"]
        configs = {entry["config_name"]: entry.get("default", False) for entry in facts["configs"]}
    except (KeyError, TypeError, AttributeError, ValueError, yaml.YAMLError) as error:
        raise ValueError(f"benchmark={request.benchmark!r} was not exported by this package") from error
    config = request.config or next((name for name, default in configs.items() if default), next(iter(configs)))
    if config not in configs:
        raise ValueError(f"config is {config!r}: {request.benchmark} has {', '.join(configs)}")
    return DataArguments(benchmark=name, benchmark_config=config)


def load_examples(request: Request, arguments: DataArguments) -> dict[str, "Dataset"]:
    """The splits to evaluate, as texts.

    Raises:
        ValueError: a parameter or split that does not exist.
    """
    if is_published(request.benchmark):
        from datasets import load_dataset

        splits = dict(load_dataset(request.benchmark, arguments.benchmark_config))
    else:
        splits = load_config(arguments, arguments.benchmark_config)
    wanted = list(request.splits) or [split for split in splits if split.startswith("test")]
    for split in wanted:
        if split not in splits:
            place = f"{request.benchmark} ({arguments.benchmark_config})"
            raise ValueError(f"split is {split!r}: {place} has {', '.join(splits)}")
    return {split: some_examples(splits[split], request.limit) for split in wanted}


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
    arguments = data_arguments(request)
    check_fit(checkpoint, arguments.benchmark, arguments.benchmark_config)
    criterion = checkpoint.model.config.capabilities.exit_criterion
    if halting_threshold is not None and criterion not in (None, LEARNED):
        raise ValueError(
            f"halting_threshold is {halting_threshold} but the checkpoint stops by exit_criterion={criterion!r}: pass "
            "exit_threshold, or exit_criterion='learned'"
        )
    columns = info_of(arguments).slice_columns
    kinds = kinds_of(arguments.benchmark, checkpoint.tokenizer)
    options = {"max_steps": max_steps, "halting_threshold": halting_threshold, "progress": progress}
    tables = {}
    for split, examples in load_examples(request, arguments).items():
        if checkpoint.objective is SEQ2SEQ:
            pairs = PairSplit(split, by_length(encode_pairs(examples, arguments, checkpoint.tokenizer)), columns)
            record = collect_pairs(
                *(checkpoint.model, checkpoint.tokenizer, pairs),
                batch_size=batch_size,
                decoding=Decoding.of(checkpoint.model),
                **options,
            )
            tables[split] = pair_table(record, arguments)
            continue
        examples = by_length(encode(examples, arguments, checkpoint.tokenizer))
        encoded = EvaluationSplit(split, examples, columns, kinds)
        batches = encoded.batches(checkpoint.tokenizer, batch_size)
        record = collect_halting(checkpoint.model, batches, slices=encoded.slices, kinds=kinds, **options)
        tables[split] = halting_table(record)
        calibration = getattr(checkpoint.model.config, "exit_calibration", None)
        unusual = None
        if calibration is not None and max_steps is None and halting_threshold is None:
            unusual = unusual_inputs(calibration, record.examples)
        if unusual is not None:
            tables[split]["unusual_inputs"] = unusual
    return tables
