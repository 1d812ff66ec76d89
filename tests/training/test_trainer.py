"""What `RecurrentTrainer` adds to `Trainer`."""

import numpy as np
import pytest
import torch
from transformers import EvalPrediction

from hf_recurrent import AlbertRecurrentConfig, AlbertRecurrentForSequenceClassification
from hf_recurrent.analysis.evaluate import evaluate_batches
from hf_recurrent.models.gut.configuration_gut import GUTConfig
from hf_recurrent.models.gut.modeling_gut import GUTForSequenceClassification
from hf_recurrent.training.arguments import RecurrentTrainingArguments
from hf_recurrent.training.clock import TrainingClock
from hf_recurrent.training.metrics import compute_metrics, mean_steps
from hf_recurrent.training.trainer import DivergedError, RecurrentTrainer

pytestmark = pytest.mark.slow


def make_rows(count=16):
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(4, 12, (count, 7), generator=generator)
    return [{"input_ids": row, "attention_mask": torch.ones_like(row), "labels": row[0] % 3} for row in ids]


def make_trainer(folder, config=None, **options):
    fields = {"vocab_size": 12, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_labels": 3}
    fields |= {"halting": "global"}
    model = GUTForSequenceClassification(GUTConfig(num_hidden_layers=4, **{**fields, **(config or {})}))
    defaults = {
        "max_steps": 6,
        "per_device_train_batch_size": 4,
        "logging_steps": 2,
        "save_strategy": "no",
        "learning_rate": 1e-3,
    }
    args = RecurrentTrainingArguments(
        output_dir=str(folder), use_cpu=True, disable_tqdm=True, report_to="none", **{**defaults, **options}
    )
    return RecurrentTrainer(
        *(model, args),
        train_dataset=make_rows(),
        eval_dataset=make_rows(6),
        compute_metrics=compute_metrics,
        callbacks=[TrainingClock()],
    )


def test_ponder_statistics_are_logged(tmp_path):
    trainer = make_trainer(tmp_path)
    trainer.train()
    logs = [log for log in trainer.state.log_history if "loss" in log]
    assert len(logs) == 3
    for log in logs:
        assert 0 < log["ponder_steps"] <= 4
        assert 0 < log["ponder_cost"] <= 4
        assert log["aux_loss"] == log["ponder_loss"] == pytest.approx(0.1 * log["ponder_cost"], rel=1e-5)
        assert "router_loss" not in log


@pytest.mark.parametrize("depth", [None, 2])
def test_trackers_get_the_halting_mass_of_evaluations(tmp_path, depth):
    trainer = make_trainer(tmp_path, evaluation_depth=depth)
    assert not any("halting_mass" in name for name in trainer.evaluate())
    trainer.args.report_to = ["tensorboard"]
    reported = trainer.evaluate()
    record = evaluate_batches(trainer.model, trainer.get_eval_dataloader(), max_depth=depth)
    expected = {f"eval_halting_mass/step_{step}": mass for step, mass in enumerate(record.mass.mean(0))}
    assert {name: reported[name] for name in reported if "halting_mass" in name} == pytest.approx(expected, abs=1e-6)
    assert max(expected.values()) < 1
    (logged,) = [entry for entry in trainer.state.log_history if expected.keys() <= entry.keys()]
    assert logged["eval_loss"] == reported["eval_loss"]


def test_evaluation_reports_losses_by_name(tmp_path):
    """Means over examples, however these are shared out to batches; only in training is their sum the loss."""
    trainer = make_trainer(tmp_path, {"ponder_loss_weight": 2.0}, per_device_eval_batch_size=4)
    # twice: an evaluation must not remember the one before
    metrics = [trainer.evaluate() for _ in range(2)][1]
    rows = make_rows(6)
    batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    with torch.no_grad():
        output = trainer.model.eval()(**batch)
    task = torch.nn.functional.cross_entropy(output.logits, batch["labels"])
    assert metrics["eval_loss"] == pytest.approx(task.item(), rel=1e-5)
    cost = 2.0 * output.ponder_cost.mean().item()
    assert metrics["eval_aux_loss"] == metrics["eval_ponder_loss"] == pytest.approx(cost, rel=1e-5)
    assert metrics["eval_ponder_cost"] == pytest.approx(cost / 2, rel=1e-5)
    assert "eval_router_loss" not in metrics
    predicted = trainer.predict(make_rows(6)).metrics
    assert predicted["test_ponder_loss"] == pytest.approx(cost, rel=1e-5)


@pytest.mark.slow
def test_batches_of_an_optimiser_step_draw_one_depth(tmp_path):
    depths = []
    for process in range(2):
        sampling = {"halting": "none", "depth_sampling": "uniform"}
        trainer = make_trainer(tmp_path, sampling, gradient_accumulation_steps=2, per_device_train_batch_size=2)
        trainer.model.register_forward_hook(
            lambda module, inputs, output: depths.append(int(output.ponder_steps.max())) if module.training else None
        )
        # another process has other random numbers
        torch.manual_seed(process)
        trainer.train()
        assert trainer.model.base_model.depth_generator is None
    first, second = depths[:12], depths[12:]
    assert first == second
    assert first[0::2] == first[1::2]
    assert len(set(first)) > 1


def test_evaluation_of_a_model_that_stops_by_an_exit_criterion(tmp_path):
    trainer = make_trainer(tmp_path, {"halting": "none", "exit_criterion": "confidence", "exit_threshold": 0.0})
    metrics = trainer.evaluate()
    assert (metrics["eval_ponder_steps"], metrics["eval_ponder_cost"]) == (1.0, 1.0)
    trainer.train()
    assert trainer.state.log_history[0]["ponder_steps"] == 4


def test_token_steps_ignore_padding_of_model_and_trainer():
    steps = np.array([[2, 4, -1, -100], [1, 1, 1, 1]])
    prediction = EvalPrediction((np.eye(2), np.array([2.5, 1.5], dtype=np.float32), steps), np.array([0, 0]))
    assert compute_metrics(prediction) == {"accuracy": 0.5, "ponder_cost": 2.0, "ponder_steps": 2.0}
    assert mean_steps(torch.tensor([[2, 4, -1], [3, -1, -1]])).item() == 3.0


@pytest.mark.parametrize("everything", [True, False])
def test_weight_decay_groups(tmp_path, everything):
    trainer = make_trainer(tmp_path, decay_all_parameters=everything, weight_decay=0.1)
    decayed, spared = trainer.create_optimizer().param_groups
    assert bool(spared["params"]) is not everything
    assert len(decayed["params"]) + len(spared["params"]) == len(list(trainer.model.parameters()))


def test_ponder_loss_warms_up_with_the_step_alone(tmp_path):
    trainer = make_trainer(tmp_path, ponder_warmup_steps=4, logging_steps=1)
    trainer.train()
    weights = [log["aux_loss"] / log["ponder_cost"] for log in trainer.state.log_history if "loss" in log]
    assert weights == pytest.approx([0.0, 0.025, 0.05, 0.075, 0.1, 0.1], rel=1e-5)
    assert trainer.model.config.ponder_loss_weight == 0.1


def test_a_model_without_ponder_loss_has_none_that_rises(tmp_path):
    """Its recipe may be that of models that have one."""
    fields = {
        "hidden_size": 16,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "embedding_size": 8,
        "num_labels": 3,
    }
    model = AlbertRecurrentForSequenceClassification(
        AlbertRecurrentConfig(num_hidden_layers=2, vocab_size=12, **fields)
    )
    args = RecurrentTrainingArguments(
        output_dir=str(tmp_path), use_cpu=True, disable_tqdm=True, report_to="none", max_steps=1, ponder_warmup_steps=10
    )
    RecurrentTrainer(model, args, train_dataset=make_rows()).train()
    assert not hasattr(model.config, "ponder_loss_weight")


def test_saved_and_evaluated_models_have_the_full_ponder_weight(tmp_path):
    trainer = make_trainer(tmp_path, ponder_warmup_steps=100, max_steps=2, save_strategy="steps", save_steps=2)
    trainer.train()
    assert GUTConfig.from_pretrained(tmp_path / "checkpoint-2").ponder_loss_weight == 0.1
    trainer.model.eval()
    with trainer.scaled_ponder_loss():
        assert trainer.model.config.ponder_loss_weight == 0.1


def test_diverged_run_names_step_and_last_good_checkpoint(tmp_path):
    trainer = make_trainer(tmp_path, save_strategy="steps", save_steps=2)
    step = type(trainer).training_step

    def poisoned(*args, **kwargs):
        if trainer.state.global_step == 3:
            with torch.no_grad():
                trainer.model.classifier.output.bias.fill_(float("inf"))
        return step(trainer, *args, **kwargs)

    trainer.training_step = poisoned
    with pytest.raises(DivergedError, match=r"step 4: the loss \(nan\).*Last good checkpoint: .*checkpoint-2"):
        trainer.train()


def test_nan_in_the_halting_head_is_a_diverged_run(tmp_path):
    trainer = make_trainer(tmp_path)
    with torch.no_grad():
        trainer.model.model.halting_head.up_proj.weight.fill_(float("nan"))
    with pytest.raises(DivergedError, match=r"step 1: .*none yet"):
        trainer.train()


def test_broken_weights_never_become_a_checkpoint(tmp_path):
    trainer = make_trainer(tmp_path)
    with torch.no_grad():
        trainer.model.classifier.output.bias.fill_(float("nan"))
    with pytest.raises(DivergedError, match=r"classifier\.output\.bias"):
        trainer._save_checkpoint(trainer.model, None)
    assert not list(tmp_path.glob("checkpoint-*"))
