"""Recipes of the Neural Data Router's tables: sizes, and what made the paper's numbers."""

import pytest
import torch
from test_recipes import read

from hf_recurrent.benchmarks import build_tokenizer
from hf_recurrent.recipes import FOLDER
from hf_recurrent.registry import ARCHITECTURES
from hf_recurrent.training.model import make_config

ROUTER = sorted(
    path
    for benchmark in ("compositional_table_lookup", "simple_arithmetic", "listops_depth")
    for path in FOLDER.glob(f"{benchmark}_*.yaml")
)


def model_of(name):
    (model, data, _, args), _ = read(str(FOLDER / f"{name}.yaml"), "--use_cpu", "--bf16", "false")
    tokenizer = build_tokenizer(data.benchmark)
    config = make_config(model, data, tokenizer)
    with torch.device("meta"):
        return ARCHITECTURES[model.model_type].model_class("AutoModelForSequenceClassification")(config), args


# theirs at 19 words, END and BEGIN, and 8 classes, and parameters of theirs that nothing reads
THEIRS = {
    # projections of positions
    "compositional_table_lookup_ndr": (731_405, 256 * 256),
    # a bias of scores, and a norm
    "compositional_table_lookup_absolute_relative_gate": (994_059, 1 + 2 * 256),
    "compositional_table_lookup_relative": (152_330, 1),
    "compositional_table_lookup_act_relative": (152_459, 1),
    "compositional_table_lookup_transformer": (135_688, 0),
    "compositional_table_lookup_geometric": (153_235, 128 * 128),
    "listops_depth_ndr": (2_919_979, 512 * 512),
}


@pytest.mark.parametrize("name", THEIRS)
def test_sizes_are_theirs_but_for_what_they_do_not_use(name):
    model, _ = model_of(name)
    config = model.config
    theirs, unused = THEIRS[name]
    # PAD and the like have rows in our table
    rows = config.hidden_size * (config.vocab_size - 21)
    classes = (config.hidden_size + 1) * (config.num_labels - 8)
    assert model.num_parameters() == theirs - unused + rows + classes


@pytest.mark.parametrize("path", ROUTER, ids=lambda path: path.stem)
def test_protocol(path):
    (model, data, _, args), _ = read(str(path), "--use_cpu", "--bf16", "false")
    assert (args.lr_schedule, args.warmup_steps, args.decay_all_parameters) == ("constant", 0, True)
    assert (args.eval_steps, args.save_steps) == (1000, 1000)
    assert (args.metric_for_best_model, args.best_model_on_ties) == ("validation_ood_accuracy", "latest")
    assert args.max_grad_norm == (
        5.0 if data.benchmark == "compositional_table_lookup" or args.weight_decay == 0 else 1.0
    )
    assert (args.evaluation_depth == 24) is (path.stem == "listops_depth_ndr")
    bucketed = data.benchmark != "compositional_table_lookup" and not (
        model.model_type == "rnn" and data.benchmark == "simple_arithmetic"
    )
    bucketed = bucketed or path.stem == "compositional_table_lookup_ndr"
    assert args.batch_sampling == ("by_length" if bucketed else "with_replacement")
    first_column = data.benchmark == "listops_depth" or path.stem in (
        "simple_arithmetic_transformer",
        "simple_arithmetic_relative",
    )
    if model.model_type == "ndr":
        assert (model.config["pooling"] == "cls") is first_column
        gated = model.config["copy_gate"]
        shallow = data.benchmark_params.get("valid_extra_depth") == 2
        assert shallow is (
            data.benchmark == "compositional_table_lookup" and not gated and "halting" not in model.config
        )


def test_embeddings_start_as_theirs_did():
    assert model_of("compositional_table_lookup_transformer")[0].config.initializer_range == 1.0
    assert model_of("compositional_table_lookup_relative")[0].config.initializer_range == (2 / 128) ** 0.5
    assert model_of("listops_depth_relative")[0].config.embedding_init == "xavier_uniform"
