"""One commit that makes a repository equal to a folder; against the loopback Hub through the real client."""

import pytest
from pushing import README, WEIGHTS, contents, send, stored

from hf_recurrent.hub.errors import PublishError
from hf_recurrent.hub.push import digest
from support.loopback_hub import Blob, git

# huggingface_hub passes the bytes of large files in a way that its HTTP client advises against
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


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
    hub.add_repository("org/x", files={"handler.py": b"theirs", "assets/banner.png": b"theirs"})
    send(hub, folder)
    (folder / "assets" / "a.png").unlink()
    done = send(hub, folder)
    assert done.plan.delete == ["assets/a.png"]
    assert stored(hub) == {**contents(folder), "handler.py": b"theirs", "assets/banner.png": b"theirs"}


def test_files_of_others_are_not_replaced_unasked(hub, folder):
    hub.add_repository("org/x", files={"README.md": b"theirs", "model.safetensors": WEIGHTS})
    with pytest.raises(PublishError, match=r"org/x holds README.md, put there or changed by somebody"):
        send(hub, folder)
    assert stored(hub)["README.md"] == b"theirs"
    done = send(hub, folder, overwrite=True)
    assert done.plan.keep == ["model.safetensors"]
    assert stored(hub) == contents(folder)


def test_what_others_changed_since_is_not_replaced_unasked(hub, folder, api):
    send(hub, folder)
    edited = README.encode() + b"a better word"
    api.upload_file(path_or_fileobj=edited, path_in_repo="README.md", repo_id="org/x")
    (folder / "new.json").write_text("{}")
    with pytest.raises(PublishError, match=r"org/x holds README.md, put there or changed"):
        send(hub, folder)
    (folder / "README.md").write_bytes(edited)
    assert send(hub, folder).plan.add == ["new.json"]
    api.upload_file(path_or_fileobj=b"[]", path_in_repo="new.json", repo_id="org/x")
    (folder / "new.json").unlink()
    with pytest.raises(PublishError, match=r"org/x holds new.json, put there or changed"):
        send(hub, folder)
    assert stored(hub)["new.json"] == b"[]"


def test_a_website_s_first_card_is_in_nobodys_way(hub, folder):
    hub.add_repository("org/x", "space")
    assert "README.md" in stored(hub, repo_type="space")
    send(hub, folder, repo_type="space")
    assert stored(hub, repo_type="space") == contents(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "README.md"])
def test_a_squashed_history_is_not_a_new_repository(name, hub, folder):
    repository = hub.add_repository("org/x", files={name: b"theirs"})
    blobs = repository.head().blobs
    repository.branches.clear()
    repository.commit("main", blobs, "squashed")
    assert len(repository.commits) == 1
    with pytest.raises(PublishError, match=f"org/x holds {name}, put there or changed"):
        send(hub, folder)
    assert stored(hub) == {name: b"theirs"}


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
    repository.commit("main", repository.head().blobs | {"theirs.txt": Blob(b"theirs")}, "theirs")
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
