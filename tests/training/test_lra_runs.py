"""Pixels, bytes and pairs of texts: from recipe to publishable folder, and what anyone does with it then."""

import json

import pytest
import yaml
from transformers import pipeline

from hf_recurrent.hub import lint_card
from hf_recurrent.training.evaluate import Request, evaluate_checkpoint, load_checkpoint

pytestmark = pytest.mark.slow

WIDTH = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "num_hidden_layers": 2}
CHUNKS = {"chunk_size": 64, "num_memory_slots": 2}
COMMON = {
    "use_cpu": True,
    "disable_tqdm": True,
    "thresholds": [],
    "max_steps": 2,
    "eval_strategy": "steps",
    "eval_steps": 2,
    "save_strategy": "no",
    "per_device_train_batch_size": 4,
}
SMALL = {"num_train": 8, "num_validation": 4, "num_test": 6}
RUNS = {
    "drawings": {
        "model_type": "gut",
        "config": WIDTH,
        "benchmark": "lra",
        "benchmark_config": "pathfinder32",
        "benchmark_params": {**SMALL, "contour_length": 4},
    },
    "reviews": {
        "model_type": "gutlb",
        "config": {**WIDTH, **CHUNKS},
        "benchmark": "lra_stand_in",
        "benchmark_config": "reviews",
        "benchmark_params": {"max_bytes": 300, "validation_share": 0.3, "test_share": 0.3},
    },
    "passages": {
        "model_type": "tlb",
        "config": {**WIDTH, **CHUNKS, "pair_encoding": "siamese"},
        "benchmark": "lra_stand_in",
        "benchmark_config": "passages",
        "benchmark_params": {**SMALL, "max_bytes": 150},
        "per_device_train_batch_size": None,
        "batch_tokens": 700,
    },
}


def write_reviews(folder):
    """Texts of several lengths, of which one is no UTF-8, and one holds a path."""
    for kind, word in (("pos", b"fine "), ("neg", b"poor \xff\xe9 ")):
        (folder / kind).mkdir(parents=True)
        for number in range(12):
            (folder / kind / f"{number}.txt").write_bytes(b"a film from /usr/share, " + word * (5 * number + 3))
    return folder


@pytest.fixture(scope="module")
def runs(script, tmp_path_factory):
    """A tiny run of each kind."""
    root = tmp_path_factory.mktemp("arena")
    reviews = write_reviews(root / "texts")
    for name, recipe in RUNS.items():
        settings = {key: value for key, value in {**COMMON, **recipe}.items() if value is not None}
        path = root / f"{name}.yaml"
        path.write_text(yaml.safe_dump(settings))
        flags = ["--data_dir", str(reviews)] if name == "reviews" else []
        script.main([str(path), "--output_dir", str(root / name), *flags])
    return root


@pytest.mark.parametrize("name", RUNS)
def test_card_shows_what_is_read(runs, name):
    folder = runs / name
    lint_card(folder)
    card, text = json.loads((folder / "card.json").read_text()), (folder / "README.md").read_text()
    assert "## What it attends to" in text
    assert card["pictures"]
    for picture in card["pictures"]:
        assert (folder / picture["path"]).stat().st_size > 5000
        assert picture["path"] in text
    assert {plot["path"] for plot in card["plots"] if plot["kind"] == "picture"} == {
        picture["path"] for picture in card["pictures"]
    }
    # thousands of tokens by depth, or of chunks by slot, are no figures
    assert not {"token_heat_map", "routing"} & {plot["kind"] for plot in card["plots"]}
    assert "/usr/share" not in text
    assert str(runs) not in text


def test_the_example_of_the_card_can_be_classified(runs):
    for name in ("passages", "reviews"):
        example = json.loads((runs / name / "card.json").read_text())["example"]
        classify = pipeline("text-classification", str(runs / name))
        texts = example["text"] if name != "passages" else {key: example[key] for key in ("text", "text_pair")}
        found = classify(texts)
        assert (found if isinstance(found, dict) else found[0])["label"] in classify.model.config.label2id


def test_a_checkpoint_is_evaluated_on_its_own_config_only(runs):
    checkpoint = load_checkpoint(str(runs / "drawings"), "cpu")
    params = {**SMALL, "contour_length": 6}
    tables = evaluate_checkpoint(checkpoint, Request("lra", "pathfinder32", params=params))
    assert tables["test"]["n"] == 6
    assert {"contour_length", "num_distractors"} <= set(tables["test"]["slices"])
    with pytest.raises(ValueError, match=r"answers with separate, connected, but the labels of lra \(text\)"):
        evaluate_checkpoint(checkpoint, Request("lra", "text"))


def test_other_inputs_cannot_be_evaluated_along_the_way(script, runs, tmp_path):
    argv = [str(runs / "drawings.yaml"), "--output_dir", str(tmp_path / "run"), "--evaluate_on", "image"]
    with pytest.raises(ValueError, match="image has other inputs or labels than pathfinder32"):
        script.main(argv)
