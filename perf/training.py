"""Time that the Trainer adds to a training loop.

    python -m perf training
    python -m perf training --architectures ut --hidden-size 128

All ways train the same model on the same examples with the same optimiser and gradient clipping, and take turns step by
step. `bare loop` runs on batches that lie ready, `fetching` on those that a data loader makes of stored examples.
`Trainer` is that of our runs: it also fetches, logs, looks for numbers that are not finite and adds up ponder
statistics. `plain Trainer` is that of transformers, and its ratio is over a bare loop that took turns with it. A round
is the steps from one log to the next. Whatever a Trainer does before the first step is left out.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import torch
from datasets import Dataset
from transformers import Trainer, TrainerCallback

from hf_recurrent.data.batches import PaddingCollator
from hf_recurrent.training.arguments import RecurrentTrainingArguments
from hf_recurrent.training.trainer import RecurrentTrainer

from .core import Table, Timing, compared
from .models import LABELS, Batch, add_size_options, build, random_lengths, random_tokens

ARCHITECTURES = ("ut", "gut")
ON_DEVICES = False


def add_options(parser: argparse.ArgumentParser) -> None:
    add_size_options(parser, width=64, steps=6)
    parser.set_defaults(repeats=20)
    parser.add_argument("--architectures", nargs="+", choices=ARCHITECTURES, default=ARCHITECTURES)
    parser.add_argument("--logging-steps", type=int, default=10, help="optimiser steps of a round")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=48, help="longest sequence; the shortest has a quarter of it")


def num_steps(args: argparse.Namespace) -> int:
    """Optimiser steps, those of a round to warm up among them."""
    return args.logging_steps * (args.repeats + 1)


def examples_of(args: argparse.Namespace) -> Dataset:
    lengths = random_lengths(args.batch_size * num_steps(args), args.length // 4, args.length, args.seed)
    tokens = random_tokens((len(lengths), args.length), args.seed).tolist()
    rows = [row[:length] for row, length in zip(tokens, lengths.tolist(), strict=True)]
    return Dataset.from_dict({"input_ids": rows, "labels": [row[0] % LABELS for row in rows]})


def trainer_of(
    kind: type[Trainer], architecture: str, examples: Dataset, folder: str, args: argparse.Namespace
) -> Trainer:
    settings = RecurrentTrainingArguments(
        output_dir=folder,
        max_steps=num_steps(args),
        logging_steps=args.logging_steps,
        per_device_train_batch_size=args.batch_size,
        train_sampling_strategy="sequential",
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
        report_to="none",
        log_level="error",
    )
    tokenizer = SimpleNamespace(pad_token_id=0, pad_token_type_id=0, padding_side="right")
    model = build(architecture, args)
    trainer = kind(model, settings, train_dataset=examples, data_collator=PaddingCollator(tokenizer))
    # the last callback prints what is logged
    trainer.callback_handler.callbacks.pop()
    trainer.create_optimizer_and_scheduler(num_steps(args))
    return trainer


def bare_loop(trainer: Trainer, batches: Iterator[Batch]) -> Callable[[], None]:
    """The Trainer's steps without it, one a call."""
    model, optimizer, scheduler = trainer.model.train(), trainer.optimizer, trainer.lr_scheduler

    def step() -> None:
        model(**next(batches)).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), trainer.args.max_grad_norm)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()

    return step


class Turns(TrainerCallback):
    """Other ways' steps after each of the Trainer's, and the seconds of them all by round."""

    def __init__(self, ways: dict[str, Callable[[], None]], args: argparse.Namespace):
        self.ways, self.steps = ways, args.logging_steps
        self.timings = {
            name: Timing([0.0] * args.repeats, [0.0] * args.repeats, args.threads > 1) for name in (*ways, "Trainer")
        }

    def on_train_begin(self, *_, **__) -> None:
        self.start = time.process_time(), time.perf_counter()

    def on_step_end(self, args, state, *_, **__) -> None:
        # logs of a round follow its last step
        index = (state.global_step - 2) // self.steps - 1
        self.add("Trainer", index)
        for name, step in self.ways.items():
            step()
            self.add(name, index)

    def add(self, name: str, index: int) -> None:
        """Count the time since the last way's end in a round, -1 to warm up."""
        before, self.start = self.start, (time.process_time(), time.perf_counter())
        if index >= 0:
            for seconds, begin, end in zip(self.timings[name][:2], before, self.start, strict=True):
                seconds[index] += end - begin


def timings_of(
    kind: type[Trainer], architecture: str, examples: Dataset, folder: str, args: argparse.Namespace
) -> dict[str, Timing]:
    """Times of the bare loop, of fetching and, as `Trainer`, of a Trainer of this kind."""
    first, second, trainer = (trainer_of(kind, architecture, examples, folder, args) for _ in range(3))
    ways = {
        "bare loop": bare_loop(first, iter(list(first.get_train_dataloader()))),
        "fetching": bare_loop(second, iter(second.get_train_dataloader())),
    }
    turns = Turns(ways, args)
    trainer.add_callback(turns)
    trainer.train()
    return turns.timings


def tables(args: argparse.Namespace) -> Iterator[Table]:
    sizes = f"{args.batch_size} sequences of up to {args.length} tokens, a log each {args.logging_steps} steps"
    examples = examples_of(args)
    with tempfile.TemporaryDirectory() as folder:
        for architecture in args.architectures:
            setting = architecture, examples, folder, args
            rows = compared(timings_of(RecurrentTrainer, *setting), "bare loop")
            *_, plain = compared(timings_of(Trainer, *setting), "bare loop")
            yield Table(
                f"Training of {architecture}, width {args.hidden_size}: {sizes}",
                [*rows, {**plain, "way": "plain Trainer"}],
            )
