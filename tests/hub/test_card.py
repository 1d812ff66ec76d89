"""What a card says, in which order, and that it is Markdown and metadata which the Hub reads."""

import ast
import re

import pytest
import yaml
from huggingface_hub import ModelCard

from hf_recurrent.hub.card import TASKS, eval_results_file, render_card
from support.card_text import section
from support.results import (
    figure,
    make_calibration,
    make_document_results,
    make_document_table,
    make_language_results,
    make_results,
    make_table,
)

SWEEP_ROW = {"threshold": 0.9, "accuracy": 0.7, "relative_time": 0.6, "lost": 1, "gained": 1}
SWEEP_ROW["stacks"] = {"model": {"calls": 4, "most": 10, "share": 0.4, "mean_depth": 1.6, "units": 4}}
SWEEP = {
    **{"own_threshold": 0.9, "n": 60, "measured": "accuracy", "thresholds": [SWEEP_ROW]},
    "full_depth": {**SWEEP_ROW, "threshold": None, "accuracy": 0.75},
}
EXPERT = {"expert": 1, "share": 0.75, "by_count": [{"token": "a|b"}], "by_information": []}
EXPERTS = {"modules": {"feed-forward": {"experts": [EXPERT], "num_experts": 2, "balance": 0.8, "shares": [0.25, 0.75]}}}
ROUTING = {"path": "assets/r.png", "tokens": ["a|b"], "prediction": "1", "probability": None, "answer": "2"}
BASE = {"name": "org/albert", "license": "mit", "license_name": None, "license_link": None, "revision": "0123456789ab"}
RIVALS = [
    {"name": "X|Y", "parameters": 9, "values": {"test": [0.9, 0.8]}, "same_model": False},
    {"name": "GUT on ListOps", "parameters": 234_567, "values": {"test": [0.6], "deep": [0.6]}, "same_model": True},
]
EVERYTHING = {
    **{"compared": RIVALS, "sweep": {"test": SWEEP}, "experts": {"test": EXPERTS}},
    **{"calibration": make_calibration(), "routing": [ROUTING], "notice": "A short run.", "model": {"base": BASE}},
    "figures": [figure(), figure("difficulty", "assets/d.png", "depth"), figure("routing", "assets/r.png")],
}
CONVERTED = {"splits": {}, "model": {"base": BASE, "halting": "none"}, "task": "fill-mask"}
FIXED_DEPTH = {"criterion": "fixed_depth", "threshold": None, "patience": None, "max_depth": 8, "min_depth": 1}
CARDS = {
    "classifier": make_results(),
    "fixed": make_results(fixed=True),
    "everything": make_results(**EVERYTHING),
    "language": make_language_results(),
    "language, fixed": make_language_results(fixed=True),
    "documents": make_document_results(),
    "converted": {**make_results(**CONVERTED), "data": None, "training": None},
}


@pytest.mark.parametrize("name", CARDS)
def test_a_card_is_whole(name):
    """Tables have as many cells everywhere, folded parts end, Python is Python, and 120 lines are read at once."""
    text = render_card(CARDS[name])
    body = text.split("\n---\n", 1)[1]
    shown = body.partition("<details>")[0]
    assert len(shown.splitlines()) <= 120
    assert body.count("<details>") == body.count("</details>") > 1
    headings = re.findall(r"^## (.*)$", body, re.MULTILINE)
    assert "## " not in body.partition("<details>")[2]
    order = ["Usage", "Results", "Does it think longer on harder input?", "Guarantee", "Limitations"]
    assert headings == [heading for heading in order if heading != "Results" or name != "converted"]
    width = None
    for line in body.splitlines():
        cells = len(re.split(r"(?<!\\)\|", line)) if line.startswith("|") else None
        assert width is None or cells in (None, width), line
        width = cells
    blocks = re.findall(r"```python\n(.*?)```", body, re.DOTALL)
    for block in blocks:
        ast.parse(block)
    assert len(blocks[0].splitlines()) <= 12
    assert "pip install hf-recurrent" in shown
    assert ModelCard(text).data.library_name == "transformers"
    assert not re.search(r"\bNone\b|\bnan\b|Undefined", body)


def test_results_stand_beside_baselines_other_models_and_fixed_depths():
    text = section(render_card(CARDS["everything"]), "Results")
    assert "| `test` | as in training | 60 | **66.7%** | 33.3% | 2.50 of 4 |" in text
    assert "| `deep` | deeper than training | 60 | **66.7%** | 33.3% | 2.50 of 4 |" in text
    assert "| X\\|Y | 9 | 85.0% ± 7.1 (2 runs) |" in text
    assert "| with other seeds too | 234,567 | 63.3% ± 4.7 (2 runs) |" in text
    assert "| full depth | 75.0% | 16 | 100.0% |" in text
    assert "| **`convergence` at 0.25** | **74.8%** | **4.50** | **32.0%** |" in text
    assert "| best fixed depth | 74.0% | 8 | 51.0% |" in text
    assert "is certified, too. Time is that of a pass, CPU, 1 thread, batches of 1 and 32." in text
    assert "4 (fixed)" in section(render_card(CARDS["fixed"]), "Results")


def test_results_older_than_the_exit_are_told():
    old = make_results(calibration=make_calibration())
    assert "Measured before the calibration: `test`, `deep`." in render_card(old)
    table = make_table() | {"halting": "convergence"}
    assert "Measured before" not in render_card(make_results(calibration=make_calibration(), splits={"test": table}))
    learned = {"criterion": "learned", "threshold": 0.999, "patience": None, "min_depth": 1}
    assert "Measured before" not in render_card(make_results(calibration=make_calibration(chosen=learned)))


def test_a_fixed_depth_may_be_what_a_calibration_chose():
    halting = make_results(calibration=make_calibration(chosen=FIXED_DEPTH))
    text = render_card(halting)
    assert "| **a fixed depth of 8** | **74.8%** |" in section(text, "Results")
    assert "It was the fastest certified setting." in text
    assert "**No**: it runs all 8 steps on every input." in text
    assert "Measured before the calibration: `test`, `deep`." in text
    assert "adaptive-computation" not in text
    assert "ponder_steps" not in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "With 95% confidence, at most 1% of inputs like `validation` of listops are answered right at full depth"),
        ({}, "3.0% of 200 in `far` (**more than the tolerance**)."),
        ({}, "a fixed depth can be certified in the same way"),
        ({"risk": "differs"}, "get another answer by the early exit than at full depth"),
        (
            {"budget": {"measure": "relative_time", "most": 0.5}},
            "No guarantee: the early exit was chosen to take at most 50% of",
        ),
        ({"trained_steps": 8}, "Training took at most 8 steps, and full depth is 16 here"),
        (
            {"chosen": None, "calibrated": None, "tests": {}},
            "No guarantee, and it runs as it was trained: no setting was shown",
        ),
        ({"chosen": FIXED_DEPTH}, "are answered right at full depth and wrong by this fixed depth. This holds"),
    ],
)
def test_the_guarantee_names_its_data_and_what_was_found(changes, words):
    assert words in section(render_card(make_results(calibration=make_calibration(**changes))), "Guarantee")
    assert "No guarantee: no exit was calibrated." in section(render_card(make_results()), "Guarantee")


def test_everything_else_is_folded():
    folded = render_card(CARDS["everything"]).partition("<details>")[2]
    for words in (
        "hf-recurrent evaluate someone/gut-listops listops --config original --set max_depth=20\n",
        "hf-recurrent calibrate someone/gut-listops listops --split validation\n",
        "- `test`: the paper's accuracy 81.2%.",
        "| 1 | 15 | 100.0% | 33.3% | 1.00 | 99.0% |",
        "| a\\|b | 20 |",
        "No accuracy is measurably lost (by two standard errors) on 60 examples down to a threshold of 0.9",
        "| 0.9 | 70.0% | 40.0% | 1.60 | 60.0% |",
        "| 1 of 2 | 75.0% | `a\\|b` |  |",
        "- Tokens: `a|b`. Answer: `1`; right: `2`.",
        "| 3 | 1 | `[MAX 1 \\| 2 ]` | `7` | `7` |",
        "| Fine-tuned from | org/albert, licence mit |",
        "- width 64 instead of 512",
        '| `operators` | `["MIN", "\\|"]` |',
        "![How many depth steps were executed, test](assets/steps.png)",
    ):
        assert words in folded, words
    assert "![Depth and accuracy by depth, test](assets/d.png)" in render_card(CARDS["everything"]).partition(folded)[0]


@pytest.mark.parametrize("task", [task for task in TASKS if task not in ("text-generation", "translation")])
def test_usage_asks_the_model_for_its_answer(task):
    text = section(render_card(make_results(task=task)), "Usage")
    assert f"model = {TASKS[task]}.from_pretrained(" in text
    assert re.search(r"print\(.*outputs\..*, outputs\.ponder_steps\)", text)
    assert ("value[None]" in text) == (task == "multiple-choice")


def test_usage_of_models_that_write():
    assert "The right answer is `1`." in render_card(CARDS["language"])
    assert "max_new_tokens=1, do_sample=False)" in render_card(CARDS["language"])
    moving = make_language_results(model={"chunks": {"chunking": "count", "num_chunks": 3}})
    assert "max_new_tokens=1, do_sample=False, use_cache=False)" in render_card(moving)
    beams = {"num_beams": 4, "length_penalty": 0.6, "max_new_tokens": 20}
    pairs = render_card(make_results(task="translation", model={"generation": beams}))
    assert "generate(**inputs, max_new_tokens=20, num_beams=4, length_penalty=0.6)" in pairs


def test_documents_are_measured_in_bits_and_show_what_the_state_is_for():
    text = render_card(CARDS["documents"])
    # 1.6 bits a token are 0.8 a byte, and 2 bits of entropy are 1 a byte
    assert "| `test` | as in training | 3 | **0.800** | 1.000 | 4 (fixed) |" in text
    assert (
        "- `test`: 3,000 tokens, read in segments of 64 tokens, 1.600 bits per token, word perplexity 84.82, an update"
        in text
    )
    assert "forgets 20.0% of a state unit on average" in text
    assert "| everything | 1.700 | +0.1000 ± 0.0000 | untested |" in text
    assert "| 4\u20137 | 2,601 | 1.600 | 1.700 | 1.603 |" in text
    helps = make_document_results(splits={"test": make_document_table(documents=6)})
    assert "| everything | 1.700 | +0.1000 ± 0.0000 | helps |" in render_card(helps)
    assert "majority" not in text.lower()


def test_reads_are_told_by_token():
    text = render_card(CARDS["language"])
    assert "accuracy of all labelled tokens 75.0%" in text
    assert "| r | 4 | 3.25 |" in text
    assert "`test_64_p80`, length" not in text


def test_metadata():
    data = ModelCard(render_card(make_results(data={"language": ["en"]}))).data.to_dict()
    assert data["tags"] == ["hf_recurrent", "custom_code", "adaptive-computation", "recurrent-depth", "gut", "listops"]
    assert (data["pipeline_tag"], data["license"], data["metrics"]) == (
        "text-classification",
        "apache-2.0",
        ["accuracy"],
    )
    assert (data["datasets"], data["language"]) == (["someone/listops"], ["en"])
    table = make_table()
    (_, lra) = ModelCard(render_card(make_results(splits={"test": table, "lra/test": table}))).data.eval_results
    assert (lra.dataset_config, lra.dataset_split, lra.metric_value) == ("lra", "test", pytest.approx(2 / 3))
    fixed = ModelCard(render_card(make_results(fixed=True))).data.tags
    assert {"adaptive-computation", "recurrent-depth"}.isdisjoint(fixed)
    assert "chunk-recurrence" in ModelCard(render_card(CARDS["documents"])).data.tags
    converted = ModelCard(render_card(CARDS["converted"])).data.to_dict()
    assert (converted["base_model"], converted["license"], converted["pipeline_tag"]) == (
        "org/albert",
        "mit",
        "fill-mask",
    )
    assert "model-index" not in converted


def test_evaluation_results_carry_the_split_in_the_task():
    ((path, text),) = eval_results_file(make_results(date="2026-01-31")).items()
    entries = yaml.safe_load(text)
    assert path == ".eval_results/listops.yaml"
    assert entries[0]["dataset"]["id"] == "someone/listops"
    assert entries[0]["date"] == "2026-01-31"
    assert [entry["dataset"]["task_id"] for entry in entries] == ["original/test", "original/deep"]
    assert eval_results_file(make_results(data={"dataset_id": None})) == {}
    assert [*eval_results_file(make_results(data={"name": "../../x.y"}))] == [".eval_results/-x-y.yaml"]


def test_a_licence_follows_from_the_weights_and_the_data():
    def licence(**changes):
        return ModelCard(render_card(make_results(**changes))).data.license

    assert licence(data={"seed": None}) == "unknown"
    assert licence(data={"seed": None}, model={"license": "mit"}) == "mit"
    assert licence(model={"base": BASE}) == "mit"
    assert licence(model={"base": {**BASE, "license": None}}) == "unknown"


@pytest.mark.parametrize("broken", [{"metric": "magic"}, {"splits": {"test": {}}}, {"model": {"type": "bert"}}])
def test_results_that_are_none_are_named(broken):
    with pytest.raises(ValueError, match=r"results\.json cannot be rendered"):
        render_card(make_results(**broken))
