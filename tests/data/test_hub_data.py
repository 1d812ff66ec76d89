"""Tasks of GLUE and SuperGLUE, and other data sets of the Hub, from a loopback Hub in a process of its own."""

import io
import json

import pytest
from datasets import ClassLabel, Dataset, Features, Value

from hf_recurrent.data.glue import GLUE, SUPER_GLUE, TASKS
from support.client import must_succeed, run_client
from support.loopback_hub import LoopbackHub
from support.own_data import task_on

LABELS = {
    "mnli": ["entailment", "neutral", "contradiction"],
    "cb": ["entailment", "contradiction", "neutral"],
    **{name: ["entailment", "not_entailment"] for name in ("qnli", "rte")},
    **{name: ["False", "True"] for name in ("boolq", "wic")},
}
# further columns of the real data sets, and their order
COLUMNS = {
    "boolq": ("question", "passage", "idx", "label"),
    "wic": ("word", "sentence1", "sentence2", "start1", "start2", "end1", "end2", "idx", "label"),
}
LOAD = """
import json, sys, warnings
from hf_recurrent.tasks import get_task

warnings.simplefilter("error")
kind = get_task("text-classification")
for options in json.loads(sys.argv[1]):
    token = options.pop("token", None)
    try:
        task = kind(kind.arguments(**options))
        task.data.token = token
        data = task.source
        splits = {name: [len(rows), rows[0]] for name, rows in data.splits.items()}
        columns, scores = data.facts["text_column"], data.facts.get("scores")
        labels = data.labels.problem_type, data.label_names
        print(json.dumps([splits, *labels, columns, scores, data.dataset_id, data.version]))
    except (ValueError, UserWarning) as error:
        print(json.dumps(str(error)))
"""


def table(task, labels, rows):
    """A split with the columns of the real data set, as Parquet."""
    names = COLUMNS.get(task, (*TASKS[task].texts, "label", "idx"))
    label = Value("float32") if task == "stsb" else ClassLabel(names=LABELS.get(task, ["no", "yes"]))
    features = {name: Value("string") for name in names} | {"label": label, "idx": Value("int32")}
    features |= {name: Value("int32") for name in names if name.startswith(("start", "end"))}
    values = [
        {name: f"{name} {i}" if kind == Value("string") else 0 for name, kind in features.items()}
        | {"label": labels[i % len(labels)], "idx": i}
        for i in range(rows)
    ]
    out = io.BytesIO()
    Dataset.from_list(values, features=Features({name: features[name] for name in names})).to_parquet(out)
    return out.getvalue()


@pytest.mark.parametrize("task", TASKS)
def test_the_texts_of_a_task_are_found_by_their_names_alone(task):
    names = COLUMNS.get(task, (*TASKS[task].texts, "label", "idx"))
    found = task_on("text-classification", dataset_name="own/copy").columns(names, "the data set")
    assert (found.texts, found.label) == (TASKS[task].texts, "label")


def files_of(dataset):
    """The files of a data set with all its tasks."""
    files, configs = {}, []
    for name, task in TASKS.items():
        if task.dataset != dataset:
            continue
        labels = [0.0, 2.5, 5.0] if name == "stsb" else list(range(len(LABELS.get(name, "no"))))
        tests = [split.replace("validation", "test") for split in task.validation]
        sizes = {"train": 6, **dict.fromkeys(task.validation, 4), **dict.fromkeys(tests, 3)}
        paths = {split: f"{name}/{split}-00000-of-00001.parquet" for split in sizes}
        for split, size in sizes.items():
            files[paths[split]] = table(name, [-1] if split in tests else labels, size)
        configs.append(
            {"config_name": name, "data_files": [{"split": split, "path": path} for split, path in paths.items()]}
        )
    files["README.md"] = f"---\nconfigs: {json.dumps(configs)}\n---\n".encode()
    return files


def loaded(hub, folder, calls, **options):
    environment = hub.environment(folder, **options)
    done = run_client(LOAD, {**environment, "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}, json.dumps(calls), cwd=folder)
    return list(map(json.loads, must_succeed(done).splitlines()))


@pytest.mark.slow
def test_tasks(tmp_path):
    with LoopbackHub() as hub:
        for dataset in (GLUE, SUPER_GLUE):
            hub.add_repository(dataset, "dataset", files=files_of(dataset))
        matched = {"task_name": "mnli", "validation_split": "validation_matched"}
        *found, chosen = loaded(hub, tmp_path, [*({"task_name": name} for name in TASKS), matched])
        assert list(chosen[0]) == ["train", "validation"]
        assert hub.unknown == []
    for (name, task), facts in zip(TASKS.items(), found, strict=True):
        splits, problem, labels, columns, scores, dataset, version = facts
        assert {split: size for split, (size, _) in splits.items()} == {"train": 6, **dict.fromkeys(task.validation, 4)}
        assert problem == ("regression" if name == "stsb" else "single_label_classification")
        assert labels == ([] if name == "stsb" else LABELS.get(name, ["no", "yes"]))
        assert tuple(columns) == task.texts
        texts = {column: f"{source} 0" for column, source in zip(("text", "text_pair"), task.texts, strict=False)}
        assert splits["train"][1] == {**texts, "label": 0}
        assert (tuple(scores), dataset) == (task.scores, task.dataset)
        assert version.startswith("sha256:")


@pytest.mark.slow
def test_data_sets_of_the_hub(tmp_path):
    good = {"dataset_name": "org/films", "validation_split": "dev", "text_column": ["sentence"]}
    rows = {"train": table("sst2", [0, 1], 6), "dev": table("sst2", [1, 0], 4), "test": table("sst2", [-1], 3)}
    rows["exam"] = rows["dev"]
    configs = [{"config_name": "own", "data_files": [{"split": split, "path": f"{split}.parquet"} for split in rows]}]
    files = {f"{split}.parquet": content for split, content in rows.items()}
    files["README.md"] = f"---\nconfigs: {json.dumps(configs)}\n---\n".encode()
    with LoopbackHub() as hub:
        hub.add_repository("org/films", "dataset", files=files)
        hub.add_repository("org/secret", "dataset", files=files, private=True)
        hub.add_repository("org/empty", "dataset")
        calls = [
            # before it is in the cache
            {"dataset_name": "org/secret"},
            good | {"validation_split": "dev", "test_split": "exam"},
            good,
            good | {"dataset_name": "org/secret", "validation_split": "dev", "test_split": "exam", "token": hub.token},
            {"dataset_name": "org/none"},
            {"dataset_name": "org/empty"},
            {"dataset_name": "org/films", "dataset_config_name": "x"},
            {"dataset_name": "org/films", "dataset_revision": "v9"},
            {"task_name": "sst2"},
            good | {"train_split": "trian"},
            good | {"text_column": ["txt"]},
        ]
        refused, whole, hidden, secret, *errors = loaded(hub, tmp_path, calls, token=False)
        assert whole[0]["validation"] == [4, {"text": "sentence 0", "label": 1}]
        assert whole[0]["test"] == whole[0]["validation"]
        assert whole[5] == "org/films"
        assert secret[0] == whole[0]
        assert hidden.startswith("data set org/films, test has no labels, or hides them (-1)")
        for message, expected in zip(
            [refused, *errors],
            [
                "dataset_name 'org/secret' does not load: DatasetNotFoundError",
                "dataset_name 'org/none' does not load: DatasetNotFoundError",
                "dataset_name 'org/empty' does not load: ",
                "dataset_name 'org/films' and dataset_config_name 'x' does not load: ValueError: BuilderConfig",
                "dataset_name 'org/films' and dataset_revision 'v9' does not load: ",
                "task_name 'sst2' does not load: DatasetNotFoundError",
                "train_split is 'trian': org/films has the splits train, dev, test, exam",
                "text_column is 'txt': data set org/films, train has the columns 'sentence', 'label', 'idx'",
            ],
            strict=True,
        ):
            assert message.startswith(expected)
            assert "\n" not in message
        hub.fail("GET .", status=500, times=None)
        (tmp_path / "fresh").mkdir()
        (failed,) = loaded(hub, tmp_path / "fresh", calls[1:2])
        assert failed.startswith("dataset_name 'org/films' does not load: ")


def test_a_copy_of_a_task_without_a_split(monkeypatch):
    splits = dict.fromkeys(
        ("train", "validation"), Dataset.from_list([{"premise": "a", "hypothesis": "b", "label": 0}])
    )
    monkeypatch.setattr("hf_recurrent.data.loading.load_hub_dataset", lambda *place, **options: splits)
    message = "split is 'validation_matched': nyu-mll/glue has the splits train, validation"
    with pytest.raises(ValueError, match=message):
        _ = task_on("text-classification", task_name="mnli").source
