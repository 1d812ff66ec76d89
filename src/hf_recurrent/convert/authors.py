"""Checkpoints of the papers' codebases: a folder of the authors' config and weights -> our model."""

from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import load_file
from transformers import PreTrainedModel

from ..utils import read_json
from . import block_recurrent, dynamic_halt, neural_data_router, sparse_universal

NAMES = ("case.json", "weights.safetensors")
# of a case whose config has a field, or one of some values of it, the module that knows its names
FAMILIES = {
    "ndr": (neural_data_router, "official_variant", None),
    "brt": (block_recurrent, "window_length", None),
    "sut": (sparse_universal, "kind", ("enc", "ed", "inc", "sweep")),
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
    case, weights = read_authors(folder)
    return load_case(case, weights, Path(folder) / "case.json")[0]


def read_authors(folder: str | Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The authors' config and parameters; errors are those of `load_authors`."""
    paths = [Path(folder) / name for name in NAMES]
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(
                f"{folder} holds no {path.name}: pass a folder with case.json and weights.safetensors"
            )
    return read_json(paths[0]), load_file(paths[1])


def load_case(case: dict[str, Any], weights: dict[str, torch.Tensor], place: Path) -> tuple[PreTrainedModel, dict]:
    """A case's model, and the authors' names of its parameters -> ours; `place` names the case in messages."""
    config, family = case.get("config", {}), None
    if case.get("framework") in dynamic_halt.FRAMEWORKS:
        family = dynamic_halt
    elif case.get("family") in FAMILIES:
        module, field, values = FAMILIES[case["family"]]
        family = module if field in config and (values is None or config[field] in values) else None
    if family is None:
        raise ValueError(
            f"{place}: framework {case.get('framework')!r} is not one of {sorted(dynamic_halt.FRAMEWORKS)}, nor is "
            f"family {case.get('family')!r} one of {', '.join(FAMILIES)} with the config of a model"
        )
    try:
        return family.load(case, weights)
    except StrictDataclassError as error:
        raise ValueError(f"the case's config does not describe a valid model: {error}") from error
