"""`hf-recurrent export`: a checkpoint as a graph for another runtime."""

from pathlib import Path
from typing import Annotated

import typer

from . import options
from .console import out, quiet_libraries, size, wrote


@options.grouped
def export(
    checkpoint: options.Checkpoint,
    output: Annotated[Path, typer.Option(callback=options.in_a_folder, help="The file to write: .onnx, .pt2 or .pte.")],
    depth_options: dict,
    file_format: Annotated[
        str | None,
        typer.Option("--format", help="onnx, torch (torch.export) or executorch; by the file's name if not given."),
    ] = None,
    depth: Annotated[
        str, typer.Option(help="fixed: all steps; loop: a loop that ends when every unit has stopped.")
    ] = "fixed",
    rows: Annotated[int, typer.Option(min=2, max=options.MOST, help="The most sequences of a batch.")] = 64,
    tokens: Annotated[
        int,
        typer.Option(
            min=3,
            max=options.MOST,
            help="The most tokens of a sequence; of models that read chunks, blocks or single tokens, those of every "
            "sequence, padding included.",
        ),
    ] = 512,
    revision: options.CheckpointRevision = None,
) -> None:
    """Export a checkpoint's forward pass to ONNX, torch.export or ExecuTorch, and compare it with the model there."""
    from tempfile import TemporaryDirectory

    import transformers

    from ..deploy.export import export_model, format_of
    from ..hub.card import auto_class_of
    from ..hub.checkpoint import check_finite, checkpoint_config, load_whole, revision_options
    from ..utils import write_bytes

    quiet_libraries()
    chosen, of_hub = format_of(output, file_format), revision_options(checkpoint, revision)
    config = checkpoint_config("checkpoint", checkpoint, **of_hub)
    loader = getattr(transformers, auto_class_of(config.to_dict()) or "AutoModel")
    model = load_whole(loader, checkpoint, dtype="float32", **of_hub).eval()
    check_finite(model, checkpoint)
    with TemporaryDirectory() as folder:
        built = Path(folder) / output.name
        found = export_model(model, built, chosen, depth, rows=rows, tokens=tokens, **depth_options)
        # of a large model ONNX keeps the weights in a file of their own, which its graph names
        for part in sorted(Path(folder).iterdir(), key=lambda part: part == built):
            write_bytes(output.with_name(part.name), part.read_bytes())
    shapes = ", ".join(" x ".join(map(str, shape)) for shape in found.shapes)
    out.print(
        f"{type(model).__name__} as {chosen}, {size(output.stat().st_size)}, "
        f"{'with a loop that ends with the last unit' if found.loops else 'of a fixed depth'}\n"
        f"compared with the model on batches of {shapes}: the same steps, outputs within {found.difference:.1g}",
        markup=False,
    )
    wrote(output)
