"""Training by CUDA graphs, whose replays are calls again here: `python -m gpu.day` captures them on a GPU."""

from contextlib import nullcontext
from unittest import mock

import pytest
import torch
from tiny_trainer import tiny_trainer
from transformers.utils import import_utils

from hf_recurrent.deploy.cuda_graphs import ARCHITECTURES
from hf_recurrent.models.ops.graphs import capturing
from hf_recurrent.training.arguments import RecurrentTrainingArguments
from hf_recurrent.training.cuda_graphs import TrainingGraphs, padded
from hf_recurrent.training.trainer import check_graphs
from perf.work import counted
from support.compare import assert_same, gradients
from support.families import BY_NAME, EXPECTED_VARIANTS, VARIANTS, make_batch, make_config, make_model
from support.graph_replay import without_gpu

GRAPHED = [each for each in VARIANTS if each.core and each.architecture in ARCHITECTURES]


@pytest.fixture
def made():
    with without_gpu() as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["fixed", "uniform"])
def test_a_run_by_graphs_learns_what_one_without_does(tmp_path, made, sampling):
    config = {"depth_sampling": sampling, "depth_range": None if sampling == "fixed" else [2, 4]}
    config |= {"dropout": 0.0, "attention_dropout": 0.0}
    options = {"max_steps": 12, "ponder_warmup_steps": 2, "learning_rate": 1e-2}
    found = []
    for graphs in (False, True):
        torch.manual_seed(0)
        # it asks for a GPU
        with mock.patch("hf_recurrent.training.trainer.check_graphs"):
            trainer = tiny_trainer(tmp_path / str(graphs), config, cuda_graphs=graphs, **options)
        trainer.train()
        logged = [log["ponder_steps"] for log in trainer.state.log_history if "ponder_steps" in log]
        weights = dict(trainer.model.named_parameters())
        found.append({name: value.detach() for name, value in weights.items()} | {"steps": torch.tensor(logged)})
    assert_same(found[1], found[0], 1e-4)
    # of each depth
    assert len(made) == (1 if sampling == "fixed" else 3)
    # all but those of the warm-up and the first of each kind
    assert sum(graph.replays for graph in made) == 10 - len(made)


def graphed(wait):
    """A model of one used weight, and a function that runs its step; a step that waits reads its loss."""
    model = torch.nn.ParameterDict({"weight": torch.ones(3), "unused": torch.ones(3)})

    def step(inputs, depth):
        loss = (model["weight"] * inputs["x"]).sum()
        loss.backward()
        return {"loss": loss.detach() * int(loss) if wait else loss.detach()}

    return model, TrainingGraphs(step, model).run


def test_a_step_of_another_kind_has_a_graph_of_its_own(made):
    model, run = graphed(wait=False)
    for depth in (2, 3):
        for scale in range(1, 5):
            model["weight"].grad = None
            x = torch.full((3,), float(scale * depth))
            assert run({"x": x}, depth)["loss"] == 3 * scale * depth
            assert torch.equal(model["weight"].grad, x)
            assert model["unused"].grad is None
    assert [graph.replays for graph in made] == [3, 3]


def test_a_step_that_cannot_be_captured_is_refused(made):
    _, run = graphed(wait=True)
    run({"x": torch.ones(3)})
    problem = r"cuda_graphs is True, but .* _local_scalar_dense: operation not permitted .*; leave cuda_graphs out"
    with pytest.raises(ValueError, match=problem):
        run({"x": torch.ones(3)})


def test_padding_is_masked_and_has_no_label():
    config = make_config(BY_NAME["gut"])
    ids, scores = torch.full((2, 3), 7), torch.ones(2, 3)
    spans = torch.tensor([2, 3])
    batch = padded({"input_ids": ids, "labels": ids, "scores": scores, "end_positions": spans}, config)
    assert batch["input_ids"][0].tolist() == [7] * 3 + [config.pad_token_id] * 13
    assert batch["labels"][0].tolist() == [7] * 3 + [-100] * 13
    assert batch["attention_mask"][0].tolist() == [1] * 3 + [0] * 13
    assert batch["scores"] is scores
    # the second is beyond the columns, and ignored
    assert batch["end_positions"].tolist() == [2, 16]
    assert padded({"input_ids": ids, "labels": torch.tensor([1, 2])}, config)["labels"].tolist() == [1, 2]
    # to lengths that come again
    for length, expected in ((1, 16), (16, 16), (17, 32), (100, 112), (129, 160), (512, 512)):
        assert padded({"input_ids": torch.ones(1, length, dtype=torch.long)}, config)["input_ids"].shape[1] == expected


PADDED = [each for each in (*VARIANTS, *EXPECTED_VARIANTS) if each.architecture in ARCHITECTURES]


@pytest.mark.parametrize(
    "variant", [pytest.param(each, marks=[] if each.core else pytest.mark.slow, id=each.name) for each in PADDED]
)
def test_padding_changes_neither_loss_nor_gradients(variant):
    model, batch = make_model(variant), make_batch(variant)
    expected, found = (gradients(model, each) for each in (batch, padded(batch, model.config)))
    assert_same(found, expected, 1e-5)


@pytest.mark.parametrize("variant", GRAPHED, ids=lambda each: each.name)
def test_a_captured_step_waits_for_nothing(variant):
    model, batch = make_model(variant).train(), make_batch(variant)

    def step():
        model(**batch).loss.backward()

    # masks of transformers ask for it themselves
    with capturing(), mock.patch.object(import_utils, "is_cuda_stream_capturing", return_value=True):
        assert counted(model, step).waits == 0
    assert counted(model, step).waits > 0


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({}, "gut", None),
        ({"fp16": True}, "gut", "cuda_graphs is True and fp16 True: graphs need False"),
        ({"optim": "galore_adamw_layerwise"}, "gut", "which steps within the pass"),
        ({}, "rnn_lstm", "the host reads values in passes of rnn; take one of xpos_transformer"),
    ],
)
def test_graphs_are_refused_where_there_are_none(tmp_path, changes, kind, message):
    args = RecurrentTrainingArguments(output_dir=str(tmp_path), use_cpu=True, cuda_graphs=True, report_to="none")
    config = make_model(BY_NAME[kind]).config
    with pytest.raises(ValueError, match="cuda_graphs is True, but training runs on cpu"):
        check_graphs(args, config)
    vars(args).update(changes)
    expected = nullcontext() if message is None else pytest.raises(ValueError, match=message)
    with mock.patch.object(RecurrentTrainingArguments, "device", torch.device("cuda", 0)), expected:
        check_graphs(args, config)
