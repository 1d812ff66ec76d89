"""What is published of a checkpoint that was trained on a user's own data: no text of theirs unless they ask for it."""

import json

import pytest

from hf_recurrent.cli import main
from hf_recurrent.hub import publish_checkpoint
from hf_recurrent.hub.staging import stage_checkpoint
from hf_recurrent.training.run import run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:the texts give a vocabulary"),
]

SIZES = '{"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 3}'
NAMES = ["ada", "grace", "alan", "kurt", "emmy"]


def sentence(number):
    return f"{NAMES[number % 5]} of ward {number % 7} has a heart rate of {60 + number} today"


def example(task, number):
    words = sentence(number).split()
    if task == "text-classification":
        return {"text": sentence(number), "label": "high" if number % 2 else "low"}
    if task == "token-classification":
        return {"tokens": words, "ner_tags": ["NAME", *["O"] * (len(words) - 1)]}
    if task == "question-answering":
        answers = {"text": [words[0]], "answer_start": [0]}
        question = {"id": str(number), "question": f"who is at {60 + number}"}
        return {**question, "context": sentence(number), "answers": answers}
    return {"text": sentence(number)}


def write(path, task, numbers):
    path.write_text("".join(json.dumps(example(task, number)) + "\n" for number in numbers))
    return str(path)


TASKS = ("text-classification", "token-classification", "fill-mask", "text-generation", "question-answering")


def trained(folder, task, *options):
    """A finished run on texts of people."""
    files = {name: write(folder / f"{name}.jsonl", task, numbers) for name, numbers in SPLITS.items()}
    flags = [part for name, path in files.items() for part in (f"--{name}_file", path)]
    common = ["--task", task, "--config", SIZES, "--max_steps", "1", "--use_cpu", "true", "--disable_tqdm", "true"]
    run([*flags, *common, "--model_type", "gut", "--output_dir", str(folder / "run"), *options])
    return folder / "run"


SPLITS = {"train": range(60), "validation": range(60, 120), "test": range(120, 140)}


def quoted(folder):
    """The files that hold three words in a row of some text."""
    rows = [sentence(number).split() for numbers in SPLITS.values() for number in numbers]
    parts = {" ".join(words[start : start + 3]) for words in rows for start in range(len(words) - 2)}
    texts = {path.name: path.read_bytes().decode(errors="replace") for path in folder.rglob("*") if path.is_file()}
    return {name for name, text in texts.items() if any(part in text for part in parts)}


@pytest.mark.parametrize("task", TASKS)
def test_no_text_is_published_unless_asked_for(tmp_path, task):
    run = trained(tmp_path, task)
    staged = stage_checkpoint(run, tmp_path / "staged", "org/x")
    assert quoted(staged) == set()
    images = {"test_heat_map.png", "test_routing.png", "validation_heat_map.png", "validation_routing.png"}
    assert images.isdisjoint(path.name for path in staged.rglob("*.png"))


def test_examples_are_quoted_where_they_are_asked_for(tmp_path):
    run = trained(tmp_path, "text-classification", "--examples", "true")
    staged = stage_checkpoint(run, tmp_path / "staged", "org/x")
    assert {"README.md", "results.json"} <= quoted(staged)


def test_a_calibration_and_stored_inputs_are_not_quoted_either(tmp_path):
    run = trained(tmp_path, "text-classification")
    held, test = tmp_path / "validation.jsonl", tmp_path / "test.jsonl"
    goal = ["--without-labels", "--budget", "depth=1", "--repeats", "1", "--criterion", "confidence", "--in_place"]
    for words in (
        ["calibrate", run, held, "--test-file", test, *goal],
        ["card", "inside", run, sentence(1)],
    ):
        with pytest.raises(SystemExit, match="0"):
            main([str(word) for word in words])
    assert json.loads((run / "results.json").read_text())["calibration"]["chosen"]
    assert quoted(stage_checkpoint(run, tmp_path / "staged", "org/x")) == set()


def test_it_is_private_unless_asked_otherwise_and_what_is_sent_is_told_first(tmp_path, hub, capsys, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", hub.token)
    folder = trained(tmp_path, "text-classification")
    told = []
    publish_checkpoint(folder, "org/x", announce=lambda planned: told.append((planned, hub.repositories())))
    ((planned, before),) = told
    assert (planned.private, planned.quotes, before) == (True, False, [])
    assert planned.files["model.safetensors"] == (folder / "model.safetensors").stat().st_size
    assert hub.repository("org/x").private
    hub.add_repository("org/public")
    with pytest.raises(ValueError, match="org/public exists and is public: pass --public"):
        publish_checkpoint(folder, "org/public")
    with pytest.raises(SystemExit, match="0"):
        main(["publish", str(folder), "org/public", "--public"])
    printed = capsys.readouterr().out
    assert "visibility: public" in printed
    assert "no examples of your data are quoted" in printed
    assert "model.safetensors" in printed
