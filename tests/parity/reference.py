"""`load_reference`: a folder of the authors' weights and config -> our model and a `run` of the authors' inputs."""

from pathlib import Path
from typing import Protocol

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedModel

from hf_recurrent.convert.authors import load_case, read_authors

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

    Raises:
        FileNotFoundError: the folder lacks one of the two files.
        ValueError: a system this package does not have, a config choice it cannot express, or weights that are
            missing, unexpected or of another shape.
    """
    case, weights = read_authors(folder)
    # gradients of the authors' parameters come through the conversion
    theirs = {name: tensor.requires_grad_(tensor.is_floating_point()) for name, tensor in weights.items()}
    # conversions of real checkpoints of these go through `from_pretrained_recurrent`
    pretrained = {"albert": albert, "ouro": ouro, "huginn": huginn}.get(case.get("family"))
    if pretrained is not None:
        try:
            return pretrained.load(case, theirs)
        except (StrictDataclassError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{folder}/case.json does not describe a valid model: {error!r}") from error
    model, ours = load_case(case, theirs)
    if "framework" in case:
        kind = dynamic_halt.FlipFlopReference if model.config.is_causal else dynamic_halt.ClassifierReference
        return kind(model, theirs, ours)
    if case["family"] == "ndr":
        return neural_data_router.NeuralDataRouterReference(model, theirs, ours, case["config"].get("n_test_layers"))
    if case["family"] == "brt":
        return block_recurrent.BlockRecurrentReference(model, theirs, ours, case.get("grad_segment"))
    if model.config.is_encoder_decoder:
        return sparse_universal.EncoderDecoderReference(model, theirs, ours, case["config"])
    return sparse_universal.EncoderReference(model, theirs, ours)
