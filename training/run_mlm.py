"""Train a masked language model on texts of your own, and leave a folder that can be published.

    accelerate launch training/run_mlm.py --model_type ut --train_file book.txt --max_seq_length 128 \
        --output_dir runs/masked

Texts are a text file, a folder or zip file of these, a table with `--text_column_name`, or a `--dataset_name`. They are
joined and cut into blocks of `--max_seq_length` tokens; with `--line_by_line true` each line of a text file is a text
of its own. The share `--mlm_probability` of tokens is masked: anew in each epoch of training, in the same places in
every evaluation.

A recipe's keys are flags as well, and flags win: `--max_steps 100 --config '{hidden_size: 128}'`. The same command
again resumes from the last complete checkpoint; `--help` lists everything.
"""

from hf_recurrent.training.run import as_command, run_and_print


def main(argv: list[str]) -> None:
    run_and_print(argv, "fill-mask")


if __name__ == "__main__":
    as_command(main)
