"""Cost of exit criteria, and time that they save, side by side in one run.

    python -m perf exit_criteria
    python -m perf exit_criteria --saving model_cards/ndr-ctl-forward

The first table is the cost: a model in which no unit stops, by each criterion, over the same model without one. `head`
is the time of the predictions that a criterion looks at, over the same, measured apart; what is left of the cost is the
criterion's own.

The second is the saving: the checkpoint's weights tiled to `--hidden-size`, which leaves every state, prediction and
step as it is, on a batch of commands of 1 to 10 functions; `ideal` is mean executed depth / maximum depth.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from hf_recurrent import benchmarks
from hf_recurrent.models.config.exit_criteria import CRITERIA
from hf_recurrent.models.depth.exit_criteria import log_distributions

from .core import Table, Timing, measure
from .models import Batch, add_size_options, build, mixed_batch

ARCHITECTURES = ("gut", "ut", "ndr", "sut")
# the longest patience, so that no unit stops
NEVER = 10_000
# commands of each number of functions in the mixed batch
COMMANDS_PER_LENGTH = 50


def add_options(parser: argparse.ArgumentParser) -> None:
    add_size_options(parser, width=256, steps=8)
    parser.add_argument("--architectures", nargs="+", choices=ARCHITECTURES, default=list(ARCHITECTURES))
    parser.add_argument("--criteria", nargs="+", choices=CRITERIA, default=["convergence", "agreement", "confidence"])
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--saving", type=Path, help="checkpoint whose saving is measured instead of the cost")
    parser.add_argument("--threshold", type=float, default=0.3)
    parser.add_argument("--max-depth", type=int, default=16)
    parser.set_defaults(repeats=25)


def ways_of(model: torch.nn.Module, batch: Batch, args: argparse.Namespace) -> dict[str, Callable[[], object]]:
    """A pass without criterion and by each criterion, in which no unit stops; and the predictions of a pass alone."""
    mask = batch["attention_mask"].bool()
    with torch.no_grad():
        states = model.model(**batch, exit_criterion="learned").last_hidden_state

    def predict() -> None:
        for _ in range(args.num_steps - 1):
            log_distributions(model.classifier(model.model.features(states, mask)), multi_label=False)

    def run(criterion: str) -> Callable[[], object]:
        patience = {} if criterion == "learned" else {"exit_patience": NEVER}
        return lambda: model(**batch, exit_criterion=criterion, **patience)

    ways = {"predict": predict, **{each: run(each) for each in ("learned", *args.criteria)}}
    return {name: torch.no_grad()(way) for name, way in ways.items()}


def cost_rows(timings: dict[str, Timing], architecture: str, criteria: list[str]) -> Iterator[dict]:
    head = timings["predict"].ratio(timings["learned"])[0]
    for criterion in criteria:
        ratio, low, high = timings[criterion].ratio(timings["learned"])
        looks = head if CRITERIA[criterion].evidence == "predictions" else 0.0
        yield {
            "architecture": architecture,
            "criterion": criterion,
            "cost %": 100 * (ratio - 1),
            "quartiles": (100 * (low - 1), 100 * (high - 1)),
            "head %": 100 * looks,
            "own %": 100 * (ratio - 1 - looks),
        }


def cost(args: argparse.Namespace) -> Iterator[dict]:
    for architecture in args.architectures:
        model = build(architecture, args, halting="none")
        batch = mixed_batch(args, args.batch_size, args.length, shortest=args.length // 2)
        yield from cost_rows(measure(ways_of(model, batch, args), args), architecture, args.criteria)


def tiled(folder: Path, hidden_size: int) -> torch.nn.Module:
    """The checkpoint's model at another width, whose states are the checkpoint's side by side again and again."""
    small = AutoModelForSequenceClassification.from_pretrained(folder)
    factor = hidden_size // small.config.hidden_size
    fields = small.config.to_dict()
    for name in ("hidden_size", "intermediate_size", "num_attention_heads"):
        fields[name] *= factor
    large = type(small)(type(small.config)(**fields))
    linear = {name for name, module in large.named_modules() if isinstance(module, torch.nn.Linear)}
    state = small.state_dict()
    for name, parameter in large.state_dict().items():
        value = state[name]
        repeats = [new // old for new, old in zip(parameter.shape, value.shape, strict=True)]
        owner, _, kind = name.rpartition(".")
        # a sum over as many times the inputs
        share = repeats[-1] if owner in linear and kind == "weight" else 1
        parameter.copy_(value.repeat(*repeats) / share)
    return large.eval()


def mixed_commands() -> tuple[list[str], list[int]]:
    """Commands of each number of functions, and their labels."""
    splits = benchmarks.load_benchmark("compositional_table_lookup", "forward")
    texts, labels = [], []
    for split in ("test", "test_ood", "validation_ood"):
        taken: dict[int, int] = {}
        for example in splits[split]:
            depth = example["depth"]
            if taken.setdefault(depth, 0) < COMMANDS_PER_LENGTH:
                taken[depth] += 1
                texts.append(example["text"])
                labels.append(example["label"])
    return texts, labels


def saving(args: argparse.Namespace) -> dict:
    model = tiled(args.saving, args.hidden_size).to(args.device, getattr(torch, args.dtype))
    texts, labels = mixed_commands()
    batch = AutoTokenizer.from_pretrained(args.saving)(texts, padding=True, return_tensors="pt").to(args.device)
    rules = {
        "full": {"exit_criterion": "learned"},
        "exit": {"exit_criterion": "convergence", "exit_threshold": args.threshold},
    }
    ways = {
        name: torch.no_grad()(lambda rule=rule: model(**batch, max_depth=args.max_depth, **rule))
        for name, rule in rules.items()
    }
    timings, output = measure(ways, args), ways["exit"]()
    ratio, low, high = timings["exit"].ratio(timings["full"])
    ideal = output.ponder_steps.float().mean().item() / args.max_depth
    return {
        "commands": len(texts),
        "right %": 100 * (output.logits.argmax(-1).cpu() == torch.tensor(labels)).float().mean().item(),
        "mean depth": ideal * args.max_depth,
        "ideal": ideal,
        "time": ratio,
        "quartiles": (low, high),
        "time over ideal": ratio / ideal,
    }


def tables(args: argparse.Namespace) -> Iterator[Table]:
    sizes = f"width {args.hidden_size}, {args.batch_size} sequences of up to {args.length} tokens"
    if args.saving is None:
        yield Table(f"Cost of exit criteria, {sizes}, {args.num_steps} steps", list(cost(args)))
    else:
        yield Table(f"Saving of convergence, width {args.hidden_size}, at most {args.max_depth} steps", [saving(args)])
