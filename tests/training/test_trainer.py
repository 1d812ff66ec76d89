"""What `RecurrentTrainer` adds to `Trainer`: statistics of halting, losses in parts, batches of other sizes, checks."""

import pytest
import torch
from small_trainers import (
    FIELDS,
    assert_same_parameters,
    batch_of,
    logged,
    small_model,
    small_rows,
    small_trainer,
)
from torch.nn.functional import cross_entropy

from hf_recurrent import AlbertRecurrentConfig, AlbertRecurrentForSequenceClassification, GUTConfig
from hf_recurrent.training.arguments import RecurrentTrainingArguments, Seq2SeqArguments
from hf_recurrent.training.run_folder import DivergedError, checkpoints, step_of
from support.compare import assert_close
from support.families import slow

pytestmark = pytest.mark.slow  # trains

TARGET_NAMES = {"ponder_steps", "ponder_cost", "encoder_ponder_steps", "encoder_ponder_cost"}


# ---- what is logged


@pytest.mark.parametrize(("kind", "names"), [("classes", {"ponder_steps", "ponder_cost"}), ("targets", TARGET_NAMES)])
def test_halting_is_logged_in_training_and_evaluations(tmp_path, kind, names):
    trainer = small_trainer(tmp_path, kind, learning_rate=0.05, eval_strategy="steps", eval_steps=2)
    trainer.train()
    logs = [log for log in trainer.state.log_history if "loss" in log]
    (evaluation,) = [log for log in trainer.state.log_history if "eval_loss" in log]
    assert len(logs) == 2
    for log in logs:
        assert all(0 < log[name] <= 3 for name in names)
        assert log["ponder_loss"] + log.get("router_loss", 0) == pytest.approx(log["aux_loss"], abs=1e-6)
        assert ("router_loss" in log) is (kind == "targets")
    assert all(0 < evaluation[f"eval_{name}"] <= 3 for name in names)
    if kind == "targets":
        # of a model that smooths no labels, without the auxiliary losses
        assert evaluation["eval_loss"] == pytest.approx(evaluation["eval_nll"], rel=1e-5)
        assert {"eval_accuracy", "eval_token_accuracy"} <= evaluation.keys()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_ponder_loss_warms_up_with_the_step_alone(tmp_path, reduction):
    model = small_model("targets", ponder_loss_weight=0.5, aux_loss_reduction=reduction)
    rows = small_rows("targets", 16)
    trainer = small_trainer(tmp_path, "targets", model, rows, per_device_train_batch_size=16, ponder_warmup_steps=4)
    trainer.train()
    tokens = sum(len(row["labels"]) for row in rows) if reduction == "sum" else 1
    for step, log in enumerate(log for log in trainer.state.log_history if "loss" in log):
        costs = log["ponder_cost"] + log["encoder_ponder_cost"]
        assert log["ponder_loss"] == pytest.approx(0.5 * step / 4 * costs / tokens, rel=1e-4)
    # what is saved and evaluated has the full weight
    warming = small_trainer(tmp_path, ponder_warmup_steps=100, save_strategy="steps", save_steps=2)
    warming.train()
    assert GUTConfig.from_pretrained(tmp_path / "checkpoint-2").ponder_loss_weight == 0.5
    warming.model.eval()
    with warming.settings_of_step():
        assert warming.model.config.ponder_loss_weight == 0.5


def test_a_model_without_ponder_loss_has_none_that_rises(tmp_path):
    """Its recipe may be that of models that have one."""
    fields = {name: value for name, value in FIELDS.items() if name.startswith(("num", "hidden", "inter", "vocab"))}
    model = AlbertRecurrentForSequenceClassification(AlbertRecurrentConfig(**fields, embedding_size=8))
    small_trainer(tmp_path, model=model, max_steps=1, ponder_warmup_steps=10).train()
    assert not hasattr(model.config, "ponder_loss_weight")


def test_evaluation_reports_the_loss_of_answers_alone(tmp_path):
    """A mean over examples, however these are shared out to batches; only in training are the others part of it."""
    trainer = small_trainer(tmp_path, model=small_model(ponder_loss_weight=2.0), per_device_eval_batch_size=4)
    # twice: an evaluation must not remember the one before
    metrics = [trainer.evaluate() for _ in range(2)][1]
    batch = batch_of(trainer)
    with torch.no_grad():
        output = trainer.model.eval()(**batch)
    assert metrics["eval_loss"] == pytest.approx(cross_entropy(output.logits, batch["labels"]).item(), rel=1e-5)
    assert metrics["eval_ponder_cost"] == pytest.approx(output.ponder_cost.mean().item(), rel=1e-5)
    # and tokens weigh as much in each batch
    trainer = small_trainer(tmp_path, "targets")
    batch = batch_of(trainer)
    with torch.no_grad():
        logits = trainer.model.eval()(**batch).logits
    expected = cross_entropy(logits.flatten(0, 1), batch["labels"].flatten()).item()
    for size in (2, 7):
        trainer.args.per_device_eval_batch_size = size
        assert trainer.evaluate()["eval_nll"] == pytest.approx(expected, rel=1e-5)


def test_evaluation_of_a_model_that_stops_by_an_exit_criterion(tmp_path):
    model = small_model(halting="none", exit_criterion="confidence", exit_threshold=0.0)
    trainer = small_trainer(tmp_path, model=model)
    metrics = trainer.evaluate()
    assert (metrics["eval_ponder_steps"], metrics["eval_ponder_cost"]) == (1.0, 1.0)
    trainer.train()
    assert logged(trainer, "ponder_steps")[0] == 3


# ---- steps


def test_batches_of_an_optimiser_step_draw_one_depth(tmp_path):
    depths = []
    for process in range(2):
        model = small_model(halting="none", depth_objective="final", depth_sampling="uniform")
        options = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 2, "max_steps": 6}
        trainer = small_trainer(tmp_path, model=model, **options)
        model.register_forward_hook(
            lambda module, inputs, output: depths.append(int(output.ponder_steps.max())) if module.training else None
        )
        # another process has other random numbers
        torch.manual_seed(process)
        trainer.train()
        assert model.base_model.depth_generator is None
    first, second = depths[:12], depths[12:]
    assert first == second
    assert first[0::2] == first[1::2]
    assert len(set(first)) > 1


@pytest.mark.parametrize("everything", [True, False])
def test_weight_decay_groups(tmp_path, everything):
    trainer = small_trainer(tmp_path, decay_all_parameters=everything, weight_decay=0.1)
    decayed, spared = trainer.create_optimizer().param_groups
    assert bool(spared["params"]) is not everything
    assert len(decayed["params"]) + len(spared["params"]) == len(list(trainer.model.parameters()))


# what is no sum over tokens cannot be the same in parts
NO_AUXILIARY = {"router_loss": "none", "ponder_loss_weight": 0.0, "label_smoothing": 0.1}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("classes", {}),
        ("tokens", {}),
        slow("tokens", {"halting": "none", "depth_objective": "final"}),
        ("targets", NO_AUXILIARY),
    ],
)
def test_accumulated_batches_are_one_large_batch(tmp_path, kind, fields):
    """Also in the ponder loss, which is a mean over rows where the other is one over labels."""
    start, *models = (small_model(kind, **fields) for _ in range(3))
    whole_options, part_options = {"batch_tokens": 1000}, {"batch_tokens": 40, "gradient_accumulation_steps": 100}
    if kind == "targets":
        common = {"train_sampling_strategy": "sequential", "learning_rate": 0.05}
        whole_options = {**common, "per_device_train_batch_size": 8}
        part_options = {**common, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}
    whole = small_trainer(tmp_path, kind, models[0], **whole_options)
    parts = small_trainer(tmp_path, kind, models[1], **part_options)
    for trainer in (whole, parts):
        trainer.train()
    if kind != "targets":
        assert len(whole.token_batches) == 1
        assert len({len(batch) for batch in parts.token_batches.batches()}) > 1, "equal parts weigh the same anyway"
    assert_same_parameters(parts.model, whole.model, start)
    for name in ("loss", "aux_loss", "ponder_cost") if not fields else ("loss",):
        assert logged(parts, name) == pytest.approx(logged(whole, name), rel=1e-5), name


def test_a_single_batch_has_the_models_own_loss(tmp_path):
    trainer = small_trainer(tmp_path, "targets", max_steps=1, per_device_train_batch_size=16)
    trainer.train()
    with torch.no_grad():
        expected = small_model("targets")(**batch_of(trainer, trainer.train_dataset))
    for name in ("loss", "aux_loss"):
        assert logged(trainer, name) == pytest.approx([expected[name].item()], rel=1e-5)


@pytest.mark.parametrize("kind", ["classes", "pairs", "targets"])
def test_no_batch_computes_more_than_the_limit(tmp_path, kind):
    limit = 20 if kind == "targets" else 60
    options = {"batch_tokens": limit, "max_steps": -1, "num_train_epochs": 2, "learning_rate": 0.05}
    trainer = small_trainer(tmp_path, kind, **options)
    computed, rows = [], []
    if kind != "targets":
        trainer.model.model.register_forward_pre_hook(lambda module, args: computed.append(args[0].numel()))
    step = trainer.training_step

    def noted(model, inputs, *args):
        rows.append(len(inputs["labels"]))
        if kind == "targets":
            computed.append(max(inputs["input_ids"].numel(), inputs["labels"].numel()))
        return step(model, inputs, *args)

    trainer.training_step = noted
    trainer.train()
    lengths = trainer.token_batches.lengths
    expected = [len(batch) * lengths[batch].max() for batch in trainer.token_batches.batches()]
    assert sorted(computed) == sorted(2 * expected)
    assert max(computed) <= limit
    assert sum(rows) == 2 * len(trainer.train_dataset)
    assert len(set(rows)) > 1
    assert trainer.state.epoch == 2


def test_a_resumed_run_goes_on_with_the_batches_it_would_have_had(tmp_path):
    """In the middle of the second epoch, with dropout."""
    fields = {"dropout": 0.1, "attention_dropout": 0.1}
    options = {"batch_tokens": 24, "gradient_accumulation_steps": 2, "max_steps": 9, "optim": "adamw_torch"}
    options |= {"save_strategy": "steps", "save_steps": 1, "save_total_limit": None}
    straight = small_trainer(tmp_path / "straight", model=small_model(**fields), **options)
    steps = -(-len(straight.token_batches) // 2)
    assert 1 < steps < 8
    assert straight.get_total_train_batch_size(straight.args) == round(2 * 16 / len(straight.token_batches))
    straight.train()
    resumed = small_trainer(tmp_path / "resumed", model=small_model(**fields), **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "straight" / f"checkpoint-{steps + 1}"))
    assert resumed.state.global_step == 9
    parameters = [{n: p.detach() for n, p in run.model.named_parameters()} for run in (resumed, straight)]
    assert_close(*parameters, 1e-4)


@pytest.mark.slow
def test_a_trainer_goes_on_from_its_last_complete_checkpoint(tmp_path, monkeypatch):
    """As with any trainer; its seconds add up, and its limit stays in the arguments."""
    monkeypatch.chdir(tmp_path)
    # which is none of a checkpoint's
    (tmp_path / "complete").write_text("yes")
    saved = {"save_strategy": "steps", "save_steps": 1, "save_total_limit": 2}
    first = small_trainer(tmp_path / "run", **saved)
    first.train()
    assert first.args.save_total_limit == 2
    (tmp_path / "run" / "checkpoint-2" / "complete").write_text("1000")
    second = small_trainer(tmp_path / "run", **saved, max_steps=3)
    second.train(resume_from_checkpoint=True)
    assert (second.state.global_step, second.seconds > 1000, second.args.save_total_limit) == (3, True, 2)
    assert [step_of(each) for each in checkpoints(tmp_path / "run")] == [3, 2]
    (tmp_path / "run" / "checkpoint-3" / "complete").write_text("")
    third = small_trainer(tmp_path / "run", **saved, max_steps=4)
    third.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-3"))
    assert third.seconds < 1000


@pytest.mark.slow
def test_logs_are_means_since_the_last_log(tmp_path):
    often, rarely = (small_trainer(tmp_path / str(steps), max_steps=4, logging_steps=steps) for steps in (1, 2))
    often.train()
    rarely.train()
    each = logged(often, "ponder_cost")
    assert logged(rarely, "ponder_cost") == pytest.approx([(each[0] + each[1]) / 2, (each[2] + each[3]) / 2])


# ---- runs that diverge


@pytest.mark.slow
def test_diverged_run_names_step_and_last_good_checkpoint(tmp_path):
    trainer = small_trainer(tmp_path, max_steps=6, save_strategy="steps", save_steps=2, learning_rate=1e-3)
    step = trainer.training_step

    def poisoned(*args, **kwargs):
        if trainer.state.global_step == 3:
            with torch.no_grad():
                trainer.model.classifier.output.bias.fill_(float("inf"))
        return step(*args, **kwargs)

    trainer.training_step = poisoned
    with pytest.raises(DivergedError, match=r"step 4: the loss \(nan\).*Last good checkpoint: .*checkpoint-2"):
        trainer.train()
    trainer = small_trainer(tmp_path / "first")
    with torch.no_grad():
        trainer.model.model.halting_head.up_proj.weight.fill_(float("nan"))
    with pytest.raises(DivergedError, match=r"step 1: .*none yet"):
        trainer.train()
    # broken weights never become a checkpoint
    with pytest.raises(DivergedError, match=r"halting_head\.up_proj\.weight"):
        trainer._save_checkpoint(trainer.model, None)
    assert not list((tmp_path / "first").glob("checkpoint-*"))


# ---- arguments

BOTH = "both choose the examples of a batch"


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("classes", {"batch_tokens": 0}, "batch_tokens is 0: expected a number from 1"),
        (
            "classes",
            {"batch_tokens": 99, "per_device_train_batch_size": 8},
            f"batch_tokens is 99 and per_device_train_batch_size 8: {BOTH}",
        ),
        (
            "classes",
            {"batch_tokens": 99, "train_sampling_strategy": "group_by_length"},
            "batch_tokens is 99 and train_sampling_strategy 'group_by_length'",
        ),
        (
            "classes",
            {"batch_tokens": 12},
            "batch_tokens is 12, but an example has 13 tokens: raise it, or drop long one",
        ),
        ("targets", {"label_smoothing_factor": 0.1}, r"factor is 0\.1: .*config: \{label_smoothing: 0\.1\}"),
        (
            "targets",
            {"batch_tokens": 100, "batch_sampling": "by_length"},
            "batch_tokens is 100 and batch_sampling 'by_len",
        ),
        ("targets", {"average_checkpoints": 5}, "average_checkpoints needs load_best_model_at_end"),
    ],
)
def test_bad_arguments(tmp_path, kind, options, message):
    with pytest.raises(ValueError, match=message):
        small_trainer(tmp_path, kind, **options)


def test_fewer_nats_are_better(tmp_path):
    common = {"output_dir": str(tmp_path), "use_cpu": True, "load_best_model_at_end": True, "eval_strategy": "steps"}
    for metric, greater in ((None, False), ("nll", False), ("accuracy", True), ("eval_loss", False)):
        args = Seq2SeqArguments(**common, metric_for_best_model=metric)
        assert args.greater_is_better is greater
        assert args.metric_for_best_model == (metric or "nll")
    assert RecurrentTrainingArguments(**common, metric_for_best_model="f1").greater_is_better
