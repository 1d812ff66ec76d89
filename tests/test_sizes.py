"""Sizes of models: defaults, widths that follow others, and named sizes."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, AutoModel

import hf_recurrent
from hf_recurrent import (
    ARCHITECTURES,
    BlockRecurrentConfig,
    GUTConfig,
    NDRConfig,
    RNNConfig,
)
from hf_recurrent.hub.bundle import code_files

NAMES = ("tiny", "small", "base", "large")
# hidden_size, num_attention_heads, head_dim, intermediate_size of the papers' base models
ENCODER = (512, 8, 64, 1024)
BASE = {
    **dict.fromkeys(("xpos_transformer", "ut", "gut", "tlb", "gutlb"), ENCODER),
    "ndr": (256, 1, 256, 512),
    "block_recurrent": (1024, 8, 128, 4096),
    "sut": (512, 4, 64, 512),
    "albert_recurrent": (768, 12, 64, 3072),
    "ouro_recurrent": (2048, 16, 128, 5632),
}
every_architecture = pytest.mark.parametrize("architecture", ARCHITECTURES)


def config_class(architecture: str) -> type:
    return ARCHITECTURES[architecture].config_class


def sizes(config) -> tuple[int, ...]:
    return config.hidden_size, config.num_attention_heads, config.head_dim, config.intermediate_size


def count(model_class: type, config) -> int:
    with torch.device("meta"):
        return model_class(config).num_parameters()


@pytest.mark.parametrize("architecture", BASE)
def test_default_sizes_are_the_papers(architecture):
    config = config_class(architecture)()
    assert sizes(config) == BASE[architecture]
    assert getattr(config, "gate_intermediate_size", 1024) == 1024


def test_default_sizes_of_recurrent_baselines_are_the_papers():
    config = RNNConfig()
    assert (config.hidden_size, config.embedding_size, config.memory_cell_size) == (200, 16, 200)


@every_architecture
def test_docstrings_give_the_parameters_of_the_default_model(architecture):
    (sentence,) = re.findall(r"Parameters by default: ([^.]*)\.", config_class(architecture).__doc__)
    found = {name: int(number.replace(",", "")) for number, name in re.findall(r"([\d,]+)\s+\(`(\w+)`\)", sentence)}
    assert f"{ARCHITECTURES[architecture].prefix}Model" in found
    for name, number in found.items():
        fields = {"is_encoder_decoder": True} if name.endswith("ForConditionalGeneration") else {}
        assert count(getattr(hf_recurrent, name), config_class(architecture)(**fields)) == number


@pytest.mark.parametrize("width", [8, 36, 320])
@pytest.mark.parametrize("architecture", BASE)
def test_sizes_that_are_not_given_follow_the_width(architecture, width):
    config = config_class(architecture)(hidden_size=width)
    base_width, heads, _, inner = BASE[architecture]
    assert config.intermediate_size * base_width == inner * width
    assert getattr(config, "gate_intermediate_size", config.intermediate_size) == config.intermediate_size
    if architecture == "sut":
        assert (config.num_attention_heads, config.head_dim) == (4, width // 8)
    else:
        assert config.num_attention_heads * config.head_dim == width
        assert config.num_attention_heads <= heads
    with torch.device("meta"):
        AutoModel.from_config(config)


@pytest.mark.parametrize(
    ("made", "heads"),
    [
        # 8 wherever 8 divide the width, into pairs of dimensions where positions rotate those
        (GUTConfig(hidden_size=16), 8),
        (GUTConfig(hidden_size=36), 6),
        (GUTConfig(hidden_size=8), 4),
        (GUTConfig(hidden_size=34), 1),
        (BlockRecurrentConfig(hidden_size=35), 7),
        (NDRConfig(hidden_size=36), 1),
        # heads whose width is given need not divide anything
        (GUTConfig(hidden_size=36, head_dim=10), 8),
        (GUTConfig(hidden_size=36, num_attention_heads=2), 2),
    ],
)
def test_heads_divide_the_width(made, heads):
    assert made.num_attention_heads == heads


def test_sizes_that_are_given_stay():
    given = {"hidden_size": 32, "num_attention_heads": 2, "head_dim": 10, "intermediate_size": 7}
    for architecture in BASE:
        assert sizes(config_class(architecture)(**given)) == tuple(given.values())
    assert GUTConfig(intermediate_size=7).gate_intermediate_size == 7
    assert GUTConfig(hidden_size=32, gate_intermediate_size=7).intermediate_size == 64


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_size": 37}, "`head_dim` is 37: .*must be even and at least 2; set it, or an even hidden_size"),
        ({"hidden_size": 36, "num_attention_heads": 8}, r"`num_attention_heads` is 8: it must divide hidden_size \(36"),
        ({"hidden_size": 2**20}, "`intermediate_size` is 2097152: it must be at most 1048576"),
        ({"hidden_size": None}, "`hidden_size` is None: it must be int"),
    ],
)
def test_sizes_that_cannot_be(fields, message):
    with pytest.raises((ValueError, StrictDataclassError), match=message):
        GUTConfig(**fields)


@every_architecture
def test_saved_configs_hold_every_size(architecture, tmp_path):
    """Whatever later versions make of a width, a checkpoint has the sizes that it was saved with."""
    config = config_class(architecture)(hidden_size=32)
    config.save_pretrained(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    followed = {"num_attention_heads", "head_dim", "intermediate_size", "gate_intermediate_size"}
    followed |= {"embedding_size", "memory_cell_size", "num_key_value_heads"}
    followed &= set(config_class(architecture).__dataclass_fields__)
    assert followed
    assert {name: stored[name] for name in followed} == {name: getattr(config, name) for name in followed}
    loaded = AutoConfig.from_pretrained(tmp_path, hidden_size=64)
    assert loaded.hidden_size == 64
    assert all(getattr(loaded, name) == stored[name] for name in followed)
    for name in followed:
        with pytest.raises((ValueError, StrictDataclassError), match=f"`{name}` is None: .*pass a value, or leave"):
            AutoConfig.from_pretrained(tmp_path, **{name: None})


def test_written_configs_may_leave_sizes_out(tmp_path):
    """No save leaves one out, but who writes a config.json by hand may."""
    (tmp_path / "config.json").write_text('{"model_type": "gut", "hidden_size": 64, "intermediate_size": null}')
    assert sizes(AutoConfig.from_pretrained(tmp_path)) == (64, 8, 8, 128)


def parameters_of_presets(architecture: str) -> dict[str, int]:
    """The parameters that the page of an architecture gives for each preset."""
    page = (Path(__file__).parents[1] / "docs" / "architectures" / f"{architecture}.md").read_text(encoding="utf-8")
    table = page.partition(f"<!-- fill: presets {architecture} -->")[2].partition("<!-- filled -->")[0]
    rows = re.findall(r"^\| `(\w+)` \| .* \| ([\d,]+) \|$", table, re.MULTILINE)
    return {name: int(number.replace(",", "")) for name, number in rows}


@every_architecture
def test_pages_have_the_parameters_of_all_presets(architecture):
    found = ARCHITECTURES[architecture].config_class
    assert tuple(found.presets) == NAMES
    assert list(parameters_of_presets(architecture)) == [*found.presets, *found.papers]


@pytest.mark.parametrize("name", NAMES)
@every_architecture
def test_presets_have_the_parameters_that_their_page_says(architecture, name):
    found = ARCHITECTURES[architecture]
    config = found.config_class.preset(name)
    assert type(config) is found.config_class
    assert count(found.model_class("AutoModel"), config) == parameters_of_presets(architecture)[name]
    for auto_class in found.heads:
        fields = {"is_encoder_decoder": True} if auto_class == "AutoModelForSeq2SeqLM" else {}
        if (architecture, auto_class) == ("rnn", "AutoModelForMaskedLM"):
            fields = {"cell": "bilstm"}
        count(found.model_class(auto_class), found.config_class.preset(name, **fields))


@every_architecture
def test_base_is_the_default_and_sizes_grow(architecture):
    found = ARCHITECTURES[architecture]
    assert found.config_class.preset("base").to_dict() == found.config_class().to_dict()
    numbers = [parameters_of_presets(architecture)[name] for name in NAMES]
    assert numbers == sorted(numbers)


@every_architecture
def test_further_fields_are_over_those_of_a_preset(architecture):
    made = config_class(architecture).preset("tiny", vocab_size=100, hidden_size=96, num_labels=5)
    assert (made.vocab_size, made.hidden_size, made.num_labels) == (100, 96, 5)
    if architecture in BASE:
        assert made.intermediate_size == config_class(architecture)(hidden_size=96).intermediate_size
    # a table of sizes is not a config's to change
    assert config_class(architecture).preset("tiny").hidden_size != 96


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tiney", r"no preset 'tiney': pass one of tiny, small, base, large, dynamic_halt; did you mean 'tiny'\?"),
        ("7b", "no preset '7b': pass one of tiny, small, base, large, dynamic_halt$"),
        (["tiny"], r"no preset \['tiny'\]: pass one of"),
    ],
)
def test_unknown_presets(name, message):
    with pytest.raises(ValueError, match=message):
        GUTConfig.preset(name)


def test_classes_of_users_have_the_sizes_of_their_base():
    class Mine(GUTConfig):
        model_type = "mine"

    assert type(Mine.preset("tiny")) is Mine
    assert Mine.preset("tiny").hidden_size == 64


@pytest.mark.slow
@every_architecture
def test_the_code_of_checkpoints_reads_what_was_saved_before(architecture, tmp_path, monkeypatch):
    folder = tmp_path / f"bundled_{architecture}"
    folder.mkdir()
    for name, text in code_files(architecture, "AutoModel", config_class(architecture)().to_dict()).items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module(f"{folder.name}.configuration_{architecture}")
    bundled = getattr(module, config_class(architecture).__name__)
    assert bundled is not config_class(architecture)
    old = {"model_type": architecture, "transformers_version": "5.17.0"}
    assert bundled.from_dict(old).to_dict() == config_class(architecture).from_dict(old).to_dict()
    for name in [name for name in sys.modules if name.startswith(folder.name)]:
        del sys.modules[name]
