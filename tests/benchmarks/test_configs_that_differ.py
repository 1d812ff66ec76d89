"""A benchmark whose configs have labels, columns and words of their own: `lra`."""

import pytest
from transformers import AutoTokenizer

from hf_recurrent.benchmarks import (
    benchmark_info,
    build_tokenizer,
    describe_example,
    load_benchmark,
    normalize_expression,
    render_example,
)
from hf_recurrent.benchmarks.pixels import draw_picture, parse_pixels

SMALL = {"num_train": 5, "num_validation": 2, "num_test": 3}
CONFIGS = [("lra", config) for config in benchmark_info("lra").configs]
# those that are made here, with what makes few rows of them
MADE = {
    ("lra", "listops"): SMALL,
    ("lra", "pathfinder32"): {**SMALL, "contour_length": 5},
}
PIXELS = {"image": 256, **{f"pathfinder{side}": 256 for side in (32, 64, 128, 256)}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("configs")


@pytest.fixture(scope="module")
def rows(folder):
    """The splits of each config that is made here."""
    cache = str(folder / "cache")
    return {
        (name, config): load_benchmark(name, config, cache_dir=cache, **MADE[name, config]) for name, config in MADE
    }


@pytest.mark.parametrize(("name", "config"), CONFIGS)
def test_facts_of_a_config(name, config):
    info, whole = benchmark_info(name, config), benchmark_info(name)
    assert (info.name, info.configs, info.parameters) == (name, whole.configs, whole.parameters)
    assert info.default_config == whole.default_config
    assert list(info.column_meanings) == [*info.text_columns, *info.slice_columns]
    assert len(info.label_names) >= 2
    assert info.modality == ("words" if config == "listops" else "pixels" if config in PIXELS else "bytes")
    assert len(info.vocabulary) == {"words": 15, "bytes": 256}.get(info.modality) or PIXELS[config]
    assert bool(info.parse_meaning) == (info.modality != "bytes")
    assert len({known.title for known in map(lambda other: benchmark_info(name, other), info.configs)}) == len(
        info.configs
    )


@pytest.mark.parametrize(("name", "config"), MADE)
def test_rows_are_as_the_facts_say(rows, name, config):
    info = benchmark_info(name, config)
    for split in rows[name, config].values():
        assert split.column_names == [*info.text_columns, "label", *info.slice_columns]
        assert tuple(split.features["label"].names) == info.label_names
    row = rows[name, config]["train"][0]
    described = describe_example(name, row, config_name=config)
    assert set(described.texts) == set(info.text_columns)
    assert set(described.difficulty) == set(info.slice_columns)
    assert described.label == info.label_names[row["label"]]
    assert bool(described.tree) == bool(info.parse_meaning)


@pytest.mark.parametrize(("name", "config"), MADE)
def test_tokenizer_of_a_config(rows, name, config, tmp_path):
    info, tokenizer = benchmark_info(name, config), build_tokenizer(name, config)
    assert len(tokenizer) == 4 + len(info.vocabulary)
    row = rows[name, config]["test"][0]
    texts = [row[column] for column in info.text_columns]
    encoded = tokenizer(*texts)
    spelled = {"words": str.split, "pixels": str.split, "bytes": lambda text: list(text.encode())}[info.modality]
    places = {word: 4 + i for i, word in enumerate(range(256) if info.modality == "bytes" else info.vocabulary)}
    expected = [[2, *(places[word] for word in spelled(text)), 3] for text in texts]
    assert encoded["input_ids"] == [token for ids in expected for token in ids]
    assert encoded["token_type_ids"] == [kind for kind, ids in enumerate(expected) for _ in ids]
    tokenizer.save_pretrained(tmp_path)
    assert dict(AutoTokenizer.from_pretrained(tmp_path)(*texts)) == dict(encoded)


def test_the_whole_has_the_facts_of_its_default_config():
    assert benchmark_info("lra").label_names == benchmark_info("lra", "listops").label_names
    assert build_tokenizer("lra").get_vocab() == build_tokenizer("lra", "listops").get_vocab()
    assert build_tokenizer("lra")("( [MAX 2 9 ] )") == build_tokenizer("listops")("[MAX 2 9]")
    assert normalize_expression("[MAX 2 9[MIN 4 7]0]", "lra") == "[MAX 2 9 [MIN 4 7 ] 0 ]"


def test_lists_are_those_of_the_benchmark_they_are_from(rows, folder):
    theirs = load_benchmark("listops", "lra", cache_dir=str(folder / "cache"), **SMALL)
    assert rows["lra", "listops"]["train"][:] == theirs["train"][:]


def test_a_picture_is_drawn_where_it_is_bright():
    picture = parse_pixels("0 0 9 9 0 0 0 9 9")
    assert draw_picture(picture, 2) == "▄ ▀\n ▀▀"
    # one bright pixel of four is enough
    assert draw_picture(parse_pixels("0 0 0 0 0 9 0 0 0 0 0 0 0 0 0 9"), 1) == "▀▄"
    assert render_example("lra", {"pixels": "0 9 9 0"}, 4, "pathfinder32") == "▄▀"
    with pytest.raises(ValueError, match="3 values make no square"):
        render_example("lra", {"pixels": "0 9 9"}, 4, "image")


@pytest.mark.parametrize(
    ("name", "config", "options", "message"),
    [
        ("lra", "pathfinder", {}, "unknown config 'pathfinder' of benchmark 'lra'; available: listops, text,"),
        ("lra", "retrieval", {}, "give data_dir"),
        ("lra", "pathfinder32", {"difficulty": "curv_baseline"}, "difficulty='curv_baseline' chooses among the images"),
        ("lra", "pathfinder32", {"num_validation": None}, "num_validation=None: config 'pathfinder32' needs a number"),
        ("lra", "pathfinder32", {"continuity": 0}, "continuity=0: expected None or a number above 0, of at most 10"),
        ("lra", "image", {"grayscale": "mean"}, "grayscale='mean': expected one of lra, pil"),
        ("lra", "text", {"contour_length": 3}, "unknown parameter 'contour_length' for benchmark 'lra', config 'text'"),
        ("lra", "listops", {"data_dir": "."}, "has no basic_train.tsv, basic_val.tsv, basic_test.tsv"),
    ],
)
def test_bad_input(name, config, options, message):
    with pytest.raises(ValueError, match=message):
        load_benchmark(name, config, **options)
    with pytest.raises(ValueError, match="unknown config 'nothing'"):
        benchmark_info(name, "nothing")
