"""Wall-clock time that halting saves, with and without compaction, side by side in one run.

    python perf/halting.py
    python perf/halting.py --family ut --train
    python perf/halting.py --device cuda --dtype bfloat16 --hidden-size 512 --num-heads 8 --length 100

Each row times the same model on the same batch in three ways: halted units gathered out (compaction), halted units
masked until the whole batch has stopped (no compaction), and every step run (full depth). Numbers are ratios to the
full-depth time; `ideal` is the fraction of block applications that halting leaves: mean executed depth / maximum
depth. A transition-aware model applies its block once more than it takes steps, to find that the step is not worth
taking. The halting bias is searched for the wanted depth; the model itself decides when to halt.
"""

import argparse
import json
import time

import torch

import hf_recurrent

# factor on the initial weights of the halting head, so that units stop at different depths
HEAD_STEEPNESS = {"gut": 60.0, "ut": 4.0}
NEVER_HALTS = -1e4
VARIANTS = {
    "compaction": {"compaction": True, "hard_stop": True},
    "no_compaction": {"compaction": False, "hard_stop": True},
    "full_depth": {"compaction": False, "hard_stop": False},
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", dest="architecture", choices=("gut", "ut"), default="gut")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[16, 64])
    parser.add_argument(
        "--depths", type=float, nargs="+", default=[0.15, 0.3, 0.45, 1.0], help="fractions of --num-steps"
    )
    parser.add_argument("--num-steps", type=int, default=20)
    parser.add_argument("--hidden-size", type=int, default=128)
    parser.add_argument("--num-heads", type=int, default=4)
    parser.add_argument("--length", type=int, default=64, help="longest sequence; the shortest has a quarter of it")
    parser.add_argument("--train", action="store_true", help="time forward and backward instead of forward")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    parser.add_argument("--json", help="write the rows to this file too")
    return parser.parse_args()


def build_model(args: argparse.Namespace) -> torch.nn.Module:
    torch.manual_seed(0)
    config_class, model_class = {
        "gut": (hf_recurrent.GUTConfig, hf_recurrent.GUTModel),
        "ut": (hf_recurrent.UTConfig, hf_recurrent.UTModel),
    }[args.architecture]
    config = config_class(
        hidden_size=args.hidden_size,
        num_attention_heads=args.num_heads,
        intermediate_size=2 * args.hidden_size,
        num_hidden_layers=args.num_steps,
        initializer_range=1.0,
        dropout=0.0,
        attention_dropout=0.0,
    )
    model = model_class(config)
    with torch.no_grad():
        model.halting_head.down_proj.weight.mul_(HEAD_STEEPNESS[args.architecture])
    return model.to(args.device, getattr(torch, args.dtype)).train(args.train)


def build_batch(args: argparse.Namespace, batch_size: int, vocab_size: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(4, vocab_size, (batch_size, args.length), generator=generator)
    lengths = torch.randint(args.length // 4, args.length + 1, (batch_size, 1), generator=generator)
    lengths[0] = args.length
    mask = (torch.arange(args.length) < lengths).long()
    return {"input_ids": ids.to(args.device), "attention_mask": mask.to(args.device)}


def executed_depth(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> tuple[float, float]:
    """Mean block applications and mean ponder steps of the batch's halting units."""
    with torch.no_grad():
        steps = model(**batch).ponder_steps
    steps = steps[steps >= 0].float()
    depth = (steps + 1).clamp_max(model.config.num_hidden_layers) if model.config.transition_aware else steps
    return depth.mean().item(), steps.mean().item()


def tune_depth(model: torch.nn.Module, batch: dict[str, torch.Tensor], fraction: float) -> None:
    """Bisect the halting bias until the mean executed depth is `fraction` of the maximum."""
    low, high = -12.0, 8.0
    target = fraction * model.config.num_hidden_layers
    if fraction >= 1:
        torch.nn.init.constant_(model.halting_head.down_proj.bias, NEVER_HALTS)
        return
    for _ in range(18):
        middle = (low + high) / 2
        torch.nn.init.constant_(model.halting_head.down_proj.bias, middle)
        if executed_depth(model, batch)[0] > target:
            low = middle
        else:
            high = middle
    torch.nn.init.constant_(model.halting_head.down_proj.bias, high)


def run_once(model: torch.nn.Module, batch: dict[str, torch.Tensor], train: bool) -> float:
    started = time.perf_counter()
    with torch.set_grad_enabled(train):
        output = model(**batch)
        if train:
            model.zero_grad()
            (output.pooler_output.float().square().mean() + output.ponder_cost.mean()).backward()
    if batch["input_ids"].is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - started


def measure(model: torch.nn.Module, batch: dict[str, torch.Tensor], args: argparse.Namespace) -> dict[str, float]:
    """Minimum of seconds of each variant over repeats in turns, which other programs disturb least."""
    seconds = {name: [] for name in VARIANTS}
    for repeat in range(args.repeats + 1):
        for name, options in VARIANTS.items():
            for field, value in options.items():
                setattr(model.config, field, value)
            elapsed = run_once(model, batch, args.train)
            if repeat > 0:
                seconds[name].append(elapsed)
    return {name: min(values) for name, values in seconds.items()}


def main() -> None:
    args = parse_arguments()
    model = build_model(args)
    rows = []
    print(
        f"{args.architecture}, {'training step' if args.train else 'forward'}, width {args.hidden_size}, "
        f"length {args.length}, at most {args.num_steps} steps, {args.dtype} on {args.device}"
    )
    print("batch  steps  executed  ideal | compaction  no compaction | compaction/ideal  compaction/none  full s")
    for batch_size in args.batch_sizes:
        batch = build_batch(args, batch_size, model.config.vocab_size)
        for fraction in args.depths:
            tune_depth(model, batch, fraction)
            executed, steps = executed_depth(model, batch)
            seconds = measure(model, batch, args)
            ideal = executed / args.num_steps
            compacted, masked = (seconds[name] / seconds["full_depth"] for name in ("compaction", "no_compaction"))
            rows.append(
                {
                    "batch_size": batch_size,
                    "mean_ponder_steps": steps,
                    "mean_executed_depth": executed,
                    "ideal": ideal,
                    "compaction": compacted,
                    "no_compaction": masked,
                    "over_ideal": compacted / ideal,
                    "over_no_compaction": compacted / masked,
                    "full_depth_seconds": seconds["full_depth"],
                }
            )
            print(
                f"{batch_size:5d}  {steps:5.2f}  {executed:8.2f}  {ideal:5.3f} | {compacted:10.3f}  {masked:13.3f} | "
                f"{compacted / ideal:16.3f}  {compacted / masked:15.3f}  {seconds['full_depth']:6.3f}"
            )
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"arguments": vars(args), "torch": torch.__version__, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
