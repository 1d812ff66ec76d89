"""`load_benchmark("wmt14_en_de", ...)`: parallel texts, the tables of the Hub, and the forms of a text."""

import re

import pytest
from huggingface_hub import HfApi
from sequence_files import write_lines, write_parallel, write_rows

from hf_recurrent.benchmarks import examples, load_benchmark
from hf_recurrent.benchmarks.wmt14_en_de.text_forms import count_words, detokenize, join_pieces, plain_text
from support.client import client_in_this_process
from support.loopback_hub import LoopbackHub

PAIRS = {
    "train": [
        ("The cat sat.", "Die Katze saß."),
        ("", "Leer."),
        ("Too long a sentence it is.", "Zu lang."),
        # characters that Python takes for line ends, but that are none
        ("One\x0bpage\u2028more", "Eine Seite\x85mehr\rnoch"),
        ("Two words", "Diese Übersetzung hat fünf Wörter"),
    ],
    "valid": [("A very long sentence that stays in it all the same.", "Ein Satz.")],
    "test": [("  Hello  world ", "Hallo  Welt")],
}


def load(folder, cache, **params):
    return load_benchmark("wmt14_en_de", data_dir=folder, cache_dir=cache, **params)


def pairs(rows):
    return list(zip(rows["source"], rows["target"], strict=True))


def test_parallel_texts(tmp_path, cache):
    splits = load(write_parallel(tmp_path / "in", PAIRS), cache, max_length=5)
    assert {name: pairs(rows) for name, rows in splits.items()} == {
        "train": [PAIRS["train"][0], PAIRS["train"][3], PAIRS["train"][4]],
        "validation": PAIRS["valid"],
        # what stands around a text is no part of it; what stands in it is
        "test": [("Hello  world", "Hallo  Welt")],
    }
    assert splits["train"].column_names == ["source", "target", "length", "target_length"]
    assert splits["train"]["length"][:] == [3, 3, 2]
    assert splits["train"]["target_length"][:] == [3, 4, 5]


def test_length_filter(tmp_path, cache):
    folder = write_parallel(tmp_path / "in", {"train": [(" ".join("a" * n), "b") for n in (1, 2, 80, 81)]})
    assert load(folder, cache)["train"]["length"][:] == [1, 2, 80]
    assert load(folder, cache, max_length=81)["train"]["length"][:] == [1, 2, 80, 81]
    with pytest.raises(ValueError, match="every split has no examples"):
        load(folder, cache, min_length=2)
    with pytest.raises(ValueError, match="min_length=9, max_length=8: no pair of texts is between them"):
        load(folder, cache, min_length=9, max_length=8)


def test_pieces_are_counted_as_words(tmp_path, cache):
    folder = write_parallel(tmp_path / "in", {"train": [("a@@ b@@ c d", "x@@ y"), ("a b c", "x y")]})
    rows = load(folder, cache, text_form="bpe", max_length=2)["train"]
    assert pairs(rows) == [("a@@ b@@ c d", "x@@ y")]
    assert (rows["length"][0], rows["target_length"][0]) == (2, 1)
    assert load(folder, cache, text_form="tokenized")["train"]["length"][:] == [4, 3]


def test_another_name_for_validation(tmp_path, cache):
    folder = write_parallel(tmp_path / "in", {"validation": [("a", "b")]})
    assert {name: pairs(rows) for name, rows in load(folder, cache).items()} == {"validation": [("a", "b")]}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train.en": ["a"]}, r"train\.en is there, but train\.de is not"),
        ({"test.de": ["a"]}, r"test\.de is there, but test\.en is not"),
        ({"train.en": ["a", "b"], "train.de": ["a"]}, r"train\.en has more lines than .*train\.de, which ends after 1"),
        ({"train.en": [], "train.de": ["a"]}, r"train\.de has more lines than .*train\.en, which ends after 0"),
        ({"test.en": ["a", " "], "test.de": ["a", "b"]}, r"test\.en:2: the source is empty"),
        ({"valid.en": ["a"], "valid.de": [""]}, r"valid\.en:1: the target is empty"),
        ({"dev.en": ["a"]}, r"none of the expected files is there \(train\.en and train\.de"),
    ],
)
def test_bad_files(files, message, tmp_path, cache):
    for name, lines in files.items():
        write_lines(tmp_path / "in" / name, lines)
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "in", cache)


def test_not_utf8(tmp_path, cache):
    folder = write_parallel(tmp_path / "in", {"train": [("a", "b")]})
    (folder / "train.de").write_bytes(b"\xff\n")
    with pytest.raises(ValueError, match=r"train\.en, .*train\.de: expected UTF-8 text"):
        load(folder, cache)


# what the client library does when it uploads
@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
def test_from_the_hub(tmp_path, cache):
    folder = tmp_path / "tables"
    rows = [{"translation": {"de": f"Satz {i}", "en": f"sentence {i}"}} for i in range(4)]
    write_rows(folder / "de-en/train-00000-of-00002.parquet", rows[:2])
    write_rows(folder / "de-en/train-00001-of-00002.parquet", [rows[2], {"translation": {"de": "", "en": "x"}}])
    write_rows(folder / "de-en/validation-00000-of-00001.parquet", rows[3:])
    write_rows(folder / "fr-en/train-00000-of-00001.parquet", [{"translation": {"fr": "a", "en": "b"}}])
    with LoopbackHub() as hub, client_in_this_process(hub, tmp_path):
        api = HfApi(hub.endpoint, token=hub.token)
        api.create_repo("org/wmt", repo_type="dataset")
        api.upload_folder(folder_path=folder, repo_id="org/wmt", repo_type="dataset")
        splits = load_benchmark("wmt14_en_de", dataset="org/wmt", cache_dir=cache)
        assert {name: pairs(found) for name, found in splits.items()} == {
            "train": [(f"sentence {i}", f"Satz {i}") for i in range(3)],
            "validation": [("sentence 3", "Satz 3")],
        }
        # other languages are not downloaded
        assert [path.name for path in (tmp_path / "hub").rglob("??-en")] == ["de-en"]
        api.create_repo("org/empty", repo_type="dataset")
        with pytest.raises(ValueError, match=r"dataset='org/empty' has no files de-en/<split>-\*\.parquet"):
            load_benchmark("wmt14_en_de", dataset="org/empty", cache_dir=cache)
        assert hub.unknown == []
    with pytest.raises(ValueError, match="text_form='bpe': the texts on the Hub are 'plain'; to read others give data"):
        load_benchmark("wmt14_en_de", dataset="org/wmt", text_form="bpe", cache_dir=cache)
    write_rows(folder / "de-en/test-0.parquet", [{"translation": {"de": "a", "en": None}}])
    with pytest.raises(ValueError, match=r"test-0\.parquet, row 1: expected texts in en and de of 'translation'"):
        load(folder, cache)


def test_examples(tmp_path):
    found = examples("wmt14_en_de", None, 2, data_dir=write_parallel(tmp_path / "in", PAIRS))
    assert [example.row["length"] for example in found] == [2, 11]


def test_bad_text_form(tmp_path, cache):
    with pytest.raises(ValueError, match="text_form='words': expected one of plain, tokenized, bpe"):
        load(tmp_path, cache, text_form="words")
    with pytest.raises(ValueError, match="text_form='words': expected one of plain, tokenized, bpe"):
        plain_text("a", "words")


@pytest.mark.parametrize(
    ("tokenized", "written"),
    [
        ("Ein &quot; Vor @-@ Ort &quot; @-@ Test , it &apos;s said .", 'Ein "Vor-Ort"-Test, it\'s said.'),
        ("„ Das ist ( fast ) gut “ , sagte er .", "„Das ist (fast) gut“, sagte er."),
        ("He said : “ No &apos;, really ? ” !", "He said: “No ', really?”!"),
        ("&quot; A &quot; and &quot; B &quot;", '"A" and "B"'),
        ("$ 5 &#91; x &#93; &amp;lt; &lt; y", "$5 [x] &lt; < y"),
        ("", ""),
    ],
)
def test_detokenize(tokenized, written):
    assert detokenize(tokenized) == written
    assert plain_text(tokenized, "tokenized") == written
    assert plain_text(tokenized, "plain") == tokenized


def test_pieces():
    assert join_pieces("Te@@ st@@ s .") == "Tests ."
    assert join_pieces("a @@ b") == "a b"
    assert join_pieces("a@@") == "a"
    assert plain_text("Vor @-@ Ort @-@ Te@@ st .", "bpe") == "Vor-Ort-Test."
    assert [count_words("a@@ b c", form) for form in ("plain", "tokenized", "bpe")] == [3, 3, 2]
    assert re.fullmatch(r"\S+", join_pieces("x@-@@ y@@ z"))
