"""`hf-recurrent evaluate`, `calibrate`, `fit-probe` and `sweep` of causal language models on a user's own texts."""

import json
import shutil

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_recurrent.hub import lint_card
from hf_recurrent.hub.card import read_card
from hf_recurrent.models.common.exit_calibration import calibration_problem
from support.token_checkpoints import causal_checkpoint, word_rows, write_rows

pytestmark = pytest.mark.filterwarnings("ignore:the texts give a vocabulary:UserWarning")
ROWS = 60


def text_rows(seed):
    rows = word_rows(ROWS, seed=seed)
    return [{"text": " ".join(row["tokens"]), "size": len(row["tokens"]), "kind": row["kind"]} for row in rows]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A checkpoint, and files of texts, by their names."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "book.txt").write_text("\n".join(row["text"] for row in text_rows(3)) + "\n")
    files = {name: write_rows(folder / f"{name}.jsonl", text_rows(seed)) for seed, name in enumerate(("held", "test"))}
    return {"model": causal_checkpoint(folder / "model"), "book": folder / "book.txt", **files}


def by_hand(folder, texts, **options):
    """Of each text whether its tokens but the first are predicted right, their nats, and the steps of all tokens."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    found = []
    for text in texts:
        ids = torch.tensor([[*tokenizer(text)["input_ids"], tokenizer.eos_token_id]])
        with torch.no_grad():
            output = model(ids, **options)
        right = output.logits[0, :-1].argmax(-1) == ids[0, 1:]
        nats = torch.nn.functional.cross_entropy(output.logits[0, :-1], ids[0, 1:], reduction="none")
        found.append((right.numpy(), nats.numpy(), output.ponder_steps[0].numpy()))
    return found


def test_texts_are_evaluated(evaluated, places):
    words, texts = (places["model"], places["test"], "--line-by-line"), [row["text"] for row in text_rows(1)]
    tables, out, _ = evaluated(*words, "--slice-by", "size")
    found, table = by_hand(places["model"], texts), tables["test"]
    right, nats = (np.concatenate([own[place] for own in found]) for place in (0, 1))
    assert (table["documents"], table["tokens"]) == (ROWS, len(right))
    assert table["token_accuracy"] == pytest.approx(right.mean())
    assert table["bits_per_token"] == pytest.approx(nats.mean() / np.log(2), abs=1e-5)
    assert table["perplexity"] == pytest.approx(np.exp(nats.mean()), rel=1e-5)
    assert table["mean_steps"] == pytest.approx(np.concatenate([own[2] for own in found]).mean())
    # numbers of a file are in their order
    assert [row["value"] for row in table["by_column"]["size"]["rows"]] == [str(size) for size in range(1, 10)]
    assert "test.jsonl by size" in out
    assert "test.jsonl by position in the text" in out
    assert f"perplexity {table['perplexity']:.2f}" in " ".join(out.split())
    # another exit, and fewer steps
    table = evaluated(*words, "--max-depth", "1")[0]["test"]
    found = by_hand(places["model"], texts, max_depth=1)
    assert table["max_depth"] == 1
    assert table["mean_steps"] == pytest.approx(np.concatenate([own[2] for own in found]).mean())
    table = evaluated(*words, "--exit-criterion", "confidence", "--exit-threshold", "0.2")[0]["test"]
    found = by_hand(places["model"], texts, exit_criterion="confidence", exit_threshold=0.2)
    assert table["mean_steps"] == pytest.approx(np.concatenate([own[2] for own in found]).mean())
    table = evaluated(places["model"], places["book"], "--max-seq-length", "16")[0]["test"]
    assert (table["texts"], table["by_column"]) == ("blocks", {})


def test_an_exit_is_calibrated_by_texts(run, succeed, places, tmp_path):
    goal = ("--tolerance", "0.6", "--confidence", "0.9", "--limit", str(ROWS), "--repeats", "1")
    words = ("calibrate", places["model"], places["held"], "--test-file", places["test"], "--line-by-line", *goal)
    words += (
        "--criterion",
        "stability",
        "--only_exits",
        "--without-labels",
        "--slice-by",
        "size",
        "--difficulty",
        "size",
    )
    out, _ = succeed(*words, "--output", tmp_path / "copy")
    found = json.loads((tmp_path / "copy" / "calibration.json").read_text())
    assert (found["n"], found["unit"], found["risk"], found["difficulty"]) == (ROWS, "token", "differs", "size")
    chosen, tests = found["chosen"], found["tests"]["test"]
    assert chosen["criterion"] == "stability"
    assert [row["value"] for row in tests["by_difficulty"]] == [str(size) for size in range(1, 10)]
    texts, never = [row["text"] for row in text_rows(1)], {"halting_threshold": 1.0}
    early, full = by_hand(tmp_path / "copy", texts), by_hand(places["model"], texts, **never)
    right = np.concatenate([own[0] for own in early])
    assert tests["accuracy"] == pytest.approx(right.mean())
    assert tests["full_accuracy"] == pytest.approx(np.concatenate([own[0] for own in full]).mean())
    # the last token of a text predicts nothing
    assert tests["mean_depth"] == pytest.approx(np.mean([own[2][:-1].mean() for own in early]))
    assert "labelled tokens of a sequence, on average over sequences like these" in " ".join(out.split())
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "copy")
    assert (model.config.exit_criterion, model.config.exit_patience) == ("stability", chosen["patience"])
    assert calibration_problem(model) is None
    # texts of another kind would be told by the confidence in their tokens
    words = ("evaluate", tmp_path / "copy", places["test"], "--line-by-line")
    assert "look unlike" not in run(*words)[2]
    config = json.loads((tmp_path / "copy" / "config.json").read_text())
    config["exit_calibration"]["inputs"]["confidence"] = {"mean": 0.9, "std": 0.01}
    (tmp_path / "copy" / "config.json").write_text(json.dumps(config))
    sure = np.mean(confidences_by_hand(tmp_path / "copy", texts))
    assert (
        f"(held.jsonl, validation), to which its guarantee is limited: mean confidence {sure:.3g} instead"
        in " ".join(run(*words)[2].split())
    )


def confidences_by_hand(folder, texts):
    """Of each text the mean probability of the tokens that are predicted."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    ids = [torch.tensor([[*tokenizer(text)["input_ids"], tokenizer.eos_token_id]]) for text in texts]
    with torch.no_grad():
        return [model(each).logits[0, :-1].softmax(-1).max(-1).values.mean().item() for each in ids]


def recorded(model, folder, recipe, **facts):
    """A copy of a checkpoint with what a run leaves of its settings."""
    shutil.copytree(model, folder)
    (folder / "recipe.yaml").write_text(recipe)
    (folder / "card.json").write_text(json.dumps({"benchmark": {"parameters": facts}}))
    return folder


@pytest.mark.filterwarnings("ignore:.* documents have more than max_seq_length")
def test_texts_are_read_as_in_training(evaluated, places, tmp_path):
    """By default; options override what the run has recorded."""
    read_so = ("--max-seq-length", "6", "--line-by-line", "--no-keep-linebreaks")
    recipe = "block_size: 9\nline_by_line: true\nkeep_linebreaks: false\n"

    def table(model, *flags):
        found = evaluated(model, places["book"], *flags)[0]["test"]
        counts = [found[name] for name in ("texts", "documents", "segment_length", "tokens")]
        return [*counts, pytest.approx(found["bits_per_token"], rel=1e-5)]

    # a model had positions for six tokens alone
    runs = [recorded(places["model"], tmp_path / "run", recipe, block_size=6, pack=False)]
    # a published one has a card alone
    facts = {"block_size": 6, "pack": False, "line_by_line": True, "keep_linebreaks": False}
    runs.append(recorded(places["model"], tmp_path / "published", "", **facts))
    wanted = table(places["model"], *read_so)
    assert wanted[1:3] == [ROWS, 6]
    for folder in runs:
        assert table(folder) == wanted
        assert table(folder, "--max-seq-length", "5") == table(places["model"], *read_so, "--max-seq-length", "5")
        packed = table(folder, "--no-line-by-line", "--keep-linebreaks")
        assert packed == table(places["model"], "--max-seq-length", "6")
        assert packed[0] == "blocks"
    documents = recorded(places["model"], tmp_path / "documents", "", block_size=6, pack=False)
    assert table(documents, "--no-line-by-line") == table(documents)
    assert table(documents)[0] == "documents"
    whole = table(runs[0], "--no-line-by-line", "--no-pack", "--max-seq-length", "1000")
    assert whole[:2] == ["documents", 1]


@pytest.mark.filterwarnings("ignore:.* documents have more than max_seq_length")
@pytest.mark.parametrize("of_run", [True, False], ids=["run", "published"])
def test_a_calibrated_copy_reads_texts_as_its_origin_does(evaluated, succeed, places, tmp_path, of_run):
    recipe = "line_by_line: true\nkeep_linebreaks: false\n" if of_run else ""
    facts = {} if of_run else {"line_by_line": True, "keep_linebreaks": False}
    folder = recorded(places["model"], tmp_path / "model", recipe, block_size=6, pack=False, **facts)
    if not of_run:
        (folder / "recipe.yaml").unlink()
    goal = ("--budget", "depth=0.9", "--repeats", "1", "--criterion", "convergence", "--only_exits", "--limit", "9")
    succeed("calibrate", folder, places["book"], "--output", tmp_path / "copy", *goal)
    tables = []
    for model in (folder, tmp_path / "copy"):
        table = evaluated(model, places["book"], "--exit-criterion", "learned")[0]["test"]
        tables.append([table[name] for name in ("texts", "documents", "segment_length")])
    assert tables == [["documents", ROWS, 6]] * 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:skipping the incomplete:UserWarning")
def test_a_card_tells_texts_by_the_calibrated_exit(evaluated, succeed, places, tmp_path):
    """Where their file is given; else that its results are older than the exit."""
    folder, held = tmp_path / "run", write_rows(tmp_path / "more.jsonl", text_rows(7))
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "num_hidden_layers": 3}
    config = json.dumps({**sizes, "halting": "none", "depth_objective": "every_step"})
    words = ("--task", "text-generation", "--model_type", "ut", "--config", config, "--tokenizer", "bytes")
    words = (
        *words,
        "--train_file",
        places["held"],
        "--test_file",
        places["test"],
        "--line_by_line",
        "--use_cpu",
        "true",
    )
    succeed("train", *words, "--max_steps", "9", "--block_size", "64", "--output_dir", folder)
    before = read_card(folder)
    shutil.copytree(folder, tmp_path / "other")
    goal = (
        "--budget",
        "depth=0.9",
        "--repeats",
        "1",
        "--criterion",
        "agreement",
        "--only_exits",
        "--in_place",
        "--card",
    )
    out, _ = succeed("calibrate", folder, held, "--test-file", places["test"], *goal)
    assert "The card keeps" not in out
    lint_card(folder)
    card, table = read_card(folder), read_card(folder).results[0].table
    assert (card.halting, before.halting) == ("agreement", "none")
    again = evaluated(folder, places["test"])[0]["test"]
    for name in ("documents", "tokens", "segment_length"):
        assert table[name] == again[name]
    assert table["bits_per_token"] == pytest.approx(again["bits_per_token"], rel=1e-5)
    assert table["mean_steps"] == pytest.approx(again["mean_steps"])
    assert table["mean_steps"] < 3
    assert json.loads((folder / "recurrence_stats.json").read_text())["splits"]["test"] == table
    text = (folder / "README.md").read_text()
    assert "It was trained without halting, in 3 depth steps; how it stops was chosen afterwards." in text
    assert f"{table['mean_steps']:.1f} of at most 3 depth steps" in card.claim
    # without the texts of the card's results
    out, _ = succeed("calibrate", tmp_path / "other", held, *goal)
    assert "The card keeps its results of before the calibration: they are of `test`, whose texts" in " ".join(
        out.split()
    )
    assert read_card(tmp_path / "other").results == before.results
    assert "calibrated since to stop by `agreement`" in (tmp_path / "other" / "README.md").read_text()


def test_texts_that_cannot_be_read(refuse, places, tmp_path):
    assert "text_column is 'txt'" in refuse("evaluate", places["model"], places["test"], "--text-column", "txt")
    message = refuse("evaluate", places["model"], places["test"], "--mlm-probability", "0.3")
    assert "mlm_probability is 0.3, but" in message
    assert "is a causal language model: leave it out" in message
    assert "name one column" in refuse(
        "calibrate", places["model"], places["test"], "--text-column", "text", "--text-column", "kind"
    )
    # there is no text
    (tmp_path / "short.txt").write_text("")
    assert "short.txt" in refuse("evaluate", places["model"], tmp_path / "short.txt")
