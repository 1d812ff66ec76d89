"""The model and tokenizer of a recipe."""

import dataclasses
import os
import reprlib
import shlex
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoTokenizer, PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig

from ..benchmarks import build_tokenizer
from ..benchmarks.long_documents.tokenizers import embedding_rows, num_token_ids
from ..convert import from_pretrained_recurrent
from ..convert.pretrained import ORIGINALS, original_of, our_config
from ..hub.checkpoint import one_line, read_config, root_cause
from ..models.common.exit_criteria import LEARNED, check_whole
from ..registry import ARCHITECTURES
from ..text_data.labels import REGRESSION, SINGLE, TOKENS, listed
from ..text_data.tokenizers import TRAINED_KINDS, num_token_types, train_tokenizer
from ..text_data.tokenizers import load_tokenizer as load_foreign_tokenizer
from .arguments import BenchmarkArguments, DataArguments, ModelArguments
from .objectives import CLASSIFICATION, MULTIPLE_CHOICE, QUESTION_ANSWERING, SEQ2SEQ, Objective, objective_on
from .recipes import near_matches
from .run_folder import checkpoints


def load_tokenizer(arguments: ModelArguments, data: DataArguments, frame: str = "classification"):
    """The tokenizer of the checkpoint to fine-tune, of the benchmark, or one for a user's own texts.

    Args:
        frame: what stands around own texts, see `train_tokenizer`.

    Raises:
        ValueError: it cannot be had, or a checkpoint is to take another one than its own.
    """
    name = arguments.model_name_or_path
    if name is not None:
        require_no_tokenizer(name, tokenizer=data.tokenizer)
        if is_original(name, **arguments.hub_options):
            # transformers' ALBERT has no types of tokens by default
            return load_foreign_tokenizer(name, frame=frame, **arguments.hub_options)
        return load_saved_tokenizer(name, **arguments.hub_options)
    if data.own is None:
        return build_tokenizer(data.benchmark, data.benchmark_config)
    if data.tokenizer not in (None, *TRAINED_KINDS):
        return load_foreign_tokenizer(data.tokenizer, frame=frame, token=arguments.token)
    train = some_texts(data)
    return train_tokenizer(data.tokenizer or "bpe", train, data.vocab_size, frame=frame)


def require_no_tokenizer(name: str, **settings: Any) -> None:
    """Raise a ValueError for settings of another tokenizer than that of the checkpoint to fine-tune."""
    for setting, value in settings.items():
        if value is not None:
            raise ValueError(f"{setting} is {value!r}, but {name} has its own tokenizer: leave it out")


def some_texts(data: DataArguments) -> Iterator[str]:
    """All texts of the training examples, which may be lists of words."""
    examples = data.own.splits["train"]
    for batch in examples.select_columns(list(data.info.text_columns)).iter(1000):
        for texts in batch.values():
            yield from (text if isinstance(text, str) else " ".join(text) for text in texts)


def load_saved_tokenizer(name: str, **options: Any) -> Any:
    """The tokenizer of a checkpoint.

    Raises:
        ValueError: it has none, or a damaged one.
    """
    if Path(name).is_dir() and not (Path(name) / "tokenizer_config.json").is_file():
        raise ValueError(f"{name} has no tokenizer, and a benchmark is text: save one beside the model")
    try:
        return AutoTokenizer.from_pretrained(name, **options)
    # a damaged file makes the loader fail in whatever way it happens to
    except Exception as error:
        raise ValueError(f"the tokenizer of {name} does not load: {one_line(error)}") from error


def check_place(argument: str, name: str) -> None:
    """Raise a ValueError for a name that must be that of a folder, if there is none.

    It is no repository's, or the folder that it would be in is here.
    """
    if not name.strip():
        raise ValueError(f"{argument} is {name!r}: name a folder, or a repository on the Hub")
    if os.path.isdir(os.path.expanduser(name)):
        return
    parent = Path(name).parent
    if name.startswith(("/", ".", "~")) or name.count("/") > 1 or (name.count("/") == 1 and parent.is_dir()):
        found = [str(path) for path in parent.glob("*") if path.is_dir()] if parent.is_dir() else []
        raise ValueError(f"{argument}={name!r}: there is no such folder{near_matches(name, found)}")


def revision_options(name: str, revision: str | None) -> dict[str, str]:
    """Options of loaders for the revision of a checkpoint.

    Raises:
        ValueError: the checkpoint is a local folder, which has no revisions.
    """
    if revision is not None and Path(name).is_dir():
        raise ValueError(f"revision is {revision!r}, but {name} is a local folder, which has none: leave it out")
    return {} if revision is None else {"revision": revision}


def checkpoint_config(
    argument: str, name: str, read: Callable[..., PreTrainedConfig] = read_config, **options: Any
) -> PreTrainedConfig:
    """The config of a checkpoint of this package, or of what `read` takes; `argument` is what messages call it.

    Raises:
        ValueError: there is no such checkpoint, or its architecture is not one of this package.
    """
    check_place(argument, name)
    check_has_config(argument, name)
    try:
        return read(name, **options)
    # as above
    except Exception as error:
        raise ValueError(f"{argument} {name} does not load: {one_line(root_cause(error))}") from error


def check_has_config(argument: str, name: str) -> None:
    """Raise a ValueError for a folder that holds no model, as that of a run that is not finished."""
    folder = Path(name)
    if not folder.is_dir() or (folder / "config.json").is_file():
        return
    saved = checkpoints(folder)
    remedy = (
        f"its run is not finished, so run it again, or name {saved[0]}" if saved else "name the folder of a checkpoint"
    )
    raise ValueError(f"{argument} {name} does not load: it has no config.json; {remedy}")


def is_original(name: str, **options: Any) -> bool:
    """Whether a checkpoint is of another package, and of an architecture that `from_pretrained_recurrent` takes."""
    return PreTrainedConfig.get_config_dict(name, **options)[0].get("model_type") in [*ORIGINALS]


def read_starting_config(name: str, **options: Any) -> PreTrainedConfig:
    """`read_config` of a checkpoint to fine-tune, or our config of one that `from_pretrained_recurrent` takes."""
    if not is_original(name, **options):
        return read_config(name, **options)
    theirs, fields = PreTrainedConfig.get_config_dict(name, **options)
    return our_config(original_of(theirs["model_type"], name), theirs, fields)[0]


def check_config_fields(config_class: type, fields: dict[str, Any]) -> None:
    """Raise a ValueError for a name that is not a field: transformers would store it without a use."""
    known = [field.name for field in dataclasses.fields(config_class)]
    for name in fields:
        if name not in known:
            raise ValueError(f"config: {config_class.__name__} has no field {name!r}{near_matches(name, known)}")


def label_fields(data: BenchmarkArguments) -> dict[str, Any]:
    """Fields of a classifier's config that follow from the labels."""
    names, fields = data.info.label_names, {}
    if names:
        fields = {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
    labels = None if data.own is None else data.own.labels
    if labels is None:
        return {**fields, "problem_type": SINGLE} if names and objective_on(data) is CLASSIFICATION else fields
    if labels.problem_type == REGRESSION:
        fields = {"num_labels": 1}
    return {**fields, "problem_type": None if labels.problem_type == TOKENS else labels.problem_type}


def warn_of_other_labels(name: str, config: PreTrainedConfig, data: BenchmarkArguments) -> None:
    """Warn where the classes of own data are not those, or not in the order, that a checkpoint's classifier has."""
    names, saved = data.info.label_names, tuple(str(label) for _, label in sorted(config.id2label.items()))
    unnamed = tuple(f"LABEL_{number}" for number in range(len(saved)))
    if len(names) != len(saved) or saved in (names, unnamed):
        return
    remedy = f"; --label_list {shlex.join(saved)} keeps their order" if set(names) == set(saved) else ""
    warnings.warn(
        f"model_name_or_path {name} has learned the labels {listed(saved)}, and the data have {listed(names)}: its "
        f"classifier starts from weights for others{remedy}",
        stacklevel=2,
    )


def reads_joint_pairs(arguments: ModelArguments, data: BenchmarkArguments) -> bool:
    """Whether a model reads a user's own pairs of texts as one sequence each, in which types tell them apart."""
    if data.own is None or objective_on(data) not in (CLASSIFICATION, QUESTION_ANSWERING, MULTIPLE_CHOICE):
        return False
    return len(data.info.text_columns) == 2 and arguments.config.get("pair_encoding", "joint") == "joint"


def make_config(arguments: ModelArguments, data: BenchmarkArguments, tokenizer: Any | None) -> PreTrainedConfig:
    """The config of the model: the recipe's fields, over those that follow from tokenizer, if given, and data.

    Without tokenizer, a user's own data are not read.

    Raises:
        ValueError: a field is unknown or has a bad value, or there is no such model.
    """
    objective = objective_on(data)
    fields: dict[str, Any] = {} if tokenizer is None and data.own is not None else label_fields(data)
    if tokenizer is not None:
        fields |= {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    if tokenizer is not None and arguments.model_type is not None:
        fields["vocab_size"] = embedding_rows(tokenizer)
        if reads_joint_pairs(arguments, data):
            fields["type_vocab_size"] = num_token_types(tokenizer)
    if objective is SEQ2SEQ:
        fields["is_encoder_decoder"] = True
    fields |= arguments.config
    if arguments.model_name_or_path is not None:
        name = arguments.model_name_or_path
        place = ("model_name_or_path", name, read_starting_config)
        saved = checkpoint_config(*place, **arguments.hub_options)
        check_config_fields(type(saved), arguments.config)
        if tokenizer is not None and (ids := num_token_ids(tokenizer)) > saved.vocab_size:
            raise ValueError(
                f"model_name_or_path is {name!r}: its tokenizer has {ids:,} tokens and its model embeddings of "
                f"{saved.vocab_size:,} (vocab_size): resize them with model.resize_token_embeddings, and save the model"
            )
        if tokenizer is not None and data.own is not None and data.own.labels is not None:
            warn_of_other_labels(name, saved, data)
        return checkpoint_config(*place, **arguments.hub_options, **fields)
    family = ARCHITECTURES[arguments.model_type]
    if objective.auto_class not in family.heads:
        able = [name for name, other in ARCHITECTURES.items() if objective.auto_class in other.heads]
        raise ValueError(
            f"model_type is {arguments.model_type!r}, which has no {objective.auto_class} for {data.benchmark}: "
            f"expected one of {', '.join(able)}"
        )
    config_class = family.config_class
    check_config_fields(config_class, arguments.config)
    try:
        return config_class(**fields)
    # a value of any type goes through the checks of transformers, too
    except Exception as error:
        raise ValueError(f"config is {reprlib.repr(arguments.config)}: {one_line(root_cause(error))}") from error


def check_model(arguments: ModelArguments, data: BenchmarkArguments) -> PreTrainedConfig:
    """The config of the model without what follows from its tokenizer, after making such a model without weights.

    Raises:
        ValueError: there can be no such model, or none with this implementation of attention.
    """
    config = make_config(arguments, data, None)
    with torch.device("meta"):
        new_model(arguments, config, objective_on(data))
    return config


def check_evaluation_depth(config: PreTrainedConfig, depth: int | None) -> None:
    """Raise a ValueError if the model's number of depth steps cannot be chosen for its evaluation."""
    check_whole(depth, "evaluation_depth")
    capabilities = config.capabilities
    learned = capabilities.exit_criterion == LEARNED and capabilities.halts
    if depth is None or (capabilities.shared_block and not learned):
        return
    halting = f"which halts by itself (halting={capabilities.halting!r})"
    reason = halting if capabilities.halts else "whose layers are not shared"
    raise ValueError(
        f"evaluation_depth is {depth}, but the model is of type {config.model_type!r}, {reason}: leave it out, or "
        "train one that repeats a step a fixed number of times (config: {halting: none})"
    )


def make_model(arguments: ModelArguments, config: PreTrainedConfig, objective: Objective) -> PreTrainedModel:
    """A new model, initialised from the global random state, or the checkpoint to fine-tune; its weights are finite.

    Raises:
        ValueError: the checkpoint is damaged or does not fit, or there is no such implementation of attention.
    """
    name = arguments.model_name_or_path
    model = new_model(arguments, config, objective) if name is None else pretrained(arguments, config, objective)
    check_finite(model, name or "the initial weights")
    return model


def new_model(arguments: ModelArguments, config: PreTrainedConfig, objective: Objective) -> PreTrainedModel:
    """A new model.

    Raises:
        ValueError: there is no such implementation of attention here.
    """
    model_class = ARCHITECTURES[config.model_type].model_class(objective.auto_class)
    try:
        return model_class._from_config(config, **attention(arguments))
    except (ValueError, ImportError) as error:
        if arguments.attn_implementation is None:
            raise
        raise ValueError(f"attn_implementation is {arguments.attn_implementation!r}: {one_line(error)}") from error


def pretrained(arguments: ModelArguments, config: PreTrainedConfig, objective: Objective) -> PreTrainedModel:
    """The checkpoint to fine-tune.

    Raises:
        ValueError: it is damaged, or its weights do not fit the config.
    """
    name, load = arguments.model_name_or_path, getattr(transformers, objective.auto_class).from_pretrained
    try:
        if is_original(name, **arguments.hub_options):
            load = partial(from_pretrained_recurrent, auto_class=objective.auto_class)
        options = {**attention(arguments), **arguments.hub_options}
        options["ignore_mismatched_sizes"] = arguments.ignore_mismatched_sizes
        model, report = load(name, config=config, dtype=torch.float32, output_loading_info=True, **options)
    # as above
    except Exception as error:
        raise ValueError(f"model_name_or_path is {name!r}, which does not load: {one_line(error)}") from error
    if arguments.freeze_base_model:
        freeze(model, {*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])})
    return model


def freeze(model: PreTrainedModel, new: set[str]) -> None:
    """Train of a model's parameters the `new` ones alone, and those of its head.

    Raises:
        ValueError: there are none.
    """
    for name, parameter in model.named_parameters():
        of_head = not name.startswith(f"{model.base_model_prefix}.")
        parameter.requires_grad_(of_head or name in new)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError(
            f"freeze_base_model is true: {type(model).__name__} has no weights of its own, and nothing is left to "
            "train; leave it out"
        )


def attention(arguments: ModelArguments) -> dict[str, str]:
    """The implementation of attention that a recipe asks for, as an argument of loaders."""
    name = arguments.attn_implementation
    return {} if name is None else {"attn_implementation": name}


def forget_begin(model: PreTrainedModel) -> None:
    """Let `generate` ask a language model for a prompt instead of beginning with a token that no text began with.

    An end-of-text token that is the begin-of-text token, too, stands before documents, and is kept.
    """
    if not model.can_generate() or model.config.is_encoder_decoder:
        return
    settings = model.generation_config
    ends = settings.eos_token_id if isinstance(settings.eos_token_id, list) else [settings.eos_token_id]
    if settings.bos_token_id not in ends:
        settings.bos_token_id = None


def load_trained(folder: str | Path, device: torch.device, objective: Objective) -> PreTrainedModel:
    """A checkpoint of this package as it would be loaded by anyone, ready to evaluate."""
    model = getattr(transformers, objective.auto_class).from_pretrained(folder, dtype=torch.float32)
    check_finite(model, str(folder))
    return model.to(device).eval()


def first_not_finite(model: torch.nn.Module) -> str | None:
    """Name of a parameter that holds NaN or infinity, None if there is none; of a sharded one this process's shard."""
    values = ((name, parameter.detach()) for name, parameter in model.named_parameters())
    shards = ((name, value.to_local() if hasattr(value, "to_local") else value) for name, value in values)
    parameters = [(name, value) for name, value in shards if value.numel()]
    finite = torch.stack([value.isfinite().all() for _, value in parameters])
    # one transfer for all parameters
    bad = (~finite).nonzero().flatten().tolist()
    return parameters[bad[0]][0] if bad else None


def check_finite(model: torch.nn.Module, source: str) -> None:
    """Raise a ValueError that names a parameter with NaN or infinite values."""
    name = first_not_finite(model)
    if name is not None:
        raise ValueError(f"{source}: the parameter {name} holds NaN or infinite values")
