"""Files to publish, and short ways to send them."""

import json

from huggingface_hub import CommitOperationAdd as Add

from support.loopback_hub.plain import commit_body, send

KINDS = ["model", "dataset"]
# a picture is binary, but no pattern of a new model's .gitattributes covers it
PICTURE = b"\x89PNG\r\n\x1a\n\0" + bytes(range(256))
FILES = {
    "README.md": b"---\nlicense: mit\ntags: [a, b]\n---\n# Card\n",
    "config.json": b'{"model_type": "gut"}',
    "assets/steps of rows.png": PICTURE,
    "model.safetensors": b"\x3b"
    + bytes(7)
    + b'{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}  '
    + bytes(24),
    "long.txt": b"long\n" * (1 << 21) + b"and more",
    "text.bin": b"by its name alone",
    "empty.bin": b"",
}


def commit(api, files, repo="org/x", **options):
    operations = [Add(path, content) for path, content in files.items()]
    return api.create_commit(repo, operations, commit_message="files", **options)


def send_commit(hub, *lines, header=True, content_type="application/x-ndjson", query=""):
    path, body = f"/api/models/org/x/commit/main{query}", commit_body(*lines, header=header)
    status, _, answer = send(hub, "POST", path, body, Content_Type=content_type)
    return status, json.loads(answer)


def status_of(error):
    return error.value.response.status_code
