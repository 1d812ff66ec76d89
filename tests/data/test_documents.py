"""A user's documents as tokens: each once and in order, whatever they are read from and however they are cut."""

import gzip
import json
import random
import re
import shutil
import zipfile
from pathlib import Path

import pytest

from hf_recurrent.data import documents as documents_module
from hf_recurrent.data.documents import Document, cut_into_blocks, document_tokens
from hf_recurrent.data.tokenizers import train_tokenizer
from support.own_data import task_on, write_file

ALPHABET = "ab \n\té漢"


def random_texts(seed: int, number: int, longest: int) -> list[str]:
    rng = random.Random(seed)
    texts = ["".join(rng.choices(ALPHABET, k=rng.randrange(1, longest))) for _ in range(number)]
    return [text if text.strip() else f"{text}a" for text in texts]


def source(place, twice=True, **options):
    """Documents to train on and, unless some are held out, the same ones once more to validate on."""
    place = Path(place)
    files = {"train_file": str(place)}
    if twice:
        copied = place.with_name(f"again_{place.name}")
        if not copied.exists():
            (shutil.copytree if place.is_dir() else shutil.copy)(place, copied)
        files["validation_file"] = str(copied)
    return task_on("text-generation", **files, **options).documents


def whole(found, split):
    return [document.text for document in found.documents(split)]


@pytest.mark.parametrize("block_size", [2, 3, 7, 64, 10_000])
@pytest.mark.parametrize("piece", [1, 5, 1 << 18])
def test_blocks_hold_every_token_once_and_in_order(monkeypatch, block_size, piece):
    monkeypatch.setattr(documents_module, "PIECE", piece)
    tokenizer, texts = train_tokenizer("bytes", (), frame="language"), random_texts(block_size + piece, 40, 60)
    end = tokenizer.eos_token_id
    ids = [[*(4 + byte for byte in text.encode()), end] for text in texts]
    given = [Document(str(number), text, {"name": str(number)}) for number, text in enumerate(texts)]

    found = list(cut_into_blocks(document_tokens(given, tokenizer), block_size, pack=True))
    stream = [token for own in ids for token in own]
    wanted = [stream[start : start + block_size] for start in range(0, len(stream), block_size)]
    wanted = wanted[:-1] if len(wanted[-1]) == 1 else wanted
    assert [block["input_ids"].tolist() for block in found] == wanted
    kept = stream[: sum(map(len, wanted))]
    assert sum(block["num_bytes"] for block in found) == pytest.approx(len(kept) - kept.count(end))

    found = list(cut_into_blocks(document_tokens(given, tokenizer), block_size, pack=False))
    assert [block["input_ids"].tolist() for block in found] == [own[:block_size] for own in ids]
    assert [block["length"] for block in found] == list(map(len, ids))
    assert [block["name"] for block in found] == [str(number) for number in range(len(texts))]


def test_few_characters_are_encoded_at_once(monkeypatch):
    monkeypatch.setattr(documents_module, "PIECE", 100)
    tokenizer, sizes = train_tokenizer("words", ["a"], frame="language"), []
    given = [Document("", "a a a a a\n" * lines, {}) for lines in (1, 30, 2, 2, 8, 1, 1)]

    class Counting(type(tokenizer)):
        def __call__(self, texts, **options):
            sizes.append(sum(map(len, texts)))
            return super().__call__(texts, **options)

    monkeypatch.setattr(tokenizer, "__class__", Counting)
    found = list(document_tokens(given, tokenizer))
    assert sum(len(piece.ids) for piece in found) == 5 * 45 + len(given)
    assert sum(sizes) == 450
    assert max(sizes) < 200
    assert len(sizes) < 10


SPEECHES = [f"speech {number}\nof two lines\n" for number in range(30)]


def write_all(folder, texts):
    """The same documents as a folder, a zip file, CSV, JSONL and Parquet."""
    for number, text in enumerate(texts):
        write_file(folder / "texts" / f"{number:03}.txt", text)
    with zipfile.ZipFile(folder / "texts.zip", "w") as archive:
        for path in sorted((folder / "texts").iterdir()):
            archive.write(path, f"texts/{path.name}")
    rows = [{"id": number, "text": text} for number, text in enumerate(texts)]
    tables = [write_file(folder / f"texts.{kind}", rows) for kind in ("csv", "jsonl", "parquet")]
    return [folder / "texts", folder / "texts.zip", *tables]


def test_documents_are_the_same_wherever_they_are_read_from(tmp_path):
    for place in write_all(tmp_path, SPEECHES):
        found = source(place)
        assert whole(found, "train") == whole(found, "validation") == SPEECHES
        assert found.counts["train"]["documents"] == 30


@pytest.mark.parametrize("name", ["book.txt", "book.md", "book.txt.gz"])
def test_a_text_file_is_a_document(name, tmp_path):
    for text in [*random_texts(2, 5, 90), "a" * 30, "12345678\n9", "\r\n\r\n12345\r\n67\r\n"]:
        content = gzip.compress(text.encode()) if name.endswith("gz") else text.encode()
        shutil.rmtree(tmp_path)
        assert whole(source(write_file(tmp_path / name, content)), "train") == [text.replace("\r\n", "\n")]


def test_each_line_of_text_files_may_be_a_document(tmp_path):
    folder, packed_texts, *_ = write_all(tmp_path, ["one\r\ntwo\rthree", "\n\nfour\u2028five\n"])
    write_file(folder / "b.md", "six\n")
    lines = ["one", "two", "three", "four\u2028five"]
    book = write_file(tmp_path / "book.md", "\n".join(lines))
    for place, found in ((folder, [*lines, "six"]), (packed_texts, lines), (book, lines)):
        assert whole(source(place, line_by_line=True), "train") == found


@pytest.mark.parametrize("place", ["book.txt", "a/book.txt"])
def test_line_breaks_of_text_files_may_become_spaces(place, tmp_path):
    write_file(tmp_path / place, b"one\r\ntwo\nthree")
    assert whole(source(tmp_path / place.split("/")[0], keep_linebreaks=False), "train") == ["one two three"]


def test_every_twentieth_document_is_held_out(tmp_path):
    place = write_all(tmp_path, SPEECHES)[3]
    found = source(place, twice=False)
    assert found.all_splits == ["train", "validation"]
    assert whole(found, "validation") == [SPEECHES[0], SPEECHES[20]]
    assert whole(found, "train") == [text for number, text in enumerate(SPEECHES) if number not in (0, 20)]
    # of 30 documents 1% would be their ends, but these are too short
    for share in (1, 5, 30, 50, 99):
        found = source(place, twice=False, validation_split_percentage=share)
        parts = [whole(found, split) for split in found.all_splits]
        assert sorted(parts[0] + parts[1]) == sorted(SPEECHES)
        assert len(parts[1]) == pytest.approx(30 * share / 100, abs=1)


def test_of_a_single_document_the_end_is_held_out(tmp_path):
    text = "".join(f"line {number}\n" for number in range(200))
    found = source(write_file(tmp_path / "book.txt", text), twice=False, validation_split_percentage=10)
    (train,), (held_out,) = whole(found, "train"), whole(found, "validation")
    assert train + held_out == text
    assert train.endswith("\n")
    assert len(held_out) == pytest.approx(len(text) / 10, abs=12)
    assert [document.ends for split in found.all_splits for document in found.documents(split)] == [False, True]


@pytest.mark.parametrize(("number", "share"), [(2, 5), (19, 5), (2, 30)])
def test_of_a_few_documents_the_end_of_each_is_held_out(tmp_path, number, share):
    texts = ["a", *(f"{name} " + "long " * (100 + name) for name in range(number - 1))]
    for name, text in enumerate(texts):
        write_file(tmp_path / "books" / f"{name:02}.txt", text)
    task = task_on("text-generation", tmp_path / "books", validation_split_percentage=share)
    found = task.documents
    train, held_out = whole(found, "train"), whole(found, "validation")
    assert train[0] == "a"
    assert [first + last for first, last in zip(train[1:], held_out, strict=True)] == texts[1:]
    assert [len(last) for last in held_out] == [len(text) * share // 100 for text in texts[1:]]
    assert [found.counts[split]["documents"] for split in found.all_splits] == [number, number - 1]
    assert all(document.ends for split in found.all_splits for document in found.documents(split))
    assert task.source.version.endswith(", ends held out")


@pytest.mark.filterwarnings("ignore:.*row 1. text is 3")
def test_a_split_without_texts_says_why(tmp_path):
    for text, why in (("3", "has no text: name"), ('" "', r"has no text \(1 empty texts were left out\): name")):
        path = write_file(tmp_path / "rows.jsonl", f'{{"text": {text}}}')
        documents = source(path, on_error="skip")
        with pytest.raises(ValueError, match=why):
            documents.counts  # noqa: B018


def test_what_is_left_out_is_counted(tmp_path):
    rows = ['{"text": "a"}', '{"text": " "}', '{"text": null}', '{"text": 3}', '{"text": "b"}']
    path = write_file(tmp_path / "rows.jsonl", "\n".join(rows))
    found = source(path, on_error="skip")
    with (
        pytest.warns(UserWarning, match=r"rows.jsonl: 2 empty texts were left out"),
        pytest.warns(UserWarning, match=r"rows.jsonl: 1 broken row was left out: row 4: text is 3, which is no text"),
    ):
        assert found.counts["train"] == {"documents": 2, "empty": 2, "skipped": 1}
    with pytest.raises(ValueError, match=r"rows.jsonl, row 4: text is 3, which is no text; correct it, or pass"):
        whole(source(path), "train")


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"", {}, "book.txt"),
        (b"a", {}, "book.txt has 1 characters of text and nothing to evaluate on"),
        (b" \n" * 50, {}, "nothing to evaluate on|has no text"),
        (b"caf\xe9 " * 50, {}, r"book.txt: byte 0xe9 is not utf-8: pass the file's encoding"),
        (b"line\n" * 50, {"encoding": "utf-16"}, "utf-16"),
        (b"a\0b " * 50, {}, "byte of zero.* pass the file's --encoding"),
    ],
)
def test_a_text_file_that_cannot_be_used(tmp_path, content, options, message):
    with pytest.raises(ValueError, match=message):
        _ = source(write_file(tmp_path / "book.txt", content), twice=False, **options).counts


def test_a_text_file_in_a_folder_is_read_as_alone(tmp_path):
    for name, content in {"texts/a.txt": "one".encode("utf-16-le"), "texts/b.txt": b"two", "b.txt": b"two"}.items():
        write_file(tmp_path / name, content)
    shutil.make_archive(str(tmp_path / "texts"), "zip", tmp_path / "texts")
    (tmp_path / "texts.zip").rename(tmp_path / "texts.ZIP")
    for name in ("texts", "texts.ZIP"):
        with pytest.raises(ValueError, match=r"a.txt: character 1 is a byte of zero.* --encoding"):
            whole(source(tmp_path / name), "train")
        with pytest.warns(UserWarning, match="1 of 2 files are no texts and are left out, such as .*a.txt"):
            assert whole(source(tmp_path / name, on_error="skip"), "train") == ["two"]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (("a", "b"), {}, r"has the columns a, b: name the one with the texts with --text_column"),
        (("title", "text"), {"text_column": "txt"}, r"text_column is 'txt': .* 'title', 'text'; did you mean text\?"),
    ],
)
def test_a_column_that_is_not_there(write, columns, options, message):
    with pytest.raises(ValueError, match=message):
        _ = source(write("rows.jsonl", json.dumps(dict.fromkeys(columns, "x"))), **options).columns


def test_files_without_any_whole_row_or_archive_say_why(write):
    for name, message in {"a.jsonl": "line 1 is no JSON", "a.zip": "expected a folder or a zip file"}.items():
        with pytest.raises(ValueError, match=re.escape(message)):
            _ = source(write(name, "nonsense"), twice=False).counts
