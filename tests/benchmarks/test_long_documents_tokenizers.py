"""Tokenizers of long documents: nothing of a text is lost, and nothing is added."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from hf_recurrent.benchmarks import build_tokenizer, document_tokenizer, encode_document
from hf_recurrent.benchmarks.tokenizers import (
    byte_tokenizer,
    embedding_rows,
    token_num_bytes,
    train_bpe_tokenizer,
)

SPECIAL = ["[PAD]", "[UNK]", "[BOS]", "[EOS]"]
ODD = "x [PAD] y[EOS]\x00\r\n\t é漢\u200b\U0001f600 [BOS]  \u2028\ufeff"
TRAIN = ["the cat sat on the mat, the cat\n" * 20, "def cat(mat):\n    return mat\n" * 20]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@pytest.fixture(scope="module")
def bytes_():
    return byte_tokenizer()


@pytest.fixture(scope="module")
def bpe():
    return train_bpe_tokenizer(TRAIN, 280)


@given(TEXTS)
def test_bytes_are_tokens(bytes_, text):
    expected = [4 + byte for byte in text.encode()]
    assert bytes_(text)["input_ids"] == expected
    assert encode_document(bytes_, text).tolist() == expected
    assert bytes_.decode(expected) == text


@given(TEXTS)
def test_bpe_loses_nothing(bpe, text):
    ids = encode_document(bpe, text)
    assert ids.dtype == np.int32
    assert bpe.decode(ids) == text
    assert token_num_bytes(bpe)[ids].sum() == len(text.encode())


@pytest.mark.parametrize("name", ["bytes_", "bpe"])
def test_names_of_special_tokens_are_text(name, request):
    tokenizer = request.getfixturevalue(name)
    ids = encode_document(tokenizer, ODD)
    assert ids.min() >= 4
    assert tokenizer.decode(ids) == ODD
    assert tokenizer(ODD, add_special_tokens=True)["input_ids"] == ids.tolist()


@pytest.mark.parametrize("name", ["bytes_", "bpe"])
def test_saved_and_loaded(name, request, tmp_path):
    tokenizer = request.getfixturevalue(name)
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again.get_vocab() == tokenizer.get_vocab()
    assert again.convert_ids_to_tokens([0, 1, 2, 3]) == SPECIAL
    assert (again.pad_token_id, again.bos_token_id, again.eos_token_id) == (0, 2, 3)
    assert again(ODD)["input_ids"] == encode_document(tokenizer, ODD).tolist()
    assert encode_document(again, ODD).tolist() == encode_document(tokenizer, ODD).tolist()
    assert again.decode(again(ODD)["input_ids"]) == ODD
    assert set(again(ODD)) == {"input_ids", "attention_mask"}
    batch = again(["ab", "c"], padding=True)
    assert batch["input_ids"][1][0] == 0 or len(batch["input_ids"][0]) == 1
    assert [len(ids) for ids in batch["attention_mask"]] == [len(ids) for ids in batch["input_ids"]]


def test_sizes(bytes_, bpe):
    assert len(bytes_) == embedding_rows(bytes_) == 260
    assert len(bpe) == embedding_rows(bpe) == 280
    assert token_num_bytes(bytes_).tolist() == [0] * 4 + [1] * 256
    counts = token_num_bytes(bpe)
    assert counts[:4].tolist() == [0] * 4
    assert counts.max() > 2


def test_bpe_is_shorter_and_always_the_same(bpe):
    assert train_bpe_tokenizer(iter(TRAIN), 280).get_vocab() == bpe.get_vocab()
    assert len(encode_document(bpe, TRAIN[0])) < len(TRAIN[0]) / 2
    # merges do not cross words
    assert not [token for token in bpe.get_vocab() if "tĠ" in token]


def test_by_name(bytes_, bpe, tmp_path):
    assert (
        build_tokenizer("long_documents").get_vocab() == document_tokenizer("bytes").get_vocab() == bytes_.get_vocab()
    )
    assert document_tokenizer("bpe", TRAIN, 280).get_vocab() == bpe.get_vocab()
    bpe.save_pretrained(tmp_path)
    assert document_tokenizer(str(tmp_path)).get_vocab() == bpe.get_vocab()


def words(*special, **tokens):
    """A tokenizer of words as others publish them, whose template ends every text."""
    tokenizer = Tokenizer(models.WordLevel({token: i for i, token in enumerate((*special, "a", "b"))}, special[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens)


def test_tokenizers_of_others(tmp_path):
    words("<pad>", "</s>", pad_token="<pad>", eos_token="</s>").save_pretrained(tmp_path / "t5")
    loaded = document_tokenizer(str(tmp_path / "t5"))
    assert encode_document(loaded, "a b a").tolist() == [2, 3, 2]
    assert embedding_rows(loaded) == 128
    with pytest.raises(
        ValueError, match="its tokens are not sequences of bytes; divide by the bytes of whole documents"
    ):
        token_num_bytes(loaded)
    words("<end>", eos_token="<end>").save_pretrained(tmp_path / "gpt")
    assert document_tokenizer(str(tmp_path / "gpt")).pad_token == "<end>"
    words("<x>").save_pretrained(tmp_path / "bare")
    with pytest.raises(ValueError, match="has neither a padding nor an end token: set its pad_token"):
        document_tokenizer(str(tmp_path / "bare"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: train_bpe_tokenizer(TRAIN, 259), "vocabulary_size=259: expected an integer >= 260"),
        (lambda: train_bpe_tokenizer(TRAIN, 5000), r"vocabulary_size=5000: the documents give \d+ tokens only"),
        (lambda: document_tokenizer("bpe"), "name='bpe': give the documents to train on, and vocabulary_size"),
        (lambda: document_tokenizer("bytes", TRAIN), "name='bytes': documents and vocabulary_size are for 'bpe'"),
        (lambda: document_tokenizer("./none"), "name='./none': expected 'bytes', 'bpe', a tokenizer's name"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
