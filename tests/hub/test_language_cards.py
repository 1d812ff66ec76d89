"""Cards of causal language models: other words, another task, another metric, the same template."""

import ast
import re
from dataclasses import replace

import pytest
import yaml
from card_factory import make_card
from huggingface_hub import ModelCard
from language_card import make_language_card, make_language_table

from hf_recurrent.hub import CardData, lint_card, render_card, write_card
from hf_recurrent.hub.card import SplitResult, read_card
from hf_recurrent.hub.findings import main_trend
from hf_recurrent.hub.metadata import eval_results_yaml, front_matter
from hf_recurrent.hub.phrases import phrase
from hf_recurrent.hub.tasks import auto_class_of, task_of
from hf_recurrent.templating import percent


def row_after(text, heading):
    """The first row of the table whose heading line starts so, as cells by heading."""
    lines = text.splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith(heading))
    head, row = ([cell.strip() for cell in lines[i].strip("|").split("|")] for i in (place, place + 2))
    return dict(zip(head, row, strict=True))


def test_results_are_last_reads_and_all_reads():
    text = render_card(make_language_card())
    row = row_after(text, "| Split | n | Last-read accuracy |")
    assert row["Last-read accuracy"] == "**90.0%**"
    assert row["All reads"] == "75.0%"
    assert row["Majority class"] == "50.0%"
    assert "*Last-read accuracy* is the fraction of strings whose last read" in text
    assert not re.search(r"\| Accuracy \|", text)


def test_steps_are_told_by_token_and_at_the_last_read():
    text = render_card(make_language_card())
    assert row_after(text, "| Split | What halts |")["At the last read"] == "3.25"
    kinds = text.split("by kind of the token\n\n")[1].split("\n\n")[0].splitlines()[2:]
    assert [line.split(" | ")[:3] for line in kinds] == [["| w", "5", "1.00"], ["| r", "4", "3.25"]]
    assert row_after(text, "| Position |")["Tokens"] == "40"


@pytest.mark.parametrize("fixed", [False, True])
def test_columns_by_which_rows_do_not_differ_are_left_out(fixed):
    text = render_card(make_language_card(fixed))
    assert "by distance" in text
    assert "by length" not in text
    assert "with length" not in text


@pytest.mark.parametrize("fixed", [False, True])
def test_tables_are_whole(fixed):
    width = None
    for line in render_card(make_language_card(fixed)).splitlines():
        cells = len(re.split(r"(?<!\\)\|", line)) if line.startswith("|") else None
        assert width is None or cells in (None, width), line
        width = cells


def test_a_chunk_model_says_how_it_reads():
    chunks = {"chunking": "fixed", "chunk_size": 10, "num_memory_slots": 8}
    card = make_language_card(fixed=True, family="xpos_transformer", chunks=chunks)
    text = render_card(card)
    assert "It reads chunks of 10 tokens, with 8 memory slots carried from each to the next." in text
    assert "runs all 4 steps on every chunk" in text
    assert phrase("reading", {"chunking": "count", "num_chunks": 5, "num_memory_slots": 1}) == (
        "at most 5 chunks of one size, with 1 memory slot carried from each to the next"
    )
    assert phrase("reading", {**chunks, "chunking": "balanced"}).startswith("chunks of one size, at most 10 tokens")
    assert "It reads" not in render_card(make_language_card()).split("## Results")[0]


def with_reads(steps, spearman):
    """The card of a table in which last reads take `steps(distance)` steps, and distant ones are harder."""
    table = make_language_table()
    column = table["slices"]["distance"]
    rows = [
        {**row, "accuracy": 1 - row["low"] / 5, "answer_steps": {**row["answer_steps"], "mean": steps(row["low"])}}
        for row in column["rows"]
    ]
    slices = {**table["slices"], "distance": {**column, "rows": rows, "spearman": spearman}}
    return make_language_card(results=[SplitResult("test_64_p80", {**table, "slices": slices})])


def test_trends_are_those_of_the_steps_at_the_last_read():
    card = with_reads(lambda distance: 4.5 + distance / 8, 0.7)
    text = render_card(card)
    assert (
        "**Yes**: on `test_64_p80`, steps at the last read **grow** strongly with distance (Spearman +0.70): "
        "4.62 on average at distance 1, 5.00 at 4.\n"
    ) in text
    assert "*Spearman* is the rank correlation of steps at the last read and distance over the split's strings." in text
    assert yaml.safe_load(front_matter(card))["hf_recurrent"]["halting"]["splits"]["test_64_p80"]["spearman"] == {
        "distance": 0.7
    }
    assert phrase("trend_cell", main_trend(card.results[0].table)) == (
        "grow with distance: \u03c1 = +0.70, 4.62 → 5.00 steps at the last read"
    )
    assert "steps at the last read **shrink** moderately with distance" in render_card(with_reads(float, -0.5))
    many = with_reads(float, 0.01)
    many.results[0].table["n"] = 4_000
    assert "steps at the last read **do not change** with distance (Spearman +0.01): 1.00 on" in render_card(many)
    assert "too few to decide whether steps at the last read change with distance" in render_card(
        with_reads(float, 0.2)
    )


def test_the_hub_reads_the_task_and_the_metric():
    card = make_language_card()
    data = yaml.safe_load(front_matter(card))
    assert data["pipeline_tag"] == "text-generation"
    assert data["metrics"] == ["last_read_accuracy"]
    (result,) = ModelCard(render_card(card)).data.eval_results
    assert (result.task_type, result.task_name) == ("text-generation", "Text Generation")
    assert (result.metric_type, result.metric_name, result.metric_value) == (
        *("last_read_accuracy", "Last-read accuracy"),
        pytest.approx(0.9),
    )
    entries = yaml.safe_load(eval_results_yaml(card))
    assert entries[0]["notes"] == "last-read accuracy, n=40, majority class 0.5000"
    assert yaml.safe_load(eval_results_yaml(make_card()))[0]["notes"].startswith("accuracy, n=60")


@pytest.mark.parametrize(
    ("family", "tags"),
    [
        ("xpos_transformer", set()),
        ("gut", {"recurrent-depth"}),
        ("tlb", {"chunk-recurrence"}),
        ("gutlb", {"recurrent-depth", "chunk-recurrence"}),
    ],
)
def test_tags_say_what_recurs(family, tags):
    found = set(yaml.safe_load(front_matter(replace(make_language_card(), family=family)))["tags"])
    assert found & {"recurrent-depth", "chunk-recurrence"} == tags


def test_usage_generates():
    text = render_card(make_language_card())
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for block in blocks:
        ast.parse(block)
    assert "AutoModelForCausalLM.from_pretrained(name)" in blocks[0]
    assert 'pipeline("text-generation"' in blocks[2]
    assert "The right continuation of this prompt is `1`." in text
    assert "Classification" not in text
    assert "right continuation" not in render_card(make_card())


def test_a_language_card_can_be_written_and_read(picture, tmp_path):
    card = make_language_card(plots=[replace(picture, kind=kind) for kind in ("memory", "depth")])
    write_card(tmp_path, card)
    lint_card(tmp_path)
    assert read_card(tmp_path) == CardData.from_dict(card.to_dict())
    text = (tmp_path / "README.md").read_text()
    assert "Which memory slots each chunk of one string reads" in text
    assert "Depth steps of each token of one string" in text


@pytest.mark.parametrize(("field", "value"), [("task", "text-to-speech"), ("metric", "rouge")])
def test_unknown_tasks_and_metrics_are_named(field, value):
    with pytest.raises(ValueError, match=f"{field} is '{value}': expected one of"):
        make_card(**{field: value})


def test_cards_of_before_are_classifiers():
    data = make_card().to_dict()
    for name in ("task", "metric", "chunks"):
        del data[name]
    assert CardData.from_dict(data).task == "text-classification"


def test_the_papers_spread_is_shown_beside_ours():
    table = make_language_table()
    shown = SplitResult("test_512_p98", table, 0.95, paper_mean=0.8907, paper_std=0.0963)
    text = render_card(make_language_card(results=[shown, SplitResult("test_64_p80", table)]))
    assert "| 95.0% (mean 89.1% \u00b1 9.6) |" in text
    assert "*Paper* is the median of the paper's runs" in text
    text = render_card(make_language_card())
    assert "*Paper*" not in text
    assert "| Paper |" not in text
    assert phrase("paper_value", 0.9967, 0.9908) == "99.7% (mean 99.1%)"
    assert phrase("paper_value", 0.98, None, 0.01) == "98.0% \u00b1 1.0"


def test_nearly_all_is_not_all():
    assert [percent(value) for value in (1.0, 0.99949, 0.9996, 0.999999, 0.5, 0.0, None)] == [
        *("100.0%", "99.9%", "99.96%", "99.9999%", "50.0%", "0.0%", "\u2013"),
    ]


@pytest.mark.parametrize(
    ("architectures", "auto_class", "task"),
    [
        (["GUTForSequenceClassification"], "AutoModelForSequenceClassification", "text-classification"),
        (["GUTForCausalLM"], "AutoModelForCausalLM", "text-generation"),
        (["GUTForTokenClassification"], "AutoModelForTokenClassification", "token-classification"),
        (["GUTForMaskedLM"], "AutoModelForMaskedLM", "fill-mask"),
        (["GUTForQuestionAnswering"], "AutoModelForQuestionAnswering", "question-answering"),
        (["GUTForMultipleChoice"], "AutoModelForMultipleChoice", "multiple-choice"),
        (["GUTModel"], "AutoModel", None),
        (["UTForCausalLM"], None, None),
        (None, None, None),
    ],
)
def test_the_task_follows_from_the_architecture(architectures, auto_class, task):
    config = {"model_type": "gut", "architectures": architectures}
    assert (auto_class_of(config), task_of(config)) == (auto_class, task)
