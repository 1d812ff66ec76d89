"""The loop over long documents: an interrupted run goes on in the middle of documents as if nothing had happened."""

import json

import pytest
import torch
from document_runs import language_model, session_of, token_corpus

from hf_recurrent.analysis.recurrence import evaluate_documents
from hf_recurrent.training import document_loop
from hf_recurrent.training.document_checkpoint import find_checkpoint
from hf_recurrent.training.document_loop import train
from hf_recurrent.training.trainer import DivergedError
from support.compare import assert_close
from support.families import slow

pytestmark = pytest.mark.slow

# rows begin, end and pass over the boundaries of checkpoints at other places each
DOCUMENTS = {"train": token_corpus(30, 3, 21, 1, 12, 40, 9), "validation": token_corpus(20, 2, 33, seed=1)}

MEMORIZING = {"recurrent_layers": [], "memory_layers": [-1], "memory_size": 8, "num_neighbors": 4}


def trained(folder, model_type="tlb", documents=DOCUMENTS, config=None, dropout=0.1, **changes):
    model = language_model(model_type, dropout=dropout, **(config or {}))
    session = session_of(folder, model, documents, **changes)
    train(session)
    return session


def weights(session) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in session.plain_model.state_dict().items()}


class Killed(BaseException):
    pass


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [
        slow("tlb", {"gradient_accumulation_steps": 2}),
        slow("gutlb", {"max_grad_norm": 0.5}),
        ("block_recurrent", {"gradient_accumulation_steps": 2}),
        ("block_recurrent", {"config": MEMORIZING, "segment_length": 4}),
        ("rnn", {"optim": "adamw_torch", "learning_rate": 1e-2, "lr_schedule": "cosine"}),
    ],
    ids=["tlb", "gutlb", "block_recurrent", "memorizing", "rnn"],
)
def test_resumed_run_equals_straight_run(model_type, changes, tmp_path, monkeypatch):
    changes = {"max_steps": 9, "logging_steps": 4, "eval_steps": 5, **changes}
    straight = trained(tmp_path / "straight", model_type, **changes)
    take_step = document_loop.take_step

    def killed(session):
        if session.progress.steps == 5:
            raise Killed
        take_step(session)

    with monkeypatch.context() as patch:
        patch.setattr(document_loop, "take_step", killed)
        with pytest.raises(Killed):
            trained(tmp_path / "resumed", model_type, **changes)
    assert find_checkpoint(tmp_path / "resumed", None).name == "checkpoint-3"
    torch.manual_seed(99)
    resumed = trained(tmp_path / "resumed", model_type, **changes)
    assert_close(weights(resumed), weights(straight), 1e-4)
    assert_close(resumed.progress.log, straight.progress.log, 1e-4)
    assert [entry["step"] for entry in straight.progress.log] == [4, 5, 8, 9, 9]
    # and the states, with which the documents would go on
    for ours, theirs in zip(resumed.caches, straight.caches, strict=True):
        assert_close(dict(ours.state_dict()), dict(theirs.state_dict()), 1e-4)
    assert resumed.reader.state_dict() == straight.reader.state_dict()


def test_training_learns_and_logs(tmp_path):
    session = trained(tmp_path / "run", max_steps=60, dropout=0.0, warmup_steps=20, logging_steps=20, save_steps=60)
    first, *_, last = session.progress.log
    assert last["bits_per_token"] < 0.7 * first["bits_per_token"]
    # 2 rows of at most 8 predicted tokens
    assert 0 < first["tokens"] <= 20 * 16
    # the rate of the next step
    assert last["learning_rate"] == pytest.approx(1 / 60**0.5)
    progress = json.loads((tmp_path / "run" / "checkpoint-60" / "progress.json").read_text())
    assert progress["log"] == session.progress.log
    assert len({path.stat().st_mode for path in (tmp_path / "run" / "checkpoint-60").iterdir()}) == 1
    assert progress["seconds"] > 0


def test_validation_is_of_whole_documents_from_their_beginning(tmp_path):
    session = trained(tmp_path / "run", eval_steps=3, dropout=0.0)
    assert [entry["step"] for entry in session.progress.log if "validation_bits_per_token" in entry] == [3, 6]
    model = session.plain_model.eval()
    nats, tokens = 0.0, 0
    for index in range(3):
        text = torch.from_numpy(DOCUMENTS["validation"][index])[None]
        with torch.no_grad():
            logits = model(text).logits[0, :-1]
        nats += torch.nn.functional.cross_entropy(logits, text[0, 1:], reduction="sum").item()
        tokens += text.shape[1] - 1
    expected = nats / tokens / torch.log(torch.tensor(2.0)).item()
    assert session.progress.log[-1]["validation_bits_per_token"] == pytest.approx(expected, rel=1e-5)
    assert evaluate_documents(model, session.validation).bits_per_token == pytest.approx(expected, rel=1e-5)


def test_evaluation_changes_nothing(tmp_path):
    plain, evaluated = (trained(tmp_path / str(steps), eval_steps=steps) for steps in (None, 2))
    assert_close(weights(plain), weights(evaluated), 1e-4)


def test_last_checkpoints_are_kept(tmp_path):
    trained(tmp_path / "run", max_steps=7, save_steps=2, save_total_limit=2)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["checkpoint-6", "checkpoint-7"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"per_device_train_batch_size": 3}, r"checkpoint-6/reader_0\.json: .* batch_size was 2 and is 3"),
        ({"documents": {"train": token_corpus(30, 3)}}, "documents was 7 and is 2; tokens was 116 and is 33"),
    ],
)
def test_checkpoint_of_another_run_is_refused(changes, message, tmp_path):
    trained(tmp_path / "run")
    with pytest.raises(ValueError, match=message):
        trained(tmp_path / "other", resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-6"), **changes)


def test_sequences_of_a_checkpoint_are_grouped_in_another_way(tmp_path):
    straight = trained(tmp_path / "straight", max_steps=6, dropout=0.0)
    resumed = trained(
        tmp_path / "resumed",
        max_steps=6,
        dropout=0.0,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=2,
        resume_from_checkpoint=str(tmp_path / "straight" / "checkpoint-3"),
    )
    assert_close(weights(resumed), weights(straight), 1e-4)
    assert_close(resumed.progress.log, straight.progress.log, 1e-4)


def test_a_checkpoint_without_its_last_file_is_skipped(tmp_path):
    trained(tmp_path / "run")
    last = tmp_path / "run" / "checkpoint-6"
    (last / "progress.json").unlink()
    with pytest.warns(UserWarning, match=r"skipping the incomplete .*checkpoint-6"):
        assert find_checkpoint(tmp_path / "run", None).name == "checkpoint-3"
    with pytest.raises(ValueError, match=r"it is no complete checkpoint, progress\.json is missing"):
        find_checkpoint(tmp_path / "run", str(last))


def test_diverged_run_keeps_its_last_good_checkpoint(tmp_path):
    session = session_of(tmp_path / "run", language_model("tlb"), DOCUMENTS, max_steps=9, logging_steps=1)
    take_step = document_loop.take_step

    def poisoned(current):
        take_step(current)
        if current.progress.steps == 5:
            next(current.plain_model.parameters()).data.fill_(float("nan"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document_loop, "take_step", poisoned)
        with pytest.raises(DivergedError, match=r"step 5: a weight is not a finite number.*checkpoint-3\. Lower"):
            train(session)


def test_validation_needs_documents(tmp_path):
    with pytest.raises(ValueError, match=r"eval_steps is 3, but .* has no validation documents"):
        trained(tmp_path / "run", documents={"train": DOCUMENTS["train"]}, eval_steps=3)
