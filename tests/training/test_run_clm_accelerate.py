"""`run_clm_accelerate.py` from recipe to publishable folder."""

import json

import pytest
import torch
import yaml
from document_runs import TINY_DOCUMENTS, tiny_texts
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_recurrent.hub import lint_card
from hf_recurrent.training import document_loop
from hf_recurrent.training.arguments import DocumentArguments
from support.client import client_in_this_process
from support.compare import assert_close
from support.loopback_hub import LoopbackHub

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return tiny_texts(tmp_path_factory.mktemp("texts") / "novels-of-mine")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("recipe")

    def write(**changes):
        path = folder / "tiny.yaml"
        path.write_text(yaml.safe_dump({**TINY_DOCUMENTS, "data_dir": str(texts), **changes}))
        return str(path)

    return write


@pytest.fixture(scope="module")
def straight(document_script, recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    document_script.main([recipe(), "--output_dir", str(folder), "--keep_checkpoints", "true"])
    return folder


def test_folder_is_publishable(straight):
    lint_card(straight)
    card = json.loads((straight / "card.json").read_text())
    assert card["training"]["command"] == (
        "accelerate launch training/run_clm_accelerate.py tiny.yaml --keep_checkpoints true --output_dir run"
    )
    assert card["metric"] == "bits_per_byte"
    assert card["training"]["steps"] == 8
    assert card["benchmark"]["parameters"]["tokenizer"] == "bytes"
    assert "novels-of-mine" not in (straight / "README.md").read_text()
    assert {path.name for path in (straight / "assets").iterdir()} == {
        "test_loss_position.png",
        "test_gate_openness.png",
    }


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
def test_finished_run_is_published(document_script, recipe, straight, tmp_path, monkeypatch, capsys):
    with LoopbackHub() as hub, client_in_this_process(hub, tmp_path):
        monkeypatch.setenv("HF_TOKEN", hub.token)
        flags = ["--push_to_hub", "true", "--hub_model_id", "org/tiny"]
        document_script.main([recipe(), "--output_dir", str(straight), *flags])
        files = set(hub.repository("org/tiny").head().files)
    assert {"model.safetensors", "README.md", "recurrence_stats.json", "modeling_block_recurrent.py"} <= files
    assert not {path for path in files if "checkpoint" in path or path == "training_log.json"}
    assert "published" in capsys.readouterr().out


def test_table_is_of_all_test_documents(straight, texts):
    table = json.loads((straight / "recurrence_stats.json").read_text())["splits"]["test"]
    contents = [path.read_bytes() for path in (texts / "test").iterdir()]
    assert table["documents"] == len(contents) == 4
    # every byte but the first of a document is predicted
    assert table["tokens"] == sum(map(len, contents)) - 4
    assert table["bits_per_byte"] == pytest.approx(table["bits_per_token"])
    assert [row["carry"] for row in table["carries"]] == ["document", "segment", "state"]


def test_folder_loads_and_generates(straight):
    tokenizer = AutoTokenizer.from_pretrained(straight)
    model = AutoModelForCausalLM.from_pretrained(straight)
    inputs = tokenizer("state wind", return_tensors="pt")
    assert inputs["input_ids"].shape == (1, 10)
    assert model.generate(**inputs, max_new_tokens=12, do_sample=False).shape == (1, 22)


def test_log(straight):
    log = json.loads((straight / "training_log.json").read_text())
    assert [entry["step"] for entry in log if "bits_per_token" in entry] == [2, 4, 6, 8]
    assert [entry["step"] for entry in log if "validation_bits_per_token" in entry] == [4, 8]


def test_resumed_run_equals_straight_run(document_script, recipe, straight, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    take_step = document_loop.take_step

    def killed(session):
        if session.progress.steps == 5:
            raise Killed
        take_step(session)

    command = [recipe(), "--output_dir", str(tmp_path / "run")]
    with monkeypatch.context() as patch:
        patch.setattr(document_loop, "take_step", killed)
        with pytest.raises(Killed):
            document_script.main(command)
    assert (tmp_path / "run" / "checkpoint-3").is_dir()
    document_script.main(command)
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (tmp_path / "run", straight))
    assert ours.keys() == theirs.keys()
    assert_close(ours, theirs, 1e-4)
    tables = [json.loads((folder / "recurrence_stats.json").read_text()) for folder in (tmp_path / "run", straight)]
    assert tables[0] == tables[1]
    # what only a resumption needs is gone
    assert not list((tmp_path / "run").glob("checkpoint-*"))


def test_finished_run_is_not_trained_again(document_script, recipe, straight, capsys):
    before = (straight / "model.safetensors").stat().st_mtime_ns
    document_script.main([recipe(), "--output_dir", str(straight), "--keep_checkpoints", "true"])
    assert "finished: nothing to train" in capsys.readouterr().out
    assert (straight / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(ValueError, match=r"holds a different run: use another .*segment_length: 16 there, 8 here"):
        document_script.main([recipe(), "--output_dir", str(straight), "--segment_length", "8"])


@pytest.mark.parametrize(
    ("model_type", "config", "flags"),
    [
        ("gutlb", {"chunk_size": 6, "num_memory_slots": 3}, ["--bf16", "true"]),
        ("rnn", None, ["--tokenizer", "bpe", "--tokenizer_vocab_size", "270", "--optim", "adamw_torch"]),
    ],
)
def test_other_models(document_script, recipe, tmp_path, model_type, config, flags, capsys):
    halves = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 2}
    sizes = {"hidden_size": 16} if config is None else {**halves, **config}
    path = recipe(model_type=model_type, config=sizes, max_steps=3, learning_rate=1e-2)
    document_script.main([path, "--output_dir", str(tmp_path / "run"), *flags])
    lint_card(tmp_path / "run")
    assert "test         all" in capsys.readouterr().out
    assert all(tensor.dtype == torch.float32 for tensor in load_file(tmp_path / "run" / "model.safetensors").values())
    vocab_size = json.loads((tmp_path / "run" / "config.json").read_text())["vocab_size"]
    assert vocab_size == (270 if model_type == "rnn" else 260)
    assert len(AutoTokenizer.from_pretrained(tmp_path / "run")) == vocab_size


def test_finetuning_takes_the_tokenizer_of_the_checkpoint(document_script, recipe, straight, tmp_path):
    flags = ["--model_name_or_path", str(straight), "--output_dir", str(tmp_path / "run")]
    path = recipe(model_type=None, config=None, max_steps=1)
    with pytest.raises(ValueError, match=r"tokenizer is 'bytes', but .* has its own"):
        document_script.main([path, *flags, "--tokenizer", "bytes"])
    document_script.main([path, "--model_name_or_path", str(straight), "--output_dir", str(tmp_path / "tuned")])
    before, after = (load_file(folder / "model.safetensors") for folder in (straight, tmp_path / "tuned"))
    # the rate of the first step is 0
    assert all(before[name].equal(after[name]) for name in before)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"segment_length": 12}, r"segment_length is 12 and config\.window_size 8"),
        ({"model_type": "ut", "config": {}}, "model_type is 'ut', whose cache grows with the document"),
        ({"tokenizer": "bpe"}, "tokenizer_vocab_size None: bpe needs a size"),
        ({"lr_schedule": "greedy"}, "'greedy', which needs more than steps"),
        ({"weight_decay": 0.1}, r"weight_decay is 0\.1, which optim: adafactor has not"),
        ({"push_to_hub": True}, "hub_model_id='': expected owner/name"),
    ],
)
def test_bad_recipes(document_script, recipe, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        document_script.main([recipe(**changes), "--output_dir", str(tmp_path / "run")])


def test_other_benchmarks_have_no_documents():
    with pytest.raises(ValueError, match=r"has short examples, not documents: use training/run_clm\.py"):
        DocumentArguments(benchmark="flip_flop")


def test_card_compares_with_other_runs(document_script, recipe, straight, tmp_path):
    changes = {"title": "Rival", "config": {**TINY_DOCUMENTS["config"], "recurrent_layers": []}, "max_steps": 2}
    for seed in (1, 2):
        document_script.main([recipe(**changes, seed=seed), "--output_dir", str(tmp_path / f"rival-{seed}")])
    rivals = [str(tmp_path / f"rival-{seed}") for seed in (1, 2)]
    document_script.main([recipe(), "--output_dir", str(tmp_path / "run"), "--compare_with", *rivals])
    (rival,) = json.loads((tmp_path / "run" / "card.json").read_text())["compared"]
    tables = [json.loads((tmp_path / f"rival-{seed}" / "recurrence_stats.json").read_text()) for seed in (1, 2)]
    assert rival["values"] == {"test": [table["splits"]["test"]["bits_per_byte"] for table in tables]}
    assert rival["num_parameters"] == sum(
        tensor.numel() for tensor in load_file(tmp_path / "rival-1" / "model.safetensors").values()
    )
    assert (rival["name"], rival["same_model"]) == ("Rival", False)
    card = (tmp_path / "run" / "README.md").read_text()
    assert "than Rival (" in card
    assert str(tmp_path) not in card
