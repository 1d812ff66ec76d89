"""The standard library as a corpus of long documents."""

import platform
import sys
import sysconfig
import time
from pathlib import Path

import pytest
from long_document_files import NAME, write_files

from hf_recurrent.benchmarks import load_benchmark
from hf_recurrent.benchmarks.long_documents.documents import SMALL, Document, library_documents
from hf_recurrent.benchmarks.registry import get_benchmark

pytestmark = pytest.mark.slow  # reads the standard library's sources

LIBRARY = Path(sysconfig.get_path("stdlib"))
COLUMNS = ["text", "name", "source", "num_bytes", "num_characters", "num_words"]


@pytest.fixture(scope="module")
def splits(tmp_path_factory):
    start = time.perf_counter()
    loaded = load_benchmark(NAME, cache_dir=tmp_path_factory.mktemp("library"))
    # a bound on what hangs, no measurement
    assert time.perf_counter() - start < 60
    return loaded


def rows_by_name(splits):
    rows = {row["name"]: row for split in splits.values() for row in split}
    assert len(rows) == sum(split.num_rows for split in splits.values())
    return rows


def test_a_package_is_all_its_files_in_order(splits):
    rows = rows_by_name(splits)
    for package in ("json", "asyncio", "tomllib") if sys.version_info >= (3, 11) else ("json", "asyncio"):
        row = next((row for name, row in rows.items() if name == package), None)
        files = sorted((LIBRARY / package).rglob("*.py"))
        if row is None:
            assert sum(path.stat().st_size for path in files) < SMALL
            continue
        # each of their files ends with a newline, or is empty
        assert row["text"].encode() == b"".join(path.read_bytes() for path in files)
    assert rows["argparse"]["text"].encode() == (LIBRARY / "argparse.py").read_bytes()


def test_every_file_is_in_exactly_one_document(splits):
    parts = [part for document in library_documents(LIBRARY) for part in document.parts]
    assert len(parts) == len(set(parts))
    known = sys.stdlib_module_names
    expected = {
        path.relative_to(LIBRARY).as_posix()
        for path in LIBRARY.rglob("*.py")
        if path.relative_to(LIBRARY).parts[0].removesuffix(".py") in known
        and not {"test", "tests", "idle_test"} & set(path.relative_to(LIBRARY).parts)
    }
    # a file beside a folder of the same name is the module
    assert set(parts) == {name for name in expected if "/" not in name or f"{name.split('/')[0]}.py" not in expected}
    added = sum(row["num_bytes"] for row in rows_by_name(splits).values())
    assert 0 <= added - sum((LIBRARY / part).stat().st_size for part in parts) < len(parts)


def test_columns_and_sizes(splits):
    for split in splits.values():
        assert split.column_names == COLUMNS
        assert split.features["text"].dtype == "large_string"
        assert {split.features[name].dtype for name in COLUMNS[3:]} == {"int64"}
    rows = rows_by_name(splits)
    for row in rows.values():
        assert row["num_bytes"] == len(row["text"].encode())
        assert row["num_characters"] == len(row["text"])
        assert row["num_words"] == len(row["text"].split())
        assert row["source"] == f"python-{platform.python_version()}"
    assert any(row["num_bytes"] > row["num_characters"] for row in rows.values())
    assert min(row["num_bytes"] for row in rows.values()) > 8000
    assert not {"test", "site-packages", "pip"} & set(rows)


def test_splits_have_about_their_shares_of_the_bytes(splits):
    sizes = {name: sum(split["num_bytes"]) for name, split in splits.items()}
    assert list(sizes) == ["train", "validation", "test"]
    shares = {name: size / sum(sizes.values()) for name, size in sizes.items()}
    assert shares["train"] > 0.7
    assert 0.02 < shares["validation"] < 0.12
    assert 0.04 < shares["test"] < 0.2


def test_small_modules_are_grouped_by_letter(tmp_path):
    big, small = "x = 1\n" * 4000, "y = 2\n"
    write_files(
        tmp_path,
        {
            "abc.py": small,
            "_bisect.py": small,
            "zlib/__init__.py": small,
            "zlib/b.py": small,
            "xml/a/__init__.py": big,
            "xml/__init__.py": small,
            "xml/test/__init__.py": big,
            "csv.py": big,
            "site-packages/abc.py": big,
            "empty.py": "",
        },
    )
    found = library_documents(tmp_path, ["zlib", "xml", "csv", "abc", "_bisect", "empty", "absent"])
    assert found == [
        Document("csv", ("csv.py",)),
        Document("small modules a-b", ("_bisect.py", "abc.py")),
        Document("small modules t-z", ("zlib/__init__.py", "zlib/b.py")),
        Document("xml", ("xml/__init__.py", "xml/a/__init__.py")),
    ]


def test_files_in_other_encodings_are_left_out(tmp_path):
    """Rows of a library that has such a file; ours has none outside its tests."""
    write_files(tmp_path, {"csv.py": "x = 1\n" * 4000, "zlib.py": b"# caf\xe9\n" * 3000})
    plan = get_benchmark(NAME).plan_files("python", {"seed": 0, "validation_share": 0.0, "test_share": 0.0}, tmp_path)
    rows = [row for shard in plan["train"] for row in shard.examples()]
    assert [row["name"] for row in rows] == ["csv"]


def test_a_library_without_sources(tmp_path):
    with pytest.raises(ValueError, match="has no source files of the Python standard library: use config 'folder'"):
        library_documents(tmp_path)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"data_dir": "x"}, "data_dir: .*config 'python' has no files; it works for pg19, arxiv_math, github, folder"),
        ({"patterns": "*.py"}, "unknown parameter 'patterns'.*available: seed, validation_share, test_share"),
        ({"test_share": 1.5}, "test_share=1.5: expected a number from 0 to 1"),
        ({"test_share": "0.1"}, "test_share='0.1': expected a number from 0 to 1"),
        ({"test_share": 0.6, "validation_share": 0.5}, "add up to more than 1: give smaller shares"),
        ({"test_share": 1e-6}, "none of [0-9]+ documents falls into the test split .*seed=164"),
        ({"split": "dev"}, "unknown split 'dev' .*available: train, validation, test"),
    ],
)
def test_bad_arguments(cache, kwargs, message):
    with pytest.raises(ValueError, match=message):
        load_benchmark(NAME, "python", cache_dir=cache, **kwargs)
    assert not [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]
