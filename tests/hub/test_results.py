"""`results.json` in a folder: written with its card as a whole, linted, copied, and without quotes unless asked."""

import json
import re

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from hf_recurrent.hub import lint_card, read_results, render_card, write_results
from hf_recurrent.hub.base_model import check_license, copy_results, license_of, read_base_model
from hf_recurrent.hub.results import check_texts, front_matter, put_results, stored_digest, with_calibration
from hf_recurrent.utils import changed_files, write_json
from support.results import figure, make_calibration, make_results, make_table

OURO = {"name": "ByteDance/Ouro-1.4B", "license": "apache-2.0", "license_name": None, "license_link": None}
OURO["revision"] = "0123456789abcdef"


def edit(folder, old, new):
    path = folder / "README.md"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))


def test_a_card_is_a_function_of_its_results(picture, tmp_path):
    results = make_results(figures=[picture])
    text = write_results(tmp_path, results).read_text()
    lint_card(tmp_path)
    assert read_results(tmp_path) == results
    assert render_card(results) == text
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert tmp_path / ".eval_results" / "listops.yaml" in before
    write_results(tmp_path, read_results(tmp_path))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_numpy_and_nan_do_not_reach_the_files(tmp_path):
    table = make_table(accuracy=np.float32(0.5), ponder_cost=np.float64("nan"), n=np.int64(60))
    write_results(tmp_path, make_results(splits={"test": table}))
    assert "!!python" not in (tmp_path / "README.md").read_text()
    assert read_results(tmp_path)["splits"]["test"]["ponder_cost"] is None


def test_bad_results_write_nothing(tmp_path):
    with pytest.raises(ValueError, match=r"results\.json cannot be rendered"):
        write_results(tmp_path, make_results(metric="magic"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["{}", "[1]", '{"task": "text-classification"}'])
def test_results_of_others_are_none(tmp_path, content):
    assert read_results(tmp_path) is None
    (tmp_path / "results.json").write_text(content)
    assert read_results(tmp_path) is None


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("---\n", "", "lacks 'license'"),
        ("license: apache-2.0", "license: [", "not valid YAML"),
        ("license: apache-2.0", "license: !!python/name:os.system ''", "not valid YAML"),
        ("license: apache-2.0", "licence: apache-2.0", "lacks 'license'"),
        ("library_name: transformers", "library_name:", "lacks 'library_name'"),
        ("assets/steps.png", "assets/none.png", "'assets/none.png' is missing"),
    ],
)
def test_each_defect_of_a_card_is_named(tmp_path, picture, old, new, problem):
    with pytest.raises(ValueError, match=r"has no README\.md"):
        lint_card(tmp_path)
    write_results(tmp_path, make_results(figures=[picture]))
    edit(tmp_path, old, new)
    with pytest.raises(ValueError, match=r"README\.md is not what results\.json renders to"):
        lint_card(tmp_path)
    # of a card that somebody wrote
    (tmp_path / "results.json").unlink()
    with pytest.raises(ValueError, match=re.escape(problem)):
        lint_card(tmp_path)


ODD = ["None", "nan", "Undefined", "{{ x }}", "{% if", "![x](y.png)", "More information needed", "<b>", "a`b``c|d"]


def test_names_of_own_data_are_no_marks_of_a_template(tmp_path, picture):
    column = make_table()["slices"]["operator"]
    rows = [{**column["rows"][0], "value": name} for name in ODD]
    table = make_table() | {"slices": {name: {**column, "rows": rows} for name in ODD}}
    figures = [{**picture, "kind": "difficulty", "column": name} for name in ODD if name[:4] != "More"]
    data = {"name": "nan", "seed": None, "parameters": dict(zip(ODD, ODD, strict=True))}
    write_results(tmp_path, make_results(splits=dict.fromkeys(ODD, table), figures=figures, data=data))
    lint_card(tmp_path)
    text = (tmp_path / "README.md").read_text()
    for shown in ("| `None` |", "| `nan` |", "| `{{ x }}` |", "| `![x](y.png)` |", "| ``` a`b``c\\|d ``` |"):
        assert shown in text


EXIT = {"criterion": "convergence", "threshold": 0.25, "patience": 1, "n": 1_000}


@pytest.mark.parametrize(
    ("shown", "config", "problem"),
    [
        (True, EXIT, None),
        (False, None, None),
        (
            False,
            EXIT,
            "its calibration chose None, and config.json has {'criterion': 'convergence'",
        ),
        (True, None, "'patience': 1}, and config.json has None"),
        (True, {**EXIT, "threshold": 0.5}, "config.json has {'criterion': 'convergence', 'threshold': 0.5"),
    ],
)
def test_a_card_tells_the_exit_that_is_stored(tmp_path, shown, config, problem):
    write_results(tmp_path, make_results(calibration=make_calibration() if shown else None))
    write_json(tmp_path / "config.json", {"exit_calibration": config})
    if problem is None:
        lint_card(tmp_path)
        return
    with pytest.raises(ValueError, match=re.escape(problem)):
        lint_card(tmp_path)


def test_a_card_is_of_the_weights_beside_it(tmp_path):
    weights = torch.randn(10)
    write_json(tmp_path / "config.json", {})
    save_file({"weight": weights}, tmp_path / "model.safetensors")
    write_results(tmp_path, make_results(training={"weights": stored_digest(tmp_path)}))
    save_file({"weight": weights, "exit_probe.weight": torch.zeros(2)}, tmp_path / "model.safetensors")
    lint_card(tmp_path)
    for others in (weights.bfloat16(), weights + 1):
        save_file({"weight": others}, tmp_path / "model.safetensors")
        with pytest.raises(ValueError, match="results are of other weights than those beside it"):
            lint_card(tmp_path)


def test_a_calibration_is_drawn_and_replaces_the_one_before(tmp_path):
    write_results(tmp_path, make_results())
    found = {**make_calibration(), "criteria": {"convergence": {"curve": []}}}
    del found["tried"]
    for difficulty in ("depth", None):
        before = read_results(tmp_path)
        tests = {"test": {**found["tests"]["test"], **({} if difficulty else {"by_difficulty": []})}}
        with changed_files(tmp_path) as change:
            after = with_calibration(before, {**found, "difficulty": difficulty, "tests": tests}, change.new)
            put_results(change, after, before=before)
        drawn = [path.name for path in (tmp_path / "assets").glob("*.png")]
        assert drawn == (["calibrated_steps_depth.png"] if difficulty else [])
    calibration = read_results(tmp_path)["calibration"]
    assert (calibration["tried"], "criteria" in calibration) == (["convergence"], False)


# ---- a user's own data


def test_examples_of_own_data_are_left_out_unless_asked_for(tmp_path, picture):
    routing = {"path": "assets/steps.png", "tokens": ["secret"], "prediction": "1", "probability": None, "answer": "2"}
    figures = [picture, {**picture, "kind": "heat_map"}, {**picture, "kind": "routing"}]
    shown = {"figures": figures, "routing": [routing], "example": {"text": "secret", "text_pair": "secret"}}
    shown["calibration"] = make_calibration()
    shown["calibration"]["tests"]["test"]["examples"][0]["text"] = "secret"
    for data, quotes, told in (
        ({"seed": 0}, False, True),
        ({"seed": None}, True, True),
        ({"seed": None}, False, False),
    ):
        write_results(tmp_path, make_results(**shown, data=data, quotes=quotes))
        found = read_results(tmp_path)
        assert len(found["figures"]) == (3 if told else 1)
        assert ("secret" in json.dumps(found)) == told == ("secret" in (tmp_path / "README.md").read_text())
    assert found["example"] == {"text": "a text", "text_pair": "a text", "answer": None}
    assert [*found] == [*make_results()]
    for task, text in (("fill-mask", "a text [MASK]"), ("text-classification", "a text")):
        write_results(tmp_path, make_results(task=task, data={"seed": None}, example={"text": "the [MASK]. So"}))
        assert read_results(tmp_path)["example"]["text"] == text


def test_columns_must_be_as_many_as_in_training():
    check_texts("x", None, ["a", "b"])
    check_texts("x", make_results(), ["a"])
    with pytest.raises(ValueError, match="text_column is a, b, for pairs, but x was trained on single texts"):
        check_texts("x", make_results(), ["a", "b"])
    with pytest.raises(ValueError, match="text_column is a, for single texts, but x was trained on pairs"):
        check_texts("x", make_results(example={"text_pair": "y"}), ["a"])


# ---- whose weights these are


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        *((name, None) for name in ("apache-2.0", "mit", "bsd-3-clause", "cc-by-nc-sa-4.0", "bigscience-openrail-m")),
        (None, "names no licence.*convert it with --license"),
        ("cc-by-nd-4.0", "licence is cc-by-nd-4.0: it is none that lets everybody publish changed copies"),
        ("other", r"other \(only for research\)"),
    ],
)
def test_weights_are_published_if_their_licence_lets_one_pass_copies_on(name, problem):
    base = {**OURO, "license": name, "license_name": "only for research" if name == "other" else None}
    if problem is None:
        check_license(base)
        return
    with pytest.raises(ValueError, match=f"the weights come from {base['name']}, whose .*{problem}"):
        check_license(base)


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["license: mit"], "mit"),
        (["license: unknown"], None),
        (["license:", "- mit", "- other"], None),
        (["tags: [a"], None),
        (["license: other", "license_name: theirs"], "other"),
    ],
)
def test_the_licence_of_a_card(lines, found, tmp_path):
    (tmp_path / "README.md").write_text("\n".join(["---", *lines, "---", "", "# A model", ""]))
    assert license_of(tmp_path / "README.md")["license"] == found
    assert license_of(tmp_path / "none.md")["license"] is None


def test_a_model_of_ones_own_is_nobody_elses(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "gut"}')
    assert read_base_model(str(tmp_path)) is None
    write_results(tmp_path, make_results())
    assert read_base_model(str(tmp_path)) is None
    write_results(tmp_path, make_results(model={"base": OURO}))
    assert read_base_model(str(tmp_path)) == OURO
    data = front_matter((tmp_path / "README.md").read_text())
    assert (data["license"], data["base_model"]) == ("apache-2.0", "ByteDance/Ouro-1.4B")


def test_a_copy_has_the_card_of_the_original(tmp_path, picture):
    lost = figure(path="assets/lost.png")
    write_results(tmp_path, make_results(model={"base": OURO}, figures=[picture]))
    results = read_results(tmp_path)
    write_json(tmp_path / "results.json", {**results, "figures": [picture, lost]})
    for origin, copy in ((tmp_path, "first"), (tmp_path / "first", "second")):
        (tmp_path / copy).mkdir()
        copy_results(str(origin), tmp_path / copy, copy)
        assert read_results(tmp_path / copy) == {**results, "name": copy}
        lint_card(tmp_path / copy)


def test_a_copy_without_a_card_knows_whose_its_weights_are(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "gut"}')
    write_json(tmp_path / "base_model.json", OURO)
    (tmp_path / "copy").mkdir()
    copy_results(str(tmp_path), tmp_path / "copy", "copy")
    (tmp_path / "copy" / "config.json").write_text('{"model_type": "gut"}')
    assert read_base_model(str(tmp_path / "copy")) == OURO
