"""Train an encoder-decoder model that turns a source into a target, and leave a folder that can be published.

    accelerate launch training/run_seq2seq.py logical_inference_translation_sut \
        --output_dir runs/sut

A recipe's keys are flags as well, and flags win: `--max_steps 100 --config '{hidden_size: 128}'`. The same command
again resumes from the last complete checkpoint; `--help` lists everything. Labels are smoothed by the model, with
`--config '{label_smoothing: 0.1}'`.
"""

from hf_recurrent.training.run import as_command, run_and_print


def main(argv: list[str]) -> None:
    run_and_print(argv, "translation")


if __name__ == "__main__":
    as_command(main)
