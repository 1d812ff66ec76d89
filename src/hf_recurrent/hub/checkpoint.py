"""Write a checkpoint folder that loads anywhere: with this package, or with `trust_remote_code=True` without it."""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..files import Change, changed_files, one_line, write_json
from ..models.common.saved_names import renamed
from ..registry import ARCHITECTURES
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
