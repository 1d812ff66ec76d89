"""The scripts of perf/: what they count, how they compare, and that counted work grows no more than it may."""

import argparse
import copy

import pytest
import torch

from hf_recurrent import (
    ARCHITECTURES,
    AlbertRecurrentConfig,
    AlbertRecurrentForSequenceClassification,
    HuginnRecurrentConfig,
    OuroRecurrentConfig,
)
from hf_recurrent.benchmarks.tokenizers import byte_tokenizer
from hf_recurrent.hub.checkpoint import save_checkpoint
from hf_recurrent.models.depth import layouts
from perf import albert_exits, core, counted, language_exits, stored
from perf.work import counted as work_of
from support.compare import assert_close
from support.families import USUAL_PRODUCTS_TO_PACK, slow

NOT_WORSE = stored.Stored.read(stored.path_of("counted"))


@pytest.fixture(scope="module", autouse=True)
def first_count():
    """The first count, at which torch imports what takes longer than any test."""
    work_of(torch.nn.Identity(), lambda: torch.ones(1) + 1)


def options(**changes) -> argparse.Namespace:
    return argparse.Namespace(**{"repeats": 3, "device": "cpu", "seed": 0, "threads": 1, **changes})


class Parts(torch.nn.Module):
    """A block of a feed-forward network and a head, beside a product of its own."""

    def __init__(self):
        super().__init__()
        self.feed_forward = torch.nn.Linear(4, 6, bias=False)
        self.classifier = torch.nn.Linear(6, 2)

    def forward(self, states):
        return self.classifier(self.feed_forward(states)) @ torch.ones(2, 3)


class Stack(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Parts()

    def forward(self, states):
        return self.block(states)


def test_products_are_counted_by_part_of_the_model():
    model, states = Stack(), torch.ones(5, 4)
    with torch.no_grad():
        work = work_of(model, lambda: model(states))
    assert work.parts == {"feed-forward": 5 * 4 * 6, "head": 5 * 6 * 2, "other": 5 * 2 * 3}
    assert work.products == 210
    # three products; the rest is views and the table of ones
    assert work.calls == 4
    assert (work.waits, work.token_steps) == (0, 5)


def test_products_of_a_backward_pass_are_counted():
    model, states = Stack(), torch.ones(5, 4)
    work = work_of(model, lambda: model(states).sum().backward())
    # gradients of weights, and of inputs but for the first
    assert work.parts["backward"] == 5 * 4 * 6 + 2 * 5 * 6 * 2 + 5 * 2 * 3


@pytest.mark.parametrize("training", [False, True])
def test_products_of_attention_are_counted(training):
    query, key, value = (torch.randn(2, 3, n, 8, requires_grad=training) for n in (5, 7, 7))

    def attend():
        output = torch.nn.functional.scaled_dot_product_attention(query, key, value)
        if training:
            output.sum().backward()

    parts = work_of(torch.nn.Identity(), attend).parts
    product = 2 * 3 * 5 * 7 * 8
    assert parts["scores"] == 2 * product
    assert parts["backward"] == 5 * product * training


def test_products_of_grouped_experts_and_einsum_are_counted():
    tokens, weights = torch.randn(8, 16), torch.randn(2, 16, 32)
    offsets = torch.tensor([3, 8], dtype=torch.int32)
    identity = torch.nn.Identity()
    grouped = work_of(identity, lambda: torch.nn.functional.grouped_mm(tokens, weights, offs=offsets))
    assert grouped.products == 8 * 16 * 32
    assert work_of(identity, lambda: torch.einsum("bd,edf->bef", tokens, weights)).products == 8 * 16 * 2 * 32
    assert work_of(identity, lambda: torch.conv1d(tokens[None], torch.randn(4, 8, 3))).products == 4 * 14 * 8 * 3


@pytest.mark.parametrize(
    ("call", "waits"),
    [
        (lambda values: values.sum().item(), 1),
        (lambda values: bool(values.any()), 1),
        (lambda values: values.tolist(), 1),
        (lambda values: values.nonzero(), 1),
        (lambda values: values[values > 0], 1),
        (lambda values: values[torch.tensor([0, 2])].cumsum(0), 0),
    ],
)
def test_waits_for_the_device_are_counted(call, waits):
    assert work_of(torch.nn.Identity(), lambda: call(torch.tensor([1.0, 0.0, 2.0]))).waits == waits


def test_a_ratio_is_the_median_of_those_in_the_same_round():
    base = core.Timing([1.0, 10.0, 2.0], [9.0] * 3, by_wall=False)
    timing = core.Timing([2.0, 30.0, 8.0], [9.0] * 3, by_wall=False)
    assert timing.ratio(base) == (3.0, 2.5, 3.5)
    assert timing.median == 8.0
    assert timing._replace(by_wall=True).median == 9.0
    assert core.Timing([2.0], [3.0], by_wall=False).ratio(core.Timing([4.0], [3.0], by_wall=False)) == (0.5, 0.5, 0.5)


def test_peak_memory_is_that_of_the_tensors_of_a_call():
    # two at once, then one
    size = 4 * 2**20
    assert size * 2 <= core.peak_bytes(lambda: torch.ones(2**20) * 2, "cpu") < size * 2.1


def test_page_is_drawn_from_the_stored_results():
    assert stored.PAGE.read_text(encoding="utf-8") == stored.page(), "run `python -m perf page`"


@pytest.mark.parametrize("architecture", [slow(name) for name in counted.ARCHITECTURES])
def test_counted_work_is_no_worse_than_the_stored(architecture, monkeypatch):
    # other tests pack batches of any size
    monkeypatch.setattr(layouts, "MIN_PRODUCTS_TO_PACK", USUAL_PRODUCTS_TO_PACK)
    args = core.parse("counted", NOT_WORSE.arguments)
    before = [row for row in NOT_WORSE.table(counted.TITLE).rows if row["architecture"] == architecture]
    assert len(before) == 3
    assert counted.regressions(before, [row for row, _ in counted.rows_of(architecture, args)]) == []


@pytest.mark.parametrize("measure", counted.MEASURES)
def test_more_work_than_the_tolerance_is_a_regression(measure):
    before = NOT_WORSE.table(counted.TITLE).rows[:3]
    now = copy.deepcopy(before)
    now[2][measure] *= 1.14
    assert counted.regressions(before, now) == []
    now[2][measure] *= 1.02
    (found,) = counted.regressions(before, now)
    assert found.startswith(f"{before[2]['architecture']} decoding: {measure} ")
    now[2][measure] = 0
    assert counted.regressions(before, now) == []
    assert counted.regressions(before, now[:2]) == [f"{before[2]['architecture']} decoding: not counted any more"]


@pytest.mark.parametrize("classifiers", ["separate", "shared"])
def test_transformers_at_a_fixed_depth_answers_as_that_step_does(classifiers):
    config = AlbertRecurrentConfig.preset("tiny", vocab_size=40, num_hidden_layers=3, step_classifiers=classifiers)
    model = AlbertRecurrentForSequenceClassification(config).eval()
    ids = torch.randint(4, 40, (2, 7))
    with torch.no_grad():
        for depth in (1, 3):
            theirs = albert_exits.of_transformers(model, depth)
            assert theirs.config.num_hidden_layers == depth
            assert_close(theirs(ids).logits, model(ids, max_depth=depth).logits, tolerance=1e-5)


@pytest.mark.parametrize(("preset", "exits"), [(OuroRecurrentConfig, 3), (HuginnRecurrentConfig, 2)])
def test_exits_of_language_models_are_set_beside_all_steps(preset, exits, tmp_path, monkeypatch):
    some = [exit_ for exit_ in language_exits.EXITS if exit_[:2] in {("learned", 0.5), ("confidence", 0.5)}]
    monkeypatch.setattr(language_exits, "EXITS", some)
    tokenizer = byte_tokenizer()
    config = preset.preset("tiny", vocab_size=len(tokenizer), num_hidden_layers=3, initializer_range=0.5)
    model = ARCHITECTURES[config.model_type].model_class("AutoModelForCausalLM")(config)
    save_checkpoint(model, tmp_path / "model", tokenizer)
    (tmp_path / "text.txt").write_text("".join(map(chr, range(32, 127))) * 3)
    asked = {"text": tmp_path / "text.txt", "checkpoints": [tmp_path / "model"], "blocks": 4, "block_size": 16}
    fixed, found = language_exits.tables(options(**asked, batch_size=3, timed=1, repeats=1))
    assert [row["steps"] for row in fixed.rows] == [1, 2, 3, 4, 5, 6]
    assert fixed.title.startswith("model, 60 tokens of text.txt")
    whole, *rows = found.rows
    assert len(rows) == 2 * exits
    assert whole["same token %"] == fixed.rows[2]["same token %"] == 100
    assert whole["bits per token"] == pytest.approx(fixed.rows[2]["bits per token"])
    assert all(1 <= row["steps"] <= 3 for row in rows)
    later = [row for row in rows if row["exit"].endswith("from step 2")]
    assert len(later) == 2
    assert all(row["steps"] >= 2 for row in later)
