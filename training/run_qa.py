"""Train a model that finds the answers to questions in texts of your own, and leave a folder that can be published.

    accelerate launch training/run_qa.py --model_type ut --train_file train.jsonl --validation_file dev.jsonl \
        --max_seq_length 384 --doc_stride 128 --output_dir runs/answers

Each row of a file or of a `--dataset_name` has a `question`, a `context` and `answers` in the form of SQuAD:
`{"text": ["Paris"], "answer_start": [17]}`, in a table of texts as JSON. Contexts that are longer than
`--max_seq_length` are read in windows. With `--version_2_with_negative true` questions may have no answer. Exact match
and F1 are those of SQuAD.

A recipe's keys are flags as well, and flags win: `--max_steps 100 --config '{hidden_size: 128}'`. The same command
again resumes from the last complete checkpoint; `--help` lists everything.
"""

from hf_recurrent.training.run import as_command, run_and_print


def main(argv: list[str]) -> None:
    run_and_print(argv, "question-answering")


if __name__ == "__main__":
    as_command(main)
