"""The configs of long documents, their parameters, and where their documents come from.

- `python`: what the paper does with the repositories of GitHub, done with the packages of the Python standard library
  that is installed: all source files of a package, one after the other, are one document. It needs no network.
- `pg19`, `arxiv_math`, `github`: the paper's three corpora or their likes, from the Hub or from files.
- `folder`: any text files.

The paper's own arXiv and GitHub corpora were never published. What stands for them here: the arXiv part of proof-pile
(LaTeX sources of mathematics papers), and the Python files of CodeParrot's crawl of GitHub, by repository.
"""

import codecs
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..parameters import Parameter, integer, text

CONFIGS = {
    "python": "source files of the installed Python standard library, a document for each package or module",
    "pg19": "books published before 1919, a document each; from the Hub (11 GB of text) or data_dir",
    "arxiv_math": "LaTeX sources of mathematics papers, a document each; from the Hub (10 GB of text) or data_dir",
    "github": "source code, a document for each repository; from the Hub (50 GB of Python files) or data_dir",
    "folder": "text files of a folder or zip file, data_dir, a document each",
}
# data sets on the Hub that need no script to be read
DATASETS = {
    "pg19": "emozilla/pg19",
    "arxiv_math": "hoskinson-center/proof-pile",
    "github": "codeparrot/codeparrot-clean",
}
_PATTERNS = {"pg19": ("*.txt",), "arxiv_math": ("*.tex",), "github": ("*",), "folder": ("*.txt",)}


def _share(value: Any) -> float:
    if isinstance(value, (bool, str)) or not 0.0 <= float(value) <= 1.0:
        raise ValueError
    return float(value)


def _patterns(value: Any) -> tuple[str, ...]:
    patterns = (value,) if isinstance(value, str) else tuple(value)
    if not patterns or not all(isinstance(pattern, str) and pattern.strip() for pattern in patterns):
        raise ValueError
    return patterns


def _encoding(value: Any) -> str:
    try:
        # some codecs turn bytes into bytes
        if not isinstance("".encode(text(value)).decode(value), str):
            raise ValueError
        codecs.lookup(value)
    except LookupError as error:
        raise ValueError from error
    return value


_share.expected = "a number from 0 to 1"
_patterns.expected = 'one or more patterns of file names, such as ["*.txt","*.md"]'
_encoding.expected = "the name of a text encoding, such as utf-8 or latin-1"

PARAMETERS = {
    "seed": Parameter(integer(0), "every seed divides the documents in another way, where they come without splits"),
    "validation_share": Parameter(
        _share,
        "share of the documents in the validation split, by a hash of their names, where they come without splits",
    ),
    "test_share": Parameter(_share, "the same for the test split"),
    "dataset": Parameter(text, "data set on the Hub, where no data_dir is given"),
    "revision": Parameter(text, "branch, tag or commit of that data set"),
    "patterns": Parameter(_patterns, "names of the text files in data_dir; hidden files are never read"),
    "encoding": Parameter(_encoding, "encoding of the text files in data_dir"),
}
# those that have a meaning for the user's own files
FILE_PARAMETERS = ("seed", "validation_share", "test_share", "patterns", "encoding")

# packages differ much in size: with this seed, the splits have 87, 5 and 8 percent of the bytes of Python 3.11's
_PYTHON_SEED = 164
_SHARES = {"validation_share": 0.05, "test_share": 0.1}


def _defaults(config: str) -> Mapping[str, Any]:
    files = {"seed": 0, **_SHARES, "patterns": _PATTERNS[config], "encoding": "utf-8"}
    hub = {"dataset": DATASETS[config], "revision": "main"} if config in DATASETS else {}
    return MappingProxyType({**hub, **files})


DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "python": MappingProxyType({"seed": _PYTHON_SEED, **_SHARES}),
        **{config: _defaults(config) for config in _PATTERNS},
    }
)


def complete(config_name: str, params: dict[str, Any]) -> dict[str, Any]:
    """No parameter depends on another here."""
    return params
