"""Commands on a user's own examples of each task, compared with models that read one example at a time."""

import json
import re

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForTokenClassification,
    AutoTokenizer,
    pipeline,
)

from hf_recurrent.models.base.exit_calibration import calibration_problem
from support.task_checkpoints import (
    ENDINGS,
    READ,
    ROWS,
    choice_rows,
    make_checkpoint,
    record,
    span_rows,
    text_rows,
    write_examples,
)
from support.token_checkpoints import LABELS, word_checkpoint, word_rows, write_rows

pytestmark = pytest.mark.filterwarnings("ignore:the texts give a vocabulary:UserWarning")


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def outputs(folder, texts, loader=AutoModelForTokenClassification, end=(), **options):
    """Probabilities (S, C), steps (S,) and ids (S,) of the tokens of each text alone."""
    model, tokenizer = loader.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    for text in texts:
        ids = torch.tensor([[*tokenizer(text)["input_ids"], *end]])
        with torch.no_grad():
            output = model(ids, **options)
        yield output.logits[0].softmax(-1), output.ponder_steps[0], ids[0]


def texts_by_hand(folder, rows, **options):
    """Whether each token but the first is predicted right, its bits, and the steps of all tokens."""
    end = [AutoTokenizer.from_pretrained(folder).eos_token_id]
    right, bits, steps = [], [], []
    for probabilities, taken, ids in outputs(
        folder, [row["text"] for row in rows], AutoModelForCausalLM, end, **options
    ):
        right += (probabilities[:-1].argmax(-1) == ids[1:]).tolist()
        bits += (-probabilities[:-1].gather(1, ids[1:, None]).log2()).flatten().tolist()
        steps += taken.tolist()
    return np.mean(right), np.mean(bits), np.mean(steps)


def test_words_are_labelled(run, own, tmp_path):
    rows = word_rows(ROWS)
    rows[4]["tokens"][:1] = ["\N{ZERO WIDTH SPACE}"]
    folder, file = own("words")[0], write_rows(tmp_path / "new.jsonl", rows)
    words = ("predict", folder, "--file", file, "--output", tmp_path / "p.jsonl", "--keep_column", "kind")
    status, _, err = run(*words, "--batch_size", "7", "--all_probabilities", "--disable_tqdm")
    assert status == 0, err
    assert "warning" not in err
    found = read_lines(tmp_path / "p.jsonl")
    each = [f"probability_{name}" for name in LABELS]
    assert list(found[0]) == ["kind", "prediction", "probability", *each, "steps"]
    wanted = outputs(folder, [" ".join(row["tokens"]) for row in rows])
    for row, mine, (probabilities, steps, _) in zip(rows, found, wanted, strict=True):
        assert {len(mine[name]) for name in list(mine)[1:]} == {len(row["tokens"])}
        lost = 1 if mine["prediction"][0] is None else 0
        assert lost == (len(steps) == len(row["tokens"]) + 1)
        assert mine["prediction"][lost:] == [LABELS[label] for label in probabilities.argmax(-1)[1:-1]]
        assert mine["probability"][lost:] == pytest.approx(probabilities.amax(-1)[1:-1].tolist(), abs=1e-5)
        assert mine[each[1]][lost:] == pytest.approx(probabilities[1:-1, 1].tolist(), abs=1e-5)
        assert mine["steps"][lost:] == steps[1:-1].tolist()
    assert len({steps for mine in found for steps in mine["steps"]}) > 2


def test_masks_are_filled_as_by_a_pipeline(run, own, tmp_path):
    folder, texts = own("masked")[0], ["good [MASK] fine", "[MASK] dull [MASK] great poor", "poor [MASK]"]
    (tmp_path / "new.txt").write_text("".join(f"{text}\n" for text in [*texts, "no mask"]))
    words = ("predict", folder, "--file", tmp_path / "new.txt", "--output", tmp_path / "p.jsonl", "--top_k", "3")
    status, _, err = run(*words, "--disable_tqdm")
    assert status == 1
    assert "4: its text has no [MASK] among the tokens that are read" in err
    status, _, err = run(*words, "--disable_tqdm", "--on_error", "skip", "--overwrite")
    assert status == 0, err
    assert "1 rows were skipped" in err
    fill = pipeline("fill-mask", str(folder), top_k=3)
    found, alone = read_lines(tmp_path / "p.jsonl"), outputs(folder, texts, AutoModelForMaskedLM)
    for text, mine, (_, steps, ids) in zip(texts, found, alone, strict=True):
        theirs = fill(text) if text.count("[MASK]") > 1 else [fill(text)]
        assert mine["prediction"] == [[each["token_str"] for each in mask] for mask in theirs]
        for scores, mask in zip(mine["probability"], theirs, strict=True):
            assert scores == pytest.approx([each["score"] for each in mask], abs=1e-5)
        assert mine["steps"] == steps[ids == fill.tokenizer.mask_token_id].tolist()


def words_by_hand(folder):
    rows = word_rows(ROWS, seed=1)
    for row, (probabilities, taken, _) in zip(
        rows, outputs(folder, [" ".join(row["tokens"]) for row in rows]), strict=True
    ):
        # a word is a token, between those of beginning and end
        found = [LABELS[label] for label in probabilities.argmax(-1)[1:-1]]
        yield from zip([a == b for a, b in zip(found, row["ner_tags"], strict=True)], taken[1:-1].tolist(), strict=True)


def spans_by_hand(folder):
    model = AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for row in span_rows(ROWS, seed=1):
        inputs = tokenizer(row["question"], row["context"], return_tensors="pt")
        with torch.no_grad():
            output = model(**inputs)
        first = inputs.input_ids.shape[1] - len(row["context"].encode()) - 1
        start, end = output.start_logits[0, first:-1], output.end_logits[0, first:-1]
        pairs = [(i, j) for i in range(len(start)) for j in range(i, min(i + 5, len(start)))]
        i, j = max(pairs, key=lambda pair: start[pair[0]] + end[pair[1]])
        answer = row["context"][i : j + 1].strip(" .").lower()
        yield answer == row["answers"]["text"][0].lower(), output.ponder_steps.item()


def choices_by_hand(folder):
    model, tokenizer = AutoModelForMultipleChoice.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    for row in choice_rows(ROWS, seed=1):
        inputs = tokenizer([row["ask"]] * 3, list(ENDINGS), padding=True, return_tensors="pt")
        with torch.no_grad():
            output = model(**{name: value[None] for name, value in inputs.items()})
        yield output.logits.argmax().item() == row["label"], output.ponder_steps.float().mean().item()


@pytest.mark.parametrize(
    ("task", "by_hand", "unit", "slices"),
    [
        ("words", words_by_hand, "token", {"label", "kind", "length"}),
        ("spans", spans_by_hand, "example", {"kind", "length"}),
        ("choices", choices_by_hand, "choice", {"length"}),
    ],
)
def test_examples_are_evaluated_as_each_alone(evaluated, own, task, by_hand, unit, slices):
    folder, _, file = own(task)
    more = ("--max_answer_length", "5") if task == "spans" else ()
    tables, out, _ = evaluated(folder, file, *READ[task], *more, "--batch_size", "7")
    table, (right, steps) = tables["test"], zip(*by_hand(folder), strict=True)
    assert (table["n"], table["unit"], set(table["slices"])) == (len(right), unit, slices)
    assert table["accuracy"] == pytest.approx(np.mean(right))
    assert table["steps"]["mean"] == pytest.approx(np.mean(steps))
    # of rows that are all alike there is no table
    assert all((f"new.jsonl by {name}" in out) == (len(found["rows"]) > 1) for name, found in table["slices"].items())


def test_words_are_compared_with_what_training_tells(evaluated, own):
    folder, held, file = own("words")
    table = evaluated(folder, file, "--train_file", held, "--max_depth", "1")[0]["test"]
    assert next(iter(table["slices"])) == "context_free_bits"
    assert table["steps"]["mean"] <= table["max_depth"] == 1


def test_masks_are_evaluated(evaluated, own):
    folder, held, file = own("masked")
    tables, out, _ = evaluated(folder, file, "--mlm_probability", "0.3", "--max_seq_length", "16")
    assert tables["test"]["slices"] == {}
    assert tables["test"]["scores"]["perplexity"] == pytest.approx(np.exp(tables["test"]["scores"]["nll"]))
    assert "perplexity" in out
    table = evaluated(folder, file, *READ["masked"], "--train_file", held)[0]["test"]
    assert set(table["slices"]) == {"context_free_bits", "length"}
    assert "perplexity_of_frequencies" in table["scores"]


def test_texts_are_evaluated(evaluated, own):
    folder, _, file = own("texts")
    rows, words = text_rows(ROWS, seed=1), (folder, file, "--line_by_line")
    tables, out, _ = evaluated(*words, "--slice_by", "size")
    table, (right, bits, steps) = tables["test"], texts_by_hand(folder, rows)
    assert table["documents"] == ROWS
    assert table["token_accuracy"] == pytest.approx(right)
    assert table["bits_per_token"] == pytest.approx(bits, abs=1e-5)
    assert table["perplexity"] == pytest.approx(2**bits, rel=1e-5)
    assert table["mean_steps"] == pytest.approx(steps)
    # numbers of a file are in their order
    assert [row["value"] for row in table["by_column"]["size"]["rows"]] == [str(size) for size in range(1, 10)]
    assert "new.jsonl by size" in out
    assert f"perplexity {table['perplexity']:.5g}" in " ".join(out.split())
    for options in ({"max_depth": 1}, {"exit_criterion": "confidence", "exit_threshold": 0.2}):
        flags = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
        table = evaluated(*words, *flags)[0]["test"]
        assert table["mean_steps"] == pytest.approx(texts_by_hand(folder, rows, **options)[2])


@pytest.mark.filterwarnings("ignore:.* have more than max_seq_length")
def test_texts_are_read_as_in_training(evaluated, own, tmp_path):
    """By default; options override what the run has recorded."""
    (tmp_path / "book.txt").write_text("\n".join(row["text"] for row in text_rows(ROWS, seed=3)) + "\n")
    read_so = ("--max_seq_length", "6", "--line_by_line", "--no_keep_linebreaks")

    def table(model, *flags):
        found = evaluated(model, tmp_path / "book.txt", *flags)[0]["test"]
        counts = [found[name] for name in ("texts", "documents", "segment_length", "tokens")]
        return [*counts, pytest.approx(found["bits_per_token"], rel=1e-5)]

    plain = own("texts")[0]
    # a model had positions for six tokens alone
    recipe = "block_size: 9\nline_by_line: true\nkeep_linebreaks: false\n"
    of_run = record(make_checkpoint(tmp_path / "run", "texts"), recipe=recipe, block_size=6, pack=False)
    facts = {"block_size": 6, "pack": False, "line_by_line": True, "keep_linebreaks": False}
    published = record(make_checkpoint(tmp_path / "published", "texts"), **facts)
    wanted = table(plain, *read_so)
    assert wanted[1:3] == [ROWS, 6]
    for folder in (of_run, published):
        assert table(folder) == wanted
        assert table(folder, "--max_seq_length", "5") == table(plain, *read_so, "--max_seq_length", "5")
        packed = table(folder, "--no_line_by_line", "--keep_linebreaks")
        assert packed == table(plain, "--max_seq_length", "6")
        assert packed[0] == "blocks"
    whole = table(of_run, "--no_line_by_line", "--no_pack", "--max_seq_length", "1000")
    assert whole[:2] == ["documents", 1]


@pytest.mark.parametrize("task", ["classes", "words", "texts", "choices"])
def test_an_exit_is_calibrated(evaluated, succeed, own, tmp_path, task):
    folder, held, file = own(task)
    goal = ("--budget", "depth=1", "--without_labels", "--only_exits", "--limit", str(ROWS), "--repeats", "1")
    words = ("calibrate", folder, held, "--test_file", file, *READ[task], *goal, "--criterion", "convergence")
    succeed(*words, "--output", tmp_path / "copy")
    found = json.loads((tmp_path / "copy" / "calibration.json").read_text())
    assert (found["n"], found["risk"], found["benchmark"]) == (ROWS, "differs", held.name)
    assert found.get("unit") == ("token" if task in ("words", "texts") else None)
    assert list(found["tests"]) == ["test"]
    model = AutoModelForCausalLM if task == "texts" else None
    tables, _, err = evaluated(tmp_path / "copy", file, *READ[task])
    assert "warning" not in err
    table, test = tables["test"], found["tests"]["test"]
    assert test["accuracy"] == pytest.approx(table["token_accuracy" if model else "accuracy"])
    loader = model or AutoModelForTokenClassification
    if task in ("words", "texts"):
        model = loader.from_pretrained(tmp_path / "copy")
        assert model.config.exit_criterion == "convergence"
        assert calibration_problem(model) is None


@pytest.mark.parametrize("task", ["classes", "words"])
def test_an_exit_by_a_probe(evaluated, succeed, own, tmp_path, task):
    folder, held, file = own(task)
    columns = READ[task][:-2]
    succeed("fit-probe", folder, held, *columns, "--size", "4", "--output", tmp_path / "probed")
    goal = ("--budget", "depth=1", "--without_labels", "--only_exits", "--repeats", "1", "--criterion", "probe")
    words = ("calibrate", tmp_path / "probed", held, *READ[task], "--test_file", file, *goal, "--in_place")
    succeed(*words)
    found = json.loads((tmp_path / "probed" / "calibration.json").read_text())
    assert (found["n"], found["chosen"]["criterion"]) == (ROWS, "probe")
    table = evaluated(tmp_path / "probed", file, *READ[task])[0]["test"]
    assert table["accuracy"] == pytest.approx(found["tests"]["test"]["accuracy"])


@pytest.mark.parametrize("task", ["words", "masked"])
def test_thresholds_are_swept(evaluated, succeed, own, tmp_path, task):
    folder, file, _ = own(task)
    flags = ("--thresholds", "0.2,0.6", "--repeats", "1", "--output", tmp_path / "out")
    sliced = {"--slice_by", "kind"}
    succeed("sweep", folder, file, *(word for word in READ[task] if word not in sliced), *flags)
    found = json.loads((tmp_path / "out" / "halting_sweep.json").read_text())["splits"]["test"]
    table = evaluated(folder, file, *READ[task])[0]["test"]
    (mine,) = (row for row in found["thresholds"] if row["threshold"] == found["own_threshold"])
    assert mine["accuracy"] == pytest.approx(table["accuracy"])
    work = [row["stacks"]["model"]["calls"] for row in (*found["thresholds"], found["full_depth"])]
    assert work == sorted(work)
    assert work[0] < work[-1]
    lowest = found["thresholds"][0]
    difference = (mine["accuracy"] - lowest["accuracy"]) * table["n"]
    assert lowest["lost"] - lowest["gained"] == pytest.approx(difference)


def test_heads_without_such_an_exit_say_so(refuse, tmp_path):
    folder, file = word_checkpoint(tmp_path / "whole", halting="global"), write_examples(tmp_path / "rows", "words")
    words = (folder, file, "--limit", "40", "--tolerance", "0.3", "--output", tmp_path / "copy")
    message = refuse("calibrate", *words, "--criterion", "entropy")
    assert "this model answers for each token while its sequences stop as a whole" in message
    message = refuse("fit-probe", folder, file, "--output", tmp_path / "copy")
    assert "no probe can judge the answers of GUTForTokenClassification" in message
    assert not (tmp_path / "copy").exists()


REFUSED = [
    ("words", "evaluate --line_by_line", "line_by_line is True, but .* is a token classifier: leave it out"),
    ("masked", "evaluate --mlm_probability 0", "mlm_probability is 0.0"),
    ("texts", "evaluate --text_column txt", "text_column is 'txt'"),
    ("texts", "evaluate --mlm_probability 0.3", "mlm_probability is 0.3, but .* is a causal language model: leave it"),
    ("texts", "evaluate --text_column text --text_column kind", "name one column"),
    ("spans", "evaluate --answer_column answer", "answer_column is 'answer': held.jsonl has"),
    ("spans", "evaluate --label_column kind", "is a model that answers questions by spans: leave"),
    ("choices", "evaluate", "with --ending_columns"),
    ("spans", "sweep", "of GUTForQuestionAnswering, which this command cannot run: load it with"),
    ("choices", "fit-probe", "of GUTForMultipleChoice, which this command cannot run: load it"),
]


@pytest.mark.parametrize(("task", "words", "message"), REFUSED)
def test_refused(refuse, own, task, words, message):
    command, *flags = words.split()
    assert re.search(message, refuse(command, *own(task)[:2], *flags))
