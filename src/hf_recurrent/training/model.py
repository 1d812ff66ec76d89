"""The model and tokenizer of a recipe."""

import dataclasses
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig

from ..benchmarks import benchmark_info, build_tokenizer
from ..benchmarks.long_documents.tokenizers import embedding_rows
from ..hub.checkpoint import read_config
from ..models.common.exit_criteria import LEARNED
from ..registry import ARCHITECTURES
from .arguments import ModelArguments
from .objectives import SEQ2SEQ, Objective, objective_of
from .recipes import near_matches


def load_tokenizer(arguments: ModelArguments, benchmark: str, config: str | None = None):
    """The benchmark's tokenizer, or that of the checkpoint to fine-tune."""
    if arguments.model_name_or_path is None:
        return build_tokenizer(benchmark, config)
    return AutoTokenizer.from_pretrained(arguments.model_name_or_path)


def check_config_fields(config_class: type, fields: dict[str, Any]) -> None:
    """Raise a ValueError for a name that is not a field: transformers would store it without a use."""
    known = [field.name for field in dataclasses.fields(config_class)]
    for name in fields:
        if name not in known:
            raise ValueError(f"config: {config_class.__name__} has no field {name!r}{near_matches(name, known)}")


def make_config(
    arguments: ModelArguments, benchmark: str, tokenizer: Any, benchmark_config: str | None = None
) -> PreTrainedConfig:
    """The config of the model: the recipe's fields, over those that follow from tokenizer and benchmark."""
    labels = benchmark_info(benchmark, benchmark_config).label_names
    fields = {
        "vocab_size": embedding_rows(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    if labels:
        fields |= {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
    if objective_of(benchmark) is SEQ2SEQ:
        fields["is_encoder_decoder"] = True
    fields |= arguments.config
    if arguments.model_name_or_path is not None:
        check_config_fields(type(read_config(arguments.model_name_or_path)), arguments.config)
        return AutoConfig.from_pretrained(arguments.model_name_or_path, **fields)
    family, objective = ARCHITECTURES[arguments.model_type], objective_of(benchmark)
    if objective.auto_class not in family.heads:
        able = [name for name, other in ARCHITECTURES.items() if objective.auto_class in other.heads]
        raise ValueError(
            f"model_type is {arguments.model_type!r}, which has no {objective.auto_class} for benchmark {benchmark!r}: "
            f"expected one of {', '.join(able)}"
        )
    config_class = family.config_class
    check_config_fields(config_class, arguments.config)
    return config_class(**fields)


def check_evaluation_depth(config: PreTrainedConfig, depth: int | None) -> None:
    """Raise a ValueError if the model's number of depth steps cannot be chosen for its evaluation."""
    capabilities = config.capabilities
    learned = capabilities.exit_criterion == LEARNED and capabilities.halts
    if depth is None or (capabilities.shared_block and not learned):
        return
    halting = f"which halts by itself (halting={capabilities.halting!r})"
    reason = halting if capabilities.halts else "whose layers are not shared"
    raise ValueError(
        f"evaluation_depth is {depth}, but the model is a {config.model_type!r} {reason}: leave it out, or "
        "train one that repeats a step a fixed number of times (config: {halting: none})"
    )


def make_model(arguments: ModelArguments, config: PreTrainedConfig, objective: Objective) -> PreTrainedModel:
    """A new model, initialised from the global random state, or the checkpoint to fine-tune; its weights are finite."""
    options = {}
    if arguments.attn_implementation is not None:
        options["attn_implementation"] = arguments.attn_implementation
    if arguments.model_name_or_path is not None:
        model = getattr(transformers, objective.auto_class).from_pretrained(
            arguments.model_name_or_path, config=config, dtype=torch.float32, **options
        )
    else:
        model = ARCHITECTURES[arguments.model_type].model_class(objective.auto_class)._from_config(config, **options)
    check_finite(model, arguments.model_name_or_path or "the initial weights")
    return model


def load_trained(folder: str | Path, device: torch.device, objective: Objective) -> PreTrainedModel:
    """A checkpoint of this package as it would be loaded by anyone, ready to evaluate."""
    model = getattr(transformers, objective.auto_class).from_pretrained(folder, dtype=torch.float32)
    check_finite(model, str(folder))
    return model.to(device).eval()


def first_not_finite(model: torch.nn.Module) -> str | None:
    """Name of a parameter that holds NaN or infinity, None if there is none."""
    parameters = [(name, parameter) for name, parameter in model.named_parameters() if parameter.numel()]
    finite = torch.stack([parameter.detach().isfinite().all() for _, parameter in parameters])
    # one transfer for all parameters
    bad = (~finite).nonzero().flatten().tolist()
    return parameters[bad[0]][0] if bad else None


def check_finite(model: torch.nn.Module, source: str) -> None:
    """Raise a ValueError that names a parameter with NaN or infinite values."""
    name = first_not_finite(model)
    if name is not None:
        raise ValueError(f"{source}: the parameter {name} holds NaN or infinite values")
