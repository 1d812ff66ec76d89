"""Files and folders of examples as data sets that `datasets` reads, checks of what it cannot know, and their columns.

A row of a file is a row of the data set, in the same order.
"""

import csv
import gzip
import json
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..benchmarks.files import matches, open_files
from ..utils import file_hash, near_matches, near_names, one_line, reader_versions, require_known, whole_file

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
# folders that hold the examples of a split
SPLIT_FOLDERS = frozenset({"train", "training", "validation", "valid", "val", "dev", "test", "testing", "eval"})
# the most different values of a column of labels or categories
FEW_VALUES = 50
SHOWN = 3
# rows of a CSV file that are written to the cache together
ROWS_TOGETHER = 10_000


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
        require_known("on_error", self.on_error, ["raise", "skip"])
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

    def open(self, path: Path) -> IO[str]:
        """The text of a file, with its line ends as they are."""
        return (gzip.open if path.suffix.lower() == ".gz" else open)(path, "rt", encoding=self.codec, newline="")


def format_of(path: str | Path) -> str:
    """The format of a file by the end of its name. Raises a ValueError for an unknown one."""
    found = FORMATS.get(suffix_of(path))
    if found is None or (found == "parquet" and str(path).lower().endswith(".gz")):
        raise ValueError(f"{path} has no known format: its name should end in one of {', '.join(FORMATS)} (or .gz)")
    return found


def suffix_of(path: str | Path) -> str:
    """The end of a file's name before .gz, in lower case."""
    return Path(str(path).lower().removesuffix(".gz")).suffix


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
    from datasets import Features, IterableDataset, Value, load_dataset

    path = Path(path)
    if not path.is_file():
        raise ValueError(
            f"{path} is a folder: name one file" if path.is_dir() else f"{path} does not exist{near_names(path)}"
        )
    kind, skips = format_of(path), reading.on_error == "skip" and not reading.streaming
    with reported(path, reading):
        if kind == "csv":
            with reading.open(path) as file:
                features = Features(dict.fromkeys(csv_table(file, path, reading)[0], Value("string")))
            if reading.streaming:
                given = {"path": path, "reading": reading}
                return IterableDataset.from_generator(csv_rows, features, gen_kwargs=given)
            if skips:
                return of_rows(path, csv_rows, reading, features=features)
            return saved_rows(path, reading, features)
        if kind == "conll":
            return of_rows(path, conll_rows, reading)
        if kind == "json":
            with reading.open(path) as file:
                start = file.read(1 << 16)
            if start.lstrip().startswith("{") and '"paragraphs"' in start and '"qas"' in start:
                return of_rows(path, squad_rows, reading)
            # datasets reads arrays in UTF-8 alone
            if skips or reading.codec != "utf-8-sig":
                return of_rows(path, json_rows, reading)
        options = {"cache_dir": reading.cache_dir, "streaming": reading.streaming}
        options |= {} if kind == "parquet" else {"encoding": reading.codec}
        options |= {"sample_by": "document" if whole_text else "line"} if kind == "text" else {}
        logger = logging.getLogger("datasets")
        level = logger.level
        # the error says what it logs
        logger.setLevel(logging.CRITICAL)
        try:
            return load_dataset(kind, data_files=str(path), split="train", **options)
        finally:
            logger.setLevel(level)


def of_rows(path: Path, rows_in: Any, reading: Reading, **options: Any) -> "Dataset":
    """The rows that a function finds in a file, in memory; a warning says which it left out."""
    from datasets import Dataset

    skipped: list[str] = []
    rows = list(rows_in(path, reading, skipped))
    if not rows:
        raise ValueError("it holds no rows")
    warn_of_skipped(path.name, skipped)
    # several types in a column, as its reader of JSON takes them
    return Dataset.from_list(rows, **options or {"on_mixed_types": "use_json"})


@contextmanager
def reported(path: Path, reading: Reading) -> Iterator[None]:
    """Report what a reader finds wrong with a file in one line, with its name and the remedy."""
    try:
        yield
    except Exception as error:
        cause = error.__cause__ or error
        if FORMATS.get(suffix_of(path)) == "json" and not isinstance(cause, UnicodeError):
            try:
                # datasets does not say which line
                list(json_rows(path, reading, None))
            except ValueError as found:
                cause = found
        message = "it holds no rows" if "corresponds to no data" in str(cause) else one_line(cause)
        if isinstance(cause, UnicodeError):
            byte = f"byte 0x{cause.object[cause.start]:02x}" if isinstance(cause, UnicodeDecodeError) else message
            message = (
                f"{byte} is not {reading.encoding}: pass the file's encoding, such as --encoding latin-1 or utf-16"
            )
        raise ValueError(f"{path.name}: {message}") from error


def warn_of_skipped(place: str, skipped: Sequence[str]) -> None:
    """Say which rows were left out."""
    if skipped:
        more = f" and {len(skipped) - SHOWN} more" if len(skipped) > SHOWN else ""
        warnings.warn(
            f"{place}: {len(skipped):,} broken row{'s were' if len(skipped) > 1 else ' was'} left out: "
            f"{'; '.join(skipped[:SHOWN])}{more}",
            stacklevel=3,
        )


def csv_table(file: IO[str], path: Path, reading: Reading) -> tuple[list[str], str, Any]:
    """The names of the columns of a CSV file, its delimiter, and its other rows, with an empty one after the last.

    Raises:
        ValueError: the delimiter seems to be another one, or names do not tell columns apart.
    """
    # a value may be a long text
    csv.field_size_limit(2**31 - 1)
    delimiter = reading.delimiter or ("," if suffix_of(path) == ".csv" else "\t")
    file.seek(0)
    start = file.readline()
    # a spreadsheet's way to name its delimiter
    if re.match(r"sep=.\s*$", start):
        delimiter = reading.delimiter or start[4]
    else:
        file.seek(0)
    rows = csv.reader(chain(file, [""]), delimiter=delimiter, quoting=QUOTINGS[reading.quoting])
    names = next(rows)
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
    return names, delimiter, rows


def csv_values(file: IO[str], path: Path, reading: Reading, skipped: list[str]) -> Iterator[list[str]]:
    """The values of each row of a CSV file that is not blank, as many as columns: a short row ends with empty ones."""
    names, delimiter, rows = csv_table(file, path, reading)
    width, fields, skips = len(names), names, reading.on_error == "skip"
    for fields in rows:
        if len(fields) > width and not (skips and fields[width:] == [""]):
            problem = f"line {rows.line_num} has {len(fields)} values, and the header {width} columns"
            if not skips:
                raise ValueError(
                    f"{problem}: quote values that hold {delimiter!r}, pass --quoting none if quotes are characters, "
                    "or --on_error skip"
                )
            skipped.append(problem)
        # a quoted value that is empty makes a row, white space makes none
        elif len(fields) > 1 or fields == [""] or "".join(fields).strip():
            yield [*fields[:width], *[""] * (width - len(fields))]
    # a quote takes whatever follows into its value, the empty row too
    if fields:
        raise ValueError("a quote is never closed: correct it, or pass --quoting none to read quotes as characters")


def csv_rows(path: Path, reading: Reading, skipped: list[str] | None = None) -> Iterator[dict[str, str]]:
    """The rows of a CSV file, all of whose values are texts.

    Args:
        skipped: takes what is wrong with rows that are left out.

    Raises:
        ValueError: a row has too many values, or a quote that is not closed in its row has merged rows.
    """
    skipped, fields, any_break = [] if skipped is None else skipped, None, False
    with reading.open(path) as file:
        names, delimiter, _ = csv_table(file, path, reading)
        for fields in csv_values(file, path, reading, skipped):
            any_break = any_break or "\n" in "".join(fields)
            yield dict(zip(names, fields, strict=True))
        if fields is None:
            raise ValueError("it holds no rows")
        if any_break:
            check_quotes(names, delimiter, lambda: csv_values(file, path, reading, []))


def check_quotes(names: Sequence[str], delimiter: str, rows: Callable[[], Iterator[list[str]]]) -> None:
    """Raise a ValueError where a quote that is closed in another row has merged rows.

    A line of a value is taken for a row if it has as many values, and these fit the columns of few different values.
    """
    single_lines, columns = 0, [set() for _ in names]
    for fields in rows():
        if "\n" not in "".join(fields):
            single_lines += 1
            for known, field in zip(columns, fields, strict=True):
                # more of them are no categories
                if len(known) <= FEW_VALUES:
                    known.add(field)
    categories = {
        place: known
        for place, known in enumerate(columns)
        if 0 < len(known) <= FEW_VALUES and (2 * len(known) <= single_lines or max(map(len, known)) <= 2)
    }
    if not categories and delimiter != "\t":
        return
    for number, fields in enumerate(rows(), 1):
        for place in [place for place, field in enumerate(fields) if "\n" in field]:
            first, *others = fields[place].splitlines()
            for part in [[*fields[:place], *first.split(delimiter)], *(line.split(delimiter) for line in others)]:
                if len(part) == len(names) and all(part[place] in known for place, known in categories.items()):
                    raise ValueError(
                        f"row {number}: a line of the quoted value of {names[place]!r}, {delimiter.join(part)!r:.60}, "
                        "looks like a row: a quote is closed in another row; pass --quoting none to read quotes as "
                        "characters, or correct the file"
                    )


def saved_rows(path: Path, reading: Reading, features: Any) -> "Dataset":
    """The rows of a CSV file, which are read once into a file of the cache."""
    import datasets
    import pyarrow as pa
    from datasets.arrow_writer import ArrowWriter
    from filelock import FileLock

    # the delimiter and the compression depend on the name
    name = fingerprint(file_hash(path), path.name, reading)
    saved = Path(reading.cache_dir or datasets.config.HF_DATASETS_CACHE) / "csv" / f"{name}.arrow"
    saved.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{saved}.lock"):
        if not saved.exists():
            rows = csv_rows(path, reading)
            with whole_file(saved) as partial, ArrowWriter(features=features, path=str(partial)) as writer:
                while some := [*islice(rows, ROWS_TOGETHER)]:
                    writer.write_table(pa.Table.from_pylist(some, features.arrow_schema))
    return datasets.Dataset.from_file(str(saved))


def json_rows(path: Path, reading: Reading, skipped: list[str] | None) -> Iterator[dict[str, Any]]:
    """The objects of a JSON file, an array or one on each line.

    Args:
        skipped: takes what is wrong with lines that are left out.

    Raises:
        ValueError: the array is no JSON, or a line is not, and none are left out.
    """
    with reading.open(path) as file:
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
            problem = f"line {number} is no JSON ({one_line(error)})"
            if reading.on_error != "skip":
                raise ValueError(f"{problem}; correct it, or pass --on_error skip") from error
            if skipped is not None:
                skipped.append(problem)
        else:
            yield row


def conll_rows(path: Path, reading: Reading, skipped: Any) -> Iterator[dict[str, list[str]]]:
    """The sentences of a file with a word and its tag, the last value, on each line, and empty lines between them."""
    sentence: list[list[str]] = []
    with reading.open(path) as lines:
        for number, line in enumerate([*lines, ""], 1):
            fields = line.split()
            if fields and not fields[0].startswith("-DOCSTART-"):
                if len(fields) < 2:
                    raise ValueError(f"line {number} is {line.strip()!r:.60}: expected a word and its tag")
                sentence.append(fields)
            elif sentence:
                yield {"tokens": [fields[0] for fields in sentence], "tags": [fields[-1] for fields in sentence]}
                sentence = []


def squad_rows(path: Path, reading: Reading, skipped: Any) -> Iterator[dict[str, Any]]:
    """The questions of SQuAD's nested JSON, each with its context and answers."""
    with reading.open(path) as file:
        paragraphs = [paragraph for article in json.load(file)["data"] for paragraph in article["paragraphs"]]
    for paragraph in paragraphs:
        for asked in paragraph["qas"]:
            answers = {key: [answer[key] for answer in asked.get("answers", [])] for key in ("text", "answer_start")}
            question = {"id": asked.get("id"), "question": asked["question"]}
            yield {**question, "context": paragraph["context"], "answers": answers}


def folder_texts(path: str | Path, reading: Reading, *, in_folders: bool) -> "Dataset":
    """The text files of a folder or zip file, with the columns `text`, `name` and, of folders by label, `label`.

    Args:
        in_folders: whether each text lies in a folder that names its label, and is called a text file. Else every file
            that is text in this encoding is one.

    Raises:
        ValueError: there are no such files, or one is not text in this encoding.
    """
    from datasets import Dataset

    path, rows, others = Path(path), [], []
    with open_files(path) as files:
        for name in files.files:
            called_text = matches(name.lower(), TEXT_FILES)
            if in_folders and "/" not in name:
                continue
            try:
                if in_folders and not called_text:
                    raise ValueError("it is not called a text")
                text = files.read(name).decode(reading.encoding).removeprefix("\ufeff")
                if "\0" in text:
                    raise ValueError(f"character {text.index(chr(0))} is a byte of zero, which is no text")
            except ValueError as error:
                if called_text and reading.on_error != "skip":
                    raise ValueError(f"{path.name}/{name}: {error}: pass the files' --encoding") from error
                others.append(name)
                continue
            # any line break is a new line, as in a file that is read as text
            row = {"text": text.replace("\r\n", "\n").replace("\r", "\n"), "name": name}
            rows.append({**row, "label": name.split("/")[-2]} if in_folders else row)
    remedy = "make a folder of text files for each label, or name a file of rows" if in_folders else "put texts there"
    if not rows:
        raise ValueError(f"{path} has no text files ({', '.join(TEXT_FILES)}): {remedy}")
    if others:
        warnings.warn(
            f"{path.name}: {len(others):,} of {len(rows) + len(others):,} files are no texts and are left out, such as "
            f"{others[0]}",
            stacklevel=3,
        )
    names = sorted((row["name"] for row in rows), key=lambda name: name.count("/"))
    if in_folders and names[0].count("/") < names[-1].count("/"):
        raise ValueError(f"{path} has texts at different depths, {names[0]} and {names[-1]}: {remedy}")
    tops = {name.split("/")[0].lower() for name in names if "/" in name}
    if len(tops) > 1 and "train" in tops and tops <= SPLIT_FOLDERS:
        raise ValueError(f"{path} has the splits {', '.join(sorted(tops))}: name the folder of each by itself")
    return Dataset.from_list(rows)


def digest(path: str | Path) -> str:
    """A digest of the content of a file or folder."""
    if not is_folder(path):
        return file_hash(path)
    content = sha256()
    with open_files(Path(path)) as files:
        for name in files.files:
            text = files.read(name)
            content.update(f"{name} {len(text)}\n".encode(errors="surrogatepass") + text)
    return content.hexdigest()


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


# columns of encoded examples; a column of difficulty has another name
LENGTH = "length"
RESERVED = frozenset(
    {
        *("text", "text_pair", "source", "target", "label", "labels", "input_ids", "attention_mask", "token_type_ids"),
        *("reference", "words", "word_labels", "word_ids", "question", "context", "answers", "choices", "number"),
        *("offsets", "start_positions", "end_positions", "prediction", "steps", "context_free_bits"),
    }
)


@dataclass(frozen=True)
class Columns:
    """The columns that examples are made of.

    A name with dots, such as `translation.de`, is a value within a column.

    Attributes:
        inputs: field of an example -> its column, or the columns of a field that is a list.
        label: the column of labels, or the columns of 0 and 1, one for each of several labels; None without labels.
        slices: the columns of difficulty.
    """

    inputs: Mapping[str, str | tuple[str, ...]]
    label: str | tuple[str, ...] | None = None
    slices: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of the inputs, one after another."""
        found = ((name,) if isinstance(name, str) else name for name in self.inputs.values())
        return tuple(column for names in found for column in names)


def has_column(found: Sequence[str], name: str) -> bool:
    return name in found or name.partition(".")[0] in found


def require_columns(named: Mapping[str, str], found: Sequence[str], place: str) -> None:
    """Raise a ValueError for a column that a table does not have, or that two flags name.

    Args:
        named: flag, or a number after it -> column.
    """
    first: dict[str, str] = {}
    for flag, name in named.items():
        if not has_column(found, name):
            hint = near_matches(name, found) or "; name one of them"
            raise ValueError(f"{flag} is {name!r}: {place} has the columns {', '.join(map(repr, found))}{hint}")
        if first.setdefault(name, flag) != flag:
            raise ValueError(f"{first[name]} and {flag} are both {name!r}: name different columns")


def chosen(flag: str, name: str | None, usual: Sequence[str], found: Sequence[str], place: str, what: str) -> str:
    """The column that a flag names, or else the first with a usual name. Raises a ValueError if there is none."""
    name = name or next((other for other in usual if other in found), None)
    if name is None:
        raise ValueError(f"{place} has the columns {', '.join(found)}: name the one with {what} with --{flag}")
    return name


def check_slices(names: Sequence[str], found: Sequence[str], place: str) -> tuple[str, ...]:
    """The columns of difficulty. Raises a ValueError for one that is not there, or has a name that examples use."""
    for name in names:
        require_columns({"slice_by": name}, found, place)
        if name in RESERVED:
            raise ValueError(f"slice_by is {name!r}, a name that examples use themselves: rename the column")
    return tuple(dict.fromkeys(names))


def value_of(row: Mapping[str, Any], name: str) -> Any:
    """The value of a column, or within it where the name has dots; None where it is absent."""
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def text_of(row: Mapping[str, Any], name: str) -> str:
    """The text of a column. Raises a ValueError, which does not name the row, if it is empty or no text."""
    text = value_of(row, name)
    if not isinstance(text, str):
        column = name.rpartition(".")[0]
        within = value_of(row, column) if column else None
        hint = f": {column} has {', '.join(map(repr, within))}" if isinstance(within, Mapping) else ""
        raise ValueError(f"{name} is {text!r:.60}, which is no text{hint}")
    if not text.strip():
        raise ValueError(f"{name} is empty")
    if "\0" in text:
        raise ValueError(f"{name} has a byte of zero, which is no text: pass the file's --encoding, such as utf-16")
    return text


def slices_of(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, str]:
    """The values of difficulty, as texts. Raises a ValueError, which does not name the row, for none."""
    found = {name: value_of(row, name) for name in names}
    for name, value in found.items():
        if not isinstance(value, str | int | float) or str(value) in ("", "inf", "-inf", "nan"):
            raise ValueError(f"{name} is {value!r:.60}: expected a number or text (slice_by)")
    return {name: str(value) for name, value in found.items()}


def narrowest(values: Sequence[str]) -> list[Any]:
    """Texts as integers or floats, if all of them are such."""
    for kind in (int, float):
        try:
            numbers = [kind(value) for value in values]
        except ValueError:
            continue
        if kind is int and any(abs(number) >= 2**63 for number in numbers):
            continue
        return numbers
    return list(values)


# lists of words, which a tokenizer reads with a space between them, as a text; S tokens, W words


def words_of(row: Mapping[str, Any], column: str) -> list[str]:
    """The words of an example. Raises a ValueError, which does not name the row, if they are none."""
    words = value_of(row, column)
    if not isinstance(words, list) or not words:
        raise ValueError(f"{column} is {words!r:.60}: expected a list of words, as files of JSON and Parquet have them")
    wrong = [word for word in words if not isinstance(word, str) or not word.strip()]
    if wrong:
        raise ValueError(f"{column} has the word {wrong[0]!r:.60}: expected a text that is not empty")
    return words


def words_of_tokens(words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> list[int]:
    """The number of the word that each token (S,) is of, -1 for none; a token of several is of the last.

    Args:
        offsets: the characters of each token in the words with a space between them.
    """
    owners = [-1] * (sum(map(len, words)) + len(words))
    start = 0
    for number, word in enumerate(words):
        owners[start : start + len(word)] = [number] * len(word)
        start += len(word) + 1
    return [max(owners[start:end], default=-1) for start, end in offsets]


def first_tokens(word_ids: Sequence[int]) -> dict[int, int]:
    """Number of a word -> place of its first token, of the words that have one, by the words of tokens (S,)."""
    before, found = -1, {}
    for place, number in enumerate(word_ids):
        if number > before:
            found[number] = place
        before = max(before, number)
    return found
