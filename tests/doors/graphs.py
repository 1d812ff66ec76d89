"""Graphs of a model: compiled and exported."""

import torch
from transformers import AutoModelForSequenceClassification

from support.compare import assert_same
from support.families import make_config

from .door import Room
from .models import batch_for, compute, variant_of

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
