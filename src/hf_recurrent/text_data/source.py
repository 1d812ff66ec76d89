"""A user's own examples: files, a data set of the Hub, or a task of GLUE, with their labels and facts."""

import hashlib
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..benchmarks.info import BenchmarkInfo
from ..files import one_line
from .columns import Columns, classification_columns, pair_columns
from .examples import ONE, PAIR, SLICE_TYPES, SOURCE, Reading, Scan, broken_rows, dataset_of, scan
from .labels import Labels, labels_of
from .lines import GZIP
from .places import DatasetPlace, FilePlace, LabelFolder, Place, is_folder
from .tasks import TASKS

if TYPE_CHECKING:
    from datasets import Dataset

# tokens of an example: a difficulty that every text has
LENGTH = "length"
# the data set's own configuration, where it has one only
DEFAULT_CONFIG = "default"
# draws of examples that are held out
HOLD_OUT_SEED = 0


def warn_of_unlabelled(name: str, seen: Scan) -> None:
    """Warn of the examples of a split that have no label, if there are any."""
    if seen.unlabelled:
        count = f"{seen.unlabelled:,} of {seen.examples:,} examples"
        warnings.warn(f"{name}: {count} have no label (-1) and are left out", stacklevel=3)


@dataclass(frozen=True)
class TextSource:
    """Where examples come from, and which columns they have. Nothing is read before `splits` or `info` is.

    Attributes:
        text_flags: what names the columns of texts.
        text_names: what texts are called in examples; None: by the number of columns.
        pairs: whether examples are sources and targets, rather than texts with labels.
        task_name: a task of `TASKS`.
        dataset_name, dataset_config_name, revision: a data set of the Hub, or a folder that `datasets` loads.
        files: split -> file, folder or zip file, instead of a data set.
        split_names: "train", "validation" and "test" -> names of the data set's splits; None: that of the same name.
        text_columns, label_column, source_column, target_column, slice_by: names of columns; those with usual names if
            none are given.
        source_prefix: text before every source.
        label_names: names of the labels in the order of their ids.
        label_delimiter: text between the labels of an example that has several.
        do_regression: whether labels are numbers to predict; None: as the labels look.
        validation_split_percentage: share of the training examples that is held out where there is no other split.
        encoding: of text files.
        on_error: "raise" or "skip".
        cache_dir: folder for the examples, instead of the cache of `datasets`.
        token: access token of the Hub.
        streaming: whether documents are read anew each time, rather than counted and copied; those of a data set while
            it is downloaded.
    """

    text_flags: ClassVar[str] = "--text_column"
    text_names: ClassVar[tuple[str, ...] | None] = None

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
    source_prefix: str = ""
    slice_by: tuple[str, ...] = ()
    label_names: tuple[str, ...] = ()
    label_delimiter: str | None = None
    do_regression: bool | None = None
    validation_split_percentage: int = 5
    encoding: str = "utf-8"
    on_error: str = "raise"
    cache_dir: str | None = None
    token: str | None = field(default=None, repr=False)
    streaming: bool = False

    @property
    def name(self) -> str:
        """The name of the data for readers: that of the task, the data set or the training file."""
        if self.task_name is not None:
            return self.task_name
        if self.dataset_name is not None:
            return Path(self.dataset_name).name
        return name_of(next(iter(self.files.values())))

    @property
    def place(self) -> str:
        """The data as messages call them."""
        if self.task_name is not None:
            return f"task {self.task_name}"
        if self.dataset_name is not None:
            # where a folder lies is of this machine alone
            return f"data set {self.name if Path(self.dataset_name).is_dir() else self.dataset_name}"
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
            ValueError: a file, data set or split that is not there, or the same one twice.
        """
        if not self.files:
            return {split: self.place_in(rows, split) for split, rows in self.loaded.items()}
        paths = {split: Path(path).resolve() for split, path in self.files.items()}
        for (other, first), (split, second) in combinations(paths.items(), 2):
            if first == second:
                raise ValueError(
                    f"{other}_file and {split}_file are both {self.files[split]!r}: name different examples"
                )
            if first in second.parents or second in first.parents:
                raise ValueError(
                    f"{other}_file is {self.files[other]!r} and {split}_file {self.files[split]!r}, one within the "
                    "other: name different examples"
                )
        return {split: self.place_at(path) for split, path in self.files.items()}

    def place_at(self, path: str) -> Place:
        """The examples of a file, folder or zip file."""
        return (LabelFolder if is_folder(path) else FilePlace)(path, self.encoding)

    def place_in(self, rows: "Dataset", split: str) -> Place:
        """The examples of a split of the data set."""
        return DatasetPlace(rows, f"{self.place}, {split}")

    def load_data_set(self) -> Mapping[str, "Dataset"]:
        """All splits of the data set, by their own names."""
        name, config = self.dataset_name, self.dataset_config_name
        if self.task_name is not None:
            name, config = TASKS[self.task_name].dataset, self.task_name
        given = {"dataset_name": self.dataset_name, "task_name": self.task_name}
        given |= {"dataset_config_name": self.dataset_config_name, "dataset_revision": self.revision}
        place = " and ".join(f"{flag} {value!r}" for flag, value in given.items() if value is not None)
        options = {"cache_dir": self.cache_dir, "token": self.token, "streaming": self.streaming}
        return load_dataset(place, name, config, self.revision, **options)

    @cached_property
    def loaded(self) -> dict[str, "Dataset"]:
        """The splits of the data set, by the names that a run has for them."""
        task, loaded = None if self.task_name is None else TASKS[self.task_name], self.load_data_set()
        name = self.dataset_name if task is None else task.dataset
        wanted: dict[str, str] = {}
        for split in ("train", "validation", "test"):
            chosen = self.split_names.get(split)
            if chosen is not None or split == "train":
                wanted[split] = chosen or split
                require_split(f"{split}_split", wanted[split], loaded, name)
            elif task is None and split in loaded:
                wanted[split] = split
            elif task is not None and split == "validation":
                # of tests, the labels are secret
                for own in task.validation:
                    require_split(f"a split of task_name {self.task_name!r}", own, loaded, name)
                    wanted[own] = own
        roles: dict[str, str] = {}
        for role, split in wanted.items():
            other = roles.setdefault(split, role)
            if other != role:
                raise ValueError(
                    f"{other} and {role} are both the split {split!r} of {name}: name different ones with "
                    f"{other}_split and {role}_split"
                )
        return {own: loaded[found] for own, found in wanted.items()}

    @cached_property
    def readings(self) -> dict[str, Reading]:
        """Split -> how its rows become examples.

        Raises:
            ValueError: a column is not there.
        """
        found: dict[str, Reading] = {}
        for split, place in self.places.items():
            columns = self.columns_of(place, split)
            names = self.text_names or (SOURCE if self.pairs else PAIR if len(columns.texts) == 2 else ONE)
            found[split] = Reading(
                columns,
                names,
                label_delimiter=self.label_delimiter,
                prefix=self.source_prefix,
                skip=self.on_error == "skip",
                label_names=place.label_names(columns.label),
            )
        if len({reading.columns.texts for reading in found.values()}) > 1:
            texts = "; ".join(f"{split}: {', '.join(reading.columns.texts)}" for split, reading in found.items())
            flags = "--source_column and --target_column" if self.pairs else self.text_flags
            raise ValueError(f"splits have texts in different columns ({texts}): name them with {flags}")
        return found

    def place_name(self, split: str) -> str:
        """A split as messages call it."""
        return self.places[split].name if split in self.places else f"the part of {self.place} that is held out"

    def columns_of(self, place: Place, split: str) -> Columns:
        """The columns of a place's texts, label and difficulty; tests may have no label."""
        found = place.columns
        if self.pairs:
            return pair_columns(found, place.name, self.source_column, self.target_column, self.slice_by)
        texts = TASKS[self.task_name].texts if self.task_name is not None else self.text_columns
        needs_label = self.needs_label(split)
        return classification_columns(found, place.name, texts, self.label_column, self.slice_by, needs_label)

    def needs_label(self, split: str) -> bool:
        """Whether a split without labels is an error, rather than left out."""
        return split != "test"

    def scan_all(self) -> dict[str, Scan]:
        """Split -> the findings of a first pass over it; warns of what was left out."""
        found = {split: scan(place, self.readings[split]) for split, place in self.places.items()}
        for split, result in found.items():
            if result.skipped:
                warnings.warn(f"{self.places[split].name}: {broken_rows(result.skipped)}", stacklevel=2)
        return found

    @cached_property
    def scans(self) -> dict[str, Scan]:
        """Split -> the findings of a first pass over it; splits that hide their labels are left out.

        Raises:
            ValueError: an example that cannot be used.
        """
        found = self.scan_all()
        if not self.has_labels:
            return found
        train = found["train"]
        if train.unlabelled == train.examples:
            raise ValueError(f"the training examples of {self.name} have no labels: name another split or column")
        # -1 may be a label like others
        known, kept = train.labels.counts.keys(), {}
        for split, seen in found.items():
            name = self.places[split].name
            if seen.hides_labels and not seen.labels.counts.keys() & known:
                warnings.warn(
                    f"{name} has no labels, or hides them (-1): nothing is measured on it; `hf-recurrent predict` "
                    "writes predictions",
                    stacklevel=2,
                )
                continue
            kept[split] = seen
            warn_of_unlabelled(name, seen)
        return kept

    @property
    def has_labels(self) -> bool:
        return not self.pairs

    def labels_of_training(self) -> Labels:
        """The labels of the training examples. Raises a ValueError if they do not fit each other."""
        seen, declared = self.scans["train"].labels, self.readings["train"].label_names
        return labels_of(seen, declared, self.label_names, self.do_regression)

    @cached_property
    def labels(self) -> Labels | None:
        """The labels of the task; None where there are none.

        Raises:
            ValueError: labels that do not fit each other, or that training has not.
        """
        if not self.has_labels:
            return None
        labels = self.labels_of_training()
        for split, seen in self.scans.items():
            labels.require_known(seen.labels, split, "label_list" if self.label_names else "training")
        return labels

    @cached_property
    def slice_types(self) -> dict[str, str]:
        """Columns of difficulty -> the narrowest type that fits all their values."""
        seen = {
            column: set().union(*(result.slice_types[column] for result in self.scans.values()))
            for column in self.slice_by
        }
        return {column: next(kind for kind in SLICE_TYPES if kind in kinds) for column, kinds in seen.items()}

    def read_all(self) -> dict[str, "Dataset"]:
        """Split -> its examples: texts, label and columns of difficulty.

        Raises:
            ValueError: the data cannot be used; the message says which part, and what to do.
        """
        labels, slice_types = self.labels, self.slice_types
        return {
            split: dataset_of(self.places[split], self.readings[split], labels, slice_types, self.cache_dir)
            for split in self.scans
        }

    @cached_property
    def splits(self) -> dict[str, "Dataset"]:
        """Split -> its examples; if there is none but training's, some of these are held out as "validation".

        Raises:
            ValueError: as `read_all`, or nothing is held out.
        """
        loaded = self.read_all()
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
            configs={self.config: ""},
            default_config=self.config,
            label_names=() if self.labels is None else self.labels.names,
            text_columns=names,
            slice_columns=(*self.slice_by, LENGTH),
            parameters={self.config: {}},
            synthetic=False,
            target_column=names[1] if self.pairs else "",
        )

    @property
    def facts(self) -> dict[str, Any]:
        """Columns and sizes, for a card."""
        columns = self.readings["train"].columns
        facts: dict[str, Any] = {"files": {split: Path(path).name for split, path in self.files.items()} or None}
        if self.pairs:
            facts |= dict(zip(("source_column", "target_column"), columns.texts, strict=True))
            facts |= {"source_prefix": self.source_prefix or None}
        else:
            facts |= {"text_column": list(columns.texts), "label_column": columns.label}
        facts |= {"examples": {split: len(rows) for split, rows in self.splits.items()}}
        skipped = {split: len(found.skipped) for split, found in self.scans.items() if found.skipped}
        unlabelled = {split: found.unlabelled for split, found in self.scans.items() if found.unlabelled}
        facts |= {"skipped": skipped or None, "unlabelled": None if self.pairs else unlabelled or None}
        if self.task_name is not None:
            facts["scores"] = list(TASKS[self.task_name].scores)
        return facts


def name_of(path: str) -> str:
    """The name of data by the path of their training file, such as reviews for reviews/train or reviews_train.csv."""
    place = Path(path)
    if place.suffix.lower() == GZIP:
        place = place.with_suffix("")
    stem = re.sub(r"(^|[-_. ])train(ing)?$", "", place.stem, flags=re.IGNORECASE)
    # folders of an absolute path tell of a machine
    above = "" if place.is_absolute() else place.parent.name
    return stem or above.removeprefix("..") or place.stem


def require_split(flag: str, name: str, splits: Mapping[str, Any], dataset: str) -> None:
    if name not in splits:
        raise ValueError(f"{flag} is {name!r}: {dataset} has the splits {', '.join(splits)}")


def load_dataset(place: str, name: str, config: str | None, revision: str | None, **options: Any) -> Mapping[str, Any]:
    """The splits of a data set of the Hub or a folder; `place` is what messages call it.

    Raises:
        ValueError: there is no such data set or configuration, or it cannot be had.
    """
    import datasets

    try:
        return datasets.load_dataset(name, config, revision=revision, **options)
    # what is wrong with a data set shows in whatever way its loader fails
    except Exception as error:
        cause = error.__cause__ or error
        reason = f"{type(cause).__name__}: {one_line(cause)}"
        raise ValueError(
            f"{place} does not load: {reason}; check the name and the network, and --token if it is not public"
        ) from error
