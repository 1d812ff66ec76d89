"""Examples of a task: from files, folders, data sets of the Hub or a benchmark, with their labels and facts."""

import copy
import json
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..benchmarks import BenchmarkInfo, benchmark_info, load_benchmark
from .columns import LENGTH, Columns, has_column, narrowest, slices_of
from .glue import TASKS as GLUE
from .labels import REGRESSION, SINGLE, Labels, Seen, from_multi_hot, is_multi_hot, labels_of, listed
from .reading import (
    Reading,
    digest,
    fingerprint,
    load_hub_dataset,
    problem,
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
    arguments = task.data
    return Source(task).data() if arguments.is_own else benchmark_data(arguments)


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
        title: the name of the data, if not that of their file.
    """

    task: "Task"
    files: Mapping[str, str] | None = None
    known: Labels | None = None
    evaluates: bool = False
    wanted: tuple[str, ...] = ()
    labelled: bool = True
    trained: Mapping[str, Any] = field(default_factory=dict)
    title: str | None = None

    @property
    def arguments(self) -> Any:
        return self.task.data

    @property
    def reading(self) -> Reading:
        return self.arguments.reading

    @cached_property
    def paths(self) -> dict[str, str]:
        """Split -> file, the training examples first; none of a data set.

        Raises:
            ValueError: two splits are the same file, or one lies in the other.
        """
        found = self.arguments.files if self.files is None else dict(self.files)
        resolved = {split: Path(path).resolve() for split, path in found.items()}
        for (other, first), (split, second) in combinations(resolved.items(), 2):
            if first == second or first in second.parents or second in first.parents:
                raise ValueError(
                    f"{other}_file is {found[other]!r} and {split}_file {found[split]!r}, the same or one within the "
                    "other: name different examples"
                )
        return found

    @property
    def name(self) -> str:
        if self.title is not None:
            return self.title
        arguments = self.arguments
        if self.paths:
            return name_of(next(iter(self.paths.values())))
        return getattr(arguments, "task_name", None) or Path(arguments.dataset_name).name

    @property
    def place(self) -> str:
        """The data as messages call them."""
        if self.paths:
            return Path(next(iter(self.paths.values()))).name
        # where a folder lies is of this machine alone
        local = Path(self.arguments.dataset_name or "").is_dir()
        return f"data set {self.name if local else self.arguments.dataset_name or self.name}"

    @property
    def hub_name(self) -> tuple[str, str | None]:
        """The data set on the Hub, and its configuration."""
        arguments, name = self.arguments, getattr(self.arguments, "task_name", None)
        if name is not None:
            return GLUE[name].dataset, name
        return arguments.dataset_name, arguments.dataset_config_name

    @cached_property
    def rows(self) -> "dict[str, Dataset]":
        """Split -> its rows as they are.

        Raises:
            ValueError: a file, data set or split is not there, or cannot be read.
        """
        if self.paths:
            return {split: self.task.read_file(path, self.reading) for split, path in self.paths.items()}
        arguments, (name, config) = self.arguments, self.hub_name
        given = {"dataset_name": arguments.dataset_name, "task_name": getattr(arguments, "task_name", None)}
        given |= {"dataset_config_name": arguments.dataset_config_name, "dataset_revision": arguments.dataset_revision}
        place = " and ".join(f"{flag} {value!r}" for flag, value in given.items() if value is not None)
        options = {"cache_dir": arguments.cache_dir, "token": arguments.token, "streaming": self.reading.streaming}
        loaded = load_hub_dataset(place, name, config, arguments.dataset_revision, **options)
        return {split: loaded[found] for split, found in self.chosen_splits(loaded).items()}

    def each_row(self, split: str) -> Iterator[Mapping[str, Any]]:
        """The rows of a split as they are.

        Raises:
            ValueError: a file that is read only now cannot be read.
        """
        try:
            yield from self.rows[split]
        except Exception as error:
            if split not in self.paths:
                raise
            path = Path(self.paths[split])
            raise ValueError(f"{path.name}: {problem(error.__cause__ or error, path, self.reading)}") from error

    def chosen_splits(self, loaded: Mapping[str, Any]) -> dict[str, str]:
        """Split of the run -> split of the data set."""
        name, task_name = self.hub_name[0], getattr(self.arguments, "task_name", None)

        def require(flag: str, split: str) -> str:
            if split not in loaded:
                raise ValueError(f"{flag} is {split!r}: {name} has the splits {', '.join(loaded)}")
            return split

        if self.evaluates:
            wanted = [require("split", split) for split in self.wanted]
            column = self.arguments.label_column if hasattr(self.arguments, "label_column") else None
            return {split: split for split in wanted or default_splits(loaded, name, column)}
        found = {}
        for split in SPLITS:
            chosen = getattr(self.arguments, f"{split}_split")
            if chosen is not None or split == "train":
                found[split] = require(f"{split}_split", chosen or split)
            elif task_name is not None:
                # of tests, the labels are secret
                usual = GLUE[task_name].validation if split == "validation" else ()
                found |= {each: require(f"a split of task_name {task_name!r}", each) for each in usual}
            elif split in loaded:
                found[split] = split
        for (first, one), (second, other) in combinations(found.items(), 2):
            if one == other:
                raise ValueError(
                    f"{first} and {second} are both the split {one!r} of {name}: name different ones with "
                    f"{first}_split and {second}_split"
                )
        return found

    def place_of(self, split: str) -> str:
        return Path(self.paths[split]).name if split in self.paths else f"{self.place}, {split}"

    @cached_property
    def columns(self) -> dict[str, Columns]:
        """Split -> its columns.

        Raises:
            ValueError: a column is not there, or splits have texts in different columns.
        """
        found = {split: self.columns_of(split) for split in self.rows}
        if not self.labelled and any(columns.label is None for columns in found.values()):
            found = {split: replace(columns, label=None) for split, columns in found.items()}
        if len({columns.texts for columns in found.values()}) > 1:
            texts = "; ".join(f"{split}: {', '.join(columns.texts)}" for split, columns in found.items())
            raise ValueError(f"splits have texts in different columns ({texts}): name them with {self.task.text_flags}")
        return found

    def columns_of(self, split: str) -> Columns:
        place = self.place_of(split)
        found = list(self.rows[split].column_names or next(self.each_row(split), {}))
        needs_label = self.labelled if self.evaluates else split != "test"
        known, absent = {}, []
        for name, value in self.trained.items():
            names = (value,) if isinstance(value, str) else value
            if getattr(self.arguments, name, None) not in (None, []):
                continue
            if all(has_column(found, column) for column in names):
                known[name] = value
            else:
                absent += names
        try:
            task = type(self.task)(replace_fields(self.arguments, known))
            return task.columns(found, place, needs_label)
        except ValueError as error:
            if not absent:
                raise
            raise ValueError(f"{error}; training read {' and '.join(map(repr, absent))}") from error

    def declared(self, split: str) -> tuple[str, ...]:
        """Names of the labels, where the data declare them; values are then their numbers."""
        column = self.columns[split].label
        feature = (self.rows[split].features or {}).get(column) if isinstance(column, str) else None
        names = getattr(getattr(feature, "feature", feature), "names", None)
        return tuple(names or ()) or self.task.declared_labels(self.columns[split])

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

        text = Value("string")
        features = {**task.features(columns), **dict.fromkeys(columns.slices, text), "problem": text}
        features |= {} if columns.label is None else {"label": text}
        settings = [getattr(task.data, name) for name in task.as_trained]
        identity = fingerprint(rows._fingerprint, type(task).__name__, columns, declared, skips, settings)
        found = rows.map(
            convert,
            with_indices=True,
            remove_columns=rows.column_names,
            features=Features(features),
            num_proc=self.arguments.num_proc,
            new_fingerprint=identity,
            desc=f"reading {place}",
        )
        skipped = [problem for problem in found["problem"] if problem is not None] if skips else []
        if skipped:
            warn_of_skipped(place, skipped)
            found = found.filter(lambda problem: problem is None, input_columns="problem")
        if not len(found):
            raise ValueError(f"{place} has no examples")
        return found.remove_columns("problem"), len(skipped)

    def data(self) -> Data:
        """The examples, with their labels; if there is no split but training's, some of these are held out."""
        found = {split: self.examples_of(split) for split in self.rows}
        examples, skipped = (
            {split: rows for split, (rows, _) in found.items()},
            {s: n for s, (_, n) in found.items() if n},
        )
        labels, unlabelled = None, {}
        if self.task.label_names and self.answers_are_read:
            labels, examples, unlabelled = self.with_labels(examples)
        examples = with_numbers(examples, self.arguments.slice_by)
        columns = next(iter(self.columns.values()))
        facts: dict[str, Any] = {"files": {split: Path(path).name for split, path in self.paths.items()} or None}
        facts |= self.task.column_facts(columns) | {"skipped": skipped or None, "unlabelled": unlabelled or None}
        examples = examples if self.evaluates else self.with_validation(examples)
        facts["examples"] = {split: len(rows) for split, rows in examples.items()}
        task_name = getattr(self.arguments, "task_name", None)
        if task_name is not None:
            facts["scores"] = list(GLUE[task_name].scores)
        name, config = self.hub_name
        on_hub = not self.paths and "/" in name and not os.path.isdir(name)
        return Data(
            name=self.name,
            config=config or "default",
            version=self.version,
            splits=examples,
            slice_columns=(*dict.fromkeys(self.arguments.slice_by), *({LENGTH} - set(self.arguments.slice_by))),
            places={split: self.place_of(split) for split in self.rows},
            labels=labels,
            dataset_id=name if on_hub else None,
            revision=self.arguments.dataset_revision,
            facts=facts,
        )

    @property
    def answers_are_read(self) -> bool:
        return self.labelled or all(columns.label is not None for columns in self.columns.values())

    def with_labels(self, examples: "Mapping[str, Dataset]") -> "tuple[Labels, dict[str, Dataset], dict[str, int]]":
        """The labels, splits with encoded labels, and the numbers of examples that have none and are left out.

        Raises:
            ValueError: labels do not vary, do not fit each other, or are missing.
        """
        raw = {
            split: [None if label is None else json.loads(label) for label in rows["label"]]
            for split, rows in examples.items()
            if "label" in rows.column_names
        }
        raw = self.named_sets(raw)
        seen = {split: Seen(labels) for split, labels in raw.items()}
        labels, known = self.known, "the model"
        if labels is None and self.evaluates:
            # the numbers of what there is to choose from
            labels = Labels(SINGLE, self.declared(next(iter(examples))))
        elif labels is None:
            labels, known = self.labels_of_training(seen), "training"
        splits, unlabelled = {}, {}
        for split, rows in examples.items():
            own = seen.get(split)
            # -1 may be a label like others
            if own is None or (own.hidden and not own.counts.keys() & {*labels.names}):
                if self.evaluates:
                    raise ValueError(f"{self.place_of(split)} {SECRET}")
                warnings.warn(f"{self.place_of(split)} {SECRET}", stacklevel=2)
                continue
            labels.require_known(own, self.place_of(split), known)
            if own.unlabelled:
                unlabelled[split] = own.unlabelled
                warnings.warn(
                    f"{self.place_of(split)}: {own.unlabelled:,} of {own.examples:,} examples have no label (-1) and "
                    "are left out",
                    stacklevel=2,
                )
            kept = [row for row, label in enumerate(raw[split]) if label is not None]
            encoded = [labels.encode(raw[split][row]) for row in kept]
            rows = rows.remove_columns("label")
            rows = rows if len(kept) == len(rows) else rows.select(kept)
            splits[split] = rows.add_column("label", encoded, feature=labels.feature)
        if known == "training" and labels.problem_type != REGRESSION:
            warn_of_unseen(seen, splits, self.place_of("train"))
        return labels, splits, unlabelled

    def labels_of_training(self, seen: Mapping[str, Seen]) -> Labels:
        arguments, place = self.arguments, self.place_of("train")
        if "train" not in seen or seen["train"].unlabelled == seen["train"].examples:
            raise ValueError(f"the training examples of {self.name} have no labels: name another split or column")
        column = self.columns["train"].label
        declared = column if isinstance(column, tuple) else self.declared("train")
        named = tuple(getattr(arguments, "label_list", ()))
        regression = getattr(arguments, "do_regression", None)
        return labels_of(seen["train"], place, declared, named, regression, self.task.labels_words)

    def named_sets(self, raw: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """Labels of splits, of which lists of 0 and 1 are the names that they mark."""
        first = next(iter(raw), None)
        if first is None or self.task.labels_words or self.declared(first) or not is_multi_hot(raw[first]):
            return dict(raw)
        size = len(raw[first][0])
        names = tuple(getattr(self.arguments, "label_list", ())) or (self.known.names if self.known else ())
        names = names or tuple(f"LABEL_{number}" for number in range(size))
        for split, labels in raw.items():
            if len(names) != size or not all(label is None or len(label) == len(names) for label in labels):
                raise ValueError(
                    f"labels of {self.place_of(split)} are lists of {size} values 0 or 1, and there are {len(names)} "
                    f"names, {listed(names)}: name as many with --label_list"
                )
        return {
            split: [None if label is None else from_multi_hot(label, names) for label in labels]
            for split, labels in raw.items()
        }

    def with_validation(self, examples: "dict[str, Dataset]") -> "dict[str, Dataset]":
        """Splits; if there is none but training's, some of these examples are held out as "validation"."""
        if len(examples) > 1:
            return examples
        train, share = examples["train"], self.arguments.held_out_percentage
        held_out = len(train) * share // 100
        if not 0 < held_out < len(train):
            raise ValueError(
                f"{self.name} has {len(train)} training examples and nothing to evaluate on, and "
                f"validation_split_percentage is {share}: raise it, or name validation data"
            )
        parts = train.train_test_split(held_out, seed=HOLD_OUT_SEED)
        return {"train": parts["train"], "validation": parts["test"]}

    @cached_property
    def version(self) -> str:
        """A digest of the content."""
        if self.reading.streaming:
            return "streamed, without a digest"
        found = sha256()
        for split, rows in self.rows.items():
            content = digest(self.paths[split]) if split in self.paths else rows._fingerprint
            found.update(f"{split} {content}\n".encode())
        return f"sha256:{found.hexdigest()[:16]}"


def replace_fields(arguments: Any, fields: Mapping[str, Any]) -> Any:
    """Arguments with other values of some fields, which were checked before."""
    found = copy.copy(arguments)
    for name, value in fields.items():
        values = [value] if isinstance(value, str) else list(value)
        setattr(found, name, values if isinstance(getattr(found, name), list) else values[0])
    return found


def warn_of_unseen(seen: Mapping[str, Seen], splits: Mapping[str, Any], place: str) -> None:
    """Warn of classes that training has and no other split does, such as a folder of examples without a label."""
    others = [seen[split].counts.keys() for split in splits if split != "train"]
    found = [name for name in seen["train"].counts if others and not any(name in names for names in others)]
    if found and sum(len(rows) for split, rows in splits.items() if split != "train") >= 10 * len(seen["train"].counts):
        shown = ", ".join(f"{name!r:.60} ({seen['train'].counts[name]:,} examples)" for name in found[:3])
        warnings.warn(
            f"{place}: no other split has the label {shown}: leave these examples out if it is no class to predict",
            stacklevel=3,
        )


def with_numbers(examples: "Mapping[str, Dataset]", names: Sequence[str]) -> "dict[str, Dataset]":
    """Splits whose columns of difficulty hold numbers, where all of their values are."""
    found = dict(examples)
    for name in dict.fromkeys(names):
        values = narrowest([value for rows in found.values() for value in rows[name]])
        start = 0
        for split, rows in found.items():
            own, start = values[start : start + len(rows)], start + len(rows)
            found[split] = rows.remove_columns(name).add_column(name, own)
    return found


def name_of(path: str) -> str:
    """The name of data by the path of their training file, such as reviews for reviews/train or reviews_train.csv."""
    place = Path(path)
    if place.suffix.lower() == ".gz":
        place = place.with_suffix("")
    stem = re.sub(r"(^|[-_. ])train(ing)?$", "", place.stem, flags=re.IGNORECASE)
    # folders of an absolute path tell of a machine
    above = "" if place.is_absolute() else place.parent.name
    return stem or above.removeprefix("..") or place.stem


def default_splits(splits: "Mapping[str, Dataset]", dataset: str, label_column: Any = None) -> list[str]:
    """The splits that a model is measured on; those with secret labels if there are no others.

    Raises:
        ValueError: there is none.
    """
    named = {role: [name for name in splits if name.startswith(role)] for role in ("test", "validation")}
    column = label_column if isinstance(label_column, str) else "label"
    open_tests = [
        name
        for name in named["test"]
        if not getattr(splits[name].features.get(column), "dtype", "").startswith("int")
        or splits[name].unique(column) != [-1]
    ]
    for found in (open_tests, named["validation"], named["test"]):
        if found:
            return found
    raise ValueError(f"{dataset} has the splits {', '.join(splits)}, none of them for tests: name one with --split")
