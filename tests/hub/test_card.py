import ast
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import yaml
from card_factory import make_card
from huggingface_hub import ModelCard
from huggingface_hub.repocard_data import model_index_to_eval_results

from hf_recurrent.hub import CardData, lint_card, render_card, write_card
from hf_recurrent.hub.card import Example, Plot, SplitResult, read_card
from hf_recurrent.hub.findings import trend, trends
from hf_recurrent.hub.metadata import eval_results_yaml, front_matter


def test_results_lie_in_the_folder_whatever_the_benchmark_is_named(tmp_path):
    card = make_card()
    folder = tmp_path / "card"
    folder.mkdir()
    write_card(folder, replace(card, benchmark=replace(card.benchmark, name="../../x.y", seed=None)))
    assert [path.name for path in (folder / ".eval_results").iterdir()] == ["-x-y.yaml"]
    assert [path.name for path in tmp_path.iterdir()] == ["card"]


def test_results_show_numbers_baselines_and_the_papers_value(card):
    text = render_card(card)
    assert "| `test` | 60 | **66.7%** | 33.3% | 2.50 | 81.2% |" in text
    assert "| `deep` | 60 | **66.7%** | 33.3% | 2.50 |  |" in text
    assert "| 1 | 15 | 100.0% | 33.3% | 1.00 | 1 | 1 | 99.0% |" in text
    assert "| a\\|b | 20 |" in text


def test_every_table_row_has_as_many_cells_as_its_header(card):
    for text in (render_card(card), render_card(make_card(fixed=True))):
        width = None
        for line in text.splitlines():
            if not line.startswith("|"):
                width = None
                continue
            cells = len(re.split(r"(?<!\\)\|", line))
            width = width or cells
            assert cells == width, line


def test_many_difficulty_tables_are_folded(card):
    assert "<details>" not in render_card(card)
    table = card.results[0].table
    text = render_card(replace(card, results=[SplitResult(f"test_{i}", table) for i in range(4)]))
    assert text.count("<details>") == text.count("</details>") == 4


def test_halting_section_states_the_trend_and_forced_halts(card):
    text = render_card(card)
    assert "steps **grow** strongly with depth (Spearman +1.00): 1.00 on average at depth 1, 4.00 at 4." in text
    assert "| 4 of 4 | 1.30 | 25.0% |" in text


def test_fixed_depth_makes_no_halting_claims():
    text = render_card(make_card(fixed=True))
    assert "runs all 4 steps on every input" in text
    for word in ("onder", "Spearman", "halting_threshold", "ercentile", "adaptive-computation"):
        assert word not in text
    assert "recurrent-depth" not in front_matter(make_card(fixed=True))
    assert "| 4 (fixed) |" in text


def test_notice_and_threshold_curve_appear_when_given():
    row = {"threshold": 0.9, "accuracy": 0.5, "mean_steps": 2.0, "mean_ponder_cost": 1.0, "seconds": 0.25}
    text = render_card(make_card(notice="A short run.", threshold_curve=[{**row, "relative_time": 0.5}]))
    assert "> **Note.** A short run." in text
    assert "| 0.9 | 50.0% | 2.00 | 1.00 | 0.25 | 50.0% |" in text
    assert "**Note.**" not in render_card(make_card())


@pytest.mark.parametrize("pair", [None, "( b or\na )"])
def test_usage_code_is_python(pair):
    text = render_card(make_card(example=Example('[MAX 1 "2" ]', pair)))
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        ast.parse(block)
    assert '"[MAX 1 \\"2\\" ]"' in blocks[0]
    assert ("text_pair" in blocks[2]) == (pair is not None)


def test_front_matter_is_plain_yaml_that_the_hub_reads(card):
    data = yaml.safe_load(front_matter(card))
    assert data["tags"] == [
        *["hf_recurrent", "custom_code", "adaptive-computation", "recurrent-depth"],
        *["gut", "listops"],
    ]
    assert data["hf_recurrent"]["halting"]["splits"]["test"]["spearman"] == {"depth": pytest.approx(1)}
    parsed = ModelCard(render_card(card)).data
    assert parsed.to_dict()["hf_recurrent"]["family"] == "gut"
    results = parsed.eval_results
    assert [(result.dataset_split, result.metric_value) for result in results] == [
        ("test", 2 / 3),
        ("deep", 2 / 3),
    ]
    assert model_index_to_eval_results(data["model-index"])[0] == "GUT on ListOps"


def test_numpy_and_nan_do_not_reach_the_files(card, tmp_path):
    table = dict(card.results[0].table, accuracy=np.float32(0.5), ponder_cost=np.float64("nan"), n=np.int64(60))
    write_card(tmp_path, replace(card, results=[SplitResult("test", table)]))
    text = (tmp_path / "README.md").read_text()
    assert "!!python" not in text
    assert ".nan" not in text
    summary = yaml.safe_load(text.split("---\n")[1])["hf_recurrent"]["halting"]["splits"]["test"]
    assert summary["accuracy"] == 0.5
    assert "ponder_cost" not in summary


def test_card_is_a_function_of_its_data(card, picture, tmp_path):
    card = replace(card, plots=[picture])
    path = write_card(tmp_path, card)
    lint_card(tmp_path)
    assert render_card(read_card(tmp_path)) == path.read_text() == render_card(card)
    assert read_card(tmp_path).to_dict() == card.to_dict()
    before = {item: item.read_bytes() for item in tmp_path.rglob("*") if item.is_file()}
    write_card(tmp_path, read_card(tmp_path))
    assert {item: item.read_bytes() for item in tmp_path.rglob("*") if item.is_file()} == before


def test_a_bad_card_writes_nothing(card, tmp_path):
    with pytest.raises(ValueError, match=r"'assets/gone\.png' is missing"):
        write_card(tmp_path, replace(card, plots=[Plot("steps", "assets/gone.png")]))
    assert list(tmp_path.iterdir()) == []


def test_eval_results_carry_difficulty_in_the_task(card, tmp_path):
    write_card(tmp_path, replace(card, date="2026-01-31"))
    entries = yaml.safe_load((tmp_path / ".eval_results" / "listops.yaml").read_text())
    assert entries[0]["dataset"] == {"id": "someone/listops", "task_id": "original/test"}
    assert entries[0]["date"] == "2026-01-31"
    tasks = [entry["dataset"]["task_id"] for entry in entries]
    assert "original/deep/depth=4" in tasks
    assert len(tasks) == len(set(tasks)) == 2 * (1 + 4 + 2)
    assert all(type(entry["value"]) is float for entry in entries)


def test_unpublished_data_have_no_eval_results(card, tmp_path):
    card = replace(card, benchmark=replace(card.benchmark, dataset_id=None))
    assert eval_results_yaml(card) is None
    write_card(tmp_path, card)
    assert not (tmp_path / ".eval_results").exists()
    assert "datasets" not in yaml.safe_load(front_matter(card))


def test_card_data_from_json_names_the_place_of_an_error(card):
    data = json.loads(json.dumps(card.to_dict()))
    data["training"]["colour"] = "red"
    with pytest.raises(ValueError, match=r"Training is not as this package writes it: .*colour"):
        CardData.from_dict(data)
    del data["training"]["colour"], data["results"][1]["split"]
    with pytest.raises(ValueError, match=r"SplitResult is not as this package writes it: .*'split'"):
        CardData.from_dict(data)
    data["results"] = []
    with pytest.raises(ValueError, match="at least one split"):
        CardData.from_dict(data)


@pytest.mark.parametrize(
    ("correlation", "examples", "expected"),
    [
        (None, 1000, "undefined"),
        (0.5, 1000, "grow"),
        (-0.5, 1000, "shrink"),
        (0.09, 100_000, "flat"),
        (0.11, 100_000, "grow"),
        (0.5, 10, "unclear"),
        (0.05, 100, "unclear"),
        (0.0, 402, "flat"),
        (-0.1, 401, "shrink"),
    ],
)
def test_trend_rule(correlation, examples, expected):
    assert trend(correlation, examples) == expected


def test_only_numeric_columns_have_trends(card):
    assert [item["column"] for item in trends(card.results[0].table)] == ["depth"]
