"""Two processes over long documents: what one process of as many rows arrives at, each with its own documents."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from document_ranks import DOCUMENTS, SETTINGS, STEPS
from document_runs import language_model, session_of, token_corpus
from safetensors.torch import load_file

from hf_recurrent.analysis.recurrence import evaluate_documents
from hf_recurrent.documents import DocumentReader
from hf_recurrent.hub import lint_card
from hf_recurrent.training.document_loop import train
from support.compare import assert_close

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("document_ranks.py")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """The runs of two processes."""
    folder = tmp_path_factory.mktemp("ranks")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPT.parents[1])}
    command = [sys.executable, str(SCRIPT), str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The same rows in one process."""
    folder = tmp_path_factory.mktemp("whole")
    changes = {"max_steps": STEPS, "per_device_train_batch_size": 2, **SETTINGS}
    session = session_of(folder, language_model("gutlb"), DOCUMENTS, **changes)
    train(session)
    return session


def test_two_processes_equal_one(ranks, whole):
    theirs, start = load_file(ranks / "straight.safetensors"), language_model("gutlb").state_dict()
    assert max((theirs[name] - start[name]).abs().max() for name in theirs) > 1e-2
    for name, tensor in whole.plain_model.state_dict().items():
        torch.testing.assert_close(theirs[name], tensor, rtol=1e-4, atol=1e-6, msg=name)
    log = json.loads((ranks / "straight.json").read_text())["log"]
    assert len(log) == len(whole.progress.log)
    for ours, one in zip(log, whole.progress.log, strict=True):
        assert ours == pytest.approx(one, rel=1e-5)


def test_each_process_has_its_own_documents(ranks):
    first, second = json.loads((ranks / "straight.json").read_text())["read"]
    # an epoch is 3 documents of 3 segments for each
    first, second = ({row for step in read[:9] for row in step} for read in (first, second))
    assert len(first) == len(second) == 3
    assert first | second == set(range(6))


def test_fewer_documents_than_processes_are_evaluated_once(ranks):
    model = language_model("gutlb")
    model.load_state_dict(load_file(ranks / "straight.safetensors"), strict=False)
    expected = evaluate_documents(model, DocumentReader(token_corpus(20, seed=1), 2, 8)).bits_per_token
    assert json.loads((ranks / "straight.json").read_text())["one_document"] == pytest.approx(expected, rel=1e-6)


def test_resumed_processes_equal_straight_ones(ranks):
    ours, theirs = (load_file(ranks / f"{name}.safetensors") for name in ("resumed", "straight"))
    assert_close(ours, theirs, 1e-4)
    notes = [json.loads((ranks / f"{name}.json").read_text()) for name in ("resumed", "straight")]
    assert_close(notes[0]["log"], notes[1]["log"], 1e-4)
    assert [len(read) for read in notes[0]["read"]] == [1, 1]


def test_whole_run(ranks):
    lint_card(ranks / "script")
    card = json.loads((ranks / "script" / "card.json").read_text())
    assert "2 processes" in card["training"]["hardware"]
    assert card["training"]["steps"] == 2
    assert "bits/byte" in json.loads((ranks / "messages_0.json").read_text())
    assert json.loads((ranks / "messages_1.json").read_text()) is None


def test_processes_that_change_the_step_are_refused(ranks, tmp_path):
    def resume(checkpoint):
        session_of(
            *(tmp_path, language_model("gutlb"), DOCUMENTS),
            per_device_train_batch_size=1,
            resume_from_checkpoint=str(checkpoint),
        )

    with pytest.raises(ValueError, match=r"checkpoint-10.*: .*processes was 2 and is 1"):
        resume(ranks / "straight" / "checkpoint-10")
