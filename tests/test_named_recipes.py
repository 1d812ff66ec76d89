"""Recipes of the package by name: what stands for one, and what is a file."""

from pathlib import Path

import pytest

from hf_recurrent.recipes import FOLDER, find_recipe, name_of, packaged_recipe, recipe_files, recipe_named, recipe_title


def test_every_recipe_has_a_name_and_a_title_of_its_own():
    assert set(recipe_files().values()) == set(FOLDER.rglob("*.yaml"))
    titles = {name: recipe_title(path) for name, path in recipe_files().items()}
    assert all(titles.values())
    assert len(set(titles.values())) == len(titles)
    assert titles["cpu/listops_gut"] == "GUT on ListOps (CPU-size)"
    # those of papers come first
    assert [name.startswith("cpu/") for name in titles] == sorted(name.startswith("cpu/") for name in titles)


@pytest.mark.parametrize("suffix", ["", ".yaml"])
@pytest.mark.parametrize("name", ["listops_gut", "cpu/listops_gut"])
def test_names_that_stand_for_a_recipe(name, suffix, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = FOLDER / f"{name}.yaml"
    assert recipe_named(f"{name}{suffix}") == name
    assert find_recipe(f"{name}{suffix}") == packaged_recipe(f"{name}{suffix}") == path
    assert name_of(path) == name


@pytest.mark.parametrize(
    "text",
    ["", ".", "cpu", "cpu/", "listops", "./listops_gut", "../recipes/listops_gut", "x/listops_gut", "listops_gut.yml"],
)
def test_other_texts_are_paths(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert recipe_named(text) is None
    assert find_recipe(text) == Path(text)
    with pytest.raises(ValueError, match="there is no recipe"):
        packaged_recipe(text)


@pytest.mark.parametrize("text", ["listops_gut.yaml", "listops_gut"])
def test_an_existing_file_wins(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(text).parent.mkdir(parents=True, exist_ok=True)
    Path(text).write_text("title: mine")
    assert find_recipe(text) == Path(text)
    assert name_of(Path(text)) is None
    assert packaged_recipe(text) == FOLDER / "listops_gut.yaml"


def test_a_name_mistyped():
    with pytest.raises(ValueError, match="no recipe cpu/listop_gut; did you mean cpu/listops_gut"):
        packaged_recipe("cpu/listop_gut")
    with pytest.raises(ValueError, match="no recipe zzz; `hf-recurrent recipes list` names them"):
        packaged_recipe("zzz")
