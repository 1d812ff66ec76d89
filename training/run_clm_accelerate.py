"""Train a causal language model on long documents, its state carried on, and leave a folder that can be published.

    accelerate launch training/run_clm_accelerate.py long_documents_rec_fixed_skip \
        --output_dir runs/rec_fixed_skip

Your own documents take the benchmark's place: `--train_file books --validation_file ... --test_file ...`, each a text
file, a folder or zip file of these or a table with `--text_column`; or `--dataset_name`. The sequences of the batch go
through documents segment by segment; gradients stop at segments, the state goes on. Models are those whose state is of
constant size: block_recurrent, tlb, gutlb and rnn.

A recipe's keys are flags as well, and flags win: `--max_steps 1000 --segment_length 512`. The same command again
resumes from the last checkpoint, in the middle of documents; `--help` lists everything. On several CPU processes:
`torchrun --standalone --nproc_per_node 2 training/run_clm_accelerate.py RECIPE --use_cpu true`.
"""

from hf_recurrent.training.run import as_command, run_and_print


def main(argv: list[str]) -> None:
    run_and_print(argv, "long-documents")


if __name__ == "__main__":
    as_command(main)
