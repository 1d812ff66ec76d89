"""The browsable page as text: what it says, and that it loads and runs nothing but itself."""

import base64
import os
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from card_factory import make_card, make_table

from hf_recurrent.files import write_json
from hf_recurrent.hub.card import Paper, Plot, SplitResult
from hf_recurrent.hub.gallery import build_page
from hf_recurrent.hub.gallery.markdown import (
    DEPTH_SECTION,
    depth_parts,
    figures,
    halting_sentences,
    inline_markdown,
    section,
    snippet,
)

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;"
# attributes by which an element can load or run something
LOADING = {"src", "srcset", "href", "xlink:href", "data", "poster", "background", "action", "formaction", "style"}


class Page(HTMLParser):
    """Every element of a page as (tag, attributes), and the text inside of some."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self.path = [], {}, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.path.append(tag)

    def handle_endtag(self, tag):
        while self.path and self.path.pop() != tag:
            pass

    def handle_data(self, data):
        self.texts.setdefault(self.path[-1] if self.path else "", []).append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def text(committed):
    return build_page(committed, committed.parent / "page.html").read_text(encoding="utf-8")


def page_of(tmp_path, **changes):
    """The page of a gallery that holds only `make_card(**changes)`."""
    write_json(tmp_path / "one" / "card.json", make_card(**changes).to_dict())
    return build_page(tmp_path, tmp_path / "page.html").read_text(encoding="utf-8")


def test_nothing_is_loaded_from_anywhere(text):
    page = Page(text)
    found = [(tag, name, value) for tag, attributes in page.elements for name, value in attributes.items()]
    loading = [item for item in found if item[1] in LOADING]
    assert {(tag, name) for tag, name, _ in loading} == {("img", "src"), ("a", "href"), ("link", "href")}
    assert all(value.startswith("data:image/png;base64,") for tag, _, value in loading if tag == "img")
    assert [value for tag, _, value in loading if tag == "link"] == ["data:,"]
    # a link to a paper loads nothing until it is followed
    papers = {f"https://arxiv.org/abs/{number}" for number in ("2402.00976", "2110.07732", "1909.11942", "2310.07096")}
    assert {value for tag, _, value in loading if tag == "a"} == papers
    assert [item for item in found if item[1].startswith("on")] == []
    assert {tag for tag, _ in page.elements}.isdisjoint({"iframe", "object", "embed", "base", "form", "video", "audio"})
    (style,) = page.texts["style"]
    assert "url(" not in style
    assert "@import" not in style


def test_the_same_gallery_gives_the_same_bytes(committed, text, tmp_path):
    copy = shutil.copytree(committed, tmp_path / "elsewhere")
    for path in copy.rglob("*"):
        os.utime(path, (0, 0))
    assert build_page(copy, tmp_path / "page.html").read_text(encoding="utf-8") == text


def test_names_inside_the_page_are_unique(text):
    names = [attributes["id"] for _, attributes in Page(text).elements if "id" in attributes]
    assert len(set(names)) == len(names)
    referred = re.findall(r'(?:for|aria-controls|aria-describedby)="([^"]+)"', text)
    assert set(referred) <= set(names)
    assert len(referred) > 3


def test_the_cards_own_words_numbers_and_figures(entries, text):
    page = Page(text)
    pictures = [image["src"].partition(",")[2] for image in page.all("img")]
    shown = [entry.folder / plot.path for entry in entries for plot in entry.card.plots]
    assert sorted(map(base64.b64decode, pictures)) == sorted(path.read_bytes() for path in shown)
    assert all(image["alt"] and int(image["width"]) > 99 and int(image["height"]) > 99 for image in page.all("img"))
    for entry in entries:
        assert f'<tbody class="checkpoint" id="{entry.name}">' in text
        assert str(inline_markdown(entry.card.claim)) in text
        assert str(inline_markdown(entry.card.notice)) in text
        for result in entry.card.results:
            sentences = halting_sentences(entry.readme, result.split)
            # of the first split one of the halting mass, and of the steps one for each direction
            numeric = [data["rows"] for data in result.table["slices"].values() if data["numeric"]]
            least = any(len(rows) > 1 for rows in numeric)
            assert sentences == [] if result.table["fixed_depth"] else least <= len(sentences) <= 1 + len(numeric)
            assert all(str(inline_markdown(sentence)) in text for sentence in sentences)
            for data in result.table["slices"].values():
                for row in data["rows"]:
                    cells = f'<td class="number">{100 * row["accuracy"]:.1f}%</td>'
                    assert f'<th scope="row">{row["value"]}</th><td class="number">{row["n"]:,}</td>{cells}' in text


def test_text_of_a_card_is_text(tmp_path):
    plain = Page(page_of(tmp_path / "plain"))
    card = make_card()
    hostile = Page(
        page_of(
            tmp_path / "hostile",
            model_name=HOSTILE,
            claim=f"{HOSTILE} and `{HOSTILE}` and **{HOSTILE}**",
            notice=HOSTILE,
            paper=Paper(HOSTILE, "javascript:alert(3)", "@article{paper}"),
            benchmark=replace(card.benchmark, config=HOSTILE, version=HOSTILE),
            training=replace(card.training, command=HOSTILE, hardware=HOSTILE, differences_from_paper=[HOSTILE]),
            results=[replace(card.results[0], split=HOSTILE)],
            example=replace(card.example, text=HOSTILE),
            limitations=[HOSTILE],
            date=HOSTILE,
        )
    )
    assert len(hostile.all("script")) == len(plain.all("script")) == 1
    assert hostile.texts["script"] == plain.texts["script"]
    assert hostile.all("img") == []
    assert [link for link in hostile.all("a")] == []
    assert sum("alert(1)" in part for parts in hostile.texts.values() for part in parts) > 10


def test_inline_markdown():
    assert inline_markdown("a `b *c*` **d** *e* f*g h* i") == (
        "a <code>b *c*</code> <strong>d</strong> <em>e</em> f<em>g h</em> i"
    )
    assert inline_markdown("2 * 3 * 4 `x") == "2 * 3 * 4 `x"
    assert inline_markdown("<b> `<i>`") == "&lt;b&gt; <code>&lt;i&gt;</code>"


def test_a_fixed_depth_and_a_card_without_figures_say_so(tmp_path):
    text = page_of(tmp_path, fixed=True)
    assert "it runs all 4 steps on every input, so there is no halting to show." in text
    assert "This card has no figures." in text
    assert '<div class="figures">' not in text
    assert '4 <span class="of">fixed</span>' in text
    assert "95th percentile" in page_of(tmp_path / "halting")
    assert "no halting to show" not in page_of(tmp_path / "halting")


@pytest.mark.parametrize(("main", "other", "marked"), [(0.45, 0.46, (1, 1)), (0.46, 0.45, (0, 1)), (0.46, 0.9, (0, 0))])
def test_an_accuracy_not_above_the_majority_class_is_marked(tmp_path, main, other, marked):
    # the majority class has a third of 60 examples, so that two standard errors reach to 45.5%
    splits = {"test": main, "deep": other}
    results = [SplitResult(name, make_table() | {"accuracy": value}) for name, value in splits.items()]
    text = page_of(tmp_path, results=results)
    note = '<span class="caution">not above majority</span>'
    summary, details = text.split('<tr class="details"')
    assert (summary.count(note), details.count(note)) == marked
    for split, value in splits.items():
        (row,) = re.findall(rf"<tr>.*<code>{split}</code>.*</tr>", text)
        assert f"<strong>{100 * value:.1f}%</strong>{note if value < 0.455 else ''}</td>" in row
    assert "accuracy ≤ b + 2 √(b (1 \u2212 b) / n)" in text


def test_ponder_cost_and_forced_halts_are_shown_and_defined_once(entries, text):
    for title in ("Ponder cost", "Forced halts"):
        assert text.count(f"<dt>{title}</dt>") == 1
        # a column of each checkpoint's results
        assert text.count(f'<th scope="col" class="number">{title}</th>') == len(entries)
    for entry in entries:
        for result in entry.card.results:
            cost, forced = result.table["ponder_cost"], result.table["forced_halt_rate"]
            values = ("\u2013", "\u2013") if result.table["fixed_depth"] else (f"{cost:.2f}", f"{100 * forced:.1f}%")
            cells = "".join(f'<td class="number">{value}</td>' for value in values) + "</tr>"
            found = re.findall(rf"<tr>.*<code>{result.split}</code>.*</tr>", text)
            assert any(row.endswith(cells) for row in found)


def test_usage_is_the_cards_program(entries):
    for entry in entries:
        code = snippet(entry.readme)
        compile(code, "snippet", "exec")
        assert code in entry.readme
        assert "import hf_recurrent" in code
        first = [part for kind, part in depth_parts(entry.readme) if kind == "figure"]
        shown = [*first, *figures(entry.readme)]
        assert sorted(figure.path for figure in shown) == sorted(plot.path for plot in entry.card.plots)
        assert all(figure.caption.endswith(".") for figure in shown)


def test_sections_end_at_the_next_heading_outside_of_code():
    readme = "## A\none\n```python\n## not a heading\n```\n## B\ntwo\n"
    assert section(readme, "A") == "one\n```python\n## not a heading\n```\n"
    assert section(readme, "B") == "two\n"
    with pytest.raises(ValueError, match="no section 'C'"):
        section(readme, "C")
    with pytest.raises(ValueError, match="'Usage' has no Python code"):
        snippet("## Usage\nnone\n")


def test_code_of_the_depth_section_is_code(entries, text):
    assert any("```bash" in section(entry.readme, DEPTH_SECTION) for entry in entries)
    assert "```" not in text
    command = "hf-recurrent calibrate gut-listops listops"
    assert f"<pre><code>{command}" in text


def test_a_figure_that_is_missing_is_named_and_nothing_is_written(tmp_path):
    (tmp_path / "one").mkdir()
    target = tmp_path / "page.html"
    target.write_text("before")
    with pytest.raises(ValueError, match=r"one/assets/steps.png is missing: copy it"):
        page_of(tmp_path, plots=[Plot("steps", "assets/steps.png", split="test")])
    assert target.read_text() == "before"


def test_the_target_is_a_file(tmp_path):
    root = tmp_path / "cards"
    write_json(root / "one" / "card.json", make_card().to_dict())
    with pytest.raises(ValueError, match=r"target=.* is a folder: pass a file, such as .*index\.html"):
        build_page(root, tmp_path)
    assert build_page(root, tmp_path / "new" / "index.html") == tmp_path / "new" / "index.html"
    assert 'id="one"' in (tmp_path / "new" / "index.html").read_text()
