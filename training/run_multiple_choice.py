"""Train a model that chooses from several answers of your own, and leave a folder that can be published.

    accelerate launch training/run_multiple_choice.py --model_type gut --train_file train.csv \
        --validation_file dev.csv --context_column question --ending_columns answer_a answer_b --output_dir runs/choices

Each row of a file or of a `--dataset_name` has a context, two or more endings, and in `label` the number of the right
one, from 0. The columns are those of SWAG, `sent1`, `sent2` (which begins every ending), `ending0`, `ending1` and so
on, if none are named. Each ending is read with its context, and the likeliest one is chosen.

A recipe's keys are flags as well, and flags win: `--max_steps 100 --config '{hidden_size: 128}'`. The same command
again resumes from the last complete checkpoint; `--help` lists everything.
"""

from hf_recurrent.training.run import as_command, run_and_print


def main(argv: list[str]) -> None:
    run_and_print(argv, "multiple-choice")


if __name__ == "__main__":
    as_command(main)
