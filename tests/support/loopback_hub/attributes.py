"""Which files go to large file storage: by `.gitattributes`, by size, or because they are binary."""

import re

SIZE_LIMIT = 10 * 1024 * 1024
_PATTERNS = """
*.7z *.arrow *.bin *.bz2 *.ckpt *.ftz *.gz *.h5 *.joblib *.lfs.* *.mlmodel *.model *.msgpack *.npy *.npz *.onnx *.ot
*.parquet *.pb *.pickle *.pkl *.pt *.pth *.rar *.safetensors saved_model/**/* *.tar.* *.tar *.tflite *.tgz *.wasm *.xz
*.zip *.zst *tfevents*
"""
_DATASET_PATTERNS = """
*.lz4 *.mds *.pcm *.wav *.mp3 *.flac *.ogg *.bmp *.gif *.png *.tiff *.jpg *.jpeg *.webp
"""


def initial_attributes(kind: str) -> bytes:
    patterns = _PATTERNS + (_DATASET_PATTERNS if kind == "dataset" else "")
    return "".join(_line(pattern) for pattern in patterns.split()).encode()


def with_path(attributes: bytes, path: str) -> bytes:
    """`.gitattributes` with one more path, as the Hub adds an LFS file that no pattern covers."""
    if attributes and not attributes.endswith(b"\n"):
        attributes += b"\n"
    escaped = re.sub(r"([\[\]*?\\])", r"\\\1", path).replace(" ", "[[:space:]]")
    return attributes + _line(escaped).encode()


def is_tracked(attributes: bytes, path: str) -> bool:
    """Whether `.gitattributes` sends `path` to large file storage; of several lines, the last decides."""
    tracked = False
    for line in attributes.decode(errors="replace").splitlines():
        pattern, *flags = line.split() or ["#"]
        if not pattern.startswith("#") and _matches(pattern, path):
            for flag in flags:
                if flag in ("filter=lfs", "-filter", "!filter"):
                    tracked = flag == "filter=lfs"
    return tracked


def is_binary(content: bytes, *, truncated: bool = False) -> bool:
    """Whether bytes are no UTF-8 text; a truncated sample may end inside a character."""
    if b"\0" in content:
        return True
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return not (truncated and error.end == len(content) and error.reason == "unexpected end of data")
    return False


def upload_mode(attributes: bytes, path: str, size: int, sample: bytes) -> str:
    """`lfs` or `regular`, before the content is known."""
    if size == 0:
        return "regular"
    large = size > SIZE_LIMIT or is_tracked(attributes, path) or is_binary(sample, truncated=size > len(sample))
    return "lfs" if large else "regular"


def _line(pattern: str) -> str:
    return f"{pattern} filter=lfs diff=lfs merge=lfs -text\n"


def _matches(pattern: str, path: str) -> bool:
    """Git's wildcards; a pattern without a slash is about the file's name, in any folder."""
    subject = path if "/" in pattern else path.rpartition("/")[2]
    tokens = re.findall(r"\[\[:space:\]\]|\*\*/|\*\*|\*|\?|\\.|.", pattern.lstrip("/"))
    wildcards = {"[[:space:]]": r"\s", "**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    expression = "".join(
        wildcards.get(token) or re.escape(token[1] if len(token) == 2 and token[0] == "\\" else token)
        for token in tokens
    )
    return re.fullmatch(expression, subject) is not None
