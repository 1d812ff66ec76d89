"""The mean of a run's best checkpoints."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file

from .run_folder import checkpoints

if TYPE_CHECKING:
    from transformers import TrainerState

    from .seq2seq_arguments import Seq2SeqArguments


def best_steps(
    history: Iterable[Mapping[str, Any]],
    saved: Collection[int],
    metric: str,
    number: int,
    *,
    greater: bool,
    latest: bool,
) -> list[int]:
    """The steps of the `number` best checkpoints, the best first.

    Args:
        history: a trainer's log, whose evaluations have `step` and `metric`.
        saved: the steps that there is a checkpoint of.
        greater: whether more of the metric is better.
        latest: which of equals is better, the later or the earlier one.
    """
    values = {log["step"]: log[metric] for log in history if metric in log and log["step"] in saved}
    ranked = sorted(values, key=lambda step: (-values[step] if greater else values[step], -step if latest else step))
    return ranked[:number]


def best_checkpoints(state: "TrainerState", args: "Seq2SeqArguments") -> list[Path]:
    """The checkpoints of a run whose average it leaves, the best first; none where it leaves a single one."""
    if args.average_checkpoints is None:
        return []
    folders = {int(folder.name.rpartition("-")[2]): folder for folder in checkpoints(Path(args.output_dir))}
    steps = best_steps(
        state.log_history,
        folders,
        f"eval_{args.metric_for_best_model.removeprefix('eval_')}",
        args.average_checkpoints,
        greater=args.greater_is_better,
        latest=args.best_model_on_ties == "latest",
    )
    return [folders[step] for step in steps]


def average_weights(files: Sequence[Path]) -> dict[str, torch.Tensor]:
    """The mean of each tensor over safetensors files of one model, in the tensor's own type; summed in float64.

    Raises:
        ValueError: there is no file, files have other tensors than the first, or numbers that have no mean differ.
    """
    if not files:
        raise ValueError("there are no checkpoints to average")
    first = load_file(files[0])
    total = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in first.items()}
    for file in files[1:]:
        weights = load_file(file)
        if shapes(weights) != shapes(first):
            raise ValueError(f"{file} has other weights than {files[0]}: average checkpoints of one model")
        for name, tensor in weights.items():
            if tensor.is_floating_point():
                total[name] += tensor
            elif not tensor.equal(first[name]):
                raise ValueError(f"{name} of {file} holds other integers than that of {files[0]}: they have no mean")
    return {
        name: (tensor / len(files)).to(first[name].dtype) if tensor.is_floating_point() else tensor
        for name, tensor in total.items()
    }


def shapes(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in weights.items()}


def load_average(model: torch.nn.Module, files: Sequence[Path]) -> torch.nn.Module:
    """`model` with the mean of the weights in `files`, which name one of several parameters that are tied.

    Raises:
        ValueError: the files are not of this model.
    """
    weights = average_weights(files)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    own = model.state_dict()
    filled = {own[name].data_ptr() for name in weights if name in own}
    wrong = [*unexpected, *(name for name in missing if own[name].data_ptr() not in filled)]
    if wrong:
        raise ValueError(f"{files[0]} is not of this {type(model).__name__}: {', '.join(sorted(wrong)[:5])}")
    return model
