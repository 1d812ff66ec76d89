"""Train a causal language model on a benchmark without labels and leave a folder that can be published.

    accelerate launch training/run_clm.py training/recipes/flip_flop_tlb.yaml --output_dir runs/flip_flop_tlb

The loss is on the tokens that the benchmark has an answer for alone: on flip-flop, on the bits that are read back. A
recipe's keys are flags as well, and flags win: `--max_steps 100 --config '{hidden_size: 128}'`. The same command again
goes on from the last complete checkpoint; `--help` lists everything.
"""

import sys

from hf_recurrent.training.objectives import LANGUAGE_MODELLING
from hf_recurrent.training.run import ERRORS, run


def main(argv: list[str]) -> None:
    report = run(argv, LANGUAGE_MODELLING)
    if report is not None:
        print(report)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ERRORS as error:
        sys.exit(f"error: {error}")
