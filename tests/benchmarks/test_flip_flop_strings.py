"""Flip-flop strings: which reads are right, which tokens are labels, and how strings become tokens."""

import numpy as np
import pytest
import torch
from flip_flop_machine import run
from hypothesis import given
from hypothesis import strategies as st

from hf_recurrent.benchmarks import build_tokenizer, check_string, normalize_expression, read_labels

PAIRS = st.lists(st.tuples(st.sampled_from("wir"), st.sampled_from("01")), max_size=30)
STRINGS = st.builds(lambda bit, pairs: " ".join(["w", bit, *sum(pairs, ())]), st.sampled_from("01"), PAIRS)
TOKENIZER = build_tokenizer("flip_flop")


@given(STRINGS)
def test_reads_against_the_definition(text):
    reads = check_string(text)
    assert [(read.position, read.write, read.write_position, read.right) for read in reads] == run(text)
    tokens = text.split()
    for read in reads:
        assert (read.found, read.expected) == (tokens[read.position], tokens[read.write_position])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a flip-flop string: '': it is empty"),
        ("w 0 r", "'w 0 r': its last instruction, r, has no bit"),
        ("i 0 r 0", "token 1 is 'i'; expected w$"),
        ("r 0", "token 1 is 'r'; expected w$"),
        ("w w", "token 2 is 'w'; expected 0 or 1"),
        ("w 0 1 r", "token 3 is '1'; expected w or i or r"),
        ("w 0 x 1", "token 3 is 'x'; expected w or i or r"),
        ("w 0 r 2", "token 4 is '2'; expected 0 or 1"),
        ("w 0 " * 500 + "w", r"'(w 0 ){19}w 0: its last instruction, w, has no bit"),
    ],
)
def test_malformed_strings(text, message):
    with pytest.raises(ValueError, match=message):
        check_string(text)
    with pytest.raises(ValueError, match="not a flip-flop string"):
        normalize_expression(text, "flip_flop")


@given(STRINGS)
def test_labels_are_the_bits_of_reads(text):
    ids = TOKENIZER(text)["input_ids"]
    answers = {position for position, *_ in run(text)}
    expected = [token if i in answers else -100 for i, token in enumerate(ids)]
    for tokenizer in (TOKENIZER, None, TOKENIZER.get_vocab()):
        labels = read_labels(ids, tokenizer)
        assert labels.dtype == np.int64
        assert labels.tolist() == expected


def test_labels_of_a_padded_batch():
    texts = ["w 0 r 0", "w 1 i 0 r 1", "w 1 r"]
    expected = {"right": [[3], [5], []], "left": [[5], [5], []]}
    for side, places in expected.items():
        tokenizer = build_tokenizer("flip_flop")
        tokenizer.padding_side = side
        ids = np.array(tokenizer(texts, padding=True)["input_ids"])
        labels = read_labels(ids)
        assert labels.shape == ids.shape
        assert [np.flatnonzero(row != -100).tolist() for row in labels] == places
        assert (labels[labels != -100] == ids[labels != -100]).all()
        tensor = torch.tensor(ids, dtype=torch.int32)
        before = tensor.clone()
        found = read_labels(tensor, tokenizer)
        assert isinstance(found, torch.Tensor)
        assert found.dtype == torch.int64
        assert found.tolist() == labels.tolist()
        assert torch.equal(tensor, before)


def test_labels_with_other_ids():
    ids = {"w": 10, "i": 11, "r": 12, "0": 0, "1": 1, "more": 7}
    assert read_labels([[10, 1, 12, 1, 11, 0, 12, 0]], ids).tolist() == [[-100] * 3 + [1] + [-100] * 3 + [0]]
    with pytest.raises(ValueError, match="tokenizer: it has no w, i, r, 0, 1; expected that of build_tokenizer"):
        read_labels([1], {"a": 1})
    with pytest.raises(ValueError, match="tokenizer: it has no w, i, r; expected"):
        read_labels([1], build_tokenizer("listops"))


def test_tokens_are_the_words_alone():
    text = "w 0 i 1 r 0"
    encoded = TOKENIZER([text, "w 1"], padding=True)
    assert set(encoded) == {"input_ids", "attention_mask"}
    assert TOKENIZER.convert_ids_to_tokens(encoded["input_ids"][0]) == text.split()
    # shorter rows are padded on the left, which is what `generate` wants
    assert encoded["input_ids"][1] == [0, 0, 0, 0, 4, 8]
    assert encoded["attention_mask"] == [[1] * 6, [0, 0, 0, 0, 1, 1]]
    assert TOKENIZER.decode(encoded["input_ids"][0]) == text
    assert TOKENIZER("w0 i1r0")["input_ids"] == encoded["input_ids"][0]
    assert normalize_expression("W0 i1r0", "flip_flop") == text
    assert TOKENIZER.convert_ids_to_tokens(TOKENIZER("w 2")["input_ids"]) == ["w", "[UNK]"]
