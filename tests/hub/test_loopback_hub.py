"""The loopback Hub keeps what it is sent, shown by the real client and, where that is too polite, by plain HTTP."""

import hashlib
from pathlib import Path

import pytest
from huggingface_hub import errors
from loopback_files import FILES, KINDS, commit, send_commit, status_of

from support.loopback_hub import git
from support.loopback_hub.plain import file_line, send

# huggingface_hub 2.4 sends large files in a way that its HTTP library has deprecated
pytestmark = [pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"), pytest.mark.slow]


@pytest.mark.parametrize("kind", KINDS)
def test_create(hub, api, kind):
    options = {"repo_type": kind}
    assert not api.repo_exists("org/x", repo_type=kind)
    url = api.create_repo("org/x", private=True, **options)
    assert (url.repo_id, url.repo_type, url.endpoint) == ("org/x", kind, hub.endpoint)
    # one name, three namespaces
    assert [api.repo_exists("org/x", repo_type=other) for other in KINDS] == [other == kind for other in KINDS]
    with pytest.raises(errors.HfHubHTTPError, match="already created") as error:
        api.create_repo("org/x", **options)
    assert status_of(error) == 409
    assert api.create_repo("org/x", exist_ok=True, **options).repo_id == "org/x"
    assert api.create_repo("mine", **options).repo_id == "ada/mine"
    assert hub.repositories() == [(kind, "ada/mine"), (kind, "org/x")]
    repository = hub.repository("org/x", kind)
    assert repository.private
    assert [commit.summary for commit in repository.commits] == ["initial commit"]
    assert b"*.safetensors filter=lfs" in repository.head().files[".gitattributes"]


def test_content_ids_are_gits():
    """Expected values by git itself."""
    blobs = {"a/b/x": b"hello\n", "a.c/y": b"1", "a-z": b"2", "a0": b"3"}
    trees = git.tree_ids({path: git.blob_id(content) for path, content in blobs.items()})
    assert trees["a/b"] == "e31a96220fbfbe7601ecc086a36b96dc27a8867e"
    assert trees[""] == "18d80444d8966357a88745d957e850278bd6593c"
    assert git.commit_id(trees[""], None, "one", "ada", 1_700_000_000) == "263151c037638b0d53a05c7f9d0022731c92864e"


def test_one_commit_holds_all_files(hub, api, repository, tmp_path):
    made = commit(api, FILES)
    initial, head = repository.commits
    assert (head.oid, head.summary, head.parent) == (made.oid, "files", initial.oid)
    assert {path: content for path, content in head.files.items() if path != ".gitattributes"} == FILES
    entries = {entry.path: entry for entry in api.list_repo_tree("org/x", recursive=True) if hasattr(entry, "lfs")}
    large = {path for path, entry in entries.items() if entry.lfs}
    assert large == {"assets/steps of rows.png", "model.safetensors", "long.txt", "text.bin"}
    assert all(entries[path].lfs.sha256 == hashlib.sha256(FILES[path]).hexdigest() for path in large)
    pointer = git.lfs_pointer(entries["text.bin"].lfs.sha256, len(FILES["text.bin"]))
    assert (entries["text.bin"].blob_id, entries["text.bin"].lfs.pointer_size) == (git.blob_id(pointer), len(pointer))
    # git on the other side must know them for large files too
    added = head.files[".gitattributes"].removeprefix(initial.files[".gitattributes"]).decode()
    assert [line.split()[0] for line in added.splitlines()] == [
        "assets/steps[[:space:]]of[[:space:]]rows.png",
        "long.txt",
    ]
    folder = api.snapshot_download("org/x", cache_dir=tmp_path)
    assert all(Path(folder, path).read_bytes() == content for path, content in FILES.items())
    information = api.model_info("org/x", files_metadata=True)
    assert (information.sha, information.tags) == (made.oid, ["a", "b", "license:mit"])
    assert (information.safetensors.total, information.config) == (6, {"model_type": "gut"})
    assert {file.rfilename: file.size for file in information.siblings if file.lfs} == {p: len(FILES[p]) for p in large}


def test_unchanged_files_make_no_commit(hub, api, repository):
    made = commit(api, FILES)
    before = len(hub.calls)
    assert commit(api, FILES).oid == made.oid
    assert {call.path for call in hub.calls[before:]} == {
        "/api/validate-yaml",
        "/api/models/org/x/preupload/main",
        "/org/x.git/info/lfs/objects/batch",
        "/api/models/org/x/revision/main",
    }
    # nor if a client sends them all the same
    status, answer = send_commit(hub, file_line("config.json", FILES["config.json"]))
    assert (status, answer["commitOid"], len(repository.commits)) == (200, made.oid, 2)
    assert commit(api, {**FILES, "config.json": b"{}"}).oid == repository.commits[2].oid != made.oid
    assert len(hub.called("lfs-upload")) == 4


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


def test_parent_commit(api, repository):
    parent = repository.head().oid
    first = commit(api, {"a.txt": b"1"}, parent_commit=parent).oid
    with pytest.raises(errors.HfHubHTTPError, match="A commit has happened since") as error:
        commit(api, {"a.txt": b"2"}, parent_commit=parent)
    assert (status_of(error), repository.head().oid) == (412, first)
    assert commit(api, {"a.txt": b"2"}, parent_commit=first).oid == repository.head().oid != first


def test_bad_cards_are_refused_early_and_late(hub, api, repository):
    readme = b"---\nlicense: mitt\n---\n"
    with pytest.raises(ValueError, match=r'Invalid metadata in README.md.\n- "license" must be one of'):
        commit(api, {**FILES, "README.md": readme})
    assert hub.called("preupload") == []
    status, answer = send_commit(hub, file_line("README.md", readme))
    assert status == 400
    assert '"license" must be one of' in answer["errors"][0]["message"]
    assert len(repository.commits) == 1
