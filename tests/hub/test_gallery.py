"""The committed checkpoints' facts and index, on copies of them."""

import json
import re
import shutil
from dataclasses import replace

import pytest
from card_factory import FIGURE, make_card, make_table
from committed_cards import CLASSIFIERS, copy_cards

from hf_recurrent import ARCHITECTURES
from hf_recurrent.files import write_json
from hf_recurrent.hub.card import Plot, SplitResult, write_card
from hf_recurrent.hub.findings import main_trend
from hf_recurrent.hub.gallery import gallery_problems, read_gallery, refresh, render_index
from hf_recurrent.hub.phrases import phrase
from hf_recurrent.templating import percent
from support.checkpoints import GUT_LISTOPS, MODEL_CARDS

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
        card = json.loads((committed / entry.name / "card.json").read_text())
        first = card["results"][0]
        assert entry.architecture == ARCHITECTURES[card["family"]].prefix
        assert entry.task == f"{card['benchmark']['name']} {card['benchmark']['config']}"
        fixed = first["table"]["fixed_depth"]
        assert entry.mean_steps == (card["max_depth"] if fixed else first["table"]["steps"]["mean"])
        assert entry.accuracy == {result["split"]: result["table"]["accuracy"] for result in card["results"]}


def test_a_fixed_depth_counts_all_its_steps(tmp_path):
    write_json(tmp_path / "fixed" / "card.json", make_card(fixed=True, repo_id="fixed").to_dict())
    (entry,) = read_gallery(tmp_path)
    assert entry.mean_steps == 4.0
    assert "| 4 (fixed) |" in render_index([entry])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda card: card.pop("claim"), "claim"),
        (lambda card: card.update(colour="red"), "colour"),
        (lambda card: card.update(family="lstm"), "family is 'lstm': expected one of"),
        (lambda card: card["results"][0].update(table={}), "fixed_depth"),
        (lambda card: card["results"][0]["table"].pop("slices"), "slices"),
    ],
)
def test_a_broken_card_is_named_and_stops_everything(pair, change, reason):
    edit_json(pair / NAME / "card.json", change)
    (pair / OTHER / "README.md").write_text("edited")
    with pytest.raises(ValueError, match=re.escape(f"{NAME}/card.json is not the data of a card: ")) as error:
        read_gallery(pair)
    assert reason in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    before = contents(pair)
    with pytest.raises(ValueError, match=NAME):
        refresh(pair)
    assert contents(pair) == before
    problems = gallery_problems(pair)
    assert [line.split(" ")[0] for line in problems] == [f"{NAME}/card.json", f"{OTHER}/README.md"]
    assert reason in problems[0]


@pytest.mark.parametrize("content", ["{", "[]", "7"])
def test_card_data_that_is_no_object_is_named(pair, content):
    (pair / NAME / "card.json").write_text(content)
    with pytest.raises(ValueError, match=f"^{NAME}/card.json is not the data of a card"):
        read_gallery(pair)


def test_what_is_no_gallery_is_refused(tmp_path):
    for call in (read_gallery, gallery_problems, refresh):
        with pytest.raises(ValueError, match=r"absent.* is not a folder: pass"):
            call(tmp_path / "absent")
        with pytest.raises(ValueError, match=r"holds no folder with a card\.json: pass"):
            call(tmp_path)
    (tmp_path / "two words").mkdir()
    write_json(tmp_path / "two words" / "card.json", make_card().to_dict())
    with pytest.raises(ValueError, match=r"^two words: use letters"):
        read_gallery(tmp_path)
    problem = "two words: use letters, digits, '.', '_' and '-' in the name of a checkpoint folder"
    assert problem in gallery_problems(tmp_path)


def test_the_index_shows_every_checkpoint_and_split(entries):
    text = render_index(entries)
    for entry in entries:
        assert f"| [{entry.name}]({entry.name}) | {entry.architecture} |" in text
        mean = f"{entry.mean_steps:.2f} of {entry.card.max_depth}"
        steps = f"{entry.card.max_depth} (fixed)" if entry.main_table["fixed_depth"] else mean
        saved = f"{entry.saved['saved']:.1%} at" if entry.saved else "not measured"
        assert f"{steps} | {phrase('trend_cell', entry.trend)} | {saved}" in text
        assert f" | {entry.card.training.num_parameters:,} |" in text
        for result in entry.card.results:
            split, accuracy = result.split, entry.accuracy[result.split]
            (line,) = re.findall(rf"^\| \[{entry.name}\]\S* \| `{split}` .*$", text, re.MULTILINE)
            slices = [(column, data["rows"]) for column, data in result.table["slices"].items()]
            # one that is the same in all rows compares nothing
            column, rows = next((item for item in slices if len(item[1]) > 1), slices[0])
            assert f"| **{percent(accuracy)}** |" in line
            assert f"{column}: " + ", ".join(f"{row['value']} {percent(row['accuracy'])}" for row in rows) in line
    assert "`hf-recurrent cards refresh`" in text
    assert "`import hf_recurrent`" in text


def test_the_index_opens_with_those_that_think_longer_on_harder_input(tmp_path):
    cards = {"a-shrinks": (-0.9, "gut"), "b-grows": (0.5, "gut"), "c-grows-most": (0.9, "gut"), "d-grows": (0.8, "ut")}
    for name, (spearman, family) in cards.items():
        card = make_card(repo_id=name, family=family)
        table = json.loads(json.dumps(card.results[0].table))
        table["slices"]["depth"]["spearman"] = spearman
        plot = Plot("difficulty", "assets/steps.png", "depth", "test")
        (tmp_path / name / "assets").mkdir(parents=True)
        (tmp_path / name / plot.path).write_bytes(FIGURE)
        write_card(tmp_path / name, replace(card, results=[SplitResult("test", table)], plots=[plot]))
    text = render_index(read_gallery(tmp_path))
    opening, shown = text.split("## What each of them shows")
    order = ["c-grows-most", "d-grows", "b-grows", "a-shrinks"]
    assert re.findall(r"^- \[([^\]]+)\]", shown, re.MULTILINE) == order
    assert re.findall(r"\]\((\S+)/assets/steps.png\)", opening) == ["c-grows-most", "d-grows"]
    (line,) = (line for line in shown.splitlines() if line.startswith("- [c-grows-most]"))
    assert "Accuracy 66.7% on 60 examples of listops original, where the best constant answer gives 33.3%" in line
    assert "steps **grow** strongly with depth (Spearman +0.90): 1.00 on average at depth 1, 4.00 at 4." in line


def index_rows(text, table):
    """Column -> cell, for each row of the first or second table of an index."""
    lines = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)[table].splitlines()
    names, _, *rows = ([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines)
    return [dict(zip(names, row, strict=True)) for row in rows]


def test_the_index_says_what_is_not_above_the_majority_class(tmp_path):
    # the majority class has a third of 60 examples, so that two standard errors reach to 45.5%
    first, second = (SplitResult(name, make_table() | {"accuracy": x}) for name, x in (("low", 0.45), ("high", 0.46)))
    write_json(tmp_path / "one" / "card.json", make_card(results=[first, second]).to_dict())
    write_json(tmp_path / "two" / "card.json", make_card(results=[second, first]).to_dict())
    text = render_index(read_gallery(tmp_path))
    # the second thinks longer on harder input, and comes first
    assert [row["Above majority"] for row in index_rows(text, 0)] == ["yes", "**no**"]
    assert [row["Above majority"] for row in index_rows(text, 1)] == ["yes", "**no**", "**no**", "yes"]
    assert "two standard errors, 2 √(b (1 \u2212 b) / n)" in text
    shown = [line for line in text.splitlines() if line.startswith("- [")]
    assert all(line.endswith(". No better than the best constant answer on `low`.") for line in shown)


def test_the_index_names_the_splits_of_which_it_tells():
    shown = re.findall(r"^- \[([^\]]+)\](.*)$", GALLERY_INDEX.read_text(), re.MULTILINE)
    line = dict(shown)["ndr-ctl-forward"]
    assert "of 6,088 examples of `test_basic`, `test`, `validation_ood` and `test_ood` it has 100.0% right" in line
    assert line.endswith(" No better than the best constant answer on `test_new_primitive_1`.")
    assert "; of 2,000 examples of `test` it has 66.9% right, and steps" in dict(shown)["gut-review-sentences"]


def test_the_index_says_how_steps_follow_the_main_difficulty(committed, entries, tmp_path):
    write_json(tmp_path / "fixed" / "card.json", make_card(fixed=True).to_dict())
    write_json(tmp_path / "grows" / "card.json", make_card().to_dict())
    length = json.loads((committed / NAME / "card.json").read_text())["results"][0]["table"]["slices"]["length"]
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
    table = make_table() | {"n": examples}
    table["slices"]["depth"]["spearman"] = spearman
    assert phrase("trend_cell", main_trend(table)) == words
    del table["slices"]["depth"]
    assert phrase("trend_cell", main_trend(table)) == "not measured"


def test_every_index_row_has_as_many_cells_as_its_header(entries, tmp_path):
    write_json(tmp_path / "plain" / "card.json", make_card(repo_id="plain").to_dict())
    tables = re.findall(r"(?:^\|.*\n)+", render_index([*entries, *read_gallery(tmp_path)]), re.MULTILINE)
    assert len(tables) == 2
    for table in tables:
        assert len({len(re.split(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
