"""`hf-recurrent predict`, `evaluate`, `sweep`, `calibrate` and `fit-probe` of models that answer for each token."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoModelForTokenClassification, AutoTokenizer, pipeline

from hf_recurrent.analysis.risk_control import bounded_risk_p_values
from hf_recurrent.models.common.exit_calibration import calibration_problem
from support.token_checkpoints import LABELS, masked_checkpoint, word_checkpoint, word_rows, write_rows

pytestmark = pytest.mark.filterwarnings("ignore:the texts give a vocabulary:UserWarning")
ROWS = 60


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Checkpoints of both kinds, and their files, by their names."""
    folder = tmp_path_factory.mktemp("tokens")
    lines = [" ".join(row["tokens"]) for row in word_rows(ROWS, seed=3) if len(row["tokens"]) > 1]
    (folder / "book.txt").write_text("\n".join(lines) + "\n")
    return {
        "words": word_checkpoint(folder / "words"),
        "masked": masked_checkpoint(folder / "masked"),
        "rows": write_rows(folder / "rows.jsonl", word_rows(ROWS)),
        "test": write_rows(folder / "test.jsonl", word_rows(ROWS, seed=1)),
        "book": folder / "book.txt",
    }


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def outputs(folder, texts, loader=AutoModelForTokenClassification):
    """Probabilities (S, C) and steps (S,) of the tokens of each text alone, and its ids (S,)."""
    model, tokenizer = loader.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    for text in texts:
        inputs = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            output = model(**inputs)
        yield output.logits[0].softmax(-1), output.ponder_steps[0], inputs["input_ids"][0]


def by_hand(folder, rows):
    """Whether each word is labelled right, and its steps."""
    right, steps = [], []
    alone = outputs(folder, [" ".join(row["tokens"]) for row in rows])
    for row, (probabilities, taken, _) in zip(rows, alone, strict=True):
        # a word is a token, between those of beginning and end
        found = [LABELS[label] for label in probabilities.argmax(-1)[1:-1]]
        right += [a == b for a, b in zip(found, row["ner_tags"], strict=True)]
        steps += taken[1:-1].tolist()
    return np.array(right), np.array(steps)


def test_words_are_labelled(run, places, tmp_path):
    rows = word_rows(ROWS)
    rows[4]["tokens"][:1] = ["\N{ZERO WIDTH SPACE}"]
    file = write_rows(tmp_path / "new.jsonl", rows)
    words = ("predict", places["words"], "--file", file, "--output", tmp_path / "p.jsonl", "--keep-column", "kind")
    status, _, err = run(*words, "--batch-size", "7", "--all-probabilities", "--disable-tqdm")
    assert (status, err) == (0, "")
    found = read_lines(tmp_path / "p.jsonl")
    each = [f"probability_{name}" for name in LABELS]
    assert list(found[0]) == ["kind", "prediction", "probability", *each, "steps"]
    wanted = outputs(places["words"], [" ".join(row["tokens"]) for row in rows])
    for row, own, (probabilities, steps, _) in zip(rows, found, wanted, strict=True):
        assert {len(own[name]) for name in list(own)[1:]} == {len(row["tokens"])}
        lost = 1 if own["prediction"][0] is None else 0
        assert lost == (len(steps) == len(row["tokens"]) + 1)
        assert own["prediction"][lost:] == [LABELS[label] for label in probabilities.argmax(-1)[1:-1]]
        assert own["probability"][lost:] == pytest.approx(probabilities.amax(-1)[1:-1].tolist(), abs=1e-5)
        assert own[each[1]][lost:] == pytest.approx(probabilities[1:-1, 1].tolist(), abs=1e-5)
        assert own["steps"][lost:] == steps[1:-1].tolist()
    assert len({steps for own in found for steps in own["steps"]}) > 2


def test_masks_are_filled_as_by_a_pipeline(run, places, tmp_path):
    texts = ["good [MASK] fine", "[MASK] dull [MASK] great poor", "poor [MASK]"]
    (tmp_path / "new.txt").write_text("".join(f"{text}\n" for text in [*texts, "no mask"]))
    words = ("predict", places["masked"], "--file", tmp_path / "new.txt", "--output", tmp_path / "p.jsonl")
    words += ("--disable-tqdm", "--top-k", "3")
    status, _, err = run(*words)
    assert status == 1
    assert "new.txt, line 4: its text has no [MASK] among the tokens that are read" in err
    status, _, err = run(*words, "--on-error", "skip", "--overwrite")
    assert status == 0, err
    assert "1 broken rows were skipped" in err
    fill = pipeline("fill-mask", str(places["masked"]), top_k=3)
    found, alone = read_lines(tmp_path / "p.jsonl"), outputs(places["masked"], texts, AutoModelForMaskedLM)
    for text, own, (_, steps, ids) in zip(texts, found, alone, strict=True):
        theirs = fill(text) if text.count("[MASK]") > 1 else [fill(text)]
        assert own["prediction"] == [[each["token_str"] for each in mask] for mask in theirs]
        for mine, mask in zip(own["probability"], theirs, strict=True):
            assert mine == pytest.approx([each["score"] for each in mask], abs=1e-5)
        assert own["steps"] == steps[ids == fill.tokenizer.mask_token_id].tolist()


def test_words_are_evaluated(evaluated, refuse, places):
    words = (places["words"], places["test"], "--slice-by", "kind")
    tables, out, _ = evaluated(*words, "--batch-size", "7")
    table = tables["test"]
    right, steps = by_hand(places["words"], word_rows(ROWS, seed=1))
    assert (table["n"], table["unit"]) == (len(right), "token")
    assert table["accuracy"] == pytest.approx(right.mean())
    assert table["steps"]["mean"] == pytest.approx(steps.mean())
    assert set(table["slices"]) == {"label", "kind", "length"}
    assert sum(row["n"] for row in table["slices"]["label"]["rows"]) == len(right)
    assert "macro_f1" in table["scores"]
    assert "test.jsonl by label" in out
    assert "depth steps of a word" in " ".join(out.split())
    # what training tells of words alone, and other depths
    table = evaluated(*words, "--train-file", places["rows"], "--max-depth", "1")[0]["test"]
    assert next(iter(table["slices"])) == "context_free_bits"
    assert table["steps"]["mean"] <= table["max_depth"] == 1
    message = refuse("evaluate", places["words"], places["test"], "--line-by-line")
    assert "line_by_line is True, but" in message
    assert "is a token classifier: leave it out" in message


def test_masks_are_evaluated(evaluated, refuse, places):
    words = (places["masked"], places["book"], "--mlm-probability", "0.3")
    tables, out, _ = evaluated(*words, "--max-seq-length", "16")
    table = tables["test"]
    assert table["slices"] == {}
    assert table["scores"]["perplexity"] == pytest.approx(np.exp(table["scores"]["nll"]))
    assert "perplexity" in out
    table = evaluated(*words, "--line-by-line", "--train-file", places["book"])[0]["test"]
    assert set(table["slices"]) == {"context_free_bits", "length"}
    assert "perplexity_of_frequencies" in table["scores"]
    assert "mlm_probability is 0.0" in refuse("evaluate", places["masked"], places["book"], "--mlm-probability", "0")


@pytest.mark.parametrize("kind", ["words", "masked"])
def test_thresholds_are_swept(evaluated, succeed, places, tmp_path, kind):
    file, flags = (places["test"], ()) if kind == "words" else (places["book"], ("--line-by-line",))
    words = (places[kind], file, *flags)
    out = ("--output", tmp_path / "out", "--repeats", "1", "--slice", "length")
    printed, _ = succeed("sweep", *words, *out, "--thresholds", "0.2,0.6")
    found = json.loads((tmp_path / "out" / "halting_sweep.json").read_text())["splits"]["test"]
    table = evaluated(*words)[0]["test"]
    (own,) = (row for row in found["thresholds"] if row["threshold"] == found["own_threshold"])
    assert own["accuracy"] == pytest.approx(table["accuracy"])
    assert (own["lost"], own["gained"]) == (0, 0)
    assert found["measured"] == "accuracy"
    work = [row["stacks"]["model"]["calls"] for row in (*found["thresholds"], found["full_depth"])]
    assert work == sorted(work)
    assert work[0] < work[-1]
    lowest = found["thresholds"][0]
    difference = (own["accuracy"] - lowest["accuracy"]) * table["n"]
    assert lowest["lost"] - lowest["gained"] == pytest.approx(difference)
    assert lowest["loss"] != own["loss"]
    assert lowest["lost"] > 0 or kind == "masked"
    # of the tokens of each bucket
    assert {bucket["value"] for bucket in own["slices"]["length"]} <= set(map(str, range(20)))
    assert "loss" in printed


def test_an_exit_is_calibrated_by_sequences(evaluated, succeed, places, tmp_path):
    goal = ("--tolerance", "0.3", "--confidence", "0.9", "--limit", str(ROWS), "--repeats", "1")
    goal += ("--criterion", "learned", "--criterion", "confidence", "--without-labels", "--only_exits")
    words = ("calibrate", places["words"], places["rows"], "--test-file", places["test"], *goal)
    out, err = succeed(*words, "--output", tmp_path / "copy")
    found = json.loads((tmp_path / "copy" / "calibration.json").read_text())
    assert (found["n"], found["unit"], found["risk"]) == (ROWS, "token", "differs")
    assert list(found["criteria"]) == ["learned", "confidence"]
    for own in found["criteria"].values():
        for row in own["curve"]:
            assert row["p_value"] == pytest.approx(bounded_risk_p_values([row["risk"] * ROWS], ROWS, 0.3)[0])
    # shares of sequences, which are no whole numbers of them
    risks = [row["risk"] * ROWS for own in found["criteria"].values() for row in own["curve"]]
    assert any(abs(risk - round(risk)) > 1e-6 for risk in risks)
    assert found["chosen"] is not None
    assert set(found["inputs"]) == {"confidence"}
    assert found["tests"]["test"]["by_difficulty"]
    flat = " ".join(out.split())
    assert "labelled tokens of a sequence, on average over sequences like these, are errors" in flat
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "copy")
    assert model.config.exit_criterion == found["chosen"]["criterion"]
    assert calibration_problem(model) is None
    tables, _, err = evaluated(tmp_path / "copy", places["test"])
    assert "warning" not in err
    assert tables["test"]["accuracy"] == pytest.approx(found["tests"]["test"]["accuracy"])


def test_tokens_stop_by_a_probe(evaluated, succeed, places, tmp_path):
    words = ("fit-probe", places["words"], places["rows"], "--size", "4")
    out, _ = succeed(*words, "--output", tmp_path / "probed")
    tokens = sum(len(row["tokens"]) for row in word_rows(ROWS))
    assert f"fitted to {ROWS} examples of train ({tokens} units after 1 to 3 steps)" in " ".join(out.split())
    goal = ("--tolerance", "0.4", "--confidence", "0.9", "--repeats", "1", "--criterion", "probe", "--only_exits")
    goal += ("--without-labels", "--in_place")
    succeed("calibrate", tmp_path / "probed", places["rows"], "--test-file", places["test"], *goal)
    found = json.loads((tmp_path / "probed" / "calibration.json").read_text())
    assert (found["n"], found["unit"], found["chosen"]["criterion"]) == (ROWS, "token", "probe")
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "probed")
    assert (model.config.exit_criterion, model.config.exit_probe_size) == ("probe", 4)
    assert calibration_problem(model) is None
    table = evaluated(tmp_path / "probed", places["test"])[0]["test"]
    right, steps = by_hand(tmp_path / "probed", word_rows(ROWS, seed=1))
    assert table["accuracy"] == pytest.approx(right.mean()) == pytest.approx(found["tests"]["test"]["accuracy"])
    assert table["steps"]["mean"] == pytest.approx(steps.mean())
    assert len(set(steps)) > 1


def test_heads_without_such_an_exit_say_so(refuse, places, tmp_path):
    folder = word_checkpoint(tmp_path / "whole", halting="global")
    words = (folder, places["rows"], "--limit", "40", "--tolerance", "0.3")
    message = refuse("calibrate", *words, "--criterion", "entropy", "--output", tmp_path / "copy")
    assert "this model answers for each token while its sequences stop as a whole" in message
    assert message.endswith("choose learned, convergence")
    message = refuse("fit-probe", folder, places["rows"], "--output", tmp_path / "copy")
    assert "no probe can judge the answers of GUTForTokenClassification" in message
    assert "a config whose tokens halt one by one" in message
    assert not (tmp_path / "copy").exists()
