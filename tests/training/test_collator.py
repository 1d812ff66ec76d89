"""Padded batches, against transformers' collators."""

import numpy as np
import pytest
import torch
from transformers import DataCollatorForTokenClassification, DataCollatorWithPadding

from hf_recurrent.training.collator import PaddingCollator
from support.tokenizer import make_tokenizer

LENGTHS = (3, 6, 1)


def examples(*columns, seed=0):
    rng = np.random.default_rng(seed)
    makers = {
        "input_ids": lambda length: rng.integers(4, 9, length).tolist(),
        "attention_mask": lambda length: [1] * length,
        "token_type_ids": lambda length: [0] * (length // 2) + [1] * (length - length // 2),
    }
    return [{name: makers[name](length) for name in columns} for length in LENGTHS]


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].dtype == values.dtype
        assert found[name].tolist() == values.tolist()


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("label", [2, 0.5, [0.0, 1.0, 1.0]])
@pytest.mark.parametrize("columns", [("input_ids",), ("input_ids", "attention_mask", "token_type_ids")])
def test_batches_equal_those_of_transformers(columns, label, side):
    tokenizer = make_tokenizer()
    tokenizer.padding_side = side
    rows = [{**row, "labels": label} for row in examples(*columns)]
    assert_equal(PaddingCollator(tokenizer)(rows), DataCollatorWithPadding(tokenizer)(rows))


@pytest.mark.parametrize("side", ["left", "right"])
def test_labels_of_tokens_are_padded(side):
    tokenizer = make_tokenizer()
    tokenizer.padding_side = side
    rows = [{**row, "labels": row["input_ids"][::-1]} for row in examples("input_ids", "attention_mask")]
    expected = DataCollatorForTokenClassification(tokenizer)(rows)
    assert_equal(PaddingCollator(tokenizer, lists_of_labels=True)(rows), expected)


def test_rows_may_be_arrays():
    tokenizer = make_tokenizer()
    rows = examples("input_ids")
    arrays = [{"input_ids": np.array(row["input_ids"])} for row in rows]
    assert torch.equal(PaddingCollator(tokenizer)(arrays)["input_ids"], PaddingCollator(tokenizer)(rows)["input_ids"])


def test_a_tokenizer_without_padding_is_refused():
    tokenizer = make_tokenizer()
    tokenizer.pad_token = None
    with pytest.raises(ValueError, match=r"set tokenizer\.pad_token"):
        PaddingCollator(tokenizer)
