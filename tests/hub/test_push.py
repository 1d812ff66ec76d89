"""One commit that makes a repository equal to a folder; against the loopback Hub through the real client."""

import pytest
from pushing import README, WEIGHTS, contents, send, stored

# huggingface_hub passes the bytes of large files in a way that its HTTP client advises against
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.mark.parametrize("repo_type", ["model", "dataset"])
def test_one_commit_holds_the_folder(hub, folder, repo_type):
    done = send(hub, folder, repo_type=repo_type)
    repository = hub.repository("org/x", repo_type)
    assert stored(hub, repo_type=repo_type) == contents(folder)
    assert [commit.summary for commit in repository.commits[1:]] == ["Publish x with hf_recurrent"]
    assert done.changed
    assert done.commit == repository.head().oid
    assert done.url == f"{hub.endpoint}/{'' if repo_type == 'model' else repo_type + 's/'}org/x"
    assert not repository.private


def test_the_same_folder_again_makes_no_commit(hub, folder):
    first = send(hub, folder)
    again = send(hub, folder)
    assert not again.changed
    assert again.commit == first.commit
    assert len(hub.repository("org/x").commits) == 2


def test_files_of_an_earlier_publication_go_and_files_of_others_stay(hub, folder):
    hub.add_repository("org/x", files={"handler.py": b"theirs", "README.md": README.encode()})
    send(hub, folder)
    (folder / "model.safetensors").write_bytes(WEIGHTS[:-1] + b"\1")
    (folder / "assets" / "a.png").rename(folder / "assets" / "b.png")
    send(hub, folder)
    assert stored(hub) == {**contents(folder), "handler.py": b"theirs"}
    assert len(hub.repository("org/x").commits) == 4


def test_visibility_is_that_asked_for_or_nothing_is_sent(hub, folder):
    send(hub, folder, private=True)
    assert hub.repository("org/x").private
    send(hub, folder)
    with pytest.raises(ValueError, match="org/x exists and is private: pass --private"):
        send(hub, folder, private=False)
    hub.add_repository("org/y")
    with pytest.raises(ValueError, match="org/y exists and is public: pass --public"):
        send(hub, folder, repo_id="org/y", private=True)
    assert stored(hub, repo_id="org/y") == {}


def test_a_branch_and_a_tag_that_never_moves(hub, folder):
    send(hub, folder)
    (folder / "new.json").write_text("{}")
    done = send(hub, folder, revision="draft/one", tag="v1")
    repository = hub.repository("org/x")
    assert "new.json" in stored(hub, "draft/one")
    assert "new.json" not in stored(hub)
    assert repository.branches["draft/one"] == done.commit
    assert repository.tags == {"v1": done.commit}
    with pytest.raises(ValueError, match="tag='v1' exists in org/x"):
        send(hub, folder, tag="v1")
    assert "new.json" not in stored(hub)
