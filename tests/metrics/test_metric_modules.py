"""The exported metrics, loaded by `evaluate` in a clean process in which this package cannot be imported."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hf_recurrent.metrics import (
    accuracy,
    accuracy_by_slice,
    bits_per_token,
    bits_per_unit,
    exact_match,
    exact_match_by_slice,
    export_metric,
    halting_statistics,
    last_read_accuracy,
    list_metrics,
    majority_accuracy,
    majority_match,
    metric_info,
    position_edges,
    position_rows,
    position_sums,
    token_sums,
    word_perplexity,
)
from hf_recurrent.metrics.bleu import bleu, compound_split_bleu
from hf_recurrent.metrics.metric_base import CITATION

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("run_exported_metrics.py")
BATCHES = [3, 1, 8]
EXAMPLES = sum(BATCHES)
each_metric = pytest.mark.parametrize("name", list_metrics())


def example_columns():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 5, EXAMPLES)
    return {
        "predictions": rng.integers(0, 3, EXAMPLES).tolist(),
        "references": rng.integers(0, 3, EXAMPLES).tolist(),
        "depth": rng.integers(1, 4, EXAMPLES).tolist(),
        # strings stay strings, even those that read as numbers
        "kind": rng.choice(["1", "01"], EXAMPLES).tolist(),
        "ratio": rng.choice([0.5, 1.0, 2.5], EXAMPLES).tolist(),
        "sums": rng.uniform(0, 9, EXAMPLES).tolist(),
        "num_tokens": rng.integers(1, 5, EXAMPLES).tolist(),
        "num_bytes": rng.integers(5, 9, EXAMPLES).tolist(),
        "num_characters": rng.integers(3, 6, EXAMPLES).tolist(),
        "num_words": rng.integers(1, 3, EXAMPLES).tolist(),
        "all_tokens": rng.integers(5, 9, EXAMPLES).tolist(),
        "starts": rng.integers(0, 100, EXAMPLES).tolist(),
        "rows": [rng.uniform(0, 3, length).tolist() for length in lengths],
        "mask": [[1, *rng.integers(0, 2, length - 1).tolist()] for length in lengths],
        "steps": rng.integers(0, 7, EXAMPLES).tolist(),
        "unit_steps": [rng.integers(0, 7, length).tolist() for length in lengths],
        "ponder_cost": rng.uniform(0, 6, EXAMPLES).tolist(),
        "tokens": [rng.integers(7, 9, length).tolist() for length in lengths],
        "texts": rng.choice(["der Vor-Ort Test war gut.", "der Test war gut", "1"], EXAMPLES).tolist(),
        "targets": rng.choice(["der Vor-Ort Test war gut.", "der Test war gut"], EXAMPLES).tolist(),
        "sequences": [rng.integers(7, 9, length).tolist() for length in lengths],
        "reads": [[7, *rng.choice([7, 8, -100], length - 1).tolist()] for length in lengths],
    }


DATA = example_columns()


def good_cases():
    """Columns (name of the metric's -> name in DATA), arguments of `compute`, and the numpy function's answer."""
    d = DATA
    words = ["0", "00", "1"]
    labels = {name: [words[label] for label in d[name]] for name in ("predictions", "references")}
    for slices in ("depth", "kind", "ratio"):
        for predictions, references in ((d["predictions"], d["references"]), tuple(labels.values())):
            columns = {"predictions": predictions, "references": references, "slices": d[slices]}
            expected = {
                "accuracy": accuracy(predictions, references),
                "majority_baseline": majority_accuracy(references),
                "n": EXAMPLES,
                "slices": accuracy_by_slice(predictions, references, d[slices]),
            }
            yield "accuracy_by_slice", columns, {}, expected
    for columns in (
        {"negative_log_likelihoods": d["sums"], "num_tokens": d["num_tokens"]},
        {"negative_log_likelihoods": d["sums"], "num_tokens": d["num_tokens"], "num_bytes": d["num_bytes"]},
        {"negative_log_likelihoods": d["rows"]},
        {"negative_log_likelihoods": d["rows"], "mask": d["mask"], "num_bytes": d["num_bytes"]},
    ):
        inputs = {name: values for name, values in columns.items() if name != "num_bytes"}
        sums, counts = token_sums(**inputs)
        num_bytes = columns.get("num_bytes")
        expected = {
            "bits_per_token": bits_per_token(**inputs),
            "bits_per_byte": None if num_bytes is None else bits_per_unit(sums, num_bytes, "num_bytes"),
            "num_tokens": int(counts.sum()),
        }
        yield "bits_per_token", columns, {}, expected
    for columns, arguments in (
        ({"steps": d["steps"]}, {}),
        ({"steps": d["unit_steps"]}, {"max_steps": 6}),
        ({"steps": d["steps"], "difficulty": d["depth"], "slices": d["depth"]}, {"max_steps": 6}),
        ({"steps": d["unit_steps"], "ponder_cost": d["ponder_cost"], "slices": d["kind"]}, {"max_steps": 9}),
    ):
        yield "halting_statistics", columns, arguments, halting_statistics(**columns, **arguments)
    rows = {"predictions": d["tokens"], "references": d["reads"]}
    for slices in (None, "depth", "kind"):
        columns = rows if slices is None else rows | {"slices": d[slices]}
        yield "last_read_accuracy", columns, {}, last_reads(d["tokens"], d["reads"], columns.get("slices"))

    yield from (("long_document_losses", *case) for case in document_cases())
    yield from sequence_cases()


def sequence_cases():
    """Texts and token ids, with and without slices; translations cut into words in two ways."""
    d = DATA
    for predictions, references in ((d["texts"], d["targets"]), (d["tokens"], d["sequences"])):
        for slices in (None, "depth", "kind"):
            columns = {"predictions": predictions, "references": references}
            expected = {
                "exact_match": exact_match(predictions, references),
                "majority_baseline": majority_match(references),
                "n": EXAMPLES,
                "slices": exact_match_by_slice(predictions, references, d[slices]) if slices else {},
            }
            yield "sequence_exact_match", columns | ({"slices": d[slices]} if slices else {}), {}, expected
    for arguments in ({}, {"tokenizer": "none"}):
        found = bleu(d["texts"], d["targets"], **arguments)
        expected = {
            "bleu": found.score,
            "compound_split_bleu": compound_split_bleu(
                d["texts"], d["targets"], arguments.get("tokenizer", "13a")
            ).score,
            "brevity_penalty": found.brevity_penalty,
            "signature": found.signature,
            "n": EXAMPLES,
        }
        yield "translation_bleu", {"predictions": d["texts"], "references": d["targets"]}, arguments, expected


def document_cases():
    """Columns, no arguments, and the answer from the numpy functions, token by token."""
    d = DATA
    sizes = {name: d[name] for name in ("num_bytes", "num_characters", "num_words")}
    for columns in (
        {"negative_log_likelihoods": d["rows"]},
        {"negative_log_likelihoods": d["rows"], "mask": d["mask"], "positions": d["starts"], **sizes},
        {"negative_log_likelihoods": d["rows"], "num_tokens": d["all_tokens"], "num_words": d["num_words"]},
    ):
        rows, mask = columns["negative_log_likelihoods"], columns.get("mask") or [[1] * len(row) for row in d["rows"]]
        starts = columns.get("positions") or [1] * EXAMPLES
        tokens = [
            (value, start + place)
            for row, kept, start in zip(rows, mask, starts, strict=True)
            for place, (value, counts) in enumerate(zip(row, kept, strict=True))
            if counts
        ]
        bits = bits_per_token(rows, mask=mask)
        edges = position_edges(max(place for _, place in tokens))
        sums, _ = token_sums(rows, mask=mask)
        per = {
            name: bits_per_unit(sums, columns[name], name) if name in columns else None
            for name in ("num_bytes", "num_characters")
        }
        words = columns.get("num_words")
        all_tokens = sum(columns.get("num_tokens") or [len(tokens)])
        expected = {
            "bits_per_token": bits,
            "bits_per_byte": per["num_bytes"],
            "bits_per_character": per["num_characters"],
            "word_perplexity": None if words is None else word_perplexity(bits, all_tokens, sum(words)),
            "num_tokens": len(tokens),
            "by_position": position_rows(*position_sums(*zip(*tokens, strict=True), edges), edges),
        }
        yield columns, {}, expected


def last_reads(tokens, reads, slices):
    """The expected result, read by read."""
    pairs = [pair for row in zip(tokens, reads, strict=True) for pair in zip(*row, strict=True) if pair[1] != -100]
    expected = {
        "last_read_accuracy": last_read_accuracy(tokens, reads),
        "read_accuracy": sum(found == wanted for found, wanted in pairs) / len(pairs),
        "n": len(tokens),
        "slices": {},
    }
    for value in sorted(set(slices or ())):
        own = [i for i, other in enumerate(slices) if other == value]
        right = last_read_accuracy([tokens[i] for i in own], [reads[i] for i in own])
        expected["slices"][value] = {"n": len(own), "last_read_accuracy": right}
    return expected


def bad_cases():
    sums, labels = {"negative_log_likelihoods": [1.0, 2.0]}, {"predictions": [1, 0], "references": [1, 1]}
    yield "accuracy_by_slice", {**labels, "slices": [1]}, {}, "ValueError: the columns of a batch must be equally long"
    yield "accuracy_by_slice", labels, {}, "ValueError: Evaluation module inputs are missing: ['slices']"
    empty = {"predictions": [], "references": [], "slices": []}
    yield "accuracy_by_slice", empty, {}, "ValueError: the columns of a batch must be equally long and not empty"
    yield "bits_per_token", sums, {}, "give num_tokens"
    yield "bits_per_token", {**sums, "num_tokens": [3, 4], "mask": [[1], [1]]}, {}, "and no mask"
    yield "bits_per_token", {**sums, "num_tokens": [3, 4.5]}, {}, "num_tokens must be whole numbers"
    yield "bits_per_token", {**sums, "num_tokens": [3, 4], "num_bytes": [1, 0]}, {}, "num_bytes[1] is 0"
    yield "bits_per_token", {**sums, "num_tokens": [3, None]}, {}, "num_tokens is missing for 1 of 2 examples"
    yield "halting_statistics", {"steps": [1, -1]}, {"max_steps": 3}, "at least 0, got -1"
    rows = {"negative_log_likelihoods": [[1.0, 2.0], [3.0]]}
    yield "long_document_losses", {**rows, "num_tokens": [2, 1]}, {}, "give num_words too"
    wrong = {**rows, "num_tokens": [1, 1], "num_words": [1, 1]}
    yield "long_document_losses", wrong, {}, "num_tokens[0] is 1, but 2 tokens of it are predicted"
    yield "long_document_losses", {**rows, "positions": [0, 1.5]}, {}, "positions must be whole numbers"
    yield "long_document_losses", {**rows, "positions": [-1, 1]}, {}, "positions must be whole numbers of at least 0"
    yield "long_document_losses", {**rows, "num_words": [0, 0]}, {}, "num_words=0.0: expected a number of at least 1"
    yield "halting_statistics", {"steps": [1, 4]}, {"max_steps": 3}, "must lie in 0..3"
    yield "halting_statistics", {"steps": [1, 2.5]}, {"max_steps": 3}, "whole numbers of at least 0, got 2.5"
    yield "halting_statistics", {"steps": [1]}, {"max_step": 3}, "unexpected keyword argument 'max_step'"
    texts = {"predictions": ["a", "b"], "references": ["a", ""]}
    yield "sequence_exact_match", texts, {}, "references[1] is empty"
    yield (
        "sequence_exact_match",
        {**texts, "slices": [1]},
        {},
        "ValueError: the columns of a batch must be equally long",
    )
    yield "translation_bleu", texts, {}, "references[1] is empty"
    yield "translation_bleu", texts, {"tokenizer": "moses"}, "tokenizer='moses': expected one of 13a"
    unread = {"predictions": [[7, 8], [7, 8]], "references": [[-100, 8], [-100, -100]]}
    yield "last_read_accuracy", unread, {}, "each with a label other than -100"


def bad_streams():
    """Errors of `add_batch`: columns, sizes of batches, message."""
    yield {"difficulty": [1, 2]}, [2], "ValueError: halting_statistics lacks the columns ['steps']"
    yield {"steps": [1, 2], "depth": [1, 2]}, [2], "ValueError: Bad inputs for evaluation module: ['depth']"
    yield {"steps": [[1], [2]], "difficulty": [1]}, [2], "equally long"
    changing = "ValueError: difficulty is missing for 1 of 2 examples: give it for all or for none"
    yield {"steps": [1, 2], "difficulty": [1]}, [1, 1], changing


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    for name in list_metrics():
        export_metric(name, folder / name)
        export_metric(name, folder / "org" / name, f"org/{name}")
    keys = ("name", "columns", "arguments")
    good = [dict(zip(keys, case[:3], strict=True)) | {"batches": BATCHES} for case in good_cases()]
    bad = [dict(zip(keys, case[:3], strict=True)) for case in bad_cases()]
    bad += [
        {"name": "halting_statistics", "columns": columns, "arguments": {}, "batches": sizes}
        for columns, sizes, _ in bad_streams()
    ]
    (folder / "cases.json").write_text(json.dumps({"names": list_metrics(), "good": good, "bad": bad}))
    offline = {"HF_EVALUATE_OFFLINE": "1", "HF_UPDATE_DOWNLOAD_COUNTS": "0", "HF_HUB_DISABLE_TELEMETRY": "1"}
    environment = {**os.environ, **offline, "HF_HOME": str(folder / "hf_home"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "results.json").read_text())


def documented_names(info, section):
    text = info.documentation.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"^- `(\w+)`: ", text, flags=re.MULTILINE)


def as_json(value):
    """`value` as read back from a JSON file: keys are strings."""
    return json.loads(json.dumps(value))


def test_the_package_was_out_of_reach(results):
    assert "blocked" in results["blocked"]


@each_metric
def test_evaluate_finds_the_class_and_its_documentation(results, name):
    metric, info = results["metrics"][name], metric_info(name)
    assert metric["class"] == info.title.title().replace(" ", "")
    assert metric["module"].startswith("evaluate_modules.metrics.")
    assert metric["description"] == info.documentation.partition("\n\n## Inputs")[0]
    assert metric["citation"] == CITATION
    # documented in the order of the columns; the rest are arguments of `compute`
    documented = documented_names(info, "Inputs")
    assert documented[: len(metric["columns"])] == metric["columns"]
    arguments = {"halting_statistics": ["max_steps"], "translation_bleu": ["tokenizer"]}
    assert documented[len(metric["columns"]) :] == arguments.get(name, [])


@each_metric
def test_the_loader_sees_every_sibling(results, name):
    imports = results["metrics"][name]["imports"]
    assert {f"{module}.py" for kind, module in imports if kind == "internal"} == set(metric_info(name).siblings)


@each_metric
def test_readme_examples(results, name):
    for readme in ("readme", "space_readme"):
        outcome = results["metrics"][name][readme]
        assert outcome["attempted"] >= 5
        assert outcome["report"] == ""


def test_batches_equal_the_numpy_functions(results):
    expected = [case[3] for case in good_cases()]
    assert len(expected) == len(results["good"]) == 28
    assert results["good"] == as_json(expected)


def test_one_call_equals_batches_equals_single_examples(results):
    assert results["single"] == results["good"]
    assert results["direct"] == results["good"]


def test_numbers_stay_as_they_were(results):
    by_depth, _, by_kind, _, by_ratio, _ = results["good"][:6]
    assert set(by_depth["slices"]) <= {"1", "2", "3"}
    assert set(by_kind["slices"]) == {"1", "01"}
    assert set(by_ratio["slices"]) == {"0.5", "1.0", "2.5"}


@each_metric
def test_documented_outputs_are_the_outputs(results, name):
    outputs = [result for case, result in zip(good_cases(), results["good"], strict=True) if case[0] == name]
    assert all(list(result) == documented_names(metric_info(name), "Outputs") for result in outputs)


def test_arrays_and_tensors(results):
    arrays = results["arrays"]
    assert arrays["halting_statistics"] == as_json(halting_statistics([[2, 4], [3], [1, 1, 5]], 5))
    assert arrays["accuracy_by_slice"]["slices"]["4"]["accuracy"] == 0
    assert arrays["bits_per_token"]["bits_per_token"] == pytest.approx(1 / np.log(2) / 3)


def test_bad_input(results):
    wanted = [case[3] for case in bad_cases()] + [case[2] for case in bad_streams()]
    assert len(wanted) == len(results["bad"])
    for text, message in zip(results["bad"], wanted, strict=True):
        assert message in text
