"""Forward passes as CUDA graphs, whose operators are recorded and called again here (`support.graph_replay`)."""

import copy
from unittest import mock

import pytest
import torch

from gpu.halting import LateCount
from hf_recurrent.deploy import GraphedModel
from hf_recurrent.deploy.cuda_graphs import ARCHITECTURES, check_capturable, uncached_autocast
from support.compare import assert_same, results
from support.families import BY_NAME, LANGUAGE_BY_NAME, VARIANTS, make_batch, make_language_model, make_model, make_text
from support.graph_replay import without_gpu

GRAPHED = [each for each in VARIANTS if each.core and each.architecture in ARCHITECTURES]
LANGUAGE = [each for each in LANGUAGE_BY_NAME.values() if each.core and each.architecture in ARCHITECTURES]


def shifted(batch: dict[str, torch.Tensor], places: int) -> dict[str, torch.Tensor]:
    return {name: value.roll(places, 0) for name, value in batch.items()}


def assert_graphs_give_the_same(model, graphed: GraphedModel, batch: dict[str, torch.Tensor], **options) -> None:
    """Of batches one after the other, of which the graphs know the shape alone."""
    for places in range(4):
        here = shifted(batch, places)
        with torch.no_grad():
            expected = model(**here, **options)
        assert_same(results(graphed(**here), here), results(expected, here), 1e-5)


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("variant", GRAPHED, ids=lambda each: each.name)
def test_graphs_give_what_the_model_gives(variant, late):
    model, batch = make_model(variant).eval(), make_batch(variant)
    with without_gpu(LateCount if late else None) as made:
        graphed = GraphedModel(model)
        assert_graphs_give_the_same(model, graphed, batch)
        assert len(graphed.calls) == 1
        # a graph for each step of each loop over depth where units halt, and the end
        assert (len(made) > 2) == variant.halts


@pytest.mark.parametrize("variant", LANGUAGE, ids=lambda each: each.name)
def test_graphs_of_language_models(variant):
    model, batch = make_language_model(variant).eval(), make_text(variant)
    with without_gpu():
        assert_graphs_give_the_same(model, GraphedModel(model), batch)


def test_a_pass_ends_with_its_last_live_unit():
    model, batch = make_model(BY_NAME["gut"]).eval(), make_batch(BY_NAME["gut"])
    with torch.no_grad():
        steps = model(**batch).ponder_steps
    assert steps.min() < steps.max()
    rows = steps.argsort()
    ordered = {name: value[rows] for name, value in batch.items()}
    with without_gpu() as made:
        graphed = GraphedModel(model)
        taken = []
        for row in range(len(rows)):
            before = sum(tape.replays for tape in made)
            output = graphed(**{name: value[row : row + 1] for name, value in ordered.items()})
            assert output.ponder_steps.item() == steps[rows[row]]
            taken.append(sum(tape.replays for tape in made) - before)
    assert taken == sorted(taken)
    assert taken[0] < taken[-1] <= len(made)


@pytest.mark.parametrize("least", [1, 4])
@pytest.mark.parametrize(
    ("criterion", "threshold"), [("convergence", 0.3), ("confidence", 0.4), ("agreement", 0.05), ("stability", None)]
)
def test_exit_criteria_end_passes(criterion, threshold, least):
    model, batch = make_model(BY_NAME["ndr"]).eval(), make_batch(BY_NAME["ndr"])
    options = {"exit_criterion": criterion, "exit_threshold": threshold, "min_depth": least}
    with without_gpu() as made:
        assert_graphs_give_the_same(model, GraphedModel(model, **options), batch, **options)
    assert len(made) > 2


def test_a_record_of_each_step_takes_all_of_them():
    model, batch = make_model(BY_NAME["gut"]).eval(), make_batch(BY_NAME["gut"])
    with without_gpu() as made:
        graphed = GraphedModel(model, output_halting=True)
        for places in range(3):
            here = shifted(batch, places)
            with torch.no_grad():
                expected = model(**here, output_halting=True)
            torch.testing.assert_close(graphed(**here).halting_probabilities, expected.halting_probabilities)
    assert len(made) == 1


def test_other_shapes_have_graphs_of_their_own_and_outputs_stay():
    model, batch = make_model(BY_NAME["ut"]).eval(), make_batch(BY_NAME["ut"])
    with without_gpu():
        graphed = GraphedModel(model)
        first = graphed(**batch)
        kept = copy.deepcopy(first.logits)
        graphed(**shifted(batch, 1))
        graphed(**{name: value[:3] for name, value in batch.items()})
        assert len(graphed.calls) == 2
        assert torch.equal(first.logits, kept)


def test_graphs_of_the_shape_called_longest_ago_give_way():
    model, batch = make_model(BY_NAME["ut"]).eval(), make_batch(BY_NAME["ut"])
    shapes = [{name: value[:rows] for name, value in batch.items()} for rows in (1, 2, 3)]
    with without_gpu() as made:
        graphed = GraphedModel(model, max_shapes=2)
        for index in (0, 1, 0, 2, 0):
            graphed(**shapes[index])
        before = len(made)
        graphed(**shapes[0])
        assert len(made) == before
        graphed(**shapes[1])
        assert len(made) > before


def test_a_pass_under_autocast_has_a_graph_of_its_own():
    model, batch = make_model(BY_NAME["ut"]).eval(), make_batch(BY_NAME["ut"])
    with without_gpu(), torch.no_grad():
        graphed = GraphedModel(model)
        exact = graphed(**batch).logits
        with torch.autocast("cpu", torch.bfloat16):
            expected, rounded = model(**batch).logits, graphed(**batch).logits
            assert_same(graphed(**batch).logits, expected, 0.02)
        assert_same(rounded, expected, 0.02)
        assert (exact.dtype, rounded.dtype) == (torch.float32, torch.bfloat16)
        assert len(graphed.calls) == 2


def test_weights_that_autocast_has_converted_before_are_not_captured():
    """Its memory is freed where autocast ends."""
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.is_autocast_cache_enabled()
        with uncached_autocast():
            assert not torch.is_autocast_cache_enabled()
        assert torch.is_autocast_cache_enabled()


def test_calls_in_inference_mode_leave_memory_that_others_write_to():
    model, batch = make_model(BY_NAME["ut"]).eval(), make_batch(BY_NAME["ut"])
    with without_gpu():
        graphed = GraphedModel(model)
        with torch.inference_mode():
            first = graphed(**batch).logits
        assert_same(graphed(**batch).logits, first, 1e-5)


def test_arguments_that_are_no_tensors_are_refused():
    with without_gpu(), pytest.raises(ValueError, match="`max_depth` is 3: pass tensors here, and options"):
        GraphedModel(make_model(BY_NAME["ut"]))(max_depth=3)
    with without_gpu(), pytest.raises(ValueError, match="no tensor was passed"):
        GraphedModel(make_model(BY_NAME["ut"]))()
    with without_gpu(), pytest.raises(ValueError, match="max_shapes is 0: pass 1 or more"):
        GraphedModel(make_model(BY_NAME["ut"]), max_shapes=0)
    with without_gpu(), pytest.raises(ValueError, match="use_cache is True: graphs keep no cache"):
        GraphedModel(make_language_model(LANGUAGE_BY_NAME["ut"]), use_cache=True)
    with without_gpu(), pytest.raises(ValueError, match="is in training mode"):
        GraphedModel(make_model(BY_NAME["ut"]).train())(**make_batch(BY_NAME["ut"]))


def test_models_without_graphs_are_refused():
    model = make_model(BY_NAME["ut"])
    with pytest.raises(ValueError, match="is on cpu: CUDA graphs need a GPU"):
        check_capturable(model)
    with mock.patch.object(type(model), "device", torch.device("cuda", 0)):
        check_capturable(model.eval())
        with pytest.raises(ValueError, match="is in training mode"):
            check_capturable(model.train())
        model.eval().config._attn_implementation = "flash_attention_2"
        with pytest.raises(ValueError, match="counts tokens for attn_implementation 'flash_attention_2'; take 'sdpa'"):
            check_capturable(model)
    sut = make_model(BY_NAME["sut"])
    with (
        mock.patch.object(type(sut), "device", torch.device("cuda", 0)),
        pytest.raises(ValueError, match="the host reads values in passes of sut; take one of xpos_transformer"),
    ):
        check_capturable(sut.eval())
