"""Long documents with every engine, in any number of processes: what one process arrives at, also where one of them
goes on from another's checkpoint."""

import json
import shutil
from functools import cache

import pytest
from document_runs import CHUNKS, TINY_DOCUMENTS
from safetensors.torch import load_file
from script_runs import WITHOUT, arguments
from test_script_ranks import TOLERANCE, launched, trained_alone

pytestmark = pytest.mark.nightly

BLOCKS = {**TINY_DOCUMENTS["config"], **WITHOUT}
MODELS = {
    "blocks": {"config": BLOCKS},
    # the paper's optimiser, of matrices that it factors and of others
    "factored": {
        "config": {**BLOCKS, "hidden_size": 128, "intermediate_size": 131},
        **{"optim": "adafactor", "learning_rate": 0.05},
    },
    "feedback": {"config": {**BLOCKS, "feedback": True}},
    "memory": {"model_type": "tlb", "config": {**CHUNKS, **WITHOUT, "hidden_size": 16}},
    "halting": {"model_type": "gutlb", "config": {**CHUNKS, **WITHOUT, "hidden_size": 16, "halting": "global"}},
}
# documents end at other steps in each sequence, and validation is longer in one process than in the other
LENGTHS = {"train": (40, 9, 130, 21, 55, 3, 77, 34, 18, 90), "validation": (70, 20, 5), "test": (60, 33)}
RUN = {"save_steps": 2, "save_total_limit": 9, "keep_checkpoints": True, "eval_steps": 2, "warmup_steps": 1}
# an engine and its processes, each of so many sequences in so many groups
ALONE, GROUPS = ("alone", 1, 6, 1), ("alone", 1, 3, 2)
TWO, THREE = ("cpu", 2, 3, 1), ("cpu", 3, 2, 1)
TWO_SHARDED, THREE_SHARDED = ("fsdp2", 2, 3, 1), ("fsdp2", 3, 1, 2)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    texts = tmp_path_factory.mktemp("texts")
    for split, lengths in LENGTHS.items():
        (texts / split).mkdir()
        for number, length in enumerate(lengths):
            (texts / split / f"{number}.txt").write_text((f"window {number} of state " * 10)[:length])
    return {"TEXTS": str(texts)}


def run(folder, places, shares, **changes):
    """The folder of a run with an engine."""
    engine, processes, batch, groups = shares
    changes |= {**RUN, "per_device_train_batch_size": batch, "gradient_accumulation_steps": groups}
    if engine != "alone":
        return launched(folder, places, engine, ["segments"], processes, **changes) / "segments"
    trained_alone("segments", arguments("segments", folder / "segments", places, **changes))
    return folder / "segments"


@pytest.fixture(scope="module")
def straight(places, tmp_path_factory):
    """A function from an engine and a model to the folder of an undisturbed run."""

    @cache
    def found(shares, model):
        return run(tmp_path_factory.mktemp("straight"), places, shares, **MODELS[model])

    return found


def assert_same_run(ours, theirs, start):
    weights, expected, before = (load_file(path / "model.safetensors") for path in (ours, theirs, start))
    assert weights.keys() == expected.keys()
    for name, value in expected.items():
        assert (weights[name] - value).abs().max() <= TOLERANCE * value.abs().max(), name
    # one engine leaves out the one name of a tensor that has two, another the other
    assert max((before[name] - weights[name]).abs().max() for name in before.keys() & weights.keys()) > 1e-2
    logs = [json.loads((path / "training_log.json").read_text()) for path in (ours, theirs)]
    assert [entry["step"] for entry in logs[0]] == [1, 2, 2, 3, 4, 4, 5, 5]
    for entry, other in zip(*logs, strict=True):
        assert entry == pytest.approx(other, rel=1e-5)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("shares", [TWO, TWO_SHARDED], ids=["parallel", "sharded"])
def test_two_processes_equal_one(straight, shares, model):
    expected = straight(ALONE, model)
    assert_same_run(straight(shares, model), expected, expected / "checkpoint-2")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("before", "after", "model"),
    [
        (TWO, THREE, "memory"),
        (TWO, GROUPS, "blocks"),
        (ALONE, TWO, "blocks"),
        (GROUPS, ALONE, "memory"),
        (TWO_SHARDED, TWO, "blocks"),
        (TWO_SHARDED, ALONE, "factored"),
        (TWO, TWO_SHARDED, "factored"),
        (ALONE, THREE_SHARDED, "blocks"),
        (TWO_SHARDED, THREE_SHARDED, "halting"),
    ],
)
def test_runs_go_on_with_another_engine_and_number_of_processes(straight, places, tmp_path, before, after, model):
    folder = tmp_path / "segments"
    shutil.copytree(straight(before, model) / "checkpoint-2", folder / "checkpoint-2")
    claim = json.loads((straight(before, model) / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**claim, "evaluated": False, "finished": False}))
    copied = (folder / "checkpoint-2" / "progress.json").stat().st_mtime_ns
    resumed = run(tmp_path, places, after, **MODELS[model])
    assert (folder / "checkpoint-2" / "progress.json").stat().st_mtime_ns == copied
    assert_same_run(resumed, straight(ALONE, model), folder / "checkpoint-2")
