"""Names are checked before anything else."""

import pytest

from hf_recurrent.hub.publish import Options, check_repo_id, publish_checkpoint

REPO = "org/gut-listops"


@pytest.mark.parametrize(
    "repo_id", ["gut", "a/b/c", "org/", "/gut", "org/g t", "org/gut..x", "org/-gut", "org/gut.git"]
)
def test_illegal_repository_names(repo_id, tmp_path):
    for call in (check_repo_id, lambda name: publish_checkpoint(tmp_path, name)):
        with pytest.raises(ValueError, match=r"repo_id='.*expected owner/name|[Rr]epo[_ ](id|name)\b.* '"):
            call(repo_id)


@pytest.mark.parametrize("name", ["", "a b", "a..b", "-a", "a.lock", "a\nb", "HEAD", "refs/pr/1", "a" * 40, "1234567"])
def test_illegal_revisions_and_tags(name, tmp_path):
    with pytest.raises(ValueError, match="tag="):
        Options(tag=name)
    with pytest.raises(ValueError, match="revision="):
        publish_checkpoint(tmp_path, REPO, revision=name)
    assert Options(tag="v1.0/rc-1").tag == "v1.0/rc-1"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tag": "main"}, "tag='main' is the branch"),
        ({"tag": "next", "revision": "next"}, "tag='next' is the branch"),
    ],
)
def test_options_that_the_hub_would_refuse_at_the_very_end(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        publish_checkpoint(tmp_path, REPO, dry_run=True, **options)
