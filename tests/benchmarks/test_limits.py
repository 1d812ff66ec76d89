"""Small files that stand for large ones are refused before they fill memory, and a user may raise each limit."""

import json
import zipfile
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from hf_recurrent import limits
from hf_recurrent.benchmarks import files
from hf_recurrent.benchmarks.files import parquet_rows, read_picture
from hf_recurrent.files import read_json, read_yaml

MUCH = 1 << 20


def write_text(text: str):
    def write(path: Path) -> Path:
        path.write_text(text)
        return path

    return write


CASES = [
    ("bomb.json", write_text(json.dumps("a" * MUCH)), read_json, limits.JSON),
    ("deep.json", write_text("[" * 100_000), read_json, limits.NESTING),
    ("wide.json", write_text("[" * 101 + "]" * 101), read_json, limits.NESTING),
    ("bomb.yaml", write_text("a" * MUCH), read_yaml, limits.YAML),
    ("deep.yaml", write_text("[" * 100_000), read_yaml, limits.NESTING),
]


@pytest.mark.parametrize(("name", "write", "read", "limit"), CASES, ids=lambda value: getattr(value, "unit", None))
def test_what_exceeds_a_limit_is_refused(name, write, read, limit, tmp_path, monkeypatch):
    path = write(tmp_path / name)
    if limit is not limits.NESTING:
        monkeypatch.setenv(limit.variable, str(MUCH // 2))
    with pytest.raises(ValueError, match=rf"{name}.* the limit is .*: if it is to be trusted, set {limit.variable}"):
        read(path)


def test_a_limit_is_raised_by_its_variable(tmp_path, monkeypatch):
    path = tmp_path / "deep.json"
    path.write_text("[" * 200 + "]" * 200)
    with pytest.raises(ValueError, match=r"has 101 levels of nesting, .* 100: .* HF_RECURRENT_MAX_NESTING"):
        read_json(path)
    monkeypatch.setenv("HF_RECURRENT_MAX_NESTING", "200")
    assert read_json(path)
    monkeypatch.setenv("HF_RECURRENT_MAX_NESTING", "many")
    with pytest.raises(ValueError, match="HF_RECURRENT_MAX_NESTING='many': expected a whole number"):
        read_json(path)


def test_an_archive_that_claims_to_unpack_to_too_much_is_refused(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/bomb.txt", bytes(MUCH))
    monkeypatch.setattr(files, "_MOST_UNPACKED", MUCH // 2)
    with (
        pytest.raises(ValueError, match=r"bomb.zip has more than 524,288 bytes when unpacked"),
        files.open_files(tmp_path / "bomb.zip"),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": 1, "a": 2}', r"an object has \['a'\] more than once"),
        ("{", "is not JSON"),
        ("\x80", "is not UTF-8"),
        ("9" * 5000, "is not JSON"),
    ],
)
def test_json_that_says_nothing_certain(text, problem, tmp_path):
    (tmp_path / "a.json").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=f"a.json.* {problem}|a.json {problem}"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: &a [*a]", "holds an alias"),
        ("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]", "holds an alias"),
        ("a: 1\na: 2", "is not valid YAML: the key 'a' is there twice"),
        ("a: !!python/name:os.system", "is not valid YAML"),
        ("a: 2020-13-45", "is not valid YAML"),
        ("[", "is not valid YAML"),
    ],
)
def test_yaml_of_more_than_plain_data(text, problem, tmp_path):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ValueError, match=problem):
        read_yaml(tmp_path / "a.yaml")


def test_rows_come_as_they_were_stored(tmp_path):
    """Whatever the groups, encodings and columns."""
    rows = [
        {"text": text, "pair": {"en": text, "de": None}, "picture": text.encode(), "n": n, "words": ["a", text]}
        for n, text in enumerate("abacadaeaf" * 5)
    ]
    for group in (7, 50):
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet", row_group_size=group)
        assert list(parquet_rows(str(tmp_path / "a.parquet"), list(rows[0]), rows_at_a_time=8)) == rows


def test_a_picture_of_too_many_pixels_is_not_unpacked(tmp_path):
    """A header that claims more is all that is read."""
    Image.new("L", (32, 32)).save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    for side, problem in ((8_000, "has 8000 x 32 pixels"), (1 << 30, "no PNG image that can be read")):
        claimed = content[:16] + side.to_bytes(4, "big") + content[20:]
        claimed = claimed[:29] + crc(claimed[12:29]) + claimed[33:]
        (tmp_path / "b.png").write_bytes(claimed)
        with pytest.raises(ValueError, match=problem):
            read_picture(tmp_path / "b.png", "b.png", (32, 32), "L")
    assert read_picture(tmp_path / "a.png", "a.png", (32, 32), "L").shape == (32, 32)


def crc(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(4, "big")
