"""An export in parts is, put together, the export of one machine; parts that do not belong together are told."""

import json
import shutil

import pytest
from small_export import CONFIGS, PARAMS, SMALL, contents

from hf_recurrent.benchmarks import benchmark_info, load_benchmark
from hf_recurrent.benchmarks.export import export_benchmark, export_part, merge_parts
from hf_recurrent.benchmarks.sampling import Part


@pytest.mark.parametrize("count", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("number", [0, 1, 6, 16, 98])
def test_parts_are_runs_of_the_whole(number, count):
    shards = list(range(number))
    runs = [Part(place, count).of(shards) for place in range(1, count + 1)]
    assert [shard for run in runs for shard in run] == shards
    sizes = [len(run) for run in runs]
    assert max(sizes) - min(sizes) <= 1
    assert runs[0] or not shards, "the first one knows all splits and their order"


@pytest.fixture(scope="module")
def shares(tmp_path_factory):
    """Two parts of the export that `exported` is the whole of, and one of another export."""
    home = tmp_path_factory.mktemp("shares")
    options = {"configs": CONFIGS, "params": PARAMS, "cache_dir": home / "cache"}
    return [export_part("listops", home / f"part{n}", (n, 2), **options) for n in (1, 2)]


def test_parts_make_the_bytes_of_the_whole(exported, shares, tmp_path):
    rows = [json.loads((share / "part.json").read_text())["files"] for share in shares]
    assert all(rows)
    merged = merge_parts(shares[::-1], tmp_path / "whole")
    assert contents(merged) == contents(exported)


def test_more_parts_than_examples(tmp_path):
    """Of which some have no example of a split, or none at all."""
    options = {"configs": ["original"], "params": {"num_train": 3, "num_validation": 0, "num_test": 1}}
    options["cache_dir"] = tmp_path / "cache"
    parts = [export_part("listops", tmp_path / str(number), (number, 5), **options) for number in range(1, 6)]
    numbers = [len(json.loads((part / "part.json").read_text())["files"]) for part in parts]
    assert (max(numbers), min(numbers)) == (2, 0)
    whole = export_benchmark("listops", tmp_path / "whole", **options)
    assert contents(merge_parts(parts, tmp_path / "merged")) == contents(whole)


def test_one_part_is_loaded(cache):
    whole = load_benchmark("listops", **SMALL, cache_dir=cache)
    parts = [load_benchmark("listops", **SMALL, part=(number, 3), cache_dir=cache) for number in (1, 2, 3)]
    for split, rows in whole.items():
        assert [row for part in parts for row in part[split].to_list()] == rows.to_list()
    assert load_benchmark("listops", split="test", **SMALL, part=[2, 3], cache_dir=cache).num_rows == 3
    with pytest.raises(ValueError, match=r"part=\(9, 20\): test has no examples in it; lower the number of parts"):
        load_benchmark("listops", split="test", **SMALL, part=(9, 20), cache_dir=cache)


@pytest.mark.parametrize("part", [(0, 2), (3, 2), (1, 2, 3), "1/2", 2, (True, 2), (1.0, 2)])
def test_bad_parts(part, tmp_path):
    with pytest.raises(ValueError, match=r"part=.*: expected \(number, count\) with 1 <= number <= count"):
        export_part("listops", tmp_path / "part", part)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def copies(shares, tmp_path):
    return [shutil.copytree(share, tmp_path / share.name) for share in shares]


def changed(folder, **whole):
    facts = json.loads((folder / "part.json").read_text())
    facts["whole"] |= whole
    (folder / "part.json").write_text(json.dumps(facts))


def test_what_does_not_belong_together(copies, tmp_path):
    first, second = copies
    other = shutil.copytree(second, tmp_path / "other")
    changed(other, configs={"original": {"seed": 1}, "argument_generalization": {}})
    older = [shutil.copytree(copy, tmp_path / f"older_{copy.name}") for copy in copies]
    for folder in older:
        changed(folder, versions={"hf-recurrent": "0.0.1"})
    for parts, message in [
        ([], "parts: expected folders that `export_part` wrote, found none"),
        ([first], "parts: of 2, missing: 2"),
        ([first, second, shutil.copytree(first, tmp_path / "again")], "parts: of 2, twice: 1"),
        ([first, other], "make both by the same command"),
        (older, "were made by hf-recurrent 0.0.1, and here is hf-recurrent .*: use the same versions"),
        ([first, tmp_path / "none"], r"none has no part.json; make it with `hf-recurrent benchmark export --part`"),
    ]:
        with pytest.raises(ValueError, match=message):
            merge_parts(parts, tmp_path / "whole")
        assert not (tmp_path / "whole").exists()


def test_damaged_parts(copies, tmp_path):
    first, second = copies
    file = next(second.glob("original/train-*"))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"train-.* is missing or damaged: copy or make part 2/2 again"):
        merge_parts(copies, tmp_path / "whole")
    (first / "part.json").write_text('{"part": [1, 2]}')
    with pytest.raises(ValueError, match=r"part1/part.json is not as `export_part` writes it"):
        merge_parts(copies, tmp_path / "whole")


def test_paths_out_of_the_folder_are_refused(copies, tmp_path):
    facts = json.loads((copies[0] / "part.json").read_text())
    facts["splits"]["original"]["train"] = ["../other.parquet"]
    facts["files"] = {name: "" for own in facts["splits"].values() for names in own.values() for name in names}
    (copies[0] / "part.json").write_text(json.dumps(facts))
    with pytest.raises(ValueError, match="its files contradict each other"):
        merge_parts(copies, tmp_path / "whole")


def test_only_a_part_is_replaced(copies, tmp_path):
    options = {"configs": CONFIGS, "params": SMALL, "cache_dir": tmp_path / "cache"}
    again = export_part("listops", copies[0], (2, 3), **options)
    assert json.loads((again / "part.json").read_text())["part"] == [2, 3]
    (copies[1] / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"holds a part and 1 more file\(s\) that would be lost \(notes.txt\)"):
        export_part("listops", copies[1], (2, 3), **options)
    (copies[1] / "part.json").unlink()
    with pytest.raises(ValueError, match="is not empty, and no whole part"):
        export_part("listops", copies[1], (2, 3), **options)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["simple_arithmetic", "logical_inference", "flip_flop", "lra_stand_in"])
def test_every_kind_of_generator(name, tmp_path):
    info = benchmark_info(name)
    sizes = {"num_train": 40, "num_validation": 20, "num_test": 20}
    params = {key: value for key, value in sizes.items() if any(key in own for own in info.parameters.values())}
    options = {"params": params, "cache_dir": tmp_path / "cache"}
    parts = [export_part(name, tmp_path / str(number), (number, 3), **options) for number in (1, 2, 3)]
    whole = export_benchmark(name, tmp_path / "whole", **options)
    assert contents(merge_parts(parts, tmp_path / "merged")) == contents(whole)
