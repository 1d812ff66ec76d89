"""`inside.json`: what it holds of the committed checkpoints, what is refused, and how a page holds it."""

import copy
import json

import pytest
from test_gallery_page import HOSTILE, Page, page_of

from hf_recurrent.hub.inside import read_inside, shown_examples, write_inside
from hf_recurrent.tasks.checkpoints import load_checkpoint
from support.checkpoints import MODEL_CARDS

FOLDERS = {path.parent.name: path.parent for path in sorted(MODEL_CARDS.glob("*/inside.json"))}
# whose smallest example is looked into by `make test`
SMALL = "ut-flip-flop-cpu"


@pytest.fixture
def examples():
    return read_inside(FOLDERS[SMALL])


def test_some_checkpoints_have_examples_and_a_page_has_room_for_them():
    assert len(FOLDERS) == 4
    assert sum((folder / "inside.json").stat().st_size for folder in FOLDERS.values()) <= 300_000
    for folder in FOLDERS.values():
        stored = read_inside(folder)
        assert len(stored) == 3
        for example in stored:
            runs = example["inside"]["runs"]
            assert sum(run["own"] for run in runs) == 1
            assert {"convergence", "agreement", "stability", "confidence", "entropy"} < {run["rule"] for run in runs}
            # most of what they show is right
            assert example["answer"] is not None
        assert sum(example["answer"] == example["inside"]["runs"][0]["answer"][0] for example in stored) >= 2


def recomputed(name, number=slice(None)):
    stored = read_inside(FOLDERS[name])[number]
    loaded = load_checkpoint(FOLDERS[name], "cpu")
    return stored, shown_examples(loaded.model, loaded.tokenizer, stored)


def rounded(examples):
    """What another machine's rounding does not change: the tokens, and when each rule stops with which answer."""
    insides = [example["inside"] for example in json.loads(json.dumps(examples))]
    return [
        (inside["tokens"], [(run["label"], run["steps"], run["answer"][0]) for run in inside["runs"]])
        for inside in insides
    ]


def test_a_small_example_is_what_the_model_does():
    stored, found = recomputed(SMALL, slice(1))
    assert rounded(stored) == rounded(found)


def test_an_answer_is_a_label():
    loaded = load_checkpoint(FOLDERS["ndr-ctl-forward"], "cpu")
    with pytest.raises(ValueError, match="answer is '11': expected a label of the model, one of '000', '001', "):
        shown_examples(loaded.model, loaded.tokenizer, [{"text": "101 d a", "text_pair": None, "answer": "11"}])


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLDERS)
def test_examples_are_what_the_models_do(name):
    stored, found = recomputed(name)
    assert rounded(stored) == rounded(found)


def test_what_is_read_is_written_the_same(examples, tmp_path):
    assert write_inside(tmp_path, examples).read_bytes() == (FOLDERS[SMALL] / "inside.json").read_bytes()
    assert read_inside(tmp_path) == examples
    assert read_inside(tmp_path / "none") == []


def test_files_have_a_size(examples, tmp_path):
    with pytest.raises(ValueError, match=r"the 60 examples take .* room for 75,000 of each checkpoint: pass fewer"):
        write_inside(tmp_path, examples * 20)
    assert not list(tmp_path.iterdir())


def test_a_page_holds_examples_as_data_that_is_only_text(examples, tmp_path):
    assert "data-inside" not in page_of(tmp_path / "without").partition("<script>")[0]
    hostile = copy.deepcopy(examples)
    for example in hostile:
        example |= {"text": HOSTILE, "answer": HOSTILE}
        example["inside"]["tokens"] = [HOSTILE] * len(example["inside"]["tokens"])
        example["inside"]["runs"][0] |= {"label": HOSTILE, "answer": [HOSTILE, 1.0]}
    (tmp_path / "with" / "one").mkdir(parents=True)
    write_inside(tmp_path / "with" / "one", hostile)
    page = Page(page_of(tmp_path / "with"))
    (mount,) = [attributes for attributes in page.all("div") if "data-inside" in attributes]
    assert json.loads(mount["data-inside"]) == hostile
    assert "hidden" in mount
    assert len(page.all("script")) == 1
    assert page.all("img") == []
