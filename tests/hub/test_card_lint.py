import re
from dataclasses import replace

import pytest
import torch
from calibration_data import make_calibration
from card_factory import FIGURE, make_card
from safetensors.torch import save_file

from hf_recurrent.analysis.tables import HALTING_FILE, write_tables
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
        ("- custom_code", "- code", "lacks the tag 'custom_code'"),
        ("value: 0.6666666666666666", "value: .nan", "has nan at model-index"),
        ("value: 0.6666666666666666", "value: null", "has nothing at model-index"),
        ("## Usage", "[More information needed]", "More Information Needed"),
        ("## Usage", "{{ usage }}", "unrendered template marker"),
        ("| 60 |", "| None |", "undefined value"),
        ("**66.7%**", "**nan%**", "undefined value"),
        ("2 CPU cores", "Undefined", "undefined value"),
        ("assets/steps.png", "assets/none.png", "'assets/none.png' is missing"),
        ("assets/steps.png", "../steps.png", "not a relative path"),
        ("assets/steps.png", "https://example.org/steps.png", "not a relative path"),
        ("assets/steps.png", "data:image/png;base64,AA", "not a relative path"),
        ("-m hf_recurrent.train", "/home/me/run.py", "a local path: /home/me"),
        ("`demo`", "`/root/demo.yaml`", "a local path: /root/demo.yaml"),
        (" demo\n", " demo --output_dir=/tmp/out\n", "a local path: /tmp/out"),
        (" demo\n", " ~/demo.yaml\n", "a local path: ~/demo"),
        (" demo\n", " C:\\runs\\demo.yaml\n", r"a local path: C:\runs"),
        (" demo\n", " file:///x\n", "a local path: file://"),
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


def test_a_card_that_cannot_be_published_is_kept(tmp_path, picture):
    card = make_card(plots=[picture], notice="The texts of /home/ann/texts, {{ all }} of them.")
    with pytest.warns(UserWarning, match="not be published as it is: the text contains.*; a local path: /home/ann"):
        write_card(tmp_path, card)
    with pytest.raises(ValueError, match="local path: /home/ann"):
        lint_card(tmp_path)


EXIT = {"exit_criterion": "convergence", "exit_threshold": 0.25, "exit_patience": 1, "num_hidden_layers": 16}


@pytest.mark.parametrize(
    ("shown", "config", "problem"),
    [
        (True, {**EXIT, "exit_calibration": {}}, None),
        (False, {"exit_criterion": "learned"}, None),
        (False, {**EXIT, "exit_calibration": {}}, "not tell the calibrated exit of config.json: run `hf-recurrent"),
        (True, EXIT, "tells of a calibrated exit, and config.json has none"),
        (True, {**EXIT, "exit_threshold": 0.5, "exit_calibration": {}}, "by exit_threshold=0.5 instead of 0.25"),
        (False, EXIT, "by exit_criterion='convergence' instead of 'learned'"),
    ],
)
def test_a_card_tells_the_exit_that_is_stored(tmp_path, picture, shown, config, problem):
    calibration = without_curves(make_calibration()) if shown else None
    write_card(tmp_path, make_card(plots=[picture], calibration=calibration))
    write_json(tmp_path / "config.json", config)
    if problem is None:
        lint_card(tmp_path)
        write_json(tmp_path / "calibration.json", make_calibration(chosen={"criterion": "entropy"}))
        problem = "README.md is false: it does not tell the exit of calibration.json"
    with pytest.raises(ValueError, match=re.escape(problem)):
        lint_card(tmp_path)


def test_a_card_tells_the_size_of_the_weights(tmp_path, picture):
    card = make_card(plots=[picture])
    write_card(tmp_path, card)
    write_json(tmp_path / "config.json", {})
    told = card.training.num_parameters
    save_file({"weight": torch.zeros(told), "exit_probe.weight": torch.zeros(2)}, tmp_path / "model.safetensors")
    lint_card(tmp_path)
    save_file({"weight": torch.zeros(told - 1)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=f"tells of {told:,} parameters, and the weights have {told - 1:,}"):
        lint_card(tmp_path)


def test_a_card_is_of_the_weights_and_the_results_beside_it(tmp_path, picture):
    card = make_card(plots=[picture])
    weights = {"weight": torch.randn(card.training.num_parameters)}
    result = card.results[0]
    write_json(tmp_path / "config.json", {})

    def write(stored, table):
        save_file(stored, tmp_path / "model.safetensors")
        write_tables(tmp_path, HALTING_FILE, {result.split: table})

    write(weights, result.table)
    write_card(tmp_path, replace(card, training=replace(card.training, weights=stored_digest(tmp_path))))
    lint_card(tmp_path)
    write({**weights, "exit_probe.weight": torch.zeros(2)}, result.table)
    lint_card(tmp_path)
    for others in (weights["weight"].bfloat16(), weights["weight"] + 1, -weights["weight"]):
        write({"weight": others}, result.table)
        with pytest.raises(ValueError, match="results are of other weights than those beside it"):
            lint_card(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    lint_card(tmp_path)
    write(weights, {**result.table, "accuracy": 0.5})
    with pytest.raises(ValueError, match=f"halting_stats.json has other results of {result.split}"):
        lint_card(tmp_path)


@pytest.mark.parametrize("content", ["[]", "7"])
def test_a_card_that_is_no_object_is_named(folder, content):
    (folder / "card.json").write_text(content)
    with pytest.raises(ValueError, match=re.escape(f"card.json holds {content}: expected an object; write it")):
        lint_card(folder)


def test_all_problems_at_once(folder):
    edit(folder, "license: apache-2.0", "licence: apache-2.0")
    edit(folder, "assets/steps.png", "assets/none.png")
    with pytest.raises(ValueError, match=r"(?s)'license'.*missing"):
        lint_card(folder)


def test_words_and_addresses_that_only_look_like_defects(folder):
    edit(
        folder,
        "## Usage",
        "None of this and/or that, 3/4 of it, <b>x</b>, see https://example.org/a/b.\n\n## Usage",
    )
    edit(folder, "## Usage", "`{{ marker }}` and `None` in code.\n\n## Usage")
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


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"GIF89a", "it is not a PNG file, or not a whole one (its first bytes are others): draw the figure again"),
        (FIGURE[:-1], "not a whole one (a damaged part 'IEND')"),
        (FIGURE[:20], "not a whole one"),
        (FIGURE[:42] + b"\0" + FIGURE[43:], "not a whole one (a damaged part 'IDAT')"),
        (FIGURE + b"tail", "(4 bytes behind its end)"),
        (FIGURE[:8] + FIGURE[33:], "not a whole one"),
        (b"", "its first bytes are others"),
    ],
)
def test_a_figure_is_a_png_file_and_nothing_else(folder, content, problem):
    (folder / "assets" / "steps.png").write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(problem)) as caught:
        lint_card(folder)
    assert "the image 'assets/steps.png': " in str(caught.value)


def test_a_folder_without_a_card(tmp_path):
    with pytest.raises(ValueError, match=r"no README\.md"):
        lint_card(tmp_path)
