"""What a record of recurrence becomes: rows for each way of reading, positions, gates, figures and a file."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from document_reading import LENGTHS, SEGMENT_LENGTH, make_documents, make_reader
from PIL import Image

from hf_recurrent.analysis.losses import Corpus, Losses, Reading, carry_effect, forgotten_shares, read_losses
from hf_recurrent.analysis.losses import recurrence_table as table_of
from hf_recurrent.analysis.plots import save_figures
from hf_recurrent.data.segments import Segment
from support.families import LANGUAGE_BY_NAME, make_language_model

WORDS = np.array([4, 1, 2, 3, 1])


@pytest.fixture(scope="module")
def model():
    return make_language_model(LANGUAGE_BY_NAME["tlb"])


@pytest.fixture(scope="module")
def reading(model):
    return read_losses(model, make_reader(make_documents()), ("document", "segment"))


@pytest.fixture(scope="module")
def recurrence_table(model):
    return lambda reading, corpus: table_of(model.config, reading, corpus, SEGMENT_LENGTH)


@pytest.fixture(scope="module")
def table(reading, recurrence_table):
    return recurrence_table(reading, Corpus(2 * np.array(LENGTHS), np.array(LENGTHS), WORDS))


def test_numbers_of_the_documents_as_they_are_read(reading, table):
    losses = reading.losses["document"]
    assert json.loads(json.dumps(table, allow_nan=False)) == table
    assert (table["documents"], table["tokens"]) == (4, sum(LENGTHS) - 5)
    assert table["bytes"] == 2 * table["tokens"]
    assert table["bits_per_token"] == losses.bits_per_token
    assert table["bits_per_byte"] == pytest.approx(losses.bits_per_token / 2)
    assert table["constant_bits_per_byte"] == pytest.approx(losses.constant_bits_per_token / 2)
    # the document of one token has nothing to predict
    exponent = losses.bits_per_token * (sum(LENGTHS) - 1) / (WORDS.sum() - 1)
    assert table["word_perplexity"] == pytest.approx(2**exponent)
    assert (table["fixed_depth"], table["halting"], table["mean_steps"]) == (True, "none", None)
    assert (table["segment_length"], table["gates"]) == (SEGMENT_LENGTH, None)


def test_bytes_are_counted_where_a_token_has_always_the_same(reading, recurrence_table):
    losses = reading.losses["document"]
    token_bytes = np.arange(len(losses.label_counts)) % 5
    sizes = np.array(LENGTHS)
    table = recurrence_table(reading, Corpus(2 * sizes, sizes, token_bytes=token_bytes))
    assert table["exact_bytes"]
    assert table["bytes"] == sum(count * (token % 5) for token, count in enumerate(losses.label_counts.tolist()))
    assert table["bits_per_byte"] == pytest.approx(losses.bits_per_token * losses.num_tokens / table["bytes"])
    # a model may have more ids than its tokenizer
    shorter = recurrence_table(reading, Corpus(2 * sizes, sizes, token_bytes=token_bytes[:-1]))
    last = losses.label_counts[-1] * token_bytes[-1]
    assert shorter["bytes"] == table["bytes"] - last
    assert not recurrence_table(reading, Corpus(2 * sizes, sizes))["exact_bytes"]


def test_bytes_of_predicted_tokens_are_their_share_of_the_document(recurrence_table):
    # half a document of two bytes a token, and another one that was read as a whole; others were not read
    sums = {"nats": 1.0, "tokens": [3, 4], "right": 0, "depth": np.nan, "read": [4, 5], "steps": np.nan}
    texts = pd.DataFrame({"text": [0, 1], "octave": 0, **sums})
    reading = Reading({"document": Losses([texts], np.ones(1))})
    table = recurrence_table(reading, Corpus(np.array([16, 10, 99, 99]), np.array([8, 5, 50, 50])))
    assert (table["documents"], table["bytes"]) == (2, 6 + 8)


def test_a_row_for_each_way_of_reading(reading, table):
    first, second = table["carries"]
    assert (first["carry"], first["difference"], first["standard_error"]) == ("document", None, None)
    assert second["carry"] == "segment"
    document, segment = (reading.losses[name].texts["nats"].sum() for name in ("document", "segment"))
    more = (segment - document) / math.log(2)
    assert second["difference"] == pytest.approx(more / table["tokens"])
    assert second["difference"] == pytest.approx(second["bits_per_token"] - first["bits_per_token"])
    assert second["bits_per_byte"] == pytest.approx(second["bits_per_token"] / 2)
    assert second["standard_error"] > 0


def test_positions_compare_the_ways_of_reading(reading, table):
    rows = table["by_position"]
    assert [(row["first"], row["last"]) for row in rows] == [(1, 1), (2, 3), (4, 7), (8, 15), (16, 31)]
    assert sum(row["tokens"] for row in rows) == table["tokens"]
    segment = reading.losses["segment"].positions["bits_per_token"].tolist()
    assert [row["bits_per_token"]["segment"] for row in rows] == segment
    # in the first segment there is nothing to reset
    for row in rows[:3]:
        assert row["bits_per_token"]["segment"] == pytest.approx(row["bits_per_token"]["document"], rel=1e-5)
    assert rows[-1]["bits_per_token"]["segment"] != pytest.approx(rows[-1]["bits_per_token"]["document"], rel=1e-4)


def test_words_may_mean_nothing(reading, recurrence_table):
    assert recurrence_table(reading, Corpus(np.array(LENGTHS), np.array(LENGTHS)))["word_perplexity"] is None


@pytest.mark.parametrize(
    ("difference", "error", "documents", "expected"),
    [
        (0.1, 0.049, 5, "helps"),
        (0.1, 0.051, 5, "unclear"),
        (-0.1, 0.049, 5, "hurts"),
        (-0.1, 0.051, 5, "unclear"),
        (0.1, 0.001, 4, "untested"),
        (0.1, None, 1, "untested"),
        (0.0, 0.0, 5, "unclear"),
    ],
)
def test_what_is_carried_helps_by_two_standard_errors(difference, error, documents, expected):
    assert carry_effect({"difference": difference, "standard_error": error}, documents) == expected


def test_gates_are_those_of_complete_blocks_of_all_rows():
    gates = list(torch.rand(4, 3, 2, 5, generator=torch.Generator().manual_seed(0)))
    mask = (torch.arange(8) < torch.tensor([[8], [5], [0]])).long()

    def shares(gates, position):
        return list(forgotten_shares(gates, Segment(*[mask] * 4, torch.tensor(position), mask), 2))

    blocks = (0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (0, 3)
    assert shares(gates, [16, 0, 0]) == pytest.approx([gates[block][row].mean().item() for row, block in blocks])
    # blocks that begin inside a segment do not count
    assert shares([], [1, 3, 0]) == []


def test_the_figure_and_its_bytes(table, tmp_path):
    drawn = [save_figures(tmp_path / run, table, prefix="test/1") for run in ("a", "b")]
    expected = [{"kind": "loss_position", "path": "assets/test_1_loss_position.png", "column": None}]
    assert drawn[0] == drawn[1] == expected
    first, second = (tmp_path / run / expected[0]["path"] for run in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()
    with Image.open(first) as image:
        assert len(np.unique(np.asarray(image.convert("L")))) > 10
