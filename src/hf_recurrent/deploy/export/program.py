"""Graphs of models, of a fixed depth or with a loop that ends when the last unit has stopped.

Shapes: B sequences, S tokens, T tokens of a target, C choices of a question.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ...models.config.exit_criteria import LEARNED
from ...models.config.fields import shown
from ...models.ops.modes import inference_mode
from .graph_loop import iterate_in_graph

# of a model's output, what a graph returns
OUTPUTS = ("logits", "start_logits", "end_logits", "last_hidden_state", "ponder_steps", "encoder_ponder_steps")
DEPTHS = ("fixed", "loop")
# of the batch that a graph is traced with
TRACED_ROWS, TRACED_TOKENS, TRACED_TARGETS, TRACED_CHOICES = 3, 7, 5, 2


class Exportable(nn.Module):
    """A model as a function of tensors alone, with the choices of its calls made beforehand.

    Args:
        model: of this package, in evaluation mode.
        options: arguments of its forward pass, such as `max_depth` and `exit_criterion`.
    """

    def __init__(self, model: nn.Module, **options: Any):
        super().__init__()
        self.model = model
        self.options = options

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:
        """(B, S) each, (B, C, S) of choices; decoder_input_ids (B, T) -> those of `OUTPUTS` that the model has."""
        others = {"token_type_ids": token_type_ids, "decoder_input_ids": decoder_input_ids}
        given = {name: value for name, value in others.items() if value is not None}
        output = self.model(input_ids=input_ids, attention_mask=attention_mask, **given, **self.options)
        return {name: output[name] for name in OUTPUTS if output.get(name) is not None}


def reads_any_length(config) -> bool:
    """Whether one graph serves sequences of any length, rather than having as many chunks as those of its trace."""
    return config.capabilities.reads == "whole"


def example_inputs(model: nn.Module, rows: int, tokens: int, targets: int, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random sequences, padded on the right, as `Exportable` takes them."""
    config, generator = model.config, torch.Generator().manual_seed(seed)
    choices = (TRACED_CHOICES,) if type(model).__name__.endswith("ForMultipleChoice") else ()
    shape = (rows, *choices, tokens)
    column = torch.arange(tokens)
    # of a pair both sentences have a token
    lengths = torch.randint(min(2, tokens), tokens + 1, shape[:-1], generator=generator)[..., None]
    mask = (column < lengths).long()
    padding = config.pad_token_id or 0
    inputs = {
        "input_ids": torch.where(mask.bool(), random_ids(config, shape, generator), padding),
        "attention_mask": mask,
    }
    if config.capabilities.siamese or getattr(config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = (column >= lengths // 2).long() * mask
    if config.is_encoder_decoder:
        inputs["decoder_input_ids"] = random_ids(config, (rows, targets), generator)
    return {name: value.to(model.device) for name, value in inputs.items()}


def random_ids(config, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.randint(min(4, config.vocab_size - 1), config.vocab_size, shape, generator=generator)


def dynamic_shapes(model: nn.Module, inputs: dict[str, torch.Tensor], rows: int, tokens: int) -> dict[str, dict]:
    """Of each input, the dimensions that may differ from those of the batch that is traced."""
    batch = torch.export.Dim("rows", max=rows)
    lengths = {name: torch.export.Dim(name, min=2, max=tokens) for name in ("tokens", "targets")}
    shapes = {}
    for name, value in inputs.items():
        shapes[name] = {0: batch}
        if reads_any_length(model.config):
            shapes[name][value.dim() - 1] = lengths["targets" if name.startswith("decoder") else "tokens"]
    return shapes


@contextmanager
def traced(model: nn.Module, loop: bool) -> Iterator[None]:
    """Let traced calls use products that every runtime has and, with `loop`, end when the last unit has stopped."""
    attention, experts = model.config._attn_implementation, getattr(model.config, "_experts_implementation", None)
    parts = [part for part in model.modules() if hasattr(part, "loop_in_graph")]
    try:
        for part in parts:
            part.loop_in_graph = iterate_in_graph if loop else None
        # exporters write SDPA out, with another order of its result in memory than the one that was traced
        model.set_attn_implementation("eager")
        if experts is not None:
            model.set_experts_implementation("batched_mm")
        yield
    finally:
        for part in parts:
            del part.loop_in_graph
        model.set_attn_implementation(attention)
        if experts is not None:
            model.set_experts_implementation(experts)


def has_loop(program: torch.export.ExportedProgram) -> bool:
    """Whether a program has a loop whose end depends on the data."""
    return any(node.target is torch.ops.higher_order.while_loop for node in program.graph.nodes)


def fixed_reason(config, exit_criterion: str | None) -> str | None:
    """Why the depth of a model is the same for every batch, and what to do; None if it is not."""
    if not config.capabilities.shared_block:
        return "its layers are not shared; leave the depth fixed"
    if hasattr(config, "skipped_steps"):
        return (
            "a step is a stack of layers, and a graph does not carry the keys of stopped tokens; leave the depth fixed"
        )
    if not config.hard_stop:
        return "config.hard_stop is False, so that every unit takes every step; set it to True"
    if config.halting == "none" and (exit_criterion or config.exit_criterion) == LEARNED:
        return "it never halts (halting='none'); choose an exit_criterion"
    return None


def export_program(
    model: nn.Module, depth: str = "fixed", *, rows: int = 64, tokens: int = 512, **options: Any
) -> torch.export.ExportedProgram:
    """The graph of a model's forward pass, by `torch.export`.

    Args:
        model: of this package, on any device.
        depth: "fixed" for all steps one after another, in which units that have stopped no longer change; or "loop"
            for a `torch.while_loop` that ends when every unit has stopped, so that easy batches take less time.
        rows: the most sequences of a batch.
        tokens: the most tokens of a sequence, be it a source or a target, at least 3; those of every sequence, with
            padding, for models that read chunk by chunk, block by block or token by token.
        options: of the forward pass: `max_depth`, `halting_threshold`, `exit_criterion`, `exit_threshold`,
            `exit_patience`, `min_depth`.

    Raises:
        ValueError: an unknown depth, a model of fixed depth with depth="loop", a size too small, or an option that
            the model cannot take.
    """
    if depth not in DEPTHS:
        raise ValueError(f"depth is {shown(depth)}: expected one of {', '.join(DEPTHS)}")
    # of a single length there would be no dimension that differs
    for name, value, least in (("rows", rows, 2), ("tokens", tokens, 3)):
        if value < least:
            raise ValueError(f"{name} is {shown(value)}: pass {least} or more")
    wants_loop, refusal = depth == "loop", f"depth is 'loop', but the depth of {type(model).__name__} is fixed: "
    if wants_loop and (reason := fixed_reason(model.config, options.get("exit_criterion"))):
        raise ValueError(f"{refusal}{reason}")
    length = min(TRACED_TOKENS, tokens) if reads_any_length(model.config) else tokens
    inputs = example_inputs(model, min(TRACED_ROWS, rows), length, min(TRACED_TARGETS, tokens))
    shapes = dynamic_shapes(model, inputs, rows, tokens)
    with inference_mode(model), traced(model, wants_loop):
        # what the model would refuse is refused in its words
        exportable = Exportable(model, **options)
        exportable(**inputs)
        program = torch.export.export(exportable, (), kwargs=inputs, dynamic_shapes=shapes)
    if wants_loop and not has_loop(program):
        raise ValueError(f"{refusal}halted units go on, or max_depth leaves nothing to decide")
    return program
