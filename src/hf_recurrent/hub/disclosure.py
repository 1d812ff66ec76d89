"""One check of every file that is published, whatever it is: no tokens, no local paths, no pointers to others' code."""

import json
import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from ..files import read_json, read_yaml
from ..registry import ARCHITECTURES
from .figures import figure_problems
from .secrets import TOKEN, disclosures, masked, tokens

FENCED_CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
# a vocabulary may hold any string, but no token
VOCABULARIES = frozenset({"vocab.json", "vocab.txt", "merges.txt"})
# fields by which the libraries of the Hub find classes and functions in files of code
CODE_FIELDS = frozenset({"auto_map", "custom_pipelines", "custom_generate"})
# files, classes and compiled kernels of another repository
OTHERS_CODE = re.compile(r"[\w.-]+/[\w.-]+--[\w.]+")
KERNELS = re.compile(r"\w*_implementation(_internal)?")


def check_disclosure(folder: Path) -> None:
    """Read every file of a folder that is to be published as its users will.

    Raises:
        ValueError: local paths, access tokens, texts hidden in figures, pointers to others' code, and files that cannot
            be read.
    """
    problems = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            problems += [f"{masked(name)}: {masked(problem)}" for problem in file_problems(path)]
    if problems:
        raise ValueError("this cannot be published:\n" + "\n".join(f"- {text}" for text in dict.fromkeys(problems)))


def file_problems(path: Path) -> Iterator[str]:
    """The problems of one file: what its kind of reader finds, and tokens among its bytes and in its name."""
    problems = []
    try:
        problems += READERS.get(path.suffix, _bytes)(path)
    except (ValueError, OSError, SafetensorError) as error:
        problems.append(f"it cannot be read ({' '.join(str(error).split())})")
    if not any(TOKEN in problem for problem in problems):
        problems += _bytes(path)
    yield from (f"its name holds {problem}" for problem in tokens(path.name.encode()))
    yield from problems


def _bytes(path: Path) -> list[str]:
    if not path.stat().st_size:
        return []
    # weights may be larger than memory
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return [f"it holds {problem}" for problem in tokens(content)]


def _json(path: Path) -> Iterator[str]:
    data = read_json(path)
    if path.name in VOCABULARIES:
        yield from _token_problems(data)
        return
    if path.name == "tokenizer.json" and isinstance(data, dict):
        yield from _token_problems(data.pop("model", None))
    yield from _text_problems(data)
    if path.name == "config.json" and isinstance(data, dict) and _is_own(data):
        del data["auto_map"]
    yield from _code_problems(data)


def _is_own(config: dict[str, Any]) -> bool:
    """Whether a config's `auto_map` is the one that staging writes."""
    model_type = config.get("model_type")
    family = ARCHITECTURES.get(model_type) if isinstance(model_type, str) else None
    return family is not None and config.get("auto_map") == dict(family.auto_map)


def _yaml(path: Path) -> Iterator[str]:
    yield from _text_problems(read_yaml(path))
    # its comments
    yield from _text(path)


def entries(value: Any, place: str = "", key: str | None = None) -> Iterator[tuple[str, str | None, Any]]:
    """Place, key (None where there is none) and value of nested data and all that is in it, from outside to inside."""
    yield place, key, value
    if isinstance(value, dict):
        for name, item in value.items():
            yield from entries(item, f"{place}.{name}".lstrip("."), str(name))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from entries(item, f"{place}[{position}]")


def _text_problems(data: Any) -> Iterator[str]:
    """Local paths and tokens in the keys and values of nested data."""
    for place, key, value in entries(data):
        yield from (f"the key {place} holds {problem}" for problem in disclosures(key or ""))
        if isinstance(value, str):
            yield from (f"{place} holds {problem}" for problem in disclosures(value))


def _token_problems(vocabulary: Any) -> Iterator[str]:
    """Tokens in a vocabulary, however its file spells them."""
    content = json.dumps(vocabulary, ensure_ascii=False).encode(errors="replace")
    return (f"its vocabulary holds {problem}" for problem in tokens(content))


def _code_problems(data: Any) -> Iterator[str]:
    for place, key, value in entries(data):
        if key in CODE_FIELDS or (key == "tokenizer_class" and not isinstance(value, str | None)):
            yield f"{place} points at code that is not part of what is published: take it out"
        elif isinstance(value, str) and (
            OTHERS_CODE.fullmatch(value) or (KERNELS.fullmatch(key or "") and "/" in value)
        ):
            yield f"{place} points at code of another repository ({value}): take it out"


def _weights(path: Path) -> Iterator[str]:
    try:
        with safe_open(path, "np") as weights:
            metadata, names = weights.metadata() or {}, list(weights.keys())
    except SafetensorError as error:
        yield f"it is not a safetensors file ({error})"
        return
    for key, value in metadata.items():
        yield from (f"its metadata {key!r} holds {problem}" for text in (key, value) for problem in disclosures(text))
    yield from (f"the name of a weight holds {problem}" for name in names for problem in disclosures(name))


def _figure(path: Path) -> list[str]:
    return figure_problems(path.read_bytes())


def _text(path: Path) -> Iterator[str]:
    text = path.read_bytes().decode()
    if path.name not in VOCABULARIES:
        # a data set's card shows examples in fences, which may speak of any place
        yield from (f"it holds {problem}" for problem in disclosures(FENCED_CODE.sub("", text)))


def _table(path: Path) -> Iterator[str]:
    """Tokens in a table, which its file holds compressed; whatever else people write in texts is theirs."""
    # all benchmarks are slow to import, and a model has no tables
    from ..benchmarks.files import open_parquet, parquet_rows

    with open_parquet(str(path)) as file:
        schema = file.schema_arrow.to_string(truncate_metadata=False)
    yield from (f"its schema holds {problem}" for problem in tokens(schema.encode()))
    for number, row in enumerate(parquet_rows(str(path)), start=1):
        for place, _, value in entries(row):
            content = value.encode(errors="surrogatepass") if isinstance(value, str) else value
            if isinstance(content, bytes) and tokens(content):
                yield f"row {number}, {place} holds {TOKEN}"
                return


READERS = {
    ".json": _json,
    ".yaml": _yaml,
    ".safetensors": _weights,
    ".png": _figure,
    ".parquet": _table,
    **dict.fromkeys((".md", ".txt", ".jinja", ".py", ".html"), _text),
}
