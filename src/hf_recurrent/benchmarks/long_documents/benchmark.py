"""Long documents: their configs, their parameters, and where they are read from.

- `python`: the paper's treatment of the repositories of GitHub, applied to the packages of the Python standard library
  that is installed: all source files of a package, one after the other, are one document. It needs no network.
- `pg19`, `arxiv_math`, `github`: the paper's three corpora or their likes, from the Hub or from files.
- `folder`: any text files.

The paper's own arXiv and GitHub corpora were never published. Here the arXiv part of proof-pile (LaTeX sources of
mathematics papers) and the Python files of CodeParrot's crawl of GitHub, by repository, are in their place.

Text files: each is a document; for `github`, each folder is one, with all its files. If a zip file has a single folder,
and files in that itself, it is one repository. Where there are folders named `train`, `validation` or `test`, they are
the splits; otherwise a hash of each document's name decides its split.
A file of no bytes is no document. In `github`, files with a zero byte near their beginning are binary, as for git, and
left out.

Tables: see `tables.py`. Splits are those that the tables' paths name, such as `data/train-00000-of-00023.parquet`.
"""

import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..benchmark import Benchmark, Config, Plan, make_info
from ..byte_text import BYTES
from ..files import Archive, Folder, matches, open_files, snapshot
from ..parameters import Check, Parameter, fraction, integer, text
from ..sampling import Shard, parts
from ..tokenizers import byte_tokenizer
from . import tables
from .documents import (
    SPLITS,
    Document,
    divide,
    joined,
    library_documents,
    library_folder,
    make_example,
    shares,
    split_of,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

# data sets on the Hub that need no script to be read
DATASETS = {
    "pg19": "emozilla/pg19",
    "arxiv_math": "hoskinson-center/proof-pile",
    "github": "codeparrot/codeparrot-clean",
}
_FILE_PATTERNS = {"pg19": ("*.txt",), "arxiv_math": ("*.tex",), "github": ("*",), "folder": ("*.txt",)}


def _patterns(value: Any) -> tuple[str, ...]:
    patterns = (value,) if isinstance(value, str) else tuple(value)
    if not patterns or not all(isinstance(pattern, str) and pattern.strip() for pattern in patterns):
        raise ValueError
    return patterns


def _encoding(value: Any) -> str:
    try:
        "".encode(text(value))
    except LookupError as error:
        raise ValueError from error
    return value


_PATTERNS = Check(_patterns, 'one or more patterns of file names, such as ["*.txt","*.md"]')
_ENCODING = Check(_encoding, "the name of a text encoding, such as utf-8 or latin-1")

PARAMETERS = {
    "seed": Parameter(integer(0), "every seed divides the documents in another way, where they come without splits"),
    "validation_share": Parameter(
        fraction,
        "share of the documents in the validation split, by a hash of their names, where they come without splits",
    ),
    "test_share": Parameter(fraction, "the same for the test split"),
    "dataset": Parameter(text, "data set on the Hub, where no data_dir is given"),
    "revision": Parameter(text, "branch, tag or commit of that data set"),
    "patterns": Parameter(_PATTERNS, "names of the text files in data_dir; hidden files are never read"),
    "encoding": Parameter(_ENCODING, "encoding of the text files in data_dir"),
}
# the parameters that count for the user's own files
FILE_PARAMETERS = ("seed", "validation_share", "test_share", "patterns", "encoding")

# packages differ much in size: with this seed, the splits have 87, 5 and 8 percent of the bytes of Python 3.11's
_PYTHON_SEED = 164
_SHARES = {"validation_share": 0.05, "test_share": 0.1}


def _defaults(config: str) -> Mapping[str, Any]:
    files = {"seed": 0, **_SHARES, "patterns": _FILE_PATTERNS[config], "encoding": "utf-8"}
    hub = {"dataset": DATASETS[config], "revision": "main"} if config in DATASETS else {}
    return MappingProxyType({**hub, **files})


CONFIGS = {
    "python": Config(
        "source files of the installed Python standard library, a document for each package or module",
        {"seed": _PYTHON_SEED, **_SHARES},
    ),
    "pg19": Config(
        "books published before 1919, a document each; from the Hub (11 GB of text) or data_dir", _defaults("pg19")
    ),
    "arxiv_math": Config(
        "LaTeX sources of mathematics papers, a document each; from the Hub (10 GB of text) or data_dir",
        _defaults("arxiv_math"),
    ),
    "github": Config(
        "source code, a document for each repository; from the Hub (50 GB of Python files) or data_dir",
        _defaults("github"),
    ),
    "folder": Config("text files of a folder or zip file, data_dir, a document each", _defaults("folder")),
}

# where git looks for a zero byte
_BINARY_PREFIX = 8000


class Origin(NamedTuple):
    """The place of documents, and the value of their column `source`."""

    config: str
    params: Mapping[str, Any]
    root: str
    source: str


def _plan_tables(origin: Origin, found: list[str]) -> Plan:
    own = tables.by_split(sorted(found))
    if None in own:
        splits = {split: own[None] for split in shares(origin.params)}
    else:
        splits = {split: own[split] for split in SPLITS if split in own}
    planned = {}
    for split, names in splits.items():
        paths = [str(Path(origin.root) / name) for name in names]
        # the files of a repository may be in any table
        groups = [tuple(paths)] if origin.config == "github" else [(path,) for path in paths]
        planned[split] = [
            Shard(table_examples, (origin, group, split if None in own else None), group) for group in groups
        ]
    return planned


def _plan_texts(origin: Origin, files: Folder | Archive) -> Plan:
    patterns = origin.params["patterns"]
    wanted = [name for name, size in files.files.items() if matches(name, patterns)]
    filled = [name for name in wanted if files.files[name]]
    if not filled:
        kinds = sorted({PurePosixPath(name).suffix or PurePosixPath(name).name for name in files.files})
        shown = ", ".join(kinds[:8]) + (", ..." if len(kinds) > 8 else "") or "no files"
        raise ValueError(
            f"data_dir={origin.root!r}: no text in it: {len(wanted)} of {len(files.files)} files match "
            f"patterns={list(patterns)!r}, and none of them has text (found: {shown}); give patterns that the names of "
            "your files match"
        )
    if origin.config == "github" and isinstance(files, Archive) and files.folder is not None and files.inside(""):
        # one repository, unless its folders are those of splits
        folders = {name.split("/")[0] for name in files.files if "/" in name}
        if not folders or not folders <= set(SPLITS):
            return _shards(origin, divide([Document(files.folder, tuple(filled))], origin.params))
    named = [split for split in SPLITS if any(name.startswith(f"{split}/") for name in files.files)]
    if not named:
        return _shards(origin, divide(_documents(origin, filled), origin.params))
    own = {split: [name for name in filled if name.startswith(f"{split}/")] for split in named}
    for split, names in own.items():
        if not names:
            raise ValueError(
                f"data_dir={origin.root!r}: the folder {split} has no text that matches patterns={list(patterns)!r}: "
                "put text into it, or rename it"
            )
    beside = [name for name in filled if name.split("/")[0] not in named]
    if beside:
        raise ValueError(
            f"data_dir={origin.root!r} has folders for splits ({', '.join(named)}), but {beside[0]} and "
            f"{len(beside) - 1} more text files lie outside of them: move them, or leave them out by patterns="
        )
    splits = {
        split: _documents(origin, [name.removeprefix(f"{split}/") for name in names]) for split, names in own.items()
    }
    return _shards(origin, splits, in_folders=True)


def _documents(origin: Origin, names: list[str]) -> list[Document]:
    if origin.config != "github":
        return [Document(name, (name,)) for name in names]
    repositories: dict[str, list[str]] = {}
    for name in names:
        if "/" not in name:
            raise ValueError(
                f"data_dir={origin.root!r}: {name} is in no folder: a repository is a folder with its files; move it, "
                "or leave it out by patterns="
            )
        repositories.setdefault(name.split("/")[0], []).append(name)
    return [Document(name, tuple(parts)) for name, parts in repositories.items()]


def _shards(origin: Origin, splits: Mapping[str, list[Document]], in_folders: bool = False) -> Plan:
    """The shards of text files; with `in_folders`, paths are relative to the folder of their split."""
    planned, root = {}, Path(origin.root)
    for split, documents in splits.items():
        folder = f"{split}/" if in_folders else ""
        planned[split] = []
        for part in parts(documents):
            names = (root / folder / name for document in part for name in document.parts)
            paths = tuple(map(str, names)) if root.is_dir() else (origin.root,)
            planned[split].append(Shard(text_examples, (origin, part, folder), paths))
    return planned


def table_examples(origin: Origin, paths: tuple[str, ...], split: str | None) -> Iterator[dict[str, object]]:
    """The documents of tables; with `split`, only those whose names belong to it."""
    for name, whole in tables.named_texts(
        origin.config, paths, lambda name: split is None or split_of(name, origin.params) == split
    ):
        if whole:
            yield make_example(name, origin.source, whole)


def text_examples(origin: Origin, documents: Sequence[Document], folder: str) -> Iterator[dict[str, object]]:
    """The documents of text files, whose paths are relative to a folder of the root."""
    with open_files(Path(origin.root)) as files:
        for document in documents:
            whole = joined(_part_texts(origin, files, [folder + part for part in document.parts]))
            if whole:
                yield make_example(document.name, origin.source, whole)


def _part_texts(origin: Origin, files: Folder | Archive, parts: list[str]) -> Iterator[str]:
    for part in parts:
        content = files.read(part)
        if origin.config == "github" and b"\0" in content[:_BINARY_PREFIX]:
            continue
        if origin.config == "python":
            try:
                yield content.decode()
            except UnicodeDecodeError:
                # a source file may declare another encoding; the library has such files for tests only
                continue
        else:
            # line ends stay as they are
            encoding = origin.params["encoding"]
            try:
                yield content.decode(encoding)
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{origin.root}: {part}: byte {error.start} (0x{content[error.start]:02x}) is not {encoding}: "
                    "convert the file, leave it out by patterns=, or name its encoding by encoding= (latin-1 reads any "
                    "file)"
                ) from error


class LongDocuments(Benchmark):
    """Whole books, papers, repositories and packages, one an example."""

    parameters = PARAMETERS
    generated = False
    file_configs = ("pg19", "arxiv_math", "github", "folder")
    file_parameters = FILE_PARAMETERS
    export_configs = ("python",)
    # an example can be as large as a library: few are held at a time
    writer_batch_size = 16
    info = make_info(
        PARAMETERS,
        CONFIGS,
        default_config="python",
        name="long_documents",
        title="Long Documents",
        description="Whole books, papers, repositories and packages, one an example, for language models that carry "
        "what they have read beyond their window.",
        text_columns=("text",),
        name_columns=("name", "source"),
        slice_columns=("num_bytes", "num_characters", "num_words"),
        text_type="large_string",
        slice_type="int64",
        column_meanings={
            "text": "the whole document, with its line ends as they are; no two documents share a file",
            "name": "the package, module or group of modules, book, paper, repository or file that it is",
            "source": "where it is from: the version of Python, the data set and its commit, or the folder",
            "num_bytes": "bytes of the text in UTF-8",
            "num_characters": "characters (Unicode code points) of the text",
            "num_words": "words of the text: its parts between white space",
        },
        vocabulary=BYTES,
        synthetic=False,
        paper="https://arxiv.org/abs/2203.07852",
        citation="DeLesley Hutchins, Imanol Schlag, Yuhuai Wu, Ethan Dyer and Behnam Neyshabur. Block-Recurrent "
        "Transformers. NeurIPS, 2022.",
        bibtex="""@inproceedings{hutchins2022block,
  title = {Block-Recurrent Transformers},
  author = {Hutchins, DeLesley and Schlag, Imanol and Wu, Yuhuai and Dyer, Ethan and Neyshabur, Behnam},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2022},
  url = {https://arxiv.org/abs/2203.07852}
}""",
        license="PSF-2.0 (the texts of config `python`, copyright of the Python Software Foundation; those of other "
        "configs have licences of their own)",
        license_link="https://docs.python.org/3/license.html",
        limits=(
            "The texts of config `python` are those of the interpreter that makes them: another version of Python, or "
            "an installation that leaves modules out, gives others.",
            "Splits are by document, but a package may hold a copy of what is a module elsewhere.",
            "It is not the paper's GitHub corpus, which is not public: one language, one project, 12 MB.",
        ),
    )

    def default_folder(self, config_name: str, params: Mapping[str, Any]) -> Path:
        if config_name == "python":
            return library_folder()
        if config_name not in DATASETS:
            raise ValueError(
                f"config {config_name!r} reads your own files: give data_dir, a folder or zip file of texts"
            )
        folder = snapshot(params["dataset"], params["revision"], [f"*{suffix}" for suffix in tables.SUFFIXES])
        if not tables.among(Folder(folder).files):
            raise ValueError(
                f"dataset={params['dataset']!r} has no files that end with {', '.join(tables.SUFFIXES)}: name another "
                "one, or download it and give data_dir"
            )
        return folder

    def plan_files(self, config_name: str, params: Mapping[str, Any], folder: Path) -> Plan:
        """The shards of every split.

        Raises:
            ValueError: there are no documents, or none for a split.
        """
        if config_name == "python":
            origin = Origin(config_name, params, str(folder), f"python-{platform.python_version()}")
            return _shards(origin, divide(library_documents(folder), params))
        if "dataset" in params:
            # a snapshot of the Hub is called by its commit
            origin = Origin(config_name, params, str(folder), f"{params['dataset']}@{folder.name}")
            return _plan_tables(origin, tables.among(Folder(folder).files))
        origin = Origin(config_name, params, str(folder), folder.name)
        with open_files(folder) as files:
            if config_name in DATASETS and isinstance(files, Folder) and tables.only(files.files):
                return _plan_tables(origin, tables.among(files.files))
            return _plan_texts(origin, files)

    def build_tokenizer(self) -> "PreTrainedTokenizerFast":
        """The tokenizer of bytes; nothing is put before or after a document."""
        return byte_tokenizer()
