"""`run_glue_style.py` on a user's own texts: all kinds of labels, from files to a folder that can be published."""

import json
import re
import sys

import pytest
import torch
import yaml
from safetensors.torch import load_file
from tiny_run import TINY
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from hf_recurrent.analysis.answers import several_labels
from hf_recurrent.hub import lint_card
from hf_recurrent.hub.card import read_card
from hf_recurrent.metrics.classification import class_scores, number_scores
from hf_recurrent.training.trainer import RecurrentTrainer
from support.compare import assert_close
from support.other_tokenizers import bert_tokenizer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:the texts give a vocabulary:UserWarning"),
    pytest.mark.filterwarnings("ignore:skipping the incomplete:UserWarning"),
]

ODD = ['a | "b"', "c/d\n`e`", "*f* [g](h) é", "<script>", "None", "{{ x }} ![y](z.png)"]


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


def texts(count):
    """Texts of several lengths, in which the first word tells the label."""
    return [f"{('good', 'bad', 'odd')[i % 3]} film" + " very" * (i % 4) + f" {i % 5}" for i in range(count)]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def run(script, tmp_path):
    """Runs the script for seconds on rows of texts with labels -> the folder."""
    count = 0

    def start(rows, *flags, test=None, **changes):
        nonlocal count
        count += 1
        recipe = {name: value for name, value in TINY.items() if not name.startswith("benchmark")}
        recipe |= {"eval_strategy": "no", "load_best_model_at_end": False, "metric_for_best_model": None, **changes}
        recipe |= {"train_file": write(tmp_path / "films.jsonl", rows), "write_predictions": True}
        recipe["validation_file"] = write(tmp_path / "other.jsonl", rows if test is None else test)
        path, folder = tmp_path / f"{count}.yaml", tmp_path / f"run{count}"
        path.write_text(yaml.safe_dump({name: value for name, value in recipe.items() if value is not None}))
        script.main([str(path), "--output_dir", str(folder), *flags])
        return folder

    return start


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


def predictions_of(folder, split="validation"):
    return [json.loads(line) for line in (folder / "predictions" / f"{split}.jsonl").read_text().splitlines()]


def outputs(folder, rows, columns=("text",)):
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        inputs = tokenizer(*([row[name] for row in rows] for name in columns), padding=True, return_tensors="pt")
        return model(**inputs).logits, model.config


def published(folder):
    """The card of a folder, once it is what it should be."""
    lint_card(folder)
    card = read_card(folder)
    text = (folder / "README.md").read_text()
    assert "paper's value" not in text
    assert str(folder.parent) not in text + (folder / "recipe.yaml").read_text()
    return card, text


def test_classes(run, capsys):
    rows = [{"text": text, "label": text.split()[0], "hard": i % 3} for i, text in enumerate(texts(36))]
    folder = run(rows, "--slice_by", "hard", max_steps=80, save_steps=80, learning_rate=0.02)
    card, text = published(folder)
    (words,) = card.compared
    assert (words.name, words.values) == ("TF-IDF with logistic regression", {"validation": [1.0]})
    assert f"| TF-IDF with logistic regression | {words.num_parameters} | 100.0% |" in text
    printed = capsys.readouterr().out.split("this model majority TF-IDF with logistic regression\n")[1]
    assert printed.splitlines()[0].split()[::2] == ["validation", "0.3333"]
    config = config_of(folder)
    assert config["problem_type"] == "single_label_classification"
    assert config["id2label"] == {"0": "bad", "1": "good", "2": "odd"}
    table = card.results[0].table
    assert table["majority_baseline"] == pytest.approx(1 / 3)
    assert list(table["slices"]) == ["hard", "length"]
    found = predictions_of(folder)
    assert sorted(row["text"] for row in found) == sorted(row["text"] for row in rows)
    logits, model_config = outputs(folder, found)
    assert [model_config.id2label[i] for i in logits.argmax(-1).tolist()] == [row["prediction"] for row in found]
    ids = [["bad", "good", "odd"].index(row["label"]) for row in found]
    expected = class_scores(logits.argmax(-1).numpy(), torch.tensor(ids).numpy(), 3)
    assert table["accuracy"] == pytest.approx(expected.pop("accuracy"))
    assert table["scores"] == pytest.approx(expected)
    assert table["accuracy"] > 0.9, "the first word tells the label"
    assert card.metric == "accuracy"
    assert "- On `validation`: macro f1 " in text
    assert card.benchmark.parameters["files"] == {"train": "films.jsonl", "validation": "other.jsonl"}
    assert card.benchmark.parameters["examples"] == {"train": 36, "validation": 36}
    assert "none to test on" in text


def test_a_run_and_its_card_warn_of_learned_halting_that_collapses(run, capsys):
    rows = [{"text": text, "label": text.split()[0]} for text in texts(12)]
    card, text = published(run(rows, config={**TINY["config"], "halting_bias_init": 9.0}))
    (found,) = (line for line in card.limitations if line.startswith("Learned halting has collapsed: on `validation`"))
    assert "depth steps on average. Train with `halting: none` and `depth_objective: every_step`, and choose" in found
    assert found in text
    assert capsys.readouterr().out.count(f"\n\nWarning: {found}") == 1


def test_a_run_without_scikit_learn_says_how_to_compare(run, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.feature_extraction.text", None)
    card, _ = published(run([{"text": text, "label": i % 2} for i, text in enumerate(texts(12))]))
    assert card.compared == []
    assert "\n\nNot compared with TF-IDF and logistic regression, which needs scikit-learn" in capsys.readouterr().out


def test_several_labels(run):
    sets = [["war"], ["old", "war"], [], ["new"]]
    rows = [{"text": text, "label": sets[i % 4]} for i, text in enumerate(texts(24))]
    folder = run(rows)
    card, text = published(folder)
    assert config_of(folder)["problem_type"] == "multi_label_classification"
    assert list(config_of(folder)["id2label"].values()) == ["new", "old", "war"]
    assert card.metric == "exact_labels"
    assert "all labels of" in card.claim
    found = predictions_of(folder)
    assert {row["label"] for row in found} == {"war", "old + war", "(none)", "new"}
    names, _ = several_labels(*outputs(folder, found))
    assert [row["prediction"] for row in found] == names.tolist()
    assert card.results[0].table["accuracy"] == pytest.approx(
        sum(row["prediction"] == row["label"] for row in found) / len(found)
    )
    assert card.results[0].table["majority_baseline"] == pytest.approx(0.25)
    assert 0 <= card.compared[0].values["validation"][0] <= 1
    assert "(outputs.logits[0] > 0)" in text


def test_f1_of_three_classes_cannot_choose_a_checkpoint(run):
    rows = [{"text": text, "label": "abc"[i % 3]} for i, text in enumerate(texts(24))]
    with pytest.raises(ValueError, match=r"metric_for_best_model is 'f1': .* expected one of accuracy, macro_f1"):
        run(rows, "--eval_strategy", "steps", load_best_model_at_end=True, metric_for_best_model="f1")


def test_a_limit_of_the_tokenizers_own_model_is_none_of_this_one(run, tmp_path):
    tokenizer = bert_tokenizer()
    tokenizer.model_max_length = 6
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    rows = [{"text": "good film " * 9, "label": i % 2} for i in range(12)]
    whole = run(rows, "--tokenizer", str(tmp_path / "tokenizer"))
    with pytest.warns(UserWarning, match="have more than max_seq_length=5 tokens"):
        cut = run(rows, "--tokenizer", str(tmp_path / "tokenizer"), "--max_seq_length", "5")
    lengths = [
        len(AutoTokenizer.from_pretrained(folder)(rows[0]["text"], truncation=True)["input_ids"])
        for folder in (whole, cut)
    ]
    assert lengths == [len(tokenizer(rows[0]["text"])["input_ids"]), 5]
    assert lengths[0] > 6


def test_numbers(run):
    rows = [{"text": text, "label": i % 3 + 0.5} for i, text in enumerate(texts(24))]
    folder = run(rows, "--eval_strategy", "steps", load_best_model_at_end=True, metric_for_best_model="mse")
    card, text = published(folder)
    config = config_of(folder)
    assert (config["problem_type"], len(config["id2label"])) == ("regression", 1)
    assert "At the last evaluation, step 12, R² was " in text
    assert card.metric == "r_squared"
    assert "of the variance of 24 labels" in card.claim
    found = predictions_of(folder)
    logits, _ = outputs(folder, found)
    predicted = [row["prediction"] for row in found]
    assert_close(torch.tensor(predicted), logits.flatten(), 1e-5)
    expected = number_scores(*(torch.tensor([row[name] for row in found]).numpy() for name in ("prediction", "label")))
    table = card.results[0].table
    assert table["accuracy"] == pytest.approx(expected.pop("r_squared"), abs=1e-5)
    assert table["scores"] == pytest.approx(expected, abs=1e-5)
    (words,) = card.compared
    assert words.name == "TF-IDF with ridge regression"
    assert words.values["validation"][0] > 0.8, "the first word tells the label"
    assert "print(outputs.logits.item(), outputs.ponder_steps)" in text


@pytest.mark.parametrize("encoding", ["joint", "siamese"])
def test_pairs(encoding, run, capsys):
    rows = [
        {"premise": text, "hypothesis": text[::-1], "label": ("a_b", "a|c")[i % 2]} for i, text in enumerate(texts(24))
    ]
    folder = run(rows, "--config", json.dumps({"pair_encoding": encoding}))
    card, text = published(folder)
    assert card.compared[0].values.keys() == {"validation"}
    assert card.example.text_pair is not None
    assert card.results[0].table["positive_label"] == "a|c"
    assert re.search(r"^- On `validation`: macro f1 .*, f1 of `a\|c` \d", text, re.MULTILINE)
    assert " macro_f1 f1_of_a|c matthews_correlation\n" in capsys.readouterr().out
    found = predictions_of(folder)
    logits, config = outputs(folder, found, ("text", "text_pair"))
    assert [config.id2label[i] for i in logits.argmax(-1).tolist()] == [row["prediction"] for row in found]


def test_labels_and_texts_that_markdown_reads(run):
    rows = [
        {"text": f"{text} | `x` <b> /home/ada/{i}", "label": ODD[i % 6], "k|nd": ODD[i % 6]}
        for i, text in enumerate(texts(24))
    ]
    folder = run(rows, "--slice_by", "k|nd")
    _, text = published(folder)
    assert list(config_of(folder)["id2label"].values()) == sorted(ODD)
    assert "/home/ada" not in text
    (line,) = [line for line in text.splitlines() if line.startswith("| `<script>`")]
    assert line.count("|") == 8


def test_cuts_are_said(run, script):
    rows = [{"text": text, "label": i % 2} for i, text in enumerate(texts(24))]
    with pytest.warns(
        UserWarning,
        match=r"18 of 24 examples of (films|other)\.jsonl have more than max_seq_length=5 tokens, at most 8",
    ):
        folder = run(rows, "--max_seq_length", "5", "--tokenizer", "words", "--num_proc", "2")
    card = read_card(folder)
    assert card.benchmark.parameters["max_seq_length"] == 5
    # difficulty is the whole length
    assert [row["value"] for row in card.results[0].table["slices"]["length"]["rows"]] == ["5", "6", "7", "8"]


def test_a_killed_run_goes_on_and_other_data_do_not(run, script, tmp_path, monkeypatch, capsys):
    rows = [{"text": text, "label": i % 2} for i, text in enumerate(texts(24))]
    straight = run(rows)
    original = RecurrentTrainer.training_step

    def killed(self, *args, **kwargs):
        if self.state.global_step == 9:
            raise Killed
        return original(self, *args, **kwargs)

    command = [str(tmp_path / "1.yaml"), "--output_dir", str(tmp_path / "again")]
    with monkeypatch.context() as patch:
        patch.setattr(RecurrentTrainer, "training_step", killed)
        with pytest.raises(Killed):
            script.main(command)
    assert (tmp_path / "again" / "checkpoint-8").is_dir()
    write(tmp_path / "films.jsonl", [*rows, rows[0]])
    for folder in ("again", "run1"):
        with pytest.raises(ValueError, match=r"different run: .*\(digest of the data: 'sha256:\w+' there, 'sha256:"):
            script.main([*command[:-1], str(tmp_path / folder)])
    write(tmp_path / "films.jsonl", rows)
    script.main(command)
    assert_close(load_file(tmp_path / "again" / "model.safetensors"), load_file(straight / "model.safetensors"), 1e-4)
    capsys.readouterr()
    script.main(command)
    assert "holds this very run, finished: nothing to train" in capsys.readouterr().out


def test_a_checkpoint_is_tuned_on_other_labels(run):
    rows = [{"text": text, "label": i % 2} for i, text in enumerate(texts(24))]
    first = run(rows)
    flags = {"model_type": None, "model_name_or_path": str(first), "config": None, "max_steps": 1}
    same = run(rows, **flags, learning_rate=0.0)
    assert_close(load_file(same / "model.safetensors"), load_file(first / "model.safetensors"), 1e-6)
    other = [{**row, "label": i % 3} for i, row in enumerate(rows)]
    with pytest.raises(ValueError, match="ignore_mismatched_sizes"):
        run(other, **flags)
    with pytest.warns(
        UserWarning, match=r"learned the labels '0', '1', and the data have '1', '0': .*--label_list 0 1 "
    ):
        run(rows, **flags, label_list=["1", "0"])
    folder = run(other, **flags, ignore_mismatched_sizes=True)
    assert len(config_of(folder)["id2label"]) == 3
