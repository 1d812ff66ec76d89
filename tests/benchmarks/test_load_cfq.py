"""`load_benchmark("cfq", ...)`: the authors' archive, the tables of the Hub, and what is wrong with either."""

import re

import pytest
from huggingface_hub import HfApi
from sequence_files import INDICES, QUESTIONS, write_cfq, write_rows

from hf_recurrent.benchmarks import (
    benchmark_info,
    build_tokenizer,
    load_benchmark,
)
from hf_recurrent.benchmarks.cfq.benchmark import make_example
from support.client import client_in_this_process
from support.loopback_hub import LoopbackHub

SPLITS = dict(zip(("train", "validation", "test"), INDICES.values(), strict=True))


def expected(places, group=True, inverses=False):
    return [make_example(*QUESTIONS[place], group, inverses, "") for place in places]


@pytest.mark.parametrize("config", benchmark_info("cfq").configs)
def test_the_authors_archive(config, tmp_path, cache):
    splits = load_benchmark("cfq", config, data_dir=write_cfq(tmp_path / "in", config), cache_dir=cache)
    inverses = config in ("mcd2", "mcd3")
    # rows are in the order of the archive
    assert {name: rows.to_list() for name, rows in splits.items()} == {
        name: expected(sorted(places), inverses=inverses) for name, places in SPLITS.items()
    }
    assert benchmark_info("cfq").parameters[config]["normalize_inverses"] == inverses


def test_options(tmp_path, cache):
    folder = write_cfq(tmp_path / "in")
    for group in (True, False):
        for inverses in (True, False):
            rows = load_benchmark(
                "cfq",
                data_dir=folder,
                cache_dir=cache,
                split="train",
                group_triples=group,
                normalize_inverses=inverses,
            )
            assert rows.to_list() == expected([0, 3], group, inverses)


# what the client library does when it uploads
@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
def test_from_the_hub(tmp_path, cache):
    folder = tmp_path / "tables"
    for split, places in (("train", [0, 1]), ("test", [2])):
        rows = [dict(zip(("question", "query"), QUESTIONS[place], strict=True)) for place in places]
        write_rows(folder / f"mcd2/{split}-00000-of-00001.parquet", rows)
    with LoopbackHub() as hub, client_in_this_process(hub, tmp_path):
        api = HfApi(hub.endpoint, token=hub.token)
        api.create_repo("org/cfq", repo_type="dataset")
        api.upload_folder(folder_path=folder, repo_id="org/cfq", repo_type="dataset")
        splits = load_benchmark("cfq", "mcd2", dataset="org/cfq", cache_dir=cache)
        # the Hub's data set has no validation questions
        assert {name: rows.to_list() for name, rows in splits.items()} == {
            "train": expected([0, 1], inverses=True),
            "test": expected([2], inverses=True),
        }
        with pytest.raises(ValueError, match=r"dataset='org/cfq' has no files mcd1/<split>-\*\.parquet"):
            load_benchmark("cfq", "mcd1", dataset="org/cfq", cache_dir=cache)
        with pytest.raises(
            ValueError, match=r"dataset='org/none', revision='main' cannot be downloaded from the Hub(.|\n)*dir"
        ):
            load_benchmark("cfq", dataset="org/none", cache_dir=cache)
        assert hub.unknown == []
    # what was downloaded is read from a folder too
    again = load_benchmark("cfq", "mcd2", data_dir=folder, cache_dir=tmp_path / "other")
    assert again["train"].to_list() == splits["train"].to_list()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trainIdxs": [0, 4]}, r"mcd1\.json: trainIdxs names item 4, but .*dataset\.json has 4"),
        ({"devIdxs": None}, "expected devIdxs, a list of whole numbers"),
        ({"devIdxs": [True]}, "expected devIdxs, a list of whole numbers"),
        ({"devIdxs": [-1]}, "expected devIdxs, a list of whole numbers"),
        (
            {"items": [QUESTIONS[0], ("Who", ""), QUESTIONS[1], QUESTIONS[2]]},
            r"dataset\.json, item 1: the target is empty",
        ),
        ({"items": [(" ", "SELECT")] * 4}, r"dataset\.json, item 0: the source is empty"),
        ({"items": [("Who", None)] * 4}, "item 0: expected text in sparqlPatternModEntities, got None"),
        ({"items": [("Who", "SELECT")] * 4}, "item 0: not a query of the data set: expected a query with one pair"),
    ],
)
def test_damaged_archives(change, message, tmp_path, cache):
    with pytest.raises(ValueError, match=message):
        load_benchmark("cfq", data_dir=write_cfq(tmp_path / "in", **change), cache_dir=cache)


def test_damaged_files(tmp_path, cache):
    folder = write_cfq(tmp_path / "in")
    (folder / "splits/mcd1.json").write_text("[")
    with pytest.raises(ValueError, match=r"mcd1\.json is not JSON: "):
        load_benchmark("cfq", data_dir=folder, cache_dir=cache)
    write_cfq(folder)
    content = (folder / "dataset.json").read_text()
    (folder / "dataset.json").write_text(content[:-20])
    with pytest.raises(ValueError, match=r"dataset\.json: an object is damaged or not whole"):
        load_benchmark("cfq", data_dir=folder, cache_dir=cache)
    (folder / "dataset.json").unlink()
    with pytest.raises(ValueError, match=r"none of the expected files is there \(dataset\.json and splits"):
        load_benchmark("cfq", data_dir=folder, cache_dir=cache)
    write_rows(folder / "mcd1/train-0.parquet", [{"question": "Who", "answer": "x"}])
    with pytest.raises(ValueError, match=r"train-0\.parquet: expected a column query, found question, answer"):
        load_benchmark("cfq", data_dir=folder, cache_dir=cache)
    write_rows(folder / "mcd1/train-0.parquet", [{"question": "Who", "query": 7}])
    with pytest.raises(ValueError, match=r"train-0\.parquet, row 1: expected text in query, got 7"):
        load_benchmark("cfq", data_dir=folder, cache_dir=cache)


@pytest.mark.parametrize(
    ("config", "kwargs", "message"),
    [
        ("mcd4", {}, "unknown config 'mcd4' of benchmark 'cfq'; available: mcd1, mcd2, mcd3, random_split"),
        ("mcd1", {"group_triples": 1}, "group_triples=1: expected True or False"),
        ("mcd1", {"dataset": "x"}, "unknown parameter 'dataset' .*with data_dir.*available: group_triples, normalize"),
        ("mcd1", {"split": "dev"}, "unknown split 'dev' .*available: train, validation, test"),
    ],
)
def test_bad_arguments(config, kwargs, message, tmp_path, cache):
    with pytest.raises(ValueError, match=message):
        load_benchmark("cfq", config, data_dir=write_cfq(tmp_path / "in"), cache_dir=cache, **kwargs)


def test_without_rows_there_is_no_tokenizer():
    with pytest.raises(
        ValueError, match=re.escape("use sequence_tokenizer('cfq', examples) with the examples of the train")
    ):
        build_tokenizer("cfq")
