"""Examples of a task: from files, folders, data sets of the Hub or a benchmark, with their labels and facts."""

import json
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from itertools import combinations, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..benchmarks import BenchmarkInfo, benchmark_info, load_benchmark
from .glue import TASKS as GLUE
from .labels import REGRESSION, SINGLE, Labels, counted, from_multi_hot, is_hidden, is_multi_hot, labels_of
from .reading import (
    LENGTH,
    Columns,
    Reading,
    digest,
    fingerprint,
    has_column,
    load_hub_dataset,
    narrowest,
    reported,
    slices_of,
    warn_of_skipped,
)

if TYPE_CHECKING:
    from datasets import Dataset

    from ..tasks.base import Task

# draws of examples that are held out
HOLD_OUT_SEED = 0
SPLITS = ("train", "validation", "test")
SECRET = "has no labels, or hides them (-1): nothing is measured on it; `hf-recurrent predict` writes predictions"


@dataclass(frozen=True)
class Data:
    """The examples of a run or evaluation.

    Attributes:
        name: for readers: that of the benchmark, the data set or the training file.
        config: the configuration of the benchmark or data set.
        version: of a benchmark, or a digest of the content.
        splits: split -> its examples, with the fields of the task, `label` and columns of difficulty.
        slice_columns: by which results are sliced.
        places: split -> what messages call it.
        labels: None where there are none.
        info: the facts of a benchmark; None of your own data.
        dataset_id, revision: on the Hub.
        facts: columns and sizes, for a card.
    """

    name: str
    config: str
    version: str
    splits: "Mapping[str, Dataset]"
    slice_columns: tuple[str, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)
    labels: Labels | None = None
    info: BenchmarkInfo | None = None
    dataset_id: str | None = None
    revision: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_own(self) -> bool:
        return self.info is None

    @property
    def label_names(self) -> tuple[str, ...]:
        return () if self.labels is None else self.labels.names

    def place_of(self, split: str) -> str:
        return self.places.get(split, f"the part of {self.name} that is held out")


def load_data(task: "Task") -> Data:
    """The examples that a run trains and evaluates on.

    Raises:
        ValueError: they cannot be used; the message says which, and what to do.
    """
    return Source(task).data() if task.data.is_own else benchmark_data(task.data)


def benchmark_data(arguments: Any, config: str | None = None, params: Mapping[str, Any] | None = None) -> Data:
    """The examples of a configuration of a benchmark, by default that of the arguments."""
    name, config = arguments.benchmark, config or arguments.benchmark_config
    if params is None:
        params = {"data_dir": arguments.data_dir, **arguments.benchmark_params}
    info = benchmark_info(name, config)
    options = {"num_proc": arguments.num_proc, "cache_dir": arguments.cache_dir, **params}
    return Data(
        name=name,
        config=config,
        version=info.version,
        splits=load_benchmark(name, config, **options),
        slice_columns=info.slice_columns,
        places=dict.fromkeys(SPLITS, name),
        labels=benchmark_labels(name, config),
        info=info,
    )


def benchmark_labels(name: str, config: str | None) -> Labels | None:
    """The labels of a benchmark's configuration, which is not loaded."""
    names = benchmark_info(name, config).label_names
    return Labels(SINGLE, names) if names else None


@dataclass(frozen=True)
class Source:
    """A user's own examples for a task. Nothing is read before `data` is called.

    Attributes:
        task: with the arguments that say where examples are and how they are read.
        files: split -> file, folder or zip file; None: those of the arguments.
        known: the labels of a model that is trained already; None: those of the training examples.
        evaluates: whether the examples are for a model that is trained already: nothing is held out.
        wanted: splits of a data set to evaluate on; none: those for tests.
        labelled: whether labels are needed; without, they are read if every split has them.
        trained: field of the arguments -> column of training, taken where it is not given and the examples have it.
    """

    task: "Task"
    files: Mapping[str, str] | None = None
    known: Labels | None = None
    evaluates: bool = False
    wanted: tuple[str, ...] = ()
    labelled: bool = True
    trained: Mapping[str, Any] = field(default_factory=dict)

    @property
    def arguments(self) -> Any:
        return self.task.data

    @property
    def reading(self) -> Reading:
        return self.arguments.reading

    # ---- where the examples are

    @cached_property
    def paths(self) -> dict[str, str]:
        """Split -> file, the training examples first; none of a data set.

        Raises:
            ValueError: two splits are the same file, or one lies in the other.
        """
        paths = self.arguments.files if self.files is None else dict(self.files)
        for (split, path), (other, second) in combinations(paths.items(), 2):
            places = [os.path.realpath(path), os.path.realpath(second)]
            if os.path.commonpath(places) in places:
                raise ValueError(
                    f"{split}_file is {path!r} and {other}_file {second!r}, the same or one within the other: name "
                    "different examples"
                )
        return paths

    @property
    def glue(self) -> str | None:
        """The task of GLUE or SuperGLUE."""
        return getattr(self.arguments, "task_name", None)

    @property
    def hub_name(self) -> tuple[str, str | None]:
        """The data set on the Hub, and its configuration."""
        if self.glue is not None:
            return GLUE[self.glue].dataset, self.glue
        return self.arguments.dataset_name, self.arguments.dataset_config_name

    @property
    def name(self) -> str:
        path = next(iter(self.paths.values()), None)
        return self.glue or Path(self.hub_name[0]).name if path is None else name_of(path)

    @property
    def place(self) -> str:
        """The data as messages call them."""
        if self.paths:
            return Path(next(iter(self.paths.values()))).name
        # where a folder lies is of this machine alone
        local = self.glue or Path(self.arguments.dataset_name).is_dir()
        return f"data set {self.name if local else self.arguments.dataset_name}"

    def place_of(self, split: str) -> str:
        return Path(self.paths[split]).name if split in self.paths else f"{self.place}, {split}"

    @cached_property
    def version(self) -> str:
        """A digest of the content."""
        if self.reading.streaming:
            return "streamed, without a digest"
        content = sha256()
        for split, rows in self.rows.items():
            own = digest(self.paths[split]) if split in self.paths else rows._fingerprint
            content.update(f"{split} {own}\n".encode())
        return f"sha256:{content.hexdigest()[:16]}"

    # ---- rows

    @cached_property
    def rows(self) -> "dict[str, Dataset]":
        """Split -> its rows as they are.

        Raises:
            ValueError: a file, data set or split is not there, or cannot be read.
        """
        if self.paths:
            return {split: self.task.read_file(path, self.reading) for split, path in self.paths.items()}
        arguments, (name, config) = self.arguments, self.hub_name
        flags = ("dataset_name", "task_name", "dataset_config_name", "dataset_revision")
        given = {flag: getattr(arguments, flag, None) for flag in flags}
        place = " and ".join(f"{flag} {value!r}" for flag, value in given.items() if value is not None)
        options = {"cache_dir": arguments.cache_dir, "token": arguments.token, "streaming": self.reading.streaming}
        loaded = load_hub_dataset(place, name, config, arguments.dataset_revision, **options)
        return {split: loaded[own] for split, own in self.chosen_splits(loaded).items()}

    def chosen_splits(self, loaded: Mapping[str, Any]) -> dict[str, str]:
        """Split of the run -> split of the data set."""
        name, arguments, column = self.hub_name[0], self.arguments, getattr(self.arguments, "label_column", None)
        if self.evaluates:
            chosen = {split: split for split in self.wanted or default_splits(loaded, name, column)}
        else:
            chosen = {}
            for split in SPLITS:
                own = getattr(arguments, f"{split}_split")
                if own is not None or split == "train":
                    chosen[split] = own or split
                elif self.glue is not None:
                    # of tests, the labels are secret
                    chosen |= {each: each for each in GLUE[self.glue].validation if split == "validation"}
                elif split in loaded:
                    chosen[split] = split
        for split, own in chosen.items():
            if own not in loaded:
                flag = f"{split}_split" if getattr(arguments, f"{split}_split", None) else "split"
                raise ValueError(f"{flag} is {own!r}: {name} has the splits {', '.join(loaded)}")
        for (split, own), (other, second) in combinations(chosen.items(), 2):
            if own == second:
                raise ValueError(
                    f"{split} and {other} are both the split {own!r} of {name}: name different ones with "
                    f"{split}_split and {other}_split"
                )
        return chosen

    def each_row(self, split: str) -> Iterator[Mapping[str, Any]]:
        """The rows of a split as they are.

        Raises:
            ValueError: a file that is read only now cannot be read.
        """
        with reported(Path(self.paths[split]), self.reading) if split in self.paths else nullcontext():
            yield from self.rows[split]

    # ---- columns

    @cached_property
    def columns(self) -> dict[str, Columns]:
        """Split -> its columns.

        Raises:
            ValueError: a column is not there, or splits have texts in different columns.
        """
        columns = {split: self.columns_of(split) for split in self.rows}
        if not self.labelled and any(own.label is None for own in columns.values()):
            columns = {split: replace(own, label=None) for split, own in columns.items()}
        if len({own.texts for own in columns.values()}) > 1:
            texts = "; ".join(f"{split}: {', '.join(own.texts)}" for split, own in columns.items())
            raise ValueError(f"splits have texts in different columns ({texts}): name them with {self.task.text_flags}")
        return columns

    def columns_of(self, split: str) -> Columns:
        names, arguments = list(self.rows[split].column_names or next(self.each_row(split), {})), copy(self.arguments)
        for name, value in self.trained.items():
            own, given = [value] if isinstance(value, str) else list(value), getattr(arguments, name, None)
            if given in (None, []) and all(has_column(names, column) for column in own):
                setattr(arguments, name, own if isinstance(given, list) else own[0])
        needs_label = self.labelled if self.evaluates else split != "test"
        return type(self.task)(arguments).columns(names, self.place_of(split), needs_label)

    def declared(self, split: str) -> tuple[str, ...]:
        """Names of the labels, where the data declare them; values are then their numbers."""
        column = self.columns[split].label
        feature = (self.rows[split].features or {}).get(column) if isinstance(column, str) else None
        names = getattr(getattr(feature, "feature", feature), "names", None)
        return tuple(names or self.task.declared_labels(self.columns[split]))

    # ---- examples

    def examples_of(self, split: str) -> "tuple[Dataset, int]":
        """The examples of a split, with labels as JSON texts, and the number of rows that were left out.

        Raises:
            ValueError: a row cannot be used.
        """
        from datasets import Features, Value

        rows, place, columns = self.rows[split], self.place_of(split), self.columns[split]
        task, declared, skips = self.task, self.declared(split), self.reading.on_error == "skip"

        def convert(row: Mapping[str, Any], number: int) -> dict[str, Any]:
            try:
                example = {**task.example(row, columns), **slices_of(row, columns.slices), "problem": None}
                if columns.label is not None:
                    example["label"] = json.dumps(task.label(row, columns, declared))
                return example
            except ValueError as error:
                if not skips:
                    raise ValueError(
                        f"{place}, row {number + 1}: {error}; correct it, or pass --on_error skip"
                    ) from error
                return dict.fromkeys(features, None) | {"problem": f"row {number + 1}: {error}"}

        texts = [*columns.slices, "problem", *(["label"] if columns.label is not None else [])]
        features = {**task.features(columns), **dict.fromkeys(texts, Value("string"))}
        settings = [getattr(task.data, name) for name in task.as_trained]
        identity = fingerprint(rows._fingerprint, type(task).__name__, columns, declared, skips, settings)
        examples = rows.map(
            convert,
            with_indices=True,
            remove_columns=rows.column_names,
            features=Features(features),
            num_proc=self.arguments.num_proc,
            new_fingerprint=identity,
            desc=f"reading {place}",
        )
        skipped = [problem for problem in examples["problem"] if problem is not None] if skips else []
        if skipped:
            warn_of_skipped(place, skipped)
            examples = examples.filter(lambda problem: problem is None, input_columns="problem")
        if not len(examples):
            raise ValueError(f"{place} has no examples")
        return examples.remove_columns("problem"), len(skipped)

    def data(self) -> Data:
        """The examples, with their labels; if there is no split but training's, some of these are held out."""
        read = {split: self.examples_of(split) for split in self.rows}
        examples = {split: rows for split, (rows, _) in read.items()}
        columns, labels, unlabelled = next(iter(self.columns.values())), None, {}
        for name in columns.slices:
            # a column has one type in all splits
            values = iter(narrowest([value for rows in examples.values() for value in rows[name]]))
            examples = {
                split: rows.remove_columns(name).add_column(name, [*islice(values, len(rows))])
                for split, rows in examples.items()
            }
        if self.task.label_names and (self.labelled or columns.label is not None):
            labels, examples, unlabelled = self.with_labels(examples)
        if len(examples) == 1 and not self.evaluates:
            examples = self.with_validation(examples["train"])
        facts = {"files": {split: Path(path).name for split, path in self.paths.items()} or None}
        facts |= self.task.column_facts(columns)
        facts |= {"skipped": {split: number for split, (_, number) in read.items() if number} or None}
        facts |= {"unlabelled": unlabelled or None, "examples": {split: len(rows) for split, rows in examples.items()}}
        facts |= {} if self.glue is None else {"scores": list(GLUE[self.glue].scores)}
        return self.described(examples, facts, labels=labels)

    def described(self, splits: "Mapping[str, Dataset]", facts: Mapping[str, Any], **more: Any) -> Data:
        """Splits with what is known of the data."""
        name, config = self.hub_name
        on_hub = not self.paths and "/" in name and not os.path.isdir(name)
        return Data(
            name=self.name,
            config=config or "default",
            splits=splits,
            slice_columns=tuple(dict.fromkeys((*self.arguments.slice_by, LENGTH))),
            dataset_id=name if on_hub else None,
            revision=self.arguments.dataset_revision,
            facts=facts,
            **{"version": self.version, "places": {split: self.place_of(split) for split in self.rows}, **more},
        )

    def with_labels(self, examples: "Mapping[str, Dataset]") -> "tuple[Labels, dict[str, Dataset], dict[str, int]]":
        """The labels, splits with encoded labels, and the numbers of examples that have none and are left out.

        Raises:
            ValueError: labels do not vary, do not fit each other, or are missing.
        """
        task, arguments, known = self.task, self.arguments, self.known
        raw = {split: [*map(json.loads, rows["label"])] for split, rows in examples.items() if "label" in rows.features}
        first = next(iter(raw))
        column, declared = self.columns[first].label, self.declared(first)
        named = tuple(getattr(arguments, "label_list", ()))
        if not task.labels_words and not declared and is_multi_hot(raw[first]):
            names = named or (known.names if known else [f"LABEL_{place}" for place in range(len(raw[first][0]))])
            raw = {split: from_multi_hot(labels, names, self.place_of(split)) for split, labels in raw.items()}
        if self.evaluates:
            # without known labels, the numbers of what there is to choose from
            labels, origin = known or Labels(SINGLE, declared), "the model"
        else:
            # columns of 0 and 1 are the names of labels
            names, origin = column if isinstance(column, tuple) else declared, "training"
            settings = (named, getattr(arguments, "do_regression", None), task.labels_words)
            labels = labels_of(raw["train"], self.place_of("train"), names, *settings)
        splits, unlabelled = {}, {}
        for split, rows in examples.items():
            own, place = raw.get(split), self.place_of(split)
            # -1 may be a label like others
            if own is None or (is_hidden(own) and not counted(own).keys() & {*labels.names}):
                if self.evaluates:
                    raise ValueError(f"{place} {SECRET}")
                warnings.warn(f"{place} {SECRET}", stacklevel=2)
                continue
            labels.check(own, place, origin)
            kept = [row for row, label in enumerate(own) if label is not None]
            if len(kept) < len(own):
                unlabelled[split] = missing = len(own) - len(kept)
                warnings.warn(
                    f"{place}: {missing:,} of {len(own):,} examples have no label (-1 or -100) and are left out",
                    stacklevel=2,
                )
            encoded = [labels.encode(own[row]) for row in kept]
            splits[split] = (
                rows.remove_columns("label").select(kept).add_column("label", encoded, feature=labels.feature)
            )
        if not self.evaluates and labels.problem_type != REGRESSION:
            counts = {split: counted(raw[split]) for split in splits}
            others = sum(len(rows) for split, rows in splits.items() if split != "train")
            # few examples lack a class by accident
            if others >= 10 * len(counts["train"]):
                warn_of_unseen(counts, self.place_of("train"))
        return labels, splits, unlabelled

    def with_validation(self, train: "Dataset") -> "dict[str, Dataset]":
        """Training examples of which some are held out as "validation"."""
        share = self.arguments.held_out_percentage
        held_out = len(train) * share // 100
        if not 0 < held_out < len(train):
            raise ValueError(
                f"{self.name} has {len(train)} training examples and nothing to evaluate on, and "
                f"validation_split_percentage is {share}: raise it, or name validation data"
            )
        parts = train.train_test_split(held_out, seed=HOLD_OUT_SEED)
        return {"train": parts["train"], "validation": parts["test"]}


def warn_of_unseen(counts: Mapping[str, Counter], place: str) -> None:
    """Warn of classes that training has and no other split does, such as a folder of examples without a label."""
    train, *others = counts.values()
    unseen = [name for name in train if others and not any(name in names for names in others)]
    if unseen:
        shown = ", ".join(f"{name!r:.60} ({train[name]:,} examples)" for name in unseen[:3])
        warnings.warn(
            f"{place}: no other split has the label {shown}: leave these examples out if it is no class to predict",
            stacklevel=3,
        )


def name_of(path: str) -> str:
    """The name of data by the path of their training file, such as reviews for reviews/train or reviews_train.csv."""
    place = Path(path.removesuffix(".gz"))
    stem = re.sub(r"(^|[-_. ])train(ing)?$", "", place.stem, flags=re.IGNORECASE)
    # folders of an absolute path are of a machine
    above = "" if place.is_absolute() else place.parent.name
    return stem or above.removeprefix("..") or place.stem


def default_splits(splits: "Mapping[str, Dataset]", dataset: str, label_column: Any = None) -> list[str]:
    """The splits that a model is measured on; those with secret labels if there are no others.

    Raises:
        ValueError: there is none.
    """
    tests, validation = ([name for name in splits if name.startswith(role)] for role in ("test", "validation"))
    column = label_column if isinstance(label_column, str) else "label"
    labels = {name: splits[name][column] for name in tests if column in splits[name].column_names}
    open_tests = [name for name in tests if name not in labels or any(label != -1 for label in labels[name])]
    if tests or validation:
        return open_tests or validation or tests
    raise ValueError(f"{dataset} has the splits {', '.join(splits)}, none of them for tests: name one with --split")
