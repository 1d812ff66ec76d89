"""`run_clm.py` from recipe to publishable folder, and scripts that are given recipes of other objectives."""

import json

import pytest
import yaml
from safetensors.torch import load_file
from tiny_run import CLM_SCRIPT, DOCUMENT_SCRIPT, MASKED_SCRIPT, SCRIPT, SEQ2SEQ_SCRIPT, TINY

from hf_recurrent.hub import lint_card
from hf_recurrent.training.run import matching_script
from hf_recurrent.training.trainer import RecurrentTrainer
from support.compare import assert_close

pytestmark = pytest.mark.slow

FLIP_FLOP = {
    **TINY,
    "benchmark": "flip_flop",
    "benchmark_params": {"train_length": 16, "num_train": 64, "num_validation": 12, "num_test": 10},
    "learning_rate": 1e-3,
    "lr_schedule": "linearwarmup",
    "metric_for_best_model": "token_accuracy",
}
CHUNKS = {"chunk_size": 6, "num_memory_slots": 3}


def recipe_in(folder, **changes):
    config = {**FLIP_FLOP["config"], **changes.pop("config", {})}
    if changes.get("model_type") in ("xpos_transformer", "tlb"):
        config.pop("halting")
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump({**FLIP_FLOP, **changes, "config": config}))
    return str(path)


@pytest.fixture(scope="module")
def straight(clm_script, tmp_path_factory):
    """A tiny run without interruption, of a model that has both halting and memory."""
    folder = tmp_path_factory.mktemp("clm")
    recipe = recipe_in(folder, model_type="gutlb", config=CHUNKS)
    clm_script.main([recipe, "--output_dir", str(folder / "run"), "--write_predictions", "--keep_checkpoints"])
    return folder / "run"


def test_folder_is_publishable(straight):
    lint_card(straight)
    figures = {path.stem.removeprefix("test_16_p80_") for path in (straight / "assets").iterdir()}
    assert {"steps", "token_steps_position", "token_steps_kind", "heat_map", "memory"} <= figures
    card = json.loads((straight / "card.json").read_text())
    assert card["training"]["command"].startswith("accelerate launch training/run_clm.py tiny.yaml")
    # the split of the training distribution comes first: the card's claim is about it
    splits = [result["split"] for result in card["results"]]
    assert splits[0] == "test_16_p80"
    assert sorted(splits) == sorted(f"test_{length}_p{percent}" for length in (16, 32) for percent in (10, 80, 98))
    assert json.loads((straight / "config.json").read_text())["architectures"] == ["GUTLBForCausalLM"]


def test_tables_are_about_the_last_read(straight):
    tables = json.loads((straight / "halting_stats.json").read_text())["splits"]
    lines = (straight / "predictions" / "test_32_p98.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    table = tables["test_32_p98"]
    assert table["n"] == len(rows) == 10
    assert table["accuracy"] == sum(row["label"] == row["prediction"] for row in rows) / 10
    assert {row["label"] for row in rows} <= {"0", "1"}
    assert table["labelled_tokens"]["n"] == sum(row["num_reads"] for row in rows)
    kinds = {row["value"]: row["n"] for row in table["tokens"]["kind"]["rows"]}
    assert kinds["r"] == kinds["bit after r"] == table["labelled_tokens"]["n"]
    assert sum(kinds.values()) == 320
    assert sum(table["steps_histogram"]) == 320


def test_resumed_run_equals_straight_run(clm_script, straight, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    step = RecurrentTrainer.training_step

    def killed(self, *args, **kwargs):
        if self.state.global_step == 6:
            raise Killed
        return step(self, *args, **kwargs)

    def killed_at_once(*args, **kwargs):
        raise Killed

    command = [str(straight.parent / "tiny.yaml"), "--output_dir", str(tmp_path / "run")]
    with monkeypatch.context() as patch:
        patch.setattr(RecurrentTrainer, "training_step", killed)
        with pytest.raises(Killed):
            clm_script.main(command)
    # the weights are there before they are evaluated
    monkeypatch.setattr("hf_recurrent.training.trainer_run.evaluate_run", killed_at_once)
    with pytest.raises(Killed):
        clm_script.main(command)
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (tmp_path / "run", straight))
    assert ours.keys() == theirs.keys()
    assert_close(ours, theirs, 1e-4)


@pytest.mark.parametrize("model", ["xpos_transformer", "ut", "tlb"])
def test_other_families(clm_script, tmp_path, model, capsys):
    config = {"lm_head": "mlp", **(CHUNKS if model == "tlb" else {})}
    schedule = {"max_steps": 2, "eval_steps": 2, "save_steps": 2}
    recipe = recipe_in(tmp_path, model_type=model, config=config, **schedule)
    clm_script.main([recipe, "--output_dir", str(tmp_path / "run")])
    lint_card(tmp_path / "run")
    printed = capsys.readouterr().out
    assert "test_16_p80 by distance" in printed
    # all strings of a split are equally long
    assert "by length" not in printed
    assert ("tokens of test_16_p80 by kind" in printed) is (model == "ut")


@pytest.mark.parametrize(
    ("argv", "given", "expected", "reason"),
    [
        (["--benchmark", "listops"], CLM_SCRIPT, SCRIPT, "has labels"),
        ([], CLM_SCRIPT, SCRIPT, "'listops' has labels"),
        (["--benchmark=flip_flop"], SCRIPT, CLM_SCRIPT, "has no labels"),
        (["--benchmark", "cfq", "--max_steps", "1"], SCRIPT, SEQ2SEQ_SCRIPT, "has sources and targets"),
        (["--benchmark", "long_documents"], CLM_SCRIPT, DOCUMENT_SCRIPT, "has documents"),
        (["--benchmark", "listops"], DOCUMENT_SCRIPT, SCRIPT, "has labels"),
    ],
)
def test_a_script_gives_way_to_that_of_the_benchmark(argv, given, expected, reason):
    given, expected = (f"training/{path.name}" for path in (given, expected))
    with pytest.warns(UserWarning, match=rf"{reason}.*: running {expected} instead of {given}"):
        assert matching_script(argv, given) == expected
    assert matching_script(argv, expected) == expected


def test_without_a_benchmark_a_script_keeps_its_own_default(tmp_path):
    names = [f"training/{path.name}" for path in (SCRIPT, DOCUMENT_SCRIPT)]
    assert [matching_script(["--max_steps", "3"], name) for name in names] == names
    assert matching_script(["--help"], "training/run_seq2seq.py") == "training/run_seq2seq.py"
    with pytest.raises(FileNotFoundError, match="there is no recipe"):
        matching_script([str(tmp_path / "absent.yaml")], names[0])
    with pytest.raises(ValueError, match="benchmark"):
        matching_script(["--benchmark", "listop"], names[0])


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["demo"], SCRIPT),
        (["flip_flop_tlb", "--max_steps", "3"], CLM_SCRIPT),
        (["training/recipes/cfq_ut.yaml"], SEQ2SEQ_SCRIPT),
        (["cpu/long_documents_slide"], DOCUMENT_SCRIPT),
        (["--max_steps", "3"], SCRIPT),
        (["--help"], SCRIPT),
        (["--train-file", "a.txt", "--task", "fill-mask"], MASKED_SCRIPT),
        (["--train-file", "a.txt", "--block-size", "64"], CLM_SCRIPT),
        (["--dataset-name=a/b", "--task=text-generation"], CLM_SCRIPT),
    ],
)
def test_a_command_for_any_objective_finds_it(argv, expected, recwarn):
    assert matching_script(argv, None) == f"training/{expected.name}"
    assert not recwarn.list
