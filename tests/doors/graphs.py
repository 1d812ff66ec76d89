"""Graphs of a model: compiled and exported."""

import functools

import torch
from transformers import AutoModelForSequenceClassification

from hf_recurrent.deploy.export import export_model
from hf_recurrent.deploy.export.program import reads_any_length
from support.compare import assert_same
from support.families import make_config

from .door import Room
from .models import STACKED, batch_for, compute, live, refused, variant_of

ROOM = Room("Graphs")


def shallow(architecture):
    """Tracing unrolls the depth, and takes a second a step."""
    config = make_config(variant_of(architecture), num_hidden_layers=2)
    batch = batch_for(architecture)
    del batch["labels"]
    return AutoModelForSequenceClassification.from_config(config).eval(), batch


@ROOM.door("torch.compile", packages=["torch"])
def enter_compiled(architecture, folder):
    model, batch = shallow(architecture)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert_same(dict(compute(compiled, batch)), dict(compute(model, batch)))


@ROOM.door("torch.export", packages=["torch"])
def enter_exported(architecture, folder):
    model, batch = shallow(architecture)
    rows = {0: torch.export.Dim("rows", max=64)}
    with torch.no_grad():
        program = torch.export.export(model, (), kwargs=batch, dynamic_shapes=dict.fromkeys(batch, rows)).module()
    some = {name: value[:4] for name, value in batch.items()}
    for inputs in (batch, some):
        assert_same(dict(compute(program, inputs)), dict(compute(model, inputs)))


def enter_graph(depth, options, architecture, folder):
    """The exporter compares answers and steps, for batches of several shapes."""
    model = live(architecture)
    tokens = 64 if reads_any_length(model.config) else 9
    found = export_model(model, folder / "model.onnx", "onnx", depth, tokens=tokens, **options)
    assert found.loops == (depth == "loop")


ONNX = ["onnx", "onnxruntime", "onnxscript"]
ROOM.door("export to ONNX, of a fixed depth", packages=ONNX)(functools.partial(enter_graph, "fixed", {}))
ROOM.door(
    "export to ONNX, with a loop that halting ends",
    refused("layers are not shared", "xpos_transformer", "tlb", "rnn", "block_recurrent")
    | refused("a step is a stack of layers", *STACKED),
    packages=ONNX,
)(functools.partial(enter_graph, "loop", {"exit_criterion": "convergence"}))
