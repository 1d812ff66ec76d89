"""The evaluation that ends a run reads each example once for each setting that it reports."""

import importlib.metadata

import pytest
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

import hf_recurrent
from hf_recurrent.benchmarks import build_tokenizer
from hf_recurrent.tasks import get_task, task_of_benchmark
from hf_recurrent.tasks.base import short_example
from hf_recurrent.tasks.summary import titled_tables
from hf_recurrent.training import results
from hf_recurrent.training.arguments import ReportArguments
from hf_recurrent.training.results import evaluate_run
from support.families import papers_halting

TINY = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 3}
BENCHMARKS = {
    "listops": (AutoModelForSequenceClassification, {"num_train": 8, "num_test": 60, "max_depth": 3}),
    "flip_flop": (AutoModelForCausalLM, {"train_length": 16, "num_train": 8, "num_test": 40}),
}
# reading one example for figures
DRAWINGS = 8


def number_of_tokens(dataset):
    return sum(len(ids) for ids in dataset["input_ids"][:])


@pytest.mark.parametrize("column", ["n", "steps", "p95", "mean", "size"])
def test_a_column_called_as_a_number_of_the_table_is_shown_beside_it(column):
    numbers = {"accuracy": 0.5, "majority_baseline": 0.25, "steps": {"mean": 2.0, "p95": 3.0, "max": 3}}
    rows = [{"value": value, "n": 70 + value, **numbers} for value in (8, 9)]
    table = {**numbers, "n": 151, "slices": {column: {"rows": rows}}}
    shown = dict(titled_tables({"test": table}, "accuracy"))[f"test by {column}"]
    assert [list(row.values())[:2] for row in shown] == [[8, "78"], [9, "79"]]


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["gut", "ut"])
@pytest.mark.parametrize("benchmark", list(BENCHMARKS))
def test_each_example_is_read_once_for_each_setting(benchmark, model_type, tmp_path):
    auto_class, parameters = BENCHMARKS[benchmark]
    tokenizer = build_tokenizer(benchmark)
    kind = get_task(task_of_benchmark(benchmark))
    task = kind(kind.arguments(benchmark=benchmark, benchmark_params={**parameters, "num_validation": 4}))
    fields = papers_halting(model_type)
    fields |= {"num_labels": 10} if auto_class is AutoModelForSequenceClassification else {}
    model = auto_class.from_config(AutoConfig.for_model(model_type, vocab_size=len(tokenizer), **fields, **TINY))
    splits = task.load_splits(tokenizer).evaluation
    read = 0

    def count(embeddings, inputs):
        nonlocal read
        read += int((inputs[0] != tokenizer.pad_token_id).sum())

    handle = model.get_input_embeddings().register_forward_pre_hook(count)
    evaluate_run(model, tokenizer, splits, tmp_path, ReportArguments(), 8, progress=False)
    handle.remove()

    expected = sum(number_of_tokens(split.dataset) for split in splits)
    assert 0 <= read - expected <= DRAWINGS * len(short_example(splits[0])["input_ids"])
    # which another pass over a split would exceed
    assert DRAWINGS * len(short_example(splits[0])["input_ids"]) < min(number_of_tokens(s.dataset) for s in splits)


def test_a_checkout_that_is_not_installed_has_a_version(monkeypatch):
    known = importlib.metadata.version

    def version(package: str) -> str:
        if package == "hf-recurrent":
            raise importlib.metadata.PackageNotFoundError(package)
        return known(package)

    monkeypatch.setattr(importlib.metadata, "version", version)
    found = results.versions()
    assert found["hf-recurrent"] == hf_recurrent.__version__
    assert list(found) == ["python", "hf-recurrent", "torch", "transformers", "accelerate", "datasets", "numpy"]
