"""Train an encoder-decoder model that turns a source into a target, and leave a folder that can be published.

    accelerate launch training/run_seq2seq.py training/recipes/logical_inference_translation_sut.yaml \
        --output_dir runs/sut

A recipe's keys are flags as well, and flags win: `--max_steps 100 --config '{hidden_size: 128}'`. The same command
again goes on from the last complete checkpoint; `--help` lists everything. Labels are smoothed by the model, with
`--config '{label_smoothing: 0.1}'`.
"""

import sys

from hf_recurrent.training.run import ERRORS
from hf_recurrent.training.seq2seq_run import run


def main(argv: list[str]) -> None:
    report = run(argv)
    if report is not None:
        print(report)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ERRORS as error:
        sys.exit(f"error: {error}")
