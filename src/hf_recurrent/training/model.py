"""The model of a recipe, and token embeddings of another checkpoint that it may start with."""

import dataclasses
import os
import reprlib
import shlex
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from transformers import AutoModel, PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig

from ..benchmarks.tokenizers import embedding_rows, num_token_ids
from ..convert import from_pretrained_recurrent
from ..convert.pretrained import original_of, our_config
from ..data.labels import listed
from ..data.tokenizers import num_token_types, read_tokenizer, token_of
from ..hub.checkpoint import check_finite, check_place, checkpoint_config, read_config, root_cause
from ..models.config.exit_criteria import LEARNED
from ..models.config.fields import check_whole
from ..registry import ARCHITECTURES
from ..tasks.base import Task
from ..utils import one_line, require_known
from .arguments import ModelArguments

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


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
        if name is None:
            fields["vocab_size"] = embedding_rows(tokenizer)
            if own and task.pair_types(arguments):
                fields["type_vocab_size"] = num_token_types(tokenizer)
    if task.tag == "translation":
        fields["is_encoder_decoder"] = True
    fields |= arguments.config
    if name is not None:
        place = ("model_name_or_path", name, partial(read_starting_config, arguments))
        saved = checkpoint_config(*place, **arguments.hub_options)
        check_config_fields(type(saved), arguments.config)
        if tokenizer is not None:
            check_start(name, saved, task, tokenizer)
        return checkpoint_config(*place, **arguments.hub_options, **fields)
    family = ARCHITECTURES[arguments.model_type]
    if task.auto_class not in family.heads:
        able = [kind for kind, other in ARCHITECTURES.items() if task.auto_class in other.heads]
        raise ValueError(
            f"model_type is {arguments.model_type!r}, which has no {task.auto_class} for {task.data.name}: expected "
            f"one of {', '.join(able)}"
        )
    check_config_fields(family.config_class, arguments.config)
    try:
        return family.config_class(**fields)
    # a value of any type goes through the checks of transformers, too
    except Exception as error:
        raise ValueError(f"config is {reprlib.repr(arguments.config)}: {one_line(root_cause(error))}") from error


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
        require_known(f"a config field of {config_class.__name__}", name, known)


def check_start(name: str, saved: PreTrainedConfig, task: Task, tokenizer: Any) -> None:
    """Check that a checkpoint fits its tokenizer, and warn where your data have other classes, or in another order.

    Raises:
        ValueError: the model has too few embeddings.
    """
    if (ids := num_token_ids(tokenizer)) > saved.vocab_size:
        raise ValueError(
            f"model_name_or_path is {name!r}: its tokenizer has {ids:,} tokens and its model embeddings of "
            f"{saved.vocab_size:,} (vocab_size): resize them with model.resize_token_embeddings, and save the model"
        )
    names = task.source.label_names if task.data.is_own and task.label_names else ()
    learned = tuple(str(label) for _, label in sorted(saved.id2label.items()))
    unnamed = tuple(f"LABEL_{number}" for number in range(len(learned)))
    if len(names) == len(learned) and learned not in (names, unnamed):
        remedy = f"; --label_list {shlex.join(learned)} keeps their order" if set(names) == set(learned) else ""
        warnings.warn(
            f"model_name_or_path {name} has learned the labels {listed(learned)}, and the data have {listed(names)}: "
            f"its classifier starts from weights for others{remedy}",
            stacklevel=2,
        )


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
    if depth is not None and (learned or not capabilities.shared_block):
        reason = "which halts by itself" if capabilities.halts else "whose layers are not shared"
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
        ValueError, ImportError: there is no such implementation of attention here.
    """
    model_class = ARCHITECTURES[config.model_type].model_class(task.auto_class)
    return model_class._from_config(config, **arguments.attention)


def pretrained(arguments: ModelArguments, config: PreTrainedConfig, task: Task) -> PreTrainedModel:
    """The checkpoint to fine-tune; with `freeze_base_model` its head alone is trained, and what it has no weights for.

    Raises:
        ValueError: it is damaged, its weights do not fit the config, or nothing is left to train.
    """
    name, load = arguments.model_name_or_path, getattr(transformers, task.auto_class).from_pretrained
    if arguments.is_original:
        load = partial(from_pretrained_recurrent, auto_class=task.auto_class)
    options = {**arguments.hub_options, **arguments.attention, "dtype": torch.float32, "output_loading_info": True}
    try:
        model, report = load(name, config=config, ignore_mismatched_sizes=arguments.ignore_mismatched_sizes, **options)
    # whatever a damaged file makes the loaders fail with
    except Exception as error:
        raise ValueError(f"model_name_or_path is {name!r}, which does not load: {one_line(error)}") from error
    if arguments.freeze_base_model:
        new = {*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])}
        for key, parameter in model.named_parameters():
            parameter.requires_grad_(key in new or not key.startswith(f"{model.base_model_prefix}."))
        if not model.num_parameters(only_trainable=True):
            raise ValueError(
                f"freeze_base_model is true: {type(model).__name__} has no weights of its own, and nothing is left to "
                "train; leave it out"
            )
    return model


def forget_begin(model: PreTrainedModel) -> None:
    """Let `generate` ask a language model for a prompt instead of beginning with a token that no text began with.

    An end-of-text token that is the begin-of-text token, too, stands before documents, and is kept.
    """
    if model.can_generate() and not model.config.is_encoder_decoder:
        settings = model.generation_config
        ends = settings.eos_token_id if isinstance(settings.eos_token_id, list) else [settings.eos_token_id]
        if settings.bos_token_id not in ends:
            settings.bos_token_id = None


def load_trained(folder: str | Path, device: torch.device, task: Task) -> PreTrainedModel:
    """A checkpoint of this package as it would be loaded by anyone, ready to evaluate."""
    model = getattr(transformers, task.auto_class).from_pretrained(folder, dtype=torch.float32)
    check_finite(model, str(folder))
    return model.to(device).eval()


# ---- embeddings


def take_embeddings(model: PreTrainedModel, tokenizer: "PreTrainedTokenizerBase", name: str, **options: Any) -> int:
    """Copy the input embeddings of another checkpoint into a model's, for all tokens that both know.

    Special tokens are matched by their roles, [CLS] and [SEP] with the begin and end of a text, and all others by their
    strings: "Ġcat", of bytes, is not BERT's "cat". The rows of other tokens stay as they are. A tied head follows, and
    so does the table of a decoder.

    Args:
        model: one of this package.
        tokenizer: that of `model`.
        name: any checkpoint of transformers, a name on the Hub or a folder, with its tokenizer.
        options: `revision` and `token`, of the Hub.

    Returns:
        The number of rows that were taken.

    Raises:
        ValueError: it has no such embeddings, or of another width; or no token in common but special ones. The model is
            then unchanged.
    """
    place, width = f"embeddings_from={name!r}", model.get_input_embeddings().embedding_dim
    check_place("embeddings_from", name)
    try:
        source, report = AutoModel.from_pretrained(os.path.expanduser(name), output_loading_info=True, **options)
        weight = source.get_input_embeddings().weight
        missing = [key for key, value in source.named_parameters() if value is weight and key in report["missing_keys"]]
    # whatever a checkpoint from elsewhere makes the loaders fail with
    except Exception as error:
        raise ValueError(f"{place} does not load, or has no embeddings of tokens: {one_line(error)}") from error
    if missing or not weight.isfinite().all():
        raise ValueError(f"{place}: it has no embeddings of tokens, or NaN or infinite values among them")
    if weight.shape[1] != width:
        field = "embedding_size" if hasattr(model.config, "embedding_size") else "hidden_size"
        raise ValueError(
            f"{place}: its embeddings are {weight.shape[1]} wide and the model's {width}: make the model as wide, "
            f"--config '{{{field}: {weight.shape[1]}}}'"
        )
    pairs = matched_tokens(tokenizer, read_tokenizer("embeddings_from", name, **options), len(weight))
    if not pairs.keys() - {tokenizer.convert_tokens_to_ids(each) for each in tokenizer.all_special_tokens}:
        raise ValueError(
            f"{place}: its tokenizer has none of the model's tokens: take the same one, --tokenizer {name}"
        )
    ours, theirs = (torch.tensor(ids) for ids in (list(pairs), list(pairs.values())))
    with torch.no_grad():
        for key, module in model.named_modules():
            if key.rpartition(".")[2] == "embed_tokens":
                module.weight[ours.to(module.weight.device)] = weight[theirs].to(module.weight)
    return len(pairs)


def matched_tokens(
    tokenizer: "PreTrainedTokenizerBase", other: "PreTrainedTokenizerBase", num_rows: int
) -> dict[int, int]:
    """The id of each token that another tokenizer has, too, and a row among the first `num_rows` -> its id there."""
    known = {each: row for each, row in other.get_vocab().items() if row < num_rows}
    pairs = {row: known[each] for each, row in tokenizer.get_vocab().items() if each in known}
    special: dict[int, int] = {}
    for role in tokenizer.SPECIAL_TOKENS_ATTRIBUTES:
        ours, theirs = token_of(tokenizer, role), token_of(other, role)
        if ours is not None and theirs in known:
            # a token of several roles is that of the first: the end of a text rather than padding
            special.setdefault(tokenizer.convert_tokens_to_ids(ours), known[theirs])
    return pairs | special
