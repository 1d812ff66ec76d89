"""Write a checkpoint folder that loads anywhere: with this package, or with `trust_remote_code=True` without it."""

import json
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers.configuration_utils import PreTrainedConfig

from ..files import Change, changed_files, one_line, write_json
from ..models.common.saved_names import renamed
from ..registry import ARCHITECTURES
from ..templating import near_matches
from .bundle import code_files

# what a tokenizer remembers of how it was loaded
LOADING_OPTIONS = ("is_local", "local_files_only")


def save_checkpoint(model, folder: str | Path, tokenizer=None) -> Path:
    """Save weights (safetensors), config with a complete `auto_map`, model code and tokenizer into `folder`.

    Raises:
        ValueError: the model is not one of this package's families.
    """
    model_type = getattr(getattr(model, "config", None), "model_type", None)
    if model_type is None:
        raise ValueError(f"model is of class {type(model).__name__}: pass a model of this package")
    if model_type not in ARCHITECTURES:
        raise ValueError(f"model_type is {model_type!r}: expected one of {sorted(ARCHITECTURES)}")
    folder = Path(folder)
    model.save_pretrained(folder)
    if tokenizer is not None:
        for name in LOADING_OPTIONS:
            tokenizer.init_kwargs.pop(name, None)
        tokenizer.save_pretrained(folder)
    return folder


def save_code(model, folder: str | Path) -> None:
    """Write the code of a model into `folder`, all at once, and let its config name all classes in there.

    A class or config from outside this package computes what that code does not: it is left out, with a warning.

    Raises:
        ValueError: `folder` is a file.
    """
    if Path(folder).is_file():
        raise ValueError(f"save_directory={str(folder)!r} is a file: name a folder")
    model_type = model.config.model_type
    own = own_class(model)
    if own is not None:
        # it would name the classes of another checkpoint, which this model was loaded from
        vars(model.config).pop("auto_map", None)
        warnings.warn(
            f"{own.__name__} is a class of your own, and the checkpoint carries no code for it. A class in a file "
            f"brings that along if {own.__name__}.register_for_auto_class, with the name of its Auto class, was called "
            "before",
            stacklevel=4,
        )
        return
    # transformers would name the saved class alone, and a head could not load as a base model
    model.config.auto_map = dict(ARCHITECTURES[model_type].auto_map)
    with changed_files(folder) as change:
        write_code(model_type, change.new)


def own_class(model) -> type | None:
    """The class of a model or of its config if that is from outside this package, else None."""
    # sharding derives a class from the model's
    kinds = (kind for kind in type(model).__mro__ if kind.__module__.partition(".")[0] != "torch")
    for kind in (next(kinds), type(model.config)):
        if kind.__module__.partition(".")[0] != __name__.partition(".")[0]:
            return kind
    return None


def write_code(model_type: str, folder: Path) -> None:
    """Write the Python files that `trust_remote_code` needs for an architecture into `folder`."""
    for name, text in code_files(model_type).items():
        (folder / name).write_text(text, encoding="utf-8")


def put_config(change: Change, fields: Mapping[str, Any]) -> None:
    """Change fields of a config as part of a change of its checkpoint folder, and renew model code that is there."""
    config = renamed(json.loads((change.folder / "config.json").read_text(encoding="utf-8"))) | fields
    if any(change.folder.glob("modeling_*.py")):
        # code of an earlier version would not know the fields
        write_code(config["model_type"], change.new)
    write_json(change.new / "config.json", dict(sorted(config.items())))


def read_config(name: str | Path, **options: Any):
    """The config of a checkpoint of this package, by the arguments of `AutoConfig.from_pretrained`.

    Raises:
        ValueError: its architecture is not one of this package. transformers would offer to run the checkpoint's code.
    """
    from transformers import AutoConfig, PreTrainedConfig

    from ..convert.pretrained import ORIGINALS

    model_type = PreTrainedConfig.get_config_dict(name, **options)[0].get("model_type")
    if not isinstance(model_type, str) or model_type not in ARCHITECTURES:
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
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    try:
        model, report = loader.from_pretrained(name, output_loading_info=True, use_safetensors=True, **options)
    except (OSError, ValueError, TypeError, RuntimeError, SafetensorError, StrictDataclassError) as error:
        raise ValueError(f"{name} does not load: {one_line(error)}") from error
    for problem, keys in report.items():
        if keys:
            found = f"{problem.replace('_', ' ')} {sorted(map(str, keys))[:5]}"
            raise ValueError(f"{name}: the weights do not fit {type(model).__name__}: {found}")
    return model


def root_cause(error: BaseException) -> BaseException:
    """The error that a strict dataclass wraps in its own, or the error itself."""
    from huggingface_hub.errors import StrictDataclassError

    wraps = isinstance(error, StrictDataclassError) and error.__cause__ is not None
    return root_cause(error.__cause__) if wraps else error


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
    saved = sorted(folder.glob("checkpoint-*"), key=lambda path: path.stat().st_mtime)
    remedy = (
        f"its run is not finished, so run it again, or name {saved[-1]}" if saved else "name the folder of a checkpoint"
    )
    raise ValueError(f"{argument} {name} does not load: it has no config.json; {remedy}")


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
