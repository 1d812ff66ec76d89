"""The committed checkpoints' facts and index, on copies of them."""

import json
import re
import shutil

import pytest
from committed_cards import CLASSIFIERS, copy_cards

from hf_recurrent import ARCHITECTURES
from hf_recurrent.hub import write_results
from hf_recurrent.hub.findings import main_trend
from hf_recurrent.hub.gallery import gallery_problems, read_gallery, refresh, render_index
from hf_recurrent.hub.gallery.page import trend_cell
from hf_recurrent.utils import percent, write_json
from support.checkpoints import GUT_LISTOPS, MODEL_CARDS
from support.results import FIGURE, figure, make_results, make_table, with_trend

GALLERY_INDEX = MODEL_CARDS / "README.md"
NAME, OTHER = GUT_LISTOPS.name, "ut-logical-inference"


@pytest.fixture(scope="module")
def pristine_pair(tmp_path_factory):
    return copy_cards(tmp_path_factory.mktemp("pristine") / "cards", [NAME, OTHER])


@pytest.fixture
def pair(pristine_pair, tmp_path):
    """Two of the committed classifiers, which are enough where one of them is broken."""
    return shutil.copytree(pristine_pair, tmp_path / "cards")


def contents(root):
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def edit_json(path, change):
    data = json.loads(path.read_text())
    change(data)
    write_json(path, data)


@pytest.mark.slow
def test_a_refreshed_gallery_is_sound_and_stays_as_it_is(committed, tmp_path):
    root = shutil.copytree(committed, tmp_path / "cards")
    assert gallery_problems(root) == []
    before = contents(root)
    assert refresh(root) == []
    assert contents(root) == before


def test_entries_hold_the_facts_of_their_cards(committed, entries):
    assert [entry.name for entry in entries] == list(CLASSIFIERS)
    assert len(CLASSIFIERS) == 14
    assert [entry.name for entry in entries if entry.main_table["fixed_depth"]] == ["tlb-listops"]
    for entry in entries:
        results = json.loads((committed / entry.name / "results.json").read_text())
        first = next(iter(results["splits"].values()))
        assert entry.architecture == ARCHITECTURES[results["model"]["type"]].prefix
        assert entry.task == f"{results['data']['name']} {results['data']['config']}"
        assert entry.mean_steps == (first["max_depth"] if first["fixed_depth"] else first["steps"]["mean"])


def test_a_fixed_depth_counts_all_its_steps(tmp_path):
    write_json(tmp_path / "fixed" / "results.json", make_results(fixed=True, name="fixed"))
    (entry,) = read_gallery(tmp_path)
    assert entry.mean_steps == 4.0
    assert "| 4 (fixed) |" in render_index([entry])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda results: results.pop("title"), "title"),
        (lambda results: results["model"].update(type="lstm"), "lstm"),
        (lambda results: results["splits"].update(test={}), "accuracy"),
        (lambda results: results["splits"]["test"].pop("slices"), "slices"),
        (lambda results: results.update(splits={}), "it has no results of a run"),
    ],
)
def test_a_broken_card_is_named_and_stops_everything(pair, change, reason):
    edit_json(pair / NAME / "results.json", change)
    (pair / OTHER / "README.md").write_text("edited")
    with pytest.raises(ValueError, match=re.escape(f"{NAME}/results.json cannot be used: ")) as error:
        read_gallery(pair)
    assert reason in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    before = contents(pair)
    with pytest.raises(ValueError, match=NAME):
        refresh(pair)
    assert contents(pair) == before
    problems = gallery_problems(pair)
    assert [line.split(" ")[0] for line in problems] == [f"{NAME}/results.json", f"{OTHER}/README.md"]
    assert reason in problems[0]


@pytest.mark.parametrize("content", ["{", "[]", "7"])
def test_results_that_are_no_object_are_named(pair, content):
    (pair / NAME / "results.json").write_text(content)
    with pytest.raises(ValueError, match=f"^{NAME}/results.json cannot be used"):
        read_gallery(pair)


def test_what_is_no_gallery_is_refused(tmp_path):
    for call in (read_gallery, gallery_problems, refresh):
        with pytest.raises(ValueError, match=r"absent.* is not a folder: pass"):
            call(tmp_path / "absent")
        with pytest.raises(ValueError, match=r"holds no folder with a results\.json: pass"):
            call(tmp_path)
    write_json(tmp_path / "two words" / "results.json", make_results())
    problem = "two words: use letters, digits, '.', '_' and '-' in the name of a checkpoint folder"
    with pytest.raises(ValueError, match=f"^{problem}"):
        read_gallery(tmp_path)
    assert problem in gallery_problems(tmp_path)


def test_the_index_shows_every_checkpoint_and_split(entries):
    text = render_index(entries)
    for entry in entries:
        assert f"| [{entry.name}]({entry.name}) | {entry.architecture} |" in text
        most = entry.main_table["max_depth"]
        mean = f"{entry.mean_steps:.2f} of {most}"
        steps = f"{most} (fixed)" if entry.main_table["fixed_depth"] else mean
        saved = f"{entry.saved['saved']:.1%} at" if entry.saved else "not measured"
        assert f"{steps} | {trend_cell(entry.trend)} | {saved}" in text
        assert f" | {percent(entry.against_fixed)} | {entry.results['model']['parameters']:,} |" in text
        for split, table in entry.results["splits"].items():
            (line,) = re.findall(rf"^\| \[{entry.name}\]\S* \| `{split}` .*$", text, re.MULTILINE)
            slices = [(column, data["rows"]) for column, data in table["slices"].items()]
            # one that is the same in all rows compares nothing
            column, rows = next((item for item in slices if len(item[1]) > 1), slices[0])
            assert f"| **{percent(table['accuracy'])}** |" in line
            assert f"{column}: " + ", ".join(f"{row['value']} {percent(row['accuracy'])}" for row in rows) in line
    assert "`hf-recurrent cards refresh`" in text
    assert "`import hf_recurrent`" in text


def test_time_is_compared_with_that_of_the_fastest_fixed_depth_that_is_as_accurate(entries):
    compared = {}
    for entry in entries:
        if (calibration := entry.results["calibration"]) is None:
            assert entry.against_fixed is None
            continue
        exit_, depths = calibration["calibrated"], calibration["fixed_depths"]
        times = [row["relative_time"] for row in depths if row["accuracy"] >= exit_["accuracy"]]
        compared[entry.name] = exit_["relative_time"] / min(times) if times else None
        assert entry.against_fixed == compared[entry.name]
    assert min(compared.values()) < 1 < max(compared.values())


def test_the_index_opens_with_those_that_think_longer_on_harder_input(tmp_path):
    cards = {"a-shrinks": (-0.9, "gut"), "b-grows": (0.5, "gut"), "c-grows-most": (0.9, "gut"), "d-grows": (0.8, "ut")}
    for name, (spearman, family) in cards.items():
        drawn, splits = figure("difficulty", column="depth"), {"test": with_trend(make_table(), spearman)}
        (tmp_path / name / "assets").mkdir(parents=True)
        (tmp_path / name / drawn["path"]).write_bytes(FIGURE)
        write_results(tmp_path / name, make_results(name=name, model={"type": family}, splits=splits, figures=[drawn]))
    text = render_index(read_gallery(tmp_path))
    opening, shown = text.split("## What each of them shows")
    order = ["c-grows-most", "d-grows", "b-grows", "a-shrinks"]
    assert re.findall(r"^- \[([^\]]+)\]", shown, re.MULTILINE) == order
    assert re.findall(r"\]\((\S+)/assets/steps.png\)", opening) == ["c-grows-most", "d-grows"]
    (line,) = (line for line in shown.splitlines() if line.startswith("- [c-grows-most]"))
    assert "Accuracy 66.7% on `test` of listops original (as in training), where the best constant answer" in line
    assert "Does it think longer on harder input? **Yes**: steps grow with `depth` on `test`." in line


def index_rows(text, table):
    """Column -> cell, for each row of the first or second table of an index."""
    lines = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)[table].splitlines()
    names, _, *rows = ([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines)
    return [dict(zip(names, row, strict=True)) for row in rows]


def test_the_index_says_what_is_not_above_the_majority_class(tmp_path):
    # the majority class has a third of 60 examples, so that two standard errors reach to 45.5%
    low, high = make_table(accuracy=0.45), make_table(accuracy=0.46)
    write_json(tmp_path / "one" / "results.json", make_results(splits={"low": low, "high": high}))
    write_json(tmp_path / "two" / "results.json", make_results(splits={"high": high, "low": low}))
    text = render_index(read_gallery(tmp_path))
    # the second thinks longer on harder input, and comes first
    assert [row["Above majority"] for row in index_rows(text, 0)] == ["yes", "**no**"]
    assert [row["Above majority"] for row in index_rows(text, 1)] == ["yes", "**no**", "**no**", "yes"]
    assert "two standard errors, 2 √(b (1 \u2212 b) / n)" in text
    shown = [line for line in text.splitlines() if line.startswith("- [")]
    assert len(shown) == 2
    assert all(line.endswith(". No better than the best constant answer on `low`.") for line in shown)


def test_the_index_names_the_splits_of_which_it_tells():
    shown = re.findall(r"^- \[([^\]]+)\](.*)$", GALLERY_INDEX.read_text(), re.MULTILINE)
    line = dict(shown)["ndr-ctl-forward"]
    assert "Accuracy 100.0% on `test` of compositional_table_lookup forward (as in training)" in line
    assert line.endswith(" No better than the best constant answer on `test_new_primitive_1`.")


def test_the_index_says_how_steps_follow_the_main_difficulty(committed, entries, tmp_path):
    write_json(tmp_path / "fixed" / "results.json", make_results(fixed=True))
    write_json(tmp_path / "grows" / "results.json", make_results())
    length = json.loads((committed / NAME / "results.json").read_text())["splits"]["test"]["slices"]["length"]
    numbers = (length["spearman"], *(length["rows"][place]["steps"]["mean"] for place in (0, -1)))
    text = render_index([*entries, *read_gallery(tmp_path)])
    for table in (0, 1):
        found = {}
        for row in index_rows(text, table):
            found.setdefault(row["Checkpoint"].partition("]")[0][1:], row["Steps vs difficulty"])
        assert (found["fixed"], found["grows"]) == ("fixed depth", "grow with depth: \u03c1 = +1.00, 1.00 → 4.00")
        assert found[NAME] == "shrink with length: \u03c1 = {:.2f}, {:.2f} → {:.2f}".format(*numbers)


@pytest.mark.parametrize(
    ("spearman", "examples", "words"),
    [
        (0.5, 60, "grow with depth: \u03c1 = +0.50, 1.00 → 4.00"),
        (-0.5, 60, "shrink with depth: \u03c1 = -0.50, 1.00 → 4.00"),
        (0.05, 60, "unclear with depth: \u03c1 = +0.05, 1.00 → 4.00"),
        (0.05, 10_000, "flat with depth: \u03c1 = +0.05, 1.00 → 4.00"),
        (None, 60, "same steps at every depth: 2.50"),
        (None, 2, "not measured"),
    ],
)
def test_a_trend_of_steps_in_words(spearman, examples, words):
    table = with_trend(make_table(n=examples), spearman)
    assert trend_cell(main_trend("test", table)) == words
    del table["slices"]["depth"]
    assert trend_cell(main_trend("test", table)) == "not measured"


def test_every_index_row_has_as_many_cells_as_its_header(entries, tmp_path):
    write_json(tmp_path / "plain" / "results.json", make_results(name="plain"))
    tables = re.findall(r"(?:^\|.*\n)+", render_index([*entries, *read_gallery(tmp_path)]), re.MULTILINE)
    assert len(tables) == 2
    for table in tables:
        assert len({len(re.split(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
