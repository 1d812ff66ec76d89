"""The bag of words beside a card: it learns what counts of words tell, and nothing of their order."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from hf_recurrent.benchmarks import load_benchmark
from hf_recurrent.hub.card import Benchmark, read_card
from hf_recurrent.training.bag_of_words import accuracy, bag_of_words, fitted_counts, fitted_regression

CARDS = Path(__file__).parents[2] / "model_cards"


def rows(texts, labels, **columns):
    from datasets import Dataset

    return Dataset.from_dict({"text": texts, "label": labels, **columns})


def test_counts_decide_and_order_does_not():
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, 2, (400, 5))
    # more ones than zeros; and whether the first word is a one
    texts = [" ".join(map(str, row)) for row in drawn]
    counted, ordered = rows(texts, [int(row.sum() > 2) for row in drawn]), rows(texts, [int(row[0]) for row in drawn])
    for examples, low, high in ((counted, 1.0, 1.0), (ordered, 0.5, 0.75)):
        count = fitted_counts(examples, ["text"])
        assert low <= accuracy(fitted_regression(count, examples, None), count(examples), examples["label"][:]) <= high


def test_each_text_of_a_pair_has_counts_of_its_own():
    texts, pairs = ["a"] * 4 + ["b"] * 4, ["b"] * 4 + ["a"] * 4
    examples = rows(texts, [0] * 4 + [1] * 4, text_pair=pairs)
    count = fitted_counts(examples, ["text", "text_pair"])
    assert count(examples).shape == (8, 4)
    assert accuracy(fitted_regression(count, examples, None), count(examples), examples["label"][:]) == 1


def test_the_penalty_is_chosen_in_validation():
    # a strong penalty leaves the frequent answer alone
    train = rows(["w1"] * 80 + ["w1 rare"] * 20, [0] * 80 + [1] * 20)
    other = rows(["w1 rare"] * 20, [0] * 20)
    count = fitted_counts(train, ["text"])
    assert fitted_regression(count, train, train).C > 0.01
    assert fitted_regression(count, train, other).C == 0.01


@pytest.mark.slow
def test_a_card_gets_the_accuracy_on_its_own_splits(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    card = next(card for card in map(read_card, CARDS.glob("ndr-ctl-forward*")))
    kept = [result for result in card.results if result.split in ("test", "test_ood")]
    card = replace(card, results=kept, compared=[])
    found = bag_of_words(card)
    examples = load_benchmark("compositional_table_lookup", "forward", split="test")
    assert found.values.keys() == {"test", "test_ood"}
    # counts do not say which function comes last
    assert 0.1 < found.values["test"][0] < 0.5
    assert len(examples) == card.results[0].table["n"]


@pytest.fixture
def films(tmp_path, monkeypatch):
    """A card of own texts, whose first word tells the label, and the recipe of its run."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    lines = [json.dumps({"text": f"{word} film {i}", "label": word}) for i in range(8) for word in ("good", "bad")]
    for split in ("train", "test"):
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines))
    recipe = tmp_path / "films.yaml"
    files = {f"{split}_file": str(tmp_path / f"{split}.jsonl") for split in ("train", "test")}
    recipe.write_text(yaml.safe_dump({"model_type": "gut", **files}))
    card = read_card(CARDS / "ndr-ctl-forward")
    result = card.results[0]
    result = replace(result, split="test", table={**result.table, "n": len(lines)})
    own = Benchmark(name="films", config="", version="1", seed=None)
    return replace(card, benchmark=own, results=[result], compared=[]), str(recipe)


def test_own_data_lie_where_the_recipe_says(films):
    card, recipe = films
    found = bag_of_words(card, recipe=recipe)
    assert found.values == {"test": [1.0]}


def test_own_data_without_their_recipe_are_refused(films):
    card, recipe = films
    with pytest.raises(ValueError, match="was trained on own data, films: name the run's recipe by --recipe"):
        bag_of_words(card)
    with pytest.raises(ValueError, match="trains on compositional_table_lookup, the card on films"):
        bag_of_words(card, recipe="cpu/ctl_ndr_forward")
    with pytest.raises(ValueError, match="--data-dir here: films is own data, which --recipe names; leave it out"):
        bag_of_words(card, data_dir="here", recipe=recipe)
    (result,) = card.results
    other = replace(card, results=[replace(result, table={**result.table, "n": 17})])
    with pytest.raises(ValueError, match=r"has results of 17 examples of test, of which .* gives 16 now"):
        bag_of_words(other, recipe=recipe)


def test_a_benchmark_needs_no_recipe():
    card = read_card(CARDS / "ndr-ctl-forward")
    with pytest.raises(ValueError, match=r"--recipe films\.yaml: compositional_table_lookup is a benchmark"):
        bag_of_words(card, recipe="films.yaml")


def test_other_metrics_are_refused():
    card = next(map(read_card, CARDS.glob("block-recurrent-python*")))
    with pytest.raises(ValueError, match="is measured in bits_per_byte on long_documents: a bag of words is trained"):
        bag_of_words(card)


def test_it_needs_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match=r"scikit-learn, which is not installed: pip install '.*\[digits\]'"):
        bag_of_words(read_card(CARDS / "ndr-ctl-forward"))
