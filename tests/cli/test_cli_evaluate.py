"""`hf-recurrent evaluate` and `convert`."""

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from hf_recurrent.benchmarks import load_benchmark
from hf_recurrent.hub.checkpoint import save_checkpoint
from hf_recurrent.tasks import checkpoints
from parity.reference import load_reference
from support.compare import assert_close

MODEL_CARDS = Path(__file__).parent.parent.parent / "model_cards"
SIZES = {"num_train": 20, "num_validation": 5, "num_test": 30}
SET = ("--benchmark_params", json.dumps(SIZES))


def test_accuracy_and_steps_are_the_models_own(evaluated, run_folder):
    tables, out, err = evaluated(run_folder, "listops", *SET, "--batch_size", "7")
    table = tables["test"]
    rows = load_benchmark("listops", **SIZES)["test"]
    tokenizer = AutoTokenizer.from_pretrained(run_folder)
    model = AutoModelForSequenceClassification.from_pretrained(run_folder).eval()
    right, steps = [], []
    for row in rows:
        with torch.no_grad():
            outputs = model(**tokenizer(row["text"], return_tensors="pt"))
        right.append(outputs.logits.argmax().item() == row["label"])
        steps.append(outputs.ponder_steps.item())
    assert table["n"] == 30
    assert table["accuracy"] == pytest.approx(sum(right) / 30)
    assert table["steps"]["mean"] == pytest.approx(sum(steps) / 30)
    assert f"{table['accuracy']:.1%}" in out
    assert f"{table['steps']['mean']:.2f}" in out
    for column in ("length", "depth", "num_operators", "max_arguments"):
        assert f"test by {column}" in out
        assert sum(row["n"] for row in table["slices"][column]["rows"]) == 30
    assert "100%" in err


def test_splits_limits_and_depth_can_be_chosen(evaluated, run_folder):
    chosen = ["--split", "validation", "--split", "train", "--limit", "4", "--max_depth", "1"]
    tables, out, _ = evaluated(run_folder, "listops", *SET, *chosen)
    assert {name: table["n"] for name, table in tables.items()} == {"validation": 4, "train": 4}
    assert all(table["steps"]["max"] <= 1 and table["max_depth"] == 1 for table in tables.values())
    assert "of at most 1 steps" in " ".join(out.split())
    assert evaluated(run_folder, "listops", *SET, "--halting_threshold", "0.3")[0]["test"]["threshold"] == 0.3


def test_the_precision_can_be_chosen(evaluated, run_folder, monkeypatch):
    model = AutoModelForSequenceClassification.from_pretrained(run_folder, dtype=torch.bfloat16)
    model.save_pretrained(run_folder)
    load, loaded = checkpoints.load_checkpoint, []
    monkeypatch.setattr(checkpoints, "load_checkpoint", lambda *args: loaded.append(load(*args)) or loaded[-1])

    # as saved, if not told otherwise
    own = evaluated(run_folder, "listops", *SET)[0]["test"]
    for dtype in ("bfloat16", "float16", "float32"):
        other = evaluated(run_folder, "listops", *SET, "--dtype", dtype)[0]["test"]
        assert other["accuracy"] == pytest.approx(own["accuracy"], abs=2.5 / 30)
        assert other["ponder_cost"] == pytest.approx(own["ponder_cost"], rel=0.02)
    assert [each.model.dtype for each in loaded] == [torch.bfloat16, torch.bfloat16, torch.float16, torch.float32]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["logical_inference"], "answers with 0, 1, 2.* but the labels of logical_inference are #, <"),
        (["listop"], "benchmark is 'listop': expected one of listops"),
        (
            ["listops", "--benchmark_params", "{num_tests: 3}"],
            "is 'num_tests': expected one of .*; did you mean num_test",
        ),
        (["listops", "--benchmark_params", "num_test"], "'num_test': expected a mapping such as '{key: value}'"),
        (["listops", *SET, "--split", "exam"], "split is 'exam': listops .original. has train, validation, test"),
        (["listops", "--device", "banana"], "device='banana' is not available here"),
        (["listops", "--dtype", "half"], "'--dtype': 'half' is not one of 'auto', 'float32', 'bfloat16', 'float16'"),
        (["listops", "--exit_criterion", "sure"], "'--exit.criterion': 'sure' is not one of 'learned', 'convergence'"),
    ],
)
def test_bad_requests_are_named(refuse, run_folder, words, message):
    assert re.search(message, refuse("evaluate", run_folder, *words))


def test_checkpoints_that_are_none(refuse, tmp_path, hub):
    (tmp_path / "empty").mkdir()
    assert "empty does not load" in refuse("evaluate", tmp_path / "empty", "listops")
    assert "org/absent does not load" in refuse("evaluate", "org/absent", "listops")
    assert "/nope does not exist" in refuse("evaluate", "/nope", "listops")


def without_a_weight(folder):
    weights = load_file(folder / "model.safetensors")
    weights.pop(next(name for name in weights if name.startswith("classifier.")))
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def without_tokenizer(folder):
    for path in folder.glob("tokenizer*"):
        path.unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without_a_weight, "the weights do not fit GUTForSequenceClassification: missing keys"),
        (without_tokenizer, "has no tokenizer, and examples are text"),
    ],
)
def test_a_damaged_checkpoint_gives_no_numbers(refuse, run_folder, damage, message):
    damage(run_folder)
    line = refuse("evaluate", run_folder, "listops", *SET)
    assert re.search(message, line)
    assert "\n" not in line


def test_a_base_model_or_anothers_model_gives_no_numbers(refuse, run_folder, tmp_path):
    from transformers import (
        AlbertConfig,
        AlbertForSequenceClassification,
        AutoModel,
        BertConfig,
        BertForSequenceClassification,
    )

    tokenizer = AutoTokenizer.from_pretrained(run_folder)
    save_checkpoint(AutoModel.from_pretrained(run_folder), tmp_path / "base", tokenizer)
    assert "missing keys ['classifier." in refuse("evaluate", tmp_path / "base", "listops", *SET)
    config = BertConfig(hidden_size=8, num_attention_heads=2, intermediate_size=8, num_hidden_layers=1, vocab_size=19)
    BertForSequenceClassification(config).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    assert "has model_type 'bert': expected one of" in refuse("evaluate", tmp_path / "bert", "listops", *SET)
    config = AlbertConfig(embedding_size=8, **{**config.to_dict(), "model_type": "albert"})
    AlbertForSequenceClassification(config).save_pretrained(tmp_path / "albert")
    tokenizer.save_pretrained(tmp_path / "albert")
    problem = refuse("evaluate", tmp_path / "albert", "listops", *SET)
    assert f"make it one of this package by `hf-recurrent convert {tmp_path / 'albert'} FOLDER`" in problem


CASE = "tests/parity/dynamic-halt/gut_end_classifier"


def test_convert_gives_the_authors_model(succeed, refuse, tmp_path, pytestconfig):
    case = pytestconfig.rootpath / CASE
    out, _ = succeed("convert", case, tmp_path / "gut")
    reference = load_reference(case).model.eval()
    assert f"{reference.num_parameters():,} parameters" in out
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "gut").eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        assert_close(model(ids).logits, reference(ids).logits)
    assert (tmp_path / "gut" / "modeling_gut.py").is_file()
    assert "is not empty: give a new one" in refuse("convert", case, tmp_path / "gut")
    assert "holds no case.json" in refuse("convert", tmp_path, tmp_path / "new")
    assert "guut does not exist; did you mean gut" in refuse("convert", tmp_path / "guut", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_another_exit_criterion_than_the_checkpoints(refuse, evaluated):
    """The calibrated checkpoint as it was trained, to the depth of its training, as its card says."""
    sizes = ("--benchmark_params", json.dumps(SIZES | {"num_validation": 20}))
    words = (MODEL_CARDS / "ndr-ctl-forward", "compositional_table_lookup", *sizes, "--split", "test")
    steps = []
    for rule in ((), ("--exit_criterion", "learned", "--max_depth", "8"), ("--exit_threshold", "0.2")):
        table = evaluated(*words, *rule)[0]["test"]
        steps.append(table["max_depth"] if table["fixed_depth"] else table["steps"]["mean"])
    assert steps[1] == 8
    assert 4 < steps[0] < steps[2]
    for rule, message in (
        (("--exit_threshold", "-1"), "exit_threshold is -1.0"),
        (("--halting_threshold", "0.5"), "exit_criterion='learned'"),
    ):
        assert message in " ".join(refuse("evaluate", *words, *rule).split())
