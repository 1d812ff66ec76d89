"""Texts as batches of token ids: as the tokenizer encodes them one by one, whatever their order and lengths."""

from itertools import chain

import numpy as np
import pytest

from hf_recurrent.analysis.text_batches import TextEncoder, batches_by_length, padded_batches
from support.tokenizer import make_tokenizer

TEXTS = ["w5", "", "w6 w7 w8 nonsense", "w9 w10", "w4 " * 20]


class PythonTokenizer:
    """A tokenizer without the fast library below it."""

    is_fast = False

    def __init__(self):
        self.tokenizer = make_tokenizer()
        self.model_max_length, self.pad_token_id = self.tokenizer.model_max_length, 0

    def __call__(self, *args, **kwargs):
        return self.tokenizer(*args, **kwargs)


@pytest.mark.parametrize("make", [make_tokenizer, PythonTokenizer])
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_batches_hold_what_the_tokenizer_says(make, pairs, left):
    seconds = TEXTS[::-1] if pairs else None
    encoded = TextEncoder(make())(TEXTS, seconds)
    assert encoded.cut == 0
    tokenizer, seen = make_tokenizer(), []
    tokenizer.padding_side = "left" if left else "right"
    for rows, inputs in padded_batches(encoded, 2, None, tokenizer.pad_token_id, left):
        pair = [[seconds[row] for row in rows]] if pairs else []
        expected = tokenizer([TEXTS[row] for row in rows], *pair, padding=True, return_tensors="pt")
        assert set(inputs) == {"input_ids", "attention_mask", *(["token_type_ids"] if pairs else [])}
        for name, values in inputs.items():
            assert values.tolist() == expected[name].tolist(), name
        seen += rows.tolist()
    assert sorted(seen) == list(range(len(TEXTS)))


@pytest.mark.parametrize("make", [make_tokenizer, PythonTokenizer])
@pytest.mark.parametrize("pairs", [False, True])
def test_long_texts_are_cut_and_counted(make, pairs):
    seconds = TEXTS[::-1] if pairs else None
    encoder = TextEncoder(make(), max_seq_length=7)
    tokenizer = make_tokenizer()
    whole = tokenizer(TEXTS, *([seconds] if pairs else []))["input_ids"]
    cut = tokenizer(TEXTS, *([seconds] if pairs else []), truncation=True, max_length=7)
    for _ in range(2):
        encoded = encoder(TEXTS, seconds)
        assert encoded.ids.tolist() == list(chain(*cut["input_ids"]))
        assert not pairs or encoded.types.tolist() == list(chain(*cut["token_type_ids"]))
        assert encoded.lengths.max() == 7
        assert encoded.cut == sum(len(ids) > 7 for ids in whole) > 0


def test_the_limit_is_that_of_the_tokenizer():
    tokenizer = make_tokenizer()
    assert TextEncoder(tokenizer).max_seq_length is None
    tokenizer.model_max_length = 5
    assert TextEncoder(tokenizer).max_seq_length == 5
    assert TextEncoder(tokenizer, 9).max_seq_length == 9
    assert TextEncoder(tokenizer)(TEXTS).cut == 2


def test_no_room_for_special_tokens():
    with pytest.raises(ValueError, match="max_seq_length is 1: no text can be cut to so few tokens"):
        TextEncoder(make_tokenizer(), 1)(TEXTS)


def test_batches_by_length():
    lengths = np.array([3, 9, 0, 1, 9, 2])
    batches = [batch.tolist() for batch in batches_by_length(lengths, 2)]
    assert batches == [[1, 4], [0, 5], [3]], "the longest first, without texts that have no token"
    batches = [batch.tolist() for batch in batches_by_length(lengths, 4, batch_tokens=12)]
    assert batches == [[1], [4], [0, 5, 3]]
    assert [batch.tolist() for batch in batches_by_length(lengths, 4, batch_tokens=1)] == [[1], [4], [0], [5], [3]]
    assert list(batches_by_length(np.zeros(3, int), 4)) == []
