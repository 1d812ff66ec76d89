"""Cost of exit criteria, and time that they save, side by side in one run.

    python perf/exit_criteria.py
    python perf/exit_criteria.py --saving model_cards/ndr-ctl-forward-cpu

The first table is the cost: a model in which no unit stops, by each criterion, over the same model without one, in
processor time. `head` is the time of the predictions that a criterion looks at, over the same, measured apart; what is
left of the cost is the criterion's own. Freed memory is kept (glibc's `MALLOC_*` variables), because page faults of
memory that is returned and taken again at once cost more than a criterion, in one way or the other by chance.

The second is the saving: the checkpoint's weights tiled to `--hidden-size`, which leaves every state, prediction and
step as it is, on a batch of commands of 1 to 10 functions; `ideal` is mean executed depth / maximum depth.
"""

import argparse
import os
import random
import sys
import time
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import hf_recurrent
from hf_recurrent import benchmarks
from hf_recurrent.models.common.exit_criteria import CRITERIA, log_distributions

ARCHITECTURES = {
    "gut": (hf_recurrent.GUTConfig, hf_recurrent.GUTForSequenceClassification),
    "ut": (hf_recurrent.UTConfig, hf_recurrent.UTForSequenceClassification),
    "ndr": (hf_recurrent.NDRConfig, hf_recurrent.NDRForSequenceClassification),
    "sut": (hf_recurrent.SUTConfig, hf_recurrent.SUTForSequenceClassification),
}
# more steps than any model takes, so that no unit stops
NEVER = 10**6
ALLOCATOR, KEPT = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"), str(2**30)
# commands of each number of functions in the mixed batch
COMMANDS_PER_LENGTH = 50


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architectures", nargs="+", choices=ARCHITECTURES, default=list(ARCHITECTURES))
    parser.add_argument("--criteria", nargs="+", choices=CRITERIA, default=["convergence", "agreement", "confidence"])
    parser.add_argument("--hidden-size", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--num-steps", type=int, default=8)
    parser.add_argument("--saving", type=Path, help="checkpoint whose saving is measured instead of the cost")
    parser.add_argument("--threshold", type=float, default=0.3)
    parser.add_argument("--max-steps", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=25)
    return parser.parse_args()


def fastest(ways: dict, repeats: int) -> dict[str, float]:
    """Smallest processor seconds of each way, which other programs disturb least, over repeats in changing order."""
    seconds = {name: [] for name in ways}
    order = random.Random(0)
    for _ in range(repeats):
        for name in order.sample(list(ways), len(ways)):
            started = time.process_time()
            with torch.no_grad():
                ways[name]()
            seconds[name].append(time.process_time() - started)
    return {name: min(values) for name, values in seconds.items()}


def build(name: str, args: argparse.Namespace) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    config_class, model_class = ARCHITECTURES[name]
    config = config_class(
        vocab_size=64,
        hidden_size=args.hidden_size,
        intermediate_size=2 * args.hidden_size,
        num_hidden_layers=args.num_steps,
        halting="none",
        num_labels=10,
        exit_probe_size=64,
    )
    ids = torch.randint(4, 64, (args.batch_size, args.length))
    lengths = torch.randint(args.length // 2, args.length + 1, (args.batch_size, 1))
    mask = (torch.arange(args.length) < lengths).long()
    return model_class(config).eval(), {"input_ids": ids, "attention_mask": mask}


def ways_of(model: torch.nn.Module, batch: dict[str, torch.Tensor], args: argparse.Namespace) -> dict:
    """A pass without criterion and by each criterion, in which no unit stops; and the predictions of a pass alone."""
    mask = batch["attention_mask"].bool()
    with torch.no_grad():
        states = model.model(**batch).last_hidden_state

    def predict() -> None:
        for _ in range(args.num_steps - 1):
            log_distributions(model.classifier(model.model.features(states, mask)), multi_label=False)

    def run(criterion: str):
        patience = {} if criterion == "learned" else {"exit_patience": NEVER}
        return lambda: model(**batch, exit_criterion=criterion, **patience)

    return {"predict": predict, **{each: run(each) for each in ("learned", *args.criteria)}}


def measure_cost(args: argparse.Namespace) -> None:
    print(
        f"width {args.hidden_size}, {args.batch_size} sequences of up to {args.length} tokens, {args.num_steps} steps"
    )
    print("architecture  criterion      cost    head  own")
    for name in args.architectures:
        seconds = fastest(ways_of(*build(name, args), args), args.repeats)
        for criterion in args.criteria:
            cost = seconds[criterion] / seconds["learned"] - 1
            looks = CRITERIA[criterion].evidence == "predictions"
            head = seconds["predict"] / seconds["learned"] if looks else 0.0
            print(f"{name:12s}  {criterion:12s} {cost:6.1%}  {head:6.1%}  {cost - head:6.1%}")


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


def measure_saving(args: argparse.Namespace) -> None:
    model = tiled(args.saving, args.hidden_size)
    tokenizer = AutoTokenizer.from_pretrained(args.saving)
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
    batch = dict(tokenizer(texts, padding=True, return_tensors="pt"))
    options = {"max_steps": args.max_steps}
    rule = {"exit_criterion": "convergence", "exit_threshold": args.threshold, **options}
    with torch.no_grad():
        output = model(**batch, **rule)
    right = (output.logits.argmax(-1) == torch.tensor(labels)).float().mean()
    ways = {"full": lambda: model(**batch, exit_criterion="learned", **options), "exit": lambda: model(**batch, **rule)}
    seconds = fastest(ways, args.repeats)
    ideal = output.ponder_steps.float().mean().item() / args.max_steps
    ratio = seconds["exit"] / seconds["full"]
    print(f"{len(texts)} commands of 1 to 10 functions, width {args.hidden_size}, at most {args.max_steps} steps")
    print(f"right {right:.1%}, mean depth {ideal * args.max_steps:.2f}")
    print(f"time {ratio:.3f} of full depth, ideal {ideal:.3f}, ratio of the two {ratio / ideal:.3f}")


def keep_freed_memory() -> None:
    """Start again with an allocator that returns no memory to the system."""
    if any(os.environ.get(name) != KEPT for name in ALLOCATOR):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **dict.fromkeys(ALLOCATOR, KEPT)})


def main() -> None:
    args = parse_arguments()
    keep_freed_memory()
    torch.set_num_threads(1)
    if args.saving is None:
        measure_cost(args)
    else:
        measure_saving(args)


if __name__ == "__main__":
    main()
