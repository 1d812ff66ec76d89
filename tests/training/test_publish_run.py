"""`push_to_hub`: a run publishes itself when it is complete, and only then."""

import pytest
import yaml

from hf_recurrent.hub.staging import is_publishable
from hf_recurrent.training.run import run
from hf_recurrent.training.trainer import RecurrentTrainer
from support.client import client_in_this_process
from support.loopback_hub import LoopbackHub

# huggingface_hub passes the bytes of large files in a way that its HTTP client advises against
pytestmark = [pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"), pytest.mark.slow]

PUSH = ["--push_to_hub", "true", "--hub_model_id", "org/tiny", "--hub_private_repo", "true"]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    with LoopbackHub() as hub, client_in_this_process(hub, tmp_path):
        monkeypatch.setenv("HF_TOKEN", hub.token)
        yield hub
        assert hub.unknown == []


def test_a_run_publishes_itself_when_it_is_complete(hub, recipe, tmp_path, monkeypatch):
    path = recipe(max_steps=2, eval_steps=2, save_steps=2, dataset_id="org/listops")
    # the environment's token is another's: the flag's must be used, and appear nowhere
    monkeypatch.setenv("HF_TOKEN", hub.foreign_token)
    command = [path, "--output_dir", str(tmp_path / "run"), *PUSH, "--hub_token", hub.token]
    assert f"published {hub.endpoint}/org/tiny" in run(command)
    repository = hub.repository("org/tiny")
    assert [commit.summary for commit in repository.commits[1:]] == ["Publish tiny with hf_recurrent"]
    assert repository.private
    files = set(repository.head().files) - {".gitattributes"}
    assert all(is_publishable(path) for path in files)
    everything = b"".join(repository.head().files.values())
    everything += b"".join(path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert hub.token.encode() not in everything
    assert b"hub_token" not in everything
    results = yaml.safe_load(repository.head().files[".eval_results/listops.yaml"])
    assert results[0]["dataset"] == {"id": "org/listops", "task_id": "original/test"}

    # what loaded in a process of its own a moment ago does so again
    monkeypatch.setattr("hf_recurrent.hub.publish.check_reload", lambda *folders: None)
    assert f"unchanged: {hub.endpoint}/org/tiny" in run(command)
    assert len(repository.commits) == 2


def test_a_run_that_fails_publishes_nothing(hub, recipe, tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise FloatingPointError("the loss is NaN")

    monkeypatch.setattr(RecurrentTrainer, "training_step", fail)
    with pytest.raises(FloatingPointError, match="the loss is NaN"):
        run([recipe(max_steps=2), "--output_dir", str(tmp_path / "run"), *PUSH])
    assert hub.repositories() == []


def test_a_token_that_may_not_write_stops_before_training(hub, recipe, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", hub.read_token)
    monkeypatch.setattr(RecurrentTrainer, "train", None)
    with pytest.raises(ValueError, match="the token may only read"):
        run([recipe(max_steps=2), "--output_dir", str(tmp_path / "run"), *PUSH])


def test_where_to_is_known_before_anything_starts(recipe, tmp_path):
    for flags in (PUSH[:2], [*PUSH[:2], "--hub_model_id", "tiny"]):
        with pytest.raises(ValueError, match=r"hub_model_id='(tiny)?': expected owner/name"):
            run([recipe(), "--output_dir", str(tmp_path / "run"), *flags])
        assert not (tmp_path / "run").exists()
