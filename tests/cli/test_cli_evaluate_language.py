"""`hf-recurrent evaluate` on causal language models: last reads, all reads, and steps token by token."""

import json

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

import hf_recurrent  # noqa: F401 - registers the families
from hf_recurrent.benchmarks import build_tokenizer, load_benchmark
from hf_recurrent.hub.checkpoint import save_checkpoint
from support.families import papers_halting

SIZES = {"train_length": 12, "num_train": 4, "num_validation": 4, "num_test": 10, "test_p_ignore": 0.3}
SET = ("--benchmark_params", json.dumps(SIZES))
TINY = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 3}

pytestmark = pytest.mark.usefixtures("wide")


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Writes a checkpoint of random weights that answers 0 or 1 after anything."""

    def make(family, **fields):
        tokenizer = build_tokenizer("flip_flop")
        torch.manual_seed(3)
        config = AutoConfig.for_model(
            family, vocab_size=len(tokenizer), lm_head="mlp", **{**TINY, **papers_halting(family), **fields}
        )
        model = AutoModelForCausalLM.from_config(config).eval()
        bits = tokenizer.convert_tokens_to_ids(["0", "1"])
        with torch.no_grad():
            # a wide last layer, so that answers differ from string to string
            model.get_output_embeddings().weight.mul_(20)
            model.get_output_embeddings().bias.fill_(-1000.0)[bits] = 0.0
        return save_checkpoint(model, tmp_path_factory.mktemp(family) / family, tokenizer)

    return make


@pytest.fixture(scope="module")
def gut(make):
    return make("gut", halting="token", halting_bias_init=-0.5, initializer_range=1.0)


def test_reads_and_steps_are_the_models_own(evaluated, gut):
    tables, out, _ = evaluated(gut, "flip_flop", *SET, "--batch_size", "3")
    splits = load_benchmark("flip_flop", **SIZES)
    assert list(tables) == ["test_12_p30", "test_24_p30"]
    tokenizer, model = AutoTokenizer.from_pretrained(gut), AutoModelForCausalLM.from_pretrained(gut).eval()
    for name, table in tables.items():
        last, every, steps, at_read = [], [], [], []
        for row in splits[name]:
            words = row["text"].split()
            with torch.no_grad():
                outputs = model(**tokenizer(row["text"], return_tensors="pt"))
            guessed = [tokenizer.decode(token) for token in outputs.logits[0].argmax(-1)]
            reads = [guessed[i] == words[i + 1] for i in range(0, len(words), 2) if words[i] == "r"]
            last.append(reads[-1])
            every += reads
            steps.append(outputs.ponder_steps.float().mean().item())
            at_read.append(outputs.ponder_steps[0, -2].item())
        assert 0 < sum(every) < len(every)
        assert table["accuracy"] == pytest.approx(sum(last) / 10)
        assert table["labelled_tokens"] == {"n": len(every), "accuracy": pytest.approx(sum(every) / len(every))}
        assert table["steps"]["mean"] == pytest.approx(sum(steps) / 10)
        assert table["answer_steps"]["mean"] == pytest.approx(sum(at_read) / 10)
        assert f"{sum(at_read) / 10:.2f} on average at the last read" in out
        assert f"{name} by kind of the token" in out
        assert f"{name} by distance" in out
    cells = next(line for line in out.splitlines() if "test_12_p30 " in line).split("│")
    first = tables["test_12_p30"]
    assert [cell.strip() for cell in cells[3:6]] == [
        f"{first['accuracy']:.1%}",
        f"{first['majority_baseline']:.1%}",
        f"{first['labelled_tokens']['accuracy']:.1%}",
    ]
    assert "last read: share of strings whose last read is right" in out
    # all strings of a split have the same length
    assert "by length" not in out
