"""Committed model cards: publishable as they are, and their checkpoints load."""

import json
import math
import shlex
from pathlib import Path

import pytest
import torch
import transformers
from transformers import AutoConfig, AutoTokenizer

import hf_recurrent  # noqa: F401 - registers the architectures
from hf_recurrent.cli import main
from hf_recurrent.hub import read_results
from hf_recurrent.hub.card import METRICS, auto_class_of
from hf_recurrent.hub.gallery import build_page, gallery_problems
from support.loopback_hub.cards import front_matter

ROOT = Path(__file__).parents[1] / "model_cards"
FOLDERS = sorted(path.parent for path in ROOT.glob("*/config.json"))
LANGUAGE_MODELS = [
    folder
    for folder in FOLDERS
    if auto_class_of(json.loads((folder / "config.json").read_text())) == "AutoModelForCausalLM"
]


def test_every_folder_is_a_publishable_repository():
    assert gallery_problems(ROOT) == []


def test_everybody_may_use_them():
    assert {front_matter((folder / "README.md").read_text())["license"] for folder in FOLDERS} == {"apache-2.0"}


def test_every_checkpoint_is_on_the_page(tmp_path):
    page = build_page(ROOT, tmp_path / "page.html").read_text(encoding="utf-8")
    for folder in FOLDERS:
        assert f'<tbody class="checkpoint" id="{folder.name}">' in page


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_checkpoint_answers(folder):
    config = AutoConfig.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    auto_class = auto_class_of(config.to_dict())
    model = getattr(transformers, auto_class).from_pretrained(folder).eval()
    results = read_results(folder)
    if METRICS[results["metric"]].in_bits:
        # what any Python source goes on with, and how many bits a byte of one takes
        inputs = tokenizer(
            "import os\n\n\nclass Reader:\n    def __init__(self, name):\n        self", return_tensors="pt"
        )
        assert tokenizer.decode(model.generate(**inputs, max_new_tokens=1, do_sample=False)[0, -1]) == "."
        assert model(**inputs, labels=inputs["input_ids"]).loss < 3 * math.log(2)
    elif auto_class == "AutoModelForCausalLM":
        inputs = tokenizer("w 1 i 0 i 0 r 1 w 0 i 1 r", return_tensors="pt")
        answer = model.generate(**inputs, max_new_tokens=1, do_sample=False)[0, -1]
        assert tokenizer.decode(answer) == "0"
    elif auto_class == "AutoModelForSeq2SeqLM":
        inputs = tokenizer("a #SEP# ( a ( or b ) )", return_tensors="pt")
        answer = model.generate(**inputs, max_new_tokens=2, do_sample=False)
        assert tokenizer.decode(answer[0], skip_special_tokens=True) == "<"
        inputs["labels"] = answer[:, 1:]
    elif auto_class == "AutoModelForTokenClassification":
        words = "def answer ( question , depth = 1 ) : reply = think ( question , steps = depth ) ; return reply . text"
        inputs = tokenizer(words, return_tensors="pt", return_offsets_mapping=True)
        firsts = [start for start, _ in inputs.pop("offset_mapping")[0].tolist()]
        # no offset begins with the space before a word
        assert not any(words[start : start + 1] == " " for start in firsts)
        split = tokenizer(words.split(), is_split_into_words=True, return_tensors="pt")
        assert torch.equal(split["input_ids"], inputs["input_ids"])
        labels = model(**inputs).logits[0].argmax(-1).tolist()
        found = {place: config.id2label[label] for place, label in zip(firsts, labels, strict=True)}
        roles = {
            "answer": "defined",
            "question": "parameter",
            "think": "called",
            "steps": "argument",
            "text": "attribute",
        }
        assert {word: found[words.index(f" {word}") + 1] for word in roles} == roles
    else:
        example = results["example"]
        inputs = tokenizer(
            *(example[name] for name in ("text", "text_pair") if example[name] is not None), return_tensors="pt"
        )
        assert tokenizer.unk_token_id not in inputs["input_ids"]
    with torch.no_grad():
        outputs = model(**inputs)
    assert outputs.logits.isfinite().all()
    if hasattr(config, "halting"):
        assert (outputs.ponder_steps >= 0).any()


@pytest.mark.parametrize("folder", LANGUAGE_MODELS, ids=lambda folder: folder.name)
def test_prompts_of_different_lengths_go_on_as_each_alone(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    prompts = ["w 1 i 0 i 0 r 1 w 0 i 1 r", "w 1 i 0 r"]
    options = {"max_new_tokens": 4, "do_sample": False}
    batch = model.generate(**tokenizer(prompts, padding=True, return_tensors="pt"), **options)[:, -4:]
    for prompt, found in zip(prompts, batch, strict=True):
        alone = model.generate(**tokenizer(prompt, return_tensors="pt"), **options)[0, -4:]
        assert torch.equal(found, alone)
    # a text of training begins with no token of its own
    with pytest.raises(ValueError, match="`bos_token_id` has to be defined when no `input_ids` are provided"):
        model.generate(**options)


# a quarter of a minute and more each
LONGEST = (
    *("block-recurrent-python-cpu", "gut-logical-inference", "sut-logical-inference", "ut-logical-inference"),
    *("gut-listops", "ndr-listops", "ndr-listops-depth", "tlb-listops", "ut-listops"),
    *("ndr-arithmetic", "gut-flip-flop-cpu"),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "folder",
    [
        pytest.param(folder, marks=pytest.mark.nightly if folder.name in LONGEST else (), id=folder.name)
        for folder in FOLDERS
    ],
)
def test_the_first_number_of_a_card_is_measured_again_by_its_command(folder, tmp_path, monkeypatch):
    results = read_results(folder)
    if results["data"]["arguments"] is None:
        pytest.skip("measured on files that not everybody has")
    monkeypatch.chdir(folder.parent)
    split, shown = next(iter(results["splits"].items()))
    options = ["--split", split, "--output", str(tmp_path / "tables.json")]
    if METRICS[results["metric"]].in_bits:
        options += ["--carry", "document", "--segment_length", str(shown["segment_length"])]
    with pytest.raises(SystemExit, match="0"):
        main(["evaluate", folder.name, *shlex.split(results["data"]["arguments"]), *options])
    key = METRICS[results["metric"]].key
    (table,) = json.loads((tmp_path / "tables.json").read_text())["splits"].values()
    # another CPU sums in another order, and may answer few examples otherwise
    assert table[key] == pytest.approx(shown[key], abs=0.003)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["ndr-ctl-forward", "ndr-arithmetic"])
def test_the_exit_of_a_card_is_chosen_again_by_its_command(name, tmp_path, monkeypatch):
    calibration = read_results(ROOT / name)["calibration"]
    monkeypatch.chdir(ROOT)
    words = shlex.split(calibration["arguments"])
    with pytest.raises(SystemExit, match="0"):
        main(["calibrate", name, *words, "--repeats", "1", "--output", str(tmp_path / "calibrated")])
    found = json.loads((tmp_path / "calibrated" / "calibration.json").read_text())
    chosen, told = calibration["chosen"], calibration["calibrated"]
    assert (found["n"], found["max_depth"]) == (calibration["n"], calibration["max_depth"])
    # which criterion is the fastest may differ from machine to machine, not what each of them does
    curve = found["criteria"][chosen["criterion"]]["curve"]
    (row,) = (row for row in curve if all(row[key] == chosen[key] for key in ("threshold", "patience")))
    assert row["risk"] == pytest.approx(told["risk"], abs=0.003)
    assert row["accuracy"] == pytest.approx(told["accuracy"], abs=0.003)
    assert row["mean_depth"] == pytest.approx(told["mean_depth"], rel=0.01)
    for split, test in calibration["tests"].items():
        assert found["tests"][split]["full_accuracy"] == pytest.approx(test["full_accuracy"], abs=0.003)
