"""The browsable page as text: what it says, and that it loads and runs nothing but itself."""

import base64
import re
import shutil
from html.parser import HTMLParser

import pytest

from hf_recurrent.hub.gallery import build_page
from hf_recurrent.hub.gallery.markdown import inline_html
from hf_recurrent.utils import write_json
from support.results import figure, make_results, make_table

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
    """The page of a gallery that holds only `make_results(**changes)`."""
    write_json(tmp_path / "one" / "results.json", make_results(**changes))
    return build_page(tmp_path, tmp_path / "page.html").read_text(encoding="utf-8")


def test_nothing_is_loaded_from_anywhere(text):
    page = Page(text)
    found = [(tag, name, value) for tag, attributes in page.elements for name, value in attributes.items()]
    loading = [item for item in found if item[1] in LOADING]
    assert {(tag, name) for tag, name, _ in loading} == {("img", "src"), ("a", "href"), ("link", "href")}
    assert all(value.startswith("data:image/png;base64,") for tag, _, value in loading if tag == "img")
    assert [value for tag, _, value in loading if tag == "link"] == ["data:,"]
    # a link to a paper loads nothing until it is followed
    assert all(value.startswith("https://") for tag, _, value in loading if tag == "a")
    assert [item for item in found if item[1].startswith("on")] == []
    assert {tag for tag, _ in page.elements}.isdisjoint({"iframe", "object", "embed", "base", "form", "video", "audio"})
    (style,) = page.texts["style"]
    assert "url(" not in style
    assert "@import" not in style


def test_the_same_gallery_gives_the_same_bytes(committed, text, tmp_path):
    copy = shutil.copytree(committed, tmp_path / "elsewhere", copy_function=shutil.copyfile)
    assert build_page(copy, tmp_path / "page.html").read_text(encoding="utf-8") == text


def test_names_inside_the_page_are_unique(text):
    names = [attributes["id"] for _, attributes in Page(text).elements if "id" in attributes]
    assert len(set(names)) == len(names)
    referred = re.findall(r'(?:for|aria-controls|aria-describedby)="([^"]+)"', text)
    assert set(referred) <= set(names)
    assert len(referred) > 3


def test_every_card_is_there_with_its_figures(entries, text):
    page = Page(text)
    pictures = [image["src"].partition(",")[2] for image in page.all("img")]
    shown = [entry.folder / item["path"] for entry in entries for item in entry.results["figures"]]
    assert sorted(map(base64.b64decode, pictures)) == sorted(path.read_bytes() for path in shown)
    assert all(image["alt"] and int(image["width"]) > 99 and int(image["height"]) > 99 for image in page.all("img"))
    for entry in entries:
        assert f'<tbody class="checkpoint" id="{entry.name}">' in text
        assert all(f"<li>{inline_html(line)}</li>" in text for line in entry.results["limitations"])
    readmes = "".join(entry.files["README.md"] for entry in entries)
    for markdown, html in (("^## ", "^<h3>(?!Look inside)"), (r"^\|[-:|]+\|$", "^<table>$")):
        found = (len(re.findall(pattern, each, re.MULTILINE)) for pattern, each in ((markdown, readmes), (html, text)))
        assert len(set(found)) == 1, markdown
    assert "```" not in text


def test_text_of_a_card_is_text(tmp_path):
    plain = Page(page_of(tmp_path / "plain"))
    text = page_of(
        tmp_path / "hostile",
        title=HOSTILE,
        notice=f"{HOSTILE} and `{HOSTILE}` and **{HOSTILE}** and [a](javascript:alert(3))",
        data={"config": HOSTILE, "version": HOSTILE},
        training={"command": HOSTILE, "hardware": HOSTILE, "differences": [HOSTILE]},
        splits={HOSTILE: make_table()},
        example={"text": HOSTILE},
        limitations=[HOSTILE, f"<details><summary>{HOSTILE}</summary>"],
        date=HOSTILE,
    )
    hostile = Page(text)
    assert len(hostile.all("script")) == len(plain.all("script")) == 1
    assert hostile.texts["script"] == plain.texts["script"]
    assert hostile.all("img") == []
    assert all(link["href"].startswith("https://") for link in hostile.all("a"))
    assert sum("alert(1)" in part for parts in hostile.texts.values() for part in parts) > 10


def test_one_line_of_a_card():
    assert inline_html("a `b *c*` **d** *e*") == "a <code>b *c*</code> <strong>d</strong> <em>e</em>"
    assert inline_html("2 * 3 * 4 `x") == "2 * 3 * 4 `x"
    assert inline_html("<b> `<i>`") == "&lt;b&gt; <code>&lt;i&gt;</code>"


def test_folded_parts_can_be_opened(tmp_path):
    text = page_of(tmp_path)
    assert "<details><summary>All results: splits by difficulty, other models, the paper</summary>" in text
    assert text.count("<details>") == text.count("</details>") > 4


@pytest.mark.parametrize(("main", "marked"), [(0.45, 1), (0.46, 0)])
def test_an_accuracy_not_above_the_majority_class_is_marked(tmp_path, main, marked):
    # the majority class has a third of 60 examples, so that two standard errors reach to 45.5%
    text = page_of(tmp_path, splits={"test": make_table(accuracy=main)})
    assert text.count('<span class="caution">not above majority</span>') == marked
    assert "accuracy ≤ b + 2 √(b (1 \u2212 b) / n)" in text


def test_a_figure_that_is_missing_is_named_and_nothing_is_written(tmp_path):
    (tmp_path / "one").mkdir()
    target = tmp_path / "page.html"
    target.write_text("before")
    with pytest.raises(OSError, match=r"one/assets/steps\.png"):
        page_of(tmp_path, figures=[figure()])
    assert target.read_text() == "before"


def test_the_target_may_be_in_a_new_folder(tmp_path):
    root = tmp_path / "cards"
    write_json(root / "one" / "results.json", make_results())
    assert build_page(root, tmp_path / "new" / "index.html") == tmp_path / "new" / "index.html"
    assert 'id="one"' in (tmp_path / "new" / "index.html").read_text()
