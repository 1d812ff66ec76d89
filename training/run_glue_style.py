"""Train a sequence classifier on a benchmark and leave a folder that can be published.

    accelerate launch training/run_glue_style.py training/recipes/listops_gut.yaml --output_dir runs/listops_gut

A recipe's keys are flags as well, and flags win: `--max_steps 100 --config '{hidden_size: 128}'`. The same command
again goes on from the last complete checkpoint; `--help` lists everything.
"""

import sys

from hf_recurrent.training.objectives import CLASSIFICATION
from hf_recurrent.training.run import ERRORS, run


def main(argv: list[str]) -> None:
    report = run(argv, CLASSIFICATION)
    if report is not None:
        print(report)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ERRORS as error:
        sys.exit(f"error: {error}")
