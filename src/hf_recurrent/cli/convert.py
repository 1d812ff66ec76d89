"""`hf-recurrent convert`: a checkpoint of the authors' code becomes one of ours."""

from pathlib import Path
from typing import Annotated

import typer

from .console import out, quiet_libraries


def convert(
    reference: Annotated[Path, typer.Argument(help="Folder with the authors' case.json and weights.safetensors.")],
    folder: Annotated[Path, typer.Argument(help="New folder for the converted checkpoint.")],
) -> None:
    """Convert a checkpoint of the authors' code into one that `from_pretrained` loads."""
    from ..convert import load_reference
    from ..hub.checkpoint import save_checkpoint

    quiet_libraries()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} exists: give a new folder")
    model = load_reference(reference).model
    save_checkpoint(model, folder)
    out.print(
        f"{type(model).__name__}, {model.num_parameters():,} parameters: {folder}\n"
        "It has no tokenizer and no card yet; its token ids are the authors' own.",
        markup=False,
    )
