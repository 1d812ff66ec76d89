"""Train a token classifier on words with labels of your own, and leave a folder that can be published.

    accelerate launch training/run_token_classification.py --model_type gut --config '{halting: token}' \
        --train_file train.jsonl --validation_file dev.jsonl --text_column_name tokens --label_column_name ner_tags \
        --output_dir runs/entities

Each row of a file or of a `--dataset_name` has a list of words and a list of their labels. A word is labelled by its
first token; `--label_all_tokens true` trains the others, too. Labels such as B-PER and I-PER are also scored by entity,
if seqeval is installed.

A recipe's keys are flags as well, and flags win: `--max_steps 100 --config '{hidden_size: 128}'`. The same command
again resumes from the last complete checkpoint; `--help` lists everything.
"""

from hf_recurrent.training.run import as_command, run_and_print


def main(argv: list[str]) -> None:
    run_and_print(argv, "token-classification")


if __name__ == "__main__":
    as_command(main)
