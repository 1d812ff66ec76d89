"""Recipes of the papers' tables: sizes, what made the papers' numbers, and the numbers beside ours."""

import dataclasses
import functools
import json
import math
from pathlib import Path

import pytest
from command_lines import config_of, model_of, read
from tiny_run import DOCUMENT_RECIPES, RECIPES, SEQ2SEQ_RECIPES
from transformers import AutoTokenizer

from hf_recurrent.benchmarks import benchmark_info
from hf_recurrent.benchmarks.sequence_tokenizers import word_tokenizer
from hf_recurrent.recipes import FOLDER
from hf_recurrent.registry import ARCHITECTURES
from hf_recurrent.training.documents import check_segment_length
from hf_recurrent.training.recipes import PaperRow, paper_values, papers, read_mapping
from support.families import slow


def beside(run, config, steps=10**6, changes=(), splits=("test",), test_examples=2000, **data):
    """Split -> what the paper says beside a run."""
    tables, data = {split: {"n": test_examples} for split in splits}, dataclasses.replace(run.task.data, **data)
    return paper_values(tables, run.report, data, config, steps, changes)


def named(paths):
    """The rows that recipes name."""
    return {PaperRow.of(read_mapping(path)["paper"]) for path in paths}


def test_every_cell_of_listops_and_logic_has_a_recipe():
    names = {path.stem for path in RECIPES if path.parent.name == "recipes"}
    models = ["xpos_transformer", "ut", "gut", "gut_token_halt", "gut_no_gate", "gut_no_transition", "tlb", "gutlb"]
    assert {f"{data}_{model}" for data in ("listops", "logical_inference") for model in models} <= names
    assert {"listops_gut_upper_bound", "listops_gut_no_halt"} <= names


# ---- Dynamic Halt, Table 3: flip-flop


def test_flip_flop():
    """Sizes are the authors' but for the head, of which theirs has one logit, and the tokens they do not have."""
    theirs = {
        "Transformer": ("xpos_transformer", 19_168_769),
        "UT": ("ut", 3_680_258),
        "GUT": ("gut", 6_042_114),
        "TLB": ("tlb", 16_028_673),
        "GUTLB": ("gutlb", 10_251_778),
        "TLB-FR": ("tlb", 16_028_673),
    }
    found = {}
    for path in FOLDER.glob("flip_flop*.yaml"):
        run = read(path)
        tokenizer = run.task.load_tokenizer(run.model_args)
        config, row = config_of(run, tokenizer), run.report.paper["row"]
        # START and END are in their encoders that read whole strings; their vocabulary is the five words
        tokens = len(tokenizer) - 5 - 2 * (config.model_type not in ("tlb", "gutlb"))
        extra = config.hidden_size * tokens + (config.hidden_size + 1) * (len(tokenizer) - 1)
        found[row] = (config.model_type, model_of(run, config).num_parameters() - extra)
        args = run.args
        assert (args.max_steps, args.per_device_train_batch_size, args.warmup_steps) == (10_000, 16, 50)
        assert args.cycle_adam_beta1 is False
        assert not run.task.data.benchmark_params, "the benchmark's defaults are the paper's data"
        assert getattr(config, "chunking", None) == {"TLB": "fixed", "GUTLB": "fixed", "TLB-FR": "count"}.get(row)
    assert found == theirs


# ---- Dynamic Halt, Table 4: Long Range Arena

TABLE_4 = papers()["dynamic_halt"]["tables"][4]
ROWS = list(TABLE_4["rows"])
TYPES = dict(zip(ROWS, ("xpos_transformer", "ut", "gut", "tlb", "gutlb"), strict=True))
CELLS = [(column["name"], row) for column in TABLE_4["columns"] for row in ROWS]
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
# learning rate, schedule, warm-up, weight decay, beta2, epsilon, clipping; of others and of chunk models
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
def arena(task, row):
    run = read(FOLDER / f"lra_{task.lower()}_{TYPES[row]}.yaml")
    tokenizer = run.task.load_tokenizer(run.model_args)
    return run, tokenizer, config_of(run, tokenizer)


def test_every_cell_of_the_arena_has_a_recipe_and_no_recipe_is_of_none():
    names = {f"lra_{task.lower()}_{TYPES[row]}.yaml" for task, row in CELLS}
    assert {path.name for path in FOLDER.glob("lra_*.yaml")} == names


@pytest.mark.parametrize(("task", "row"), CELLS)
def test_the_arena(task, row):
    """But for the tokens that they do not have, and for the logit that they have one of where there are two classes."""
    (run, tokenizer, config), chunked = arena(task, row), row in ("TLB", "GUTLB")
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
    if row in ("UT", "GUT", "GUTLB"):
        assert (config.ponder_loss_weight, config.halting_bias_init, config.halting_threshold) == (0.1, -3.0, 0.999)
        assert config.halting == ("token" if row == "UT" else "global")
    # START and END are in their encoders that read whole rows
    tokens = len(tokenizer) - VOCABULARY[task] - 2 * (not chunked)
    logits = config.num_labels - (1 if config.num_labels == 2 else config.num_labels)
    extra = config.hidden_size * tokens + (config.hidden_size + 1) * logits
    assert model_of(run, config).num_parameters() - extra == PARAMETERS[task][ROWS.index(row)]

    args = run.args
    names = ("learning_rate", "lr_schedule", "warmup_steps", "weight_decay", "adam_beta2", "adam_epsilon")
    assert tuple(getattr(args, name) for name in (*names, "max_grad_norm")) == OPTIMISER[task][chunked]
    assert (args.adam_beta1, args.decay_all_parameters) == (0.9, True)
    assert args.cycle_adam_beta1 == (args.lr_schedule == "linearwarmup")
    size, length, patience = LENGTH[task][chunked]
    assert args.per_device_train_batch_size * args.gradient_accumulation_steps == size
    assert (args.max_steps if args.max_steps > 0 else args.num_train_epochs) == length
    assert args.early_stopping_patience == patience
    assert (args.eval_strategy, args.save_strategy, args.metric_for_best_model) == ("epoch", "epoch", "accuracy")
    assert read_mapping(FOLDER / f"lra_{task.lower()}_{TYPES[row]}.yaml")["bf16"] is True

    # the first evaluation, and as many failures as end training
    least = min((patience + 2) * math.ceil(NUM_TRAIN[task] / size), length if length > 100 else math.inf)
    found = beside(run, config, least, splits=("test", "other/test"))
    (cell,) = PaperRow("dynamic_halt", 4, row, task).cells()
    assert found == {"test": {"accuracy": cell.numbers["mean"], "std": cell.numbers["std"]}}
    assert beside(run, config, least - 1) == {}


def test_other_data_of_the_arena():
    run, _, config = arena("Pathfinder", "GUT")
    assert beside(run, config, changes=["benchmark_params.seed = 5 (default)"])
    assert not beside(run, config, changes=["benchmark_params.contour_length = 9 (default)"])
    assert not beside(run, config, splits=("validation",))
    # files of another size are not theirs
    run, _, config = arena("Image", "TLB")
    assert beside(run, config, data_dir="somewhere", test_examples=10_000)
    assert not beside(run, config, data_dir="somewhere", test_examples=8)


# ---- The Neural Data Router

# theirs at 19 words, END and BEGIN, and 8 classes, and parameters of theirs that nothing reads
ROUTER_SIZES = {
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
LOOKUP = "compositional_table_lookup"
ROUTER = sorted(path for name in (LOOKUP, "simple_arithmetic", "listops_depth") for path in FOLDER.glob(f"{name}_*"))


@pytest.mark.parametrize("name", ROUTER_SIZES)
def test_sizes_of_the_router(name):
    run = read(FOLDER / f"{name}.yaml")
    config, (theirs, unused) = config_of(run), ROUTER_SIZES[name]
    # PAD and the like have rows in our table
    rows = config.hidden_size * (config.vocab_size - 21)
    classes = (config.hidden_size + 1) * (config.num_labels - 8)
    assert model_of(run, config).num_parameters() == theirs - unused + rows + classes


def test_embeddings_of_the_router_start_as_theirs_did():
    found = [config_of(read(FOLDER / f"{name}.yaml")) for name in (f"{LOOKUP}_transformer", f"{LOOKUP}_relative")]
    assert [config.initializer_range for config in found] == [1.0, (2 / 128) ** 0.5]
    assert config_of(read(FOLDER / "listops_depth_relative.yaml")).embedding_init == "xavier_uniform"


@pytest.mark.parametrize("path", ROUTER, ids=lambda path: path.stem)
def test_protocol_of_the_router(path):
    run = read(path)
    args, data, model, name = run.args, run.task.data, run.model_args, path.stem
    looks_up, arithmetic = data.benchmark == LOOKUP, data.benchmark == "simple_arithmetic"
    assert (args.lr_schedule, args.warmup_steps, args.decay_all_parameters) == ("constant", 0, True)
    assert (args.eval_steps, args.save_steps) == (1000, 1000)
    assert (args.metric_for_best_model, args.best_model_on_ties) == ("validation_ood_accuracy", "latest")
    assert args.max_grad_norm == (5.0 if looks_up or args.weight_decay == 0 else 1.0)
    assert (args.evaluation_depth == 24) is (name == "listops_depth_ndr")
    bucketed = not looks_up and not (model.model_type == "rnn" and arithmetic)
    bucketed = bucketed or name == f"{LOOKUP}_ndr"
    assert args.batch_sampling == ("by_length" if bucketed else "with_replacement")
    if model.model_type == "ndr":
        first_column = name in ("simple_arithmetic_transformer", "simple_arithmetic_relative")
        assert (model.config["pooling"] == "cls") is (first_column or data.benchmark == "listops_depth")
        shallow = looks_up and not model.config["copy_gate"] and "halting" not in model.config
        assert (data.benchmark_params.get("valid_extra_depth") == 2) is shallow


def test_recipes_of_the_router_are_the_rows_of_its_tables():
    found, tables = [], papers()["neural_data_router"]["tables"]
    for recipe in map(read_mapping, RECIPES):
        if recipe.get("paper", {}).get("id") != "neural_data_router":
            continue
        variants = recipe.get("paper_variants") or {}
        for other in [{}, *filter(None, variants.values())]:
            row = PaperRow.of({**recipe["paper"], **other})
            found.append((row.table, row.row))
            for needs in (cell.needs for cell in row.cells()):
                assert needs["model"] == {"hidden_size": recipe["config"]["hidden_size"]}
                if "exact_steps" in needs:
                    assert f"max_steps = {needs['exact_steps']}" in variants
                else:
                    assert needs["steps"] == recipe["max_steps"]
            assert {cell.config for cell in row.cells()} == set(benchmark_info(recipe["benchmark"]).configs)
    # Table 4 has the row of Table 1 once more
    rows = {(table, row) for table, facts in tables.items() for row in facts["rows"]} - {(4, "14 layers")}
    assert sorted(found) == sorted(rows)


# ---- Sparse Universal Transformer

PAIRS = {path.stem: path for path in SEQ2SEQ_RECIPES if path.parent.name == "recipes"}


@pytest.fixture(scope="module")
def words():
    """A joined vocabulary of about 37,000 pieces: what both totals of Table 1 imply."""
    return word_tokenizer([f"w{number}" for number in range(37_000 - 4)])


@pytest.mark.parametrize("path", SEQ2SEQ_RECIPES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_sources_and_targets(path, words):
    run = read(path)
    config, args = config_of(run, words), run.args
    assert config.is_encoder_decoder
    assert (args.adam_beta1, args.adam_beta2, args.adam_epsilon) == (0.9, 0.98, 1e-9)
    assert args.lr_schedule == "inverse_sqrt_fairseq"
    if path.stem in PAIRS and path.parent.name != "cpu":
        # the row that the recipe names is there, and sizes are those that the paper tells of it
        form = {"text_form": "bpe"} if "wmt14" in path.stem else {}
        assert beside(run, config, benchmark_params={**run.task.data.benchmark_params, **form})
        assert any("appendix" in item or "authors'" in item for item in run.report.differences)


def test_every_row_of_the_sparse_universal_transformer_has_a_recipe():
    tables = papers()["sparse_universal"]["tables"]
    known = {PaperRow("sparse_universal", table, row) for table in tables for row in tables[table]["rows"]}
    assert named(PAIRS.values()) == known
    assert len(PAIRS) == len(known)


@pytest.mark.parametrize(
    ("name", "millions", "within"),
    [
        ("sut_base", 46.85, 0.005),
        ("sut_big", 91.00, 0.005),
        # with embeddings, as the paper prints them
        ("ut_base", 64 - 18.944, 0.5),
        ("ut_big", 105 - 18.944, 0.5),
        ("sut_base_moa", 66 - 18.944, 1.0),
        ("sut_base_no_halting", 65 - 18.944, 0.5),
    ],
)
def test_sizes_of_the_sparse_universal_transformer(name, millions, within, words):
    run = read(PAIRS[f"wmt14_en_de_{name}"])
    model = model_of(run, config_of(run, words))
    body = model.num_parameters() - model.get_input_embeddings().weight.numel()
    assert body / 1e6 == pytest.approx(millions, abs=within)


def test_what_stands_beside_sources_and_targets(words):
    run = read(PAIRS["logical_inference_translation_sut"])
    config = config_of(run, words)
    result = beside(run, config)["test"]
    assert result["slices"]["num_operators"]["12"] == 0.81
    assert "accuracy" not in result
    changed = ["benchmark_config = split_c (original)"]
    assert beside(run, config, changes=changed, benchmark_config="split_c") == {"test": {"accuracy": 0.52}}
    # changed by flags, on fewer examples, or of other sizes, numbers do not compare
    assert beside(run, config, changes=["learning_rate = 0.1 (0.0005)"]) == {}
    assert beside(run, config, changes=["max_train_samples = 10 (default)"]) == {}
    assert beside(run, config, changes=["benchmark_params.num_train = 10 (default)"]) == {}
    config.attention_experts = 4
    assert beside(run, config) == {}

    run = read(PAIRS["wmt14_en_de_sut_base"])
    assert beside(run, config_of(run, words)) == {}, "BLEU of plain texts is not the paper's"
    assert beside(run, config_of(run, words), benchmark_params={"text_form": "tokenized"})["test"]["bleu"] == 29.2
    run = read(PAIRS["cfq_ut"])
    assert beside(run, config_of(run, words), benchmark_config="mcd2") == {"test": {"accuracy": 0.511, "std": 0.018}}


# ---- Block-Recurrent Transformers

COUNTS = Path(__file__).parents[1] / "parity" / "block-recurrent" / "unit_param_counts" / "case.json"
DOCUMENTS = [path for path in DOCUMENT_RECIPES if path.parent.name == "recipes"]
# tokens of T5's vocabulary, and the rows of its embedding table
T5_VOCAB_SIZE, T5_ROWS = 32_100, 32_128
LONE_WINDOWS = ("long_documents_xl", "long_documents_memorizing")


def expected_counts():
    counts = json.loads(COUNTS.read_text())["counts"]
    # windows have no parameters
    return counts | {f"xl_{window}": counts["slide_12l"] for window in (512, 1024, 2048)}


def with_t5(run):
    """Its config with as many tokens as T5 has."""
    return ARCHITECTURES[run.model_args.model_type].config_class(
        vocab_size=T5_ROWS, pad_token_id=0, **run.model_args.config
    )


def step_tokens(run):
    args = run.args
    return args.per_device_train_batch_size * args.gradient_accumulation_steps * run.task.data.segment_length


def test_every_row_of_block_recurrent_transformers_has_a_recipe():
    assert {path.stem.removeprefix("long_documents_") for path in DOCUMENTS} == expected_counts().keys()
    tables = papers()["block_recurrent"]["tables"]
    assert named(DOCUMENTS) == {
        PaperRow("block_recurrent", table, row, "PG19 tokens") for table in tables for row in tables[table]["rows"]
    }


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_long_documents(path):
    run = read(path)
    config, args, data = with_t5(run), run.args, run.task.data
    total, expected = (
        model_of(run, config).num_parameters(),
        expected_counts()[path.stem.removeprefix("long_documents_")],
    )
    assert (total, total - T5_ROWS * config.hidden_size) == (expected["total"], expected["non_embedding"])
    (cell,) = PaperRow.of(run.report.paper).cells()
    tokens = 524_288 if "large" in path.stem else 131_072
    assert (step_tokens(run), args.max_steps) == (tokens, cell.needs["steps"])
    schedule = (args.optim, args.learning_rate, args.lr_schedule, args.warmup_steps, args.max_grad_norm)
    assert schedule == ("adafactor", 1.0, "rsqrt_std", 1000, None)
    assert data.predict_across_segments is False
    assert data.segment_length == (config.window_size if path.stem.startswith(LONE_WINDOWS) else 4096)
    assert (config.dropout, config.attention_dropout) == (0.05, 0.05)
    check_segment_length(config, data.segment_length)
    # flags in the comments
    lines = [line for line in path.read_text().splitlines() if line.startswith("#") and "--" in line]
    assert bool(lines) is ("large" not in path.stem)
    for line in lines:
        other = read(path, *line[line.index("--") :].split())
        place = other.task.data.benchmark_config
        assert other.args.learning_rate == {"pg19": 1.0, "arxiv_math": 0.5, "github": 0.25}[place]
        times = 8 if place == "github" else 1
        assert (step_tokens(other), other.args.max_steps) == (times * 131_072, 250_000 if times == 8 else 500_000)


@pytest.mark.parametrize("path", [*DOCUMENTS[:3], *map(slow, DOCUMENTS[3:])], ids=lambda path: path.stem)
def test_long_documents_are_compared_with_only_where_all_is_as_the_papers(path):
    def bits(*flags, steps=None):
        run = read(path, *flags)
        found = beside(run, with_t5(run), steps or run.args.max_steps, run.changes)
        return found.get("test", {}).get("bits")

    def printed(column):
        return PaperRow.of({**paper, "column": column}).cells()[0].numbers["bits"]

    paper = read_mapping(path)["paper"]
    assert bits() == printed("PG19 tokens")
    assert bits("--output_dir", "elsewhere", "--seed", "9") == bits()
    assert bits("--tokenizer", "bytes") == (printed("PG19 bytes") if paper["table"] == 1 else None)
    assert bits(steps=1000) is None
    for flags in (
        ["--benchmark_config", "arxiv_math", "--learning_rate", "0.5"],
        ["--learning_rate", "0.5"],
        ["--config", "{hidden_size: 512, head_dim: 64}"],
        ["--max_train_samples", "10"],
        ["--data_dir", "books"],
        ["--per_device_train_batch_size", "2"],
        ["--segment_length", "8192"],
        ["--tokenizer", "bpe", "--vocab_size", "32128"],
    ):
        assert bits(*flags) is None, flags


def test_long_documents_of_cpu_size_and_embeddings_of_t5(tmp_path):
    """A tokenizer with as many tokens as T5's, which is not to be had without a network."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    for path in set(DOCUMENT_RECIPES) - set(DOCUMENTS):
        run = read(path)
        config = config_of(run)
        assert (run.args.use_cpu, config.vocab_size) == (True, 260)
        assert run.report.paper_table.startswith("none")
        check_segment_length(config, run.task.data.segment_length)
    known = {"<pad>": 0, "</s>": 1, **{f"w{index}": index for index in range(2, T5_VOCAB_SIZE)}}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(known, unk_token="w2")), pad_token="<pad>", eos_token="</s>"
    )
    tokenizer.save_pretrained(tmp_path)
    config = config_of(read(DOCUMENTS[0]), AutoTokenizer.from_pretrained(tmp_path))
    assert (config.vocab_size, config.pad_token_id, config.bos_token_id) == (T5_ROWS, 0, None)
