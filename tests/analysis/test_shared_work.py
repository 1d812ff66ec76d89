"""Work that several processes share gives each of them what one process finds alone.

Here the processes are threads with models of their own, and collective calls exchange pickled values.
"""

import copy
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import Dataset

from hf_recurrent import SUTConfig, SUTForConditionalGeneration
from hf_recurrent.analysis.evaluate import evaluate_batches
from hf_recurrent.analysis.halting import halting_table
from hf_recurrent.analysis.losses import collect_text_losses, evaluate_split
from hf_recurrent.analysis.predict import PredictionSettings, predict_file
from hf_recurrent.analysis.probe import judged_answers
from hf_recurrent.analysis.sweep import sweep_thresholds
from hf_recurrent.benchmarks import build_tokenizer
from hf_recurrent.deploy import processes
from hf_recurrent.tasks import get_task
from support.batches import rows
from support.families import BY_NAME, LANGUAGE_BY_NAME, make_batch, make_language_model, make_model, make_text, nightly
from support.token_heads import TOKENS, make_head, make_head_batch
from support.tokenizer import make_tokenizer

PAIRS = "logical_inference_translation"


class Exchange:
    """Collective calls among threads."""

    def __init__(self, size: int):
        self.barrier = threading.Barrier(size, timeout=60)
        self.values: list[bytes] = [b""] * size

    def gather(self, found: list, own: object) -> None:
        self.values[processes.share()[0]] = pickle.dumps(own)
        self.barrier.wait()
        found[:] = map(pickle.loads, self.values)
        self.barrier.wait()

    def broadcast(self, found: list, src: int) -> None:
        everywhere: list = [None] * len(self.values)
        self.gather(everywhere, found[0])
        found[0] = everywhere[src]


def together(work: Callable[[], object], size: int, monkeypatch) -> list:
    """What `work` returns in each of so many processes."""
    exchange = Exchange(size)
    monkeypatch.setattr(torch.distributed, "all_gather_object", exchange.gather)
    monkeypatch.setattr(torch.distributed, "broadcast_object_list", exchange.broadcast)

    def process(rank: int) -> object:
        token = processes._GROUP.set((rank, size))
        try:
            return work()
        except BaseException:
            exchange.barrier.abort()
            raise
        finally:
            processes._GROUP.reset(token)

    with ThreadPoolExecutor(size) as pool:
        done = [pool.submit(process, rank) for rank in range(size)]
    # a process that waits for one that has failed fails, too
    failures = [each.exception() for each in done if each.exception() is not None]
    for failure in sorted(failures, key=lambda each: isinstance(each, threading.BrokenBarrierError)):
        raise failure
    return [each.result() for each in done]


def pieces(batch, size: int = 3) -> list[dict[str, torch.Tensor]]:
    return [rows(batch, slice(start, start + size)) for start in range(0, len(batch["input_ids"]), size)]


def of_classifier(model, batches, tokenizer):
    return halting_table(evaluate_batches(model, batches).record)


def of_thresholds(model, batches, tokenizer):
    found = sweep_thresholds(model, batches, [0.3, 0.7], repeats=1)
    for row in (found["full_depth"], *found["thresholds"]):
        del row["seconds"], row["relative_time"]
    return found


def of_answers(model, batches, tokenizer):
    found = judged_answers(model, batches, most_units=1000)
    return {name: getattr(found, name).double().numpy() for name in found._fields}


def of_texts(model, batches, tokenizer):
    numbered = []
    for number, batch in enumerate(batches):
        first = 3 * number
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        numbered.append({**inputs, "text": torch.arange(first, first + len(batch["input_ids"]))})
    found = collect_text_losses(model, numbered)
    return {name: getattr(found, name).to_numpy() for name in ("positions", "texts")}


def of_documents(model, batches, tokenizer):
    texts = [" ".join(f"w{4 + (3 * number + place) % 20}" for place in range(number)) for number in (40, 9, 25, 1, 17)]
    documents = [{"text": text, "num_bytes": len(text), "num_words": len(text.split())} for text in texts]
    return evaluate_split(model, tokenizer, Dataset.from_list(documents), segment_length=8, batch_size=2)


def of_pairs(model, batches, tokenizer):
    kind, sizes = get_task("translation"), {"num_train": 4, "num_validation": 4, "num_test": 7}
    task = kind(kind.arguments(benchmark=PAIRS, benchmark_params=sizes))
    examples, table = task.load_splits(tokenizer).evaluation[0].measure(model, tokenizer, 2)
    texts = {name: examples[name].tolist() for name in ("label", "prediction")}
    return {"target": table["target"], "steps": examples["steps"].to_numpy(), **texts}


def made(name: str):
    """A model, batches and a tokenizer."""
    if name in ("classifier", "thresholds", "answers"):
        return make_model(BY_NAME["gut"]), pieces(make_batch(BY_NAME["gut"])), None
    if name in ("language", "texts"):
        variant = LANGUAGE_BY_NAME["ut"]
        return make_language_model(variant), pieces(make_text(variant)), None
    if name == "tokens":
        return make_head("ut", TOKENS), pieces(make_head_batch("ut", TOKENS), 2), None
    if name == "documents":
        return make_language_model(LANGUAGE_BY_NAME["block_recurrent"]), None, make_tokenizer()
    tokenizer, experts = build_tokenizer(PAIRS), {"attention_experts": 3, "feed_forward_experts": 3}
    experts |= {f"{name}_per_token": 2 for name in experts}
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 1, "head_dim": 8, **experts}
    ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    torch.manual_seed(0)
    config = SUTConfig(
        is_encoder_decoder=True, halting="token", vocab_size=len(tokenizer), intermediate_size=12, **sizes, **ids
    )
    return SUTForConditionalGeneration(config).eval(), None, tokenizer


WAYS = {
    "classifier": of_classifier,
    "language": of_classifier,
    "tokens": of_classifier,
    "thresholds": of_thresholds,
    "answers": of_answers,
    "texts": of_texts,
    "documents": of_documents,
    "pairs": of_pairs,
}


def assert_alike(found, expected) -> None:
    """Equal, and numbers up to rounding: sums are taken in another order."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert_alike(found[name], value)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other)
    elif isinstance(expected, (float, np.ndarray)):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    else:
        assert found == expected


@pytest.mark.parametrize("size", [2, nightly(3)])
@pytest.mark.parametrize("name", WAYS)
def test_processes_find_together_what_one_finds_alone(name, size, monkeypatch):
    model, batches, tokenizer = made(name)
    expected = WAYS[name](model, batches, tokenizer)
    calls = threading.local()

    def work():
        own = copy.deepcopy(model)
        calls.number = 0
        own.get_input_embeddings().register_forward_hook(lambda *_: setattr(calls, "number", calls.number + 1))
        return WAYS[name](own, batches, tokenizer), calls.number

    alone = SimpleNamespace(number=0)
    # collecting halting calls parts of a model, not the model
    model.get_input_embeddings().register_forward_hook(lambda *_: setattr(alone, "number", alone.number + 1))
    WAYS[name](model, batches, tokenizer)
    found = together(work, size, monkeypatch)
    for result, number in found:
        assert_alike(result, expected)
        assert number < alone.number


def test_more_processes_than_batches(monkeypatch):
    model, batches, _ = made("classifier")
    expected = of_classifier(model, batches[:1], None)
    for found in together(lambda: of_classifier(copy.deepcopy(model), batches[:1], None), 2, monkeypatch):
        assert_alike(found, expected)
    with pytest.raises(ValueError, match="there are no batches to evaluate on"):
        together(lambda: of_classifier(copy.deepcopy(model), [], None), 2, monkeypatch)


@pytest.mark.parametrize("size", [2, 3])
def test_processes_predict_one_file(size, tmp_path, monkeypatch):
    model, tokenizer = make_model(BY_NAME["gut"], num_labels=3), make_tokenizer()
    texts = [" ".join(f"w{4 + (row * place) % 20}" for place in range(1, 2 + row % 7)) for row in range(30)]
    settings = PredictionSettings(batch_size=4)
    monkeypatch.setattr("hf_recurrent.analysis.predict.WINDOW_ROWS", 8)

    def predicted(name: str):
        table = Dataset.from_dict({"text": texts})
        return predict_file(copy.deepcopy(model), tokenizer, table, tmp_path / name, settings)

    alone = predicted("alone.csv")
    assert together(lambda: predicted("together.csv"), size, monkeypatch) == [alone] * size
    one, other = (pd.read_csv(tmp_path / name) for name in ("alone.csv", "together.csv"))
    pd.testing.assert_frame_equal(one, other, rtol=1e-4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone.csv", "together.csv"]
