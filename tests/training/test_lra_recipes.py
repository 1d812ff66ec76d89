"""Recipes of Table 4 (Long Range Arena): sizes, what made the paper's numbers, and the numbers beside ours."""

import copy
import functools
import math
from types import SimpleNamespace

import pytest
import torch
import yaml
from test_recipes import read

from hf_recurrent.benchmarks import build_tokenizer
from hf_recurrent.recipes import FOLDER
from hf_recurrent.registry import ARCHITECTURES
from hf_recurrent.training.card import split_results
from hf_recurrent.training.model import make_config
from hf_recurrent.training.paper import PaperRow, papers

TABLE_4 = papers()["dynamic_halt"]["tables"][4]
TASKS, ROWS = [column["name"] for column in TABLE_4["columns"]], list(TABLE_4["rows"])
CHUNK_RECURRENT = ("TLB", "GUTLB")
TYPES = dict(zip(ROWS, ("xpos_transformer", "ut", "gut", "tlb", "gutlb"), strict=True))
CELLS = [(task, row) for task in TASKS for row in ROWS]
HALTING = ("UT", "GUT", "GUTLB")
# rows of theirs: vocabulary, training rows, and parameters by row
VOCABULARY = {"ListOps": 18, "Text": 257, "Retrieval": 257, "Image": 256, "Pathfinder": 256}
NUM_TRAIN = {"ListOps": 96_000, "Text": 25_000, "Retrieval": 147_086, "Image": 45_000, "Pathfinder": 160_000}
PARAMETERS = {
    "ListOps": (8_680_970, 2_641_931, 3_954_187, 8_208_906, 6_632_971),
    "Text": (3_287_297, 987_138, 1_578_242, 2_633_985, 2_239_234),
    "Retrieval": (889_985, 313_346, 461_442, 727_169, 628_098),
    "Image": (117_130, 133_771, 183_179, 217_610, 283_659),
    "Pathfinder": (87_169, 58_178, 78_850, 316_033, 282_498),
}
# learning rate, schedule, warm-up, weight decay, beta2, epsilon, clipping
TRANSFORMER, LATER = (0.05, "rootwarmup", 1000, 0.1, 0.98, 1e-8, 1.0), (8000, 0.1, 0.98, 1e-8, 1.0)
IMAGE, PATHFINDER = ("cosine2", 175, 0.0, 0.98, 1e-9, 0.0), (2e-4, "linearwarmup", 312, 0.0, 0.999, 1e-6, 1.0)
OPTIMISER = {
    "ListOps": (TRANSFORMER, (0.0125, "rootwarmup", *LATER)),
    "Text": ((0.05, "rootwarmup", *LATER), (0.025, "rootwarmup", *LATER)),
    "Retrieval": tuple((rate, "rootwarmup", 8000, 0.1, 0.999, 1e-8, 1.0) for rate in (0.05, 0.025)),
    "Image": ((5e-4, *IMAGE), (1e-3, *IMAGE)),
    "Pathfinder": (PATHFINDER, (5e-4, "cosine2", 312, 0.0, 0.98, 1e-9, 0.0)),
}
# rows of an optimiser step, epochs or steps, patience
LENGTH = {
    "ListOps": ((32, 100, 10),) * 2,
    "Text": ((32, 100, 10),) * 2,
    "Retrieval": ((32, 50, 5), (128, 50, 5)),
    "Image": ((256, 35_000, 100),) * 2,
    "Pathfinder": ((128, 125_000, 20), (512, 62_400, 200)),
}
# depth by row; chunks, memory slots; dropout, attention dropout; pooling of UT and Transformer, of chunk models
SHAPE = {
    "ListOps": ((4, 10, 10, 2, 5), (100, 100), (0.1, 0.1), ("mean", "mean")),
    "Text": ((4, 10, 10, 2, 2), (10, 10), (0.1, 0.1), ("mean", "mean")),
    "Retrieval": ((4, 10, 10, 2, 2), (100, 10), (0.1, 0.1), ("mean", "mean")),
    "Image": ((1, 3, 3, 1, 2), (32, 5), (0.3, 0.2), ("cls", "last")),
    "Pathfinder": ((2, 4, 4, 2, 3), (64, 5), (0.1, 0.1), ("mean", "mean")),
}
WIDTH = {
    "ListOps": ((512, 8, 64, 1024),) * 2,
    "Text": ((256, 4, 64, 1024),) * 2,
    "Retrieval": ((128, 4, 32, 512),) * 2,
    "Image": ((128, 8, 8, 128),) * 2,
    "Pathfinder": ((64, 2, 32, 128), (128, 8, 8, 128)),
}


@functools.cache
def parsed(task, row):
    path = FOLDER / f"lra_{task.lower()}_{TYPES[row]}.yaml"
    (model, data, run, args), _ = read(str(path), "--use_cpu", "--bf16", "false")
    assert data.benchmark == "lra"
    tokenizer = build_tokenizer("lra", data.benchmark_config)
    config = make_config(model, data, tokenizer)
    return {"path": path, "data": data, "run": run, "args": args, "tokenizer": tokenizer, "config": config}


def recipe(task, row):
    """The recipe's arguments, its tokenizer and the config that it makes."""
    found = SimpleNamespace(**parsed(task, row))
    # some tests change them
    found.data, found.config = copy.deepcopy((found.data, found.config))
    return found


def test_every_cell_has_a_recipe_and_no_recipe_is_of_none():
    names = {f"lra_{task.lower()}_{TYPES[row]}.yaml" for task, row in CELLS}
    assert {path.name for path in FOLDER.glob("lra_*.yaml")} == names


@pytest.mark.parametrize(("task", "row"), CELLS)
def test_sizes_are_the_authors(task, row):
    """But for the tokens that they do not have, and for the logit that they have one of where there are two classes."""
    found = recipe(task, row)
    config, chunked = found.config, row in CHUNK_RECURRENT
    depths, chunks, dropouts, poolings = SHAPE[task]
    assert config.model_type == TYPES[row]
    sizes = (config.hidden_size, config.num_attention_heads, config.head_dim, config.intermediate_size)
    assert sizes == WIDTH[task][chunked]
    assert config.num_hidden_layers == depths[ROWS.index(row)]
    assert (config.dropout, config.attention_dropout) == dropouts
    assert config.pooling == ("end" if row == "GUT" else poolings[chunked])
    assert config.pair_encoding == ("siamese" if task == "Retrieval" else "joint")
    if chunked:
        assert (config.chunking, config.chunk_size, config.num_memory_slots) == ("fixed", *chunks)
        assert (config.num_memory_layers, config.memory_initializer_range) == (1, 0.0)
    if row in HALTING:
        assert (config.ponder_loss_weight, config.halting_bias_init, config.halting_threshold) == (0.1, -3.0, 0.999)
        assert config.halting == ("token" if row == "UT" else "global")
    with torch.device("meta"):
        model = ARCHITECTURES[config.model_type].model_class("AutoModelForSequenceClassification")(config)
    # START and END are in their encoders that read whole rows
    tokens = len(found.tokenizer) - VOCABULARY[task] - 2 * (not chunked)
    logits = config.num_labels - (1 if config.num_labels == 2 else config.num_labels)
    extra = config.hidden_size * tokens + (config.hidden_size + 1) * logits
    assert model.num_parameters() - extra == PARAMETERS[task][ROWS.index(row)]


@pytest.mark.parametrize(("task", "row"), CELLS)
def test_training_is_the_authors(task, row):
    found = recipe(task, row)
    args, chunked = found.args, row in CHUNK_RECURRENT
    rate, *others = OPTIMISER[task][chunked]
    assert args.learning_rate == rate
    names = ("lr_schedule", "warmup_steps", "weight_decay", "adam_beta2", "adam_epsilon", "max_grad_norm")
    assert [getattr(args, name) for name in names] == others
    assert args.adam_beta1 == 0.9
    assert args.decay_all_parameters
    assert args.cycle_adam_beta1 == (args.lr_schedule == "linearwarmup")
    rows, length, patience = LENGTH[task][chunked]
    assert args.per_device_train_batch_size * args.gradient_accumulation_steps == rows
    assert (args.max_steps if args.max_steps > 0 else args.num_train_epochs) == length
    assert args.early_stopping_patience == patience
    assert (args.eval_strategy, args.save_strategy, args.metric_for_best_model) == ("epoch", "epoch", "accuracy")
    assert yaml.safe_load(found.path.read_text())["bf16"] is True


def paper_numbers(found, steps=10**6, test_examples=2000, splits=("test",), report=None):
    """Split -> the paper's mean and deviation beside it."""
    tables = {split: {"n": test_examples} for split in splits}
    results = split_results(tables, found.run if report is None else report, found.data, found.config, steps)
    return {item.split: (item.paper_accuracy, item.paper_std) for item in results if item.paper_accuracy is not None}


def cell(task, row):
    (only,) = PaperRow("dynamic_halt", 4, row, task).cells()
    return only.numbers["mean"], only.numbers["std"]


@pytest.mark.parametrize(("task", "row"), CELLS)
def test_a_run_of_a_recipe_stands_beside_the_papers_number(task, row):
    found = recipe(task, row)
    size, length, patience = LENGTH[task][row in CHUNK_RECURRENT]
    # the first evaluation, and as many failures as end training
    least = min((patience + 2) * math.ceil(NUM_TRAIN[task] / size), length if length > 100 else math.inf)
    assert paper_numbers(found, least, splits=("test", "other/test")) == {"test": cell(task, row)}
    assert paper_numbers(found, least - 1) == {}


def test_another_draw_of_the_same_images_is_compared():
    found = recipe("Pathfinder", "GUT")
    found.data.benchmark_params = {"seed": 5}
    assert paper_numbers(found)
    found.data.benchmark_params = {"seed": 5, "contour_length": 9}
    assert not paper_numbers(found)
    assert not paper_numbers(found, splits=("validation",))


def test_files_of_another_size_are_not_theirs():
    found = recipe("Image", "TLB")
    found.data.data_dir = "somewhere"
    assert paper_numbers(found, test_examples=10_000) == {"test": cell("Image", "TLB")}
    assert paper_numbers(found, test_examples=8) == {}


def test_a_checkpoint_replaces_a_recipes_model(tmp_path):
    path = str(FOLDER / "cpu" / "listops_depth_ndr.yaml")
    (model, *_), settings = read(path, "--model_name_or_path", str(tmp_path))
    assert (model.model_name_or_path, model.model_type, "model_type" in settings) == (str(tmp_path), None, False)
    with pytest.raises(ValueError, match="set exactly one of model_type and model_name_or_path"):
        read(path, "--model_name_or_path", str(tmp_path), "--model_type", "ndr")
