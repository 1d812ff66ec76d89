"""Padded batches, against transformers' collators, and what examples cost."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import DataCollatorForTokenClassification, DataCollatorWithPadding

from hf_recurrent.data.batches import (
    ChoiceCollator,
    PaddingCollator,
    SpanCollator,
    siamese_token_counts,
    token_counts,
)
from support.tokenizer import make_tokenizer

LENGTHS = (3, 6, 1)


@pytest.fixture(params=["left", "right"])
def tokenizer(request):
    found = make_tokenizer()
    found.padding_side = request.param
    return found


def examples(*columns):
    rng = np.random.default_rng(0)
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


@pytest.mark.parametrize("label", [2, 0.5, [0.0, 1.0, 1.0]])
@pytest.mark.parametrize("columns", [("input_ids",), ("input_ids", "attention_mask", "token_type_ids")])
def test_batches_equal_those_of_transformers(columns, label, tokenizer):
    rows = [{**row, "labels": label} for row in examples(*columns)]
    assert_equal(PaddingCollator(tokenizer)(rows), DataCollatorWithPadding(tokenizer)(rows))
    arrays = [{"input_ids": np.array(row["input_ids"])} for row in rows]
    assert torch.equal(PaddingCollator(tokenizer)(arrays)["input_ids"], PaddingCollator(tokenizer)(rows)["input_ids"])


def test_labels_of_tokens_are_padded(tokenizer):
    rows = [{**row, "labels": row["input_ids"][::-1]} for row in examples("input_ids", "attention_mask")]
    expected = DataCollatorForTokenClassification(tokenizer)(rows)
    assert_equal(PaddingCollator(tokenizer, lists_of_labels=True)(rows), expected)


def test_spans_stay_where_they_are_for_every_tokenizer(tokenizer):
    rows = [{"input_ids": [5, 6, 7], "start_positions": 1, "end_positions": 2}, {"input_ids": [8] * 5}]
    rows[1] |= {"start_positions": 3, "end_positions": 4}
    batch = SpanCollator(tokenizer)(rows)
    assert (batch["start_positions"].tolist(), batch["end_positions"].tolist()) == ([1, 3], [2, 4])
    assert batch["input_ids"][0, :3].tolist() == [5, 6, 7]
    assert batch["attention_mask"].sum(1).tolist() == [3, 5]


def test_choices_are_padded_together(tokenizer):
    rows = [{"input_ids": [[5, 6], [7], [8]], "labels": 1}, {"input_ids": [[5], [6, 7, 8], [9, 9]], "labels": 2}]
    batch = ChoiceCollator(tokenizer)(rows)
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (2, 3, 3)
    assert batch["labels"].tolist() == [1, 2]
    for row, ids, masks in zip(rows, batch["input_ids"], batch["attention_mask"].bool(), strict=True):
        assert [own[mask].tolist() for own, mask in zip(ids, masks, strict=True)] == row["input_ids"]
    # a model computes each choice as long as the longest
    assert token_counts(Dataset.from_list(rows)).tolist() == [6, 9]


def test_costs_of_examples_follow_order_and_selection():
    rows = [{"input_ids": [1] * length, "token_type_ids": [0] * 1 + [1] * (length - 1)} for length in (3, 1, 2)]
    assert token_counts(rows).tolist() == [3, 1, 2]
    chosen = Dataset.from_list(rows).select([2, 0])
    assert token_counts(chosen).tolist() == [2, 3]
    # twice the longer one of two sentences
    assert siamese_token_counts(chosen).tolist() == [2, 4]


def test_a_tokenizer_without_padding_is_refused(tokenizer):
    tokenizer.pad_token = None
    with pytest.raises(ValueError, match=r"set tokenizer\.pad_token"):
        PaddingCollator(tokenizer)
