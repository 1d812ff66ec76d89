"""Training speed of the Neural Data Router, against the straightforward implementation, side by side in one run.

    python perf/ndr.py
    python perf/ndr.py --lengths 8 13 --batch-size 256

Both are the paper's NDR for compositional table lookup (width 256, 1 head, 14 steps, dropout 0.5) and take the same
training step, forward and backward, on the same batch; before they are timed, their logits and gradients without
dropout are compared. The straightforward one is the naive twin of the tests (`tests/reference/ndr.py`): torch's own
layers, and geometric attention as the product that defines it. Numbers are milliseconds, medians of interleaved
repeats, and the ratio straightforward / ours. A sequence of 8 tokens is a command of 5 functions with its argument, BOS
and EOS, the longest of the training set.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch

import hf_recurrent

sys.path.append(str(Path(__file__).parent.parent / "tests"))

from reference.ndr import Router


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--lengths", type=int, nargs="+", default=[8], help="tokens of the sequences of a batch")
    parser.add_argument("--repeats", type=int, default=5)
    return parser.parse_args()


def make_models() -> tuple[torch.nn.Module, torch.nn.Module]:
    torch.manual_seed(0)
    config = hf_recurrent.NDRConfig(vocab_size=24, num_labels=8)
    model, twin = hf_recurrent.NDRForSequenceClassification(config), Router(config)
    twin.load_state_dict(model.state_dict())
    return model, twin


def loss_of(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    if isinstance(model, Router):
        return model(batch["input_ids"], batch["attention_mask"].bool(), batch["labels"])[0]
    return model(**batch).loss


def train_step(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> float:
    """Seconds of a forward and a backward pass."""
    model.zero_grad()
    begin = time.perf_counter()
    loss_of(model, batch).backward()
    return time.perf_counter() - begin


def check_same(model: torch.nn.Module, twin: torch.nn.Module, batch: dict[str, torch.Tensor]) -> None:
    for each in (model.eval(), twin.eval()):
        train_step(each, batch)
    expected = {name: parameter.grad for name, parameter in twin.named_parameters()}
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=0, atol=1e-4, msg=name)


def main() -> None:
    args = parse_arguments()
    model, twin = make_models()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, batch of {args.batch_size}, float32")
    print(f"{'tokens':>8} {'ours ms':>9} {'straightforward ms':>19} {'ratio':>6}")
    for length in args.lengths:
        shape = (args.batch_size, length)
        batch = {
            "input_ids": torch.randint(4, 24, shape),
            "attention_mask": torch.ones(shape, dtype=torch.long),
            "labels": torch.randint(0, 8, shape[:1]),
        }
        check_same(model, twin, batch)
        model.train()
        twin.train()
        times: dict[str, list[float]] = {"ours": [], "straightforward": []}
        for _ in range(args.repeats + 1):
            times["ours"].append(train_step(model, batch))
            times["straightforward"].append(train_step(twin, batch))
        # the first of each is a warm-up
        ours, straightforward = (1000 * statistics.median(values[1:]) for values in times.values())
        print(f"{length:>8} {ours:>9.0f} {straightforward:>19.0f} {straightforward / ours:>6.2f}")


if __name__ == "__main__":
    main()
