"""The Text task, IMDB, from the authors' archive or the data set on the Hub.

- The authors' archive (aclImdb): `train/neg/*.txt`, `train/pos/*.txt`, `test/neg/*.txt`, `test/pos/*.txt`, in a folder
  or a zip file, or in the folder `aclImdb` there. The reviews without labels, `train/unsup`, are not read.
- The data set on the Hub: `plain_text/<split>-*.parquet` with the columns `text` and `label`.

Negative reviews come first, as in both. Texts stay as they are, HTML line ends included; bytes that are no UTF-8 are
data (`byte_text`).
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..benchmark import Benchmark, Plan
from ..byte_text import BYTES
from ..files import Archive, Folder, open_files, parquet_length, split_tables_folder
from ..sampling import Shard, digest, parts
from .common import CUT_MEANING, PARAMETERS, task_info, text_example
from .hub_tables import FOLDER, Places, divide, table_rows, train_and_test

_ROOTS = ("", "aclImdb/")
_COLUMNS = ("text", "label")


# the place of each is its label
FOLDERS = ("neg", "pos")
PATTERN = "*.txt"


# the path of a text file in its folder or zip file, and its label
Text = tuple[str, int]


def labelled(files: Folder | Archive, base: str) -> dict[str, list[Text]]:
    """The texts in each of the folders under `base` (empty, or with a slash at its end), by their names."""
    return {
        f"{base}{folder}": [
            (name, label) for name in files.inside(f"{base}{folder}") if name.endswith(PATTERN.removeprefix("*"))
        ]
        for label, folder in enumerate(FOLDERS)
    }


def held_out(total: int, num_validation: int) -> frozenset[int]:
    """The places of the validation examples among the `total` examples of train: those whose hashes are the smallest.

    Raises:
        ValueError: nothing is left to train on.
    """
    if num_validation >= total:
        raise ValueError(
            f"num_validation={num_validation}: train has {total} examples, and some must stay there: give fewer"
        )
    return frozenset(sorted(range(total), key=lambda place: digest("lra", "text", place))[:num_validation])


def _plan_tables(params: Mapping[str, Any], tables: Mapping[str, Sequence[str]]) -> Plan:
    num_validation = params["num_validation"]
    splits: dict[str, list[tuple[str, Places]]] = {
        split: [(path, None) for path in tables[split]] for split in ("train", "test")
    }
    if num_validation is None:
        splits["validation"] = splits["test"]
    else:
        counts = [parquet_length(path) for path in tables["train"]]
        for split, places in divide(counts, held_out(sum(counts), num_validation)).items():
            splits[split] = [part for part in zip(tables["train"], places, strict=True) if part[1]]
    return {
        split: [Shard(table_examples, (*part, params["max_bytes"]), part[:1]) for part in members]
        for split, members in splits.items()
    }


def _plan_texts(params: Mapping[str, Any], data_dir: Path) -> Plan:
    with open_files(data_dir) as files:
        found = {base: {split: labelled(files, f"{base}{split}/") for split in ("train", "test")} for base in _ROOTS}
    missing = {
        base: [folder for folders in own.values() for folder, texts in folders.items() if not texts]
        for base, own in found.items()
    }
    best = min(_ROOTS, key=lambda base: len(missing[base]))
    if missing[best]:
        raise ValueError(
            f"data_dir={str(data_dir)!r} has no {', '.join(f'{folder}/{PATTERN}' for folder in missing[best])}: "
            f"expected train and test, each with {' and '.join(FOLDERS)}, there or in its folder aclImdb"
        )
    splits = {split: [text for texts in folders.values() for text in texts] for split, folders in found[best].items()}
    num_validation = params["num_validation"]
    if num_validation is None:
        splits["validation"] = splits["test"]
    else:
        texts = splits["train"]
        for split, (places,) in divide([len(texts)], held_out(len(texts), num_validation)).items():
            splits[split] = [texts[place] for place in sorted(places)]
    root, is_folder = str(data_dir), data_dir.is_dir()
    return {
        split: [
            Shard(
                text_examples,
                (root, part, params["max_bytes"]),
                tuple(str(data_dir / name) for name, _ in part) if is_folder else (root,),
            )
            for part in parts(texts)
        ]
        for split, texts in splits.items()
    }


def text_examples(root: str, texts: Sequence[Text], max_bytes: int) -> Iterator[dict[str, object]]:
    """The examples of texts.

    Raises:
        ValueError: a file cannot be read, or is empty.
    """
    with open_files(Path(root)) as files:
        for name, label in texts:
            content = files.read(name)
            if not content:
                raise ValueError(f"{root}: {name} is empty: is the data set whole? Remove the file if it is")
            yield text_example(content, label, max_bytes)


def table_examples(path: str, places: Places, max_bytes: int) -> Iterator[dict[str, object]]:
    """The examples of a table of the Hub.

    Raises:
        ValueError: the table is damaged, or a review has no text or label.
    """
    for place, row in table_rows(path, places, _COLUMNS):
        text, label = (row[column] for column in _COLUMNS)
        if not isinstance(text, str) or not text:
            raise ValueError(f"{place}: expected text in 'text', got {text!r:.80}")
        if type(label) is not int or label not in range(len(FOLDERS)):
            raise ValueError(f"{place}: expected 0 or 1 in 'label', got {label!r:.80}")
        yield text_example(text.encode(), label, max_bytes)


class Reviews(Benchmark):
    """Film reviews, in favour or not (Maas et al., 2011)."""

    parameters = PARAMETERS
    generated = False
    export_configs = ()
    file_configs = ("text",)
    file_parameters = ("max_bytes", "num_validation")
    file_names = "train/pos, train/neg, test/pos and test/neg with *.txt, as in aclImdb"
    info = task_info(
        "text",
        title="Long Range Arena: Text",
        description="Film reviews, read byte by byte; the label is whether they are in favour.",
        label_names=("negative", "positive"),
        languages=("en",),
        text_columns=("text",),
        slice_columns=("length", "full_length"),
        column_meanings={
            "text": "the review as it was posted, HTML line ends included, cut to `max_bytes`; a byte b that is no "
            "part of UTF-8 text stands there as U+10FF00 + b",
            "length": CUT_MEANING.format("the text"),
            "full_length": "bytes of the whole review",
        },
        vocabulary=BYTES,
        modality="bytes",
        synthetic=False,
        license="other (IMDB reviews, copyright of who wrote them)",
        limits=(
            "There is no validation split: with `num_validation` unset, the test split stands in for it, as in all "
            "published code. Numbers chosen by it are too good.",
            "The authors cut reviews after 1,000 bytes, or after 4,000 for some models; here it is 4,096 as in the "
            "code of the dynamic halt paper.",
        ),
    )

    def default_folder(self, config_name: str, params: Mapping[str, Any]) -> Path:
        return split_tables_folder(params, FOLDER)

    def plan_files(self, config_name: str, params: Mapping[str, Any], folder: Path) -> Plan:
        """The shards of train, validation and test; without `num_validation`, validation is test.

        Raises:
            ValueError: folders or tables are missing, or validation would leave nothing to train on.
        """
        tables = train_and_test(folder)
        planned = _plan_tables(params, tables) if tables else _plan_texts(params, folder)
        return {split: planned[split] for split in ("train", "validation", "test") if planned[split]}
