"""`hf-recurrent card inside` and `hf-recurrent serve`."""

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import closing

import pytest

from hf_recurrent.hub.inside import read_inside
from support.checkpoints import MODEL_CARDS

FLIP_FLOP = MODEL_CARDS / "ut-flip-flop-cpu"


@pytest.fixture
def folder(tmp_path):
    """A checkpoint without stored inputs."""
    return shutil.copytree(FLIP_FLOP, tmp_path / "ut", ignore=shutil.ignore_patterns("inside.json", "assets"))


def test_inputs_are_stored_and_computed_again(run, folder):
    status, out, err = run("card", "inside", folder, "w 1 r", "w 0 r", "--answer", "1", "--answer", "0")
    assert (status, err) == (0, "")
    assert re.sub(r"\s", "", out) == f"wrote{folder}/inside.json"
    stored = read_inside(folder)
    assert [(each["text"], each["text_pair"], each["answer"]) for each in stored] == [
        ("w 1 r", None, "1"),
        ("w 0 r", None, "0"),
    ]
    assert [each["inside"]["runs"][0]["answer"][0] for each in stored] == ["1", "0"]
    before = (folder / "inside.json").read_bytes()
    (folder / "inside.json").write_bytes(before.replace(b'"readout":2', b'"readout":1', 1))
    assert run("card", "inside", folder)[0] == 0
    assert (folder / "inside.json").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "has no stored inputs: pass a few short texts"),
        (["w 1 r", "--answer", "1", "--answer", "0"], "--answer is there 2 times: pass it once for each of 1 texts"),
        (["w 1 r", "--pair", "w"], "a causal language model continues one text, leave it out"),
        (["w 1 x"], "'x' at character 5, is not in the vocabulary"),
    ],
)
def test_inputs_that_cannot_be_stored_are_named(refuse, folder, words, message):
    assert message in refuse("card", "inside", folder, *words)
    assert not (folder / "inside.json").exists()


def test_a_port_that_is_in_use_is_named_in_one_line(refuse):
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        line = refuse("serve", FLIP_FLOP, "--port", port)
    assert line == (
        f"error: port {port} cannot be used: Address already in use; pass another one (--port 0 takes any that is free)"
    )


@pytest.mark.nightly
def test_ctrl_c_ends_a_server_without_a_word():
    command = [sys.executable, "-u", "-m", "hf_recurrent", "serve", str(FLIP_FLOP), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        (address,) = re.findall(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{address}explain", json.dumps({"text": "w 1 r"}).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            assert json.load(response)["tokens"] == ["w", "1", "r"]
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60) == ("", "")
        assert process.returncode == 0
    finally:
        process.kill()
