"""`hf-recurrent convert`: checkpoints of the authors' code and of other packages, and back."""

from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from . import options
from .console import out, quiet_libraries

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "spiece.model")


class Kind(Enum):
    """What a checkpoint is converted to."""

    recurrent = "recurrent"
    original = "original"


def convert(
    reference: Annotated[
        str,
        typer.Argument(
            callback=options.a_place,
            help="Folder with the authors' case.json and weights.safetensors, or an ALBERT, Ouro or Huginn: a folder "
            "or its name on the Hub. With --to original a checkpoint of this package that was converted from one.",
        ),
    ],
    folder: Annotated[
        Path, typer.Argument(callback=options.in_a_folder, help="New folder for the converted checkpoint.")
    ],
    to: Annotated[
        Kind,
        typer.Option(help="recurrent: a checkpoint of this package; original: one of that which it is from."),
    ] = Kind.recurrent,
    auto_class: Annotated[
        str | None,
        typer.Option(help="Auto class of the head to convert, such as AutoModelForMaskedLM; by default its own."),
    ] = None,
    license_name: Annotated[
        str | None,
        typer.Option("--license", help="Licence of an original whose card names none, as the Hub calls it: mit, ..."),
    ] = None,
) -> None:
    """Convert a checkpoint of the authors' code, or of another package, into one of this package, or back."""
    from ..files import new_folder

    quiet_libraries()
    path = Path(reference)
    recorded = path.is_dir() and not (path / "config.json").is_file()
    if recorded and to is Kind.original:
        raise ValueError(f"--to is {to.value!r}: {reference} has no config.json, it is a folder of the authors' own")
    if auto_class is not None and (recorded or to is Kind.original):
        raise ValueError(f"auto_class is {auto_class!r}: it is for checkpoints of other packages; leave it out")
    if license_name is not None and (recorded or to is Kind.original):
        raise ValueError(f"--license is {license_name!r}: it is of checkpoints of other packages; leave it out")
    with new_folder(folder, refuse) as built:
        if recorded:
            model = from_authors(path, built)
            told = "It has no tokenizer and no card yet; its token ids are the authors' own."
        elif to is Kind.original:
            model = to_original(reference, built)
            told = "Its names are those of the package that it is from."
        else:
            model, told = from_other_package(reference, auto_class, built)
            write_converted_card(model, reference, license_name, folder, built)
    out.print(f"{type(model).__name__}, {model.num_parameters():,} parameters: {folder}\n{told}", markup=False)


def refuse(folder: Path) -> None:
    raise ValueError(f"folder {folder} is not empty: give a new one")


def from_authors(path: Path, built: Path) -> Any:
    from ..convert import load_authors
    from ..hub.checkpoint import save_checkpoint

    model = load_authors(path)
    save_checkpoint(model, built)
    return model


def from_other_package(reference: str, auto_class: str | None, built: Path) -> tuple[Any, str]:
    """The converted model, and what was left out."""
    from ..convert import from_pretrained_recurrent
    from ..files import one_line
    from ..hub.checkpoint import save_checkpoint

    try:
        model, report = from_pretrained_recurrent(reference, auto_class, output_loading_info=True)
    except OSError as error:
        raise ValueError(f"{reference} does not load: {one_line(error)}") from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise ValueError(
            f"{reference} has no weights of {', '.join(missing)}, which {type(model).__name__} needs: convert the head "
            "that it has, and start a new one by from_pretrained of the Auto class"
        )
    tokenizer = tokenizer_of(reference)
    save_checkpoint(model, built, tokenizer)
    unused = sorted(map(str, report["unexpected_keys"]))
    parts = [f"Without what this model has no use for: {', '.join(unused)}." if unused else ""]
    parts.append("It has no tokenizer." if tokenizer is None else "")
    return model, " ".join(part for part in parts if part)


def write_converted_card(model: Any, reference: str, license_name: str | None, folder: Path, built: Path) -> None:
    """Write the card of a converted model that will be in `folder`, and is in `built`.

    Raises:
        ValueError: the card of the original names another licence than `license_name`.
    """
    from ..hub.base_model import read_base_model
    from ..hub.converted_card import ConvertedData, write_converted
    from ..hub.tasks import auto_class_of
    from ..registry import ARCHITECTURES
    from ..training.paper import paper_with_title

    config, base = model.config, read_base_model(reference)
    if license_name is not None:
        if base.license not in (None, license_name):
            raise ValueError(f"--license is {license_name!r}, but the card of {base.name} says {base.license!r}")
        base = replace(base, license=license_name)
    auto_class = auto_class_of(config.to_dict())
    data = ConvertedData(
        base,
        folder.name,
        config.model_type,
        auto_class,
        model.num_parameters(),
        config.num_hidden_layers,
        getattr(config, "layers_per_step", 1),
        any((built / name).is_file() for name in TOKENIZER_FILES),
        paper_with_title(ARCHITECTURES[config.model_type].paper),
    )
    write_converted(built, data)


def to_original(reference: str, built: Path) -> Any:
    import transformers

    from ..convert import save_original
    from ..hub.checkpoint import load_whole, read_config
    from ..hub.tasks import auto_class_of

    config = read_config(reference)
    found = auto_class_of(config.to_dict())
    if found is None:
        raise ValueError(f"{reference}: config.json names {config.architectures}, which is no class of this package")
    model = load_whole(getattr(transformers, found), reference)
    save_original(model, built)
    tokenizer = tokenizer_of(reference)
    if tokenizer is not None:
        tokenizer.save_pretrained(built)
    return model


def tokenizer_of(name: str) -> Any:
    """The tokenizer of a checkpoint, None if it has none: transformers would make an empty one."""
    from transformers import AutoTokenizer
    from transformers.utils import cached_file

    found = (cached_file(name, file, _raise_exceptions_for_missing_entries=False) for file in TOKENIZER_FILES)
    return AutoTokenizer.from_pretrained(name) if any(found) else None
