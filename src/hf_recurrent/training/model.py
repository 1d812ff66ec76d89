"""The model of a recipe."""

import dataclasses
import reprlib
import shlex
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig

from ..benchmarks.long_documents.tokenizers import embedding_rows, num_token_ids
from ..convert import from_pretrained_recurrent
from ..convert.pretrained import original_of, our_config
from ..data.labels import listed
from ..data.tokenizers import num_token_types
from ..files import one_line
from ..hub.checkpoint import check_finite, checkpoint_config, read_config, root_cause
from ..models.common.exit_criteria import LEARNED, check_whole
from ..registry import ARCHITECTURES
from ..tasks.base import Task
from ..templating import near_matches
from .arguments import ModelArguments


def read_starting_config(arguments: ModelArguments, name: str, **options: Any) -> PreTrainedConfig:
    """`read_config` of a checkpoint to fine-tune, or our config of one that `from_pretrained_recurrent` takes."""
    if not arguments.is_original:
        return read_config(name, **options)
    theirs, fields = PreTrainedConfig.get_config_dict(name, **options)
    return our_config(original_of(theirs["model_type"], name), theirs, fields)[0]


def check_config_fields(config_class: type, fields: dict[str, Any]) -> None:
    """Raise a ValueError for a name that is not a field: transformers would store it without a use."""
    known = [field.name for field in dataclasses.fields(config_class)]
    for name in fields:
        if name not in known:
            raise ValueError(f"config: {config_class.__name__} has no field {name!r}{near_matches(name, known)}")


def warn_of_other_labels(name: str, config: PreTrainedConfig, names: tuple[str, ...]) -> None:
    """Warn where the classes of your data are not those, or not in the order, that a checkpoint's classifier has."""
    saved = tuple(str(label) for _, label in sorted(config.id2label.items()))
    unnamed = tuple(f"LABEL_{number}" for number in range(len(saved)))
    if len(names) != len(saved) or saved in (names, unnamed):
        return
    remedy = f"; --label_list {shlex.join(saved)} keeps their order" if set(names) == set(saved) else ""
    warnings.warn(
        f"model_name_or_path {name} has learned the labels {listed(saved)}, and the data have {listed(names)}: its "
        f"classifier starts from weights for others{remedy}",
        stacklevel=2,
    )


def make_config(arguments: ModelArguments, task: Task, tokenizer: Any | None) -> PreTrainedConfig:
    """The config of the model: the recipe's fields, over those that follow from tokenizer, if given, and data.

    Without tokenizer, a user's own data are not read.

    Raises:
        ValueError: a field is unknown or has a bad value, or there is no such model.
    """
    own, name = task.data.is_own, arguments.model_name_or_path
    fields: dict[str, Any] = {} if tokenizer is None and own else task.config_fields()
    if tokenizer is not None:
        fields |= {role: getattr(tokenizer, role) for role in ("pad_token_id", "bos_token_id", "eos_token_id")}
    if tokenizer is not None and arguments.model_type is not None:
        fields["vocab_size"] = embedding_rows(tokenizer)
        if own and task.pair_types(arguments):
            fields["type_vocab_size"] = num_token_types(tokenizer)
    if task.tag == "translation":
        fields["is_encoder_decoder"] = True
    fields |= arguments.config
    if name is not None:
        read = partial(read_starting_config, arguments)
        place = ("model_name_or_path", name, read)
        saved = checkpoint_config(*place, **arguments.hub_options)
        check_config_fields(type(saved), arguments.config)
        if tokenizer is not None and (ids := num_token_ids(tokenizer)) > saved.vocab_size:
            raise ValueError(
                f"model_name_or_path is {name!r}: its tokenizer has {ids:,} tokens and its model embeddings of "
                f"{saved.vocab_size:,} (vocab_size): resize them with model.resize_token_embeddings, and save the model"
            )
        if tokenizer is not None and own and task.label_names:
            warn_of_other_labels(name, saved, task.source.label_names)
        return checkpoint_config(*place, **arguments.hub_options, **fields)
    family = ARCHITECTURES[arguments.model_type]
    if task.auto_class not in family.heads:
        able = [kind for kind, other in ARCHITECTURES.items() if task.auto_class in other.heads]
        raise ValueError(
            f"model_type is {arguments.model_type!r}, which has no {task.auto_class} for {task.data.name}: expected "
            f"one of {', '.join(able)}"
        )
    config_class = family.config_class
    check_config_fields(config_class, arguments.config)
    try:
        return config_class(**fields)
    # a value of any type goes through the checks of transformers, too
    except Exception as error:
        raise ValueError(f"config is {reprlib.repr(arguments.config)}: {one_line(root_cause(error))}") from error


def check_model(arguments: ModelArguments, task: Task) -> PreTrainedConfig:
    """The config of the model without what follows from its tokenizer, after making such a model without weights.

    Raises:
        ValueError: there can be no such model, or none with this implementation of attention.
    """
    config = make_config(arguments, task, None)
    with torch.device("meta"):
        new_model(arguments, config, task)
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


def make_model(arguments: ModelArguments, config: PreTrainedConfig, task: Task) -> PreTrainedModel:
    """A new model, initialised from the global random state, or the checkpoint to fine-tune; its weights are finite.

    Raises:
        ValueError: the checkpoint is damaged or does not fit, or there is no such implementation of attention.
    """
    name = arguments.model_name_or_path
    model = new_model(arguments, config, task) if name is None else pretrained(arguments, config, task)
    check_finite(model, name or "the initial weights")
    return model


def new_model(arguments: ModelArguments, config: PreTrainedConfig, task: Task) -> PreTrainedModel:
    """A new model.

    Raises:
        ValueError: there is no such implementation of attention here.
    """
    model_class = ARCHITECTURES[config.model_type].model_class(task.auto_class)
    try:
        return model_class._from_config(config, **attention(arguments))
    except (ValueError, ImportError) as error:
        if arguments.attn_implementation is None:
            raise
        raise ValueError(f"attn_implementation is {arguments.attn_implementation!r}: {one_line(error)}") from error


def pretrained(arguments: ModelArguments, config: PreTrainedConfig, task: Task) -> PreTrainedModel:
    """The checkpoint to fine-tune.

    Raises:
        ValueError: it is damaged, or its weights do not fit the config.
    """
    name, load = arguments.model_name_or_path, getattr(transformers, task.auto_class).from_pretrained
    try:
        if arguments.is_original:
            load = partial(from_pretrained_recurrent, auto_class=task.auto_class)
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


def load_trained(folder: str | Path, device: torch.device, task: Task) -> PreTrainedModel:
    """A checkpoint of this package as it would be loaded by anyone, ready to evaluate."""
    model = getattr(transformers, task.auto_class).from_pretrained(folder, dtype=torch.float32)
    check_finite(model, str(folder))
    return model.to(device).eval()
