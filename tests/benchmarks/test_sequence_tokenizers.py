"""Joint tokenizers of sources and targets."""

import pytest
from sequence_files import QUESTIONS
from transformers import AutoTokenizer

from hf_recurrent.benchmarks import build_tokenizer, sequence_tokenizer
from hf_recurrent.benchmarks.cfq.benchmark import make_example

SPECIAL = ["[PAD]", "[UNK]", "[BOS]", "[EOS]"]
LOGIC, CFQ, WMT = "logical_inference_translation", "cfq", "wmt14_en_de"
ROWS = [
    {"source": "the cat sat on the mat .", "target": "die Katze saß auf der Matte ."},
    {"source": "the cats sat on the mats [EOS]", "target": "die Katzen saßen auf den Matten &apos;"},
]
QUERIES = [make_example(*pair, True, False, "") for pair in QUESTIONS]


def reloaded(tokenizer, folder):
    """A copy that was saved, and read as anyone reads a checkpoint's."""
    tokenizer.save_pretrained(folder)
    again = AutoTokenizer.from_pretrained(folder)
    assert again.get_vocab() == tokenizer.get_vocab()
    assert again.model_input_names == tokenizer.model_input_names == ["input_ids", "attention_mask"]
    return again


@pytest.mark.parametrize(
    ("tokenizer", "texts"),
    [
        (lambda: sequence_tokenizer(LOGIC), ["( not a ) #SEP# ( b ( or c ) )", "v"]),
        (
            lambda: sequence_tokenizer(CFQ, QUERIES),
            [text for row in QUERIES for text in (row["source"], row["target"])],
        ),
        (lambda: sequence_tokenizer(WMT, ROWS, num_merges=30), ["die  Katze ☃ [EOS]\tsaß", "the mat"]),
        (
            lambda: sequence_tokenizer(WMT, ROWS, text_form="tokenized", num_merges=30),
            ["die Katzen", "[EOS] on the mats"],
        ),
        (lambda: sequence_tokenizer(WMT, [{"source": "a@@ b c", "target": "d@@ e"}], text_form="bpe"), ["a@@ c d@@ e"]),
    ],
)
def test_a_text_ends_with_eos_and_comes_back(tokenizer, texts, tmp_path):
    tokenizer = tokenizer()
    assert tokenizer.convert_ids_to_tokens(range(4)) == SPECIAL
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.padding_side) == (0, 3, "right")
    again = reloaded(tokenizer, tmp_path)
    for text in texts:
        encoded = tokenizer(text)
        ids = encoded["input_ids"]
        assert set(encoded) == {"input_ids", "attention_mask"}
        # neither unknown tokens nor special ones but the last
        assert ids[-1] == 3
        assert min(ids[:-1]) > 3
        assert tokenizer.decode(ids, skip_special_tokens=True) == text
        assert again(text)["input_ids"] == ids
        assert again.decode(ids, skip_special_tokens=True) == text
    batch = again(texts, text_target=texts[::-1], padding=True)
    assert [row[: sum(mask)] for row, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)] == [
        tokenizer(text)["input_ids"] for text in texts
    ]
    assert [[token for token in row if token] for row in batch["labels"]] == [
        tokenizer(text)["input_ids"] for text in texts[::-1]
    ]


def test_words_of_logical_inference():
    tokenizer = build_tokenizer(LOGIC)
    assert len(tokenizer) == 23
    tokens = tokenizer.convert_ids_to_tokens(tokenizer("(not a)#SEP#b")["input_ids"])
    assert tokens == ["(", "not", "a", ")", "#SEP#", "b", "[EOS]"]
    targets = [tokenizer(symbol)["input_ids"] for symbol in "#<>=^|v"]
    assert {len(ids) for ids in targets} == {2}
    assert len({ids[0] for ids in targets}) == 7
    assert tokenizer("( x )")["input_ids"][1] == tokenizer.unk_token_id
    # rows are not needed, and change nothing
    assert sequence_tokenizer(LOGIC, ROWS).get_vocab() == tokenizer.get_vocab()


def test_words_by_frequency():
    rows = [{"source": "b a b", "target": "d c b a"}]
    tokenizer = sequence_tokenizer(CFQ, rows)
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == [*SPECIAL, "b", "a", "c", "d"]
    assert sequence_tokenizer(CFQ, iter(rows)).get_vocab() == tokenizer.get_vocab()
    # a word is what stands between spaces
    assert tokenizer("a.b")["input_ids"] == [1, 3]


def test_numbers_of_merges():
    plain = sequence_tokenizer(WMT, ROWS, num_merges=20)
    assert len(plain) == 4 + 256 + 20
    characters = [set(), set()]
    for row in ROWS:
        for word in f"{row['source']} {row['target']}".split():
            characters[0] |= set(word)
            characters[1].add(word[-1])
    # an iterator can be gone through once only
    tokenized = sequence_tokenizer(WMT, iter(ROWS), text_form="tokenized", num_merges=20)
    assert len(tokenized) == 4 + len(characters[0]) + len(characters[1]) + 20
    first = tokenized.convert_ids_to_tokens(tokenized("the")["input_ids"])
    assert first == ["the</w>", "[EOS]"]
    assert len(plain("the")["input_ids"]) < 4
    assert tokenized("☃")["input_ids"][0] == tokenized.unk_token_id


@pytest.mark.parametrize("form", ["plain", "tokenized"])
def test_the_same_rows_give_the_same_tokenizer(form):
    texts = {sequence_tokenizer(WMT, ROWS, text_form=form, num_merges=20).backend_tokenizer.to_str() for _ in range(4)}
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sequence_tokenizer("listops"), r"name='listops' has no targets to write: use build_tokenizer\('list"),
        (lambda: sequence_tokenizer("cfqs"), "unknown benchmark 'cfqs'"),
        (lambda: build_tokenizer(WMT), r"use sequence_tokenizer\('wmt14_en_de', examples\)"),
        (lambda: sequence_tokenizer(CFQ, []), "examples have no words"),
        (
            lambda: sequence_tokenizer(CFQ, ROWS, num_merges=3),
            "name='cfq' is read word by word: leave text_form and num",
        ),
        (lambda: sequence_tokenizer(CFQ, ROWS), r"examples have the words \[EOS\], which stand for special tokens"),
        (
            lambda: sequence_tokenizer(WMT, ROWS, text_form="words"),
            "text_form='words': expected one of plain, tokenized",
        ),
        (lambda: sequence_tokenizer(WMT, ROWS, text_form="bpe", num_merges=3), "num_merges=3: the texts are cut into"),
        (lambda: sequence_tokenizer(WMT, ROWS), "num_merges=32764: the texts do not give as many"),
        (
            lambda: sequence_tokenizer(WMT, ROWS, text_form="tokenized"),
            "num_merges=32764: the texts do not give as many",
        ),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
