"""Trains over long documents in two processes; `document_ranks.py FOLDER` leaves weights and notes of these runs there.

`straight` takes all steps, `resumed` the last one alone, from its checkpoint before; `script` is a whole run.
"""

import shutil
import sys
from datetime import timedelta
from pathlib import Path

import torch
import yaml
from accelerate import InitProcessGroupKwargs, PartialState, debug_launcher
from accelerate.utils import gather_object
from document_runs import TINY_DOCUMENTS, language_model, session_of, tiny_texts, token_corpus, training_arguments
from safetensors.torch import save_file

from hf_recurrent.files import write_json
from hf_recurrent.training.document_loop import evaluate_share, make_accelerator, train
from hf_recurrent.training.objectives import DOCUMENT_SCRIPT
from hf_recurrent.training.run import run as run_recipe

# documents of equal length: two processes of one row read what one process of two rows reads
DOCUMENTS = {"train": token_corpus(*[20] * 6), "validation": token_corpus(20, 2, 33, seed=1)}
# an optimiser whose updates are in proportion to gradients, so that rounding stays small
SETTINGS = {"eval_steps": 4, "max_grad_norm": 1.0, "optim": "adamw_torch", "learning_rate": 0.1, "adam_epsilon": 1.0}
# documents of 20 tokens take 3 segments: the last step is in the middle of the second epoch
STEPS = 10
TIMEOUT = timedelta(seconds=60)


def run(folder: str, name: str) -> None:
    torch.set_num_threads(1)
    accelerator = make_accelerator(training_arguments(folder), [InitProcessGroupKwargs(timeout=TIMEOUT)])
    assert accelerator.num_processes == 2
    # halting rows take other depths on each process
    session = session_of(
        *(Path(folder) / name, language_model("gutlb"), DOCUMENTS),
        per_device_train_batch_size=1,
        max_steps=STEPS,
        accelerator=accelerator,
        **SETTINGS,
    )
    read = []
    next_segment = session.reader.next_segment

    def noted():
        segment = next_segment()
        read.append(segment.document.tolist())
        return segment

    session.reader.next_segment = noted
    train(session)
    one = evaluate_share(session.plain_model, single_document_reader(session))
    read = gather_object([read])
    if accelerator.is_main_process:
        save_file(dict(session.plain_model.state_dict()), Path(folder) / f"{name}.safetensors")
        write_json(
            Path(folder) / f"{name}.json",
            {"read": read, "log": session.progress.log, "one_document": one.bits_per_token},
        )
    accelerator.end_training()


def single_document_reader(session):
    """Of a corpus with fewer documents than processes."""
    reader = session.validation
    return type(reader)(token_corpus(20, seed=1), 2, 8, shard=reader.shard)


def run_script(folder: str) -> None:
    torch.set_num_threads(1)
    places = ["--data_dir", str(Path(folder) / "texts"), "--output_dir", str(Path(folder) / "script")]
    messages = run_recipe([str(Path(folder) / "tiny.yaml"), *places], DOCUMENT_SCRIPT)
    write_json(Path(folder) / f"messages_{PartialState().process_index}.json", messages)


def main(folder: str) -> None:
    debug_launcher(run, args=(folder, "straight"), num_processes=2)
    before_last = "checkpoint-9"
    shutil.copytree(Path(folder) / "straight" / before_last, Path(folder) / "resumed" / before_last)
    debug_launcher(run, args=(folder, "resumed"), num_processes=2)
    tiny_texts(Path(folder) / "texts")
    (Path(folder) / "tiny.yaml").write_text(yaml.safe_dump({**TINY_DOCUMENTS, "max_steps": 2, "save_steps": 1}))
    debug_launcher(run_script, args=(folder,), num_processes=2)


if __name__ == "__main__":
    main(sys.argv[1])
