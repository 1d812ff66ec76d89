"""A checkpoint must answer a stranger as it answered its maker, or it is not published."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from hf_recurrent.hub.publish import publish_checkpoint
from hf_recurrent.hub.reload import check_reload
from hf_recurrent.hub.staging import stage_checkpoint
from support.families import nightly

REPO = "org/gut-listops"


def edit_json(path: Path, **changes) -> None:
    data = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in data.items() if value is not ...}))


def drop_code(staged):
    (staged / "configuration_gut.py").unlink()


def import_package(staged):
    path = staged / "modeling_gut.py"
    path.write_text("import hf_recurrent\n" + path.read_text())


def change_a_weight(staged):
    weights = load_file(staged / "model.safetensors")
    name = next(name for name in weights if name.startswith("classifier."))
    weights[name][0] += 1e-2
    save_file(weights, staged / "model.safetensors", {"format": "pt"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (drop_code, "the checkpoint does not load without this package: .*configuration_gut.py"),
        nightly(import_package, "the checkpoint does not load without this package: .*hf_recurrent"),
        (change_a_weight, r"gives other results without this package, in .*logits"),
    ],
)
def test_reload_notices(run_folder, tmp_path, damage, message):
    """Other outputs are noticed in `test_language_publishing`."""
    staged = stage_checkpoint(run_folder, tmp_path / "staged")
    damage(staged)
    with pytest.raises(ValueError, match=message):
        check_reload(run_folder, staged)


@pytest.mark.slow
def test_reload_asks_nothing(run_folder, tmp_path):
    """The standard input belongs to the next command: it may hold the other folders of a shell loop."""
    staged = stage_checkpoint(run_folder, tmp_path / "staged")
    waiting, writing = os.pipe()
    os.write(writing, b"y\nnext\n")
    os.close(writing)
    before = os.dup(0)
    try:
        os.dup2(waiting, 0)
        check_reload(run_folder, staged)
        assert os.read(0, 100) == b"y\nnext\n"
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(waiting)


def narrow(folder):
    edit_json(folder / "config.json", hidden_size=32)


def invent_a_strategy(folder):
    edit_json(folder / "config.json", halting="sometimes")


def break_tokenizer(folder):
    (folder / "tokenizer.json").write_text("{}")


def grow_vocabulary(folder):
    data = json.loads((folder / "tokenizer.json").read_text())
    data["model"]["vocab"]["[MEAN"] = len(data["model"]["vocab"])
    (folder / "tokenizer.json").write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (narrow, "does not load: .*hidden_size|does not load: .*mismatch|do not fit"),
        (invent_a_strategy, "does not load: .*halting"),
        pytest.param(break_tokenizer, "does not load without this package: ", marks=pytest.mark.slow),
        pytest.param(grow_vocabulary, "the tokenizer has 20 tokens, but the model knows 19", marks=pytest.mark.slow),
    ],
)
def test_what_does_not_load_is_one_line(run_folder, damage, message):
    damage(run_folder)
    with pytest.raises(ValueError, match=message) as caught:
        publish_checkpoint(run_folder, REPO, dry_run=True)
    assert "\n" not in str(caught.value)


def test_weights_that_do_not_fit_are_refused(run_folder, tmp_path):
    weights = load_file(run_folder / "model.safetensors")
    # of no parameters, or the card would tell a wrong number of them
    weights["model.block.attention.extra"] = torch.zeros(0)
    save_file(weights, run_folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"the weights do not fit GUTForSequenceClassification: unexpected keys"):
        publish_checkpoint(run_folder, REPO, dry_run=True)


def test_weights_that_are_not_numbers_are_refused(run_folder):
    weights = load_file(run_folder / "model.safetensors")
    name = next(name for name in weights if name.startswith("classifier."))
    weights[name][:] = torch.nan
    save_file(weights, run_folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match="hold NaN or infinite values"):
        publish_checkpoint(run_folder, REPO, dry_run=True)
