"""`hf-recurrent sweep` and `hf-recurrent experts`."""

import json

import pytest
import torch

from hf_recurrent import SUTConfig, SUTForConditionalGeneration
from hf_recurrent.benchmarks import build_tokenizer
from hf_recurrent.hub import lint_card, read_results
from hf_recurrent.hub.checkpoint import save_checkpoint
from hf_recurrent.tasks.checkpoints import Request, evaluate_checkpoint, load_checkpoint
from hf_recurrent.utils import percent
from support.families import BY_NAME, make_model

SIZES = {"num_train": 20, "num_validation": 5, "num_test": 16}
# rows of a few tokens
SHORT = SIZES | {"max_depth": 2}
SET = ["--benchmark_params", json.dumps(SHORT)]
SET_PAIRS = ["--benchmark_params", json.dumps(SIZES)]
QUICK = ("--thresholds", "0.5", "--repeats", "1", "--limit", "8")
PAIRS = "logical_inference_translation"


def tables(folder, name="halting_sweep.json"):
    return json.loads((folder / name).read_text())["splits"]


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    """A tiny sequence-to-sequence model with experts."""
    tokenizer = build_tokenizer(PAIRS)
    torch.manual_seed(0)
    config = SUTConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=3,
        halting="token",
        attention_experts=2,
        attention_experts_per_token=1,
        feed_forward_experts=4,
        feed_forward_experts_per_token=2,
        num_attention_heads=2,
        head_dim=8,
        intermediate_size=12,
        relative_window=1,
        is_encoder_decoder=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    folder = tmp_path_factory.mktemp("translator") / "sut"
    return save_checkpoint(SUTForConditionalGeneration(config), folder, tokenizer)


@pytest.mark.slow
def test_thresholds_are_those_of_evaluate(succeed, run_folder, tmp_path):
    words = ("--thresholds", "0.5,0.9", "--repeats", "1", "--output", tmp_path / "out")
    out, _ = succeed("sweep", run_folder, "listops", *SET, *words)
    (name, table), *others = tables(tmp_path / "out").items()
    assert (name, others) == ("test", [])
    assert (table["n"], table["own_threshold"], table["most_steps"]) == (16, 0.999, {"model": 8})
    request = Request("listops", params=SHORT)
    loaded = load_checkpoint(str(run_folder), "cpu")
    assert [row["threshold"] for row in table["thresholds"]] == [0.5, 0.9, 0.999]
    for row in table["thresholds"]:
        expected = evaluate_checkpoint(loaded, request, halting_threshold=row["threshold"])["test"]
        assert row["accuracy"] == expected["accuracy"]
        assert row["stacks"]["model"]["mean_depth"] == pytest.approx(expected["steps"]["mean"])
        shown = f"{row['threshold']:g}{'*' if row['threshold'] == 0.999 else ''}"
        assert any(shown in line and percent(row["stacks"]["model"]["share"]) in line for line in out.splitlines())
    assert "full depth" in out
    assert f"wrote {tmp_path / 'out' / 'halting_sweep.json'}" in out.replace("\n", "")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["halting_sweep.json"]
    assert not any(len(line) > 80 for line in out.splitlines() if not line.startswith("wrote"))
    # nothing is left beside the checkpoint
    assert not (run_folder / "halting_sweep.json").exists()


@pytest.mark.slow
def test_the_card_shows_what_was_swept(succeed, run_folder):
    before = read_results(run_folder)
    splits = ("--split", "test", "--split", "validation")
    out, _ = succeed("sweep", run_folder, "listops", *SET, *QUICK, *splits, "--card")
    found, results = tables(run_folder), read_results(run_folder)
    assert {name: table["n"] for name, table in found.items()} == {"test": 8, "validation": 5}
    for name, table in found.items():
        assert results["sweep"][name] == table
        assert (run_folder / "assets" / f"{name}_trade_off.png").is_file()
    assert "<summary>Lower halting thresholds on validation</summary>" in (run_folder / "README.md").read_text()
    lint_card(run_folder)
    assert f"wrote {run_folder / 'README.md'}" in out
    assert results["splits"] == before["splits"]


@pytest.mark.slow
def test_a_translator(succeed, translator, tmp_path):
    out, _ = succeed("sweep", translator, PAIRS, *SET_PAIRS, *QUICK, "--plot", "--output", tmp_path)
    (table,) = tables(tmp_path).values()
    assert table["most_steps"] == {"encoder": 3, "decoder": 3}
    for row in table["thresholds"]:
        assert {"accuracy", "token_accuracy", "loss"} <= set(row)
    for words in ("exact match", "encoder 3, decoder 3", "teacher forcing"):
        assert words in out
    assert [path.name for path in (tmp_path / "assets").iterdir()] == ["test_trade_off.png"]
    out, _ = succeed("experts", translator, PAIRS, *SET_PAIRS, "--limit", "8", "--output", tmp_path)
    (experts,) = tables(tmp_path, "expert_stats.json").values()
    assert experts["n"] == 8
    assert len(experts["modules"]) == 5
    assert "decoder cross-attention" in out
    assert "test: encoder feed-forward" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--thresholds", "0.5,high"], "thresholds is '0.5,high': pass numbers with commas between them"),
        (["--thresholds", "0.5,1.5"], "pass halting masses above 0 and up to 1"),
        (["--card", "--output", "elsewhere"], "--card: elsewhere has no results.json"),
    ],
)
def test_bad_requests_write_nothing(refuse, run_folder, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    before = sorted(run_folder.rglob("*"))
    quick = QUICK[2:] if "--thresholds" in words else QUICK
    assert message in refuse("sweep", run_folder, "listops", *SET, *quick, *words)
    assert sorted(run_folder.rglob("*")) == before
    assert not (tmp_path / "elsewhere").exists()


def test_checkpoints_that_do_not_fit(refuse, run_folder, tmp_path):
    save_checkpoint(make_model(BY_NAME["tlb"]), tmp_path / "tlb", build_tokenizer("listops"))
    line = refuse("sweep", tmp_path / "tlb", "listops")
    assert f"{tmp_path / 'tlb'} never halts (architecture 'tlb', halting='none')" in line
    assert "has no experts (architecture 'gut')" in refuse("experts", run_folder, "listops")
    assert "say where to write the results with --out" in refuse("sweep", "someone/model", "listops")
