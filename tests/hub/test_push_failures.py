"""Whatever goes wrong on the way to the Hub, it stays as it was, and one line says what to do."""

import pytest
from huggingface_hub import HfApi
from pushing import README, contents, send, stored

from hf_recurrent.hub import check_access
from hf_recurrent.hub.errors import PublishError
from support.loopback_hub import Blob, LoopbackHub

# huggingface_hub passes the bytes of large files in a way that its HTTP client advises against
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    """The client waits between retries; how long is not what is tested."""
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)


REFUSED = [
    ({"token": "hf_wrong"}, "the Hub does not accept the token: run `hf auth login`"),
    ({"token": None}, "there is no token: run `hf auth login`, or set HF_TOKEN"),
    ({"repo_id": "grace/x"}, r"the token may not do this: use one with write access to the namespace \(403"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_who_may_not_write_is_told_so(hub, folder, options, message, monkeypatch):
    monkeypatch.setattr("huggingface_hub.utils._headers.get_token", lambda: None)
    monkeypatch.setattr("huggingface_hub.hf_api.get_token", lambda: None)
    with pytest.raises(PublishError, match=message) as caught:
        send(hub, folder, **options)
    assert "\n" not in str(caught.value)
    assert hub.repositories() == []


def test_a_token_that_may_only_read(hub, folder):
    hub.add_repository("org/x")
    with pytest.raises(PublishError, match="the token may only read: use one with write access"):
        send(hub, folder, token=hub.read_token)
    assert stored(hub) == {}


def test_a_private_repository_of_others_is_not_to_be_seen(hub, folder):
    hub.add_repository("org/x", private=True)
    with pytest.raises(PublishError, match=r"org/x: .*\(40\d: "):
        send(hub, folder, token=hub.foreign_token)
    assert stored(hub) == {}


def test_a_card_that_the_hub_refuses(hub, folder):
    (folder / "README.md").write_text("---\nlicense: free beer\n---\n")
    with pytest.raises(PublishError, match=r"org/x: .*license") as caught:
        send(hub, folder)
    assert "\n" not in str(caught.value)
    assert hub.repositories() == []


def test_no_network(folder):
    with LoopbackHub() as hub:
        pass
    with pytest.raises(PublishError, match=r"org/x: http://127.0.0.1:\d+ cannot be reached .*: check the network"):
        send(hub, folder)


FAULTS = [
    ("commit", {"status": 500}, "the Hub failed: run the command again"),
    ("commit", {"drop": True}, "cannot be reached"),
    ("commit", {"drop_upload": True}, "cannot be reached"),
    ("commit", {"status": 409}, "somebody else is changing the repository: run the command again"),
    ("commit", {"status": 412}, "the repository has changed meanwhile: run the command again"),
    ("commit", {"status": 429}, "asks to slow down"),
    ("lfs-batch", {"status": 500}, "the Hub failed"),
    ("lfs-upload", {"drop_upload": True}, "cannot be reached|upload"),
    ("lfs-upload", {"status": 403}, "org/x: "),
    ("lfs-verify", {"status": 500}, "the Hub failed"),
    ("preupload", {"drop": True}, "cannot be reached"),
    ("validate-yaml", {"status": 500}, "the Hub failed"),
    ("branch", {"status": 500}, "the Hub failed"),
    ("branch", {"lose_answer": True}, "cannot be reached"),
    ("create", {"lose_answer": True}, "cannot be reached"),
    ("create", {"status": 500}, "the Hub failed"),
    ("whoami", {"status": 200, "message": "<html>"}, "does not answer as a Hub does|cannot be reached"),
]


@pytest.mark.parametrize(
    ("route", "effect", "message", "exists"),
    [(*fault, exists) for fault in FAULTS for exists in (False, True) if fault[0] != "create" or not exists],
    ids=lambda value: str(value)[:24],
)
def test_a_failure_leaves_the_remote_as_it_was(hub, folder, route, effect, message, exists):
    if exists:
        hub.add_repository("org/x", files={"old.json": b"{}"})
    fault = hub.fail(route if route != "branch" else "POST /branch/", times=None, **effect)
    with pytest.raises(PublishError, match=message) as caught:
        send(hub, folder, revision="draft")
    assert fault.hits
    assert "\n" not in str(caught.value)
    assert "left" not in str(caught.value)
    assert hub.repositories() == ([("model", "org/x")] if exists else [])
    if exists:
        repository = hub.repository("org/x")
        assert stored(hub) == {"old.json": b"{}"}
        assert list(repository.branches) == ["main"]
    hub.heal()
    send(hub, folder, revision="draft")
    assert stored(hub, "draft") == contents(folder) | ({"old.json": b"{}"} if exists else {})


@pytest.mark.parametrize("kind", [RuntimeError, ConnectionError, PermissionError])
def test_what_the_uploader_of_large_files_raises_is_one_line(hub, folder, monkeypatch, kind):
    def fails(*arguments, **options):
        raise kind("Data processing error:\n  CAS service error: timed out")

    monkeypatch.setattr("huggingface_hub._commit_api._upload_files", fails)
    message = r"org/x: a file could not be uploaded \(Data processing error: CAS .* timed out\): run the command again"
    with pytest.raises(PublishError, match=message):
        send(hub, folder)
    assert hub.repositories() == []


@pytest.mark.parametrize("status", [500, 503])
def test_passing_trouble_with_large_files_is_ridden_out(hub, folder, status):
    fault = hub.fail("lfs-upload", times=1, status=status)
    send(hub, folder)
    assert fault.hits == 1
    assert stored(hub) == contents(folder)


def test_a_lost_answer_is_not_a_lost_commit(hub, folder):
    hub.fail("commit", times=1, lose_answer=True)
    done = send(hub, folder)
    assert stored(hub) == contents(folder)
    assert done.commit == hub.repository("org/x").head().oid
    assert len(hub.called("commit")) == 1


def test_a_commit_by_others_meanwhile_is_not_overwritten(hub, folder, monkeypatch):
    send(hub, folder)
    (folder / "new.json").write_text("{}")
    repository = hub.repository("org/x")
    original = HfApi.create_commit

    def interleaved(api, *arguments, **options):
        monkeypatch.setattr(HfApi, "create_commit", original)
        send(hub, folder.parent / "other")
        return original(api, *arguments, **options)

    (folder.parent / "other").mkdir()
    (folder.parent / "other" / "README.md").write_text(README + "theirs")
    monkeypatch.setattr(HfApi, "create_commit", interleaved)
    with pytest.raises(PublishError, match="the repository has changed meanwhile: run the command again"):
        send(hub, folder)
    assert stored(hub)["README.md"].endswith(b"theirs")
    assert len(repository.commits) == 3


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", ["create_repo", "create_branch", "preupload_lfs_files"])
def test_interrupted_by_the_user(hub, folder, monkeypatch, call, done):
    original = getattr(HfApi, call)

    def interrupt(*arguments, **options):
        if done:
            original(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(HfApi, call, interrupt)
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        send(hub, folder, revision="draft")
    assert hub.repositories() == []
    hub.add_repository("org/x")
    if call != "create_repo":
        with pytest.raises(KeyboardInterrupt, match=r"^$"):
            send(hub, folder, revision="draft")
        assert list(hub.repository("org/x").branches) == ["main"]


def test_somebody_else_makes_the_repository_first(hub, folder, monkeypatch):
    original = HfApi.create_repo

    def meanwhile(api, *arguments, **options):
        hub.add_repository("org/x")
        return original(api, *arguments, **options)

    monkeypatch.setattr(HfApi, "create_repo", meanwhile)
    with pytest.raises(PublishError, match="somebody else is changing the repository"):
        send(hub, folder)
    assert hub.repositories() == [("model", "org/x")]


def test_somebody_else_is_faster_in_a_new_repository(hub, folder, monkeypatch):
    original = HfApi.create_repo

    def meanwhile(api, *arguments, **options):
        made = original(api, *arguments, **options)
        hub.repository("org/x").commit("main", {"README.md": Blob(b"theirs"), "a.txt": Blob(b"a")}, "theirs")
        return made

    monkeypatch.setattr(HfApi, "create_repo", meanwhile)
    with pytest.raises(PublishError, match="somebody else is changing the repository: run the command again"):
        send(hub, folder)
    assert stored(hub) == {"README.md": b"theirs", "a.txt": b"a"}


def test_somebody_else_makes_the_branch_first(hub, folder, monkeypatch):
    hub.add_repository("org/x", files={"old.json": b"{}"})
    original = HfApi.create_branch

    def meanwhile(api, *arguments, **options):
        original(api, *arguments, **options)
        return original(api, *arguments, **options)

    monkeypatch.setattr(HfApi, "create_branch", meanwhile)
    with pytest.raises(PublishError, match="somebody else is changing the repository"):
        send(hub, folder, revision="draft")
    assert sorted(hub.repository("org/x").branches) == ["draft", "main"]


def test_a_tag_is_no_branch(hub, folder):
    for options in ({"tag": "main"}, {"tag": "draft", "revision": "draft"}):
        with pytest.raises(PublishError, match="is a branch of the model repository org/x"):
            send(hub, folder, **options)
    assert hub.repositories() == []


@pytest.mark.parametrize("token", ["hf_abc\n", "hf_a b", "hf_é"])
def test_a_broken_token_is_not_shown(hub, folder, token):
    with pytest.raises(PublishError, match="the token holds white space or characters that no token has") as caught:
        send(hub, folder, token=token)
    assert token.strip() not in str(caught.value)


def test_access_is_known_before_there_is_something_to_send(hub):
    api = HfApi(hub.endpoint, token=hub.token)
    check_access("org/x", api=api)
    hub.add_repository("org/data", "dataset")
    with pytest.raises(PublishError, match="org/data is a dataset repository"):
        check_access("org/data", api=api)
    with pytest.raises(PublishError, match="the token may only read"):
        check_access("org/x", api=HfApi(hub.endpoint, token=hub.read_token))
    assert {call.method for call in hub.calls} <= {"GET", "HEAD"}


@pytest.mark.parametrize("effect", [{"status": 500}, {"lose_answer": True}, {"drop": True}], ids=str)
def test_a_tag_that_could_not_be_made_can_be_made_later(hub, folder, effect):
    hub.fail("tag", times=1, **effect)
    with pytest.raises(
        PublishError, match=r"org/x holds the files \(commit \w+\), but the tag v1 may be missing: org/x: "
    ):
        send(hub, folder, tag="v1")
    done = send(hub, folder, tag="v1")
    assert done.plan.empty
    assert hub.repository("org/x").tags == {"v1": done.commit}
    assert len(hub.repository("org/x").commits) == 2


def test_what_cannot_be_removed_again_is_named(hub, folder):
    hub.fail("commit", times=None, status=500)
    hub.fail("delete", times=None, status=403)
    with pytest.raises(PublishError, match=f"; an empty repository may have been left at {hub.endpoint}/org/x"):
        send(hub, folder)
    hub.fail("DELETE /branch/", times=None, status=403)
    with pytest.raises(PublishError, match="; the branch draft, equal to main, may have been left behind"):
        send(hub, folder, revision="draft")


@pytest.mark.parametrize("theirs", ["main", "draft", "other"])
def test_a_new_repository_that_others_use_already_is_not_removed(hub, folder, monkeypatch, theirs):
    def meanwhile(api, *arguments, **options):
        repository = hub.repository("org/x")
        repository.branches.setdefault(theirs, repository.branches["main"])
        repository.commit(theirs, {"theirs.txt": Blob(b"theirs")}, "theirs")
        raise KeyboardInterrupt

    monkeypatch.setattr(HfApi, "create_commit", meanwhile)
    with pytest.raises(KeyboardInterrupt):
        send(hub, folder, revision="draft")
    assert stored(hub, theirs) == {"theirs.txt": b"theirs"}
