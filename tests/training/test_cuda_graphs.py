"""Training by CUDA graphs, whose replays are calls again here: `python -m gpu.day` captures them on a GPU."""

from unittest import mock

import pytest
import torch
from test_trainer import make_trainer
from transformers.utils import import_utils

from hf_recurrent.inference.cuda_graphs import ARCHITECTURES
from hf_recurrent.models.common.graphs import capturing
from hf_recurrent.training.arguments import RecurrentTrainingArguments
from hf_recurrent.training.cuda_graphs import TrainingGraphs, padded, padded_length
from hf_recurrent.training.trainer_checks import check_graphs
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
            trainer = make_trainer(tmp_path / str(graphs), config, cuda_graphs=graphs, **options)
        trainer.train()
        logged = [log["ponder_steps"] for log in trainer.state.log_history if "ponder_steps" in log]
        weights = dict(trainer.model.named_parameters())
        found.append({name: value.detach() for name, value in weights.items()} | {"steps": torch.tensor(logged)})
    assert_same(found[1], found[0], 1e-4)
    # of each depth
    assert len(made) == (1 if sampling == "fixed" else 3)
    # all but those of the warm-up and the first of each kind
    assert sum(graph.replays for graph in made) == 10 - len(made)


def test_a_step_of_another_kind_has_a_graph_of_its_own(made):
    model = torch.nn.ParameterDict({"weight": torch.ones(3), "unused": torch.ones(3)})
    weight, unused = model["weight"], model["unused"]

    def step(inputs, depth):
        loss = (weight * inputs["x"]).sum()
        loss.backward()
        return {"loss": loss.detach()}

    graphs = TrainingGraphs(step, model)
    for depth in (2, 3):
        for scale in range(1, 5):
            weight.grad = None
            x = torch.full((3,), float(scale * depth))
            loss = graphs.run({"x": x}, depth)["loss"]
            assert loss == 3 * scale * depth
            assert torch.equal(weight.grad, x)
            assert unused.grad is None
    assert [graph.replays for graph in made] == [3, 3]


def test_a_step_that_cannot_be_captured_is_refused(made):
    model = torch.nn.ParameterDict({"weight": torch.ones(2)})

    def step(inputs, depth):
        loss = (model["weight"] * inputs["x"]).sum()
        loss.backward()
        return {"loss": loss.detach() * int(loss)}

    graphs = TrainingGraphs(step, model)
    graphs.run({"x": torch.ones(2)})
    problem = r"cuda_graphs is True, but .* _local_scalar_dense: operation not permitted .*; leave cuda_graphs out"
    with pytest.raises(ValueError, match=problem):
        graphs.run({"x": torch.ones(2)})


@pytest.mark.parametrize(("length", "expected"), [(1, 16), (16, 16), (17, 32), (100, 112), (129, 160), (512, 512)])
def test_columns_are_padded_to_lengths_that_come_again(length, expected):
    assert padded_length(length) == expected


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


def test_graphs_are_refused_where_there_are_none(tmp_path):
    args = RecurrentTrainingArguments(output_dir=str(tmp_path), use_cpu=True, cuda_graphs=True, report_to="none")
    with pytest.raises(ValueError, match="cuda_graphs is True, but training runs on cpu"):
        check_graphs(args, make_model(GRAPHED[0]).config)
    with mock.patch.object(RecurrentTrainingArguments, "device", torch.device("cuda", 0)):
        check_graphs(args, make_model(GRAPHED[0]).config)
        args.fp16 = True
        with pytest.raises(ValueError, match="cuda_graphs is True and fp16 True: graphs need False"):
            check_graphs(args, make_model(GRAPHED[0]).config)
        args.fp16, args.optim = False, "galore_adamw_layerwise"
        with pytest.raises(ValueError, match="which steps within the pass"):
            check_graphs(args, make_model(GRAPHED[0]).config)
        args.optim = "adamw_torch"
        rnn = next(variant for variant in VARIANTS if variant.architecture == "rnn")
        with pytest.raises(ValueError, match="the host reads values in passes of rnn; take one of xpos_transformer"):
            check_graphs(args, make_model(rnn).config)
