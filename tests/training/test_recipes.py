"""Recipes and flags: what they mean, and what is said of those that are wrong."""

import pytest
import yaml
from tiny_run import RECIPES

from hf_recurrent import ARCHITECTURES
from hf_recurrent.training.arguments import ARGUMENT_TYPES
from hf_recurrent.training.model import make_config, make_model
from hf_recurrent.training.objectives import CLASSIFICATION
from hf_recurrent.training.paper import paper_with_title
from hf_recurrent.training.recipes import mapping, parse


def read(*argv):
    return parse([*argv, "--output_dir", "unused"], ARGUMENT_TYPES)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem if path.parent.name == "recipes" else str(path))
def test_every_recipe_parses_and_makes_its_model(path):
    from hf_recurrent.benchmarks import build_tokenizer

    (model, data, run, _), settings = read(str(path), "--use_cpu", "--bf16", "false")
    if path.stem != "demo":
        assert path.read_text().startswith("#"), "a recipe starts with what it reproduces"
        assert run.title
        assert run.paper or run.paper_table != "none"
    assert settings["model_type"] == model.model_type
    config = make_config(model, data, build_tokenizer(data.benchmark, data.benchmark_config))
    for key, value in model.config.items():
        assert getattr(config, key) == value
    if path.parent.name == "cpu":
        assert "CPU-size" in run.title
        assert run.notice


def test_every_cell_of_the_tables_has_a_recipe():
    names = {path.stem for path in RECIPES if path.parent.name == "recipes"}
    models = ["xpos_transformer", "ut", "gut", "gut_token_halt", "gut_no_gate", "gut_no_transition", "tlb", "gutlb"]
    assert {f"{data}_{model}" for data in ("listops", "logical_inference") for model in models} <= names
    assert {"listops_gut_upper_bound", "listops_gut_no_halt"} <= names


def test_flip_flop_recipes_are_the_rows_of_table_3():
    """Sizes are the authors' but for the head, of which theirs has one logit, and the tokens they do not have."""
    import torch

    from hf_recurrent.benchmarks import build_tokenizer

    theirs = {
        "Transformer": ("xpos_transformer", 19_168_769),
        "UT": ("ut", 3_680_258),
        "GUT": ("gut", 6_042_114),
        "TLB": ("tlb", 16_028_673),
        "GUTLB": ("gutlb", 10_251_778),
        "TLB-FR": ("tlb", 16_028_673),
    }
    paths = [path for path in RECIPES if path.parent.name == "recipes" and path.stem.startswith("flip_flop")]
    rows = {}
    for path in paths:
        (model, data, run, args), _ = read(str(path), "--use_cpu", "--bf16", "false")
        tokenizer = build_tokenizer(data.benchmark)
        config = make_config(model, data, tokenizer)
        with torch.device("meta"):
            ours = make_model_class(model.model_type)(config).num_parameters()
        row = run.paper["row"]
        rows[row] = (model.model_type, ours)
        # START and END are in their encoders that read whole strings; their vocabulary is the five words
        tokens = len(tokenizer) - 5 - 2 * (model.model_type not in ("tlb", "gutlb"))
        extra = config.hidden_size * tokens + (config.hidden_size + 1) * (len(tokenizer) - 1)
        assert (model.model_type, ours - extra) == theirs[row], path.stem
        assert (args.max_steps, args.per_device_train_batch_size, args.warmup_steps) == (10_000, 16, 50)
        assert args.cycle_adam_beta1 is False
        assert not data.benchmark_params, "the benchmark's defaults are the paper's data"
        assert getattr(config, "chunking", None) == {"TLB": "fixed", "GUTLB": "fixed", "TLB-FR": "count"}.get(row)
    assert rows.keys() == theirs.keys()


def make_model_class(model_type):
    from hf_recurrent.registry import ARCHITECTURES

    return ARCHITECTURES[model_type].model_class("AutoModelForCausalLM")


def test_flags_win_and_mappings_merge(write_recipe):
    (model, _, run, args), settings = read(
        write_recipe(), "--config", "{hidden_size: 32, dropout: 1e-1}", "--max-steps", "7", "--thresholds", "0.5", "1"
    )
    assert model.config == {
        "hidden_size": 32,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "num_hidden_layers": 3,
        "halting": "global",
        "dropout": 0.1,
    }
    assert (args.max_steps, run.thresholds) == (7, [0.5, 1.0])
    assert settings["max_steps"] == 7


def test_flags_displace_what_would_win_over_them(write_recipe):
    recipe = write_recipe(lr_schedule="cosine2", max_steps=7)
    (_, _, _, args), settings = read(recipe, "--lr_scheduler_type", "constant", "--num_train_epochs", "3")
    assert (args.lr_schedule, args.lr_scheduler_type.value, args.max_steps) == (None, "constant", -1)
    assert not settings.keys() & {"lr_schedule", "max_steps"}
    recipe = write_recipe(lr_scheduler_type="warmup_stable_decay", lr_scheduler_kwargs={"num_decay_steps": 3})
    (_, _, _, args), _ = read(recipe, "--lr_schedule", "cosine2")
    assert (args.lr_schedule, args.lr_scheduler_kwargs) == ("cosine2", None)


def test_scientific_notation_is_a_number(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text("model_type: ut\nlearning_rate: 7e-4\nadam_epsilon: 1E-8\n")
    (_, _, _, args), _ = read(str(path))
    assert (args.learning_rate, args.adam_epsilon) == (7e-4, 1e-8)


def test_flags_and_recipe_give_the_same_settings(write_recipe):
    _, by_recipe = read(write_recipe(warmup_steps=9, learning_rate=1))
    _, by_flag = read(write_recipe(), "--warmup_steps", "9", "--learning_rate", "1.0", "--seed", "42")
    assert by_recipe == by_flag
    assert yaml.safe_dump(by_recipe) == yaml.safe_dump(by_flag)


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
        ({"thresholds": [1.5]}, "thresholds is 1.5"),
        ({"early_stopping_patience": 3, "load_best_model_at_end": False}, "needs load_best_model_at_end"),
        ({"short_first_steps": 50}, "short_first_steps is 50, but batch_sampling None: .* short_first_steps to 0"),
        ({"cycle_adam_beta1": True}, "cycle_adam_beta1 needs lr_schedule: linearwarmup, not 'rootwarmup'"),
    ],
)
def test_bad_recipes(write_recipe, changes, message):
    with pytest.raises(ValueError, match=message):
        read(write_recipe(**changes))


@pytest.mark.parametrize("flags", [[], ["--output_dir", ""]])
def test_a_run_without_a_folder_is_refused(write_recipe, flags, tmp_path, monkeypatch):
    recipe = write_recipe()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="output_dir is not set: give the run a folder, such as --output_dir runs/gut"):
        parse([recipe, *flags], ARGUMENT_TYPES)
    assert read(write_recipe())[0][3].output_dir == "unused"


def test_missing_recipe_and_malformed_files(tmp_path, write_recipe):
    path = write_recipe()
    with pytest.raises(FileNotFoundError, match=r"tinny\.yaml; did you mean tiny\.yaml"):
        read(path.replace("tiny", "tinny"))
    bad = tmp_path / "bad.yaml"
    bad.write_text("a: [1")
    with pytest.raises(ValueError, match="not valid YAML"):
        read(str(bad))
    bad.write_text("- a\n")
    with pytest.raises(ValueError, match="not a mapping"):
        read(str(bad))


def test_a_flag_of_several_values_may_be_repeated(write_recipe, tmp_path):
    flags = ["--thresholds", "0.5", "1", "--train_file", str(tmp_path), "--text_column", "q1", "--seed", "4"]
    (_, data, run, args), settings = read(
        write_recipe(benchmark=None, benchmark_params={}),
        *flags,
        "--text-column",
        "q2",
        "--thresholds=0.25",
        "--seed=5",
    )
    assert (data.text_column, run.thresholds) == (["q1", "q2"], [0.5, 1.0, 0.25])
    assert (settings["text_column"], settings["seed"], args.seed) == (["q1", "q2"], 5, 5)


def test_unknown_config_field(write_recipe):
    from hf_recurrent.benchmarks import build_tokenizer

    (model, data, _, _), _ = read(write_recipe(config={"haltin": "token"}))
    with pytest.raises(ValueError, match=r"no field 'haltin'; did you mean halting"):
        make_config(model, data, build_tokenizer(data.benchmark))


def test_nan_weights_are_refused(write_recipe, tmp_path):
    import torch

    from hf_recurrent.benchmarks import build_tokenizer

    (arguments, data, _, _), _ = read(write_recipe())
    config = make_config(arguments, data, build_tokenizer(data.benchmark))
    model = make_model(arguments, config, CLASSIFICATION)
    with torch.no_grad():
        model.model.embed_tokens.weight[1, 2] = float("nan")
    model.save_pretrained(tmp_path / "broken")
    arguments.model_type, arguments.model_name_or_path = None, str(tmp_path / "broken")
    with pytest.raises(ValueError, match=r"embed_tokens\.weight holds NaN"):
        make_model(arguments, config, CLASSIFICATION)


@pytest.mark.parametrize(
    ("text", "value"), [("7e-4", 7e-4), ("1E5", 1e5), ("1.5", 1.5), ("-.5", -0.5), ("1_000", 1000)]
)
def test_numbers_are_what_people_mean(text, value):
    assert mapping("config", f"{{a: {text}}}") == {"a": value}


@pytest.mark.parametrize("text", ["010", "1:30", "1:30.5", "0b11"])
def test_what_only_yaml_takes_for_a_number_is_a_text(text):
    assert mapping("config", f"{{a: {text}}}") == {"a": text}


@pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=lambda row: row.model_type)
def test_cards_and_commands_know_every_architecture(architecture):
    """Its paper, and the threshold that commands set for a pass of full depth."""
    assert paper_with_title(architecture.paper).title == architecture.paper
    config = architecture.config_class()
    assert hasattr(config, "halting_threshold") or not config.capabilities.shared_block
