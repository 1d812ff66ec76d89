"""The commands for benchmarks, cards and publishing: what they print, and how they refuse."""

import errno
import json
import os
import signal
from types import SimpleNamespace

import pytest

from hf_recurrent.benchmarks import benchmark_info, list_benchmarks
from hf_recurrent.benchmarks.listops.expressions import evaluate
from support.client import run_client
from support.scripts import run_script

# huggingface_hub passes the bytes of large files in a way that its HTTP client advises against
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

PARAMS = "{num_train: 8, num_validation: 4, num_test: 6}"
SMALL = ["--benchmark_config", "original", "--benchmark_params", PARAMS]


@pytest.fixture
def exported(run, tmp_path):
    assert run("benchmark", "export", "listops", tmp_path / "out", *SMALL)[0] == 0
    return tmp_path / "out"


def test_list_names_every_benchmark_and_config(run):
    status, out, _ = run("benchmark", "list")
    assert status == 0
    for name in list_benchmarks():
        assert name in out
        assert all(config in out for config in benchmark_info(name).configs)


def test_show_gives_examples_with_parse_and_label(run):
    status, out, _ = run("benchmark", "show", "listops", "--number", "2", "--benchmark_params", "{max_depth: 2}")
    assert status == 0
    texts = [line.strip().removeprefix("text").strip() for line in out.splitlines() if line.strip().startswith("text ")]
    labels = [line.split()[1] for line in out.splitlines() if line.strip().startswith("label ")]
    assert len(texts) == len(labels) == 2
    assert str(evaluate(texts[0])) == labels[0]
    assert f"its value is {labels[0]}" in out
    assert "depth 2" in out
    status, out, _ = run("benchmark", "show", "logical_inference", "--benchmark_config", "split_a")
    assert status == 0
    assert "split_a" in out
    assert "text_pair" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "listop"], "unknown benchmark 'listop'"),
        (["show", "listops", "--benchmark_config", "x"], "unknown config 'x'"),
        (["show", "listops", "--benchmark_params", "{max_depth: 0}"], "max_depth=0: expected an integer >= 1"),
        (["export", "listops", "out", "--benchmark_params", "{depth: 1}"], "unknown parameter 'depth'"),
        (["publish", "absent", "org/listops"], "absent"),
    ],
)
def test_bad_benchmark_requests(refuse, words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in refuse("benchmark", *words)
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_lists_files_and_sends_nothing(run, exported, hub):
    status, out, _ = run("benchmark", "publish", exported, "org/listops", "--dry-run")
    assert status == 0
    assert "original/test-00000-of-00001.parquet" in out
    assert "5 files" in out
    assert "nothing was sent" in out
    assert hub.calls == []


def test_publishing_says_what_changed(run, exported, hub):
    status, out, err = run("benchmark", "publish", exported, "org/listops", "--private", "--tag", "v1")
    assert status == 0, err
    repository = hub.repository("org/listops", "dataset")
    assert f"published {hub.endpoint}/datasets/org/listops (commit {repository.head().oid[:12]})" in out
    assert repository.private
    assert repository.tags == {"v1": repository.head().oid}
    assert "unchanged, no commit" in run("benchmark", "publish", exported, "org/listops")[1]
    assert len(repository.commits) == 2


def test_refusals_are_one_line_and_leave_the_hub_alone(refuse, exported, hub, monkeypatch):
    publish = ("benchmark", "publish", exported)
    assert "repo_id='listops': expected owner/name" in refuse(*publish, "listops")
    assert "one with write access to the namespace" in refuse(*publish, "grace/listops")
    (exported / "listops.py").write_text("")
    assert "listops.py does not belong to an export: remove it" in refuse(*publish, "org/listops")
    (exported / "listops.py").unlink()
    monkeypatch.setenv("HF_TOKEN", hub.read_token)
    assert "the token may only read" in refuse(*publish, "org/listops")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert "the Hub does not accept the token" in refuse(*publish, "org/listops")
    monkeypatch.delenv("HF_TOKEN")
    assert "hf auth login" in refuse(*publish, "org/listops")
    assert hub.repositories() == []


STOPPED = """
import os, signal, sys
from huggingface_hub import HfApi
from hf_recurrent.cli import main

HfApi.create_commit = lambda *arguments, **options: os.kill(os.getpid(), int(sys.argv[2]))
signal.signal(signal.SIGINT, signal.default_int_handler)
main(["benchmark", "publish", sys.argv[1], "org/listops"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("kill", [signal.SIGINT, signal.SIGKILL])
def test_being_stopped_leaves_the_hub_whole(run, exported, hub, tmp_path, kill):
    done = run_client(STOPPED, hub.environment(tmp_path), exported, int(kill), cwd=tmp_path)
    assert done.returncode == (130 if kill == signal.SIGINT else -signal.SIGKILL)
    repository = hub.repository("org/listops", "dataset")
    assert set(repository.head().files) <= {".gitattributes"}
    assert run("benchmark", "publish", exported, "org/listops")[0] == 0
    assert "original/test-00000-of-00001.parquet" in repository.head().files


def test_a_full_disk_is_named_and_nothing_is_sent(refuse, run_folder, hub, monkeypatch):
    def copyfile(source, target):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    monkeypatch.setattr("shutil.copyfile", copyfile)
    message = refuse("publish", run_folder, "org/x")
    assert "there is no room on the disk for a file" in message
    assert "No space left on device" in message
    assert hub.calls == []


def test_folders_of_another_kind(refuse, exported, run_folder):
    assert "has no config.json: it is not a checkpoint" in refuse("publish", exported, "org/x")
    assert "cannot be published as a data set" in refuse("benchmark", "publish", run_folder, "org/x")


def test_a_card_is_checked_and_rendered_again(run, refuse, run_folder):
    assert run("card", "lint", run_folder)[0] == 0
    before = (run_folder / "README.md").read_bytes()
    (run_folder / "README.md").write_bytes(before + b"by hand")
    assert "is not what results.json renders to" in refuse("card", "lint", run_folder)
    assert run("card", "render", run_folder)[0] == 0
    assert (run_folder / "README.md").read_bytes() == before
    results = json.loads((run_folder / "results.json").read_text())
    (run_folder / "results.json").write_text(json.dumps(results | {"metric": "magic"}))
    for words in (("card", "render", run_folder), ("card", "lint", run_folder), ("publish", run_folder, "org/x")):
        assert "results.json cannot be rendered (KeyError: 'magic')" in refuse(*words)
    (run_folder / "results.json").unlink()
    assert "has no results.json" in refuse("card", "render", run_folder)


def test_a_gallery_is_checked_refreshed_and_built(run, run_folder):
    root = run_folder.parent / "cards"
    root.mkdir()
    run_folder = run_folder.rename(root / "gut-listops-cpu")
    assert run("cards", "refresh", root)[0] == 0
    assert run("cards", "check", root)[0] == 0
    (run_folder / "README.md").write_text("old")
    status, _, err = run("cards", "check", root)
    assert status == 1
    assert err.splitlines() == [
        "gut-listops-cpu/README.md differs from its rendering: run `hf-recurrent cards refresh` on the gallery"
    ]
    status, out, _ = run("cards", "refresh", root)
    assert out.splitlines() == ["gut-listops-cpu/README.md", "1 files changed"]
    assert run("cards", "build", root, "--output", root.parent / "page.html")[0] == 0
    assert "gut-listops-cpu" in (root.parent / "page.html").read_text()


def test_upload_is_the_same_command(pytestconfig, capsys):
    assert run_script(pytestconfig.rootpath / "upload.py", "absent", "org/x") == 2
    assert "error: Invalid value for 'FOLDER': dir 'absent' does not exist." in capsys.readouterr().err


def test_an_export_is_written_with_the_file_of_its_weights(run, run_folder, tmp_path, monkeypatch):
    """Which ONNX keeps apart for a large model."""

    def export(model, path, *_, **__):
        path.write_bytes(b"graph")
        path.with_name(f"{path.name}.data").write_bytes(b"weights")
        return SimpleNamespace(shapes=[(1, 2)], loops=False, difference=0.0)

    monkeypatch.setattr("hf_recurrent.deploy.export.export_model", export)
    (tmp_path / "out").mkdir()
    status, _, err = run("export", run_folder, "--output", tmp_path / "out" / "model.pt2")
    assert status == 0, err
    found = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert found == {"model.pt2": b"graph", "model.pt2.data": b"weights"}
