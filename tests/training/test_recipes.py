"""Recipes and flags: what they mean, sizes by name, and what is said of those that are wrong."""

import dataclasses

import pytest
import torch
import yaml
from command_lines import config_of, read
from huggingface_hub.errors import StrictDataclassError
from tiny_run import DOCUMENT_RECIPES, RECIPES, SEQ2SEQ_RECIPES, TINY

from hf_recurrent import ARCHITECTURES
from hf_recurrent.models.config.base import FOLLOWING
from hf_recurrent.training.model import make_model
from hf_recurrent.training.recipes import mapping, paper_with_title, parse
from hf_recurrent.training.stages import argument_types

ALL_RECIPES = [*RECIPES, *DOCUMENT_RECIPES, *SEQ2SEQ_RECIPES]
BY_NAME = {path.stem: path for path in RECIPES if path.parent.name != "cpu"}


# ---- the recipes of this package


@pytest.mark.parametrize("path", ALL_RECIPES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_recipe_has_a_model_of_its_own_sizes(path):
    """No rule about sizes that are not given can change it."""
    run, text = read(path), path.read_text()
    if path.stem != "demo":
        assert text.startswith("#"), "a recipe starts with what it reproduces"
        assert run.report.title
        assert run.report.paper or run.report.paper_table != "none"
    if path.parent.name == "cpu":
        assert "CPU-size" in run.report.title
        assert run.report.notice
    model_type, fields = run.settings["model_type"], run.model_args.config
    config_class = ARCHITECTURES[model_type].config_class
    # these are other sizes, divided or taken over
    needed = {"hidden_size", *FOLLOWING} - {"head_dim", "gate_intermediate_size", "memory_cell_size"}
    needed |= {"head_dim"} if model_type == "sut" else set()
    assert needed & {field.name for field in dataclasses.fields(config_class)} <= fields.keys()
    config = config_class(**fields)
    with torch.device("meta"):
        assert ARCHITECTURES[model_type].model_class("AutoModel")(config).num_parameters() > 0
    # other tokenizers are of the Hub, or trained on texts
    config = config_of(run) if path in RECIPES else config
    assert fields.items() <= vars(config).items()


@pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=lambda row: row.model_type)
def test_cards_and_commands_know_every_architecture(architecture):
    """Its paper, and the threshold that commands set for a pass of full depth."""
    assert paper_with_title(architecture.paper)["title"] == architecture.paper
    config = architecture.config_class()
    assert hasattr(config, "halting_threshold") or not config.capabilities.shared_block


# ---- recipes and flags


def test_flags_win_and_mappings_merge(recipe):
    flags = ["--config", "{hidden_size: 32, dropout: 1e-1}", "--max-steps", "7", "--differences", "a", "b c"]
    run = read(recipe(), *flags)
    assert run.model_args.config == {**TINY["config"], "hidden_size": 32, "dropout": 0.1}
    assert (run.args.max_steps, run.report.differences, run.settings["max_steps"]) == (7, ["a", "b c"], 7)
    by_flag = read(recipe(), "--warmup_steps", "9", "--learning_rate", "1.0", "--seed", "42").settings
    assert yaml.safe_dump(read(recipe(warmup_steps=9, learning_rate=1)).settings) == yaml.safe_dump(by_flag)


def test_flags_displace_what_would_win_over_them(recipe, tmp_path):
    path = recipe(lr_schedule="cosine2", max_steps=7)
    run = read(path, "--lr_scheduler_type", "constant", "--num_train_epochs", "3")
    assert (run.args.lr_schedule, run.args.lr_scheduler_type.value, run.args.max_steps) == (None, "constant", -1)
    assert not run.settings.keys() & {"lr_schedule", "max_steps"}
    path = recipe(lr_scheduler_type="warmup_stable_decay", lr_scheduler_kwargs={"num_decay_steps": 3})
    args = read(path, "--lr_schedule", "cosine2").args
    assert (args.lr_schedule, args.lr_scheduler_kwargs) == ("cosine2", None)
    # a checkpoint, too
    run = read(recipe(), "--model_name_or_path", tmp_path)
    assert (run.model_args.model_type, "model_type" in run.settings) == (None, False)
    with pytest.raises(ValueError, match="set exactly one of model_type and model_name_or_path"):
        read(recipe(), "--model_name_or_path", tmp_path, "--model_type", "ndr")


def test_a_flag_of_several_values_may_be_repeated(recipe, tmp_path):
    flags = ["--differences", "a", "b", "--train_file", tmp_path, "--text_column", "q1", "--seed", "4"]
    run = read(
        recipe(benchmark=None, benchmark_params={}), *flags, "--text-column", "q2", "--differences=c", "--seed=5"
    )
    assert (run.task.data.text_column, run.report.differences) == (["q1", "q2"], ["a", "b", "c"])
    assert (run.settings["text_column"], run.settings["seed"], run.args.seed) == (["q1", "q2"], 5, 5)


def test_numbers_are_what_people_mean(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text("model_type: ut\nlearning_rate: 7e-4\nadam_epsilon: 1E-8\n")
    args = read(path).args
    assert (args.learning_rate, args.adam_epsilon) == (7e-4, 1e-8)
    for text, value in (("7e-4", 7e-4), ("1E5", 1e5), ("1.5", 1.5), ("-.5", -0.5), ("1_000", 1000)):
        assert mapping("config", f"{{a: {text}}}") == {"a": value}
    # what only YAML takes for a number
    for text in ("010", "1:30", "1:30.5", "0b11"):
        assert mapping("config", f"{{a: {text}}}") == {"a": text}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rat": 0.1}, r"tiny\.yaml.*unknown key 'learning_rat'; did you mean learning_rate"),
        ({"model_type": "gutt"}, r"model_type is 'gutt'.*did you mean gut"),
        ({"model_type": None}, "exactly one of model_type and model_name_or_path"),
        ({"benchmark": "listop"}, "unknown benchmark 'listop'"),
        ({"benchmark_config": "orginal"}, r"'orginal'.*did you mean original"),
        ({"evaluate_on": ["lraa/test"]}, r"evaluate_on.*'lraa'"),
        ({"lr_schedule": "rootwarm"}, "did you mean rootwarmup"),
        ({"max_steps": "many"}, r"recipe .*tiny\.yaml: argument --max_steps.*: invalid int value: 'many'"),
        ({"config": [1]}, "config is "),
        ({"short_first_share": 1.5}, "short_first_share is 1.5"),
        ({"short_first_steps": 50}, "short_first_steps is 50: it is for batch_sampling short_first, not None"),
        ({"cycle_adam_beta1": True}, "cycle_adam_beta1 needs lr_schedule: linearwarmup, not 'rootwarmup'"),
    ],
)
def test_bad_recipes(recipe, changes, message):
    with pytest.raises(ValueError, match=message):
        read(recipe(**changes))


@pytest.mark.parametrize("flag", ["--max_tokens", "--max-tokens", "--batch-tokens"])
def test_aliases_may_have_hyphens(recipe, flag):
    run = read(recipe(), flag, "90")
    assert (run.settings["batch_tokens"], run.settings.get("per_device_train_batch_size")) == (90, None)


def test_a_run_without_a_folder_is_refused(recipe):
    message = "output_dir is not set: give the run a folder, such as --output_dir runs/gut"
    types_ = argument_types("text-classification")
    for flags in ([], ["--output_dir", ""]):
        with pytest.raises(ValueError, match=message):
            parse([recipe(), *flags], types_)


def test_missing_and_malformed_recipes(tmp_path, recipe):
    with pytest.raises(FileNotFoundError, match=r"tinny\.yaml; did you mean tiny\.yaml"):
        read(recipe().replace("tiny", "tinny"))
    for text, message in (("a: [1", "not valid YAML"), ("- a\n", "not a mapping")):
        (tmp_path / "bad.yaml").write_text(text)
        with pytest.raises(ValueError, match=message):
            read(tmp_path / "bad.yaml")


def test_models_that_cannot_be(recipe, tmp_path):
    with pytest.raises(ValueError, match=r"config field of GUTConfig is 'haltin': .*; did you mean halting"):
        config_of(read(recipe(config={"haltin": "token"})))
    run = read(recipe())
    config = config_of(run)
    model = make_model(run.model_args, config, run.task)
    model.model.embed_tokens.weight.data[1, 2] = float("nan")
    model.save_pretrained(tmp_path / "broken")
    run.model_args.model_type, run.model_args.model_name_or_path = None, str(tmp_path / "broken")
    with pytest.raises(ValueError, match=r"embed_tokens\.weight holds NaN"):
        make_model(run.model_args, config, run.task)


# ---- sizes by name


def sizes(*argv):
    run = read(*argv)
    assert run.settings.get("config", {}) == run.model_args.config
    return run.model_args.config


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("size", ["tiny", "small", "base", "large"])
def test_presets_become_their_sizes(architecture, size):
    config_class = ARCHITECTURES[architecture].config_class
    fields = sizes("--model_type", architecture, "--config", f"{{preset: {size}, dropout: 0.25}}")
    assert "preset" not in fields
    assert config_class(**fields).to_dict() == config_class.preset(size, dropout=0.25).to_dict()


TINY_GUT = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "head_dim": 16,
    "intermediate_size": 128,
    "gate_intermediate_size": 128,
}


def test_a_preset_takes_the_place_of_all_sizes_of_a_recipe():
    """Widths that the recipe writes out would otherwise stay."""
    path = BY_NAME["listops_gut"]
    assert sizes(path, "--config", "{preset: tiny}") == {**yaml.safe_load(path.read_text())["config"], **TINY_GUT}
    # what a flag gives is over what its preset has, wherever it stands
    for flag in ("{preset: tiny, hidden_size: 96}", "{hidden_size: 96, preset: tiny}"):
        config = sizes(path, "--config", flag)
        assert (config["hidden_size"], config["head_dim"], config["intermediate_size"]) == (96, 24, 192)
    config = sizes(path, "--config", "{preset: tiny, intermediate_size: 7, dropout: 0.5}")
    assert (config["intermediate_size"], config["gate_intermediate_size"], config["dropout"]) == (7, 7, 0.5)


def test_presets_of_recipes_and_papers(recipe):
    path = recipe(config={"preset": "tiny", "num_hidden_layers": 3})
    assert sizes(path) == {"num_hidden_layers": 3, **TINY_GUT}
    assert sizes(path, "--config", "{num_hidden_layers: 4}") == {"num_hidden_layers": 4, **TINY_GUT}
    # the halting of a paper, which leaves sizes alone
    paper, demo = {"halting": "global", "depth_objective": "mixture"}, BY_NAME["demo"]
    given = yaml.safe_load(demo.read_text())["config"]
    assert sizes(demo, "--config", "{preset: dynamic_halt}") == {**given, **paper}


def test_a_change_of_sizes_is_reported_as_numbers(recipe):
    path = recipe(config={"preset": "tiny"})
    assert read(path).changes == []
    assert read(path, "--config", "{preset: small}").changes == [
        "config.hidden_size = 256 (64)",
        "config.head_dim = 64 (16)",
        "config.intermediate_size = 512 (128)",
        "config.gate_intermediate_size = 512 (128)",
    ]


KNOWN = "expected one of tiny, small, base, large, dynamic_halt"


@pytest.mark.parametrize(
    ("model", "fields", "message"),
    [
        ("gut", "tinny", f"'tinny': {KNOWN}; did you mean tiny"),
        ("gut", "7", "config.preset is 7: expected one of tiny, small, base, large"),
        ("gut", "[tiny]", r"config.preset is \['tiny'\]: expected one of tiny"),
        ("gut", "tiny, hidden_size: 30", "`num_attention_heads` is 4: it must divide hidden_size .30."),
        ("gutt", "tiny", "model_type is 'gutt': expected one of .*did you mean gut"),
        (None, "tiny", "config.preset is 'tiny', which is of new models: set model_type, or"),
    ],
)
def test_presets_that_cannot_be(model, fields, message):
    flags = ["--model_name_or_path", "folder"] if model is None else ["--model_type", model]
    with pytest.raises((ValueError, StrictDataclassError), match=message):
        read(*flags, "--config", f"{{preset: {fields}}}")
