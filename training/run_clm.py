"""Train a causal language model on a benchmark without labels and leave a folder that can be published.

    accelerate launch training/run_clm.py flip_flop_tlb --output_dir runs/flip_flop_tlb

The loss is on the tokens that the benchmark has an answer for alone: on flip-flop, on the bits that are read back. A
recipe's keys are flags as well, and flags win: `--max_steps 100 --config '{hidden_size: 128}'`. The same command again
resumes from the last complete checkpoint; `--help` lists everything.
"""

from hf_recurrent.training.run import as_command, run_and_print


def main(argv: list[str]) -> None:
    run_and_print(argv, "training/run_clm.py")


if __name__ == "__main__":
    as_command(main)
