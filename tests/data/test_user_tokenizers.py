"""Tokenizers of users' texts: trained on these, or another model's, saved and loaded by anyone."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, ByT5Tokenizer, PreTrainedTokenizerFast

from hf_recurrent.benchmarks.tokenizers import embedding_rows
from hf_recurrent.data.reading import words_of_tokens
from hf_recurrent.data.tokenizers import (
    PADDING_SIDES,
    TRAINED_KINDS,
    load_tokenizer,
    num_token_types,
    train_tokenizer,
    with_plain_texts,
)
from support.client import must_succeed, run_client
from support.loopback_hub import LoopbackHub
from support.other_tokenizers import OTHERS, SENTENCES, gpt2_tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[BOS]", "[EOS]"]
# spellings of special tokens, and all that is hard to keep
ODD = "x [PAD] y[EOS]\x00\r\n\t é漢\u200b\U0001f600 [BOS]  \u2028\ufeff"
# of several letters, marks and bytes, some of which stand in a tokenizer's expression of what is a word
WORDS = st.lists(st.text("thecat.'sé漢\u200b1_[\u0120", min_size=1, max_size=6), max_size=6)
SIZES = {"bpe": 270, "words": None, "bytes": None}

LOAD = """
import json, sys
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
print(json.dumps([dict(tokenizer(*json.loads(sys.argv[2]))), tokenizer.padding_side, len(tokenizer)]))
"""


def trained(kind, frame="classification", texts=SENTENCES):
    return train_tokenizer(kind, texts, SIZES[kind], frame=frame)


def words_of(tokenizer, *texts):
    return tokenizer.convert_ids_to_tokens(tokenizer(*texts)["input_ids"])


@pytest.mark.parametrize("kind", TRAINED_KINDS)
@pytest.mark.parametrize("frame", PADDING_SIDES)
def test_frames(kind, frame):
    tokenizer = trained(kind, frame)
    assert tokenizer.convert_ids_to_tokens([0, 1, 2, 3]) == SPECIAL
    assert embedding_rows(tokenizer) == len(tokenizer)
    assert tokenizer.padding_side == PADDING_SIDES[frame]
    before = ["[BOS]"] if frame == "classification" else []
    after = [] if frame == "language" else ["[EOS]"]
    inside = tokenizer.tokenize("the cat")
    assert inside
    assert words_of(tokenizer, "the cat") == [*before, *inside, *after]
    other = tokenizer.tokenize("on")
    pair = tokenizer("the cat", "on")
    first = len(before + inside + after)
    assert words_of(tokenizer, "the cat", "on") == [*before, *inside, *after, *before, *other, *after]
    types = {"token_type_ids": [0] * first + [1] * (len(pair["input_ids"]) - first)}
    assert {name: pair[name] for name in pair if name not in ("input_ids", "attention_mask")} == (
        types if frame == "classification" else {}
    )
    assert num_token_types(tokenizer) == (2 if frame == "classification" else 0)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A tokenizer of each kind, and of bytes in two frames, as they are loaded."""
    loaded = []
    for kind, frame in (*((kind, "classification") for kind in TRAINED_KINDS), ("bytes", "language")):
        folder = tmp_path_factory.mktemp(f"{kind}-{frame}")
        trained(kind, frame).save_pretrained(folder)
        loaded.append(AutoTokenizer.from_pretrained(folder))
    return loaded


@settings(max_examples=50)
@given(words=WORDS)
def test_words_are_read_as_the_text_with_spaces_between_them(saved, words):
    text = " ".join(words)
    starts = [len(" ".join([*words[:number], ""])) for number in range(len(words))]
    for tokenizer in saved:
        whole = tokenizer(text, return_offsets_mapping=True)
        split = tokenizer(words, is_split_into_words=True, return_offsets_mapping=True)
        places, own = whole.pop("offset_mapping"), split.pop("offset_mapping")
        assert dict(split) == dict(whole)
        owners = split.word_ids()
        assert [-1 if number is None else number for number in owners] == words_of_tokens(words, places)
        for number, (start, end), (first, last) in zip(owners, own, places, strict=True):
            if number is not None:
                # the token may begin with the space before its word
                assert (starts[number] + start, starts[number] + end) == (max(first, starts[number]), last)


@pytest.mark.parametrize("kind", ["bpe", "bytes"])
def test_batches_and_pairs_of_words(kind):
    tokenizer = trained(kind)
    rows, others = [["the", "cat"], ["on"], []], [["a", "dog"], ["sat", "on"], ["the"]]
    texts = [[" ".join(words) for words in side] for side in (rows, others)]
    options = {"padding": True, "return_tensors": "np", "return_offsets_mapping": True}
    split = tokenizer(rows, others, is_split_into_words=True, **options)
    assert (split["input_ids"] == tokenizer(*texts, padding=True, return_tensors="np")["input_ids"]).all()
    assert split["offset_mapping"].tolist() == [[[*pair] for pair in one.offsets] for one in split.encodings]
    pairs = tokenizer([*zip(rows, others, strict=True)], is_split_into_words=True)
    assert pairs["input_ids"] == tokenizer(*texts)["input_ids"]
    long = tokenizer(
        ["cat", "on"] * 4, is_split_into_words=True, max_length=7, truncation=True, return_overflowing_tokens=True
    )
    assert long.word_ids(len(long["input_ids"]) - 1)[-2] == 7
    assert tokenizer(["cat", "on"], is_split_into_words=True).word_to_chars(1) == (0, 2)
    with pytest.raises(TypeError):
        tokenizer(["a", 5], is_split_into_words=True)


def test_spans_begin_with_a_word_and_not_with_a_space():
    tokenizer = trained("bpe")
    text = "the cat sat"
    offsets = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    tokens = words_of(tokenizer, text)
    assert [text[start:end] for start, end in offsets[1:-1]] == [token.lstrip("Ġ") for token in tokens[1:-1]]
    assert any(token.startswith("Ġ") for token in tokens)


def test_words_are_the_most_frequent_ones():
    texts = ["b a, b b!", "a c Ça_1 don't", "漢字 漢字", "[PAD]"]
    tokenizer = train_tokenizer("words", iter(texts), frame="language")
    # a, b, and then in the order of characters
    assert tokenizer.convert_ids_to_tokens(range(4, len(tokenizer))) == [
        *("b", "a", "漢字", "!", "'", ",", "PAD", "[", "]", "c", "don", "t", "Ça_1")
    ]
    assert words_of(tokenizer, "A b,d Ça_1") == ["[UNK]", "b", ",", "[UNK]", "Ça_1"]
    assert tokenizer.decode(tokenizer("b,  a")["input_ids"]) == "b , a"
    few = train_tokenizer("words", texts, 6, frame="language")
    assert few.convert_ids_to_tokens(range(len(few))) == [*SPECIAL, "b", "a"]


def test_sizes():
    assert len(train_tokenizer("bytes", (), frame="language")) == 260
    with pytest.raises(ValueError, match="vocab_size=300: 'bytes' have a fixed vocabulary: leave vocab_size out"):
        train_tokenizer("bytes", (), 300, frame="language")
    assert len(train_tokenizer("bpe", SENTENCES, 270, frame="language")) == 270
    with pytest.warns(UserWarning, match=r"the texts give a vocabulary of \d+ tokens only, of vocab_size=8000 wanted"):
        whole = train_tokenizer("bpe", SENTENCES, frame="language")
    assert 270 < len(whole) < 400


@pytest.mark.parametrize("kind", TRAINED_KINDS)
@pytest.mark.parametrize("frame", PADDING_SIDES)
def test_saved_and_loaded(kind, frame, tmp_path):
    tokenizer = trained(kind, frame)
    assert trained(kind, frame, iter(SENTENCES)).backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()
    tokenizer.save_pretrained(tmp_path)
    for again in (AutoTokenizer.from_pretrained(tmp_path), load_tokenizer(str(tmp_path), frame=frame)):
        assert again.get_vocab() == tokenizer.get_vocab()
        assert dict(again([ODD, "a"], ["b", ODD], padding=True)) == dict(
            tokenizer([ODD, "a"], ["b", ODD], padding=True)
        )
        assert (again.padding_side, num_token_types(again)) == (tokenizer.padding_side, num_token_types(tokenizer))
        assert (again.pad_token_id, again.bos_token_id, again.eos_token_id) == (0, 2, 3)


@pytest.mark.slow
def test_loaded_without_this_package(tmp_path):
    tokenizer = trained("bpe", "language")
    tokenizer.save_pretrained(tmp_path / "own")
    place = tmp_path / "elsewhere"
    place.mkdir()
    with LoopbackHub() as hub:
        done = run_client(
            LOAD, hub.environment(place), tmp_path / "own", json.dumps([ODD]), cwd=place, without_package=True
        )
    assert json.loads(must_succeed(done)) == [dict(tokenizer(ODD)), "left", len(tokenizer)]


@pytest.mark.parametrize("frame", PADDING_SIDES)
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.filterwarnings("ignore:the tokenizer of .* has no padding token")
def test_tokenizers_of_others(name, frame, tmp_path):
    theirs = OTHERS[name]()
    theirs.save_pretrained(tmp_path / name)
    if (name, frame) == ("gpt2", "seq2seq"):
        with pytest.raises(ValueError, match=r"does not end a text with an end-of-text token, .* or train one"):
            load_tokenizer(str(tmp_path / name), frame=frame)
        return
    loaded = load_tokenizer(str(tmp_path / name), frame=frame)
    loaded.save_pretrained(tmp_path / "saved")
    ids = {"bert": (0, 2, 3), "gpt2": (0, 0, 0), "roberta": (1, 0, 2), "t5": (0, None, 1)}
    texts = ["the cat", "a dog"]
    for tokenizer in (loaded, AutoTokenizer.from_pretrained(tmp_path / "saved")):
        assert type(tokenizer) is type(theirs)
        assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == ids[name]
        assert tokenizer.padding_side == PADDING_SIDES[frame]
        assert tokenizer(*texts)["input_ids"] == theirs(*texts)["input_ids"]
        has_types = frame == "classification" and name in ("bert", "gpt2")
        assert num_token_types(tokenizer) == 2 * has_types
        assert ("token_type_ids" in tokenizer(*texts)) == has_types
        batch = tokenizer(["the", "the cat sat"], padding=True)
        padded = batch["attention_mask"][0]
        assert padded[0 if frame == "language" else -1] == 0
    assert embedding_rows(loaded) == 384 if name in ("gpt2", "roberta") else 128


def test_tokenizers_without_a_padding_token(tmp_path):
    gpt2_tokenizer().save_pretrained(tmp_path / "gpt2")
    with pytest.warns(UserWarning, match=r"has no padding token: padding with '<\|endoftext\|>'"):
        assert load_tokenizer(str(tmp_path / "gpt2"), frame="language").pad_token_id == 0
    bare = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "b": 1}, "a")))
    bare.save_pretrained(tmp_path / "bare")
    with pytest.raises(ValueError, match=r"neither a padding nor an end-of-text token, .*: give it a pad_token"):
        load_tokenizer(str(tmp_path / "bare"), frame="classification")


def test_tokenizers_in_python_and_gaps_between_ids(tmp_path):
    ByT5Tokenizer().save_pretrained(tmp_path / "byt5")
    tokenizer = load_tokenizer(str(tmp_path / "byt5"), frame="seq2seq")
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer("a")["input_ids"]) == (0, 1, [100, 1])
    model = models.WordLevel({"[PAD]": 0, "a": 1, "far": 300}, "a")
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model), pad_token="[PAD]").save_pretrained(tmp_path / "sparse")
    assert embedding_rows(load_tokenizer(str(tmp_path / "sparse"), frame="classification")) == 384


@pytest.mark.parametrize("kind", list(OTHERS))
@pytest.mark.filterwarnings("ignore:the tokenizer of .* has no padding token")
def test_nothing_stands_around_a_text_so_that_a_prompt_goes_on(tmp_path, kind):
    OTHERS[kind]().save_pretrained(tmp_path / "theirs")
    loaded = load_tokenizer(str(tmp_path / "theirs"), frame="language")
    plain = with_plain_texts(loaded)
    plain.save_pretrained(tmp_path / "ours")
    expected = loaded("the cat sat", add_special_tokens=False)["input_ids"]
    for tokenizer in (plain, AutoTokenizer.from_pretrained(tmp_path / "ours")):
        assert tokenizer("the cat sat")["input_ids"] == expected
        assert tokenizer.padding_side == "left"
        for role in ("pad_token_id", "eos_token_id", "unk_token_id", "bos_token_id"):
            assert getattr(tokenizer, role) == getattr(loaded, role)


@pytest.mark.parametrize(
    ("kind", "texts", "size", "message"),
    [
        ("wrods", SENTENCES, None, "kind='wrods': expected one of bpe, words, b"),
        ("bpe", SENTENCES, 259, "vocab_size=259: expected an integer from 26"),
        ("bpe", SENTENCES, 10**12, "from 260 to 16777216"),
        ("words", ["", " \n"], None, "have no words: give texts that are not e"),
    ],
)
def test_bad_arguments(kind, texts, size, message):
    with pytest.raises(ValueError, match=message):
        train_tokenizer(kind, texts, size, frame="language")


def test_damaged_folders(tmp_path):
    with pytest.raises(ValueError, match=r"tokenizer='./none' does not load"):
        load_tokenizer("./none", frame="language")
    with pytest.raises(ValueError, match="the folder has no tokenizer"):
        load_tokenizer(str(tmp_path), frame="language")
    trained("bytes").save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match=r"^tokenizer='.*' does not load: [^\n]*; expected bpe, words, bytes, a name"):
        load_tokenizer(str(tmp_path), frame="language")
