"""Who may read and write what on the loopback Hub, and how it is read."""

import hashlib
import json
from pathlib import Path

import pytest
from huggingface_hub import CommitOperationAdd as Add
from huggingface_hub import CommitOperationCopy as Copy
from huggingface_hub import CommitOperationDelete as Delete
from huggingface_hub import HfApi, errors
from loopback_files import PICTURE, commit, status_of

from support.loopback_hub import git
from support.loopback_hub.plain import commit_body, connect, file_line, send

# huggingface_hub 2.4 sends large files in a way that its HTTP library has deprecated
pytestmark = [pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"), pytest.mark.slow]


def test_tokens(hub, api, repository):
    assert (api.whoami()["name"], api.whoami()["orgs"][0]["name"], hub.user) == ("ada", "org", "ada")
    cases = [("hf_nobody", 401), (hub.read_token, 403), (hub.foreign_token, 403), (False, 401)]
    for token, status in cases:
        with pytest.raises(errors.HfHubHTTPError) as error:
            api.create_repo("org/y", token=token)
        assert status_of(error) == status
        with pytest.raises(errors.HfHubHTTPError) as error:
            commit(api, {"a.txt": b"a"}, token=token)
        assert (status_of(error), isinstance(error.value, errors.RepositoryNotFoundError)) == (status, not token)
    with pytest.raises(errors.HfHubHTTPError, match="Invalid user token") as error:
        api.whoami(token="hf_nobody")
    assert error.value.request_id
    # a wrong token is refused even where none is needed
    assert send(hub, "HEAD", "/org/x/resolve/main/.gitattributes", token="hf_nobody")[0] == 401
    assert send(hub, "HEAD", "/org/x/resolve/main/.gitattributes", token=False)[0] == 200
    assert (hub.repositories(), len(repository.commits)) == ([("model", "org/x")], 1)
    assert api.auth_check("org/x", write=True) is None


def test_private_repositories_do_not_exist_for_others(hub, api, repository, tmp_path):
    hub.add_repository("grace/secret", files={"a.txt": b"a"}, private=True)
    for name, token, status in [
        ("grace/secret", hub.token, 404),
        ("grace/secret", False, 401),
        ("org/none", hub.token, 404),
    ]:
        with pytest.raises(errors.RepositoryNotFoundError) as error:
            api.model_info(name, token=token)
        assert status_of(error) == status
        with pytest.raises(errors.RepositoryNotFoundError):
            api.hf_hub_download(name, "a.txt", token=token, cache_dir=tmp_path)
    path = api.hf_hub_download("grace/secret", "a.txt", token=hub.foreign_token, cache_dir=tmp_path)
    assert Path(path).read_bytes() == b"a"
    api.update_repo_settings("org/x", private=True)
    assert not HfApi(hub.endpoint, token=False).repo_exists("org/x")


def test_revisions(hub, api, repository, tmp_path):
    first = commit(api, {"a.txt": b"1"}).oid
    api.create_tag("org/x", tag="v1")
    api.create_branch("org/x", branch="feature/x", revision="v1")
    second = commit(api, {"a.txt": b"2"}, revision="feature/x").oid
    main, branch = repository.head(), repository.head("feature/x")
    assert (main.oid, branch.oid, branch.parent, repository.head("v1")) == (first, second, first, main)
    for revision, content in {"main": b"1", "v1": b"1", "feature/x": b"2", second: b"2", second[:8]: b"2"}.items():
        path = api.hf_hub_download("org/x", "a.txt", revision=revision, cache_dir=tmp_path)
        assert Path(path).read_bytes() == content
    refs = api.list_repo_refs("org/x")
    assert {ref.name: ref.target_commit for ref in refs.branches} == {"feature/x": second, "main": first}
    assert [(ref.name, ref.ref, ref.target_commit) for ref in refs.tags] == [("v1", "refs/tags/v1", first)]
    assert [row.commit_id for row in api.list_repo_commits("org/x", revision="feature/x")][:2] == [second, first]
    for create in (api.create_tag, api.create_branch):
        name = {"tag": "v1"} if create == api.create_tag else {"branch": "feature/x"}
        with pytest.raises(errors.HfHubHTTPError) as error:
            create("org/x", **name)
        assert status_of(error) == 409
        create("org/x", exist_ok=True, **name)
        with pytest.raises(errors.RevisionNotFoundError):
            create("org/x", **dict.fromkeys(name, "new"), revision="missing")
        with pytest.raises(errors.BadRequestError):
            create("org/x", **dict.fromkeys(name, "a..b"))
    # a tag is no place for a commit
    for revision in ("v1", first, "missing"):
        with pytest.raises(errors.RevisionNotFoundError):
            commit(api, {"a.txt": b"3"}, revision=revision)
    api.delete_tag("org/x", tag="v1")
    api.delete_branch("org/x", branch="feature/x")
    assert (repository.tags, repository.branches) == ({}, {"main": first})
    assert not api.revision_exists("org/x", "v1")


def test_parent_commit(api, repository):
    parent = repository.head().oid
    first = commit(api, {"a.txt": b"1"}, parent_commit=parent).oid
    with pytest.raises(errors.HfHubHTTPError, match="A commit has happened since") as error:
        commit(api, {"a.txt": b"2"}, parent_commit=parent)
    assert (status_of(error), repository.head().oid) == (412, first)
    assert commit(api, {"a.txt": b"2"}, parent_commit=first).oid == repository.head().oid != first


def test_delete_and_copy(api, repository):
    commit(api, {"a/1.txt": b"1", "a/2.bin": b"\0", "b.txt": b"b"})
    with pytest.raises(errors.RemoteEntryNotFoundError, match="with this name doesn't exist"):
        api.create_commit("org/x", [Add("c.txt", b"c"), Delete("a")], commit_message="a is a folder")
    assert "c.txt" not in repository.head().files
    api.create_commit("org/x", [Copy("a/2.bin", "c.bin"), Copy("a/1.txt", "c.txt")], commit_message="copy")
    api.create_commit("org/x", [Delete("a/"), Delete("b.txt"), Add("a/3.txt", b"3")], commit_message="delete")
    files = {path: content for path, content in repository.head().files.items() if path != ".gitattributes"}
    assert files == {"a/3.txt": b"3", "c.bin": b"\0", "c.txt": b"1"}


def test_trees_come_in_pages(hub, api, repository):
    files = {f"a/{number}.txt": bytes([48 + number]) for number in range(9)} | {"b.txt": b"b"}
    first = commit(api, files).oid
    second = commit(api, {"b.txt": b"changed"}).oid
    entries = list(api.list_repo_tree("org/x", recursive=True, expand=True))
    assert [entry.path for entry in entries] == [".gitattributes", "a", *files]
    assert [call.path for call in hub.called("tree")] == ["/api/models/org/x/tree/main"] * 3
    changed = {entry.path: entry.last_commit.oid for entry in entries}
    assert changed == {
        **dict.fromkeys(files, first),
        "a": first,
        "b.txt": second,
        ".gitattributes": repository.commits[0].oid,
    }
    assert [entry.path for entry in api.list_repo_tree("org/x")] == [".gitattributes", "a", "b.txt"]
    assert [entry.path for entry in api.list_repo_tree("org/x", "a", revision=first)] == list(files)[:-1]
    assert [entry.path for entry in api.get_paths_info("org/x", ["b.txt", "none", "a"])] == ["b.txt", "a"]
    with pytest.raises(errors.RemoteEntryNotFoundError):
        list(api.list_repo_tree("org/x", "none"))
    assert len(api.model_info("org/x").siblings) == len(files) + 1


def test_downloads(hub, api, repository):
    commit(api, {"a.txt": b"0123456789", "b.bin": PICTURE})
    path = "/org/x/resolve/main/a.txt"
    status, headers, body = send(hub, "HEAD", path)
    assert (status, body, headers["Content-Length"], headers["Accept-Ranges"]) == (200, b"", "10", "bytes")
    assert (headers["ETag"], headers["X-Repo-Commit"]) == (f'"{git.blob_id(b"0123456789")}"', repository.head().oid)
    for wanted, part, place in [
        ("2-4", b"234", "2-4"),
        ("8-", b"89", "8-9"),
        ("-3", b"789", "7-9"),
        ("7-99", b"789", "7-9"),
    ]:
        status, headers, body = send(hub, "GET", path, Range=f"bytes={wanted}")
        assert (status, body, headers["Content-Range"]) == (206, part, f"bytes {place}/10")
    status, headers, _ = send(hub, "GET", path, Range="bytes=10-")
    assert (status, headers["Content-Range"]) == (416, "bytes */10")
    headers = send(hub, "HEAD", "/org/x/resolve/main/b.bin")[1]
    assert (headers["X-Linked-Size"], headers["X-Linked-ETag"]) == (
        str(len(PICTURE)),
        f'"{hashlib.sha256(PICTURE).hexdigest()}"',
    )
    for where, code in {"main/none": "Entry", "none/a.txt": "Revision"}.items():
        status, headers, _ = send(hub, "GET", f"/org/x/resolve/{where}")
        assert (status, headers["X-Error-Code"]) == (404, f"{code}NotFound")


def test_chunked_requests_on_one_connection(hub, repository):
    connection = connect(hub)
    body = commit_body(file_line("a")).splitlines(keepends=True)
    headers = {"Authorization": f"Bearer {hub.token}", "Content-Type": "application/x-ndjson"}
    for _ in range(2):
        connection.request("POST", "/api/models/org/x/commit/main", iter(body), headers, encode_chunked=True)
        answer = connection.getresponse()
        assert json.loads(answer.read())["commitOid"] == repository.head().oid
        assert (answer.status, answer.getheader("Connection")) == (200, None)
    connection.close()
    assert repository.head().files["a"] == b"text"
