"""From a folder to the Hub and back, by the commands that a user types, in processes with nothing cached.

One story, told once for the module: everything is published to a loopback Hub, then fetched by a process that does not
have this package, then evaluated by one that has.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from pushing import contents, send, stored
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import hf_recurrent  # noqa: F401 - registers the families
from hf_recurrent.benchmarks import load_benchmark
from hf_recurrent.benchmarks.export import rows_digest
from hf_recurrent.hub.staging import is_publishable, stage_checkpoint
from support.checkpoints import GUT_LISTOPS
from support.client import client_in_this_process, must_succeed, run_client
from support.compare import assert_close
from support.loopback_hub import LoopbackHub

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
COMMAND = Path(sys.executable).with_name("hf-recurrent")
# rows of the published benchmark, small; ranges of length as the real one
SIZES = {"num_train": 40, "num_validation": 8, "num_test": 24}
EXPRESSIONS = ["[MAX 2 9 [MIN 4 7 ] 0 ]", "[SM 1 2 3 ]", "7"]

# command lines one after another; loading the libraries for each would take longest
PUBLISHER = """
import contextlib, io, json, runpy, sys
from hf_recurrent.cli import main

def printed(words):
    sys.argv = words
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            main(words[1:]) if words[0] == "hf-recurrent" else runpy.run_path(words[0], run_name="__main__")
        except SystemExit as finished:
            if finished.code:
                sys.exit(f"{words}: exit code {finished.code}")
    return out.getvalue()

print(json.dumps({name: printed(words) for name, words in json.loads(sys.argv[1]).items()}))
"""

WITHOUT_PACKAGE = """
import json
import sys

import torch
from datasets import get_dataset_config_names, load_dataset
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer, pipeline

out, expressions = sys.argv[1], json.loads(sys.argv[2])
trust = {"trust_remote_code": True}

# the checkpoint
name = "org/gut-listops"
tokenizer = AutoTokenizer.from_pretrained(name)
inputs = tokenizer(expressions, padding=True, return_tensors="pt")
models = {"main": AutoModelForSequenceClassification.from_pretrained(name, **trust)}
models["v1"] = AutoModelForSequenceClassification.from_pretrained(name, revision="v1", **trust)
base = AutoModel.from_pretrained(name, **trust)
with torch.no_grad():
    logits = {key: model.eval()(**inputs).logits for key, model in models.items()}
    states = base.eval()(**inputs).last_hidden_state
save_file({**logits, "states": states}, out + "/logits.safetensors")
answers = pipeline("text-classification", model=name, **trust)(expressions)

# the benchmark
rows = {
    config: {split: list(data) for split, data in load_dataset("org/listops", config).items()}
    for config in get_dataset_config_names("org/listops")
}
streamed = list(load_dataset("org/listops", "original", split="test", streaming=True))
columns = ["label", "depth"]
deep = [("depth", ">=", 5)]
pushed = list(load_dataset("org/listops", split="test", streaming=True, columns=columns, filters=deep))
names = load_dataset("org/listops", split="test").features["label"].names

# the metrics
assert not [module for module in sys.modules if module.partition(".")[0] == "hf_recurrent"]
with open(out + "/found.json", "w") as file:
    found = {"answers": answers, "rows": rows, "streamed": streamed, "pushed": pushed, "names": names}
    json.dump(found, file)
"""


@pytest.fixture(scope="module")
def hub():
    with LoopbackHub() as hub:
        yield hub
        # what clients ask for, and do without if there is none
        optional = {"/datasets/org/listops/resolve/main/.huggingface.yaml"}
        assert {path for _, path in hub.unknown} <= optional


@pytest.fixture(scope="module")
def published(hub, tmp_path_factory):
    """Everything published, by one command each; what the commands printed."""
    place = tmp_path_factory.mktemp("publish")
    run = shutil.copytree(GUT_LISTOPS, place / "run")
    (run / "training_args.bin").write_bytes(b"a pickle")
    (run / "run.json").write_text('{"data_dir": "/home/ada/data"}')
    sizes = ["--benchmark_params", json.dumps(SIZES)]
    export = ["hf-recurrent", "benchmark", "export", "listops", "out", *sizes]
    lines = {
        "checkpoint": [str(ROOT / "upload.py"), "run", "org/gut-listops", "--tag", "v1"],
        "export": [*export, "--benchmark_config", "original", "--benchmark_config", "length_generalization"],
        "benchmark": ["hf-recurrent", "benchmark", "publish", "out", "org/listops"],
        "again": ["hf-recurrent", "benchmark", "publish", "out", "org/listops"],
    }
    done = run_client(PUBLISHER, hub.environment(place), json.dumps(lines), cwd=place, timeout=300)
    return json.loads(must_succeed(done)) | {"place": place}


@pytest.fixture(scope="module")
def fetched(hub, published, tmp_path_factory):
    """What a process without this package made of it, and where its tensors are."""
    place = tmp_path_factory.mktemp("fetch")
    environment = hub.environment(place, token=False)
    must_succeed(
        run_client(
            WITHOUT_PACKAGE, environment, place, json.dumps(EXPRESSIONS), cwd=place, timeout=300, without_package=True
        )
    )
    return json.loads((place / "found.json").read_text()) | {"tensors": load_file(place / "logits.safetensors")}


def test_each_publication_is_one_commit(hub, published):
    for kind, name in hub.repositories():
        assert len(hub.repository(name, kind).commits) == 2, name
    assert hub.repositories() == [("dataset", "org/listops"), ("model", "org/gut-listops")]
    assert f"published {hub.endpoint}/org/gut-listops" in published["checkpoint"]
    assert f"published {hub.endpoint}/datasets/org/listops" in published["benchmark"]


def test_nothing_else_is_published(hub, published):
    files = set(hub.repository("org/gut-listops").head().files) - {".gitattributes"}
    assert all(is_publishable(path) for path in files)
    everything = b"".join(
        content for kind, name in hub.repositories() for content in hub.repository(name, kind).head().files.values()
    )
    assert b"/home/ada" not in everything
    assert str(published["place"]).encode() not in everything
    assert os.fspath(Path.home()).encode() + b"/" not in everything


def test_the_model_answers_the_same(fetched):
    tokenizer = AutoTokenizer.from_pretrained(GUT_LISTOPS)
    model = AutoModelForSequenceClassification.from_pretrained(GUT_LISTOPS).eval()
    inputs = tokenizer(EXPRESSIONS, padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(**inputs).logits
        states = model.model(inputs["input_ids"], inputs["attention_mask"]).last_hidden_state
    assert_close(fetched["tensors"]["main"], logits)
    assert_close(fetched["tensors"]["v1"], logits)
    assert_close(fetched["tensors"]["states"], states)
    assert [answer["label"] for answer in fetched["answers"]] == [
        model.config.id2label[i] for i in logits.argmax(-1).tolist()
    ]


def test_the_rows_are_the_generators_own(hub, fetched, tmp_path):
    for config, splits in fetched["rows"].items():
        sizes = SIZES if config == "original" else {"num_test": SIZES["num_test"]}
        expected = load_benchmark("listops", config, cache_dir=tmp_path, **sizes)
        assert splits == {split: list(rows) for split, rows in expected.items()}
        assert (
            rows_digest(expected, fetched["names"])
            in hub.repository("org/listops", "dataset").head().files["README.md"].decode()
        )
    assert set(fetched["rows"]) == {"original", "length_generalization"}
    assert fetched["names"] == [str(digit) for digit in range(10)]


def test_streaming_and_push_down(fetched):
    rows = fetched["rows"]["original"]["test"]
    assert fetched["streamed"] == rows
    deep = [{"label": row["label"], "depth": row["depth"]} for row in rows if row["depth"] >= 5]
    assert deep
    assert fetched["pushed"] == deep


def test_evaluate_takes_the_checkpoint_from_the_hub(hub, published, tmp_path):
    words = [COMMAND, "evaluate", "org/gut-listops", "listops", "--benchmark_params", json.dumps(SIZES)]
    words += ["--output", "tables.json", "--device", "cpu"]
    environment = hub.environment(tmp_path, token=False)
    done = subprocess.run(
        words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    printed = must_succeed(done)
    table = json.loads((tmp_path / "tables.json").read_text())["splits"]["test"]
    assert table["n"] == SIZES["num_test"]
    assert f"{table['accuracy']:.1%}" in printed
    assert "test by depth" in printed
    assert "100%" in done.stderr


def test_publishing_again_changes_nothing(hub, published, tmp_path):
    assert "unchanged, no commit" in published["again"]
    # nor does it from another process, whose sets have other orders
    staged = stage_checkpoint(published["place"] / "run", tmp_path / "staged", "org/gut-listops")
    assert contents(staged) == stored(hub, repo_id="org/gut-listops")
    with client_in_this_process(hub, tmp_path):
        pushed = send(hub, staged, repo_id="org/gut-listops")
    assert not pushed.changed
    assert len(hub.repository("org/gut-listops").commits) == 2
