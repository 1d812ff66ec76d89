"""Simple arithmetic: value, depth, mistakes that are reported, and trees that say what is true."""

import random
import re

import arithmetic_rejection as naive
import pytest
from data_router_files import read

from hf_recurrent.benchmarks import build_tokenizer, describe_example, examples, normalize_expression, render_example
from hf_recurrent.benchmarks.simple_arithmetic.expressions import analyse, evaluate, make_example, normalize

ALL = 10**6


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


def test_words_have_one_character():
    with pytest.raises(ValueError, match="token 4 is '12'; expected a digit"):
        evaluate("( 1 + 12 )")
    with pytest.raises(ValueError, match=r"token 5 is '2'; expected \)"):
        normalize("(1+12)")


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


def from_tree(lines):
    """The value of a tree by its own lines, each of which it checks."""
    level, text = lines[0]
    if " = " not in text:
        return [int(digit) for digit in text.split()]
    operator, claimed = text.split(" = ")
    below = [i for i, (other, _) in enumerate(lines) if other == level + 1]
    operands = [operand for i, j in zip(below, [*below[1:], None], strict=True) for operand in from_tree(lines[i:j])]
    assert len(operands) == 2
    left, right = operands
    assert (left + right if operator == "+" else left * right) % 10 == int(claimed)
    return [int(claimed)]


def test_every_value_in_a_tree():
    for example in examples("simple_arithmetic", None, 40):
        shown = render_example("simple_arithmetic", example.row, ALL)
        lines = [((len(line) - len(line.lstrip())) // 2, line.strip()) for line in shown.splitlines()]
        assert from_tree(lines) == [example.row["label"]]
        assert sorted(re.findall(r"^ *([+*]) =", shown, flags=re.MULTILINE)) == sorted(
            re.findall(r"[+*]", example.row["text"])
        )
        assert describe_example("simple_arithmetic", example.row).answer == f"its value is {example.row['label']}"


def test_spelling():
    tokenizer = build_tokenizer("simple_arithmetic")
    loose, text = " (3+( 4*5))", "( 3 + ( 4 * 5 ) )"
    assert normalize_expression(loose, "simple_arithmetic") == text
    assert tokenizer(loose)["input_ids"] == tokenizer(text)["input_ids"]
    assert tokenizer.unk_token_id not in tokenizer(text)["input_ids"]
