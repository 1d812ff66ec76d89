"""Write a checkpoint folder that loads anywhere: with this package, or with `trust_remote_code=True` without it."""

import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers.configuration_utils import PreTrainedConfig

from ..models.config.saved_names import renamed
from ..registry import ARCHITECTURES
from ..utils import Change, changed_files, near_names, one_line, read_json, write_json
from .bundle import carried_heads, code_files

CONFIG_FILE = "config.json"
REPOSITORY = re.compile(r"[\w.-]+(/[\w.-]+)?")


def save_checkpoint(model, folder: str | Path, tokenizer=None) -> Path:
    """Save weights (safetensors), config, the code of the model's classes and tokenizer into `folder`.

    Raises:
        ValueError: the model is not one of this package's families.
    """
    if getattr(getattr(model, "config", None), "model_type", None) not in [*ARCHITECTURES]:
        raise ValueError(f"model is of class {type(model).__name__}: pass a model of this package")
    model.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return Path(folder)


def save_code(model, folder: str | Path) -> None:
    """Write the code of a model into `folder`, all at once, and let its config name the classes in there.

    A class or config from outside this package computes what that code does not: it is left out, with a warning.
    """
    # sharding derives a class from the model's
    kind = next(kind for kind in type(model).__mro__ if not kind.__module__.startswith("torch."))
    package = __name__.partition(".")[0]
    others = [each for each in (kind, type(model.config)) if each.__module__.partition(".")[0] != package]
    if others:
        # it would name the classes of another checkpoint, which this model was loaded from
        vars(model.config).pop("auto_map", None)
        name = others[0].__name__
        warnings.warn(
            f"{name} is a class of your own, and the checkpoint carries no code for it. A class in a file brings that "
            f"along if {name}.register_for_auto_class, with the name of its Auto class, was called before",
            stacklevel=4,
        )
        return
    with changed_files(folder) as change:
        # transformers would name the saved class alone, and a head could not load as a base model
        model.config.auto_map = write_code({**model.config.to_dict(), "architectures": [kind.__name__]}, change.new)


def write_code(config: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Write the Python files that `trust_remote_code` needs for a saved config into `folder` -> its `auto_map`.

    A base model that is causal, or that has an encoder and a decoder, has the code of such a language model.
    """
    family, named = ARCHITECTURES[config["model_type"]], config.get("architectures")
    saved = next((head for head, suffix in family.heads.items() if named == [family.prefix + suffix]), "AutoModel")
    if saved == "AutoModel" and config.get("is_encoder_decoder"):
        saved = "AutoModelForSeq2SeqLM"
    elif saved == "AutoModel" and config.get("is_causal"):
        saved = "AutoModelForCausalLM"
    for name, text in code_files(family.model_type, saved, config).items():
        (folder / name).write_text(text, encoding="utf-8")
    return family.auto_map(carried_heads(family.model_type, saved))


def put_config(change: Change, fields: Mapping[str, Any]) -> None:
    """Change fields of a config as part of a change of its checkpoint folder, and renew model code that is there."""
    config = renamed(read_json(change.folder / CONFIG_FILE)) | fields
    if (change.folder / f"modeling_{config['model_type']}.py").exists():
        # code of an earlier version would not know the fields
        config["auto_map"] = write_code(config, change.new)
    write_json(change.new / CONFIG_FILE, dict(sorted(config.items())))


def read_config(name: str | Path, **options: Any):
    """The config of a checkpoint of this package, by the arguments of `AutoConfig.from_pretrained`.

    Raises:
        ValueError: its architecture is not one of this package. transformers would offer to run the checkpoint's code.
    """
    from transformers import AutoConfig

    from ..convert.pretrained import ORIGINALS

    model_type = PreTrainedConfig.get_config_dict(name, **options)[0].get("model_type")
    if model_type not in [*ARCHITECTURES]:
        remedy = f"expected one of {', '.join(ARCHITECTURES)}"
        if model_type in [*ORIGINALS]:
            remedy = f"make it one of this package by `hf-recurrent convert {name} FOLDER`"
        raise ValueError(f"the config of {name} has model_type {model_type!r}: {remedy}")
    return AutoConfig.from_pretrained(name, **options)


def load_whole(loader: type, name: str | Path, **options: Any):
    """`loader.from_pretrained(name, **options)`, from safetensors alone, if every weight is there and fits.

    transformers would give new, random weights to what is missing, and say so in a log.

    Raises:
        ValueError: in one line, what is wrong with the checkpoint.
    """
    try:
        model, report = loader.from_pretrained(name, output_loading_info=True, use_safetensors=True, **options)
    except (OSError, ValueError, TypeError, RuntimeError, SafetensorError, StrictDataclassError) as error:
        raise ValueError(f"{name} does not load: {one_line(error)}") from error
    for problem, keys in report.items():
        if keys:
            wrong = f"{problem.replace('_', ' ')} {sorted(map(str, keys))[:5]}"
            raise ValueError(f"{name}: the weights do not fit {type(model).__name__}: {wrong}")
    return model


def root_cause(error: BaseException) -> BaseException:
    """The error that a strict dataclass wraps in its own, or the error itself."""
    while isinstance(error, StrictDataclassError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def check_place(argument: str, name: str) -> None:
    """Raise a ValueError for a name that must be that of a folder, if there is none.

    It is no repository's, or the folder that it would be in is here.
    """
    path = Path(name).expanduser()
    is_path = not REPOSITORY.fullmatch(name) or ("/" in name and path.parent.is_dir())
    if is_path and not (name.strip() and path.is_dir()):
        raise ValueError(f"{argument}={name!r}: there is no such folder{near_names(path)}")


def revision_options(name: str, revision: str | None) -> dict[str, str]:
    """Options of loaders for the revision of a checkpoint.

    Raises:
        ValueError: the checkpoint is a local folder, which has no revisions.
    """
    if revision is None:
        return {}
    if Path(name).is_dir():
        raise ValueError(f"revision is {revision!r}, but {name} is a local folder, which has none: leave it out")
    return {"revision": revision}


def checkpoint_config(
    argument: str, name: str, read: Callable[..., PreTrainedConfig] = read_config, **options: Any
) -> PreTrainedConfig:
    """The config of a checkpoint of this package, or of what `read` takes; `argument` is what messages call it.

    Raises:
        ValueError: there is no such checkpoint, or its architecture is not one of this package.
    """
    check_place(argument, name)
    if Path(name).is_dir() and not Path(name, CONFIG_FILE).is_file():
        saved = sorted(Path(name).glob("checkpoint-*"), key=lambda path: path.stat().st_mtime)
        unfinished = f"its run is not finished, so run it again, or name {saved[-1]}" if saved else ""
        remedy = unfinished or "name the folder of a checkpoint"
        raise ValueError(f"{argument} {name} does not load: it has no {CONFIG_FILE}; {remedy}")
    try:
        return read(name, **options)
    # whatever a damaged config makes the loader fail with
    except Exception as error:
        raise ValueError(f"{argument} {name} does not load: {one_line(root_cause(error))}") from error


def first_not_finite(model: torch.nn.Module) -> str | None:
    """Name of a parameter that holds NaN or infinity, None if there is none; of a sharded one this process's shard."""
    for name, parameter in model.named_parameters():
        shard = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        if not shard.isfinite().all():
            return name
    return None


def check_finite(model: torch.nn.Module, source: str) -> None:
    """Raise a ValueError that names a parameter with NaN or infinite values."""
    if (name := first_not_finite(model)) is not None:
        raise ValueError(f"{source}: the parameter {name} holds NaN or infinite values")
