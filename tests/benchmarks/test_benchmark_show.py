"""`examples`, `describe_example` and `render_example`: what a newcomer is shown is true."""

import re
from itertools import product

import pytest

from hf_recurrent.benchmarks import benchmark_info, describe_example, examples, list_benchmarks, render_example
from hf_recurrent.benchmarks.listops import expressions
from hf_recurrent.benchmarks.logical_inference import sentences
from hf_recurrent.benchmarks.logical_inference.rendering import infix
from hf_recurrent.benchmarks.logical_inference.sentences import parse

pytestmark = pytest.mark.slow  # generates data sets for people to look at

ALL = 10**6
# the configs of lra have facts of their own: test_configs_that_differ.py
SYNTHETIC = [name for name in list_benchmarks() if benchmark_info(name).synthetic and name != "lra"]
CONFIGS = [(name, config) for name in SYNTHETIC for config in benchmark_info(name).configs]
WORLDS = [dict(zip("abcdef", world, strict=True)) for world in product((False, True), repeat=6)]


def unfold(text):
    """(level, text) of the lines of a tree."""
    return [((len(line) - len(line.lstrip())) // 2, line.strip()) for line in text.splitlines()]


def below(lines, start):
    """The lines of the sub-tree whose root is line `start`."""
    end = start + 1
    while end < len(lines) and lines[end][0] > lines[start][0]:
        end += 1
    return lines[start:end]


def listops_words(lines):
    """A tree back to the tokens of its expression."""
    tokens, opened = [], []
    for level, text in lines:
        while opened and opened[-1] >= level:
            tokens.append("]")
            opened.pop()
        if "=" in text:
            tokens.append("[" + text.split(" = ")[0])
            opened.append(level)
        else:
            tokens += text.split()
    return tokens + ["]"] * len(opened)


@pytest.mark.parametrize("config", benchmark_info("listops").configs)
def test_every_value_in_a_listops_tree(config):
    for example in examples("listops", config, 12, num_test=4):
        row = example.row
        lines = unfold(render_example("listops", row, ALL))
        assert listops_words(lines) == row["text"].split()
        for start, (_, text) in enumerate(lines):
            if "=" in text:
                assert int(text.split(" = ")[1]) == expressions.evaluate(listops_words(below(lines, start)))
        assert lines[0][1].split(" = ")[-1] == str(row["label"])


def test_a_listops_tree():
    tree = "MAX = 9\n  2 9\n  MIN = 4\n    4 7\n  0"
    assert render_example("listops", {"text": "[MAX 2 9 [MIN 4 7 ] 0 ]"}) == tree
    # as people and the authors write it
    assert render_example("listops", {"text": "[max 2 9[min 4 7]0]"}) == tree
    assert render_example("listops", {"text": "7"}) == "7"


def holds(text, world):
    """The truth of an infix sentence, by Python itself."""
    return eval(text, {}, dict(world))


def relation(first, second):
    """The relation between two infix sentences, by trying all worlds."""
    pairs = {(holds(first, world), holds(second, world)) for world in WORLDS}
    # the definitions: which of the four combinations exist
    return {
        frozenset(product((True, False), repeat=2)): "#",
        frozenset({(True, True), (False, True), (False, False)}): "<",
        frozenset({(True, True), (True, False), (False, False)}): ">",
        frozenset({(True, True), (False, False)}): "=",
        frozenset({(True, False), (False, True)}): "^",
        frozenset({(True, False), (False, True), (False, False)}): "|",
        frozenset({(True, False), (False, True), (True, True)}): "v",
    }[frozenset(pairs)]


def logic_infix(lines):
    """A tree back to an infix sentence with all its brackets."""
    token = lines[0][1].split(":")[0]
    children = [below(lines, i) for i, (level, _) in enumerate(lines) if level == lines[0][0] + 1]
    parts = [logic_infix(child) for child in children]
    if token == "not":
        return f"(not {parts[0]})"
    return f"({parts[0]} {token} {parts[1]})" if parts else token


@pytest.mark.parametrize("config", ["original", "split_c"])
def test_every_count_in_a_logic_tree(config):
    found = examples("logical_inference", config, 10)
    assert len({example.row["label"] for example in found}) > 1
    for example in found:
        row = example.row
        shown = describe_example("logical_inference", row, ALL)
        sides = [infix(parse(row[column].split())) for column in ("text", "text_pair")]
        assert relation(*sides) == shown.label
        blocks = re.split(rf"^(?:{'|'.join(map(re.escape, sides))})$\n?", shown.tree, flags=re.MULTILINE)[1:]
        assert len(blocks) == 2
        for side, block in zip(sides, blocks, strict=True):
            lines = unfold(block)
            if not lines:
                assert side in sentences.VARIABLES
            for start, (_, text) in enumerate(lines):
                subtree = logic_infix(below(lines, start))
                count = sum(holds(subtree, world) for world in WORLDS)
                assert text in sentences.VARIABLES or text.endswith(f": true in {count} of 64")
            if lines:
                whole = logic_infix(lines)
                assert all(holds(whole, world) == holds(side, world) for world in WORLDS)


def test_a_logic_tree():
    row = {"text": "( not ( a ( or b ) ) )", "text_pair": "(not a)"}
    assert render_example("logical_inference", row).splitlines() == [
        "not (a or b)",
        "not: true in 16 of 64",
        "  or: true in 48 of 64",
        "    a",
        "    b",
        "not a",
        "not: true in 32 of 64",
        "  a",
    ]


@pytest.mark.parametrize(
    ("first", "second", "tokens"),
    [
        ("a", "b", "'a' and 'b' are independent"),
        ("( a ( and b ) )", "a", "'a and b' entails 'a'"),
        ("a", "( a ( and b ) )", "'a' is entailed by 'a and b'"),
        ("a", "( not ( not a ) )", "'a' and 'not (not a)' mean the same"),
        ("a", "( not a )", "'a' is the negation of 'not a'"),
        ("a", "( b ( and ( not a ) ) )", "'a' and 'b and (not a)' are never both true, but can both be false"),
        ("a", "( b ( or ( not a ) ) )", "'a' and 'b or (not a)' are never both false, but can both be true"),
        (
            "( ( a ( and b ) ) ( and ( c ( and ( d ( and e ) ) ) ) ) )",
            "a",
            "the first entails the second",
        ),
    ],
)
def test_relations_in_words(first, second, tokens):
    row = sentences.make_example(first, second)
    shown = describe_example("logical_inference", row)
    assert shown.answer == tokens
    assert shown.label == relation(infix(parse(first.split())), infix(parse(second.split())))


@pytest.mark.parametrize(("name", "config"), CONFIGS)
def test_trees_have_at_most_so_many_lines(name, config):
    hardest = examples(name, config, 4, num_test=8)[-1].row
    whole = render_example(name, hardest, ALL).splitlines()
    for most in (4, 5, 10, 40):
        shown = render_example(name, hardest, most).splitlines()
        assert len(shown) <= most
        hidden = sum(int(n) for line in shown for n in re.findall(r" \.\.\. \((\d+) more\)$", line))
        assert len(shown) + hidden == len(whole)
        plain = [re.sub(r" \.\.\. \(\d+ more\)$", "", line) for line in shown]
        remaining = iter(whole)
        assert all(line in remaining for line in plain)
    assert render_example(name, hardest) == render_example(name, hardest, 40)


def test_what_one_sentence_does_not_need_the_other_may_use():
    long = "( a ( and ( b ( and ( c ( and ( d ( and e ) ) ) ) ) ) ) )"
    for row in ({"text": "a", "text_pair": long}, {"text": long, "text_pair": "a"}):
        assert len(render_example("logical_inference", row, 11).splitlines()) == 11
        assert "more" not in render_example("logical_inference", row, 11)
        assert "more" in render_example("logical_inference", row, 10)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("listops", "[MIN " * 5000 + "1" + " ]" * 5000),
        ("logical_inference", "( not " * 5000 + "a" + " )" * 5000),
    ],
)
def test_no_tree_is_too_deep(name, text):
    shown = render_example(name, {"text": text, "text_pair": "a"}, 6)
    assert "more)" in shown
    assert 4 <= len(shown.splitlines()) <= 6


@pytest.mark.parametrize(("name", "config"), CONFIGS)
def test_examples_are_rows_of_the_config(name, config):
    info = benchmark_info(name)
    sizes = {key: 12 for key in info.parameters[config] if key.startswith("num_")}
    found = examples(name, config, 5, **sizes)
    assert len(found) == 5
    difficulty = [[example.row[column] for column in info.slice_columns] for example in found]
    assert difficulty == sorted(difficulty)
    assert difficulty[0][0] < difficulty[-1][0]
    assert examples(name, config, 5, **sizes) == found
    assert examples(name, config, 5, **sizes, seed=1) != found
    for example in found:
        assert example.split.split("_")[0] in ("train", "validation", "test")
        shown = describe_example(name, example.row)
        assert shown.texts == {column: example.row[column] for column in info.text_columns}
        assert shown.label == (info.label_names[example.row["label"]] if info.label_names else "")
        assert shown.difficulty == {column: example.row[column] for column in info.slice_columns}
    if name == "listops":
        assert describe_example(name, found[0].row).answer == f"its value is {found[0].row['label']}"


def test_texts_that_people_wrote_have_names_instead_of_parses():
    found = examples("long_documents", None, 4)
    sizes = [example.row["num_bytes"] for example in found]
    assert len(found) == 4
    assert sizes == sorted(set(sizes))
    assert examples("long_documents", None, 1000) != examples("long_documents", None, 1000, seed=1)
    for example in found:
        shown = describe_example("long_documents", example.row)
        assert shown.texts == {"text": example.row["text"]}
        assert shown.names == {column: example.row[column] for column in ("name", "source")}
        assert (shown.tree, shown.answer, shown.label) == ("", "", "")
        assert shown.difficulty["num_words"] == len(example.row["text"].split())
    with pytest.raises(ValueError, match="benchmark 'long_documents' has no parses"):
        render_example("long_documents", found[0].row)
    with pytest.raises(ValueError, match=r"not found: \['source'\]"):
        describe_example("long_documents", {key: value for key, value in found[0].row.items() if key != "source"})


def test_examples_of_given_files(tmp_path):
    for name, tokens in (("a.txt", 9), ("b.txt", 1), ("c.txt", 4)):
        (tmp_path / name).write_text("token " * tokens)
    shares = {"validation_share": 0, "test_share": 0}
    found = examples("long_documents", "folder", 5, data_dir=tmp_path, **shares)
    assert [(example.split, example.row["name"]) for example in found] == [
        ("train", "b.txt"),
        ("train", "c.txt"),
        ("train", "a.txt"),
    ]
    with pytest.raises(ValueError, match="config 'folder' reads your own files: give data_dir"):
        examples("long_documents", "folder")


def test_examples_keep_to_parameters_and_number():
    found = examples("listops", None, 50, max_depth=1, operators=["MAX"], num_train=10, num_validation=0, num_test=10)
    assert len(found) == 20
    assert {example.split for example in found} == {"train", "test"}
    assert {example.row["depth"] for example in found} <= {0, 1}
    lengths = [example.row["length"] for example in examples("listops", "length_generalization", 3, num_test=2)]
    assert 200 <= lengths[0] < 300
    assert 900 <= lengths[-1] <= 1000
    assert len(examples("listops", "original", 1)) == 1
    assert 1 < examples("listops", "original", 1)[0].row["length"] < 300


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: examples("listop"), "unknown benchmark 'listop'; available: listops"),
        (lambda: examples("listops", "long"), "unknown config 'long' of benchmark 'listops'; available: original"),
        (lambda: examples("listops", None, 0), "n=0: expected an integer >= 1"),
        (lambda: examples("listops", depth=3), "unknown parameter 'depth' for benchmark 'listops', config 'original'"),
        # what a user sets must not be taken for an argument
        (lambda: examples("listops", **{"name": 3}), "unknown parameter 'name' for benchmark 'listops', config 'orig"),
        (lambda: examples("listops", **{"config_name": "lra"}), "unknown parameter 'config_name' for benchmark 'listo"),
        (lambda: examples("listops", **{"n": 3}), "unknown parameter 'n' for benchmark 'listops', config 'original'"),
        (lambda: examples("listops", max_depth=0), "max_depth=0: expected an integer >= 1"),
        (lambda: render_example("x", {"text": "1"}), "unknown benchmark 'x'"),
        (lambda: render_example("listops", {"tokens": "1"}), "example={'tokens': '1'}: expected text in text"),
        (lambda: render_example("logical_inference", {"text": "a"}), "expected text in text, text_pair"),
        (lambda: render_example("listops", {"text": "[MAX 1"}), "not a ListOps expression: .*not closed"),
        (lambda: render_example("listops", {"text": "1"}, 3), "max_lines=3: expected an integer >= 4"),
        (lambda: describe_example("listops", {"text": "1", "label": 1}), r"not found: \['length', 'depth', 'num_op"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
