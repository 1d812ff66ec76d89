"""`load_benchmark("logical_inference_translation", ...)`: the pairs of logical inference as sources and targets."""

from pathlib import Path

import pytest

from hf_recurrent.benchmarks import (
    describe_example,
    load_benchmark,
    normalize_expression,
    render_example,
)
from hf_recurrent.benchmarks.logical_inference.sentences import RELATIONS

NAME = "logical_inference_translation"
DATA = Path(__file__).parent / "data" / "logic"
SIZES = {"num_train": 60, "num_validation": 8, "num_test": 20}


@pytest.mark.parametrize("config", ["original", "split_b"])
def test_rows_are_those_of_logical_inference(config, cache):
    pairs = load_benchmark("logical_inference", config, cache_dir=cache, **SIZES)
    splits = load_benchmark(NAME, config, cache_dir=cache, **SIZES)
    assert list(splits) == ["train", "validation", "test"]
    for name, rows in splits.items():
        assert rows.column_names == ["source", "target", "num_operators", "length"]
        assert rows.to_list() == [
            {
                "source": f"{pair['text']} #SEP# {pair['text_pair']}",
                "target": RELATIONS[pair["label"]],
                "num_operators": pair["num_operators"],
                "length": len(f"{pair['text']} #SEP# {pair['text_pair']}".split()),
            }
            for pair in pairs[name]
        ]


def authors_pairs(numbers, kind="train"):
    lines = [line for n in numbers for line in (DATA / f"{kind}{n}").read_text().splitlines()]
    fields = [line.split("\t") for line in lines]
    return [(f"{first} #SEP# {second}", label) for label, first, second in fields]


def test_operators_of_the_authors_files(cache):
    splits = load_benchmark(NAME, data_dir=DATA, cache_dir=cache)
    found = {name: list(zip(rows["source"], rows["target"], strict=True)) for name, rows in splits.items()}
    train = authors_pairs(range(7))
    assert found["validation"] == train[9::10]
    assert found["train"] == [pair for place, pair in enumerate(train, start=1) if place % 10]
    assert found["test"] == authors_pairs(range(7, 13), "test")
    assert set(splits["test"]["num_operators"]) == set(range(7, 13))
    assert max(splits["train"]["num_operators"]) == 6


def test_spelling():
    assert normalize_expression("(not a)#SEP# (B(or c))", NAME) == "( not a ) #SEP# ( b ( or c ) )"
    assert normalize_expression(" < ", NAME) == "<"
    for text in ("a b", "a", "", "a #SEP# b #SEP# c", "?"):
        with pytest.raises(ValueError, match="not a text of logical inference as translation"):
            normalize_expression(text, NAME)
    with pytest.raises(ValueError, match=r"not a sentence of logical inference: ' \( b': .*not closed"):
        normalize_expression("a #SEP# ( b", NAME)


def test_parse_and_answer():
    row = {"source": "(a (and b)) #SEP# a", "target": "<", "num_operators": 1, "length": 8}
    shown = describe_example(NAME, row)
    assert shown.texts == {"source": "( a ( and b ) ) #SEP# a", "target": "<"}
    assert shown.answer == "'a and b' entails 'a'"
    assert shown.label == ""
    assert shown.difficulty == {"num_operators": 1, "length": 8}
    assert render_example(NAME, row).splitlines() == ["a and b", "and: true in 16 of 64", "  a", "  b", "a"]
