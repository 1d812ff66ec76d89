"""Whatever goes wrong on the way to the Hub, its files stay as they were, and one line says what to do."""

import pytest
from huggingface_hub import HfApi
from pushing import README, RESULTS, contents, refused, send, stored

from hf_recurrent.hub import check_access
from support.loopback_hub import LoopbackHub

# huggingface_hub passes the bytes of large files in a way that its HTTP client advises against
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    """The client waits between retries; how long is not what is tested."""
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)


REFUSED = [
    ({"token": "hf_wrong"}, "the Hub does not accept the token: run `hf auth login`"),
    ({"token": None}, "no token found.*`hf auth login`"),
    ({"repo_id": "grace/x"}, r"the token may not do this: use one with write access to the namespace \(403"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_who_may_not_write_is_told_so(hub, folder, options, message, monkeypatch):
    monkeypatch.setattr("huggingface_hub.utils._headers.get_token", lambda: None)
    monkeypatch.setattr("huggingface_hub.hf_api.get_token", lambda: None)
    with refused(message):
        send(hub, folder, **options)
    assert hub.repositories() == []


def test_a_repository_that_the_token_may_not_change(hub, folder):
    hub.add_repository("org/x", private=True)
    with refused("the token may only read: use one with write access"):
        send(hub, folder, token=hub.read_token)
    with refused(r"the token may not do this: .*\(403: "):
        send(hub, folder, token=hub.foreign_token)
    assert stored(hub) == {}


def test_a_card_that_the_hub_refuses(hub, folder):
    (folder / "README.md").write_text("---\nlicense: free beer\n---\n")
    with refused("license"):
        send(hub, folder)
    assert stored(hub) == {}


def test_no_network(folder):
    with LoopbackHub() as hub:
        pass
    with refused("the Hub cannot be reached or refuses"):
        send(hub, folder)


FAULTS = [
    ("commit", {"status": 500}, "500"),
    ("commit", {"drop_upload": True}, "cannot be reached"),
    ("commit", {"status": 412}, "the repository has changed meanwhile: run the command again"),
    ("lfs-upload", {"drop_upload": True}, "cannot be reached"),
    ("preupload", {"drop": True}, "cannot be reached"),
    ("POST /branch/", {"status": 500}, "500"),
    ("create", {"lose_answer": True}, "cannot be reached"),
]


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize(("route", "effect", "message"), FAULTS, ids=lambda value: str(value)[:24])
def test_a_failure_leaves_the_files_as_they_were(hub, folder, route, effect, message, exists):
    before = {"old.json": b"{}"} if exists else {}
    if exists:
        hub.add_repository("org/x", files=before)
    fault = hub.fail(route, times=None, **effect)
    with refused(message):
        send(hub, folder, revision="draft", tag="v1")
    assert fault.hits
    repository = hub.repository("org/x")
    assert repository.tags == {}
    assert all(stored(hub, branch) == before for branch in repository.branches)
    hub.heal()
    send(hub, folder, revision="draft", tag="v1")
    assert stored(hub, "draft") == contents(folder) | before
    assert stored(hub) == before


def test_a_lost_answer_is_not_a_lost_commit(hub, folder):
    hub.fail("commit", times=1, lose_answer=True)
    with refused("cannot be reached"):
        send(hub, folder)
    assert stored(hub) == contents(folder)
    assert not send(hub, folder).changed


def test_a_tag_that_could_not_be_made_can_be_made_later(hub, folder):
    hub.fail("tag", times=1, status=500)
    with refused("500"):
        send(hub, folder, tag="v1")
    done = send(hub, folder, tag="v1")
    assert not done.changed
    assert hub.repository("org/x").tags == {"v1": done.commit}


def test_a_commit_by_others_meanwhile_is_not_overwritten(hub, folder, monkeypatch):
    send(hub, folder)
    (folder / "new.json").write_text("{}")
    original = HfApi.create_commit

    def interleaved(api, *arguments, **options):
        monkeypatch.setattr(HfApi, "create_commit", original)
        send(hub, folder.parent / "other")
        return original(api, *arguments, **options)

    (folder.parent / "other").mkdir()
    (folder.parent / "other" / "README.md").write_text(README + "theirs")
    (folder.parent / "other" / "results.json").write_bytes(RESULTS)
    monkeypatch.setattr(HfApi, "create_commit", interleaved)
    with refused("the repository has changed meanwhile: run the command again"):
        send(hub, folder)
    assert stored(hub)["README.md"].endswith(b"theirs")
    assert "new.json" not in stored(hub)


def test_access_is_known_before_there_is_something_to_send(hub):
    api = HfApi(hub.endpoint, token=hub.token)
    check_access("org/x", api=api)
    hub.add_repository("org/public")
    with refused("org/public exists and is public"):
        check_access("org/public", api=api, private=True)
    with refused("the token may only read"):
        check_access("org/x", api=HfApi(hub.endpoint, token=hub.read_token))
    assert {call.method for call in hub.calls} <= {"GET", "HEAD"}


def test_a_large_file_that_does_not_arrive_is_told_in_one_line(hub, folder, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("Data processing error:\nthe network went away")

    monkeypatch.setattr(HfApi, "create_commit", fail)
    with refused("a large file did not arrive: Data processing error: the network went away"):
        send(hub, folder)
