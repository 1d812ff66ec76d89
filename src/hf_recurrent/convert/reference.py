"""`load_reference`: a folder of the authors' weights and config -> our model and a `run` of the authors' inputs."""

import json
from pathlib import Path
from typing import Any, Protocol

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import PreTrainedModel

from . import albert, block_recurrent, dynamic_halt, huginn, neural_data_router, ouro, sparse_universal


class Reference(Protocol):
    """A reference checkpoint, loaded into one of our models."""

    model: PreTrainedModel

    def run(self, io: dict[str, torch.Tensor], gradients: bool = False) -> dict[str, torch.Tensor]:
        """Run the inputs in `io` -> outputs under the authors' names, and `grad.<parameter>` if requested.

        Raises:
            ValueError: an input tensor is missing.
        """


def load_reference(folder: str | Path) -> Reference:
    """Load `case.json` (the authors' config) and `weights.safetensors` (the authors' parameter names).

    Understands the classifiers, sentence-pair classifiers and flip-flop models (Transformer, UT, GUT with its
    ablations, TLB and GUTLB) of "Investigating Recurrent Transformers with Dynamic Halt"; the classifiers (NDR, its
    Transformer baselines and ACT variants) of "The Neural Data Router"; the language models of "Block-Recurrent
    Transformers" with their baselines; the encoders and encoder-decoders of "Sparse Universal Transformer"; ALBERT of
    transformers with the classifiers of PABEE; and the language models of Ouro and Huginn.

    Raises:
        FileNotFoundError: the folder lacks one of the two files.
        ValueError: a system this package does not have, a config choice it cannot express, or weights that are
            missing, unexpected or of another shape.
    """
    folder = Path(folder)
    for name in ("case.json", "weights.safetensors"):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} holds no {name}: pass a folder with case.json and weights.safetensors")
    case, weights = read_case(folder / "case.json"), read_weights(folder / "weights.safetensors")
    try:
        if case.get("framework") in dynamic_halt.FRAMEWORKS:
            return dynamic_halt.load(case, weights)
        if case.get("family") == "ndr" and "official_variant" in case.get("config", {}):
            return neural_data_router.load(case, weights)
        if case.get("family") == "brt" and "window_length" in case.get("config", {}):
            return block_recurrent.load(case, weights)
        if case.get("family") == "sut" and case.get("config", {}).get("kind") in ("enc", "ed", "inc", "sweep"):
            return sparse_universal.load(case, weights)
        if case.get("family") == "albert":
            return albert.load(case, weights)
        if case.get("family") == "ouro":
            return ouro.load(case, weights)
        if case.get("family") == "huginn":
            return huginn.load(case, weights)
    except StrictDataclassError as error:
        raise ValueError(f"the case's config does not describe a valid model: {error}") from error
    # its values are read where they are needed, as whatever they are
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder / 'case.json'} is not as the authors' code writes it ({error!r})") from error
    raise ValueError(
        f"{folder / 'case.json'}: framework {case.get('framework')!r} is not one of {sorted(dynamic_halt.FRAMEWORKS)}, "
        f"nor is family {case.get('family')!r} 'ndr', 'brt', 'sut', 'albert', 'ouro' or 'huginn' with the config of a "
        "model"
    )


def read_case(path: Path) -> dict[str, Any]:
    """The authors' config. Raises ValueError for a file that holds none."""
    try:
        case = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error}): pass the authors' case.json") from error
    if not isinstance(case, dict) or not isinstance(case.get("config", {}), dict):
        raise ValueError(f"{path} holds no mapping with a config: pass the authors' case.json")
    return case


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """The authors' parameters. Raises ValueError for a damaged file."""
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file ({error})") from error
