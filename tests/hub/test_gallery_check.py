"""What the check of a gallery reports, and what a refresh mends of it, on copies of a committed checkpoint."""

import shutil
from pathlib import Path

import pytest
from committed_cards import copy_cards
from test_gallery import NAME, contents, edit_json

from hf_recurrent.hub.gallery import gallery_problems, read_gallery, refresh

pytestmark = pytest.mark.slow  # draws or renders


@pytest.fixture(scope="module")
def pristine_single(tmp_path_factory):
    return copy_cards(tmp_path_factory.mktemp("pristine") / "cards", [NAME])


@pytest.fixture
def single(pristine_single, tmp_path):
    """A gallery of one checkpoint: what goes wrong in a folder is found in that folder."""
    return shutil.copytree(pristine_single, tmp_path / "cards")


def edit_card(root, change):
    edit_json(root / NAME / "results.json", change)


# what is done to the gallery, the file that is reported, and the words for it; `refresh` mends these
MENDED = {
    "edited card": (lambda root: (root / NAME / "README.md").write_text("better"), "README.md", "differs from its"),
    "lost card": (lambda root: (root / NAME / "README.md").unlink(), "README.md", "is missing"),
}


@pytest.mark.parametrize("case", MENDED)
def test_refresh_mends_what_the_check_finds(single, case):
    mutate, file, words = MENDED[case]
    before = contents(single)
    mutate(single)
    (problem,) = gallery_problems(single)
    assert problem.startswith(f"{NAME}/{file} ")
    assert words in problem
    assert problem.endswith("run `hf-recurrent cards refresh` on the gallery")
    assert refresh(single) == [Path(NAME) / file]
    assert gallery_problems(single) == []
    assert contents(single) == before


def test_refresh_mends_an_edited_index(single):
    index = single / "README.md"
    before = index.read_text()
    index.write_text(before.replace("%", "0%", 1))
    assert gallery_problems(single) == [
        "README.md differs from its rendering: run `hf-recurrent cards refresh` on the gallery"
    ]
    assert refresh(single) == [Path("README.md")]
    assert index.read_text() == before


def write(path, content=b""):
    def mutate(root):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_bytes(content)

    return mutate


def remove(path):
    return lambda root: (root / path).unlink()


# what only a person can mend: the file or folder that is reported, and the words for it
REPORTED = {
    "stray file": (write(f"{NAME}/training_args.bin"), f"{NAME}/training_args.bin", "does not belong"),
    "code": (write(f"{NAME}/modeling_gut.py"), f"{NAME}/modeling_gut.py", "does not belong"),
    "lost config": (remove(f"{NAME}/config.json"), f"{NAME}/config.json", "is missing"),
    "lost weights": (remove(f"{NAME}/model.safetensors"), f"{NAME}/model.safetensors", "is missing"),
    "lost tokenizer": (remove(f"{NAME}/tokenizer.json"), f"{NAME}/tokenizer.json", "is missing"),
    "lost settings of the tokenizer": (
        remove(f"{NAME}/tokenizer_config.json"),
        f"{NAME}/tokenizer_config.json",
        "is missing",
    ),
    "stray file at the top": (write("notes.txt"), "notes.txt", "does not belong beside"),
    "figure not shown": (write(f"{NAME}/assets/more.png"), f"{NAME}/assets/more.png", "does not belong"),
    "lost figure": (
        remove(f"{NAME}/assets/test_steps.png"),
        f"{NAME} is not publishable",
        "'assets/test_steps.png' is missing",
    ),
    "wrong name": (
        lambda root: edit_card(root, lambda results: results.update(name="elsewhere")) or refresh(root),
        f"{NAME}/results.json",
        "names the folder 'elsewhere'",
    ),
}


@pytest.mark.parametrize("case", REPORTED)
def test_what_rendering_cannot_mend_is_reported_until_a_person_does(single, case):
    mutate, place, words = REPORTED[case]
    mutate(single)
    problems = gallery_problems(single)
    assert any(place in line and words in line for line in problems), problems
    assert all(len(line.splitlines()) == 1 for line in problems)
    refresh(single)
    assert problems == gallery_problems(single)


def test_a_calibration_that_is_missing_or_another_is_reported(tmp_path):
    root = copy_cards(tmp_path / "cards", ["albert-review-sentences"])
    path = root / "albert-review-sentences" / "calibration.json"
    content = path.read_text()
    edit_json(path, lambda found: found.update(tolerance=0.5))
    assert [line.partition(" ")[0] for line in gallery_problems(root)] == [f"{path.parent.name}/{path.name}"]
    path.unlink()
    (problem,) = gallery_problems(root)
    assert problem.startswith(f"{path.parent.name}/{path.name} is missing")
    path.write_text(content)
    assert gallery_problems(root) == []


def test_stored_inputs_may_lie_beside_a_card_that_quotes_no_examples(single):
    edit_card(single, lambda results: results["data"].update(seed=None))
    write(f"{NAME}/inside.json", b'{"examples": []}')(single)
    refresh(single)
    assert not [line for line in gallery_problems(single) if "inside.json" in line]


def test_results_follow_the_card(single):
    results = single / NAME / ".eval_results" / "listops.yaml"
    (entry,) = read_gallery(single)
    assert results.is_file() == (entry.results["data"]["dataset_id"] is not None)
    edit_card(single, lambda found: found["data"].update(dataset_id="org/listops"))
    assert any(line.startswith(f"{NAME}/.eval_results/listops.yaml is missing") for line in gallery_problems(single))
    refresh(single)
    assert gallery_problems(single) == []
    assert "org/listops" in results.read_text()
    edit_card(single, lambda found: found["data"].update(dataset_id=None))
    refresh(single)
    (problem,) = gallery_problems(single)
    assert problem.startswith(f"{NAME}/.eval_results/listops.yaml does not belong in a checkpoint folder")
