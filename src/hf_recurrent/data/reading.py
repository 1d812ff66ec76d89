"""Files and folders of examples as data sets: `datasets` reads them, and we check what it cannot know.

A row of a file is a row of the data set, in the same order.
"""

import csv
import gzip
import json
import logging
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..benchmarks.files import matches, open_files, reader_versions
from ..files import file_hash, one_line
from ..templating import near_names, require_known

if TYPE_CHECKING:
    from datasets import Dataset

FORMATS = {
    **{".csv": "csv", ".tsv": "csv", ".tab": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"},
    **{".parquet": "parquet", ".txt": "text", ".text": "text", ".md": "text"},
    **{".conll": "conll", ".iob": "conll", ".bio": "conll", ".iob2": "conll"},
}
TEXT_FILES = ("*.txt", "*.md", "*.text")
# what else may stand between the values of a file
DELIMITERS = {",": "','", ";": "';'", "\t": "'\\t'", "|": "'|'"}
QUOTINGS = {"minimal": csv.QUOTE_MINIMAL, "none": csv.QUOTE_NONE}
ON_ERROR = ("raise", "skip")
# folders that hold the examples of a split
SPLIT_FOLDERS = frozenset({"train", "training", "validation", "valid", "val", "dev", "test", "testing", "eval"})
# the most different values of a column of labels or categories
FEW_VALUES = 50
SHOWN = 3
# of values of a CSV file that the header has no column for
MORE = "values without a column"


@dataclass(frozen=True)
class Reading:
    """How files are read; names and values are those of the flags.

    Attributes:
        encoding: of text.
        delimiter: between the values of a CSV file; None: by the end of the file's name.
        quoting: "minimal", or "none" to read quotes as characters like others.
        on_error: "raise", or "skip" to leave broken rows out and count them.
        cache_dir: folder for what is read, instead of the cache of `datasets`.
        streaming: whether rows are read anew each time, without a copy.
    """

    encoding: str = "utf-8"
    delimiter: str | None = None
    quoting: str = "minimal"
    on_error: str = "raise"
    cache_dir: str | None = None
    streaming: bool = False

    def __post_init__(self) -> None:
        require_known("on_error", self.on_error, ON_ERROR)
        require_known("quoting", self.quoting, list(QUOTINGS))
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", self.delimiter.replace("\\t", "\t"))
            if len(str(self.delimiter)) != 1:
                raise ValueError(f"delimiter is {self.delimiter!r}: expected one character, such as ;")
        try:
            "".encode(self.encoding)
        except LookupError as error:
            raise ValueError(
                f"encoding is {self.encoding!r}: expected one that Python knows, such as latin-1"
            ) from error

    @property
    def codec(self) -> str:
        """The encoding, without a byte order mark in UTF-8."""
        return "utf-8-sig" if self.encoding.lower().replace("_", "-") in ("utf-8", "utf8") else self.encoding


def format_of(path: str | Path) -> str:
    """The format of a file by the end of its name. Raises a ValueError for an unknown one."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    packed = suffixes[-1:] == [".gz"]
    found = FORMATS.get((suffixes[:-1] if packed else suffixes)[-1:][0]) if suffixes[: len(suffixes) - packed] else None
    if found is None or (packed and found == "parquet"):
        raise ValueError(f"{path} has no known format: its name should end in one of {', '.join(FORMATS)} (or .gz)")
    return found


def is_folder(path: str | Path) -> bool:
    """Whether a path names a folder or, by its end, a zip file."""
    return Path(path).is_dir() or str(path).lower().endswith(".zip")


def read_rows(path: str | Path, reading: Reading, *, whole_text: bool = False) -> "Dataset":
    """The rows of a file as a data set.

    Values of a CSV file are texts. A text file has a row for each line or, with `whole_text`, one row, with the column
    `text`; any line break is read as a new line. A file in CoNLL's format has rows of `tokens` and `tags`, and SQuAD's
    nested JSON a row for each question.

    Raises:
        ValueError: the file cannot be read, or its rows are merged by a quote that is never closed.
    """
    path = Path(path)
    if not path.is_file():
        if path.is_dir():
            inside = sorted(entry.name for entry in path.iterdir() if entry.is_file())
            held = f"; it holds {', '.join(inside[:SHOWN])}" if inside else ""
            raise ValueError(f"{path} is a folder: name one file{held}")
        raise ValueError(f"{path} does not exist{near_names(path)}")
    kind = format_of(path)
    skips = reading.on_error == "skip" and not reading.streaming
    with reported(path, reading):
        if kind == "conll":
            return of_rows(path, conll_rows(path, reading), reading)
        if kind == "json" and is_squad(path, reading):
            return of_rows(path, squad_rows(path, reading), reading)
        if kind == "csv":
            return read_csv(path, reading, skips)
        # datasets reads arrays in UTF-8 alone
        if kind == "json" and (skips or reading.codec != "utf-8-sig"):
            skipped: list[str] | None = [] if skips else None
            found = of_rows(path, json_rows(path, reading, skipped), reading)
            warn_of_skipped(path.name, skipped or ())
            return found
        options = {
            "json": {"encoding": reading.codec},
            "text": {"encoding": reading.codec, "sample_by": "document" if whole_text else "line"},
        }
        return load(kind, path, reading, **options.get(kind, {}))


def load(kind: str, path: Path, reading: Reading, **options: Any) -> "Dataset":
    """The data set of one file by a loader of `datasets`."""
    from datasets import load_dataset

    options |= {"cache_dir": reading.cache_dir, "streaming": reading.streaming}
    return load_dataset(kind, data_files=str(path), split="train", **options)


def of_rows(path: Path, rows: Iterable[Mapping[str, Any]], reading: Reading) -> "Dataset":
    from datasets import Dataset

    found = list(rows)
    if not found:
        raise ValueError("it holds no rows")
    # as its reader of JSON does
    return Dataset.from_list(found, on_mixed_types="use_json")


@contextmanager
def reported(path: Path, reading: Reading) -> Iterator[None]:
    """Report what a reader finds wrong with a file in one line, with its name and the remedy."""
    logger = logging.getLogger("datasets")
    level = logger.level
    # the error says what it logs
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    except Exception as error:
        cause = error.__cause__ or error
        raise ValueError(f"{path.name}: {problem(cause, path, reading)}") from error
    finally:
        logger.setLevel(level)


def problem(error: BaseException, path: Path, reading: Reading) -> str:
    """What is wrong with a file, and the remedy."""
    if isinstance(error, UnicodeError):
        byte = f"byte 0x{error.object[error.start]:02x}" if isinstance(error, UnicodeDecodeError) else one_line(error)
        return f"{byte} is not {reading.encoding}: pass the file's encoding, such as --encoding latin-1 or utf-16"
    message = one_line(error).removeprefix("Error tokenizing data. C error: ")
    if "EOF inside string" in message:
        return f"{message}: a quote is never closed; correct it, or pass --quoting none to read quotes as characters"
    if "fields in line" in message:
        return f"{message}; correct it, pass --quoting none if quotes are characters, or --on_error skip"
    if "corresponds to no data" in message or "No columns to parse" in message:
        return "it holds no rows"
    if FORMATS.get(path.suffix.lower()) == "json" and "is no JSON" not in message:
        try:
            # datasets does not say which line
            for _ in json_rows(path, reading):
                pass
        except ValueError as other:
            return problem(other, path, reading)
    return message


def open_text(path: Path, reading: Reading) -> Any:
    return (gzip.open if path.suffix.lower() == ".gz" else open)(path, "rt", encoding=reading.codec, newline="")


def json_rows(path: Path, reading: Reading, skipped: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """The objects of a JSON file, an array or one on each line.

    Args:
        skipped: takes what is wrong with lines that are left out; None: it is an error.

    Raises:
        ValueError: the array is no JSON, or a line is not, and none are left out.
    """
    with open_text(path, reading) as file:
        text = file.read()
    if text.lstrip().startswith("["):
        try:
            yield from json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"it is no JSON ({one_line(error)}): correct it") from error
        return
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError(f"{line[:40]} is no object")
            # half of a surrogate pair is no text
            json.dumps(row, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            if skipped is None:
                raise ValueError(
                    f"line {number} is no JSON ({one_line(error)}); correct it, or pass --on_error skip"
                ) from error
            skipped.append(f"line {number} ({one_line(error)})")
        else:
            yield row


def warn_of_skipped(place: str, skipped: Sequence[str]) -> None:
    """Say which rows were left out."""
    if skipped:
        more = f" and {len(skipped) - SHOWN} more" if len(skipped) > SHOWN else ""
        warnings.warn(
            f"{place}: {len(skipped):,} broken rows were left out: {'; '.join(skipped[:SHOWN])}{more}", stacklevel=3
        )


def read_csv(path: Path, reading: Reading, skips: bool) -> "Dataset":
    """The rows of a CSV file, all of whose values are texts."""
    from datasets import Dataset, Features, Value

    names, delimiter, before = csv_layout(path, reading)
    features = Features({name: Value("string") for name in names})
    options: dict[str, Any] = {"encoding": reading.encoding, "sep": delimiter, "keep_default_na": False}
    options |= {"quoting": QUOTINGS[reading.quoting], "header": None, "skiprows": before + 1}
    if not skips:
        found = load("csv", path, reading, features=features, on_bad_lines="error", names=names, **options)
    else:
        import pandas as pd

        skipped: list[str] = []
        table = pd.read_csv(
            path,
            engine="python",
            dtype=str,
            names=[*names, MORE],
            index_col=False,
            on_bad_lines=lambda row: skipped.append(delimiter.join(row)[:60]),
            **options,
        )
        table = table.fillna("")
        skipped += [delimiter.join(row)[:60] for row in table[table[MORE] != ""].values]
        warn_of_skipped(path.name, [repr(row) for row in skipped])
        table = table[table[MORE] == ""].drop(columns=MORE)
        found = Dataset.from_pandas(table, features=features, preserve_index=False)
    if reading.quoting != "none" and not reading.streaming:
        check_quotes(found, names, delimiter)
    return found


def csv_layout(path: Path, reading: Reading) -> tuple[list[str], str, int]:
    """The names of the columns of a CSV file, its delimiter, and the lines before the header.

    Raises:
        ValueError: the delimiter seems to be another one, or names do not tell columns apart.
    """
    # a value may be a long text
    csv.field_size_limit(2**31 - 1)
    by_name = "," if ".csv" in [suffix.lower() for suffix in path.suffixes] else "\t"
    delimiter, before = reading.delimiter or by_name, 0
    with open_text(path, reading) as file:
        start = file.readline()
        # a spreadsheet's way to name its delimiter
        if re.match(r"sep=.\s*$", start):
            delimiter, before = reading.delimiter or start[4], 1
        else:
            file.seek(0)
        rows = csv.reader(file, delimiter=delimiter, quoting=QUOTINGS[reading.quoting])
        names, first = next(rows, []), next(rows, [])
    if not any(names):
        raise ValueError("it is empty: the first line should name the columns")
    other = next((mark for mark in DELIMITERS if len(names) == 1 and mark in names[0]), None)
    if other is not None and reading.delimiter is None:
        raise ValueError(f"the only column is {names[0]!r:.60}: pass --delimiter {DELIMITERS[other]}")
    # pandas leaves the name of its index empty
    names = [name or f"column {number}" for number, name in enumerate(names, 1)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"the columns {', '.join(map(repr, twice))} are there more than once: name each column once")
    if len(first) > len(names) and reading.on_error != "skip":
        # pandas would take the first ones for the numbers of the rows
        raise ValueError(
            f"row 1 has {len(first)} values, and the header {len(names)} columns: quote values that hold "
            f"{delimiter!r}, or pass --on_error skip"
        )
    return names, delimiter, before


def check_quotes(rows: "Dataset", names: Sequence[str], delimiter: str) -> None:
    """Raise a ValueError where a quote that is never closed has merged rows.

    A value with line breaks is taken for merged rows if one of its lines has the values of a whole row, and these fit
    the columns that have few different values, such as labels.
    """
    import pyarrow.compute as pc

    table = rows.data.table if rows._indices is None else rows.flatten_indices().data.table
    merged = {name: pc.indices_nonzero(pc.match_substring(table[name], "\n")).to_pylist() for name in names}
    if not any(merged.values()):
        return
    several = set().union(*merged.values())
    categories: dict[int, set[str]] = {}
    for place, name in enumerate(names):
        values = [value for row, value in enumerate(table[name].to_pylist()) if row not in several]
        found = set(values)
        if found and len(found) <= FEW_VALUES and (2 * len(found) <= len(values) or max(map(len, found)) <= 2):
            categories[place] = found
    for place, name in enumerate(names):
        for row in merged[name]:
            first, *others = table[name][row].as_py().splitlines()
            before = [table[other][row].as_py() for other in names[:place]]
            for fields in ([*before, *first.split(delimiter)], *(line.split(delimiter) for line in others)):
                fits = all(fields[column] in known for column, known in categories.items() if column < len(fields))
                if len(fields) == len(names) and fits and (categories or delimiter == "\t"):
                    raise ValueError(
                        f"row {row + 1}: the quoted value of {name!r} spans {len(others) + 1} lines, of which "
                        f"{delimiter.join(fields)!r:.60} looks like a row: a quote is closed in another row; pass "
                        "--quoting none to read quotes as characters, or correct the file"
                    )


def conll_rows(path: Path, reading: Reading) -> Iterator[dict[str, list[str]]]:
    """The sentences of a file with a word and its tag, the last value, on each line, and empty lines between them."""
    words: list[str] = []
    tags: list[str] = []
    with open_text(path, reading) as lines:
        for number, line in enumerate([*lines, ""], 1):
            fields = line.split()
            if fields and not fields[0].startswith("-DOCSTART-") and len(fields) < 2:
                raise ValueError(f"line {number} is {line.strip()!r:.60}: expected a word and its tag")
            if fields and not fields[0].startswith("-DOCSTART-"):
                words.append(fields[0])
                tags.append(fields[-1])
            elif words:
                yield {"tokens": words, "tags": tags}
                words, tags = [], []


def is_squad(path: Path, reading: Reading) -> bool:
    """Whether a JSON file is nested as SQuAD's, rather than rows."""
    with open_text(path, reading) as file:
        start = file.read(1 << 16)
    return start.lstrip().startswith("{") and '"paragraphs"' in start and '"qas"' in start


def squad_rows(path: Path, reading: Reading) -> Iterator[dict[str, Any]]:
    """The questions of SQuAD's nested JSON, each with its context and answers."""
    with open_text(path, reading) as file:
        articles = json.load(file)["data"]
    for article in articles:
        for paragraph in article["paragraphs"]:
            for asked in paragraph["qas"]:
                answers = asked.get("answers", [])
                yield {
                    "id": asked.get("id"),
                    "question": asked["question"],
                    "context": paragraph["context"],
                    "answers": {key: [answer[key] for answer in answers] for key in ("text", "answer_start")},
                }


def folder_texts(path: str | Path, reading: Reading, *, in_folders: bool, any_file: bool = False) -> "Dataset":
    """The text files of a folder or zip file, with the columns `text`, `name` and, of folders by label, `label`.

    Args:
        in_folders: whether each text lies in a folder that names its label.
        any_file: whether every file that is text in this encoding counts, rather than those called so.

    Raises:
        ValueError: there are no such files, or one is not text in this encoding.
    """
    path, rows, others = Path(path), [], []
    remedy = "make a folder of text files for each label" if in_folders else "put texts there"
    with open_files(path) as files:
        found = [name for name in files.files if "/" in name or not in_folders]
        texts = [name for name in found if matches(name.lower(), TEXT_FILES)]
        any_file = any_file and not in_folders
        for name in found if any_file else texts:
            try:
                text = files.read(name).decode(reading.encoding).removeprefix("\ufeff")
                if "\0" in text:
                    raise ValueError(f"character {text.index(chr(0))} is a byte of zero, which is no text")
            except ValueError as error:
                if name in texts and reading.on_error != "skip":
                    raise ValueError(f"{path.name}/{name}: {error}: pass the files' --encoding") from error
                others.append(name)
                continue
            # any line break is a new line, as in a file that is read as text
            rows.append({"text": text.replace("\r\n", "\n").replace("\r", "\n"), "name": name})
        tables = sorted(name for name in files.files if FORMATS.get(Path(name).suffix.lower(), "text") != "text")
        others += [] if any_file else sorted(set(found) - set(texts))
    if not rows:
        hint = f", or name a file of rows, such as {path / tables[0]}" if tables and path.is_dir() else ""
        raise ValueError(f"{path} has no text files ({', '.join(TEXT_FILES)}): {remedy}{hint}")
    if others:
        warnings.warn(
            f"{path.name}: {len(others):,} of {len(rows) + len(others):,} files are no texts and are left out, such as "
            f"{others[0]}",
            stacklevel=3,
        )
    check_folders([row["name"] for row in rows], path, remedy, in_folders)
    if in_folders:
        rows = [{**row, "label": row["name"].split("/")[-2]} for row in rows]
    return of_rows(path, rows, reading)


def check_folders(names: Sequence[str], path: Path, remedy: str, in_folders: bool) -> None:
    """Raise a ValueError where folders are those of splits, or texts by label lie at different depths."""
    tops = {name.split("/")[0] for name in names if "/" in name}
    if len(tops) > 1 and "train" in {top.lower() for top in tops} and {top.lower() for top in tops} <= SPLIT_FOLDERS:
        unpacked = "" if path.is_dir() else "unpack it, and "
        raise ValueError(
            f"{path} has the splits {', '.join(sorted(tops))}: {unpacked}name the folder of each by itself"
        )
    shallowest, deepest = (choose(names, key=lambda name: name.count("/")) for choose in (min, max))
    if in_folders and shallowest.count("/") < deepest.count("/"):
        raise ValueError(f"{path} has texts at different depths, {shallowest} and {deepest}: {remedy}")


def digest(path: str | Path) -> str:
    """A digest of the content of a file or folder."""
    if not is_folder(path):
        return file_hash(path)
    from hashlib import sha256

    found = sha256()
    with open_files(Path(path)) as files:
        for name in files.files:
            content = files.read(name)
            found.update(f"{name} {len(content)}\n".encode(errors="surrogatepass") + content)
    return found.hexdigest()


def load_hub_dataset(place: str, name: str, config: str | None, revision: str | None, **options: Any) -> Any:
    """The splits of a data set of the Hub or a folder; `place` is what messages call it.

    Raises:
        ValueError: there is no such data set or configuration, or it cannot be loaded.
    """
    from datasets import load_dataset

    try:
        return load_dataset(name, config, revision=revision, **options)
    # what is wrong with a data set shows in whatever way its loader fails
    except Exception as error:
        cause = error.__cause__ or error
        raise ValueError(
            f"{place} does not load: {type(cause).__name__}: {one_line(cause)}; check the name and the network, and "
            "--token if it is not public"
        ) from error


def fingerprint(*facts: Any) -> str:
    """A name for derived data in the cache: with the versions of the readers, so that a newer one reads again."""
    from datasets.fingerprint import Hasher

    return Hasher.hash([*facts, *reader_versions()])
