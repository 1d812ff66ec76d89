"""`hf-recurrent evaluate` on long documents: bits, resets and positions of files that lie here."""

import math
import zipfile

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import hf_recurrent  # noqa: F401 - registers the families
from hf_recurrent.benchmarks import build_tokenizer
from hf_recurrent.hub.checkpoint import save_checkpoint
from support.families import papers_halting

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("wide")]

TEXTS = {"a.txt": "To be, or not to be: that is the question.\n", "b.txt": "né à Zürich\n", "c.txt": "x" * 30}
TINY = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 2}
WINDOWS = {"window_size": 4, "num_state_vectors": 3}


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "texts.zip"
    with zipfile.ZipFile(path, "w") as file:
        for name, text in TEXTS.items():
            file.writestr(f"test/{name}", text)
        file.writestr("train/d.txt", "never read")
    return path


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    def make(family, auto_class=AutoModelForCausalLM, **fields):
        tokenizer = build_tokenizer("long_documents")
        torch.manual_seed(3)
        config = AutoConfig.for_model(family, vocab_size=len(tokenizer), **{**TINY, **papers_halting(family), **fields})
        return save_checkpoint(
            auto_class.from_config(config).eval(), tmp_path_factory.mktemp(family) / family, tokenizer
        )

    return make


@pytest.fixture(scope="module")
def rec(make):
    return make("block_recurrent", **WINDOWS)


def documents(archive):
    return ("long_documents", "--benchmark_config", "folder", "--data_dir", archive)


def test_bits_are_those_of_the_documents_one_by_one(evaluated, rec, archive):
    tables, out, _ = evaluated(rec, *documents(archive), "--segment_length", "8")
    (table,) = tables.values()
    model, tokenizer = AutoModelForCausalLM.from_pretrained(rec).eval(), build_tokenizer("long_documents")
    bits, count = {}, 0
    for carry in ("document", "segment"):
        bits[carry] = 0.0
        for text in TEXTS.values():
            ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
            assert ids.shape[1] == len(text.encode())
            pieces = [ids] if carry == "document" else ids.split(8, dim=1)
            with torch.no_grad():
                shares = torch.cat([model(piece).logits for piece in pieces], 1).double().log_softmax(-1)
            nats = -shares[0, :-1].gather(1, ids[0, 1:, None]).sum().item()
            bits[carry] += nats / math.log(2)
            count += (ids.shape[1] - 1) * (carry == "document")
    assert (table["documents"], table["tokens"], table["bytes"], table["exact_bytes"]) == (3, count, count, True)
    assert table["bits_per_byte"] == table["bits_per_token"] == pytest.approx(bits["document"] / count, rel=1e-5)
    by_carry = {row["carry"]: row for row in table["carries"]}
    assert list(by_carry) == ["document", "segment", "state"]
    assert by_carry["segment"]["bits_per_token"] == pytest.approx(bits["segment"] / count, rel=1e-5)
    assert 0 < table["gates"]["mean"] < 1
    # words by white space, of all documents
    tokens, named = count + 3, sum(len(text.split()) for text in TEXTS.values())
    assert table["word_perplexity"] == pytest.approx(2 ** (bits["document"] / count * tokens / named), rel=1e-3)
    cells = [cell.strip() for cell in next(line for line in out.splitlines() if "test " in line).split("\u2502")]
    assert cells[1:6] == ["test", "3", str(count), *[f"{bits['document'] / count:.3f}"] * 2]
    assert "test, read in segments of 8 tokens" in out
    assert f"{by_carry['segment']['difference']:+.4f}" in out
    assert "reset the state vectors" in out
    assert "\u2502 32\u201363 " in out
    assert "never read" not in out


def test_other_models_of_constant_memory_do(evaluated, make, archive):
    folder = make("tlb", chunk_size=4, num_memory_slots=3)
    tables, _, _ = evaluated(folder, *documents(archive), "--limit", "2")
    (table,) = tables.values()
    assert (table["documents"], table["segment_length"], table["gates"]) == (2, 32, None)


def test_what_does_not_go_together(refuse, make, rec, run_folder, archive):
    assert "segment_length is 6 and config.window_size 4" in (
        refuse("evaluate", rec, *documents(archive), "--segment_length", "6")
    )
    assert "--max_depth 2: this is not for long documents, leave it out" in refuse(
        "evaluate", rec, *documents(archive), "--max_depth", "2", "--halting_threshold", "0.5"
    )
    assert "--segment_length 8: this is not for short texts, leave it out" in refuse(
        "evaluate", run_folder, "listops", "--segment_length", "8"
    )
    assert "run is a sequence classifier, but long_documents has no labels: evaluate an AutoModelForCausalLM" in (
        refuse("evaluate", run_folder, *documents(archive))
    )
    assert "whose cache grows with the document" in refuse("evaluate", make("ut"), *documents(archive))
