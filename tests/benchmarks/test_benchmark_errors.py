"""Every refusal names the argument, what it was, and what to do; nothing half-written stays behind."""

import re

import numpy as np
import pytest

from hf_recurrent.benchmarks import benchmark_info, load_benchmark, normalize_expression


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (("listop",), {}, "unknown benchmark 'listop'; available: listops, logical_inference"),
        (
            ("listops", "long"),
            {},
            "unknown config 'long' of benchmark 'listops'; available: original, length_",
        ),
        (("listops",), {"split": "dev"}, "unknown split 'dev' .*available: train, validation, test"),
        (
            ("listops", "lra"),
            {"split": "train+x[:3]"},
            "unknown split 'x' .*available: train, validation, test",
        ),
        (("listops",), {"depth": 3}, "unknown parameter 'depth' for benchmark 'listops'.*max_depth"),
        (("listops", "length_generalization"), {"num_train": 3}, "unknown parameter 'num_train'.*num_test"),
        (("listops",), {"num_test": -1}, "num_test=-1: expected an integer >= 0"),
        (("listops",), {"num_test": 2.5}, "num_test=2.5: expected an integer"),
        (("listops",), {"max_depth": True}, "max_depth=True: expected an integer >= 1"),
        (("listops",), {"max_arguments": 1}, "max_arguments=1: expected None or an integer >= 2"),
        (("listops",), {"max_arguments": None}, "max_arguments=None: config 'original' needs a number"),
        (("listops", "lra"), {"max_length": None}, "max_length=None: config 'lra' needs a number"),
        (
            ("listops",),
            {"operators": ["[MAX", "[AVG"]},
            r"operators=\['\[MAX', '\[AVG'\]: expected one or more of",
        ),
        (("listops",), {"operators": []}, r"operators=\[\]: expected one or more of \[MIN"),
        (
            ("listops",),
            {"value_probability": 1.0},
            "value_probability=1.0: expected a number strictly between",
        ),
        (("listops",), {"depth_balanced": 1}, "depth_balanced=1: expected True or False"),
        (("listops",), {"min_length": 9, "max_length": 5}, "min_length=9 is larger than max_length=5"),
        (("listops",), {"min_length": 9}, "min_length=9: give max_length too"),
        (("listops", "length_generalization"), {"min_length": 9}, "give both limits"),
        (("listops",), {"num_train": 0, "num_validation": 0, "num_test": 0}, "every split has 0 examples"),
        (("listops",), {"max_depth": 1, "max_arguments": 2}, "only 410 different trees .*need 100000 .*authors' 89000"),
        (
            ("listops",),
            {"value_probability": 0.3},
            "value_probability=0.3: .*tokens on average; give max_length",
        ),
        (("listops", "length_generalization"), {"max_depth": 2}, "no tree with depth up to 2.*200-300 tokens"),
        (
            ("listops", "length_generalization"),
            {"max_depth": 2, "depth_balanced": True},
            "no tree with depth up to 2.*200-300 tokens",
        ),
        (
            ("listops",),
            {"num_train": 9, "max_train_length": 3, "num_test": 1, "num_validation": 1},
            "max_train_length=3",
        ),
        (
            ("logical_inference",),
            {"max_train_operators": 12},
            "max_train_operators=12: expected an integer from 1",
        ),
        (("logical_inference",), {"num_train": 10**7}, "num_train=10000000, .*ask for fewer examples"),
        (
            ("logical_inference",),
            {"num_train": 0, "num_validation": 0, "num_test": 0},
            "every split has 0 examples",
        ),
    ],
)
def test_bad_arguments(tmp_path, args, kwargs, message):
    with pytest.raises(ValueError, match=re.compile(message, re.DOTALL)):
        load_benchmark(*args, cache_dir=tmp_path, **kwargs)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_numpy_integers_are_integers(tmp_path):
    sizes = {"num_train": np.int64(5), "num_validation": 0, "num_test": 0}
    assert len(load_benchmark("listops", cache_dir=tmp_path, **sizes)["train"]) == 5


LISTOPS_FORM = "expected 'label<TAB>expression'"


@pytest.mark.parametrize(
    ("name", "config", "file", "lines", "message"),
    [
        ("listops", "original", "test_d20s.tsv", ["3\t3", "3 3"], f":2: {LISTOPS_FORM}, got '3 3'"),
        ("listops", "original", "test_d20s.tsv", ["3\t3", ""], f":2: {LISTOPS_FORM}, got ''"),
        ("listops", "original", "test_d20s.tsv", ["x\t3"], ":1: expected a label from 0 to 9 .*, got 'x'"),
        (
            "listops",
            "original",
            "test_d20s.tsv",
            ["3\t( [MAX 3"],
            ":1: expected a ListOps expression: .*not closed",
        ),
        ("listops", "original", "test_d20s.tsv", ["3\t3", "4\t3"], ":2: expected the label 3, .*got 4"),
        ("listops", "lra", "basic_test.tsv", ["3\t3"], ":1: expected the header"),
        ("listops", "lra", "basic_test.tsv", ["Source\tTarget", "3\t4"], ":2: expected the label 3"),
        ("logical_inference", "original", "train0", ["#\ta\tb", "#\ta"], ":2: expected 'label<TAB>sentence"),
        (
            "logical_inference",
            "original",
            "train0",
            ["?\ta\tb"],
            r":1: expected a label out of # < >.*got '\?'",
        ),
        (
            "logical_inference",
            "original",
            "train0",
            ["#\ta\t( b"],
            ":1: expected two sentences: .*not closed",
        ),
        (
            "logical_inference",
            "original",
            "train0",
            ["=\ta\tb"],
            ":1: expected the label #, by truth tables, got =",
        ),
    ],
)
def test_bad_files(tmp_path, name, config, file, lines, message):
    for n in range(1, 7):
        (tmp_path / f"train{n}").write_text("")
    (tmp_path / file).write_text("\n".join(lines) + "\n")
    cache = tmp_path / "cache"
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / file)) + message):
        load_benchmark(name, config, data_dir=tmp_path, cache_dir=cache)
    assert not [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert not list(cache.rglob("*incomplete"))


def test_bad_encoding(tmp_path):
    (tmp_path / "test_d20s.tsv").write_bytes(b"3\t\xff\n")
    with pytest.raises(ValueError, match=r"test_d20s.tsv: expected UTF-8 text"):
        load_benchmark("listops", data_dir=tmp_path, cache_dir=tmp_path / "cache")


@pytest.mark.parametrize(
    ("config", "kwargs", "message"),
    [
        ("original", {}, "data_dir='.*none of the expected files is there .train_d20s.tsv"),
        ("length_generalization", {}, "data_dir: .*has no files; it works for original, lra"),
        ("original", {"seed": 1}, "unknown parameter 'seed' .*with data_dir.*available: max_train_length"),
        ("lra", {"num_test": 1}, "unknown parameter 'num_test' .*available: none"),
    ],
)
def test_bad_data_dir(tmp_path, config, kwargs, message):
    with pytest.raises(ValueError, match=message):
        load_benchmark("listops", config, data_dir=tmp_path, cache_dir=tmp_path / "cache", **kwargs)


def test_unknown_names_elsewhere():
    with pytest.raises(ValueError, match="unknown benchmark 'x'"):
        benchmark_info("x")
    with pytest.raises(ValueError, match="unknown benchmark 'x'"):
        normalize_expression("a", "x")
    with pytest.raises(ValueError, match=r"not a ListOps expression: '.MAX 2': 1 list"):
        normalize_expression("[MAX 2")
