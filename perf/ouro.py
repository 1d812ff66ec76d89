"""Ouro's tokens that stop early: a batch and generation, with all steps computed and with those of stopped ones spared.

    python -m perf ouro
    python -m perf ouro --rows 32 --new-tokens 128 --mean-steps 3

The weights are random, and the exit threshold is such that tokens of the batch stop after about so many steps on
average. `computed` is the authors' way: all steps, of which one is answered from. `last` spares them: later tokens see
the keys of a token's last step.
"""

import argparse
from collections.abc import Iterator
from functools import partial

import torch

from hf_recurrent import OuroRecurrentConfig, OuroRecurrentForCausalLM

from .core import Table, compared, measure
from .models import FIRST_TOKEN, VOCABULARY

ON_DEVICES = True
ALL, COMPUTED, LAST = "all steps", "computed", "last"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hidden-size", type=int, default=256)
    parser.add_argument("--layers-per-step", type=int, default=4)
    parser.add_argument("--num-steps", type=int, default=4)
    parser.add_argument("--mean-steps", type=float, default=2.0, help="of a token, about")
    parser.add_argument("--rows", type=int, default=16, help="of a batch")
    parser.add_argument("--length", type=int, default=128, help="tokens of a sequence")
    parser.add_argument("--new-tokens", type=int, default=32)


def build(args: argparse.Namespace) -> OuroRecurrentForCausalLM:
    """A model whose gate tells tokens apart."""
    torch.manual_seed(args.seed)
    config = OuroRecurrentConfig(
        vocab_size=VOCABULARY,
        hidden_size=args.hidden_size,
        layers_per_step=args.layers_per_step,
        num_hidden_layers=args.num_steps,
        initializer_range=args.hidden_size**-0.5,
    )
    model = OuroRecurrentForCausalLM(config).eval().to(args.device, getattr(torch, args.dtype))
    tell_apart(model)
    return model


def tell_apart(model: OuroRecurrentForCausalLM) -> None:
    """Let the gate stop tokens at different depths."""
    torch.nn.init.normal_(model.model.halting_head.proj.weight, std=2.0 * model.config.hidden_size**-0.5)
    torch.nn.init.zeros_(model.model.halting_head.proj.bias)


def threshold_for(model: OuroRecurrentForCausalLM, batch: dict[str, torch.Tensor], mean_steps: float) -> float:
    """The threshold, among a hundred, whose mean depth is nearest to the wanted one, with all steps computed."""
    candidates = [number / 100 for number in range(1, 100)]
    probabilities = model(**batch, output_halting=True, halting_threshold=1.0).halting_probabilities
    mass = 1.0 - (1.0 - probabilities[..., 1:]).cumprod(-1)
    means = [(1 + (mass < each).sum(-1)).float().mean().item() for each in candidates]
    return min(zip(candidates, means, strict=True), key=lambda pair: abs(pair[1] - mean_steps))[0]


@torch.no_grad()
def tables(args: argparse.Namespace) -> Iterator[Table]:
    model = build(args)
    batch = {"input_ids": torch.randint(FIRST_TOKEN, VOCABULARY, (args.rows, args.length), device=args.device)}
    threshold = threshold_for(model, batch, args.mean_steps)
    ways = {ALL: ("computed", 1.0), COMPUTED: ("computed", threshold), LAST: ("last", threshold)}

    def forward(way: str):
        model.config.skipped_steps, chosen = ways[way]
        return model(**batch, halting_threshold=chosen)

    def generate(way: str):
        model.config.skipped_steps, chosen = ways[way]
        return model.generate(
            **batch,
            halting_threshold=chosen,
            max_new_tokens=args.new_tokens,
            do_sample=False,
            eos_token_id=None,
            return_dict_in_generate=True,
        )

    sizes = f"{args.layers_per_step} layers of width {args.hidden_size}, {args.num_steps} steps"
    tasks = {f"{args.length} tokens at once": forward, f"{args.new_tokens} tokens generated after them": generate}
    for task, call in tasks.items():
        rows = compared(measure({way: partial(call, way) for way in ways}, args), ALL)
        yield Table(
            f"Ouro of {sizes}: {args.rows} sequences, {task}",
            [row | {"steps of a token": call(row["way"]).ponder_steps.float().mean().item()} for row in rows],
        )
