"""A user's own files of examples, and the task that reads them."""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from hf_recurrent.tasks import get_task


@pytest.fixture(scope="session", autouse=True)
def data_cache(tmp_path_factory):
    """What tests read stays out of the user's cache."""
    import datasets

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("datasets"))
        yield


def write_file(path: Path, content: Any, encoding: str = "utf-8") -> str:
    """Write bytes, a text, or rows in the format that the file's name ends in -> the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.name.lower()
    if not isinstance(content, bytes | str):
        rows = content if isinstance(content, Dataset) else list(content)
        if name.endswith(".parquet"):
            (rows if isinstance(rows, Dataset) else Dataset.from_list(rows)).to_parquet(path)
            return str(path)
        content = json.dumps(rows) if name.endswith(".json") else "".join(json.dumps(row) + "\n" for row in rows)
        if name.endswith((".csv", ".tsv")):
            out = io.StringIO()
            table = csv.DictWriter(out, list(rows[0]), delimiter="\t" if name.endswith(".tsv") else ",")
            table.writeheader()
            table.writerows(rows)
            content = out.getvalue()
    path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return str(path)


def task_on(tag: str, train_file: str | Path | None = None, **options: Any) -> Any:
    """A task on a user's own data."""
    kind = get_task(tag)
    return kind(kind.arguments(train_file=None if train_file is None else str(train_file), **options))


def classes(train_file: str, **options: Any) -> Any:
    """The examples of a classifier; without other files, half of them are held out."""
    others = ("validation_file", "test_file", "validation_split", "dataset_name")
    if not any(name in options for name in others):
        options = {"validation_split_percentage": 50, **options}
    return task_on("text-classification", train_file, **options).source


def rows_of(data: Any, *splits: str) -> list[dict[str, Any]]:
    """The examples of some splits, or of all."""
    chosen: Iterable[str] = splits or data.splits
    return [row for split in chosen for row in data.splits[split]]


def flags(settings: Mapping[str, Any]) -> list[str]:
    """Settings as the flags of a command; None leaves one out."""
    found = []
    for name, value in settings.items():
        values = value if isinstance(value, list) else [json.dumps(value) if isinstance(value, dict) else value]
        found += [] if value is None else [f"--{name}", *map(str, values)]
    return found


TOWNS, VERBS, NAMES = ("Rome", "Oslo", "Paris", "Bern"), ("sings", "sleeps", "runs"), ("Anna", "Ben", "Eva", "Dan")
UNITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
# labels of `tagged`
IOB = ("B-PER", "I-PER", "O")


def question(number: int) -> dict[str, Any]:
    """Who lives where, of two people; a third one, for whom every third question asks, does not occur."""
    here, there = TOWNS[number % 4], TOWNS[(number // 4 + number + 1) % 4]
    context = f"Anna lives in {here}. Ben lives in {there}."
    asked, town = (("Anna", here), ("Ben", there), ("Carla", None))[number % 3]
    start = context.find(f"{asked} lives in ") + len(asked) + 10
    answers = {"text": [], "answer_start": []} if town is None else {"text": [town], "answer_start": [start]}
    return {"question": f"Where is {asked}?", "context": context, "answers": answers, "asked": asked}


def choice(number: int) -> dict[str, Any]:
    """A verb to repeat."""
    endings = {f"ending{place}": f"{verb}." for place, verb in enumerate(VERBS)}
    name = NAMES[number % 4]
    return {"sent1": f"{name} {VERBS[number % 3]}.", "sent2": f"{name} always", **endings, "label": number % 3}


def tagged(number: int) -> dict[str, Any]:
    """Words and labels of names, by a word that has all labels."""
    words, tags = ((["Anna", "May"], ["B-PER", "I-PER"]), (["May"], ["B-PER"]))[number % 2]
    return {"tokens": [*words, "went", "in", "May", "."], "ner_tags": [*tags, *"OOOO"], "year": number % 3}


def spoken(number: int) -> dict[str, Any]:
    """The digits of a number as words, and as they are."""
    words = " ".join(UNITS[int(digit)] for digit in str(number))
    return {"words": words, "digits": str(number), "size": len(str(number))}
