"""`benchmark list` and `show` explain the words of a benchmark to a newcomer."""

import json
import re
import shlex

import pytest

from hf_recurrent.benchmarks import benchmark_info, list_benchmarks
from hf_recurrent.benchmarks.export.settings import format_value

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("wide")]  # generates and reads whole data sets


def cells(line):
    """The cells of a row of a drawn table; no cell of another line."""
    return [cell.strip() for cell in line.split("│")[1:-1]]


@pytest.mark.parametrize("name", list_benchmarks())
def test_list_of_a_benchmark_explains_its_parameters(succeed, name):
    info = benchmark_info(name)
    out, _ = succeed("benchmark", "list", name)
    assert info.description in out
    tables, current = {}, None
    for line in out.splitlines():
        current = next((config for config in info.configs if line.startswith((f"{config}:", f"{config} "))), current)
        if row := cells(line):
            tables.setdefault(current, []).append(row)
    assert tables == {
        config: [[known, format_value(value), info.parameter_meanings[known]] for known, value in defaults.items()]
        for config, defaults in info.parameters.items()
    }
    assert f"{info.default_config} (default): {info.configs[info.default_config]}" in out
    assert out.count("(default)") == 1


def test_a_list_is_spelled_as_a_shell_takes_it(run, succeed, refuse):
    out = run("benchmark", "list", "flip_flop")[1]
    assert "test_p_ignore" in next(line for line in out.splitlines() if "│ [0.1, 0.8, 0.98] " in line)
    words = shlex.split(re.search(r"`(--benchmark_params .*)`", out)[1])
    assert words == ["--benchmark_params", "{test_p_ignore: [0.1, 0.8, 0.98]}"]
    show = ("benchmark", "show", "flip_flop", "-n", "1", "--benchmark_params")
    assert "in whole percent, such as [0.3,0.9] (" in refuse(*show, "{train_length: 16, test_p_ignore: '0.3,0.9'}")
    succeed(*show, "{train_length: 16, test_p_ignore: [0.3, 0.9]}")


def glossary(out):
    """Names and their meanings, from between the labels and the examples."""
    lines = out.split("labels: ")[1].split("\n\n")[0].splitlines()[1:]
    return dict(re.fullmatch(r" *(\S+)  (.*\S) *", line).groups() for line in lines)


def write_sample(folder, name):
    """One row in the form of the authors of CFQ, or two parallel texts."""
    if name == "wmt14_en_de":
        (folder / "train.en").write_text("A cat.\n")
        (folder / "train.de").write_text("Eine Katze.\n")
        return folder
    query = "SELECT count(*) WHERE {\nM0 ns:film.film.edited_by M1\n}"
    item = {"questionPatternModEntities": "Did M1 edit M0", "sparqlPatternModEntities": query}
    (folder / "splits").mkdir()
    (folder / "dataset.json").write_text(json.dumps([item]))
    (folder / "splits/mcd1.json").write_text(json.dumps({"trainIdxs": [0], "devIdxs": [], "testIdxs": []}))
    return folder


@pytest.mark.parametrize("name", list_benchmarks())
def test_show_explains_labels_difficulty_and_parse(succeed, name, tmp_path):
    info = benchmark_info(name)
    words = ("benchmark", "show", name, "-n", "1")
    if name in ("cfq", "wmt14_en_de"):
        # rows that are on the Hub, or in files
        words += ("--data-dir", write_sample(tmp_path, name))
    out, _ = succeed(*words)
    assert ("a target is to be written" in out) == bool(info.target_column)
    labels = dict(zip(info.label_names, info.label_meanings or (), strict=False))
    columns = {column: info.column_meanings[column] for column in info.slice_columns}
    parse = {info.view: info.parse_meaning} if info.parse_meaning else {}
    assert bool(parse) == (info.synthetic or info.modality == "pixels")
    assert glossary(out) == {**labels, **columns, **parse}
    # an example says in its left column what it shows
    shown = (*parse, "label" if info.label_names else "answer") if parse else info.name_columns
    lines = [line.strip() for line in out.split("\n\n", 1)[1].splitlines()]
    assert all(any(line.startswith(f"{word}  ") for line in lines) for word in shown)
    assert parse or not any(line.startswith(("parse  ", "answer  ", "label  ")) for line in lines)
