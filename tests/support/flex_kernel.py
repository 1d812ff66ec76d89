"""torch's flex attention on a CPU: its operator as torch traces it, but not compiled, and with a backward pass."""

import contextlib
import warnings
from unittest import mock

import torch
from torch.nn.attention import flex_attention as torch_flex

from hf_recurrent.models.ops import flex_attention as ours


def traced(query, key, value, training, **options):
    calls.append((query.shape[2], key.shape[2], query.shape[3]))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        # torch looks whether what it traces has a gradient
        warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")
        return torch_flex.flex_attention(query, key, value, **options)


# queries and keys, and the width of a head, of every call since `on_cpu` was entered
calls: list[tuple[int, int, int]] = []


@contextlib.contextmanager
def on_cpu():
    """Attention goes to the operator, whose backward pass torch only checks the device for."""
    calls.clear()
    # those of earlier tests count as its graphs, too
    torch._dynamo.reset()
    with (
        mock.patch.object(ours, "FUSED_DEVICES", [*ours.FUSED_DEVICES, "cpu"]),
        mock.patch.object(ours, "compile_friendly_flex_attention", traced),
        mock.patch.object(torch_flex, "_validate_device"),
        # a graph for each kind of shape: of one or several rows, queries and keys
        torch._dynamo.config.patch(recompile_limit=64),
    ):
        yield
