"""The loopback Hub fails on demand, and its clients run in clean processes."""

import threading

import pytest
from loopback_files import FILES

from support.client import must_succeed, run_client
from support.loopback_hub import LoopbackHub
from support.loopback_hub.plain import connect, send

# huggingface_hub 2.4 sends large files in a way that its HTTP library has deprecated
pytestmark = [pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"), pytest.mark.slow]


def test_faults_name_what_they_are_about(hub):
    for target, effect in [("comit", {"drop": True}), ("commit", {}), ("commit", {"drop": True, "status": 500})]:
        with pytest.raises(ValueError, match=f"fault on '{target}'"):
            hub.fail(target, **effect)


def test_unknown_routes_are_recorded(hub):
    assert send(hub, "GET", "/api/nothing")[0] == 404
    assert hub.unknown == [("GET", "/api/nothing")]
    assert hub.calls == [("GET", "/api/nothing", 404)]
    hub.unknown.clear()


def test_it_stops_and_tells_of_its_own_crashes(monkeypatch):
    threads = set(threading.enumerate())
    with LoopbackHub() as hub:
        # kept alive until the server hangs up
        connection = connect(hub)
        connection.request("GET", "/api/agent-harnesses")
        connection.getresponse().read()
        assert set(threading.enumerate()) > threads
    assert set(threading.enumerate()) == threads
    connection.close()
    with pytest.raises(ConnectionRefusedError):
        send(hub, "GET", "/api/agent-harnesses")
    with pytest.raises(RuntimeError, match="AttributeError"), LoopbackHub() as hub:  # noqa: PT012
        hub.add_repository("org/x")
        monkeypatch.delattr(type(hub.repository("org/x")), "head")
        assert send(hub, "GET", "/api/models/org/x")[0] == 500


CLIENT = """
import importlib.util, os, sys
from huggingface_hub import HfApi, constants
assert (importlib.util.find_spec("hf_recurrent") is not None) == (sys.argv[2] == "with")
assert not [name for name in os.environ if name.lower().endswith("_proxy")]
assert "HF_SENTINEL" not in os.environ
print(HfApi().upload_folder(repo_id="org/x", folder_path=sys.argv[1]).oid, constants.HF_HOME)
"""


def test_clean_processes(hub, repository, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_SENTINEL", "1")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    folder = tmp_path / "folder"
    for path, content in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    oid, home = must_succeed(run_client(CLIENT, hub.environment(tmp_path), folder, "with", cwd=tmp_path)).split()
    assert oid == repository.commits[1].oid
    assert home.startswith(str(tmp_path))
    anonymous = hub.environment(tmp_path, token=False)
    assert anonymous["HF_HOME"] != home
    done = run_client("import hf_recurrent", anonymous, cwd=tmp_path, without_package=True)
    assert "No module named 'hf_recurrent'" in done.stderr
    with pytest.raises(AssertionError, match="exit code 1"):
        must_succeed(done)
