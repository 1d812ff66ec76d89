"""The mean of checkpoints, and which of them it is."""

import pytest
import torch
from seq2seq_runs import pair_model

from hf_recurrent.training.selection import best_steps, load_average

HISTORY = [
    {"step": 2, "loss": 0.1},
    {"step": 2, "eval_nll": 3.0},
    {"step": 4, "eval_nll": 1.0},
    {"step": 6, "eval_nll": 2.0},
    {"step": 8, "eval_nll": 1.0},
    {"step": 10, "eval_nll": 0.5},
]


def test_best_steps():
    saved = {2, 4, 6, 8}
    assert best_steps(HISTORY, saved, "eval_nll", 3, greater=False, latest=False) == [4, 8, 6]
    assert best_steps(HISTORY, saved, "eval_nll", 1, greater=False, latest=True) == [8]
    assert best_steps(HISTORY, saved, "eval_nll", 2, greater=True, latest=False) == [2, 6]
    assert best_steps(HISTORY, saved, "eval_bleu", 2, greater=True, latest=False) == []


def test_tied_weights_are_loaded_once(tmp_path):
    models = [pair_model(), pair_model()]
    with torch.no_grad():
        for parameter in models[1].parameters():
            parameter += 1.0
    for name, model in zip("ab", models, strict=True):
        model.save_pretrained(tmp_path / name)
    files = [tmp_path / name / "model.safetensors" for name in "ab"]
    averaged = load_average(pair_model(), files)
    for ours, first in zip(averaged.parameters(), models[0].parameters(), strict=True):
        torch.testing.assert_close(ours, first + 0.5)
    assert averaged.get_output_embeddings().weight is averaged.get_input_embeddings().weight
    with pytest.raises(RuntimeError, match="halting"):
        load_average(pair_model(halting="none"), files)
