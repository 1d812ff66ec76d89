"""Checkpoints of the papers' codebases: a folder of the authors' config and weights -> our model."""

from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import load_file
from transformers import PreTrainedModel

from ..utils import read_json
from . import block_recurrent, dynamic_halt, neural_data_router, sparse_universal
from .loading import load_weights, rename

# framework or family of a case -> the module whose `prepare(case, weights)` makes our model, names and tensors
ORIGINS = {
    **dict.fromkeys(dynamic_halt.FRAMEWORKS, dynamic_halt),
    "ndr": neural_data_router,
    "brt": block_recurrent,
    "sut": sparse_universal,
}


def load_authors(folder: str | Path) -> PreTrainedModel:
    """Load `case.json` (the authors' config) and `weights.safetensors` (the authors' parameter names).

    Understands the classifiers, sentence-pair classifiers and flip-flop models (Transformer, UT, GUT with its
    ablations, TLB and GUTLB) of "Investigating Recurrent Transformers with Dynamic Halt"; the classifiers (NDR, its
    Transformer baselines and ACT variants) of "The Neural Data Router"; the language models of "Block-Recurrent
    Transformers" with their baselines; and the encoders and encoder-decoders of "Sparse Universal Transformer".

    Returns:
        The model, in evaluation mode.

    Raises:
        FileNotFoundError: the folder lacks one of the two files.
        ValueError: a system this package does not have, a config choice it cannot express, or weights that are
            missing, unexpected or of another shape.
    """
    return load_case(*read_authors(folder))[0]


def read_authors(folder: str | Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The authors' config and parameters; errors are those of `load_authors`."""
    paths = [Path(folder) / name for name in ("case.json", "weights.safetensors")]
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(
                f"{folder} holds no {path.name}: pass a folder with case.json and weights.safetensors"
            )
    return read_json(paths[0]), load_file(paths[1])


def load_case(
    case: dict[str, Any], weights: dict[str, torch.Tensor]
) -> tuple[PreTrainedModel, dict[str, torch.Tensor]]:
    """A case's model, and its parameters' values as functions of `weights`, through which gradients flow."""
    kind = "framework" if "framework" in case else "family"
    if case.get(kind) not in ORIGINS:
        raise ValueError(f"case.json: {kind} {case.get(kind)!r} is not one of {', '.join(ORIGINS)}")
    try:
        model, table, tensors = ORIGINS[case[kind]].prepare(case, weights)
    except KeyError as error:
        raise ValueError(f"case.json and the weights do not describe a model: missing {error.args[0]}") from error
    except (StrictDataclassError, RuntimeError) as error:
        raise ValueError(f"the case's config does not describe a valid model: {error}") from error
    names = {theirs: rename(theirs, table) for theirs in tensors}
    load_weights(model, tensors, names)
    return model.eval(), {names[theirs]: tensor for theirs, tensor in tensors.items()}
