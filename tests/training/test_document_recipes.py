"""Recipes of "Block-Recurrent Transformers": the paper's sizes, batches and schedules, and what a card may compare."""

import json
from pathlib import Path

import pytest
import torch
from tiny_run import DOCUMENT_RECIPES
from transformers import AutoTokenizer

from hf_recurrent.benchmarks import build_tokenizer
from hf_recurrent.registry import ARCHITECTURES
from hf_recurrent.training.arguments import DOCUMENT_ARGUMENT_TYPES
from hf_recurrent.training.card import split_results
from hf_recurrent.training.document_loop import check_segment_length
from hf_recurrent.training.model import make_config
from hf_recurrent.training.paper import PaperRow, papers
from hf_recurrent.training.recipes import changes_by_flags, parse
from support.families import slow

COUNTS = Path(__file__).parents[1] / "parity" / "block-recurrent" / "unit_param_counts" / "case.json"
PAPER = [path for path in DOCUMENT_RECIPES if path.parent.name == "recipes"]
CPU = [path for path in DOCUMENT_RECIPES if path.parent.name == "cpu"]
# tokens of T5's vocabulary, and the rows of its embedding table
T5_VOCAB_SIZE, T5_ROWS = 32_100, 32_128


def read(path, *flags):
    argv = [str(path), "--output_dir", "unused", *flags]
    (model, data, report, args), settings = parse(argv, DOCUMENT_ARGUMENT_TYPES)
    return model, data, report, args, changes_by_flags(argv, settings, DOCUMENT_ARGUMENT_TYPES)


def config_of(model, vocab_size):
    return ARCHITECTURES[model.model_type].config_class(vocab_size=vocab_size, pad_token_id=0, **model.config)


def rows_of(args):
    return args.per_device_train_batch_size * args.gradient_accumulation_steps


def expected_counts():
    counts = json.loads(COUNTS.read_text())["counts"]
    # windows have no parameters
    return counts | {f"xl_{window}": counts["slide_12l"] for window in (512, 1024, 2048)}


def test_every_row_has_a_recipe():
    assert {path.stem.removeprefix("long_documents_") for path in PAPER} == expected_counts().keys()
    tables = papers()["block_recurrent"]["tables"]
    assert {PaperRow.of(read(path)[2].paper) for path in PAPER} == {
        PaperRow("block_recurrent", table, row, "PG19 tokens") for table in tables for row in tables[table]["rows"]
    }


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_parameters_are_theirs(path):
    model, *_ = read(path)
    config = config_of(model, T5_ROWS)
    with torch.device("meta"):
        made = ARCHITECTURES["block_recurrent"].model_class("AutoModelForCausalLM")(config)
    total = sum(parameter.numel() for parameter in made.parameters())
    expected = expected_counts()[path.stem.removeprefix("long_documents_")]
    assert total == expected["total"]
    assert total - T5_ROWS * config.hidden_size == expected["non_embedding"]


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_batches_and_schedule_are_theirs(path):
    model, data, report, args, _ = read(path)
    (cell,) = PaperRow.of(report.paper).cells()
    assert rows_of(args) * data.segment_length == cell.needs.step_tokens
    assert args.max_steps == cell.needs.steps
    assert (args.optim, args.learning_rate, args.lr_schedule, args.warmup_steps) == (
        "adafactor",
        1.0,
        "rsqrt_std",
        1000,
    )
    assert args.max_grad_norm is None
    assert data.predict_across_segments is False
    config = config_of(model, T5_ROWS)
    assert data.segment_length == (config.window_size if path.stem.startswith(LONE_WINDOWS) else 4096)
    assert (config.dropout, config.attention_dropout) == (0.05, 0.05)
    check_segment_length(config, data.segment_length)
    for key, value in model.config.items():
        assert getattr(config, key) == value


LONE_WINDOWS = ("long_documents_xl", "long_documents_memorizing")


@pytest.mark.parametrize("path", [*PAPER[:3], *map(slow, PAPER[3:])], ids=lambda path: path.stem)
def test_the_paper_is_compared_with_only_where_all_is_as_its(path):
    def bits(*flags, steps=None):
        model, data, report, args, changes = read(path, *flags)
        config, tokens = config_of(model, T5_ROWS), rows_of(args) * data.segment_length
        run = (report, data, config, steps or args.max_steps)
        (result,) = split_results({"test": {}}, *run, step_tokens=tokens, changes=changes)
        return result.paper_bits

    paper = read(path)[2].paper
    assert bits() == PaperRow.of(paper).cells()[0].numbers["bits"]
    assert bits("--output_dir", "elsewhere", "--seed", "9") == bits()
    by_bytes = bits("--tokenizer", "bytes")
    expected = (
        PaperRow.of({**paper, "column": "PG19 bytes"}).cells()[0].numbers["bits"] if paper["table"] == 1 else None
    )
    assert by_bytes == expected
    assert bits(steps=1000) is None
    for flags in (
        ["--benchmark_config", "arxiv_math", "--learning_rate", "0.5"],
        ["--learning_rate", "0.5"],
        ["--config", "{hidden_size: 512, head_dim: 64}"],
        ["--max_train_samples", "10"],
        ["--data_dir", "books"],
        ["--segment_length", "8192"],
        ["--tokenizer", "bpe", "--tokenizer_vocab_size", "32128"],
    ):
        assert bits(*flags) is None, flags


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_flags_in_the_comments_work(path):
    lines = [line for line in path.read_text().splitlines() if line.startswith("#") and "--" in line]
    assert bool(lines) is ("large" not in path.stem)
    for line in lines:
        _, data, _, args, _ = read(path, *line[line.index("--") :].split())
        rate = {"pg19": 1.0, "arxiv_math": 0.5, "github": 0.25}[data.benchmark_config]
        assert args.learning_rate == rate
        times = 8 if data.benchmark_config == "github" else 1
        assert rows_of(args) * data.segment_length == times * 131_072
        assert args.max_steps == (250_000 if times == 8 else 500_000)


@pytest.mark.parametrize("path", CPU, ids=lambda path: path.stem)
def test_cpu_recipes_are_labelled(path):
    model, data, report, args, _ = read(path)
    assert "CPU-size" in report.title
    assert report.notice
    assert report.paper_table.startswith("none")
    assert path.read_text().startswith("# CPU-SIZE")
    assert args.use_cpu
    config = make_config(model, data, build_tokenizer(data.benchmark))
    assert config.vocab_size == 260
    check_segment_length(config, data.segment_length)


def test_embeddings_of_t5_are_the_papers(tmp_path):
    """A tokenizer with as many tokens as T5's, which is not to be had without a network."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {"<pad>": 0, "</s>": 1, **{f"w{index}": index for index in range(2, T5_VOCAB_SIZE)}}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w2")), pad_token="<pad>", eos_token="</s>"
    )
    tokenizer.save_pretrained(tmp_path)
    model, data, *_ = read(PAPER[0])
    config = make_config(model, data, AutoTokenizer.from_pretrained(tmp_path))
    assert (config.vocab_size, config.pad_token_id, config.bos_token_id) == (T5_ROWS, 0, None)
