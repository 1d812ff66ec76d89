"""Losses of documents: against reading them one at a time, token by token, and the numbers made of them."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from document_reading import LENGTHS, SEGMENT_LENGTH, STREAMING, losses_token_by_token, make_documents, make_reader

from hf_recurrent.analysis.losses import Losses, evaluate_documents, mean_difference, read_losses
from hf_recurrent.data.segments import Segment
from support.families import LANGUAGE_BY_NAME, make_language_model, slow


@pytest.mark.parametrize("name", [name if LANGUAGE_BY_NAME[name].core else slow(name) for name in STREAMING])
def test_losses_are_those_of_documents_read_alone_token_by_token(name):
    model = make_language_model(LANGUAGE_BY_NAME[name])
    documents = make_documents()
    found = read_losses(model, make_reader(documents), ("document", "segment")).losses
    for carry, every in (("document", None), ("segment", SEGMENT_LENGTH)):
        alone = [losses_token_by_token(model, documents[index], every) for index in range(len(documents))]
        losses = found[carry]
        assert (losses.texts["nats"] / math.log(2)).tolist() == pytest.approx(
            [sum(bits) for bits in alone], rel=1e-4, abs=1e-5
        )
        assert losses.texts["tokens"].tolist() == [length - 1 for length in LENGTHS]
        assert losses.texts["read"].tolist() == list(LENGTHS)
        assert losses.bits_per_token == pytest.approx(sum(map(sum, alone)) / sum(map(len, alone)), rel=1e-5)
        octaves = {}
        for bits in alone:
            for before, value in enumerate(bits, start=1):
                octaves.setdefault(int(math.log2(before)), []).append(value)
        assert losses.positions[["first", "last", "tokens"]].to_numpy().tolist() == [
            [2**octave, 2 ** (octave + 1) - 1, len(values)] for octave, values in sorted(octaves.items())
        ]
        expected = [sum(values) / len(values) for _, values in sorted(octaves.items())]
        assert losses.positions["bits_per_token"].tolist() == pytest.approx(expected, rel=1e-4)
    assert abs(found["document"].bits_per_token - found["segment"].bits_per_token) > 1e-4


@pytest.mark.parametrize("batch_size", [1, 3, 7])
def test_the_batch_does_not_matter(batch_size):
    model, documents = make_language_model(LANGUAGE_BY_NAME["tlb"]), make_documents()
    first = evaluate_documents(model, make_reader(documents, 2))
    second = evaluate_documents(model, make_reader(documents, batch_size))
    assert second.texts["nats"].tolist() == pytest.approx(first.texts["nats"].tolist(), rel=1e-4)
    assert second.texts["tokens"].equals(first.texts["tokens"])


def test_a_segment_whose_last_token_is_not_predicted():
    model, documents = make_language_model(LANGUAGE_BY_NAME["tlb"]), make_documents()
    losses = evaluate_documents(model, make_reader(documents, predict_across_segments=False))
    bits = [losses_token_by_token(model, documents[index]) for index in range(len(documents))]
    kept = [[x for place, x in enumerate(row, start=1) if place % SEGMENT_LENGTH] for row in bits]
    assert losses.texts["tokens"].tolist() == [len(row) for row in kept]
    assert losses.texts["nats"].tolist() == pytest.approx([math.log(2) * sum(row) for row in kept], rel=1e-4)


def test_executed_steps_are_counted_over_tokens():
    model, documents = make_language_model(LANGUAGE_BY_NAME["gutlb_token"]), make_documents()
    steps = []
    with torch.no_grad():
        for index in range(len(documents)):
            ids = torch.from_numpy(documents[index])[None]
            steps += model(ids, use_cache=True).ponder_steps[0].tolist()
    assert len(set(steps)) > 2
    assert evaluate_documents(model, make_reader(documents)).mean_steps == pytest.approx(sum(steps) / len(steps))
    assert math.isnan(
        evaluate_documents(make_language_model(LANGUAGE_BY_NAME["tlb"]), make_reader(documents)).mean_steps
    )


@pytest.mark.parametrize(
    ("name", "carry", "words"),
    [
        ("ut", "document", "whose cache grows with the document: evaluate a model"),
        ("tlb", "window", "carry is 'window': expected one of document, segment for this model"),
        ("tlb", "state", "carry is 'state': expected one of document, segment for this model"),
    ],
)
def test_what_cannot_be_read_so(name, carry, words):
    with pytest.raises(ValueError, match=words):
        evaluate_documents(make_language_model(LANGUAGE_BY_NAME[name]), make_reader(make_documents()), carry)


def test_nothing_to_predict():
    model = make_language_model(LANGUAGE_BY_NAME["tlb"])
    with pytest.raises(ValueError, match="no token was to be predicted"):
        evaluate_documents(model, make_reader(make_documents((1, 1))))
    with pytest.raises(ValueError, match="no token was to be predicted"):
        evaluate_documents(model, [])


def make_losses(nats, tokens):
    """Losses of texts of which only these are known."""
    return Losses([pd.DataFrame({"text": range(len(nats)), "nats": nats, "tokens": tokens})])


def test_the_best_constant_prediction_is_the_entropy_of_the_labels():
    losses = make_losses([1.0], [8])
    losses.label_counts = np.array([4, 0, 2, 2])
    assert losses.constant_bits_per_token == pytest.approx(1.5)


def test_the_error_of_a_difference_is_over_documents():
    first = make_losses(np.zeros(4), [10] * 4)
    second = make_losses(math.log(2) * np.array([1.0, 3.0, 1.0, 3.0]), [10] * 4)
    mean, error = mean_difference(first, second)
    # 0.2 bits a token, and the mean over documents of 0.1 and 0.3 has the error sd / sqrt(4)
    assert mean == pytest.approx(0.2)
    assert error == pytest.approx(np.std([0.1, 0.3, 0.1, 0.3], ddof=1) / 2)
    assert mean_difference(second, first)[0] == pytest.approx(-0.2)
    assert mean_difference(make_losses([1.0], [4]), make_losses([2.0], [4]))[1] is None


def test_documents_of_other_lengths_weigh_by_their_tokens():
    more, tokens = np.array([2.0, 9.0, 5.0, 1.0]), np.array([10, 30, 20, 0])
    mean, error = mean_difference(make_losses(np.zeros(4), tokens), make_losses(math.log(2) * more, tokens))
    assert mean == pytest.approx(16 / 60)
    # the jackknife of a ratio of sums agrees in the first order
    left = [(16 - x) / (60 - n) for x, n in zip(more[:3], tokens[:3], strict=True)]
    assert error == pytest.approx(np.sqrt(2 / 3 * sum((x - np.mean(left)) ** 2 for x in left)), rel=0.25)


def test_padding_and_rows_without_a_document_count_nothing():
    logits, labels = torch.zeros(2, 2, 5), torch.tensor([[3, -100], [2, -100]])
    logits[0, 1], logits[1] = torch.nan, torch.inf
    losses = Losses()
    mask, text, before = torch.tensor([[1, 1], [0, 0]]), torch.tensor([2, -1]), torch.tensor([7, 0])
    segment = Segment(labels, mask, labels, text > 0, before, text)
    losses.add(segment, logits, torch.tensor([[2, 4], [9, 9]]))
    assert losses.texts.index.tolist() == [2]
    expected = {"nats": math.log(5), "tokens": 1, "right": 0, "confidence": 0.2, "depth": 2, "read": 2, "steps": 6}
    assert losses.texts.loc[2].to_dict() == pytest.approx(expected)
    assert losses.positions[["first", "last", "tokens", "mean_steps"]].to_numpy().tolist() == [[8, 15, 1, 2]]
    assert losses.label_counts.tolist() == [0, 0, 0, 1, 0]
