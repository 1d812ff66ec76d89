"""Compositional table lookup: values, mistakes, trees, and the sets of the reference implementation."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from data_router_files import counts, read, statistics

from hf_recurrent.benchmarks import build_tokenizer, describe_example, normalize_expression, render_example
from hf_recurrent.benchmarks.compositional_table_lookup import commands
from hf_recurrent.benchmarks.compositional_table_lookup.benchmark import CONFIGS, CompositionalTableLookup
from hf_recurrent.benchmarks.compositional_table_lookup.expressions import TABLES, VOCABULARY, evaluate, make_example

# what the reference implementation calls the splits
NAMES = {
    "valid_iid": "validation",
    "valid_deeper_val": "validation_ood",
    "test_iid": "test",
    "test_deeper": "test_ood",
    "test_basic": "test_basic",
    "test_new_primitive_1": "test_new_primitive_1",
    "test_new_primitive_2": "test_new_primitive_2",
    "test_new_composition": "test_new_composition",
    "train_iid": "train",
    "train_basic": "train",
}
# those whose rows no unseeded generator chooses
PUBLISHED = ("valid_deeper_val", "test_deeper", "test_basic", "test_new_primitive_1", "test_new_composition")


@pytest.fixture(scope="module")
def published_tables():
    source = np.random.RandomState(0x12345678)
    return {name: source.permutation(8).tolist() for name in "abcdefghijk"}


def texts_of(config, **params):
    params = {**CONFIGS[config].defaults, **params}
    return {
        split: [text for shard in shards for text in shard.arguments[0]]
        for split, shards in CompositionalTableLookup().plan(config, params).items()
    }


@pytest.fixture(scope="module")
def texts():
    return {config: texts_of(config) for config in ("forward", "backward")}


def test_tables_are_numpys(published_tables):
    assert {name: [int(digit) for digit in digits] for name, digits in TABLES.items()} == published_tables


def test_every_short_command(published_tables):
    for size in range(4):
        for names in product("abk", repeat=size):
            for argument in range(8):
                value = argument
                for name in names:
                    value = published_tables[name][value]
                forward = " ".join([f"{argument:03b}", *names])
                backward = " ".join([*reversed(names), f"{argument:03b}"])
                assert evaluate(forward) == evaluate(backward) == f"{value:03b}"
                assert make_example(forward) == {"text": forward, "label": value, "depth": size}


def test_rows_of_the_authors():
    rows = read("compositional_table_lookup")
    assert len(rows) == 550
    for row in rows:
        assert evaluate(row["text"]) == row["label"]
        assert make_example(row["text"])["depth"] == int(row["depth"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("a b", "it has no argument"),
        ("101 a x", "token 3 is 'x'; expected one of 000 001 .* a b c"),
        ("101 a l", "token 3 is 'l'; expected one of"),
        ("101 a 110", "token 3 is '110', a second argument"),
        ("101 110 a", "token 2 is '110', a second argument"),
        ("a 101 b", "token 2 is '101'; expected the argument as first or last token"),
        ("a b 10", "token 3 is '10'; expected one of"),
        ("1011 a", "token 1 is '1011'|token 2 is '1'"),
    ],
)
def test_mistakes_are_placed(text, message):
    with pytest.raises(ValueError, match=message):
        evaluate(text)
    with pytest.raises(ValueError, match=f"not a command of compositional table lookup: '{text}': ({message})"):
        normalize_expression(text, "compositional_table_lookup")


def test_spelling():
    tokenizer = build_tokenizer("compositional_table_lookup")
    for loose, text in ((" 101ab", "101 a b"), ("B a101", "b a 101"), ("101", "101")):
        assert normalize_expression(loose, "compositional_table_lookup") == text
        assert tokenizer(loose.lower())["input_ids"] == tokenizer(text)["input_ids"]
        assert tokenizer.unk_token_id not in tokenizer(text)["input_ids"]
    assert len(VOCABULARY) == 19


def test_trees():
    tree = "b = 010\n  a = 100\n    101"
    for text in ("101 a b", "b a 101"):
        assert render_example("compositional_table_lookup", {"text": text}) == tree
        assert describe_example("compositional_table_lookup", make_example(text)).answer == "its value is 010"
    assert render_example("compositional_table_lookup", {"text": "011"}) == "011"
    shown = render_example("compositional_table_lookup", {"text": "101 " + "a " * 5000}, 6).splitlines()
    assert len(shown) == 6
    assert shown[-1].endswith(" ... (4995 more)")


@pytest.mark.parametrize("config", ["forward", "backward"])
def test_sets_have_the_authors_rows(texts, config):
    found = {split: set(rows) for split, rows in texts[config].items()}
    pool = found["train"] | found["validation"] | found["test"]
    for row in read("compositional_table_lookup"):
        if row["config"] != config:
            continue
        # what is held out, and which of the commands with k are tested, is not published
        if row["set"] in PUBLISHED or row["set"] == "train_basic":
            assert row["text"] in found[NAMES[row["set"]]]
        elif row["set"] != "test_new_primitive_2":
            assert row["text"] in pool
    with_k = {command.text(config) for command in commands.draw_sets(5, 8, 10).new_primitive_2}
    theirs = {
        r["text"]
        for r in read("compositional_table_lookup")
        if (r["config"], r["set"]) == (config, "test_new_primitive_2")
    }
    assert theirs < with_k
    assert found["test_new_primitive_2"] < with_k
    assert len(with_k) == 3000


def facts(rows):
    tokens = [token for text in rows for token in text.split()]
    made = [make_example(text) for text in rows]
    return {
        "n": len(rows),
        "n_functions": counts(row["depth"] for row in made),
        "labels": counts(VOCABULARY[row["label"]] for row in made),
        "functions": counts(token for token in tokens if token in TABLES),
        "args": counts(token for token in tokens if token not in TABLES),
    }


@pytest.mark.parametrize("extra", [3, 2])
def test_statistics_of_the_authors_sets(extra):
    """Equal, not only alike: a wrong draw anywhere would change all that come after it."""
    expected = statistics("compositional_table_lookup")
    found = texts_of("backward", valid_extra_depth=extra)
    for name, wanted in expected[f"valid_extra_depth={extra}"].items():
        assert facts(found[NAMES[name.replace("/", "_")]]) == wanted
    pool = [text for split in ("train", "validation", "test") for text in found[split] if text.count(" ") > 1]
    assert counts(make_example(text)["depth"] for text in pool) == expected["pool"]


def test_train(texts):
    train = Counter(texts["forward"]["train"])
    assert len(train) == 53_224
    assert train.total() == 53_704
    repeated = {text for text, count in train.items() if count > 1}
    assert repeated == {f"{argument:03b} {name}" for argument in range(8) for name in "jk"}
    assert {train[text] for text in repeated} == {31}
    assert not any(set(text.split()) & {"j", "k"} for text in train if make_example(text)["depth"] > 1)
    reserved = {text.split(" ", 1)[1] for text in texts["forward"]["test_new_composition"] if " " in text}
    assert len(reserved) == 607
    assert not any(text.split(" ", 1)[1] in reserved for text in train if make_example(text)["depth"] > 1)


def test_directions_have_the_same_commands(texts):
    for split, forward in texts["forward"].items():
        assert [text.split()[::-1] for text in texts["backward"][split]] == [text.split() for text in forward]
