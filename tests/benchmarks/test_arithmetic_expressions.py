"""Simple arithmetic: value, depth, mistakes that are reported, and trees that say what is true."""

import random
import re

import arithmetic_rejection as naive
import pytest
from data_router_files import read

from hf_recurrent.benchmarks import build_tokenizer, normalize_expression, render_example
from hf_recurrent.benchmarks.simple_arithmetic.expressions import analyse, evaluate, make_example, normalize


def random_expressions(count, levels=6, p=0.6):
    rng = random.Random(3)
    return [naive.tree(levels, p, rng) for _ in range(count)]


def test_values_and_depths():
    depths = set()
    for expression in random_expressions(400):
        written = naive.text(expression)
        row = make_example(written)
        assert row["label"] == naive.value(expression) == eval(written) % 10
        assert row["depth"] == naive.depth(expression)
        assert row["text"].split() == list(written)
        assert row["length"] == len(written)
        assert row["num_operators"] == written.count("+") + written.count("*")
        depths.add(row["depth"])
    assert depths == set(range(7))


def test_rows_of_the_authors():
    rows = read("simple_arithmetic")
    assert len(rows) == 400
    for row in rows:
        found = make_example(row["text"])
        assert (str(found["label"]), str(found["depth"])) == (row["label"], row["depth"])
        assert evaluate(found["text"]) == found["label"]
        assert normalize(row["text"]) == found["text"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("( 1 + 2", r"after token 4, expected \)"),
        ("( 1 +", r"after token 3, expected a digit or \("),
        ("(", r"after token 1, expected a digit or \("),
        ("( 1", r"after token 2, expected \+ or \*"),
        ("( 1 + 2 ) )", r"the expression ends before token 6 \('\)'\)"),
        ("1 + 2", r"the expression ends before token 2 \('\+'\)"),
        ("( 1 - 2 )", r"token 3 is '-'; expected \+ or \*"),
        ("( 1 + x )", r"token 4 is 'x'; expected a digit or \("),
        ("( 1 + 2 3 )", r"token 5 is '3'; expected \)"),
        ("( 1 + 2 + 3 )", r"token 5 is '\+'; expected \)"),
        ("( )", r"token 2 is '\)'; expected a digit or \("),
        ("( ( 1 + 2 ) )", r"token 7 is '\)'; expected \+ or \*"),
        (") 1", r"token 1 is '\)'; expected a digit or \("),
        ("+", r"token 1 is '\+'; expected a digit or \("),
        ("( 1 ( 2", r"token 3 is '\('; expected \+ or \*"),
    ],
)
def test_mistakes_are_placed(text, message):
    with pytest.raises(ValueError, match=message):
        evaluate(text)
    with pytest.raises(ValueError, match=f"not an arithmetic expression: {re.escape(repr(text))}: .*{message}"):
        normalize(text)


def test_every_string_is_accepted_or_refused_rightly():
    """All strings of up to five characters out of an alphabet that has all that matters."""
    from itertools import product

    grammar = re.compile(r"[12]|\([12][+*][12]\)")
    accepted = 0
    for size in range(6):
        for characters in product("(12+)", repeat=size):
            text = "".join(characters)
            try:
                analyse(text)
            except ValueError:
                assert not grammar.fullmatch(text)
            else:
                assert grammar.fullmatch(text)
                accepted += 1
    assert accepted == 2 + 4


def test_no_expression_is_too_deep():
    written = "(1+" * 3000 + "2" + ")" * 3000
    row = make_example(written)
    assert (row["label"], row["depth"], row["num_operators"]) == (2, 3000, 3000)
    shown = render_example("simple_arithmetic", {"text": written}, 6)
    assert "more)" in shown


def test_a_tree():
    tree = "+ = 3\n  3\n  * = 0\n    4 5"
    assert render_example("simple_arithmetic", {"text": "( 3 + ( 4 * 5 ) )"}) == tree
    assert render_example("simple_arithmetic", {"text": "(3+(4*5))"}) == tree
    assert render_example("simple_arithmetic", {"text": "((1+9)*7)"}) == "* = 0\n  + = 0\n    1 9\n  7"
    assert render_example("simple_arithmetic", {"text": "7"}) == "7"


def test_spelling():
    tokenizer = build_tokenizer("simple_arithmetic")
    loose, text = " (3+( 4*5))", "( 3 + ( 4 * 5 ) )"
    assert normalize_expression(loose, "simple_arithmetic") == text
    assert tokenizer(loose)["input_ids"] == tokenizer(text)["input_ids"]
    assert tokenizer.unk_token_id not in tokenizer(text)["input_ids"]
