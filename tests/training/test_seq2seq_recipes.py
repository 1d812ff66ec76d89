"""The recipes of sources and targets: what they make, and what their cards put beside them."""

import dataclasses

import pytest
import torch
from tiny_run import SEQ2SEQ_RECIPES

from hf_recurrent.benchmarks.sequence_tokenizers import word_tokenizer
from hf_recurrent.hub.card import SplitResult
from hf_recurrent.registry import ARCHITECTURES
from hf_recurrent.training.arguments import SEQ2SEQ_ARGUMENT_TYPES
from hf_recurrent.training.card import split_results
from hf_recurrent.training.model import make_config
from hf_recurrent.training.paper import PaperRow, papers
from hf_recurrent.training.recipes import parse

PAPER_RECIPES = [path for path in SEQ2SEQ_RECIPES if path.parent.name == "recipes"]
# a joined vocabulary of about 37,000 pieces: what both totals of Table 1 imply
WORDS = [f"w{number}" for number in range(37_000 - 4)]


def read(path, *flags):
    return parse([str(path), "--output_dir", "unused", "--use_cpu", "true", "--bf16", "false", *flags], TYPES)[0]


TYPES = SEQ2SEQ_ARGUMENT_TYPES


def result_of(run, data, config, *changes):
    """The test split of a run, beside which the paper's numbers may stand."""
    (result,) = split_results({"test": {}}, run, data, config, 1000, changes=changes)
    return result


@pytest.fixture(scope="module")
def tokenizer():
    return word_tokenizer(WORDS)


def body_of(config):
    """Parameters without embeddings, in millions."""
    with torch.device("meta"):
        model = ARCHITECTURES["sut"].model_class("AutoModelForSeq2SeqLM")(config)
    return (model.num_parameters() - model.get_input_embeddings().weight.numel()) / 1e6


@pytest.mark.parametrize("path", SEQ2SEQ_RECIPES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_recipe_parses_and_makes_its_config(path, tokenizer):
    model, data, run, args = read(path)
    assert path.read_text().startswith("#"), "a recipe starts with what it reproduces"
    assert run.title
    config = make_config(model, data, tokenizer)
    assert config.is_encoder_decoder
    for key, value in model.config.items():
        assert getattr(config, key) == value
    assert (args.adam_beta1, args.adam_beta2, args.adam_epsilon) == (0.9, 0.98, 1e-9)
    assert args.lr_schedule == "inverse_sqrt_fairseq"
    if path.parent.name == "cpu":
        assert "CPU-size" in run.title
        assert run.notice
        return
    # the row that the recipe names is there, and sizes are those that the paper tells of it
    data.benchmark_params = {**data.benchmark_params, **({"text_form": "bpe"} if "wmt14" in path.stem else {})}
    assert result_of(run, data, config) != SplitResult("test", {})
    assert any("appendix" in item or "authors'" in item for item in run.differences)


def test_every_row_of_the_tables_has_a_recipe():
    named = {PaperRow.of(read(path)[2].paper) for path in PAPER_RECIPES}
    tables = papers()["sparse_universal"]["tables"]
    known = {PaperRow("sparse_universal", table, row) for table in tables for row in tables[table]["rows"]}
    assert named == known
    assert len(PAPER_RECIPES) == len(known)


@pytest.mark.parametrize(
    ("name", "millions", "within"),
    [
        ("sut_base", 46.85, 0.005),
        ("sut_big", 91.00, 0.005),
        # with embeddings, as the paper prints them
        ("ut_base", 64 - 18.944, 0.5),
        ("ut_big", 105 - 18.944, 0.5),
        ("sut_base_moa", 66 - 18.944, 1.0),
        ("sut_base_no_halting", 65 - 18.944, 0.5),
    ],
)
def test_sizes_are_the_papers(name, millions, within, tokenizer):
    (path,) = [path for path in PAPER_RECIPES if path.stem == f"wmt14_en_de_{name}"]
    model, data, _, _ = read(path)
    assert body_of(make_config(model, data, tokenizer)) == pytest.approx(millions, abs=within)


def test_what_stands_beside_a_run(tokenizer):
    by_name = {path.stem: path for path in PAPER_RECIPES}
    nothing = SplitResult("test", {})
    model, data, run, _ = read(by_name["logical_inference_translation_sut"])
    config = make_config(model, data, tokenizer)
    result = result_of(run, data, config)
    assert result.paper_slices["num_operators"]["12"] == 0.81
    assert result.paper_accuracy is None
    split_c = dataclasses.replace(data, benchmark_config="split_c")
    result = result_of(run, split_c, config, "benchmark_config = split_c (original)")
    assert (result.paper_accuracy, result.paper_slices) == (0.52, {})
    # changed by flags, on fewer examples, or of other sizes, numbers do not compare
    assert result_of(run, data, config, "learning_rate = 0.1 (0.0005)") == nothing
    assert result_of(run, dataclasses.replace(data, max_train_samples=10), config) == nothing
    assert result_of(run, dataclasses.replace(data, benchmark_params={"num_train": 10}), config) == nothing
    config.attention_experts = 4
    assert result_of(run, data, config) == nothing

    model, data, run, _ = read(by_name["wmt14_en_de_sut_base"])
    config = make_config(model, data, tokenizer)
    assert result_of(run, data, config) == nothing, "BLEU of plain texts is not the paper's"
    tokenized = dataclasses.replace(data, benchmark_params={"text_form": "tokenized"})
    assert result_of(run, tokenized, config).paper_bleu == 29.2

    model, data, run, _ = read(by_name["cfq_ut"])
    mcd2 = dataclasses.replace(data, benchmark_config="mcd2")
    result = result_of(run, mcd2, make_config(model, data, tokenizer))
    assert (result.paper_accuracy, result.paper_std) == (0.511, 0.018)
