"""`hf-recurrent demo`: its chains, what it learns, and what it leaves."""

import json
import random

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from hf_recurrent.cli import main
from hf_recurrent.cli.demo import SHORT, TESTED, TRAINED, Chain, draw


def test_functions_are_applied_from_the_left():
    # a gives 2 for 3, and c gives 0 for 2
    assert Chain(3, "a").value == 2
    assert Chain(3, "ac").value == 0
    # c gives 1 for 3, and a gives 1 for 1
    assert Chain(3, "ca").value == 1
    # b gives 0 for 3
    assert Chain(3, "ba").value == 3
    assert Chain(3, "ac").text == "3 a c"


def test_long_chains_of_calibration_and_test_are_not_in_training():
    rng = random.Random(0)
    trained = {draw(rng, TRAINED, training=True) for _ in range(20_000)}
    tested = {draw(rng, TESTED, training=False) for _ in range(5_000)}
    shared = trained & tested
    assert {len(chain.functions) for chain in trained} == set(TRAINED)
    assert {len(chain.functions) for chain in tested} == set(TESTED)
    assert {len(chain.functions) for chain in shared} == set(range(1, SHORT + 1))


def run(capsys, *options):
    with pytest.raises(SystemExit) as finished:
        main(["demo", *map(str, options)])
    printed = capsys.readouterr()
    return finished.value.code, " ".join((printed.out + printed.err).split())


@pytest.mark.slow
def test_a_model_that_is_sure_of_nothing_is_not_saved(tmp_path, capsys):
    status, printed = run(capsys, "--max-steps", 2, "--output-dir", tmp_path / "run")
    assert status == 1
    assert "after 2 steps of training" in printed
    assert "--max-steps" in printed
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_demo_takes_more_steps_for_longer_chains_than_it_was_trained_on(tmp_path, capsys):
    status, printed = run(capsys, "--output-dir", tmp_path)
    assert status == 0
    assert "longer than any chain of training" in printed
    found = json.loads((tmp_path / "calibration.json").read_text())["tests"]["test"]
    rows = {int(row["value"]): row for row in found["by_difficulty"]}
    # training rounds otherwise on other processors, and where it ends differs: these hold wherever it is seen
    for lengths, least in ((TRAINED, 0.97), (range(6, 10), 0.85)):
        found = [rows[length] for length in lengths]
        assert np.average([row["accuracy"] for row in found], weights=[row["n"] for row in found]) > least
    slope = np.polyfit(list(rows), [row["mean_depth"] for row in rows.values()], 1)[0]
    assert 0.3 < slope < 1.5
    model, tokenizer = (kind.from_pretrained(tmp_path) for kind in (AutoModelForSequenceClassification, AutoTokenizer))
    with torch.no_grad():
        outputs = model(**tokenizer(["3 a", "1 c b a c b a b"], padding=True, return_tensors="pt"))
    assert outputs.logits.argmax(-1)[0] == Chain(3, "a").value
    assert outputs.ponder_steps[0] < outputs.ponder_steps[1]
