r"""A checkpoint trained further for so many minutes, at a learning rate that falls to 0 when they are over.

    python -m gpu.prepare --recipes listops_depth_ndr
    python -m gpu.further cpu/listops_depth_ndr --minutes 7 --model_name_or_path model_cards/ndr-listops-depth \
        --per_device_train_batch_size 512 --use_cpu false --cuda_graphs true --output_dir runs/further

Data are the prepared files of the recipe's benchmark; further flags are those of `hf-recurrent train`. Time decides, so
that the number of steps is known afterwards. Weights and scores are in `learned` and `slice.json` of `--output_dir`.
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from hf_recurrent.training.trainer import RecurrentTrainer

from . import prepare
from .learned import Deadline, Slice

# more steps than any time allows
ENDLESS = 10**7


class FallingRate(RecurrentTrainer):
    """A trainer whose learning rate falls along a cosine, from the end of its warm-up to 0 at the time `until`."""

    until = math.inf

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> LambdaLR:
        start, warmup = time.time(), max(1, self.args.get_warmup_steps(num_training_steps))

        def factor(step: int) -> float:
            # loading may have taken all of the time
            gone = min(1.0, (time.time() - start) / max(1e-9, self.until - start))
            return min(1.0, (step + 1) / warmup) * (1 + math.cos(math.pi * gone)) / 2

        self.lr_scheduler = LambdaLR(self.optimizer if optimizer is None else optimizer, factor)
        self._created_lr_scheduler = True
        return self.lr_scheduler


class Further(Slice):
    """A run of such a trainer, without evaluations on the way."""

    trainer_class = FallingRate

    def prepare(self) -> None:
        super().prepare()
        self.trainer.until = self.deadline.until


def further(recipe: str, seconds: float, flags: list[str], data: Path) -> dict[str, object]:
    """Train so long -> steps, and scores of the test splits.

    Raises:
        FileNotFoundError: the recipe's data have not been prepared.
    """
    fixed = ["--max_steps", str(ENDLESS), "--eval_strategy", "no", "--save_strategy", "no"]
    fixed += ["--load_best_model_at_end", "false", "--disable_tqdm", "true"]
    run = Further([recipe, *flags, *fixed], prepare.load_splits(data, recipe), Deadline(time.time() + seconds))
    row = {"recipe": recipe, "seconds": seconds, **run.learn()}
    row["of"] = row["step"]
    (run.folder / "slice.json").write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
    return row


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m gpu.further", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe")
    parser.add_argument(
        "--minutes", type=float, required=True, help="of loading and training; the test splits come after them"
    )
    parser.add_argument("--data", type=Path, default=Path("build/gpu-data"), help="the folder of gpu.prepare")
    args, flags = parser.parse_known_args(arguments)
    print(json.dumps(further(args.recipe, 60 * args.minutes, flags, args.data), indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
