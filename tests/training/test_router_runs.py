"""Runs by the Neural Data Router's protocol: validation sets, batches, ties, depth at test time, and cards."""

import json

import pytest
import yaml
from safetensors.torch import load_file
from test_run_glue_style import Killed, kill_at
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from hf_recurrent.hub import lint_card
from hf_recurrent.training.trainer import RecurrentTrainer
from support.compare import assert_close

pytestmark = pytest.mark.slow

PROTOCOL = {
    "model_type": "ndr",
    "config": {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 3},
    "benchmark": "compositional_table_lookup",
    "benchmark_params": {"num_train": 70, "num_validation": 12, "num_test": 16},
    "lr_schedule": "constant",
    "warmup_steps": None,
    "ponder_warmup_steps": None,
    "batch_sampling": "by_length",
    "metric_for_best_model": "validation_ood_accuracy",
    "best_model_on_ties": "latest",
}
ACT = {**PROTOCOL["config"], "copy_gate": False, "halting": "act", "num_hidden_layers": 4}
LSTM = {"hidden_size": 12, "embedding_size": 8}
EXIT = {**PROTOCOL["config"], "exit_criterion": "convergence", "depth_sampling": "uniform", "backprop_steps": 2}


def card_of(folder):
    return json.loads((folder / "card.json").read_text())


@pytest.fixture(scope="module")
def router(script, tmp_path_factory):
    """A tiny NDR, trained with 3 steps and left with 5."""
    folder = tmp_path_factory.mktemp("router")
    recipe = folder / "tiny.yaml"
    from tiny_run import TINY

    settings = {**TINY, **PROTOCOL, "evaluation_depth": 5, "paper_table": "none: it is tiny"}
    recipe.write_text(yaml.safe_dump({key: value for key, value in settings.items() if value is not None}))
    seen = []
    step = RecurrentTrainer.prediction_step

    def spied(self, model, inputs, *args, **kwargs):
        depths = []
        hook = self.model.model.block.register_forward_hook(lambda *_: depths.append(1))
        result = step(self, model, inputs, *args, **kwargs)
        hook.remove()
        seen.append(len(depths))
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecurrentTrainer, "prediction_step", spied)
        script.main([str(recipe), "--output_dir", str(folder / "run"), "--keep_checkpoints"])
    assert set(seen) == {5}
    return folder / "run"


def test_checkpoints_train_with_one_depth_and_the_published_model_has_the_other(router):
    (last, *_) = sorted(router.glob("checkpoint-*"), reverse=True)
    assert json.loads((last / "config.json").read_text())["num_hidden_layers"] == 3
    assert json.loads((router / "config.json").read_text())["num_hidden_layers"] == 5
    card = card_of(router)
    assert card["max_depth"] == 5
    assert {result["table"]["max_depth"] for result in card["results"]} == {5}
    assert any("trained with 3 depth steps and evaluated with 5" in line for line in card["limitations"])


def test_every_test_split_is_reported_by_depth_and_so_is_the_choice(router):
    lint_card(router)
    card = card_of(router)
    splits = {result["split"]: result["table"] for result in card["results"]}
    assert list(splits)[:2] == ["test", "test_ood"]
    assert {"test_basic", "test_new_primitive_1", "test_new_primitive_2", "test_new_composition"} < splits.keys()
    assert [row["value"] for row in splits["test_ood"]["slices"]["depth"]["rows"]] == ["9", "10"]
    told = next(line for line in card["limitations"] if line.startswith("The checkpoint, of step"))
    assert "chosen by its accuracy on `validation_ood` (" in told
    assert "step 12, accuracy was" in told
    assert "on `validation` and" in told


def test_a_resumed_run_has_the_same_batches_and_choice(script, router, tmp_path, monkeypatch):
    recipe, folder = str(router.parent / "tiny.yaml"), tmp_path / "run"
    # 8 batches an epoch: step 9 is within the second, from the checkpoint at its beginning
    lift = kill_at(monkeypatch, "training_step", 10)
    with pytest.raises(Killed):
        script.main([recipe, "--output_dir", str(folder)])
    lift()
    script.main([recipe, "--output_dir", str(folder)])
    ours, theirs = load_file(folder / "model.safetensors"), load_file(router / "model.safetensors")
    assert_close(ours, theirs, 1e-4)
    assert card_of(folder)["limitations"] == card_of(router)["limitations"]


def test_a_model_that_stops_by_an_exit_criterion(script, write_recipe, tmp_path):
    folder = tmp_path / "run"
    recipe = write_recipe(**{**PROTOCOL, "config": EXIT, "evaluation_depth": 5, "max_steps": 2, "eval_steps": 2})
    script.main([recipe, "--output_dir", str(folder)])
    lint_card(folder)
    card = card_of(folder)
    assert (card["halting"], card["max_depth"]) == ("convergence", 5)
    assert card["results"][1]["table"]["unit"] == "example"
    assert "exit by convergence and at most 5 depth steps" in (folder / "README.md").read_text()


@pytest.mark.parametrize(("family", "config"), [("ndr", ACT), ("rnn", LSTM)], ids=["act", "lstm"])
def test_models_that_halt_token_by_token_and_that_do_not_halt(script, write_recipe, tmp_path, family, config):
    changes = {**PROTOCOL, "model_type": family, "config": config, "batch_sampling": "with_replacement"}
    recipe = write_recipe(**{**changes, "max_steps": 2, "eval_steps": 2, "save_steps": 2})
    folder = tmp_path / "run"
    script.main([recipe, "--output_dir", str(folder)])
    lint_card(folder)
    table = card_of(folder)["results"][1]["table"]
    halts = family == "ndr"
    assert table["unit"] == ("token" if halts else None)
    assert table["fixed_depth"] is not halts
    assert (table["slices"]["depth"]["rows"][0]["steps"] is not None) is halts
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    assert model(**AutoTokenizer.from_pretrained(folder)(["101 a b"], return_tensors="pt")).logits.shape == (1, 8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "ndr", "config": ACT, "evaluation_depth": 9}, "evaluation_depth is 9, .*halts by itself"),
        ({"model_type": "rnn", "config": LSTM, "evaluation_depth": 9}, "'rnn', whose layers are not shared"),
        ({"batch_sampling": "by_lenght"}, "batch_sampling is 'by_lenght': .* did you mean by_length"),
        ({"train_sampling_strategy": "group_by_length"}, "both choose the examples of a batch, set one of them"),
    ],
)
def test_what_cannot_be_is_refused_before_training(script, write_recipe, tmp_path, monkeypatch, changes, message):
    monkeypatch.setattr(RecurrentTrainer, "train", None)
    with pytest.raises(ValueError, match=message):
        script.main([write_recipe(**{**PROTOCOL, **changes}), "--output_dir", str(tmp_path / "run")])
