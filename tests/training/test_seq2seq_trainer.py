"""What `RecurrentSeq2SeqTrainer` adds: losses by tokens, batches by tokens, the best checkpoints."""

import pytest
import torch
from seq2seq_runs import pair_model, pair_rows, pair_trainer

from hf_recurrent.analysis.halting import halting_columns
from hf_recurrent.analysis.model_facts import DECODER, ENCODER, stack_depths
from hf_recurrent.training.arguments import Seq2SeqArguments
from hf_recurrent.training.run_folder import checkpoints
from hf_recurrent.training.selection import best_checkpoints

pytestmark = pytest.mark.slow  # trains

ROWS = pair_rows(16)
# what is no sum over tokens cannot be the same in parts
NO_AUXILIARY = {"router_loss": "none", "ponder_loss_weight": 0.0, "label_smoothing": 0.1}


def trained(folder, rows=ROWS, model=None, **options):
    trainer = pair_trainer(folder, rows, model, **options)
    trainer.train()
    return trainer


def close(model, other):
    for (name, ours), theirs in zip(model.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.slow
def test_accumulated_batches_are_one_batch(tmp_path):
    whole = trained(tmp_path, model=pair_model(**NO_AUXILIARY), per_device_train_batch_size=8)
    parts = trained(
        tmp_path, model=pair_model(**NO_AUXILIARY), per_device_train_batch_size=2, gradient_accumulation_steps=4
    )
    counts = [sum(len(row["labels"]) for row in ROWS[start : start + 2]) for start in range(0, 8, 2)]
    assert len(set(counts)) > 1, "equal parts would weigh the same anyway"
    close(parts.model, whole.model)
    assert (pair_model(**NO_AUXILIARY).lm_head.weight - whole.model.lm_head.weight).abs().max() > 1e-3
    losses = [[log["loss"] for log in trainer.state.log_history if "loss" in log] for trainer in (whole, parts)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_single_batch_has_the_models_own_loss(tmp_path):
    trainer = trained(tmp_path, max_steps=1, per_device_train_batch_size=16)
    batch = trainer.data_collator(ROWS)
    with torch.no_grad():
        expected = pair_model()(**batch)
    (log,) = [log for log in trainer.state.log_history if "loss" in log]
    assert log["loss"] == pytest.approx(expected.loss.item(), rel=1e-5)
    assert log["aux_loss"] == pytest.approx(expected.aux_loss.item(), rel=1e-5)


def test_batches_by_tokens(tmp_path):
    trainer = pair_trainer(tmp_path, ROWS, max_tokens=20, max_steps=-1, num_train_epochs=2)
    seen = []
    step = trainer.training_step

    def noted(model, inputs, *args):
        seen.append(max(inputs["input_ids"].numel(), inputs["labels"].numel()))
        return step(model, inputs, *args)

    trainer.training_step = noted
    trainer.train()
    assert max(seen) <= 20
    assert len(seen) == 2 * len(trainer.get_train_dataloader())
    assert trainer.state.epoch == 2


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_auxiliary_losses_are_logged_in_parts(tmp_path, reduction):
    model = pair_model(ponder_loss_weight=0.5, aux_loss_reduction=reduction)
    options = {"max_steps": 2, "per_device_train_batch_size": 16, "ponder_warmup_steps": 4}
    logs = [log for log in trained(tmp_path, model=model, **options).state.log_history if "loss" in log]
    tokens = sum(len(row["labels"]) for row in ROWS) if reduction == "sum" else 1
    for step, log in enumerate(logs):
        assert log["ponder_loss"] + log["router_loss"] == pytest.approx(log["aux_loss"], abs=1e-6)
        costs = log["ponder_cost"] + log["encoder_ponder_cost"]
        assert log["ponder_loss"] == pytest.approx(0.5 * step / 4 * costs / tokens, rel=1e-4)


def test_both_stacks_are_logged(tmp_path):
    trainer = trained(tmp_path, max_steps=2, eval_strategy="steps", eval_steps=2)
    names = {"ponder_steps", "ponder_cost", "encoder_ponder_steps", "encoder_ponder_cost"}
    logs = [log for log in trainer.state.log_history if "loss" in log]
    assert all(names | {"aux_loss"} <= log.keys() for log in logs)
    (evaluation,) = [log for log in trainer.state.log_history if "eval_loss" in log]
    assert {f"eval_{name}" for name in (*names, "nll", "accuracy", "token_accuracy")} <= evaluation.keys()
    assert all(0 < evaluation[f"eval_{name}"] <= 3 for name in names)
    parts = [evaluation[f"eval_{name}"] for name in ("ponder_loss", "router_loss")]
    assert evaluation["eval_aux_loss"] == pytest.approx(sum(parts), abs=1e-6)
    # of a model that smooths no labels, without the auxiliary losses
    assert evaluation["eval_loss"] == pytest.approx(evaluation["eval_nll"], rel=1e-5)


def test_evaluation_weighs_tokens_not_batches(tmp_path):
    trainer = pair_trainer(tmp_path, ROWS)
    batch = trainer.data_collator(list(trainer.eval_dataset))
    with torch.no_grad():
        logits = trainer.model.eval()(**batch).logits
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten()).item()
    for size in (2, 7):
        trainer.args.per_device_eval_batch_size = size
        assert trainer.evaluate()["eval_nll"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("fields", "stacks"),
    [
        ({}, {"encoder_halting_mass": ENCODER, "halting_mass": DECODER}),
        # the source is read in all steps, by which no prediction is made
        ({"halting": "none", "exit_criterion": "confidence"}, {"halting_mass": DECODER}),
    ],
)
def test_trackers_get_the_halting_mass_of_each_stack_that_stops(tmp_path, fields, stacks):
    trainer = pair_trainer(tmp_path, ROWS, pair_model(**fields))
    trainer.args.report_to = ["tensorboard"]
    reported = trainer.evaluate()
    batch = trainer.data_collator(list(trainer.eval_dataset))
    with torch.no_grad():
        output = trainer.model.eval()(**batch, output_halting=True)
    config = trainer.model.config
    expected = {
        f"eval_{name}/step_{step}": value
        for name, stack in stacks.items()
        for step, value in enumerate(
            halting_columns(output, config, stack_depths(config)[stack], stack)["mass"].mean(0)
        )
    }
    assert {name: reported[name] for name in reported if "halting_mass" in name} == pytest.approx(expected, abs=1e-6)


def test_best_checkpoints_are_kept_beside_the_last_one(tmp_path, monkeypatch):
    trainer = pair_trainer(
        tmp_path,
        ROWS,
        max_steps=6,
        save_total_limit=2,
        average_checkpoints=2,
        load_best_model_at_end=True,
        **{f"{kind}_strategy": "steps" for kind in ("eval", "save")},
        eval_steps=1,
        save_steps=1,
    )
    values = iter([5.0, 1.0, 4.0, 2.0, 3.0, 6.0])
    monkeypatch.setattr(trainer, "compute_metrics", lambda prediction: {"nll": next(values)})
    trainer.train()
    assert [folder.name for folder in checkpoints(tmp_path)] == [f"checkpoint-{step}" for step in (6, 5, 4, 2)]
    assert [folder.name for folder in best_checkpoints(trainer.state, trainer.args)] == ["checkpoint-2", "checkpoint-4"]
    assert trainer.args.save_total_limit == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_smoothing_factor": 0.1}, r"label_smoothing_factor is 0\.1: .*config: \{label_smoothing: 0\.1\}"),
        ({"predict_with_generate": True}, "predict_with_generate is true: leave it out"),
        ({"max_tokens": 100, "batch_sampling": "by_length"}, "max_tokens is 100 and batch_sampling 'by_length'"),
        ({"average_checkpoints": 5}, "average_checkpoints needs load_best_model_at_end"),
        (
            {"average_checkpoints": 5, "load_best_model_at_end": True, "save_total_limit": 1},
            "average_checkpoints is 5 and save_total_limit 1",
        ),
    ],
)
def test_bad_arguments(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        Seq2SeqArguments(output_dir=str(tmp_path), use_cpu=True, **options)


def test_fewer_nats_are_better(tmp_path):
    common = {"output_dir": str(tmp_path), "use_cpu": True, "load_best_model_at_end": True, "eval_strategy": "steps"}
    for metric, greater in ((None, False), ("nll", False), ("accuracy", True), ("eval_loss", False)):
        args = Seq2SeqArguments(**common, metric_for_best_model=metric)
        assert args.greater_is_better is greater
        assert args.metric_for_best_model == (metric or "nll")
