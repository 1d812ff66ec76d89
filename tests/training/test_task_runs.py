"""Each task from files to a folder: what it has learned, its tables, predictions, and the ways to load and use it."""

import json
import math
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from task_runs import BLOCKS, CHUNKS, PAIR_SIZES, RUNS, arguments
from tiny_run import (
    CHOSEN,
    GLOBAL,
    QUIET,
    SIZES,
    TINY,
    TOKEN,
    json_of,
    killed,
    predictions_of,
    table_of,
    tables_of,
    train,
    weights,
)
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForTokenClassification,
    AutoTokenizer,
    pipeline,
)

from hf_recurrent.metrics.answers import exact_match
from hf_recurrent.metrics.functional import entity_scores
from hf_recurrent.registry import ARCHITECTURES
from hf_recurrent.tasks.checkpoints import Request, evaluate_checkpoint, load_checkpoint
from hf_recurrent.tasks.fill_mask import MASK
from hf_recurrent.training.run import run
from support.compare import assert_close
from support.documents import write_texts
from support.families import nightly
from support.own_data import IOB, VERBS, choice, question, spoken, tagged, write_file

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:the texts give a vocabulary:UserWarning")]

LEARNED = {**QUIET, "model_type": "ut", "config": {**SIZES, **TOKEN}, "tokenizer": "words", "write_predictions": True}


def again(folder, files, batch_size=3, **options):
    """The table of a file that is named again to a command."""
    request = Request(files={"test": files}, **options)
    return evaluate_checkpoint(load_checkpoint(folder, "cpu"), request, batch_size=batch_size)["test"]


# ---- words, masks, spans and choices


def test_words(tmp_path, write):
    files = {
        f"{split}_file": write(f"{split}.jsonl", map(tagged, range(n))) for split, n in (("train", 40), ("test", 10))
    }
    changes = {"label_all_tokens": True, "slice_by": ["year"], "max_steps": 40, "learning_rate": 0.02}
    folder = train(tmp_path / "run", {**LEARNED, **files, "task": "token-classification", **changes})
    table, rows = table_of(folder, "test"), predictions_of(folder, "test")
    assert table["n"] == sum(len(row["words"]) for row in rows) == 55
    right = [a == b for row in rows for a, b in zip(row["labels"], row["predictions"], strict=True)]
    assert table["accuracy"] == pytest.approx(np.mean(right))
    assert table["accuracy"] > table["majority_baseline"]
    found = entity_scores([row["predictions"] for row in rows], [row["labels"] for row in rows])
    assert table["scores"]["entity_f1"] == pytest.approx(found["entity_f1"])
    assert list(table["slices"]) == ["context_free_bits", "label", "year", "length"]
    by_label = {row["value"]: row for row in table["slices"]["label"]["rows"]}
    steps = [s for row in rows for s, label in zip(row["steps"], row["labels"], strict=True) if label == "B-PER"]
    assert by_label["B-PER"]["steps"]["mean"] == pytest.approx(np.mean(steps))
    assert table["unit"] == "token"
    model = AutoModelForTokenClassification.from_pretrained(folder)
    assert model.config.id2label == dict(enumerate(IOB))
    label = pipeline("token-classification", model=model, tokenizer=AutoTokenizer.from_pretrained(folder))
    found = label(" ".join(rows[0]["words"]), ignore_labels=[])
    assert [item["entity"] for item in found] == rows[0]["predictions"]
    # the commands measure the same again
    found = again(folder, files["test_file"], arguments={"slice_by": ["year"]}, train_file=files["train_file"])
    for name in ("n", "accuracy", "steps", "slices"):
        assert found[name] == table[name]
    assert found["scores"] == pytest.approx(table["scores"])


def test_masks(tmp_path, write):
    book = write("book.txt", "".join(f"Fellow citizens, {i} years of work.\n" for i in range(120)))
    changes = {"max_seq_length": 16, "vocab_size": 300, "mlm_probability": 0.3, "max_steps": 4, "eval_steps": 4}
    changes |= {"tokenizer": "bpe", "model_type": "gut", "eval_strategy": "steps", "write_predictions": False}
    folder = train(tmp_path / "run", {**LEARNED, "task": "fill-mask", "train_file": book, **changes})
    table = table_of(folder, "validation")
    assert table["scores"]["perplexity"] == pytest.approx(math.exp(table["scores"]["nll"]))
    assert table["scores"]["perplexity_of_frequencies"] > 1
    assert list(table["slices"]) == ["context_free_bits"]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = f"Fellow {MASK}, 3 years"
    assert tokenizer(text)["input_ids"].count(tokenizer.mask_token_id) == 1
    fill = pipeline("fill-mask", model=AutoModelForMaskedLM.from_pretrained(folder), tokenizer=tokenizer)
    assert len(fill(text, top_k=2)) == 2


def test_spans(tmp_path, write):
    files = {"train_file": write("spans.jsonl", map(question, range(48)))}
    files["validation_file"] = write("dev.jsonl", map(question, range(24)))
    changes = {"version_2_with_negative": True, "max_seq_length": 17, "doc_stride": 4, "slice_by": ["asked"]}
    changes |= {
        "config": {**LEARNED["config"], "hidden_size": 32, "intermediate_size": 48},
        "per_device_train_batch_size": 16,
    }
    # windows of one question are compared by their logits, which settle last
    changes |= {"learning_rate": 0.005, "eval_strategy": "steps", "eval_steps": 100, "max_steps": 300}
    folder = train(tmp_path / "run", {**LEARNED, **files, "task": "question-answering", **changes})
    table, rows = table_of(folder, "validation"), predictions_of(folder, "validation")
    assert table["n"] == len(rows) == 24
    assert table["accuracy"] == np.mean([exact_match(row["answer"], row["answers"]) for row in rows])
    assert table["accuracy"] > 0.9 > table["majority_baseline"]
    assert table["scores"]["f1"] == pytest.approx(np.mean([row["f1"] for row in rows]))
    assert {row["answer"] for row in rows if row["asked"] == "Carla"} == {""}
    asked = {row["value"]: row for row in table["slices"]["asked"]["rows"]}
    assert asked["Ben"]["steps"]["mean"] == pytest.approx(np.mean([r["steps"] for r in rows if r["asked"] == "Ben"]))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    # as long as a first window: in a sentence that stood alone, training never had an answer for Anna
    inputs = tokenizer("Where is Anna?", "Anna lives in Bern. Ben lives in Rome", return_tensors="pt")
    with torch.no_grad():
        outputs = model(**inputs)
    span = inputs.input_ids[0, outputs.start_logits.argmax() : outputs.end_logits.argmax() + 1]
    assert tokenizer.decode(span) == "Bern"


def test_choices(tmp_path, write):
    changes = {"train_file": write("choices.jsonl", map(choice, range(48))), "validation_split_percentage": 25}
    changes |= {"config": {**LEARNED["config"], "hidden_size": 32, "intermediate_size": 48}, "batch_tokens": 300}
    changes |= {"max_steps": 60, "learning_rate": 0.02}
    folder = train(tmp_path / "run", {**LEARNED, "task": "multiple-choice", **changes})
    table, rows = table_of(folder, "validation"), predictions_of(folder, "validation")
    assert table["n"] == len(rows) == 12
    assert table["accuracy"] == np.mean([row["label"] == row["prediction"] for row in rows]) == 1
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForMultipleChoice.from_pretrained(folder).eval()
    endings = [f"Eva always {verb}." for verb in VERBS]
    inputs = tokenizer(["Eva sleeps."] * 3, endings, padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(**{name: value[None] for name, value in inputs.items()}).logits
    assert logits.argmax() == 1


# ---- language models


@pytest.fixture(scope="module")
def speeches(tmp_path_factory):
    """Forty documents, with their year."""
    rows = [
        {"text": f"Fellow citizens, {number} years of work.\n" * (1 + number % 5), "year": 1900 + number % 3}
        for number in range(40)
    ]
    return write_file(tmp_path_factory.mktemp("speeches") / "speeches.jsonl", rows)


SPEECHES = {
    **QUIET,
    "model_type": "gut",
    "config": {**SIZES, "num_hidden_layers": 2},
    "task": "text-generation",
    "tokenizer": "bytes",
    "block_size": 16,
    "per_device_train_batch_size": 2,
    "max_steps": 2,
}


def test_blocks(speeches, tmp_path):
    changes = {"tokenizer": "bpe", "vocab_size": 300, "learning_rate": 0.01, "max_steps": 6, "save_steps": 2}
    changes |= {"eval_strategy": "steps", "eval_steps": 2, "keep_checkpoints": True}
    config = {**SPEECHES["config"], **GLOBAL}
    folder = train(tmp_path / "run", SPEECHES, train_file=speeches, config=config, **changes)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    assert tokenizer.padding_side == "left"
    rows = [json.loads(line)["text"] for line in Path(speeches).read_text().splitlines()]
    ids = [token for number in (0, 20) for token in [*tokenizer(rows[number])["input_ids"], tokenizer.eos_token_id]]
    blocks = [ids[start : start + 16] for start in range(0, len(ids), 16)]
    nats, right, steps = 0.0, [], []
    for block in blocks:
        with torch.no_grad():
            outputs = model(torch.tensor([block]))
        scores, targets = outputs.logits[0, :-1].log_softmax(-1), torch.tensor(block[1:])
        nats -= scores.gather(1, targets[:, None]).sum().item()
        right += (scores.argmax(-1) == targets).tolist()
        steps += outputs.ponder_steps[0].tolist()
    table = table_of(folder, "validation")
    assert (table["documents"], table["tokens"]) == (len(blocks), len(right))
    assert table["bits_per_token"] == pytest.approx(nats / math.log(2) / len(right), rel=1e-4)
    assert table["token_accuracy"] == pytest.approx(np.mean(right))
    assert table["mean_steps"] == pytest.approx(np.mean(steps))
    predicted = "".join(tokenizer.decode(block[1:]).replace("[EOS]", "") for block in blocks)
    assert table["bytes"] == len(predicted.encode())
    assert sum(row["tokens"] for row in table["by_position"]) == len(right)
    # evaluations on the way report the same
    history = json_of(folder / "checkpoint-6" / "trainer_state.json")["log_history"]
    evaluations = [log for log in history if "eval_loss" in log]
    assert len(evaluations) == 3
    last = evaluations[-1]
    assert last["eval_perplexity"] == pytest.approx(math.exp(last["eval_nll"])) == pytest.approx(table["perplexity"])
    assert last["eval_nll"] == pytest.approx(math.log(2) * table["bits_per_token"], rel=1e-4)
    assert last["eval_token_accuracy"] == pytest.approx(table["token_accuracy"], abs=1e-6)
    # generation does not begin with a token that no text began with
    assert "bos_token_id" not in json_of(folder / "generation_config.json")
    with pytest.raises(ValueError, match="`bos_token_id` has to be defined"):
        model.generate(max_new_tokens=1)
    generator = pipeline("text-generation", model=str(folder))
    assert generator("Fellow", max_new_tokens=4, do_sample=False)[0]["generated_text"].startswith("Fellow")


def test_a_streamed_run_learns_what_an_unstreamed_one_does(speeches, tmp_path, monkeypatch):
    """In the order of the documents, past the end of a pass."""
    changes = {"train_file": speeches, "max_train_samples": 7, "train_sampling_strategy": "sequential", "max_steps": 6}
    # each pass over a data set draws from the generator of dropout
    changes["config"] = {**SPEECHES["config"], "dropout": 0.0, "attention_dropout": 0.0}
    with monkeypatch.context() as patch:
        patch.setattr("datasets.Dataset.from_generator", pytest.fail)
        train(tmp_path / "streamed", SPEECHES, streaming=True, **changes)
    # batches of 2 from 7 blocks: the last one of a pass is smaller, which a stream does not know
    changes["max_train_samples"] = 8
    train(tmp_path / "copied", SPEECHES, **changes)
    train(tmp_path / "again", SPEECHES, streaming=True, **changes)
    streamed, copied, same = (weights(tmp_path / name) for name in ("streamed", "copied", "again"))
    assert_close(same, copied, 1e-6)
    assert not torch.allclose(*(each["model.embed_tokens.weight"] for each in (streamed, copied)))
    broken = write_file(tmp_path / "bad.jsonl", '{"text": 3}\n' + Path(speeches).read_text())
    changes = {"train_file": broken, "validation_file": speeches, "streaming": True, "on_error": "skip"}
    with pytest.warns(UserWarning, match="broken rows are left out as they come, and not counted"):
        train(tmp_path / "bad", SPEECHES, **changes)


def test_documents_one_by_one_are_sliced_by_column_and_length(speeches, tmp_path):
    changes = {"train_file": speeches, "pack": False, "slice_by": ["year"], "block_size": 100}
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        folder = train(tmp_path / "run", SPEECHES, validation_split_percentage=50, **changes)
    cut = [str(item.message) for item in seen if "block_size=100" in str(item.message)]
    for split, message in zip(("train", "validation"), cut, strict=True):
        assert re.match(
            rf"\d+ of 20 documents of {split} have more than block_size=100 tokens, at most \d+, and", message
        )
    table = table_of(folder, "validation")
    assert (table["texts"], table["documents"]) == ("documents", 20)
    years = table["by_column"]["year"]["rows"]
    assert [row["value"] for row in years] == ["1900", "1901", "1902"]
    assert sum(row["n"] for row in years) == 20
    for rows in (years, table["by_column"]["length"]["rows"]):
        assert sum(row["tokens"] for row in rows) == table["tokens"]
        bits = sum(row["tokens"] * row["bits_per_token"] for row in rows)
        assert bits == pytest.approx(table["tokens"] * table["bits_per_token"])


@pytest.mark.parametrize(
    "model_type",
    [
        name if name in ("tlb", "rnn", "sut") else nightly(name)
        for name, family in ARCHITECTURES.items()
        if "AutoModelForCausalLM" in family.heads
    ],
)
def test_every_causal_architecture_trains(speeches, tmp_path, model_type):
    """With a block that is no multiple of its windows or chunks."""
    config = {"rnn": {"hidden_size": 16, "num_hidden_layers": 2}, "block_recurrent": BLOCKS}
    chunked = CHUNKS if model_type in ("tlb", "gutlb") else {}
    config = config.get(model_type, {**SPEECHES["config"], **chunked})
    folder = train(tmp_path / "run", SPEECHES, train_file=speeches, model_type=model_type, config=config, block_size=19)
    assert 0 < table_of(folder, "validation")["bits_per_byte"] < 12


def test_answers(tmp_path):
    """Tables are about the last read of each string."""
    printed = run(arguments("answers", tmp_path / "run", {}))
    assert "test_16_p80 by distance" in printed
    assert "tokens of test_16_p80 by kind" in printed or "test_16_p80 by kind of the token" in printed
    # all strings of a split are equally long
    assert "by length" not in printed
    tables = tables_of(tmp_path / "run")
    # the split of the training distribution comes first
    assert next(iter(tables)) == "test_16_p80"
    assert sorted(tables) == sorted(f"test_{length}_p{percent}" for length in (16, 32) for percent in (10, 80, 98))
    table, rows = tables["test_32_p98"], predictions_of(tmp_path / "run", "test_32_p98")
    assert table["n"] == len(rows) == 10
    assert table["accuracy"] == sum(row["label"] == row["prediction"] for row in rows) / 10
    assert {row["label"] for row in rows} <= {"0", "1"}
    assert table["labelled_tokens"]["n"] == sum(row["num_reads"] for row in rows)
    kinds = {row["value"]: row["n"] for row in table["tokens"]["kind"]["rows"]}
    assert kinds["r"] == kinds["bit after r"] == table["labelled_tokens"]["n"]
    assert sum(kinds.values()) == sum(table["steps_histogram"]) == 320
    figures = {path.stem.removeprefix("test_16_p80_") for path in (tmp_path / "run" / "assets").iterdir()}
    assert {"steps", "token_steps_position", "token_steps_kind", "heat_map", "memory"} <= figures


# ---- long documents


def test_segments(tmp_path):
    texts = write_texts(tmp_path / "texts", {"train": 7, "validation": 2, "test": 3}, 5, 50)
    changes = {"data_dir": str(texts), "eval_steps": 4, "max_steps": 8, "logging_steps": 2, "keep_checkpoints": True}
    changes |= {"gradient_accumulation_steps": 2, "save_steps": 3, "per_device_train_batch_size": 2}
    folder = train(tmp_path / "run", RUNS["segments"], **changes)
    table, contents = table_of(folder, "test"), [path.read_bytes() for path in (texts / "test").iterdir()]
    assert table["documents"] == len(contents) == 4
    # every byte but the first of a document is predicted
    assert table["tokens"] == sum(map(len, contents)) - 4
    assert table["bits_per_byte"] == pytest.approx(table["bits_per_token"])
    assert [row["carry"] for row in table["carries"]] == ["document", "segment", "state"]
    log = json_of(folder / "training_log.json")
    assert [entry["step"] for entry in log if "bits_per_token" in entry] == [2, 4, 6, 8]
    assert [entry["step"] for entry in log if "validation_bits_per_token" in entry] == [4, 8]
    assert sorted(path.name for path in folder.glob("checkpoint-*")) == ["checkpoint-6", "checkpoint-8"]
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    inputs = tokenizer("state wind", return_tensors="pt")
    assert model.generate(**inputs, max_new_tokens=12, do_sample=False).shape == (1, 22)
    # and on
    changes = {"data_dir": str(texts), "model_type": None, "config": None, "model_name_or_path": str(folder)}
    with pytest.raises(ValueError, match=r"tokenizer is 'bytes', but .* has its own"):
        train(tmp_path / "other", RUNS["segments"], **changes, tokenizer="bytes")
    # the rate of the first step is 0
    tuned = train(tmp_path / "tuned", RUNS["segments"], **changes, max_steps=1)
    assert all(value.equal(weights(folder)[name]) for name, value in weights(tuned).items())


@pytest.mark.parametrize(
    ("model_type", "config", "changes"),
    [
        ("gutlb", {**SIZES, **CHUNKS}, {"bf16": True}),
        ("rnn", {"hidden_size": 16}, {"tokenizer": "bpe", "vocab_size": 270, "optim": "adamw_torch"}),
        ("block_recurrent", BLOCKS, {"tokenizer": "words", "vocab_size": 12}),
    ],
)
def test_rows_are_documents_and_some_are_held_out(write, tmp_path, model_type, config, changes):
    rows = [{"title": str(i), "body": f"It was a dark night, the {i}th of May.\n" * 3} for i in range(30)]
    recipe = {key: value for key, value in RUNS["segments"].items() if key not in ("benchmark", "benchmark_config")}
    recipe |= {"data_dir": None, "task": "long-documents", "train_file": write("novels.jsonl", rows), "max_steps": 2}
    folder = train(tmp_path / "run", recipe, text_column="body", model_type=model_type, config=config, **changes)
    table = table_of(folder, "validation")
    assert table["documents"] == 2
    if "tokenizer" not in changes:
        assert table["tokens"] == sum(len(rows[number]["body"].encode()) - 1 for number in (0, 20))
    size = changes.get("vocab_size", 260)
    assert len(AutoTokenizer.from_pretrained(folder)) == json_of(folder / "config.json")["vocab_size"] == size
    assert all(tensor.dtype == torch.float32 for tensor in weights(folder).values())


@pytest.mark.parametrize("split", ["train", "test"])
def test_documents_of_one_token_are_refused_before_training(write, tmp_path, split):
    rows = {"train": [{"text": "a night in May\n" * 9}] * 3, "test": [{"text": "a night in May\n"}] * 3}
    rows[split] = [{"text": "a"}] * 3
    files = {f"{name}_file": write(f"{name}.jsonl", found) for name, found in rows.items()}
    recipe = {**RUNS["segments"], "benchmark": None, "benchmark_config": None, "data_dir": None}
    with pytest.raises(ValueError, match=rf"the {split} documents \(3\) have one token each at most"):
        train(tmp_path / "run", recipe, task="long-documents", **files)


# ---- sources and targets

TINY_PAIRS = {
    **QUIET,
    **CHOSEN,
    "model_type": "sut",
    "config": {**PAIR_SIZES, "label_smoothing": 0.1},
    "benchmark": "logical_inference_translation",
    "benchmark_params": {"num_train": 64, "num_validation": 8, "num_test": 12},
    "learning_rate": 0.01,
    "lr_schedule": "inverse_sqrt_fairseq",
    "warmup_steps": 4,
    "batch_tokens": 400,
    "gradient_accumulation_steps": 2,
    "max_steps": 6,
    "eval_steps": 2,
    "save_steps": 2,
    "logging_steps": 2,
    "average_checkpoints": 2,
    "write_predictions": True,
    "keep_checkpoints": True,
}


def test_pairs(tmp_path):
    folder = train(tmp_path / "run", TINY_PAIRS)
    table, rows = table_of(folder, "test"), predictions_of(folder, "test")
    assert table["n"] == len(rows) == 12
    assert table["accuracy"] == sum(row["label"] == row["prediction"] for row in rows) / 12
    assert {row["label"] for row in rows} <= set("#<>=^v|")
    # Figure 4: depth by operators, of both stacks
    by_operators = table["slices"]["num_operators"]["rows"]
    assert sum(row["n"] for row in by_operators) == 12
    assert all(0 < row[stack]["mean"] <= 3 for row in by_operators for stack in ("steps", "decoder_steps"))
    # the decoder reads its start and the symbol, the encoder each word and the end
    assert sum(table["decoder"]["steps_histogram"]) == 2 * 12
    assert sum(table["steps_histogram"]) == sum(row["length"] + 1 for row in rows)
    figures = {path.stem.removeprefix("test_") for path in (folder / "assets").iterdir()}
    assert {"steps_encoder", "mass_encoder", "steps_decoder", "mass_decoder", "stacks_num_operators"} <= figures

    # the weights are the mean of the best checkpoints
    state = json_of(folder / "checkpoint-6" / "trainer_state.json")
    losses = {log["step"]: log["eval_nll"] for log in state["log_history"] if "eval_nll" in log}
    steps = sorted(losses, key=losses.get)[:2]
    first, second = (weights(folder / f"checkpoint-{step}") for step in steps)
    assert_close(weights(folder), {name: (first[name] + second[name]) / 2 for name in first})
    # also of a run that is killed before they are averaged
    with killed("hf_recurrent.training.stages.load_average"):
        train(tmp_path / "killed", TINY_PAIRS)
    assert_close(weights(train(tmp_path / "killed", TINY_PAIRS)), weights(folder), 1e-4)

    checkpoint = load_checkpoint(folder, "cpu")
    request = Request(TINY_PAIRS["benchmark"], params=TINY_PAIRS["benchmark_params"])
    found = evaluate_checkpoint(checkpoint, request, batch_size=5)["test"]
    for name in ("accuracy", "ponder_cost", "majority_baseline"):
        assert found[name] == pytest.approx(table[name], rel=1e-5)
    assert found["target"] == pytest.approx(table["target"], rel=1e-5)
    shallow = evaluate_checkpoint(checkpoint, request, max_depth=1)["test"]
    assert shallow["steps"]["max"] == shallow["decoder"]["steps"]["max"] == shallow["max_depth"] == 1
    inputs = checkpoint.tokenizer("( not a ) #SEP# b", return_tensors="pt")
    # a symbol and the end, which is as far as evaluations let it write
    assert checkpoint.model.generation_config.max_new_tokens == 2
    assert checkpoint.model.generate(**inputs, min_new_tokens=2).shape == (1, 3)


DIGITS = {**TINY_PAIRS, "benchmark": None, "benchmark_params": None, "tokenizer": "bytes", "max_steps": 4}
DIGITS |= {"source_column": "words", "target_column": "digits", "batch_tokens": 300, "average_checkpoints": None}


def test_pairs_of_a_file(write, tmp_path):
    files = {"train_file": write("pairs.jsonl", map(spoken, range(0, 300, 3)))}
    files["validation_file"] = write("held.jsonl", map(spoken, range(1, 60, 3)))
    changes = {"slice_by": ["size"], "metric_name": "bleu", "generation_num_beams": 2}
    folder = train(tmp_path / "run", DIGITS, **files, **changes, metric_for_best_model="token_accuracy")
    table, rows = table_of(folder, "validation"), predictions_of(folder, "validation")
    assert (table["n"], list(table["slices"])) == (20, ["size", "length"])
    assert [row["n"] for row in table["slices"]["size"]["rows"]] == [3, 17]
    assert 0 <= table["bleu"] <= 100
    assert {row["label"] for row in rows} == {str(number) for number in range(1, 60, 3)}
    # bytes and the end
    lengths = [len(spoken(int(row["label"]))["words"]) + 1 for row in rows]
    assert sorted(row["length"] for row in rows) == sorted(lengths)
    assert json_of(folder / "generation_config.json")["num_beams"] == 2
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert model.generate(**tokenizer("one two", return_tensors="pt"), max_new_tokens=3).shape[0] == 1
    # the same on a file that is named again
    settings = {"slice_by": ["size"], "metric_name": "bleu"}
    settings |= {name: DIGITS[name] for name in ("source_column", "target_column")}
    found = again(folder, files["validation_file"], arguments=settings)
    assert found["target"] == pytest.approx(table["target"], rel=1e-5)
    assert (found["bleu"], found["slices"]["size"]["rows"][0]["n"]) == (pytest.approx(table["bleu"]), 3)
    # and further, with its tokenizer
    changes = {"model_type": None, "config": None, "model_name_or_path": str(folder), "max_steps": 2}
    with pytest.raises(ValueError, match=r"tokenizer is 'bytes', but .*run has its own"):
        train(tmp_path / "third", DIGITS, **files, **changes)
    second = train(tmp_path / "second", DIGITS, **files, **changes, tokenizer=None)
    assert AutoTokenizer.from_pretrained(second).get_vocab() == tokenizer.get_vocab()


def test_translation_is_measured_by_bleu(tmp_path):
    """Of texts from files, with a tokenizer that is trained on them, by beam search, at a fixed depth."""
    words = {"en": ["the", "cat", "dog", "sees", "hears", "house", "a"]}
    words["de"] = ["die", "Katze", "Hund", "sieht", "hört", "Haus", "ein"]
    for split, count in (("train", 40), ("valid", 6), ("test", 6)):
        for language, known in words.items():
            lines = [" ".join(known[(row * place + row) % 7] for place in range(1, 6)) for row in range(1, count + 1)]
            write_file(tmp_path / f"{split}.{language}", "\n".join(lines) + "\n")
    beams = {"generation_num_beams": 2, "generation_length_penalty": 0.4, "generation_max_length": 9}
    changes = {"benchmark": "wmt14_en_de", "benchmark_params": {"text_form": "tokenized"}, "num_merges": 10, **beams}
    config = {**PAIR_SIZES, "halting": "none", "ponder_loss_weight": 0.0}
    folder = train(tmp_path / "run", TINY_PAIRS, data_dir=str(tmp_path), config=config, **changes)
    table = table_of(folder, "test")
    assert 0 <= table["bleu"] <= 100
    assert "compounds:split" in table["bleu_signature"]
    assert 0 <= table["detokenized_bleu"] <= 100
    assert table["fixed_depth"]
    generation = json_of(folder / "generation_config.json")
    assert (generation["num_beams"], generation["length_penalty"], generation["max_new_tokens"]) == (2, 0.4, 9)


# ---- other families and benchmarks


@pytest.mark.parametrize("model_type", ["ut", "xpos_transformer"])
def test_sentence_pairs(model_type, tmp_path):
    changes = {
        "benchmark": "logical_inference",
        "benchmark_params": {"num_train": 32, "num_validation": 8, "num_test": 12},
    }
    config = {**SIZES, **(TOKEN if model_type == "ut" else {}), "pair_encoding": "siamese"}
    changes |= {"model_type": model_type, "config": config, "max_steps": 2}
    folder = train(tmp_path / "run", TINY, **changes, eval_steps=2, save_steps=2)
    figures = {path.name for path in (folder / "assets").iterdir()}
    assert ("test_heat_map.png" in figures) is (model_type == "ut")


def test_a_checkpoint_is_tuned_further(tmp_path):
    folder = train(tmp_path / "run", TINY, max_steps=4)
    params = {**TINY["benchmark_params"], "depth_balanced": True}
    changes = {"model_type": None, "model_name_or_path": str(folder), "config": {"halting_threshold": 0.9}}
    none = dict.fromkeys(("eval_strategy", "eval_steps", "load_best_model_at_end", "metric_for_best_model"))
    tuned = train(tmp_path / "tuned", TINY, max_steps=1, learning_rate=0.0, benchmark_params=params, **changes, **none)
    assert_close(weights(tuned), weights(folder), 1e-4)
    assert json_of(tuned / "config.json")["halting_threshold"] == 0.9
