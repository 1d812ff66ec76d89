"""Answers of rows that are refilled are those of the model."""

import functools

import pytest
import torch
from torch._dynamo.utils import counters

from gpu import imitation
from hf_recurrent.deploy import ClassifierPool, classifier_pool
from hf_recurrent.deploy.classifier_pool import POOLED
from support.compare import assert_close
from support.families import BY_NAME, EXPECTED_VARIANTS, VARIANTS, Variant, make_batch, make_model, tiered
from support.graph_replay import AlwaysLate, without_gpu

CLASSIFIERS = tuple(
    each
    for each in (*VARIANTS, *EXPECTED_VARIANTS, Variant("gut_causal", "gut", {"is_causal": True}, core=True))
    if each.architecture in POOLED and not each.siamese
)
EXITS = {
    "convergence": {"exit_criterion": "convergence", "exit_threshold": 0.3},
    "confidence": {"exit_criterion": "confidence", "exit_threshold": 0.45},
    "agreement": {"exit_criterion": "agreement", "exit_threshold": 0.05, "exit_patience": 2},
    "stability": {"exit_criterion": "stability", "min_depth": 3},
}


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    """Five rows become two, and one."""
    monkeypatch.setattr(classifier_pool, "FEWEST_ROWS", 1)


def batch_of(variant: Variant, rows: int = 24, length: int = 9) -> dict[str, torch.Tensor]:
    """Every third sequence is padded on the left."""
    batch = make_batch(variant, rows=rows, length=length)
    del batch["labels"]
    for value in batch.values():
        for row in range(0, rows, 3):
            value[row] = value[row].roll(length - int(make_batch(variant, rows, length)["attention_mask"][row].sum()))
    return batch


def assert_same_answers(model, pool: ClassifierPool, batch: dict[str, torch.Tensor], **options) -> None:
    with torch.no_grad():
        expected = model(**batch, **options)
    found = pool(**batch)
    assert_close(found.logits, expected.logits, 1e-5)
    steps = expected.ponder_steps
    assert torch.equal(found.ponder_steps, steps if steps.dim() == 1 else steps.amax(-1))


@pytest.mark.parametrize("variant", tiered(CLASSIFIERS))
def test_answers_are_those_of_the_model(variant):
    model = make_model(variant)
    assert_same_answers(model, ClassifierPool(model, rows=5), batch_of(variant))


@pytest.mark.parametrize("criterion", EXITS)
@pytest.mark.parametrize("variant", tiered(CLASSIFIERS))
def test_answers_with_exits(variant, criterion):
    model, options = make_model(variant), EXITS[criterion]
    if model.config.is_causal and criterion != "convergence":
        pytest.skip("its tokens stop one by one")
    assert_same_answers(model, ClassifierPool(model, rows=5, **options), batch_of(variant), **options)


@pytest.mark.parametrize("name", ["ut", "gut", "ndr", "albert_recurrent"])
def test_graphs_and_late_counts_answer_the_same(name, monkeypatch):
    monkeypatch.setattr(classifier_pool, "LateValues", AlwaysLate)
    variant, options = BY_NAME[name], EXITS["agreement"] if name != "ut" else {}
    model = make_model(variant)
    with without_gpu() as made:
        pool = ClassifierPool(model, rows=5, repeats=3, graph=True, **options)
        for rows in (24, 7, 40):
            assert_same_answers(model, pool, batch_of(variant, rows, length=20), **options)
        # of 5 and of fewer rows of 8, 16 and 32 columns
        assert len(made) == len(pool.rows) > 3
        sizes = [number for _, number in pool.rows]
        taken = sum(3 * tape.replays * number for tape, number in zip(made, sizes, strict=True))
        assert taken == pool.row_steps


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own, as it traces
@pytest.mark.parametrize("name", ["ut", "gut", "ndr", "albert_recurrent"])
def test_an_iteration_is_one_compiled_graph(name, monkeypatch):
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    torch.compiler.reset()
    counters.clear()
    model = make_model(BY_NAME[name])
    pool = ClassifierPool(model, rows=5, repeats=1, compiled=True)
    for rows in (24, 1):
        assert_same_answers(model, pool, batch_of(BY_NAME[name], rows, length=8))
    # of 5 and of fewer rows of 8 columns
    assert counters["stats"]["unique_graphs"] == len(pool.rows) > 1


@pytest.mark.parametrize("name", ["gut", "ut", "ndr"])
def test_steps_of_all_rows_are_little_more_than_executed_steps(name):
    variant, rows, number = BY_NAME[name], 8, 160
    model = make_model(variant)
    options = EXITS["agreement"] if name == "ndr" else {}
    pool = ClassifierPool(model, rows=rows, repeats=1, **options)
    batch = batch_of(variant, number, length=8)
    steps = pool(**batch).ponder_steps
    depth = model.config.num_hidden_layers
    # a transition-aware head sees the step that it rejects
    rejected = (steps < depth).sum() if name == "gut" else 0
    taken = steps if name == "gut" else steps.clamp_min(1)
    expected = int(taken.sum() + rejected)
    # half of the rows are free at most once waiting ones run out
    assert expected <= pool.row_steps <= expected + rows * depth / 2
    assert pool.row_steps < 0.9 * number * depth


def test_nothing_is_made_on_another_device():
    model, batch = make_model(BY_NAME["gut"]), batch_of(BY_NAME["gut"])
    with torch.no_grad():
        expected = model(**batch).logits
    with imitation.installed():
        pool = ClassifierPool(model.to("cuda"), rows=5, graph=False)
        found = pool(**{name: value.to("cuda") for name, value in batch.items()}).logits
        assert found.is_cuda
        found = found.cpu()
    assert_close(found, expected, 1e-5)


def test_more_than_wait_at_once_and_one_sequence_are_enough(monkeypatch):
    monkeypatch.setattr(classifier_pool, "WAITING", 7)
    variant = BY_NAME["gut"]
    model, batch = make_model(variant), batch_of(variant)
    pool = ClassifierPool(model, rows=30)
    for rows in (1, 24, 2):
        assert_same_answers(model, pool, {name: value[:rows] for name, value in batch.items()})
    assert_same_answers(model, pool, {"input_ids": batch["input_ids"]})


def test_what_is_not_supported_is_refused():
    gut = make_model(BY_NAME["gut"])
    with pytest.raises(ValueError, match="model_type 'tlb' is not supported: take one of ut, gut"):
        ClassifierPool(make_model(BY_NAME["tlb"]))
    with pytest.raises(ValueError, match="does not answer for each sequence by itself"):
        ClassifierPool(make_model(BY_NAME["gut_siamese"]))
    with pytest.raises(ValueError, match="there are 0 slots: pass at least 1"):
        ClassifierPool(gut, rows=0)
    with pytest.raises(ValueError, match="those of several blocks"):
        ClassifierPool(make_model(Variant("albert_groups", "albert_recurrent", {"num_hidden_groups": 2})))
    with pytest.raises(ValueError, match="input_ids"):
        ClassifierPool(gut)(torch.full((1, 3), 10_000))
