"""A folder to push, and short ways to push it and to look at what arrived."""

import re
from contextlib import contextmanager

import pytest
from huggingface_hub import HfApi

from hf_recurrent.hub import publish
from hf_recurrent.hub.errors import explanation

README = "---\nlicense: mit\ntags: [a]\n---\n# Card\n"
# of no data, and so of nobody's own
RESULTS = b'{"task": null, "model": {}, "splits": {}, "data": null, "quotes": false}'
WEIGHTS = b"\x3b" + bytes(7) + b'{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}  ' + bytes(24)


def send(hub, folder, *, token=..., repo_id="org/x", repo_type="model", **options):
    api = HfApi(hub.endpoint, token=hub.token if token is ... else token)
    return publish.publish_folder(folder, repo_id, repo_type, publish.Options(api=api, **options))


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stored(hub, revision="main", repo_id="org/x", repo_type="model"):
    files = hub.repository(repo_id, repo_type).head(revision).files
    return {path: content for path, content in files.items() if path != ".gitattributes"}


@contextmanager
def refused(words):
    """Expect an error that a command reports in these words; only a list of problems takes several lines."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the client has many
        yield
    line = explanation(caught.value)
    assert re.search(words, line)
    assert len(line.splitlines()) == 1 or isinstance(caught.value, ValueError)
