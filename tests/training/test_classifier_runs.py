"""Classifiers: all kinds of labels, checkpoints of others, protocols of papers, and what is read symbol by symbol."""

import itertools
import warnings

import pytest
import torch
from tiny_run import GLUE_RECIPES, SIZES, TINY, json_of, killed, predictions_of, table_of, tables_of, train, weights
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

from hf_recurrent import AlbertRecurrentForSequenceClassification, UTConfig, UTForCausalLM, from_pretrained_recurrent
from hf_recurrent.hub.checkpoint import save_checkpoint
from hf_recurrent.metrics.functional import class_scores, number_scores
from hf_recurrent.tasks.checkpoints import Request, evaluate_checkpoint, load_checkpoint
from hf_recurrent.training.model import check_model, make_config, make_model
from hf_recurrent.training.stages import Run
from hf_recurrent.training.trainer import RecurrentTrainer, check_selection
from support.albert import glue_splits, save_albert
from support.compare import assert_close
from support.other_tokenizers import bert_tokenizer
from support.own_data import write_file

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:the texts give a vocabulary:UserWarning")]

ODD = ['a | "b"', "c/d\n`e`", "*f* [g](h) é", "<script>", "None", "{{ x }} ![y](z.png)"]
FILMS = {name: value for name, value in TINY.items() if not name.startswith(("benchmark", "eval", "load", "metric"))}


def texts(count):
    """Texts of several lengths, in which the first word tells the label."""
    return [f"{('good', 'bad', 'odd')[i % 3]} film" + " very" * (i % 4) + f" {i % 5}" for i in range(count)]


def labelled(*labels, count=24, **columns):
    """Rows with labels, and other values of a column, in turn."""
    rows = [{"text": text, "label": labels[i % len(labels)]} for i, text in enumerate(texts(count))]
    return [{**row, **{name: each[i % len(each)] for name, each in columns.items()}} for i, row in enumerate(rows)]


@pytest.fixture
def films(tmp_path):
    """Trains on rows for seconds, and validates on the same -> the folder."""
    numbers = itertools.count(1)

    def start(rows, **changes):
        files = {f"{name}_file": write_file(tmp_path / f"{name}.jsonl", rows) for name in ("train", "validation")}
        return train(tmp_path / f"run{next(numbers)}", FILMS, write_predictions=True, **files, **changes)

    return start


def config_of(folder):
    return json_of(folder / "config.json")


def outputs(folder, rows, columns=("text",)):
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        inputs = tokenizer(*([row[name] for row in rows] for name in columns), padding=True, return_tensors="pt")
        return model(**inputs).logits, model.config


def test_classes(films):
    rows = [{**row, "label": row["text"].split()[0]} for row in labelled(0, count=36, hard=(0, 1, 2))]
    folder = films(rows, slice_by=["hard"], max_steps=80, save_steps=80, learning_rate=0.02)
    table, found, config = table_of(folder, "validation"), predictions_of(folder, "validation"), config_of(folder)
    assert config["problem_type"] == "single_label_classification"
    assert config["id2label"] == {"0": "bad", "1": "good", "2": "odd"}
    assert table["majority_baseline"] == pytest.approx(1 / 3)
    assert list(table["slices"]) == ["hard", "length"]
    assert sorted(row["text"] for row in found) == sorted(row["text"] for row in rows)
    logits, model_config = outputs(folder, found)
    assert [model_config.id2label[i] for i in logits.argmax(-1).tolist()] == [row["prediction"] for row in found]
    ids = torch.tensor([["bad", "good", "odd"].index(row["label"]) for row in found])
    expected = class_scores(logits.argmax(-1).numpy(), ids.numpy(), 3)
    assert table["accuracy"] == pytest.approx(expected.pop("accuracy"))
    assert table["scores"] == pytest.approx(expected)
    assert table["accuracy"] > 0.9, "the first word tells the label"


def test_several_labels(films):
    folder = films(labelled(["war"], ["old", "war"], [], ["new"]))
    table, found = table_of(folder, "validation"), predictions_of(folder, "validation")
    assert config_of(folder)["problem_type"] == "multi_label_classification"
    assert list(config_of(folder)["id2label"].values()) == ["new", "old", "war"]
    assert {row["label"] for row in found} == {"war", "old + war", "(none)", "new"}
    logits, config = outputs(folder, found)
    names = [[config.id2label[i] for i, value in enumerate(row) if value > 0] for row in logits.tolist()]
    assert [row["prediction"] for row in found] == [" + ".join(own) or "(none)" for own in names]
    assert table["accuracy"] == pytest.approx(sum(row["prediction"] == row["label"] for row in found) / len(found))
    assert table["majority_baseline"] == pytest.approx(0.25)


def test_numbers(films):
    chosen = {"eval_strategy": "steps", "load_best_model_at_end": True, "metric_for_best_model": "mse"}
    folder = films(labelled(0.5, 1.5, 2.5), **chosen)
    table, found = table_of(folder, "validation"), predictions_of(folder, "validation")
    assert (config_of(folder)["problem_type"], len(config_of(folder)["id2label"])) == ("regression", 1)
    logits, _ = outputs(folder, found)
    predicted, true = (torch.tensor([row[name] for row in found]) for name in ("prediction", "label"))
    assert_close(predicted, logits.flatten(), 1e-5)
    expected = number_scores(predicted.numpy(), true.numpy())
    assert table["accuracy"] == pytest.approx(expected.pop("r_squared"), abs=1e-5)
    assert table["scores"] == pytest.approx(expected, abs=1e-5)
    chosen["metric_for_best_model"] = "f1"
    with pytest.raises(ValueError, match=r"metric_for_best_model is 'f1': .* expected one of accuracy, macro_f1"):
        films(labelled("a", "b", "c"), **chosen)


@pytest.mark.parametrize("encoding", ["joint", "siamese"])
def test_pairs(encoding, films):
    rows = [
        {"premise": row["text"], "hypothesis": row["text"][::-1], "label": row["label"]}
        for row in labelled("a_b", "a|c")
    ]
    folder = films(rows, config={**TINY["config"], "pair_encoding": encoding})
    assert table_of(folder, "validation")["positive_label"] == "a|c"
    found = predictions_of(folder, "validation")
    logits, config = outputs(folder, found, ("text", "text_pair"))
    assert [config.id2label[i] for i in logits.argmax(-1).tolist()] == [row["prediction"] for row in found]


def test_odd_labels_cuts_and_processes(films):
    with pytest.warns(UserWarning, match=r"18 of 24 examples of (train|validation)\.jsonl have more than max_seq_leng"):
        folder = films(labelled(*ODD), max_seq_length=5, tokenizer="words", num_proc=2)
    assert list(config_of(folder)["id2label"].values()) == sorted(ODD)
    # difficulty is the whole length
    rows = table_of(folder, "validation")["slices"]["length"]["rows"]
    assert [row["value"] for row in rows] == ["5", "6", "7", "8"]


def test_a_limit_of_the_tokenizers_own_model_is_none_of_this_one(films, tmp_path):
    tokenizer = bert_tokenizer()
    tokenizer.model_max_length = 6
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    rows = [{"text": "good film " * 9, "label": i % 2} for i in range(12)]
    whole = films(rows, tokenizer=str(tmp_path / "tokenizer"))
    with pytest.warns(UserWarning, match="have more than max_seq_length=5 tokens"):
        cut = films(rows, tokenizer=str(tmp_path / "tokenizer"), max_seq_length=5)
    loaded = (AutoTokenizer.from_pretrained(folder) for folder in (whole, cut))
    lengths = [len(each(rows[0]["text"], truncation=True)["input_ids"]) for each in loaded]
    assert lengths == [len(tokenizer(rows[0]["text"])["input_ids"]), 5]


def test_a_checkpoint_is_tuned_on_other_labels(films):
    first = films(labelled(0, 1))
    start = {"model_type": None, "model_name_or_path": str(first), "config": None, "max_steps": 1}
    same = films(labelled(0, 1), **start, learning_rate=0.0)
    assert_close(weights(same), weights(first), 1e-6)
    with pytest.raises(ValueError, match="ignore_mismatched_sizes"):
        films(labelled(0, 1, 2), **start)
    order = r"learned the labels '0', '1', and the data have '1', '0': .*--label_list 0 1 "
    with pytest.warns(UserWarning, match=order):
        films(labelled(0, 1), **start, label_list=["1", "0"])
    folder = films(labelled(0, 1, 2), **start, ignore_mismatched_sizes=True)
    assert len(config_of(folder)["id2label"]) == 3


# ---- checkpoints of others


def read(*argv, tag="text-classification"):
    """A run that has read its arguments."""
    return Run([*map(str, argv), "--output_dir", "unused", "--use_cpu", "true"], tag)


def started(run):
    """The model and tokenizer that a run begins with."""
    tokenizer = run.task.load_tokenizer(run.model_args)
    config = make_config(run.model_args, run.task, tokenizer)
    return make_model(run.model_args, config, run.task), tokenizer


@pytest.fixture
def glue(monkeypatch):
    """Lets tasks of GLUE have a few examples."""
    place = "hf_recurrent.data.loading.load_hub_dataset"
    monkeypatch.setattr(place, lambda place, name, config, revision, **options: glue_splits(config))


@pytest.mark.parametrize("path", GLUE_RECIPES, ids=lambda path: path.stem)
def test_a_recipe_begins_with_the_weights_of_albert(path, glue, tmp_path):
    theirs = save_albert(tmp_path / "albert")
    assert path.read_text().startswith("#")
    names = read(path).model_args
    assert (names.model_name_or_path, names.model_type) == ("albert/albert-base-v2", None)
    run = read(path, "--model_name_or_path", tmp_path / "albert")
    assert path.stem == f"{run.task.data.task_name}_albert_pabee"
    assert run.report.paper_table.startswith("ALBERT base with PABEE on ")
    check_model(run.model_args, run.task)
    model, tokenizer = started(run)
    splits = [name for name in run.task.source.splits if name.startswith("validation")]
    check_selection(run.args, splits, run.task, model.config)
    assert type(model) is AlbertRecurrentForSequenceClassification
    assert len(model.classifiers) == theirs.config.num_hidden_layers
    assert model.config.depth_objective == "every_step"
    assert tuple(model.config.id2label.values()) == run.task.source.label_names
    assert torch.equal(model.model.embed_tokens.weight, theirs.albert.embeddings.word_embeddings.weight)
    assert torch.equal(model.model.pooler.weight, theirs.albert.pooler.weight)
    assert all(parameter.requires_grad for parameter in model.parameters())
    # transformers' tokenizer tells the texts of a pair apart on request alone
    assert max(tokenizer("good film", "bad film")["token_type_ids"]) == 1


def test_a_frozen_backbone_and_a_converted_checkpoint(glue, tmp_path):
    save_albert(tmp_path / "albert", "AlbertForMaskedLM")
    start = ("--model_name_or_path", tmp_path / "albert", "--task_name", "sst2")
    model, tokenizer = started(read(*start, "--freeze_base_model", "true"))
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    # a masked language model has no pooler
    assert trained == {f"{name}.{kind}" for name in ("classifier", "model.pooler") for kind in ("weight", "bias")}
    # a converted one keeps the size of its vocabulary
    save_albert(tmp_path / "albert")
    ours = from_pretrained_recurrent(tmp_path / "albert")
    save_checkpoint(ours, tmp_path / "ours", tokenizer)
    model, _ = started(read("--model_name_or_path", tmp_path / "ours", "--task_name", "sst2"))
    assert torch.equal(model.model.embed_tokens.weight, ours.model.embed_tokens.weight)


def test_what_cannot_begin_a_run(glue, tmp_path):
    save_albert(tmp_path / "albert", vocab_size=9)
    start = ("--model_name_or_path", tmp_path / "albert", "--task_name", "sst2")
    with pytest.raises(ValueError, match=r"its tokenizer has 16 tokens and its model embeddings of 9 \(vocab_size\)"):
        started(read(*start))
    with pytest.raises(
        ValueError, match=r"config field of AlbertRecurrentConfig is 'step_clasifiers'.*did you mean step_cl"
    ):
        started(read(*start, "--config", "{step_clasifiers: separate}"))
    with pytest.raises(ValueError, match="freeze_base_model is True: it is for a checkpoint, model_name_or_path"):
        read("--model_type", "gut", "--freeze_base_model", "true")
    model = UTForCausalLM(UTConfig.preset("tiny", is_causal=True, tie_word_embeddings=True))
    save_checkpoint(model, tmp_path / "ut")
    run = read("--model_name_or_path", tmp_path / "ut", "--freeze_base_model", "true", tag="text-generation")
    with pytest.raises(ValueError, match="freeze_base_model is true: UTForCausalLM has no weights of its own"):
        make_model(run.model_args, model.config, run.task)


def test_a_kept_exit_is_said_before_training(tmp_path):
    """It was chosen for other weights."""
    start = ["--model_name_or_path", "calibrated"]
    config = UTConfig(exit_criterion="confidence", exit_threshold=0.6)
    message = r"exit_criterion='confidence'.*hf-recurrent calibrate.*exit_criterion: learned"
    with pytest.warns(UserWarning, match=message):
        (line,) = read(*start).kept_exit(config)
    assert "`confidence`, was first chosen for the checkpoint" in line
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(*start).kept_exit(UTConfig()) == []
        assert read(*start, "--config", "{exit_criterion: confidence}").kept_exit(config) == []


# ---- the Neural Data Router's protocol: validation sets, batches, ties, depth at test time

PROTOCOL = {
    **TINY,
    "config": SIZES,
    "model_type": "ndr",
    "benchmark": "compositional_table_lookup",
    "benchmark_params": {"num_train": 70, "num_validation": 12, "num_test": 16},
    "lr_schedule": "constant",
    "warmup_steps": None,
    "ponder_warmup_steps": None,
    "batch_sampling": "by_length",
    "metric_for_best_model": "validation_ood_accuracy",
    "best_model_on_ties": "latest",
}


def test_a_checkpoint_trains_with_one_depth_and_the_result_has_another(tmp_path, monkeypatch):
    step, seen = RecurrentTrainer.prediction_step, set()

    def spied(self, model, inputs, *args, **kwargs):
        depths = []
        hook = self.model.model.block.register_forward_hook(lambda *_: depths.append(1))
        result = step(self, model, inputs, *args, **kwargs)
        hook.remove()
        seen.add(len(depths))
        return result

    monkeypatch.setattr(RecurrentTrainer, "prediction_step", spied)
    folder = train(tmp_path / "run", PROTOCOL, evaluation_depth=5, keep_checkpoints=True)
    assert seen == {5}
    assert config_of(folder / "checkpoint-12")["num_hidden_layers"] == 3
    assert config_of(folder)["num_hidden_layers"] == 5
    tables = tables_of(folder)
    assert {table["max_depth"] for table in tables.values()} == {5}
    assert list(tables)[:2] == ["test", "test_ood"]
    assert {"test_basic", "test_new_primitive_1", "test_new_primitive_2", "test_new_composition"} < tables.keys()
    assert [row["value"] for row in tables["test_ood"]["slices"]["depth"]["rows"]] == ["9", "10"]
    # 8 batches an epoch: step 9 is within the second, from the checkpoint at its beginning
    with killed(step=10):
        train(tmp_path / "killed", PROTOCOL, evaluation_depth=5)
    assert_close(weights(train(tmp_path / "killed", PROTOCOL, evaluation_depth=5)), weights(folder), 1e-4)


EXIT = {**SIZES, "exit_criterion": "convergence", "depth_sampling": "uniform", "backprop_steps": 2}
HALTS = {
    "exit": ("ndr", EXIT, "example"),
    "act": ("ndr", {**SIZES, "copy_gate": False, "halting": "act", "num_hidden_layers": 4}, "token"),
    "lstm": ("rnn", {"hidden_size": 12, "embedding_size": 8}, None),
}


@pytest.mark.parametrize(("model_type", "config", "unit"), HALTS.values(), ids=HALTS)
def test_models_that_halt_in_other_ways_or_not(model_type, config, unit, tmp_path):
    changes = {"batch_sampling": "with_replacement", "max_steps": 2, "eval_steps": 2, "save_steps": 2}
    changes |= {"evaluation_depth": 5} if unit == "example" else {}
    folder = train(tmp_path / "run", {**PROTOCOL, "model_type": model_type, "config": config}, **changes)
    table = table_of(folder, "test_ood")
    assert table["unit"] == unit
    assert table["fixed_depth"] is (unit is None)
    assert (table["slices"]["depth"]["rows"][0]["steps"] is None) is (unit is None)
    if unit == "example":
        assert (table["halting"], table["max_depth"]) == ("convergence", 5)
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    assert model(**AutoTokenizer.from_pretrained(folder)(["101 a b"], return_tensors="pt")).logits.shape == (1, 8)


# ---- pixels, bytes and pairs of texts

SMALL = {"num_train": 8, "num_validation": 4, "num_test": 6}
NARROW = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "num_hidden_layers": 2}
CHUNKS = {"chunk_size": 64, "num_memory_slots": 2}
ARENA = {
    "drawings": {
        "model_type": "gut",
        "benchmark": "lra",
        "benchmark_config": "pathfinder32",
        "benchmark_params": {**SMALL, "contour_length": 4},
    },
    "reviews": {
        "model_type": "gutlb",
        "config": {**NARROW, **CHUNKS},
        "benchmark": "lra",
        "benchmark_config": "text",
        "benchmark_params": {"max_bytes": 300},
    },
    "passages": {
        "model_type": "tlb",
        "config": {**NARROW, **CHUNKS, "pair_encoding": "siamese"},
        "benchmark": "lra",
        "benchmark_config": "retrieval",
        "benchmark_params": {"max_bytes": 150},
        "per_device_train_batch_size": None,
        "batch_tokens": 700,
    },
}


@pytest.mark.parametrize("name", ARENA)
def test_pixels_are_drawn_and_bytes_are_not(name, tmp_path):
    # of which one is no UTF-8
    for kind, word in (("pos", b"fine "), ("neg", b"poor \xff\xe9 ")):
        texts = [b"a film from /usr/share, " + word * (5 * number + 3) for number in range(6)]
        for number, text in enumerate(texts):
            for split in ("train", "test"):
                write_file(tmp_path / "texts" / split / kind / f"{number}.txt", text)
    for split in ("train", "eval", "test"):
        lines = [b"%d.0\t1\t2\t%b\t%b\n" % (number % 2, text, text[:40]) for number, text in enumerate(texts)]
        write_file(tmp_path / "texts" / f"new_aan_pairs.{split}.tsv", b"".join(lines))
    recipe = {
        **TINY,
        "config": NARROW,
        "max_steps": 2,
        "eval_steps": 2,
        "save_steps": 2,
        **ARENA[name],
    }
    recipe |= {} if name == "drawings" else {"data_dir": str(tmp_path / "texts")}
    folder = train(tmp_path / "run", recipe, per_device_eval_batch_size=4)
    figures = [path.name for path in folder.glob("assets/*") if path.stat().st_size > 5000]
    assert sum(each.endswith("_picture.png") for each in figures) == (2 if name == "drawings" else 0)
    # thousands of tokens by depth, or of chunks by slot, are no figures
    assert not any(kind in name for name in figures for kind in ("heat_map", "routing"))
    if name != "drawings":
        classify = pipeline("text-classification", str(folder))
        found = classify({"text": "a film", "text_pair": "two"} if name == "passages" else "a film")
        assert (found if isinstance(found, dict) else found[0])["label"] in classify.model.config.label2id
        return
    checkpoint = load_checkpoint(str(folder), "cpu")
    params = {**SMALL, "contour_length": 6}
    table = evaluate_checkpoint(checkpoint, Request("lra", "pathfinder32", params=params))["test"]
    assert table["n"] == 6
    assert {"contour_length", "num_distractors"} <= set(table["slices"])
    with pytest.raises(ValueError, match="answers with separate, connected, but the labels of lra are negative"):
        evaluate_checkpoint(checkpoint, Request("lra", "text"))
