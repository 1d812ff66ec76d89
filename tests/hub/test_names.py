"""Names are checked before anything else."""

import pytest

from hf_recurrent.hub.publish import check_repo_id, check_revision, publish_checkpoint

REPO = "org/gut-listops"


@pytest.mark.parametrize(
    "repo_id", ["gut", "a/b/c", "org/", "/gut", "org/g t", "org/gut..x", "org/-gut", "org/gut.git"]
)
def test_illegal_repository_names(repo_id, tmp_path):
    with pytest.raises(ValueError, match="repo_id='"):
        check_repo_id(repo_id)
    with pytest.raises(ValueError, match="repo_id='"):
        publish_checkpoint(tmp_path, repo_id)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a b",
        "a..b",
        "/a",
        "a/",
        "-a",
        "a.lock",
        "a~b",
        "a//b",
        "a\nb",
        "a/.b",
        "HEAD",
        "refs/pr/1",
        "a" * 40,
        "1234567",
    ],
)
def test_illegal_revisions_and_tags(name, tmp_path):
    with pytest.raises(ValueError, match="tag="):
        check_revision("tag", name)
    with pytest.raises(ValueError, match="revision="):
        publish_checkpoint(tmp_path, REPO, revision=name)
    with pytest.raises(ValueError, match="message is blank"):
        publish_checkpoint(tmp_path, REPO, message=" ")
    assert check_revision("tag", "v1.0/rc-1") == "v1.0/rc-1"
