"""When tokens stop, and the figures of a sweep."""

import numpy as np
import pytest
import torch
from PIL import Image
from sweep_models import make_pairs, make_translator

from hf_recurrent.analysis import plots
from hf_recurrent.analysis.explain.card import token_heat_map
from hf_recurrent.analysis.sweep import halting_pictures, remaining_mass, sweep_thresholds
from hf_recurrent.benchmarks import build_tokenizer
from support.families import BY_NAME, make_batch, make_model

pytestmark = pytest.mark.slow  # draws or renders


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer("logical_inference_translation")


def rows_of(batch):
    """Rows without padding, in order of their lengths."""
    found = []
    for place, mask in enumerate(batch["attention_mask"].bool()):
        kept = {name: batch[name][place][mask].tolist() for name in ("input_ids", "attention_mask")}
        labels = batch["labels"][place]
        found.append({**kept, "labels": labels[labels != -100].tolist() if labels.dim() else labels.item()})
    return sorted(found, key=lambda row: len(row["input_ids"]))


def capped(batch):
    """Ids that the tokenizer knows."""
    return {**batch, "input_ids": batch["input_ids"].clamp_max(22)}


def test_what_remains_is_one_less_the_mass_before():
    mass = np.array([[0.1, 0.2, 0.3, 0.4], [0.0, 1.0, 0.0, 0.0]])
    expected = [[1 - sum(row[: step + 1]) for step in range(3)] for row in mass.tolist()]
    assert remaining_mass(mass) == pytest.approx(np.array(expected))


@pytest.mark.parametrize("name", ["ut", "ndr_act"])
def test_tokens_of_the_middle_row_and_the_longest(tokenizer, name):
    model, rows = make_model(BY_NAME[name]), rows_of(capped(make_batch(BY_NAME[name])))
    (picture,) = halting_pictures(model, tokenizer, rows)
    assert (picture["stack"], picture["unit"]) == ("model", "token")
    middle, longest = picture["examples"]
    for example, row in ((middle, rows[4]), (longest, rows[-1])):
        assert example["names"] == tokenizer.convert_ids_to_tokens(row["input_ids"])
        # the heat map of the same row says which mass lies where
        heat = token_heat_map(model, tokenizer, row)
        assert example["steps"] == heat["steps"]
        for remaining, mass in zip(example["remaining"], heat["mass"], strict=True):
            assert remaining == pytest.approx([sum(mass[step:]) for step in range(1, 7)], abs=1e-4)
    assert len(set(longest["steps"])) > 1


def test_rows_that_halt_as_a_whole_stand_side_by_side(tokenizer):
    model, rows = make_model(BY_NAME["gut"]), rows_of(capped(make_batch(BY_NAME["gut"])))
    (picture,) = halting_pictures(model, tokenizer, rows)
    (example,) = picture["examples"]
    assert picture["unit"] == "example"
    assert example["names"] == [f"{len(row['input_ids'])} tokens" for row in rows]
    model, rows = make_model(BY_NAME["gutlb"]), rows_of(capped(make_batch(BY_NAME["gutlb"])))
    (example,) = halting_pictures(model, tokenizer, rows)[0]["examples"]
    chunks = sum(-(-len(row["input_ids"]) // 4) for row in rows)
    assert len(example["names"]) == len(example["steps"]) == len(example["remaining"]) == chunks
    assert example["names"][-1] == "9 tokens, chunk 3"


def test_both_stacks_of_a_translator(tokenizer):
    model, rows = make_translator(), rows_of(capped(make_pairs()[0]))
    encoder, decoder = halting_pictures(model, tokenizer, rows)
    assert (encoder["stack"], decoder["stack"]) == ("encoder", "decoder")
    last = rows[-1]
    read = [3, *last["labels"][:-1]]
    assert encoder["examples"][-1]["names"] == tokenizer.convert_ids_to_tokens(last["input_ids"])
    assert decoder["examples"][-1]["names"] == tokenizer.convert_ids_to_tokens(read)
    with torch.no_grad():
        output = model(
            input_ids=torch.tensor([last["input_ids"]]), decoder_input_ids=torch.tensor([read]), output_halting=True
        )
    for picture, steps, probabilities in (
        (encoder, output.encoder_ponder_steps, output.encoder_halting_probabilities),
        (decoder, output.ponder_steps, output.halting_probabilities),
    ):
        found = picture["examples"][-1]
        assert found["steps"] == steps[0].tolist()
        for remaining, taken, conditional in zip(
            found["remaining"], found["steps"], probabilities[0].tolist(), strict=True
        ):
            left = 1.0
            for step, share in enumerate(remaining):
                # nothing is left for steps that were not taken, and the first is never spared
                assert share == pytest.approx(left if step < taken else 0.0, abs=1e-4)
                left *= 1 - (conditional[step + 1] if step + 1 < len(conditional) else 0)


@pytest.fixture(scope="module")
def drawn(tokenizer, tmp_path_factory):
    model, batches = make_translator(), [capped(batch) for batch in make_pairs()]
    table = sweep_thresholds(model, batches, (0.3, 0.7), repeats=1)
    table["pictures"] = halting_pictures(model, tokenizer, rows_of(batches[0]))
    folder = tmp_path_factory.mktemp("drawn")
    return folder, table, plots.save_figures(folder, table, prefix="a/test")


def test_figures_are_listed_and_lie_where_they_should(drawn):
    folder, _, listed = drawn
    assert listed == [
        {"kind": "trade_off", "path": "assets/a_test_trade_off.png", "column": None},
        {"kind": "halting_plot", "path": "assets/a_test_halting_plot_encoder.png", "column": "encoder"},
        {"kind": "halting_plot", "path": "assets/a_test_halting_plot_decoder.png", "column": "decoder"},
    ]
    for item in listed:
        with Image.open(folder / item["path"]) as image:
            assert image.format == "PNG"


def test_the_trade_off_shows_each_threshold(drawn):
    _, table, _ = drawn
    accuracy, work, time = plots.plot_trade_off(table).axes
    rows = [*table["thresholds"], table["full_depth"]]
    lines = {line.get_label(): line.get_ydata().tolist() for line in work.get_lines()}
    for stack, label in (("encoder", "encoder"), ("decoder", "decoder"), ("both", "both stacks")):
        assert lines[label] == [row["stacks"][stack]["share"] for row in rows]
    for axes, key in ((accuracy, "accuracy"), (time, "relative_time")):
        assert axes.get_lines()[0].get_ydata().tolist() == [row[key] for row in rows]
    names = [label.get_text() for label in time.get_xticklabels()]
    assert names == [*(f"{row['threshold']:g}" for row in table["thresholds"]), "full depth"]
