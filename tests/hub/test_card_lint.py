import re
from dataclasses import replace

import pytest
import torch
from calibration_data import make_calibration
from card_factory import make_card
from safetensors.torch import save_file

from hf_recurrent.files import write_json
from hf_recurrent.hub import lint_card, write_card
from hf_recurrent.hub.card import Benchmark, SplitResult
from hf_recurrent.hub.sections import without_curves
from hf_recurrent.hub.stored import stored_digest


@pytest.fixture
def folder(tmp_path, picture):
    write_card(tmp_path, make_card(plots=[picture]))
    (tmp_path / "card.json").rename(tmp_path / "kept.json")
    return tmp_path


def edit(folder, old, new):
    path = folder / "README.md"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_good_card_passes(folder):
    lint_card(folder)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("---\n", "", "no YAML front matter"),
        ("license: apache-2.0", "license: [", "not valid YAML"),
        ("license: apache-2.0", "license: !!python/name:os.system ''", "not valid YAML"),
        ("license: apache-2.0", "licence: apache-2.0", "lacks 'license'"),
        ("library_name: transformers", "library_name:", "lacks 'library_name'"),
        ("assets/steps.png", "assets/none.png", "'assets/none.png' is missing"),
    ],
)
def test_each_defect_is_named(folder, old, new, problem):
    edit(folder, old, new)
    with pytest.raises(ValueError, match=re.escape(problem)):
        lint_card(folder)


ODD = ["None", "nan", "Undefined", "{{ x }}", "{% if", "![x](y.png)", "More information needed", "<b>", "a`b``c|d"]


def odd(value, names):
    """A table whose splits, columns and values are called so."""
    return {name: {**value, "slices": {name: odd_slice(value["slices"]["operator"], names)}} for name in names}


def odd_slice(column, names):
    return {**column, "rows": [{**column["rows"][0], "value": name} for name in names]}


def test_names_of_own_data_are_no_marks_of_a_template(tmp_path, picture):
    table = make_card().results[0].table
    results = [SplitResult(name, own) for name, own in odd(table, ODD).items()]
    plots = [replace(picture, kind="difficulty", column=name) for name in ODD if name[:4] != "More"]
    card = make_card(results=results, plots=plots)
    named = {**vars(card.benchmark), "name": "nan", "seed": None, "parameters": dict(zip(ODD, ODD, strict=True))}
    write_card(tmp_path, replace(card, benchmark=Benchmark(**named)))
    lint_card(tmp_path)
    text = (tmp_path / "README.md").read_text()
    for shown in ("| `None` |", "| `nan` |", "| `{{ x }}` |", "| `![x](y.png)` |", "| ``` a`b``c\\|d ``` |"):
        assert shown in text


EXIT = {"exit_criterion": "convergence", "exit_threshold": 0.25, "exit_patience": 1, "num_hidden_layers": 16}


@pytest.mark.parametrize(
    ("shown", "config", "problem"),
    [
        (True, {**EXIT, "exit_calibration": {}}, None),
        (False, {"exit_criterion": "learned"}, None),
        (
            False,
            {**EXIT, "exit_calibration": {}},
            "its calibrated exit is None, that of config.json ('convergence', 0.25",
        ),
        (True, EXIT, "its calibrated exit is ('convergence', 0.25, 1), that of config.json None: run `hf-recurrent"),
        (True, {**EXIT, "exit_threshold": 0.5, "exit_calibration": {}}, "that of config.json ('convergence', 0.5, 1)"),
    ],
)
def test_a_card_tells_the_exit_that_is_stored(tmp_path, picture, shown, config, problem):
    calibration = without_curves(make_calibration()) if shown else None
    write_card(tmp_path, make_card(plots=[picture], calibration=calibration))
    write_json(tmp_path / "config.json", config)
    if problem is None:
        lint_card(tmp_path)
        return
    with pytest.raises(ValueError, match=re.escape(problem)):
        lint_card(tmp_path)


def test_a_card_is_of_the_weights_beside_it(tmp_path, picture):
    card = make_card(plots=[picture])
    weights = torch.randn(card.training.num_parameters)
    write_json(tmp_path / "config.json", {})
    save_file({"weight": weights}, tmp_path / "model.safetensors")
    write_card(tmp_path, replace(card, training=replace(card.training, weights=stored_digest(tmp_path))))
    lint_card(tmp_path)
    save_file({"weight": weights, "exit_probe.weight": torch.zeros(2)}, tmp_path / "model.safetensors")
    lint_card(tmp_path)
    for others in (weights.bfloat16(), weights + 1):
        save_file({"weight": others}, tmp_path / "model.safetensors")
        with pytest.raises(ValueError, match="results are of other weights than those beside it"):
            lint_card(tmp_path)


def test_all_problems_at_once(folder):
    edit(folder, "license: apache-2.0", "licence: apache-2.0")
    edit(folder, "assets/steps.png", "assets/none.png")
    with pytest.raises(ValueError, match=r"(?s)'license'.*missing"):
        lint_card(folder)


def test_a_card_edited_by_hand_is_found(folder):
    (folder / "kept.json").rename(folder / "card.json")
    lint_card(folder)
    edit(folder, "A tiny model", "A great model")
    with pytest.raises(ValueError, match=r"is not what card\.json renders to"):
        lint_card(folder)
    (folder / "card.json").write_text("{")
    with pytest.raises(ValueError, match="cannot be rendered"):
        lint_card(folder)


def test_a_folder_without_a_card(tmp_path):
    with pytest.raises(ValueError, match=r"no README\.md"):
        lint_card(tmp_path)
