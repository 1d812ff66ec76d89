"""Own documents as tokens: each of them once and in order, whatever they are read from and however they are cut."""

import gzip
import json
import random
import shutil
import zipfile

import pytest
from transformers import AutoTokenizer

from hf_recurrent.text_data import blocks as blocks_module
from hf_recurrent.text_data import documents as documents_module
from hf_recurrent.text_data.blocks import by_document, document_tokens, packed
from hf_recurrent.text_data.documents import Document, DocumentSource, pieces_of
from hf_recurrent.text_data.tokenizers import load_tokenizer, train_tokenizer, with_plain_texts
from support.other_tokenizers import OTHERS

ALPHABET = "ab \n\r\té漢"


def random_texts(seed: int, number: int, longest: int) -> list[str]:
    rng = random.Random(seed)
    texts = ["".join(rng.choices(ALPHABET, k=rng.randrange(1, longest))) for _ in range(number)]
    return [text if text.strip() else f"{text}a" for text in texts]


def as_documents(texts):
    return [Document(str(number), list(pieces_of(text)), {"name": str(number)}) for number, text in enumerate(texts)]


def twice(path):
    """Files to train on and, the same ones once more, to validate on."""
    copied = path.with_name(f"again_{path.name}")
    (shutil.copytree if path.is_dir() else shutil.copy)(path, copied)
    return {"train": str(path), "validation": str(copied)}


@pytest.fixture(scope="module")
def bytes_tokenizer():
    return train_tokenizer("bytes", (), frame="language")


def naive_stream(texts, tokenizer) -> list[int]:
    return [token for text in texts for token in [*(4 + byte for byte in text.encode()), tokenizer.eos_token_id]]


@pytest.mark.parametrize("block_size", [2, 3, 7, 64, 10_000])
@pytest.mark.parametrize("piece", [1, 5, 1 << 18])
def test_blocks_hold_every_token_once_and_in_order(bytes_tokenizer, monkeypatch, block_size, piece):
    monkeypatch.setattr(documents_module, "PIECE", piece)
    monkeypatch.setattr(blocks_module, "PIECE", piece)
    texts = random_texts(block_size + piece, 40, 60)
    expected = naive_stream(texts, bytes_tokenizer)

    found = list(packed(document_tokens(as_documents(texts), bytes_tokenizer), block_size))

    wanted = [expected[start : start + block_size] for start in range(0, len(expected), block_size)]
    if len(wanted[-1]) == 1:
        wanted.pop()
    assert [block["input_ids"].tolist() for block in found] == wanted
    kept = sum(map(len, wanted))
    assert sum(block["num_bytes"] for block in found) == pytest.approx(
        sum(token != bytes_tokenizer.eos_token_id for token in expected[:kept])
    )


@pytest.mark.parametrize("block_size", [2, 9, 1000])
def test_a_document_is_a_block_of_its_own_cut_at_its_size(bytes_tokenizer, monkeypatch, block_size):
    monkeypatch.setattr(documents_module, "PIECE", 4)
    texts = random_texts(block_size, 30, 40)

    found = list(by_document(document_tokens(as_documents(texts), bytes_tokenizer), block_size))

    whole = [naive_stream([text], bytes_tokenizer) for text in texts]
    assert [block["input_ids"].tolist() for block in found] == [ids[:block_size] for ids in whole]
    assert [block["length"] for block in found] == list(map(len, whole))
    assert [block["name"] for block in found] == [str(number) for number in range(len(texts))]


def test_pieces_are_the_text_cut_at_line_ends(monkeypatch):
    monkeypatch.setattr(documents_module, "PIECE", 8)
    for text in [*random_texts(1, 50, 80), "", "a" * 30, "a" * 8, "1234567\n1234567\n", "12345678\n9"]:
        pieces = list(pieces_of(text))
        assert "".join(pieces) == text
        assert all(piece[-1] in "\r\n" and len(piece) >= 8 for piece in pieces[:-1])


@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_is_read_in_the_pieces_of_its_text(tmp_path, monkeypatch, compressed):
    monkeypatch.setattr(documents_module, "PIECE", 8)
    for text in [*random_texts(2, 30, 90), "a" * 30, "1234567\n1234567\n", "12345678\n9", "\r\n\r\n12345\r\n67\r\n"]:
        path = tmp_path / ("book.txt.gz" if compressed else "book.txt")
        path.write_bytes(gzip.compress(text.encode()) if compressed else text.encode())
        (document,) = DocumentSource(files=twice(path)).documents("train")
        assert list(document.pieces) == list(document.pieces) == list(pieces_of(text))


SPEECHES = [f"speech {number}\nof two lines\n" for number in range(30)]


def write_all(folder, texts):
    """The same documents as a folder, a zip file, CSV, JSONL and Parquet."""
    import csv

    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "texts").mkdir()
    for number, text in enumerate(texts):
        (folder / "texts" / f"{number:03}.txt").write_text(text, newline="")
    with zipfile.ZipFile(folder / "texts.zip", "w") as archive:
        for path in sorted((folder / "texts").iterdir()):
            archive.write(path, f"texts/{path.name}")
    with open(folder / "texts.csv", "w", newline="") as file:
        csv.writer(file).writerows([("id", "text"), *enumerate(texts)])
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    pq.write_table(pa.table({"text": texts, "id": list(range(len(texts)))}), folder / "texts.parquet")
    return [folder / name for name in ("texts", "texts.zip", "texts.csv", "texts.jsonl", "texts.parquet")]


def whole(source, split):
    return ["".join(document.pieces) for document in source.documents(split)]


def test_documents_are_the_same_wherever_they_are_read_from(tmp_path):
    for place in write_all(tmp_path, SPEECHES):
        source = DocumentSource(files=twice(place))
        assert whole(source, "train") == whole(source, "validation") == SPEECHES
        assert source.counts["train"].examples == 30


def test_each_line_of_text_files_may_be_a_document(tmp_path):
    folder, *_ = write_all(tmp_path, ["one\r\ntwo\rthree", "\n\nfour\u2028five\n"])
    (folder / "b.md").write_text("six\n")
    lines = ["one", "two", "three", "four\u2028five"]
    (tmp_path / "book.md").write_text("\n".join(lines))
    for place, found in ((folder, [*lines, "six"]), (tmp_path / "texts.zip", lines), (tmp_path / "book.md", lines)):
        source = DocumentSource(files=twice(place), line_by_line=True)
        assert whole(source, "train") == found
    (folder / "c.txt").write_bytes("one".encode("utf-16-le"))
    with pytest.raises(ValueError, match=r"texts/c.txt: character 1 is a byte of zero"):
        whole(DocumentSource(files={"train": str(folder)}, line_by_line=True), "train")


def test_every_twentieth_document_is_held_out(tmp_path):
    place = write_all(tmp_path, SPEECHES)[3]
    source = DocumentSource(files={"train": str(place)})
    assert source.all_splits == ["train", "validation"]
    assert whole(source, "validation") == [SPEECHES[0], SPEECHES[20]]
    assert whole(source, "train") == [text for number, text in enumerate(SPEECHES) if number not in (0, 20)]
    # of 30 documents 1% would be their ends, but for those that are as short as these
    for share in (1, 5, 30, 50, 99):
        parts = [
            whole(DocumentSource(files={"train": str(place)}, validation_split_percentage=share), split)
            for split in source.all_splits
        ]
        assert sorted(parts[0] + parts[1]) == sorted(SPEECHES)
        assert len(parts[1]) == pytest.approx(30 * share / 100, abs=1)


@pytest.mark.parametrize("piece", [16, 1 << 18])
def test_of_a_single_document_the_end_is_held_out(tmp_path, monkeypatch, piece):
    monkeypatch.setattr(documents_module, "PIECE", piece)
    path = tmp_path / "book.txt"
    text = "".join(f"line {number}\n" for number in range(200))
    path.write_text(text)
    source = DocumentSource(files={"train": str(path)}, validation_split_percentage=10)
    (train,), (held_out,) = whole(source, "train"), whole(source, "validation")
    assert train + held_out == text
    # where a piece ends in the middle of the last line that is needed, the cut is within it
    assert train.endswith("\n") or piece == 16
    assert len(held_out) == pytest.approx(len(text) / 10, abs=12)
    assert [document.ends for split in source.all_splits for document in source.documents(split)] == [False, True]


@pytest.mark.parametrize(("number", "share"), [(2, 5), (19, 5), (2, 30)])
def test_of_a_few_documents_the_end_of_each_is_held_out(tmp_path, number, share):
    texts = ["a", *(f"{name} " + "long " * (100 + name) for name in range(number - 1))]
    (tmp_path / "books").mkdir()
    for name, text in enumerate(texts):
        (tmp_path / "books" / f"{name:02}.txt").write_text(text)
    source = DocumentSource(files={"train": str(tmp_path / "books")}, validation_split_percentage=share)
    train, held_out = whole(source, "train"), whole(source, "validation")
    assert train[0] == "a"
    assert [first + last for first, last in zip(train[1:], held_out, strict=True)] == texts[1:]
    assert [len(last) for last in held_out] == [len(text) * share // 100 for text in texts[1:]]
    assert [source.counts[split].examples for split in source.all_splits] == [number, number - 1]
    assert all(document.ends for split in source.all_splits for document in source.documents(split))
    assert source.version.endswith(", ends held out")


def test_line_breaks_of_text_files_may_become_spaces(tmp_path):
    (tmp_path / "a").mkdir()
    for path in (tmp_path / "book.txt", tmp_path / "a" / "book.txt"):
        path.write_bytes(b"one\r\ntwo\nthree")
    for place in ("book.txt", "a"):
        source = DocumentSource(files=twice(tmp_path / place), keep_linebreaks=False)
        assert whole(source, "train") == ["one two three"]


def test_what_is_left_out_is_counted(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "a"}\n{"text": " "}\n{"text": null}\n{"text": 3}\nnonsense\n{"text": "b"}\n')
    files = twice(path)
    source = DocumentSource(files=files, on_error="skip")
    assert whole(source, "train") == ["a", "b"]
    assert (source.counts["train"].examples, source.counts["train"].empty) == (2, 2)
    with pytest.warns(
        UserWarning, match=r"rows.jsonl: 2 empty texts were left out; 2 broken rows were left out: .*line"
    ):
        source.warn()
    with pytest.raises(ValueError, match=r"rows.jsonl, line 4: text is 3, which is no text; correct it, or pass"):
        whole(DocumentSource(files=files), "train")


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"", {}, "book.txt has 0 characters of text and nothing to evaluate on"),
        (b"a", {}, "book.txt has 1 characters of text"),
        (b" \n" * 50, {}, "has no text"),
        (b"caf\xe9 " * 50, {}, r"book.txt, line 1: the byte 0xE9 is not utf-8; pass the file's encoding"),
        (b"line\n" * 50, {"encoding": "utf-16"}, "utf-16"),
        (b"a\0b " * 50, {}, "byte of zero"),
    ],
)
def test_a_text_file_that_cannot_be_used(tmp_path, content, options, message):
    path = tmp_path / "book.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        DocumentSource(files={"train": str(path)}, **options).counts  # noqa: B018


def test_a_text_file_is_no_more_in_a_folder_than_alone(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_bytes("one".encode("utf-16-le"))
    (folder / "b.txt").write_text("two")
    (tmp_path / "b.txt").write_text("two")
    shutil.make_archive(str(tmp_path / "texts"), "zip", folder)
    (tmp_path / "texts.zip").rename(tmp_path / "texts.ZIP")
    for place in (folder, tmp_path / "texts.ZIP"):
        files = {"train": str(place), "validation": str(tmp_path / "b.txt")}
        with pytest.raises(ValueError, match=r"a.txt: character 1 is a byte of zero.* name its encoding"):
            whole(DocumentSource(files=files), "train")
        source = DocumentSource(files=files, on_error="skip")
        assert whole(source, "train") == ["two"]
        assert len(source.counts["train"].skipped) == 1


def test_files_without_any_whole_row_or_archive_say_why(tmp_path):
    for name, message in {
        "a.jsonl": r"a.jsonl holds no rows but 1 broken ones, first \(1, 'it is not JSON",
        "a.zip": "a.zip: expected a folder or a zip file",
    }.items():
        (tmp_path / name).write_text("nonsense")
        with pytest.raises(ValueError, match=message):
            DocumentSource(files={"train": str(tmp_path / name)}).counts  # noqa: B018


@pytest.mark.parametrize(
    ("columns", "chosen", "message"),
    [
        (("a", "b"), (), r"has the columns a, b: name the one with the texts with --text_column"),
        (("title", "text"), ("txt",), r"text_column is 'txt': .* 'title', 'text'; did you mean text\?"),
    ],
)
def test_a_column_that_is_not_there(tmp_path, columns, chosen, message):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(dict.fromkeys(columns, "x")) + "\n")
    with pytest.raises(ValueError, match=message):
        DocumentSource(files={"train": str(path)}, text_columns=chosen).readings  # noqa: B018


@pytest.mark.parametrize("kind", list(OTHERS))
@pytest.mark.filterwarnings("ignore:the tokenizer of .* has no padding token")
def test_nothing_stands_around_a_text_so_that_a_prompt_goes_on(tmp_path, kind):
    OTHERS[kind]().save_pretrained(tmp_path / "theirs")
    loaded = load_tokenizer(str(tmp_path / "theirs"), frame="language")
    plain = with_plain_texts(loaded)
    plain.save_pretrained(tmp_path / "ours")
    again = AutoTokenizer.from_pretrained(tmp_path / "ours")
    expected = loaded("the cat sat", add_special_tokens=False)["input_ids"]
    for tokenizer in (plain, again):
        assert tokenizer("the cat sat")["input_ids"] == expected
        assert tokenizer.padding_side == "left"
        for role in ("pad_token_id", "eos_token_id", "unk_token_id", "bos_token_id"):
            assert getattr(tokenizer, role) == getattr(loaded, role)
