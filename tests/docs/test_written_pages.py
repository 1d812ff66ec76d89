"""README and the pages of docs/, as they are written: their size, links, commands and numbers."""

import ast
import json
import re
import shlex

import pytest
import typer
from written import NAMES, PAGES, README, ROOT, anchors, blocks, links

from hf_recurrent.analysis.risk_control import fewest_examples
from hf_recurrent.cli.app import app
from hf_recurrent.hub import read_results
from hf_recurrent.hub.findings import best_fixed_depth
from hf_recurrent.recipes import recipe_files
from hf_recurrent.tasks import TASKS
from hf_recurrent.training.recipes import defaults_of
from hf_recurrent.training.stages import argument_types

every_page = pytest.mark.parametrize("page", PAGES, ids=NAMES)

COMMANDS = typer.main.get_command(app)
TRAIN_FLAGS = set().union(*(defaults_of(argument_types(task)) for task in TASKS)) | {"help", "help_all"}
TABLE_ROW = re.compile(r"^\|.*\|$", re.MULTILINE)


# drawn from stored results, or lists of what was tried
LONG_PAGES = {"docs/performance.md", "docs/gpu_report.md", "docs/negative_results.md"}


@every_page
def test_pages_are_short(page):
    """A page with one purpose is read in one go."""
    most = 150 if page == README else 260
    name = page.relative_to(ROOT).as_posix()
    assert (len(page.read_text().splitlines()) <= most) == (name not in LONG_PAGES)


@every_page
def test_links_lead_somewhere(page):
    text = page.read_text()
    for target in links(text):
        path, _, anchor = target.partition("#")
        found = page if not path else (page.parent / path).resolve()
        if (ROOT / "docs/reference") in found.parents:  # made when the site is built, which checks these
            continue
        assert found.exists(), target
        if anchor:
            assert anchor in anchors(found.read_text()), target


@every_page
def test_blocks_say_their_language_and_python_is_python(page):
    for block in blocks(page.read_text()):
        assert block.language in {"python", "sh", "text", "yaml", "json", "toml"}, block.line
        if block.language == "python":
            ast.parse(block.code)


def commands(page) -> list[tuple[int, list[str]]]:
    """The words of each command line on a page."""
    found = []
    for block in blocks(page.read_text()):
        if block.language == "sh":
            lines = re.sub(r"\\\n\s*", "", block.code).splitlines()
            found += [(block.line, shlex.split(line, comments=True)) for line in lines]
    return [(line, words) for line, words in found if words]


def check_command(words: list[str]) -> None:
    """Refuse words after `hf-recurrent` that name no command, option, recipe or committed checkpoint."""
    command = COMMANDS
    while words and (found := getattr(command, "commands", {}).get(words[0])):
        command, words = found, words[1:]
    assert not getattr(command, "commands", None) or all(word.startswith("-") for word in words), words
    flags = [word.partition("=")[0] for word in words if word.startswith("--")]
    if command.name == "train":
        assert {flag[2:].replace("-", "_") for flag in flags} <= TRAIN_FLAGS
        if words and not words[0].startswith("-"):
            assert words[0] in recipe_files() or words[0].endswith(".yaml")
    else:
        known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        # each flag may be spelled with hyphens or underscores
        assert {flag.replace("-", "_") for flag in flags} <= {option.replace("-", "_") for option in known}
    for word in words:
        assert not word.startswith("model_cards/") or (ROOT / word).is_dir(), word


@every_page
def test_commands_are_there(page):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line, words in commands(page):
        match words:
            case ["hf-recurrent", *rest]:
                check_command(rest)
            case ["make", target, *_]:
                assert target in targets, (line, target)
            case ["python", "-m", "perf" | "gpu" as package, name, *_] if not name.startswith("-"):
                assert (ROOT / package / f"{name}.py").is_file(), (line, name)
            case [program, *rest] if program in {"python", "accelerate", "torchrun"}:
                scripts = [word for word in rest if word.endswith(".py") and not word.startswith("-")]
                assert all((ROOT / script).is_file() for script in scripts), (line, scripts)


@pytest.mark.parametrize(
    "words",
    ["train no_such_recipe", "train --no_such_flag 1", "calibrat x", "predict x --fil y", "explain model_cards/x"],
)
def test_a_wrong_command_is_found(words):
    with pytest.raises(AssertionError):
        check_command(words.split())


def numbers(value) -> set[float]:
    """All numbers in data of JSON, shares as percentages, too."""
    if isinstance(value, dict):
        return set().union(*map(numbers, value.values()))
    if isinstance(value, list):
        return set().union(*map(numbers, value))
    return {value, 100 * value} if isinstance(value, float | int) and not isinstance(value, bool) else set()


def stored_numbers(name: str) -> set[float]:
    folder = ROOT / "model_cards" / name
    written = re.findall(r"\d+(?:\.\d+)?", (folder / "README.md").read_text().replace(",", ""))
    return set(map(float, written)) | numbers([json.loads(file.read_text()) for file in folder.glob("*.json")])


def told_numbers(page) -> list[tuple[str, list[str]]]:
    """Checkpoints, and the percentages in rows of tables that link to the card of this one alone."""
    found = []
    for row in TABLE_ROW.findall(page.read_text()):
        names = set(re.findall(r"model_cards/([\w-]+)(?=[/)])", row))
        if len(names) == 1:
            found.append((*names, re.findall(r"(\d+\.\d+)%", row)))
    return found


@every_page
def test_rows_about_a_checkpoint_have_its_numbers(page):
    for name, told in told_numbers(page):
        stored = stored_numbers(name)
        for number in told:
            digits = len(number.partition(".")[2])
            assert any(round(value, digits) == float(number) for value in stored), (name, number)


def test_modules_that_developers_are_sent_to_are_there():
    """Paths in code, from the root or from a folder that the sentence is about; a `<name>` stands for many."""
    sources = [ROOT / name for name in ("src", "tests", "doc_parts", "perf", "gpu", "training", "examples", "docs")]
    there = [f"/{file.relative_to(ROOT)}" for folder in sources for file in folder.rglob("*.py")]
    there += [f"/{file.name}" for file in ROOT.glob("*.py")]
    pages = sorted((ROOT / "docs/develop").glob("*.md"))
    named = [(page.name, path) for page in pages for path in re.findall(r"`([\w/]+\.py)`", page.read_text())]
    assert len(named) > 20
    assert [(page, path) for page, path in named if not any(file.endswith(f"/{path}") for file in there)] == []


def test_there_is_something_to_check():
    """What tests look for on every page need not be on each, but on some."""
    assert sum(len(links(page.read_text())) for page in PAGES) > 200
    assert sum("hf-recurrent" in words for page in PAGES for _, words in commands(page)) > 50
    assert sum(len(told) for page in PAGES for _, told in told_numbers(page)) > 20


def test_the_table_of_the_readme_has_the_numbers_of_its_card():
    calibration = read_results(ROOT / "model_cards/ndr-ctl-forward")["calibration"]
    found = calibration["tests"]["all tested splits"]
    full = f"{calibration['max_depth']} | {found['full_accuracy']:.2%} | 100.0%"
    early = f"{found['mean_depth']:.2f} | {found['accuracy']:.1%} | {found['relative_time']:.1%}"
    rows = TABLE_ROW.findall(README.read_text())
    told = {"6,088 examples": "mean steps", "full depth": full, "early exit": early}
    for start, cells in told.items():
        (row,) = [row for row in rows if row.startswith(f"| {start}")]
        assert f"| {cells} |" in row
    assert found["n"] == 6088
    right = calibration["full_depth"]["accuracy"]
    fixed = next(row for row in calibration["fixed_depths"] if row["accuracy"] >= right)
    assert fixed["max_depth"] == 6
    assert (
        f"Six fixed steps are as accurate on one to five functions and take {fixed['relative_time']:.1%}"
        in " ".join(README.read_text().split())
    )


def test_the_number_of_cards_where_a_fixed_depth_does_as_well():
    calibrations = [read_results(path.parent)["calibration"] for path in ROOT.glob("model_cards/*/results.json")]
    exits = {id(found): (best_fixed_depth(found), found["calibrated"]) for found in calibrations if found}
    compared = len(exits)
    equal = sum(bool(best) and best["relative_time"] <= own["relative_time"] for best, own in exits.values())
    for page in ("README.md", "docs/guides/speed.md", "docs/architectures/which.md"):
        assert f"{equal} of the {compared} [cards]" in " ".join((ROOT / page).read_text().split())


def test_the_cost_of_halting_is_as_stored():
    """Each row of the table in the guide is a row of docs/performance.md, which is drawn from stored results."""
    drawn = (ROOT / "docs/performance.md").read_text()
    table = re.findall(r"^\| (ut|gut|ndr|sut) \| (.*) \|$", (ROOT / "docs/guides/speed.md").read_text(), re.MULTILINE)
    assert len(table) == 8
    for model, row in table:
        section = drawn.partition(f"### Halting of {model}, ")[2].partition("\n###")[0]
        width, share, compaction, masking, over_ideal = row.split(" | ")
        assert re.search(
            rf"^\| {width} \| {share} \| {compaction} \| {masking} \| {over_ideal} \|", section, re.MULTILINE
        ), row


def test_the_cost_of_many_gpus_is_as_stored():
    """Each row of numbers of the guide is in docs/performance.md, which is drawn from stored results."""
    drawn = (ROOT / "docs/performance.md").read_text().partition("\n## scaling\n")[2]
    rows = re.findall(r"^\|.*\d \|$", (ROOT / "docs/guides/scale.md").read_text(), re.MULTILINE)
    assert len(rows) == 10
    for row in rows:
        numbers = re.findall(r" ([\d.,]+)(?= \|)", row)
        assert len(numbers) >= 3
        if "model_cards" in row:
            (card,) = re.findall(r"\[([\w-]+)\]", row)
            mean, of_one, of_all, slowest = numbers
            assert re.search(rf"^\| {card} \| 1 \| \S+ \| \S+ \| {of_one} \|", drawn, re.MULTILINE), row
            assert re.search(rf"^\| {card} \| 64 \| {mean} \| {slowest} \| {of_all} \|", drawn, re.MULTILINE), row
        else:
            assert f" | {' | '.join(numbers)} |" in drawn, row


def test_the_fewest_examples_to_calibrate_on_are_as_computed():
    page = (ROOT / "docs/get_started/calibrate.md").read_text()
    rows = re.findall(r"^\| (0\.\d+) \| (\d+) \| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    assert len(rows) == 3
    for tolerance, *told in rows:
        # the confidence is 0.95, which several families share
        computed = [fewest_examples(float(tolerance), 0.05 / families) for families in (1, 6, 7)]
        assert list(map(int, told)) == computed


def test_the_navigation_shows_no_checkpoints_of_the_tests():
    assert "tests/" not in (ROOT / "docs" / ".nav.yml").read_text(encoding="utf-8")
