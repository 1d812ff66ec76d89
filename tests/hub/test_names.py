"""Names are checked before anything else."""

import pytest

from hf_recurrent.hub.publish import check_repo_id, publish_checkpoint


@pytest.mark.parametrize(
    "repo_id", ["gut", "a/b/c", "org/", "/gut", "org/g t", "org/gut..x", "org/-gut", "org/gut.git"]
)
def test_illegal_repository_names(repo_id, tmp_path):
    for call in (check_repo_id, lambda name: publish_checkpoint(tmp_path, name)):
        with pytest.raises(ValueError, match=r"repo_id='.*expected owner/name|[Rr]epo[_ ](id|name)\b.* '"):
            call(repo_id)
