"""The standard library as a data set for everyone: what its card says is true."""

import platform
import re

import pytest
from long_document_files import NAME
from small_export import body, front_matter

from hf_recurrent.benchmarks import load_benchmark
from hf_recurrent.benchmarks.export import export_benchmark
from hf_recurrent.benchmarks.export.card import _fence
from support.loopback_hub.cards import check_card


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tmp_path_factory.mktemp("library")


@pytest.fixture(scope="module")
def generated(base):
    return load_benchmark(NAME, cache_dir=base / "cache")


@pytest.fixture(scope="module")
def folder(base, generated):
    return export_benchmark(NAME, base / NAME, cache_dir=base / "cache")


def test_front_matter(folder):
    data = front_matter(folder)
    assert check_card((folder / "README.md").read_text(), "dataset")[0] == []
    assert (data["license"], data["license_name"]) == ("other", "psf-2.0")
    assert data["annotations_creators"] == ["no-annotation"]
    assert "synthetic" not in data["tags"]
    features = {entry["name"]: entry["dtype"] for entry in data["dataset_info"][0]["features"]}
    assert (features["text"], features["num_bytes"]) == ("large_string", "int64")


def test_the_card_says_what_the_rows_are(folder, generated):
    text = body(folder)
    assert f"`python=={platform.python_version()}`" in text
    assert "hf-recurrent benchmark export long_documents long_documents --benchmark_config python" in text
    assert "PSF-2.0" in text
    for split, rows in generated.items():
        sizes = rows["num_bytes"][:]
        assert f"| `{split}` | {len(sizes)} |" in text
        assert f" {min(sizes)} / {sum(sizes) / len(sizes):.2f} / {max(sizes)} |" in text
    name = re.search(r"An example of `train`: `([^`]+)`, `python-[\d.]+`\. It begins:", text)[1]
    document = next(row["text"] for row in generated["train"] if row["name"] == name)
    shown = re.search(r"```text\ntext: (.*?) \.\.\. \(([\d]+) more words\)\n```", text, flags=re.DOTALL)
    assert document.startswith(shown[1])
    assert int(shown[2]) == len(document.split()) - len(shown[1].split())
    text = text.replace(shown[0], "block")
    assert not re.search(r"[ \t]\n|\n\n\n|\{\{|\{%|None", text)
    # what is true of generated rows only
    for false in (
        "synthetic",
        "generated, not collected",
        "difficult",
        "parse",
        "perfect model",
        "seed is one",
        "of each label",
    ):
        assert false not in text


def test_a_text_cannot_end_the_block_that_shows_it():
    assert _fence({"text": "x = 1"}) == "```"
    assert _fence({"text": "````md\n```"}) == "`````"
