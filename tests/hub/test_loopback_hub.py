"""The loopback Hub keeps what it is sent, shown by the real client and, where that is too polite, by plain HTTP."""

import hashlib
import json
from pathlib import Path

import pytest
from huggingface_hub import errors
from loopback_files import FILES, KINDS, PICTURE, commit, send_commit, status_of

from support.loopback_hub import git
from support.loopback_hub.plain import file_line, send

# huggingface_hub 2.4 sends large files in a way that its HTTP library has deprecated
pytestmark = [pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"), pytest.mark.slow]


@pytest.mark.parametrize("kind", KINDS)
def test_create(hub, api, kind):
    options = {"repo_type": kind, "space_sdk": "gradio" if kind == "space" else None}
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


@pytest.mark.parametrize(
    ("name", "type"),
    [(name, "model") for name in ("a--b", ".a", "a-", "a" * 97, "a/b", "a b", "a.git", "")]
    + [("a", "space"), ("a", "bucket")],
)
def test_create_refuses_what_cannot_be(hub, name, type):
    body = {"name": name, "organization": "org", "type": type}
    assert send(hub, "POST", "/api/repos/create", body)[0] == 400
    assert hub.repositories() == []


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


def test_large_files_are_what_they_claim(hub, repository):
    content, other = b"\0right", b"\0wrong"
    oid, batch = hashlib.sha256(content).hexdigest(), "/org/x.git/info/lfs/objects/batch"
    request = {"operation": "upload", "transfers": ["basic"], "objects": [{"oid": oid, "size": 6}]}
    named = ("lfsFile", {"path": "w.bin", "algo": "sha256", "oid": oid, "size": 6})
    assert send_commit(hub, file_line("a.txt"), named)[0] == 400
    actions = json.loads(send(hub, "POST", batch, request)[2])["objects"][0]["actions"]
    upload, verify = (actions[name]["href"].removeprefix(hub.endpoint) for name in ("upload", "verify"))
    assert send(hub, "PUT", upload, other, token=False)[0] == 400
    assert send(hub, "PUT", upload, content + b"!", token=False)[0] == 400
    assert send(hub, "PUT", upload, content)[0] == 400, "signed addresses take no token"
    assert send(hub, "PUT", upload[:-1] + "?", content, token=False)[0] == 403
    assert send(hub, "PUT", upload, iter([content]), token=False)[0] == 411, "chunked bodies have no length"
    assert send(hub, "POST", verify, {"oid": oid, "size": 6})[0] == 404
    assert repository.lfs == {}
    assert send(hub, "PUT", upload, content, token=False)[0] == 200
    assert send(hub, "POST", verify, {"oid": oid, "size": 7})[0] == 400
    assert send(hub, "POST", verify, {"oid": oid, "size": 6})[0] == 200
    assert json.loads(send(hub, "POST", batch, request)[2])["objects"] == [{"oid": oid, "size": 6}]
    assert send_commit(hub, ("lfsFile", {**named[1], "size": 7}))[0] == 400
    assert len(repository.commits) == 1
    assert send_commit(hub, named)[0] == 200
    assert repository.head().files["w.bin"] == content


@pytest.mark.parametrize(
    "lines",
    [[file_line(path)] for path in ("", "/a", "a//b", "../a", "a/../b", "./a", ".git/config", "a\\b", "a/")]
    + [
        [file_line("a"), file_line("a/b")],
        [file_line("a.png", PICTURE)],
        [file_line("a", b"1" * (10 << 20) + b"1")],
    ]
    + [[("file", {"path": "a", "encoding": "base64", "content": "YWJj?"})], [("copyFile", {"path": "a"})]]
    + [[file_line("a"), ("lfsFile", {"path": "b", "algo": "md5", "oid": "0", "size": 1})]],
)
def test_commits_are_refused_as_a_whole(hub, repository, lines):
    assert send_commit(hub, file_line("good.txt"), *lines)[0] == 400
    assert len(repository.commits) == 1
    assert send_commit(hub, file_line("good.txt"))[0] == 200


def test_commits_have_a_form(hub, repository):
    headless = ("file", {**file_line("a")[1], "summary": "s"})
    assert send_commit(hub, headless, header=False)[0] == 400
    assert send_commit(hub, header=False)[0] == 400
    assert send_commit(hub, file_line("a"), content_type="application/json")[0] == 400
    assert send_commit(hub, ("header", {"summary": " "}), file_line("a"), header=False)[0] == 400
    assert send(hub, "POST", "/api/models/org/x/commit/main", "{", Content_Type="application/x-ndjson")[0] == 400
    assert send_commit(hub, file_line("a"), query="?create_pr=1")[0] == 501
    assert len(repository.commits) == 1
