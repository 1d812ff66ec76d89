"""Documents as tokens: whole texts, in their order, whatever a tokenizer puts around a sentence."""

import datasets
import numpy as np
import pytest

from hf_recurrent.benchmarks import build_tokenizer
from hf_recurrent.documents import DocumentReader, TokenDocuments, encode_documents

TEXTS = ["def f(x):\n    return x\n", "gr\u00f6\u00dfe", "", "a" * 40]


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    # files, as rows in memory would keep what is made of them in memory
    datasets.Dataset.from_dict({"text": TEXTS, "name": list("abcd")}).to_parquet(tmp_path / "rows.parquet")
    return datasets.Dataset.from_parquet(str(tmp_path / "rows.parquet"), cache_dir=str(tmp_path))


def test_tokens_are_the_whole_texts(rows):
    documents = encode_documents(rows, build_tokenizer("long_documents"))
    assert len(documents) == 4
    assert documents.lengths.tolist() == [len(text.encode()) for text in TEXTS]
    assert documents.num_tokens == sum(documents.lengths)
    for index, text in enumerate(TEXTS):
        assert bytes((documents[index] - 4).tolist()).decode() == text
    read = [segment.document.tolist() for segment in DocumentReader(documents, 1, 100)]
    assert read == [[0], [1], [3]]


def test_nothing_is_put_around_a_text():
    texts = datasets.Dataset.from_dict({"text": ["[MAX 1 2 ]"]})
    tokenizer = build_tokenizer("listops")
    assert len(tokenizer("[MAX 1 2 ]")["input_ids"]) == 6
    assert encode_documents(texts, tokenizer).lengths.tolist() == [4]


def test_rows_without_text():
    tokenizer = build_tokenizer("long_documents")
    with pytest.raises(ValueError, match="dataset has the columns name: expected one named text"):
        encode_documents(datasets.Dataset.from_dict({"name": ["a"]}), tokenizer)
    with pytest.raises(ValueError, match="2 documents without a single token"):
        encode_documents(datasets.Dataset.from_dict({"text": ["", ""]}), tokenizer)


def test_fingerprint_is_of_lengths_and_ends():
    def fingerprint(*documents):
        return TokenDocuments([np.array(ids) for ids in documents]).fingerprint

    assert fingerprint([1, 2], [3]) == fingerprint([1, 2], [3])
    assert fingerprint([1, 2], [3]) != fingerprint([1], [2, 3])
    assert fingerprint([1, 2], [3]) != fingerprint([3], [1, 2])
    long = list(range(5000))
    assert fingerprint(long) != fingerprint([*long[:-1], 0])
    assert fingerprint(long) != fingerprint([7, *long[1:]])
