"""A user's own examples: files, a data set of the Hub, or a task of GLUE, with their labels and facts."""

import hashlib
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..benchmarks.info import BenchmarkInfo
from .columns import Columns, classification_columns, pair_columns
from .examples import ONE, PAIR, SOURCE, Reading, Scan, dataset_of, scan
from .labels import Labels, labels_of
from .places import DatasetPlace, Place, place_of
from .tasks import TASKS

if TYPE_CHECKING:
    from datasets import Dataset

# tokens of an example: a difficulty that every text has
LENGTH = "length"
# the data set's own configuration, where it has one only
DEFAULT_CONFIG = "default"
# draws of examples that are held out
HOLD_OUT_SEED = 0


@dataclass(frozen=True)
class TextSource:
    """Where examples come from, and which columns they have. Nothing is read before `splits` or `info` is.

    Attributes:
        pairs: whether examples are sources and targets, rather than texts with labels.
        task_name: a task of `TASKS`.
        dataset_name, dataset_config_name, revision: a data set of the Hub, or a folder that `datasets` loads.
        files: split -> file, folder or zip file, instead of a data set.
        split_names: "train", "validation" and "test" -> names of the data set's splits; None: that of the same name.
        text_columns, label_column, source_column, target_column, slice_by: names of columns; those with usual names if
            none are given.
        label_names: names of the labels in the order of their ids.
        label_delimiter: text between the labels of an example that has several.
        do_regression: whether labels are numbers to predict; None: as the labels look.
        validation_split_percentage: share of the training examples that is held out where there is no other split.
        encoding: of text files.
        on_error: "raise" or "skip".
        max_train_samples: limit of the training examples.
        cache_dir: folder for the examples, instead of the cache of `datasets`.
        token: access token of the Hub.
    """

    pairs: bool = False
    task_name: str | None = None
    dataset_name: str | None = None
    dataset_config_name: str | None = None
    revision: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    split_names: Mapping[str, str | None] = field(default_factory=dict)
    text_columns: tuple[str, ...] = ()
    label_column: str | None = None
    source_column: str | None = None
    target_column: str | None = None
    slice_by: tuple[str, ...] = ()
    label_names: tuple[str, ...] = ()
    label_delimiter: str | None = None
    do_regression: bool | None = None
    validation_split_percentage: int = 5
    encoding: str = "utf-8"
    on_error: str = "raise"
    cache_dir: str | None = None
    token: str | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The name of the data for readers: that of the task, the data set or the training file."""
        if self.task_name is not None:
            return self.task_name
        if self.dataset_name is not None:
            return Path(self.dataset_name).name
        return Path(next(iter(self.files.values()))).stem

    @property
    def place(self) -> str:
        """The data as messages call them."""
        if self.task_name is not None:
            return f"task {self.task_name}"
        if self.dataset_name is not None:
            return f"data set {self.dataset_name}"
        return Path(next(iter(self.files.values()))).name

    @property
    def config(self) -> str:
        """The configuration of the data set."""
        if self.dataset_config_name is not None:
            return self.dataset_config_name
        return self.task_name or DEFAULT_CONFIG

    @property
    def dataset_id(self) -> str | None:
        """The data set's repository on the Hub; None for files."""
        if self.task_name is not None:
            return TASKS[self.task_name].dataset
        local = self.dataset_name is None or os.path.isdir(self.dataset_name)
        return None if local or "/" not in self.dataset_name else self.dataset_name

    @cached_property
    def places(self) -> dict[str, Place]:
        """Split -> its place, the training examples first.

        Raises:
            ValueError: a file, data set or split that is not there, or no training examples.
        """
        if self.files:
            return {split: place_of(path, self.encoding) for split, path in self.files.items()}
        return {split: DatasetPlace(rows, split, self.label_column or "label") for split, rows in self.loaded.items()}

    @property
    def load_options(self) -> dict[str, Any]:
        """Further arguments of `datasets.load_dataset`."""
        return {}

    @cached_property
    def loaded(self) -> dict[str, "Dataset"]:
        """The splits of the data set, by the names that a run has for them."""
        task = None if self.task_name is None else TASKS[self.task_name]
        name, config = (self.dataset_name, self.dataset_config_name) if task is None else (task.dataset, self.task_name)
        loaded = load_dataset(name, config, self.revision, self.cache_dir, self.token, **self.load_options)
        wanted: dict[str, str] = {}
        for split in ("train", "validation", "test"):
            given = self.split_names.get(split)
            if given is not None:
                require_split(f"{split}_split", given, loaded, name)
                wanted[split] = given
            elif task is not None and split == "validation":
                wanted |= {own: own for own in task.validation}
            elif split in loaded:
                wanted[split] = split
            elif split == "train":
                require_split("train_split", split, loaded, name)
        return {own: loaded[found] for own, found in wanted.items()}

    @cached_property
    def readings(self) -> dict[str, Reading]:
        """Split -> how its rows become examples.

        Raises:
            ValueError: a column is not there.
        """
        found = {}
        for split, place in self.places.items():
            columns = self.columns_of(place)
            names = SOURCE if self.pairs else PAIR if len(columns.texts) == 2 else ONE
            found[split] = Reading(columns, names, self.label_delimiter, self.on_error == "skip")
        if len({reading.columns.texts for reading in found.values()}) > 1:
            texts = "; ".join(f"{split}: {', '.join(reading.columns.texts)}" for split, reading in found.items())
            raise ValueError(f"splits have texts in different columns ({texts}): name them with --text_column")
        return found

    def columns_of(self, place: Place) -> Columns:
        """The columns of a place's texts, label and difficulty."""
        found = place.columns
        if self.pairs:
            return pair_columns(found, place.name, self.source_column, self.target_column, self.slice_by)
        texts = TASKS[self.task_name].texts if self.task_name is not None else self.text_columns
        return classification_columns(found, place.name, texts, self.label_column, self.slice_by)

    @cached_property
    def scans(self) -> dict[str, Scan]:
        """Split -> the findings of a first pass over it; splits that have no labels at all are left out.

        Raises:
            ValueError: an example that cannot be used.
        """
        found = {split: scan(place, self.readings[split]) for split, place in self.places.items()}
        for split, result in found.items():
            if result.report is not None:
                warnings.warn(f"{self.places[split].name}: {result.report}", stacklevel=2)
        kept = {split: result for split, result in found.items() if result.unlabelled < result.examples}
        if "train" not in kept:
            raise ValueError(f"the training examples of {self.name} have no labels: name another split or column")
        hidden = [split for split in found if split not in kept]
        if hidden:
            warnings.warn(
                f"the labels of {', '.join(hidden)} are secret: nothing is evaluated on it; `hf-recurrent predict` "
                "writes predictions",
                stacklevel=2,
            )
        return kept

    @cached_property
    def labels(self) -> Labels | None:
        """The labels of the task; None for sources and targets.

        Raises:
            ValueError: labels that do not fit each other, or that training has not.
        """
        if self.pairs:
            return None
        train, scans = self.places["train"], self.scans
        labels = labels_of(scans["train"].labels, train.label_names, self.label_names, self.do_regression)
        for split, found in scans.items():
            labels.require_known(found.labels, split)
        return labels

    @cached_property
    def splits(self) -> dict[str, "Dataset"]:
        """Split -> its examples: texts, label and columns of difficulty.

        Where there is no other split than training's, some of its examples are held out as "validation".

        Raises:
            ValueError: the data cannot be used; the message says which part, and what to do.
        """
        labels = self.labels
        types_ = {name: kind for found in self.scans.values() for name, kind in sorted(found.slice_types.items())}
        for found in self.scans.values():
            found.slice_types = {name: widest(name, self.scans) for name in types_}
        loaded = {
            split: dataset_of(self.places[split], self.readings[split], labels, found, self.cache_dir)
            for split, found in self.scans.items()
        }
        if len(loaded) > 1:
            return loaded
        held_out = len(loaded["train"]) * self.validation_split_percentage // 100
        if not 0 < held_out < len(loaded["train"]):
            raise ValueError(
                f"{self.name} has {len(loaded['train'])} training examples and nothing to evaluate on, and "
                f"validation_split_percentage is {self.validation_split_percentage}: raise it, or name validation data"
            )
        parts = loaded["train"].train_test_split(held_out, seed=HOLD_OUT_SEED)
        return {"train": parts["train"], "validation": parts["test"]}

    @cached_property
    def version(self) -> str:
        """A digest of the content."""
        found = hashlib.sha256()
        for split, place in self.places.items():
            found.update(f"{split} {place.fingerprint}\n".encode())
        return f"sha256:{found.hexdigest()[:16]}"

    @cached_property
    def info(self) -> BenchmarkInfo:
        """The facts of the data, as of a benchmark."""
        names = next(iter(self.readings.values())).names
        return BenchmarkInfo(
            name=self.name,
            title=self.name,
            version=self.version,
            description="",
            configs={self.config: ""},
            default_config=self.config,
            label_names=() if self.labels is None else self.labels.names,
            text_columns=names,
            slice_columns=(*self.slice_by, LENGTH),
            column_meanings={},
            parse_meaning="",
            vocabulary=(),
            paper="",
            citation="",
            bibtex="",
            license="",
            limits=(),
            parameters={self.config: {}},
            synthetic=False,
            target_column=names[1] if self.pairs else "",
        )

    @property
    def facts(self) -> dict[str, Any]:
        """Columns and sizes, for a card."""
        columns = self.readings["train"].columns
        facts: dict[str, Any] = {"files": {split: Path(path).name for split, path in self.files.items()} or None}
        facts |= {"text_column": list(columns.texts), "label_column": columns.label}
        facts |= {"examples": {split: len(rows) for split, rows in self.splits.items()}}
        skipped = {split: len(found.skipped) for split, found in self.scans.items() if found.skipped}
        return facts | {"skipped": skipped or None}


def widest(column: str, scans: Mapping[str, Scan]) -> str:
    """The type that a column of difficulty has in all splits."""
    kinds = {found.slice_types[column] for found in scans.values()}
    return next(kind for kind in ("string", "float64", "int64") if kind in kinds)


def require_split(flag: str, name: str, splits: Mapping[str, Any], dataset: str) -> None:
    if name not in splits:
        raise ValueError(f"{flag} is {name!r}: {dataset} has the splits {', '.join(splits)}")


def load_dataset(
    name: str, config: str | None, revision: str | None, cache_dir: str | None, token: str | None, **options: Any
) -> Mapping[str, Any]:
    """The splits of a data set of the Hub or a folder.

    Raises:
        ValueError: there is no such data set or configuration, or it cannot be had.
    """
    import datasets

    try:
        return datasets.load_dataset(name, config, revision=revision, cache_dir=cache_dir, token=token, **options)
    # what is wrong with a data set shows in whatever way its loader fails
    except Exception as error:
        reason = " ".join(str(error.__cause__ or error).split())
        place = f"dataset_name is {name!r}" + ("" if config is None else f" and dataset_config_name {config!r}")
        raise ValueError(f"{place}: it does not load ({type(error).__name__}: {reason})") from error
