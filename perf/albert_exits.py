"""An ALBERT that stops early beside transformers' ALBERT at fixed depths: accuracy and time on the same examples.

    python docs/your_data/make_data.py movie_reviews.zip
    python -m perf albert_exits sentences_test.csv
    python -m perf albert_exits sentences_test.csv --trained runs/depth_3 runs/depth_12

`transformers, n layers` has the checkpoint's weights, and its classifier after n layers; those of `--trained` were
trained with so many layers and the loss after the last one alone. `layers` are those that an example takes on average.
Times are of a pass over a part of the examples, in batches of like length that are encoded beforehand.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from transformers import AlbertForSequenceClassification, PreTrainedModel

from hf_recurrent.convert import save_original
from hf_recurrent.tasks.checkpoints import Checkpoint, Request, evaluation_splits, load_checkpoint, requested_task

from .core import Table, compared, measure
from .models import Batch

ON_DEVICES = False
CHECKPOINT = Path(__file__).parents[1] / "model_cards" / "albert-review-sentences"
SPLIT = "test"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "examples", nargs="?", default="sentences_test.csv", help="a file of the examples that the checkpoint answers"
    )
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT, help="with a classifier for each step")
    parser.add_argument("--trained", type=Path, nargs="*", default=[], help="checkpoints of one classifier each")
    parser.add_argument("--depths", type=int, nargs="+", default=[3, 6, 9, 12], help="fixed ones")
    parser.add_argument("--text-column", nargs="+", default=["sentence"])
    parser.add_argument("--max-seq-length", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--timed", type=int, default=20, help="batches that are timed, evenly over the lengths")


class Way(NamedTuple):
    """A model with the batches that it reads, and options of its calls."""

    model: PreTrainedModel
    batches: list[Batch]
    options: dict[str, Any]

    @torch.no_grad()
    def answer(self, every: int = 1) -> tuple[int, int, int]:
        """Examples, right answers, and layers taken, of every so many-th batch."""
        examples = right = layers = 0
        for batch in self.batches[::every]:
            inputs = {name: values for name, values in batch.items() if name != "labels"}
            outputs = self.model(**inputs, **self.options)
            examples += len(outputs.logits)
            right += int((outputs.logits.argmax(-1) == batch["labels"]).sum())
            steps = outputs.get("ponder_steps")
            layers += len(outputs.logits) * self.model.config.num_hidden_layers if steps is None else int(steps.sum())
        return examples, right, layers


def encoded(checkpoint: Checkpoint, args: argparse.Namespace) -> list[Batch]:
    """The examples in batches of like length."""
    settings = {"text_column": args.text_column, "max_seq_length": args.max_seq_length}
    request = Request(files={SPLIT: args.examples}, arguments=settings)
    (split,) = evaluation_splits(checkpoint, request, requested_task(checkpoint, request))
    return [dict(batch) for batch in split.batches(checkpoint.tokenizer, args.batch_size)]


def of_transformers(model: PreTrainedModel, depth: int) -> PreTrainedModel:
    """transformers' model with the same weights and so many layers, and the classifier after the last of them."""
    with TemporaryDirectory() as folder:
        save_original(model, folder)
        theirs = AlbertForSequenceClassification.from_pretrained(folder, num_hidden_layers=depth)
    own = model.classifiers[depth - 1] if hasattr(model, "classifiers") else model.classifier
    theirs.classifier.load_state_dict(own.state_dict())
    return theirs.eval()


def ways_of(args: argparse.Namespace) -> dict[str, Way]:
    checkpoint = load_checkpoint(args.checkpoint, "cpu")
    model, batches = checkpoint.model, encoded(checkpoint, args)
    ways = {f"transformers, {depth} layers": Way(of_transformers(model, depth), batches, {}) for depth in args.depths}
    for folder in args.trained:
        own = load_checkpoint(folder, "cpu")
        depth = own.model.config.num_hidden_layers
        ways[f"transformers, trained with {depth} layers"] = Way(
            of_transformers(own.model, depth), encoded(own, args), {}
        )
    ways["this package, all layers"] = Way(model, batches, {"exit_criterion": "learned"})
    ways[f"this package, exit by {model.config.exit_criterion}"] = Way(model, batches, {})
    return ways


def tables(args: argparse.Namespace) -> Iterator[Table]:
    ways = ways_of(args)
    answers = {name: way.answer() for name, way in ways.items()}
    every = max(1, len(next(iter(ways.values())).batches) // args.timed)
    calls: dict[str, Callable[[], object]] = {name: partial(way.answer, every) for name, way in ways.items()}
    rows = compared(measure(calls, args), f"transformers, {max(args.depths)} layers")
    for row in rows:
        examples, right, layers = answers[row["way"]]
        row |= {"layers": layers / examples, "accuracy %": 100 * right / examples}
    number = next(iter(answers.values()))[0]
    yield Table(f"{args.checkpoint.name}: {number:,} examples of {Path(args.examples).name}", rows)
