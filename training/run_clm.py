"""Train a causal language model on your own texts, or a benchmark without labels; leave a folder to publish.

    accelerate launch training/run_clm.py --model_type gut --train_file book.txt --tokenizer bpe --vocab_size 8000 \
        --block_size 512 --output_dir runs/book
    accelerate launch training/run_clm.py flip_flop_tlb --output_dir runs/flip_flop_tlb

Texts are a text file, a folder or zip file of these, a table with `--text_column`, or a `--dataset_name`. They are
joined and cut into blocks, all of whose tokens are predicted; with `--pack false` a block is the beginning of one text,
and `--streaming true` reads them while training. Of a benchmark only those tokens are predicted that it has an answer
for: on flip-flop, the bits that are read back.

A recipe's keys are flags as well, and flags win: `--max_steps 100 --config '{hidden_size: 128}'`. The same command
again resumes from the last complete checkpoint; `--help` lists everything.
"""

from hf_recurrent.training.run import as_command, run_and_print


def main(argv: list[str]) -> None:
    run_and_print(argv, "text-generation")


if __name__ == "__main__":
    as_command(main)
