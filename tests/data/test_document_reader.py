"""Readers of documents against the authors' batches, and on any corpus: all is read, once, and goes on where it
stopped."""

import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.numpy import load_file

from hf_recurrent.benchmarks import build_tokenizer
from hf_recurrent.data.segments import DocumentReader, TokenDocuments, encode_documents

REFERENCE = Path(__file__).parents[1] / "parity" / "block-recurrent" / "unit_batching"


def corpus(*lengths: int, seed: int = 0, vocab_size: int = 90) -> TokenDocuments:
    """Documents of random ids from 3 on."""
    rng = random.Random(seed)
    return TokenDocuments([[rng.randrange(3, vocab_size) for _ in range(length)] for length in lengths])


@pytest.mark.parametrize("rewind", [False, True], ids=["no_rewind", "rewind"])
def test_segments_are_those_of_the_reference(rewind):
    reference = load_file(REFERENCE / "io.safetensors")
    config = json.loads((REFERENCE / "case.json").read_text())["config"]
    documents = TokenDocuments(np.split(reference["docs"], reference["doc_lengths"].cumsum()[:-1]))
    sizes = config["batch_size"], config["segment_length"]
    reader = DocumentReader(documents, *sizes, rewind=rewind, predict_across_segments=False)
    name = "rewind" if rewind else "no_rewind"
    targets, starts = reference[f"{name}.targets"], reference[f"{name}.start_of_sequence"]
    epochs = reference[f"{name}.epoch"]
    if not rewind:
        assert len(list(reader)) == len(targets)
    for step, segment in enumerate(itertools.islice(reader, len(targets))):
        assert (segment.input_ids.numpy() == targets[step]).all()
        assert (segment.start_of_document.numpy() == starts[step]).all()
        assert [row.epoch for row in reader.rows] == epochs[step].tolist()
        # their loss: ids shifted left inside the segment, counted where both are not 0
        shifted = np.pad(targets[step][:, 1:], ((0, 0), (0, 1)))
        theirs = np.where((targets[step] > 0) & (shifted > 0), shifted, -100)
        assert (segment.labels.numpy() == theirs).all()
        assert (segment.attention_mask.numpy() == (targets[step] > 0)).all()


def test_nothing_but_padding_stands_before_the_first_segment():
    """With which processes that have read all keep in step with others."""
    reader = DocumentReader(corpus(5, 3), 2, 4, pad_token_id=7)
    for _ in range(2):
        padding = reader.segment([False] * reader.num_rows)
        expected = {"input_ids": 7, "attention_mask": 0, "labels": -100, "position": 0, "document": -1}
        assert all((getattr(padding, name) == value).all() for name, value in expected.items())
        assert not padding.start_of_document.any()
        assert len(list(reader)) == 2


def read_back(reader) -> dict[int, list[int]]:
    """Document -> its tokens, put together from segments as their own columns say."""
    texts: dict[int, list[int]] = {}
    for segment in reader:
        for row in range(len(segment.document)):
            index, count = int(segment.document[row]), int(segment.attention_mask[row].sum())
            assert segment.attention_mask[row].tolist() == [1] * count + [0] * (segment.input_ids.shape[1] - count)
            if index < 0:
                assert count == 0
                assert not segment.start_of_document[row]
                continue
            text = texts.setdefault(index, [])
            assert int(segment.position[row]) == len(text)
            assert bool(segment.start_of_document[row]) is (not text)
            text += segment.input_ids[row, :count].tolist()
    return texts


@pytest.mark.parametrize("batch_size", [1, 3, 20])
@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("shuffle_seed", [None, 5])
def test_every_document_is_read_once(batch_size, processes, shuffle_seed):
    documents = corpus(19, 8, 3, 0, 25, 16, 1, 30, 7)
    found: dict[int, list[int]] = {}
    for process in range(processes):
        reader = DocumentReader(
            documents, batch_size, 8, shuffle_seed=shuffle_seed, shard=(process, processes), pad_token_id=1
        )
        texts = read_back(reader)
        assert not texts.keys() & found.keys()
        found |= texts
    assert {index: documents[index].tolist() for index in range(9) if index != 3} == found


def test_documents_go_round_the_processes():
    read = read_back(DocumentReader(corpus(*[5] * 7), 2, 8, shard=(1, 3)))
    assert sorted(read) == [1, 4]


def test_labels_are_what_comes_next_in_the_document():
    documents = corpus(19)
    first, second, third = DocumentReader(documents, 1, 8)
    text = documents[0].tolist()
    assert first.labels[0].tolist() == text[1:9]
    assert second.labels[0].tolist() == text[9:17]
    assert third.labels[0].tolist() == [*text[17:], -100, *[-100] * 5]
    *_, within = DocumentReader(documents, 1, 8, predict_across_segments=False)
    assert within.labels[0].tolist() == third.labels[0].tolist()
    assert next(iter(DocumentReader(documents, 1, 8, predict_across_segments=False))).labels[0, -1] == -100


def test_epochs_differ_and_follow_from_the_seed():
    documents = corpus(*[3] * 20)

    def orders(seed):
        reader = DocumentReader(documents, 1, 8, shuffle_seed=seed, rewind=True)
        read = [int(segment.document) for segment in itertools.islice(reader, 40)]
        return read[:20], read[20:]

    first, second = orders(1)
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second
    assert orders(1) == (first, second)
    assert orders(2)[0] != first


@pytest.mark.parametrize("after", [1, 4, 9, 17])
def test_resumed_reader_goes_on_in_the_middle(after):
    documents = corpus(19, 8, 3, 25, 16, 1, 30)
    reader = DocumentReader(documents, 2, 8, shuffle_seed=3, rewind=True)
    list(itertools.islice(reader, after))
    state = json.loads(json.dumps(reader.state_dict()))
    expected = list(itertools.islice(reader, 12))
    other = DocumentReader(documents, 2, 8, shuffle_seed=3, rewind=True)
    list(itertools.islice(other, 5))
    other.load_state_dict(state)
    for ours, theirs in zip(itertools.islice(other, 12), expected, strict=True):
        assert all(map(torch.equal, ours, theirs))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 3}, r"batch_size was 2 and is 3"),
        ({"segment_length": 4}, r"segment_length was 8 and is 4"),
        ({"shard": (0, 2)}, r"processes was 1 and is 2"),
        ({"shuffle_seed": 4}, r"shuffle_seed was None and is 4"),
        ({"rewind": True}, r"rewind was False and is True"),
        ({"predict_across_segments": False}, r"predict_across_segments was True and is False"),
        ({"documents": corpus(19, 8)}, r"documents was 3 and is 2; tokens was 30 and is 27"),
        ({"documents": corpus(19, 8, 3, seed=1)}, r"fingerprint of the corpus was '\w+' and is '\w+'"),
    ],
)
def test_state_of_another_reader_is_refused(change, message):
    arguments = {"documents": corpus(19, 8, 3), "batch_size": 2, "segment_length": 8}
    reader = DocumentReader(**arguments)
    reader.next_segment()
    other = DocumentReader(**{**arguments, **change})
    with pytest.raises(ValueError, match=message):
        other.load_state_dict(reader.state_dict())
    # and nothing of it was taken over
    assert other.next_segment().position.sum() == 0


def test_reader_without_rewind_can_be_read_again():
    reader = DocumentReader(corpus(9, 4), 1, 8)
    assert read_back(reader) == read_back(reader)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"segment_length": 0}, "segment_length 0"),
        ({"shard": (2, 2)}, r"shard \(2, 2\)"),
        ({"documents": corpus(0, 0)}, "documents has 0 that are not empty"),
        ({"documents": corpus(5, 0), "rewind": True, "shard": (0, 2)}, "1 that are not empty, for 2 processes"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        DocumentReader(**{"documents": corpus(5, 7), "batch_size": 2, "segment_length": 8, **arguments})


TEXTS = ["def f(x):\n    return x\n", "gr\u00f6\u00dfe", "", "a" * 40]


def test_documents_are_the_tokens_of_whole_texts():
    rows = Dataset.from_dict({"text": TEXTS, "name": list("abcd")})
    documents = encode_documents(rows, build_tokenizer("long_documents"))
    assert documents.lengths.tolist() == [len(text.encode()) for text in TEXTS]
    assert documents.num_tokens == sum(documents.lengths)
    assert [bytes((documents[index] - 4).tolist()).decode() for index in range(len(documents))] == TEXTS
    assert [segment.document.tolist() for segment in DocumentReader(documents, 1, 100)] == [[0], [1], [3]]
    # and nothing around them
    tokenizer, one = build_tokenizer("listops"), Dataset.from_dict({"text": ["[MAX 1 2 ]"]})
    assert len(tokenizer("[MAX 1 2 ]")["input_ids"]) == 6
    assert encode_documents(one, tokenizer).lengths.tolist() == [4]


def test_fingerprint_is_of_lengths_and_ends():
    long = list(range(5000))
    corpora = [[[1, 2], [3]], [[1], [2, 3]], [[3], [1, 2]], [long], [[*long[:-1], 0]], [[7, *long[1:]]]]
    found = [TokenDocuments([np.array(ids) for ids in documents]).fingerprint for documents in corpora]
    assert len(set(found)) == len(found)
    assert TokenDocuments([np.array([1, 2]), np.array([3])]).fingerprint == found[0]
