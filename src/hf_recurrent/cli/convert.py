"""`hf-recurrent convert`: checkpoints of the authors' code and of other packages, and back."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from . import options
from .console import out, quiet_libraries

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "spiece.model")
ORIGINAL = "original"


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
        Literal["recurrent", "original"],
        typer.Option(help="A checkpoint of this package, or of the package that it is from."),
    ] = "recurrent",
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
    from ..convert import load_authors, save_original
    from ..hub.checkpoint import save_checkpoint
    from ..utils import new_folder

    quiet_libraries()
    path = Path(reference)
    of_authors = path.is_dir() and not (path / "config.json").is_file()
    if of_authors and to == ORIGINAL:
        raise ValueError(f"--to is {to!r}: {reference} has no config.json, it is a folder of the authors' own")
    if of_authors or to == ORIGINAL:
        options.refuse("the authors' code, or for the way back", {"auto_class": auto_class, "license": license_name})
    with new_folder(folder, refuse) as built:
        if of_authors:
            model, note = load_authors(path), "It has no tokenizer and no card yet; its token ids are the authors' own."
            save_checkpoint(model, built)
        elif to == ORIGINAL:
            model, note = load_converted(reference), "Its names are those of the package that it is from."
            save_original(model, built)
            tokenizer = tokenizer_of(reference)
            if tokenizer is not None:
                tokenizer.save_pretrained(built)
        else:
            model, note = from_other_package(reference, auto_class, built)
            write_converted_card(model, reference, license_name, folder, built)
    out.print(f"{type(model).__name__}, {model.num_parameters():,} parameters: {folder}\n{note}", markup=False)


def refuse(folder: Path) -> None:
    raise ValueError(f"folder {folder} is not empty: give a new one")


def from_other_package(reference: str, auto_class: str | None, built: Path) -> tuple[Any, str]:
    """The converted model, and what was left out."""
    from ..convert import from_pretrained_recurrent
    from ..hub.checkpoint import save_checkpoint
    from ..utils import one_line

    try:
        model, report = from_pretrained_recurrent(reference, auto_class, output_loading_info=True)
    except OSError as error:
        raise ValueError(f"{reference} does not load: {one_line(error)}") from error
    if report["missing_keys"]:
        raise ValueError(
            f"{reference} has no weights of {', '.join(sorted(report['missing_keys']))}, which {type(model).__name__} "
            "needs: convert the head that it has, and start a new one by from_pretrained of the Auto class"
        )
    tokenizer, unused = tokenizer_of(reference), ", ".join(sorted(map(str, report["unexpected_keys"])))
    save_checkpoint(model, built, tokenizer)
    notes = [f"Without what this model has no use for: {unused}."] if unused else []
    return model, " ".join([*notes, *(["It has no tokenizer."] if tokenizer is None else [])])


def write_converted_card(model: Any, reference: str, license_name: str | None, folder: Path, built: Path) -> None:
    """Write the card of a converted model that will be in `folder`, and is in `built`.

    Raises:
        ValueError: the card of the original names another licence than `license_name`.
    """
    from ..hub.base_model import read_base_model
    from ..hub.card import auto_class_of, task_for
    from ..hub.results import EMPTY, write_results
    from ..registry import ARCHITECTURES
    from ..training.recipes import paper_with_title

    config, base = model.config, read_base_model(reference)
    if license_name is not None and base["license"] not in (None, license_name):
        raise ValueError(f"--license is {license_name!r}, but the card of {base['name']} says {base['license']!r}")
    facts = {
        "type": config.model_type,
        "parameters": model.num_parameters(),
        "max_depth": config.num_hidden_layers,
        **{"halting": "none", "chunks": None, "generation": None, "license": None},
        "base": {**base, "license": license_name or base["license"]},
        "paper": paper_with_title(ARCHITECTURES[config.model_type].paper),
    }
    task = task_for(auto_class_of(config.to_dict())) or "feature-extraction"
    title = f"{base['name'].split('/')[-1]} with adaptive depth"
    write_results(built, {**EMPTY, "title": title, "name": folder.name, "task": task, "model": facts})


def load_converted(reference: str) -> Any:
    """A checkpoint of this package."""
    import transformers

    from ..hub.card import auto_class_of
    from ..hub.checkpoint import load_whole, read_config

    config = read_config(reference)
    name = auto_class_of(config.to_dict())
    if name is None:
        raise ValueError(f"{reference}: config.json names {config.architectures}, which is no class of this package")
    return load_whole(getattr(transformers, name), reference)


def tokenizer_of(name: str) -> Any:
    """The tokenizer of a checkpoint, None if it has none: transformers would make an empty one."""
    from transformers import AutoTokenizer
    from transformers.utils import cached_file

    files = (cached_file(name, file, _raise_exceptions_for_missing_entries=False) for file in TOKENIZER_FILES)
    return AutoTokenizer.from_pretrained(name) if any(files) else None
