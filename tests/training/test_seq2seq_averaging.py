"""The mean of checkpoints, and which of them it is."""

import pytest
import torch
from safetensors.torch import save_file
from seq2seq_runs import pair_model

from hf_recurrent.training.selection import average_weights, best_steps, load_average

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


def saved_as(folder, name, **tensors):
    save_file(tensors, folder / name)
    return folder / name


def test_average_is_the_mean_in_the_tensors_own_type(tmp_path):
    # in float16 the sum of three would be infinite
    big = torch.full((2,), 40_000.0, dtype=torch.float16)
    files = [saved_as(tmp_path, f"{i}", a=torch.tensor([float(i)]), big=big, n=torch.tensor([7])) for i in (1, 2, 6)]
    mean = average_weights(files)
    assert mean["a"].item() == 3.0
    assert mean["big"].dtype == torch.float16
    assert mean["big"].equal(big)
    assert mean["n"].item() == 7


def test_what_cannot_be_averaged(tmp_path):
    first = saved_as(tmp_path, "first", a=torch.zeros(2), n=torch.tensor([7]))
    other = saved_as(tmp_path, "other", b=torch.zeros(2), n=torch.tensor([7]))
    wide = saved_as(tmp_path, "wide", a=torch.zeros(3), n=torch.tensor([7]))
    eight = saved_as(tmp_path, "eight", a=torch.zeros(2), n=torch.tensor([8]))
    for file in (other, wide):
        with pytest.raises(ValueError, match=rf"{file.name} has other weights than .*first"):
            average_weights([first, file])
    with pytest.raises(ValueError, match=r"n of .*eight holds other integers"):
        average_weights([first, eight])
    with pytest.raises(ValueError, match="no checkpoints"):
        average_weights([])


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
    with pytest.raises(ValueError, match=r"is not of this SUTForConditionalGeneration: .*halting"):
        load_average(pair_model(halting="none"), files)
