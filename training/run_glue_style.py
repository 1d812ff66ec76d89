"""Train a sequence classifier on a benchmark and leave a folder that can be published.

    accelerate launch training/run_glue_style.py listops_gut --output_dir runs/listops_gut

A recipe's keys are flags as well, and flags win: `--max_steps 100 --config '{hidden_size: 128}'`. The same command
again resumes from the last complete checkpoint; `--help` lists everything. A recipe of another objective is run as by
its own script, with a warning; `accelerate launch -m hf_recurrent.train RECIPE` runs any.
"""

from hf_recurrent.training.run import as_command, run_and_print


def main(argv: list[str]) -> None:
    run_and_print(argv, "text-classification")


if __name__ == "__main__":
    as_command(main)
