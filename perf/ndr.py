"""Training speed of the Neural Data Router, against the straightforward implementation, side by side in one run.

    python -m perf ndr --threads 2
    python -m perf ndr --lengths 8 13 --batch-size 256

Both are the paper's NDR for compositional table lookup (width 256, 1 head, 14 steps, dropout 0.5) and take the same
training step, forward and backward, on the same batch; before they are timed, their gradients without dropout are
compared. The straightforward one is the naive twin of the tests (`tests/reference/ndr.py`): torch's own layers, and
geometric attention as the product that defines it. A sequence of 8 tokens is a command of 5 functions with its
argument, BOS and EOS, the longest of the training set.
"""

import argparse
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

import hf_recurrent

from .core import Table, compared, measure
from .models import Batch

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from reference.ndr import Router

ON_DEVICES = False


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--lengths", type=int, nargs="+", default=[8], help="tokens of the sequences of a batch")


def make_models(args: argparse.Namespace) -> dict[str, torch.nn.Module]:
    torch.manual_seed(args.seed)
    config = hf_recurrent.NDRConfig(vocab_size=24, num_labels=8)
    model, twin = hf_recurrent.NDRForSequenceClassification(config), Router(config)
    twin.load_state_dict(model.state_dict())
    return {"ours": model, "straightforward": twin}


def train_step(model: torch.nn.Module, batch: Batch) -> None:
    """Forward and backward, which leaves the gradients."""
    model.zero_grad()
    if isinstance(model, Router):
        model(batch["input_ids"], batch["attention_mask"].bool(), batch["labels"])[0].backward()
    else:
        model(**batch).loss.backward()


def check_same(model: torch.nn.Module, twin: torch.nn.Module, batch: Batch) -> None:
    for each in (model.eval(), twin.eval()):
        train_step(each, batch)
    expected = {name: parameter.grad for name, parameter in twin.named_parameters()}
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=0, atol=1e-4, msg=name)


def tables(args: argparse.Namespace) -> Iterator[Table]:
    models = make_models(args)
    for length in args.lengths:
        shape = (args.batch_size, length)
        batch = {
            "input_ids": torch.randint(4, 24, shape),
            "attention_mask": torch.ones(shape, dtype=torch.long),
            "labels": torch.randint(0, 8, shape[:1]),
        }
        check_same(*models.values(), batch)
        ways = {name: functools.partial(train_step, model.train(), batch) for name, model in models.items()}
        title = f"Training step of {args.batch_size} sequences of {length} tokens"
        yield Table(title, compared(measure(ways, args), "ours", "implementation"))
