"""One commit or no change, whatever goes wrong on the way; against the loopback Hub through the real client."""

import pytest
from huggingface_hub import HfApi

from hf_recurrent.hub.errors import PublishError
from hf_recurrent.hub.push import Target, push
from hf_recurrent.hub.remote import digest
from support.loopback_hub import Blob, LoopbackHub, git

# huggingface_hub passes the bytes of large files in a way that its HTTP client advises against
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

README = "---\nlicense: mit\ntags: [a]\n---\n# Card\n"
WEIGHTS = b"\x3b" + bytes(7) + b'{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}  ' + bytes(24)


def keep_attributes(path):
    return path != ".gitattributes"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    """The client waits between retries; how long is not what is tested."""
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)


@pytest.fixture
def folder(tmp_path):
    """Text, a large file and a file in a subfolder."""
    files = {"README.md": README.encode(), "model.safetensors": WEIGHTS, "assets/a.png": b"\x89PNG\0" + bytes(50)}
    for path, content in files.items():
        (tmp_path / "folder" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / path).write_bytes(content)
    return tmp_path / "folder"


def send(hub, folder, *, token=..., is_ours=keep_attributes, repo_id="org/x", repo_type="model", **options):
    api = HfApi(hub.endpoint, token=hub.token if token is ... else token)
    return push(folder, Target(repo_id, repo_type, **options), "message", is_ours, api)


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stored(hub, revision="main", repo_id="org/x", repo_type="model"):
    files = hub.repository(repo_id, repo_type).head(revision).files
    return {path: content for path, content in files.items() if path != ".gitattributes"}


@pytest.mark.parametrize("repo_type", ["model", "dataset", "space"])
def test_one_commit_holds_the_folder(hub, folder, repo_type):
    done = send(hub, folder, repo_type=repo_type)
    repository = hub.repository("org/x", repo_type)
    assert stored(hub, repo_type=repo_type) == contents(folder)
    assert [commit.summary for commit in repository.commits[1:]] == ["message"]
    assert done.commit == repository.head().oid
    assert done.url == f"{hub.endpoint}/{'' if repo_type == 'model' else repo_type + 's/'}org/x"
    assert sorted(done.plan.add) == sorted(contents(folder))
    assert not repository.private


def test_the_same_folder_again_makes_no_commit_and_sends_nothing(hub, folder):
    first = send(hub, folder)
    before = len(hub.calls)
    again = send(hub, folder)
    assert again.plan.empty
    assert again.commit == first.commit
    assert len(hub.repository("org/x").commits) == 2
    assert {call.method for call in hub.calls[before:]} == {"GET"}


def test_only_what_changed_is_sent_and_what_is_gone_is_deleted(hub, folder):
    send(hub, folder)
    (folder / "model.safetensors").write_bytes(WEIGHTS[:-1] + b"\1")
    (folder / "assets" / "a.png").rename(folder / "assets" / "b.png")
    done = send(hub, folder)
    assert done.plan.add == ["assets/b.png", "model.safetensors"]
    assert done.plan.delete == ["assets/a.png"]
    assert stored(hub) == contents(folder)
    assert len(hub.repository("org/x").commits) == 3


def test_files_of_others_stay(hub, folder):
    hub.add_repository("org/x", files={"handler.py": b"theirs", "old.png": b"ours"})
    done = send(hub, folder, is_ours=lambda path: path.endswith(".png"))
    assert done.plan.delete == ["old.png"]
    assert stored(hub) == {**contents(folder), "handler.py": b"theirs"}


def test_digests_are_those_of_git_and_sha256(tmp_path):
    path = tmp_path / "file"
    for content in (b"", b"x" * (3 << 20)):
        path.write_bytes(content)
        assert digest(path, large=False) == git.blob_id(content)
        import hashlib

        assert digest(path, large=True) == hashlib.sha256(content).hexdigest()


def test_a_new_repository_is_private_when_asked_and_stays_what_it_is(hub, folder):
    send(hub, folder, private=True)
    assert hub.repository("org/x").private
    send(hub, folder)
    with pytest.raises(PublishError, match=r"org/x exists and is private: change that on its settings page"):
        send(hub, folder, private=False)
    hub.add_repository("org/y")
    with pytest.raises(PublishError, match=r"org/y exists and is public"):
        send(hub, folder, repo_id="org/y", private=True)
    assert stored(hub, repo_id="org/y") == {}


def test_a_branch_of_its_own(hub, folder):
    send(hub, folder)
    (folder / "new.json").write_text("{}")
    done = send(hub, folder, revision="draft/one")
    repository = hub.repository("org/x")
    assert "new.json" in stored(hub, "draft/one")
    assert "new.json" not in stored(hub)
    assert repository.branches["draft/one"] == done.commit
    assert send(hub, folder, revision="draft/one").plan.empty


def test_tags_name_the_commit_and_never_move(hub, folder):
    done = send(hub, folder, tag="v1")
    repository = hub.repository("org/x")
    assert repository.tags == {"v1": done.commit}
    assert send(hub, folder, tag="v1").plan.empty
    (folder / "new.json").write_text("{}")
    head = repository.head().oid
    with pytest.raises(PublishError, match=r"tag='v1' exists in the model repository org/x and stands for other"):
        send(hub, folder, tag="v1")
    with pytest.raises(PublishError, match="revision='v1' is a tag"):
        send(hub, folder, revision="v1")
    assert repository.head().oid == head
    send(hub, folder, tag="v2")
    assert repository.tags == {"v1": done.commit, "v2": repository.head().oid}


def test_another_type_under_this_name(hub, folder):
    hub.add_repository("org/x", "dataset")
    with pytest.raises(PublishError, match="org/x is a dataset repository, not a model: use another name"):
        send(hub, folder)
    assert hub.repositories() == [("dataset", "org/x")]
    hub.add_repository("org/x", "model")
    send(hub, folder)


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
]


@pytest.mark.parametrize("exists", [False, True], ids=["new", "existing"])
@pytest.mark.parametrize(("route", "effect", "message"), FAULTS, ids=lambda value: str(value)[:24])
def test_a_failure_leaves_the_remote_as_it_was(hub, folder, route, effect, message, exists):
    if exists:
        hub.add_repository("org/x", files={"old.json": b"{}"})
    fault = hub.fail(route, times=None, **effect)
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
    assert stored(hub, "draft") == contents(folder)


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


def test_interrupted_by_the_user(hub, folder, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(HfApi, "preupload_lfs_files", interrupt)
    with pytest.raises(KeyboardInterrupt):
        send(hub, folder)
    assert hub.repositories() == []


def test_a_tag_that_could_not_be_made_can_be_made_later(hub, folder):
    hub.fail("tag", times=1, status=500)
    with pytest.raises(PublishError, match="the Hub failed"):
        send(hub, folder, tag="v1")
    done = send(hub, folder, tag="v1")
    assert done.plan.empty
    assert hub.repository("org/x").tags == {"v1": done.commit}
    assert len(hub.repository("org/x").commits) == 2


def test_what_cannot_be_removed_again_is_named(hub, folder):
    hub.fail("commit", times=None, status=500)
    hub.fail("delete", times=None, status=403)
    with pytest.raises(PublishError, match=f"; an empty repository was left at {hub.endpoint}/org/x"):
        send(hub, folder)
    hub.fail("DELETE /branch/", times=None, status=403)
    with pytest.raises(PublishError, match="; the branch draft, equal to main, was left behind"):
        send(hub, folder, revision="draft")


def test_a_new_repository_that_others_use_already_is_not_removed(hub, folder, monkeypatch):
    def meanwhile(api, *arguments, **options):
        hub.repository("org/x").commit("main", {"theirs.txt": Blob(b"theirs")}, "theirs")
        raise KeyboardInterrupt

    monkeypatch.setattr(HfApi, "create_commit", meanwhile)
    with pytest.raises(KeyboardInterrupt):
        send(hub, folder)
    assert stored(hub) == {"theirs.txt": b"theirs"}
