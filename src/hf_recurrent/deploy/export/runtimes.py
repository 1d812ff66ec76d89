"""File formats of exported graphs, and the runtimes that they are checked in.

Shapes: B sequences, S tokens.
"""

import importlib.util
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from ...models.config.fields import shown
from ...models.ops.modes import inference_mode
from .program import Exportable, example_inputs, export_program, has_loop, reads_any_length

# of the largest logit, what sums in another order may differ by
TOLERANCE = 1e-4

Inputs = dict[str, torch.Tensor]
Runner = Callable[[Inputs], list[torch.Tensor]]


class Format(NamedTuple):
    """A file format.

    Attributes:
        suffix: of its files.
        packages: what writes and runs them.
        install: how to install those.
        write: writes the program to a path; the names of its outputs are given.
        load: the function that runs the file.
    """

    suffix: str
    packages: tuple[str, ...]
    install: str
    write: Callable[[torch.export.ExportedProgram, list[str], Path], None]
    load: Callable[[Path], Runner]


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings, and of loggers errors alone: exporters report what they have no use for."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def load_torch(path: Path) -> Runner:
    module = torch.export.load(path).module()
    return lambda inputs: list(module(**inputs).values())


def write_onnx(program: torch.export.ExportedProgram, outputs: list[str], path: Path) -> None:
    from onnxscript import opset18 as op

    def stable_sort(self, stable: bool = True, dim: int = -1, descending: bool = False):
        """`TopK` of all: of equal values those of lower indices come first."""
        number = op.Reshape(op.Gather(op.Shape(self), op.Constant(value_int=dim)), op.Constant(value_ints=[1]))
        return op.TopK(self, number, axis=dim, largest=descending, sorted=True)

    with quiet():
        exported = torch.onnx.export(
            program,
            dynamo=True,
            verbose=False,
            output_names=outputs,
            custom_translation_table={torch.ops.aten.sort.stable: stable_sort},
        )
        exported.save(path)


def load_onnx(path: Path) -> Runner:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    return lambda inputs: [
        torch.from_numpy(value) for value in session.run(None, {name: inputs[name].cpu().numpy() for name in names})
    ]


def write_executorch(program: torch.export.ExportedProgram, outputs: list[str], path: Path) -> None:
    with quiet():
        from executorch.exir import to_edge

        path.write_bytes(to_edge(program).to_executorch().buffer)


def load_executorch(path: Path) -> Runner:
    with quiet():
        from executorch.runtime import Runtime

    method = Runtime.get().load_program(path).load_method("forward")
    return lambda inputs: method.execute([value.cpu() for value in inputs.values()])


FORMATS = {
    "torch": Format(".pt2", (), "", lambda program, _, path: torch.export.save(program, path), load_torch),
    "onnx": Format(
        ".onnx", ("onnx", "onnxscript", "onnxruntime"), "pip install 'hf-recurrent[export]'", write_onnx, load_onnx
    ),
    "executorch": Format(
        ".pte", ("executorch",), "pip install 'hf-recurrent[executorch]'", write_executorch, load_executorch
    ),
}


class Exported(NamedTuple):
    """A file with a graph, and how it differs from the model.

    Attributes:
        path: the file.
        loops: whether the graph ends early on easy batches.
        shapes: (B, S) of the batches that both have computed.
        difference: largest of an output's numbers, as a share of the largest number; steps are the same.
    """

    path: Path
    loops: bool
    shapes: list[tuple[int, ...]]
    difference: float


def format_of(path: Path, name: str | None) -> str:
    """The format of this name or, by default, the format that has the file's suffix.

    Raises:
        ValueError: there is no such format.
        ImportError: a package that it needs is not installed.
    """
    if name is None:
        name = next((name for name, each in FORMATS.items() if each.suffix == path.suffix), None)
        if name is None:
            known = ", ".join(f"{each.suffix} ({name})" for name, each in FORMATS.items())
            raise ValueError(
                f"output is {path}, whose format is not known: end it in one of {known}, or name the format"
            )
    if name not in FORMATS:
        raise ValueError(f"format is {shown(name)}: expected one of {', '.join(FORMATS)}")
    missing = [package for package in FORMATS[name].packages if importlib.util.find_spec(package) is None]
    if missing:
        raise ImportError(
            f"format {name!r} needs what is not installed here ({', '.join(missing)}): {FORMATS[name].install}"
        )
    return name


def export_model(
    model: nn.Module,
    path: str | Path,
    file_format: str | None = None,
    depth: str = "fixed",
    *,
    rows: int = 64,
    tokens: int = 512,
    **options: Any,
) -> Exported:
    """Write a model's graph, and compare what its runtime computes with the model, for batches of several shapes.

    Args:
        model, depth, rows, tokens, options: see `export_program`.
        path: the file to write; `FORMATS` has their suffixes.
        file_format: "torch" (an `ExportedProgram`), "onnx" or "executorch"; None: by the suffix.

    Raises:
        ImportError: a package that the format needs is not installed.
        ValueError: as `export_program`; the exporter cannot express the model; or the runtime's results differ.
    """
    path = Path(path)
    file_format = format_of(path, file_format)
    program = export_program(model, depth, rows=rows, tokens=tokens, **options)
    lengths = (5, 11, 3) if reads_any_length(model.config) else (tokens,) * 3
    batches = [
        example_inputs(model, number, min(length, tokens), min(4, tokens), seed=length)
        for number, length in zip((1, 2, 4), lengths, strict=True)
        if number <= rows
    ]
    with inference_mode(model):
        expected = [Exportable(model, **options)(**batch) for batch in batches]
    names = list(expected[0])
    try:
        FORMATS[file_format].write(program, names, path)
    except Exception as error:
        raise ValueError(
            f"{file_format} cannot express this graph of {type(model).__name__} with depth {depth!r}: {cause(error)}"
        ) from error
    run = FORMATS[file_format].load(path)
    with torch.no_grad():
        found = [dict(zip(names, run(batch), strict=True)) for batch in batches]
    largest = max(map(difference, found, expected))
    return Exported(path, has_loop(program), [tuple(each["input_ids"].shape) for each in batches], largest)


def cause(error: BaseException) -> str:
    """The first line of the error that an exporter's own goes back to."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def difference(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """Largest difference of an output's numbers, as a share of the largest number.

    Raises:
        ValueError: it is above the tolerance, or steps differ.
    """
    largest = 0.0
    for name in expected:
        values, others = expected[name].cpu(), found[name].cpu()
        if name.endswith("steps"):
            # a graph has all chunks, the model those up to the last one with tokens
            steps = others if values.dim() == 1 else others[:, : values.shape[1]]
            if not torch.equal(steps, values):
                raise ValueError(
                    f"{int((steps != values).sum())} of {values.numel()} `{name}` of the exported graph are not "
                    "those of the model, whose decisions are too close for another order of sums"
                )
            continue
        # the lowest number stands for padding
        known = values > torch.finfo(values.dtype).min
        errors = torch.where(known, others - values, (others != values).to(values.dtype))
        share = float(errors.abs().max() / values[known].abs().max().clamp_min(1e-9))
        if not share <= TOLERANCE:
            raise ValueError(f"`{name}` of the exported graph differs from the model's by {share:.1g} of its size")
        largest = max(largest, share)
    return largest
