"""Cards of models of long documents: bits, what they are compared with, and what the state is for."""

import ast
import re
from dataclasses import replace

import pytest
import yaml
from document_card import make_document_card, make_document_table, make_losses
from huggingface_hub import ModelCard

from hf_recurrent.analysis.plots import save_recurrence_figures
from hf_recurrent.hub import lint_card, render_card, write_card
from hf_recurrent.hub.card import Compared, Plot, SplitResult, read_card
from hf_recurrent.hub.commands import evaluation_command
from hf_recurrent.hub.lint import form_problems
from hf_recurrent.hub.metadata import eval_results_yaml, front_matter


def lines_of(text, start):
    return [line for line in text.splitlines() if line.startswith(start)]


@pytest.fixture(scope="module")
def text():
    return render_card(make_document_card())


def test_the_card_can_be_published_and_is_a_function_of_its_data(tmp_path):
    table = make_document_table()
    plots = [Plot(**plot, split="test") for plot in save_recurrence_figures(tmp_path, table, prefix="test")]
    card = make_document_card(table=table, plots=plots)
    path = write_card(tmp_path, card)
    lint_card(tmp_path)
    assert read_card(tmp_path) == card
    assert render_card(read_card(tmp_path)) == path.read_text()
    state = path.read_text().split("## What the state is for")[1].split("\n## ")[0]
    for plot in plots:
        assert f"]({plot.path})" in state
    assert form_problems(render_card(replace(card, plots=[])), tmp_path.joinpath) == []


def test_every_table_row_has_as_many_cells_as_its_header():
    lonely = make_document_table(states=None, gates=False)
    cards = [
        make_document_card(),
        make_document_card(compared=[], table=lonely),
        make_document_card(metric="bits_per_token", compared=[]),
        make_document_card(results=[SplitResult("a|b", lonely), SplitResult("test", lonely, paper_bits=2.4)]),
    ]
    for card in cards:
        width = None
        for line in render_card(card).splitlines():
            if not line.startswith("|"):
                width = None
                continue
            cells = len(re.split(r"(?<!\\)\|", line))
            width = width or cells
            assert cells == width, line


def test_results_are_bits_beside_the_constant_prediction(text):
    # a token is two bytes: 1.6 bits a token are 0.8 a byte, and 2 bits of entropy are 1 a byte
    (row,) = lines_of(text, "| `test` | 3 ")
    assert row == "| `test` | 3 | 3,000 | **0.800** | 1.000 | 1.600 | 84.82 |"
    assert "Every token but the first of a document is predicted; the bytes of a document count by the share" in text
    assert "segments of 64 tokens" in text
    for word in ("Majority", "ccuracy", "halting_stats", "Spearman", "onder cost"):
        assert word not in text


def test_what_is_not_known_is_left_out():
    table = make_document_table() | {"word_perplexity": None, "all_predicted": False, "exact_bytes": True}
    text = render_card(make_document_card(table=table, compared=[]))
    assert "perplexity" not in text
    assert "Compared" not in text
    assert "Paper" not in text.split("## What the state")[0].split("## Results")[1]
    assert "Not every token is predicted." in text


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([0.9, 0.78], "needs 0.0400 fewer bits per byte than X (0.840, the mean of 2 runs, 1 of which need more)."),
        ([0.75], "needs 0.0500 more bits per byte than X (0.750)."),
    ],
)
def test_a_comparison_says_which_needs_fewer(values, words):
    text = render_card(make_document_card(compared=[Compared("X", 345_678, {"test": values})]))
    assert f"- On `test`, this checkpoint {words}" in text
    assert "| X | 345,678 |" in text


def test_other_runs_of_the_same_model_are_shown_and_not_beaten():
    runs = Compared("the same with other seeds", 5, {"test": [0.8, 0.85]}, same_model=True)
    text = render_card(make_document_card(compared=[runs]))
    assert "| the same with every seed | 5 | 0.817 ± 0.029 (0.800, 0.800, 0.850) |" in text
    assert "than the same" not in text


# bits a token of documents where everything, or the states alone, are reset, against 1.5, 1.6 and 1.7
@pytest.mark.parametrize(
    ("reset", "documents", "words"),
    [
        (
            (1.6, 1.7, 1.8),
            6,
            "takes 0.1000 bits a token more (standard error 0.0000): carrying anything at all **helps**.",
        ),
        (
            (1.4, 1.5, 1.6),
            6,
            "takes 0.1000 bits a token fewer (standard error 0.0000): carrying anything at all **hurts**.",
        ),
        (
            (1.9, 1.2, 1.7),
            6,
            "whether carrying anything at all helps is **unclear**, for the difference is within",
        ),
        (
            (1.4, 1.5, 1.6),
            3,
            "(standard error 0.0000): 3 documents are too few to decide whether carrying anything at all helps.",
        ),
        ((1.6, 1.7, 1.8), 1, "1 document is too few to decide whether carrying anything at all helps."),
    ],
)
def test_what_is_carried_helps_only_where_the_numbers_say_so(reset, documents, words):
    table = make_document_table(reset=reset) | {"documents": documents}
    text = render_card(make_document_card(table=table))
    (line,) = lines_of(text, "- On `test`, resetting everything every 64 tokens")
    assert words in line
    assert ("**helps**" in line) == (reset == (1.6, 1.7, 1.8) and documents == 6)


def test_states_alone_have_their_own_row_and_sentence(text):
    assert "| `test` | the state vectors alone, at each segment | 0.802 | 1.603 | +0.0033 ± 0.0033 |" in text
    (line,) = lines_of(text, "- On `test`, resetting the state vectors alone")
    assert "3 documents are too few to decide whether carrying the state vectors helps" in line
    without = render_card(make_document_card(table=make_document_table(states=None)))
    assert "state vectors alone" not in without.split("## What the state is for")[1].split("## Usage")[0]


def test_gates_in_words(text):
    (line,) = lines_of(text, "- On `test`, an update forgets")
    assert "forgets 20.0% of a state unit on average. A tenth of the 64 units loses less than 12.0% and a tenth" in line
    assert "Half of the median unit is forgotten after 3.1 blocks (49 tokens)" in line
    assert "an update forgets" not in render_card(make_document_card(table=make_document_table(gates=False)))


def test_positions_are_a_table(text):
    rows = text.split("### `test` by position in the document")[1].split("How to read")[0].strip().splitlines()
    assert rows[0] == "| Tokens before | Tokens | Nothing reset | Everything reset | State vectors reset |"
    assert [row.split("|")[1].strip() for row in rows[2:]] == ["1", "2\u20133", "4\u20137"]
    assert rows[-1] == "| 4\u20137 | 2,600 | 1.600 | 1.700 | 1.603 |"


def test_halting_over_documents_is_the_mean_over_tokens():
    losses = {"document": make_losses((1.0, 1.0, 1.0), steps=6006.0), "segment": make_losses((1.0, 1.0, 1.0))}
    table = make_document_table(losses=losses, halting="token", gates=False)
    text = render_card(make_document_card(table=table, family="gutlb"))
    assert "- On `test`, a token takes 2.00 of at most 4 depth steps on average." in text
    assert "fixed depth" not in text


def test_usage_streams_a_document(text):
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for block in blocks:
        ast.parse(block)
    assert "max_new_tokens=64" in blocks[0]
    assert any(".split(1000, dim=1)" in block for block in blocks)
    assert "max_new_tokens=1," not in text


def test_metadata_are_bits(text):
    card = make_document_card(date="2026-01-31")
    data = yaml.safe_load(front_matter(card))
    assert data["metrics"] == ["bits_per_byte"]
    facts = data["hf_recurrent"]["documents"]["test"]
    assert facts["documents"] == 3
    assert facts["bits_per_token"] == pytest.approx(1.6)
    assert facts["more_bits_per_token_when_reset"]["segment"] == pytest.approx(0.1)
    assert data["hf_recurrent"]["halting"] == {"strategy": "none", "max_depth": 4}
    (result,) = ModelCard(text).data.eval_results
    assert (result.metric_type, result.metric_value) == ("bits_per_byte", pytest.approx(0.8))
    (entry,) = yaml.safe_load(eval_results_yaml(card))
    assert entry["value"] == pytest.approx(0.8)
    assert entry["notes"].startswith("bits per byte, lower is better, 3 documents, best constant prediction 1.0000")


def test_the_command_reads_the_same_segments():
    command = evaluation_command(make_document_card())
    assert command == (
        "hf-recurrent evaluate someone/rec-fixed-skip long_documents --config python --set test_share=0.2 "
        "--segment-length 64"
    )
