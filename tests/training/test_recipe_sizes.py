"""Sizes of a run's model by name: of its config class, or of another recipe."""

import dataclasses

import pytest
import torch
import yaml
from tiny_run import DOCUMENT_RECIPES, RECIPES, SEQ2SEQ_RECIPES

from hf_recurrent import ARCHITECTURES
from hf_recurrent.models.common.configuration import FOLLOWING
from hf_recurrent.training.arguments import ARGUMENT_TYPES
from hf_recurrent.training.recipes import changes_by_flags, parse, recipe_model

ALL_RECIPES = [*RECIPES, *DOCUMENT_RECIPES, *SEQ2SEQ_RECIPES]
TINY_GUT = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "head_dim": 16,
    "intermediate_size": 128,
    "gate_intermediate_size": 128,
}
by_name = {path.stem: path for path in RECIPES if path.parent.name != "cpu"}


def read(*argv):
    (model, *_), settings = parse(
        [*map(str, argv), "--output_dir", "unused", "--use_cpu", "--bf16", "false"], ARGUMENT_TYPES
    )
    assert settings.get("config", {}) == model.config
    return model.config


@pytest.mark.parametrize("path", ALL_RECIPES, ids=lambda path: path.stem)
def test_recipes_give_their_sizes(path):
    """So that no rule about sizes that are not given can change a recipe's model."""
    recipe = yaml.safe_load(path.read_text())
    config_class, fields = ARCHITECTURES[recipe["model_type"]].config_class, recipe["config"]
    known = {field.name for field in dataclasses.fields(config_class)}
    # these are other sizes, divided or taken over
    needed = {"hidden_size", *FOLLOWING} - {"head_dim", "gate_intermediate_size", "memory_cell_size"}
    needed |= {"head_dim"} if recipe["model_type"] == "sut" else set()
    assert needed & known <= fields.keys()


@pytest.mark.parametrize("path", ALL_RECIPES, ids=lambda path: path.stem)
def test_every_recipe_has_a_model(path):
    model_type, fields = recipe_model(str(path))
    architecture = ARCHITECTURES[model_type]
    with torch.device("meta"):
        model = architecture.model_class("AutoModel")(architecture.config_class(**fields))
    assert model.num_parameters() > 0


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("size", ["tiny", "small", "base", "large"])
def test_presets_become_their_sizes(architecture, size):
    config_class = ARCHITECTURES[architecture].config_class
    fields = read("--model_type", architecture, "--config", f"{{preset: {size}, dropout: 0.25}}")
    assert "preset" not in fields
    assert config_class(**fields).to_dict() == config_class.preset(size, dropout=0.25).to_dict()


def test_a_preset_takes_the_place_of_all_sizes_of_a_recipe():
    """Widths that the recipe writes out would otherwise stay."""
    before = yaml.safe_load(by_name["listops_gut"].read_text())["config"]
    config = read(by_name["listops_gut"], "--config", "{preset: tiny}")
    assert config == {**before, **TINY_GUT}
    assert read(by_name["listops_gut"], "--config", "{preset: base}")["hidden_size"] == 512
    # what a flag gives is over what its preset has, wherever it stands
    for flag in ("{preset: tiny, hidden_size: 96}", "{hidden_size: 96, preset: tiny}"):
        config = read(by_name["listops_gut"], "--config", flag)
        assert (config["hidden_size"], config["head_dim"], config["intermediate_size"]) == (96, 24, 192)
    config = read(by_name["listops_gut"], "--config", "{preset: tiny, intermediate_size: 7, dropout: 0.5}")
    assert (config["intermediate_size"], config["gate_intermediate_size"], config["dropout"]) == (7, 7, 0.5)


def test_presets_in_recipes(write_recipe):
    path = write_recipe(config={"preset": "tiny", "num_hidden_layers": 3})
    assert read(path) == {"num_hidden_layers": 3, **TINY_GUT}
    assert read(path, "--config", "{num_hidden_layers: 4}") == {"num_hidden_layers": 4, **TINY_GUT}
    assert read(path, "--config", "{preset: small}")["hidden_size"] == 256
    assert read("--model_type", "gut", "--config", f"{{preset: {path}}}") == read(path)


def test_the_halting_of_a_paper_is_a_preset():
    """Which leaves the sizes of a recipe alone."""
    paper = {"halting": "global", "depth_objective": "mixture"}
    assert read("--model_type", "gut", "--config", "{preset: dynamic_halt, dropout: 0.5}") == {**paper, "dropout": 0.5}
    before = yaml.safe_load(by_name["demo"].read_text())["config"]
    assert read(by_name["demo"], "--config", "{preset: dynamic_halt}") == {**before, **paper}


def test_a_recipe_is_a_preset():
    text = by_name["lra_text_gut"]
    config = read("--model_type", "gut", "--config", f"{{preset: {text}, dropout: 0.0}}")
    theirs = yaml.safe_load(text.read_text())["config"]
    assert config == {**theirs, "dropout": 0.0, "gate_intermediate_size": 1024}
    # as flags over a recipe that has more fields
    config = read(by_name["listops_gut_no_gate"], "--config", f"{{preset: {text}}}")
    assert (config["hidden_size"], config["feed_forward"]) == (256, "plain")


def test_a_change_of_sizes_is_reported_as_numbers(write_recipe):
    argv = [write_recipe(config={"preset": "tiny"}), "--config", "{preset: small}"]
    settings = parse([*argv, "--output_dir", "unused"], ARGUMENT_TYPES)[1]
    assert changes_by_flags(argv, settings, ARGUMENT_TYPES) == [
        "config.hidden_size = 256 (64)",
        "config.head_dim = 64 (16)",
        "config.intermediate_size = 512 (128)",
        "config.gate_intermediate_size = 512 (128)",
    ]
    settings = parse([argv[0], "--output_dir", "unused"], ARGUMENT_TYPES)[1]
    assert changes_by_flags(argv[:1], settings, ARGUMENT_TYPES) == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            "{preset: tinny}",
            "'tinny': expected one of tiny, small, base, large, dynamic_halt, or a recipe; did you mean tiny",
        ),
        ("{preset: 7}", "config.preset is 7: expected one of tiny, small, base, large"),
        ("{preset: [tiny]}", r"config.preset is \['tiny'\]: expected one of tiny"),
        (
            f"{{preset: {by_name['listops_ut']}}}",
            "config.preset is .*listops_ut.yaml', a recipe of model_type ut, but model_type is gut",
        ),
        ("{preset: tiny, hidden_size: 30}", "config is .*`num_attention_heads` is 4: it must divide hidden_size .30."),
    ],
)
def test_presets_that_cannot_be(fields, message):
    with pytest.raises(ValueError, match=message):
        read("--model_type", "gut", "--config", fields)


def test_presets_of_recipes_that_cannot_be(tmp_path):
    with pytest.raises(ValueError, match=r"model_type is 'gutt': expected one of .*did you mean gut"):
        read("--model_type", "gutt", "--config", "{preset: tiny}")
    with pytest.raises(ValueError, match=r"config.preset is 'tiny', which is of new models: set model_type, or"):
        read("--model_name_or_path", "folder", "--config", "{preset: tiny}")
    (tmp_path / "self.yaml").write_text(f"model_type: gut\nconfig: {{preset: {tmp_path / 'self.yaml'}}}")
    with pytest.raises(ValueError, match=r"config.preset is '.*yaml': expected one of tiny"):
        read("--model_type", "gut", "--config", f"{{preset: {tmp_path / 'self.yaml'}}}")
    (tmp_path / "tuned.yaml").write_text("model_name_or_path: folder")
    with pytest.raises(ValueError, match=r"tuned.yaml has no model_type: name one that trains a new model"):
        read("--model_type", "gut", "--config", f"{{preset: {tmp_path / 'tuned.yaml'}}}")
