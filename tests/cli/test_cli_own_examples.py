"""`hf-recurrent evaluate`, `sweep`, `calibrate`, `fit-probe` and `experts` on a user's own examples."""

import csv
import json
import random
import re
import shutil
import warnings

import pytest
import torch
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from hf_recurrent.hub.base_model import LINEAGE_FILE, BaseModel, read_base_model
from hf_recurrent.hub.checkpoint import save_checkpoint
from hf_recurrent.models.gut.configuration_gut import GUTConfig
from hf_recurrent.models.gut.modeling_gut import GUTForSequenceClassification
from hf_recurrent.models.sut.configuration_sut import SUTConfig
from hf_recurrent.models.sut.modeling_sut import SUTForConditionalGeneration
from hf_recurrent.text_data.tokenizers import train_tokenizer

WORDS = ["good", "bad", "fine", "dull", "great", "poor"]
NAMES = ("negative", "positive")
SIZES = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 3}


def rows(count: int, seed: int = 0) -> list[dict]:
    generator = random.Random(seed)
    chosen = [generator.choices(WORDS, k=generator.randint(1, 9)) for _ in range(count)]
    return [
        {
            "review": " ".join(words),
            "stars": NAMES[sum(WORDS.index(word) % 2 == 0 for word in words) * 2 > len(words)],
            "kind": generator.choice("ab"),
            "score": f"{len(words) / 2:.1f}",
            "topics": "|".join(sorted({word for word in words if word in WORDS[:3]})),
        }
        for words in chosen
    ]


def write_csv(path, found):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, found[0])
        writer.writeheader()
        writer.writerows(found)
    return path


def classifier(folder, **fields):
    """A small one with random weights, and its tokenizer."""
    tokenizer = train_tokenizer("words", WORDS, frame="classification")
    ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    torch.manual_seed(0)
    config = GUTConfig(vocab_size=len(tokenizer), **SIZES, **ids, **{"halting": "global", **fields})
    save_checkpoint(GUTForSequenceClassification(config).eval(), folder, tokenizer)
    return folder


def named(*names: str) -> dict:
    return {"id2label": dict(enumerate(names)), "label2id": {name: number for number, name in enumerate(names)}}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return classifier(tmp_path_factory.mktemp("model") / "gut", **named(*NAMES))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_csv(tmp_path_factory.mktemp("data") / "reviews.csv", rows(60))


COLUMNS = ("--text-column", "review", "--label-column", "stars", "--slice-by", "kind")


@pytest.mark.parametrize("known", [1, 2])
def test_pairs_and_single_texts_are_told_apart_by_the_card(refuse, checkpoint, file, tmp_path, known):
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    example = {"text": "good", "text_pair": None if known == 1 else "bad", "answer": None}
    (folder / "card.json").write_text(json.dumps({"task": "text-classification", "example": example}))
    pair = ("--text-column", "review", "--text-column", "kind")
    columns, found, read = (COLUMNS[:2], "single texts", "pairs") if known == 2 else (pair, "pairs", "single texts")
    message = f"for {found}, but {folder} was trained on {read}: name the "
    assert message in refuse("evaluate", folder, file, *columns, *COLUMNS[2:4])
    assert message in refuse("predict", folder, "--file", file, *columns, "--output", tmp_path / "p.csv")


def test_a_file_in_another_encoding_is_not_guessed_but_the_one_of_training_named(refuse, checkpoint, tmp_path):
    folder, file = shutil.copytree(checkpoint, tmp_path / "model"), tmp_path / "reviews.csv"
    file.write_bytes("review,stars\ncafé,positive\n".encode("cp1252"))
    commands = [
        ("evaluate", folder, file, *COLUMNS[:4]),
        ("predict", folder, "--file", file, "--output", tmp_path / "p.csv"),
    ]
    for command in commands:
        assert "was trained" not in refuse(*command)
    (folder / "recipe.yaml").write_text("encoding: cp1252\n")
    for command in commands:
        found = refuse(*command)
        assert "reviews.csv, line 2: the byte 0xE9 is not utf-8; pass the file's encoding" in found
        assert found.endswith(f"{folder} was trained with --encoding cp1252")
    assert "encoding" not in refuse("evaluate", folder, tmp_path / "none.csv")


def test_columns_are_those_of_training(evaluated, succeed, checkpoint, tmp_path):
    """Where the file has them; a column of a usual name is another one then."""
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    facts = {"text_column": ["review"], "label_column": "stars"}
    (folder / "card.json").write_text(json.dumps({"benchmark": {"parameters": facts}}))
    found = [{**row, "label": NAMES[0], "text": "good"} for row in rows(30)]
    files = {"all": found, "usual": [{"text": row["review"], "label": row["stars"]} for row in found]}
    files = {name: write_csv(tmp_path / f"{name}.csv", own) for name, own in files.items()}

    def table(*words):
        found = evaluated(folder, *words)[0]["test"]
        return [found[name] for name in ("accuracy", "majority_baseline")]

    wanted = table(files["all"], "--text-column", "review", "--label-column", "stars")
    assert table(files["all"]) == table(files["usual"]) == wanted
    others = table(files["all"], "--text-column", "text", "--label-column", "label")
    assert others[1] == 1.0
    assert wanted[1] < 1.0
    answers = []
    for name, path in files.items():
        succeed("predict", folder, "--file", path, "--output", tmp_path / f"{name}_predicted.csv")
        with (tmp_path / f"{name}_predicted.csv").open(newline="") as file:
            answers.append([(row["prediction"], row["steps"]) for row in csv.DictReader(file)])
    assert answers[0] == answers[1]


def test_a_file_of_training_is_warned_of(refuse, checkpoint, file, tmp_path):
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    (folder / "card.json").write_text(json.dumps({"benchmark": {"parameters": {"files": {"train": file.name}}}}))
    others = [write_csv(tmp_path / f"{name}.csv", rows(60, seed=1)) for name in ("validation", "tests")]
    # a column that there is not ends the command before it computes
    words = ("--tolerance", "0.1", "--criterion", "confidence", "--limit", "60", "--label-column", "no")
    with pytest.warns(UserWarning, match=rf"trained on a file '{file.name}': .* if .*{file.name} is"):
        assert "label_column is 'no'" in refuse("calibrate", folder, file, "--test-file", others[1], *words)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert "label_column is 'no'" in refuse("calibrate", folder, others[0], "--test-file", others[1], *words)
    assert [str(each.message) for each in caught if "trained on" in str(each.message)] == []


def test_a_file_is_the_test_split_and_called_by_its_name(evaluated, checkpoint, file):
    tables, out, _ = evaluated(checkpoint, file, *COLUMNS, "--batch-size", "7")
    table = tables["test"]
    model, tokenizer = (
        loader.from_pretrained(checkpoint) for loader in (AutoModelForSequenceClassification, AutoTokenizer)
    )
    right = []
    for row in rows(60):
        with torch.no_grad():
            logits = model.eval()(**tokenizer(row["review"], return_tensors="pt")).logits
        right.append(model.config.id2label[logits.argmax().item()] == row["stars"])
    assert table["n"] == 60
    assert table["accuracy"] == pytest.approx(sum(right) / 60)
    assert set(table["slices"]) == {"kind", "length"}
    assert {"matthews_correlation", "f1"} <= table["scores"].keys()
    assert "reviews.csv by kind" in out
    assert table["positive_label"] == model.config.id2label[1]
    assert f"f1 of {model.config.id2label[1]} " in out


def test_a_data_set(evaluated, refuse, checkpoint, tmp_path):
    features = Features({"text": Value("string"), "label": ClassLabel(names=list(NAMES))})
    found = [{"text": row["review"], "label": NAMES.index(row["stars"])} for row in rows(30)]
    splits = {name: Dataset.from_list(found, features=features) for name in ("train", "validation")}
    for name, split in DatasetDict(splits).items():
        (tmp_path / "set").mkdir(exist_ok=True)
        split.to_parquet(tmp_path / "set" / f"{name}.parquet")
    words = (checkpoint, "--dataset-name", tmp_path / "set")
    assert {name: table["n"] for name, table in evaluated(*words)[0].items()} == {"validation": 30}
    assert list(evaluated(*words, "--split", "train")[0]) == ["train"]
    secret = Dataset.from_list([*found, {**found[0], "label": -1}], features=features)
    DatasetDict({"validation": secret}).map(lambda row: row)["validation"].to_parquet(
        tmp_path / "set" / "validation.parquet"
    )
    with pytest.warns(UserWarning, match=r"1 of 31 examples have no label \(-1\) and are left out"):
        evaluated(*words)
    assert "split is 'exam': " in refuse("evaluate", *words, "--split", "exam")


@pytest.mark.slow
def test_several_labels_and_numbers(evaluated, succeed, refuse, file, tmp_path):
    several = classifier(tmp_path / "several", **named(*WORDS[:3]), problem_type="multi_label_classification")
    kept = write_csv(tmp_path / "several.csv", [row for row in rows(60) if row["topics"]])
    topics = ("--text-column", "review", "--label-column", "topics")
    out, _ = succeed("evaluate", several, kept, *topics, "--label-delimiter", "|")
    assert "exact labels" in out
    assert "labels of test are text, those of the model lists" in refuse("evaluate", several, kept, *topics)
    facts = {"label_column": "topics", "text_column": ["review"], "label_delimiter": "|"}
    known = shutil.copytree(several, tmp_path / "known")
    (known / "card.json").write_text(json.dumps({"benchmark": {"parameters": facts}}))
    out, _ = succeed("evaluate", known, kept)
    words = (several, kept, *topics, "--label-delimiter", "|", "--repeats", "1")
    succeed("sweep", *words, "--thresholds", "0.5", "--output", tmp_path / "sweep")

    number = classifier(tmp_path / "number", num_labels=1, problem_type="regression")
    score = (number, file, "--text-column", "review", "--label-column", "score")
    tables, out, _ = evaluated(*score)
    assert "R²: share of the labels' variance" in out
    assert "reviews.csv" in out, "the file is called by its name"
    assert {"mse", "pearson", "spearman"} <= tables["test"]["scores"].keys()
    for command in (("sweep", *score), ("calibrate", *score), ("fit-probe", *score)):
        assert "neither right nor wrong" in refuse(*command)


@pytest.mark.slow
def test_calibration_and_its_probe(succeed, refuse, checkpoint, tmp_path):
    many = write_csv(tmp_path / "many.csv", rows(400))
    tests = write_csv(tmp_path / "tests.csv", rows(50, seed=1))
    copy, probed = tmp_path / "copy", tmp_path / "probed"
    others = shutil.copytree(checkpoint, tmp_path / "others")
    (others / LINEAGE_FILE).write_text('{"name": "org/base", "license": "cc-by-nc-4.0"}')
    succeed("fit-probe", others, many, *COLUMNS[:4], "--size", "4", "--output", probed)
    goal = ("--without-labels", "--budget", "depth=1", "--repeats", "1")
    succeed("calibrate", probed, many, *COLUMNS, *goal, "--test-file", tests, "--output", copy)
    found = json.loads((copy / "calibration.json").read_text())
    assert (found["benchmark"], found["split"], found["n"]) == ("many.csv", "validation", 400)
    assert list(found["tests"]) == ["test"]
    assert found["tests"]["test"]["n"] == 50
    assert found["difficulty"] == "kind"
    assert read_base_model(str(copy)) == BaseModel("org/base", "cc-by-nc-4.0")
    assert json.loads((copy / "config.json").read_text())["exit_calibration"]["benchmark"] == "many.csv"
    bare = write_csv(tmp_path / "bare.csv", [{"review": row["review"]} for row in rows(100)])
    succeed("calibrate", probed, bare, "--text-column", "review", *goal, "--output", tmp_path / "bare")
    assert json.loads((tmp_path / "bare" / "calibration.json").read_text())["full_depth"]["accuracy"] is None
    alone = (*goal, "--criterion", "confidence")
    succeed("calibrate", probed, many, *COLUMNS, *alone, "--output", tmp_path / "other")
    assert json.loads((tmp_path / "other" / "calibration.json").read_text())["tests"] == {}
    problem = refuse("calibrate", probed, "listops", "--test-file", tests)
    assert f"--test-file {tests}: this is not for listops" in problem


@pytest.mark.slow
def test_sources_and_targets(evaluated, succeed, refuse, tmp_path):
    tokenizer = train_tokenizer("bytes", [], frame="seq2seq")
    ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "attention_experts": 3, "attention_experts_per_token": 2}
    sizes |= {"halting": "token"}
    sizes |= {"num_attention_heads": 1, "head_dim": 8, "feed_forward_experts": 3, "feed_forward_experts_per_token": 2}
    torch.manual_seed(0)
    config = SUTConfig(is_encoder_decoder=True, vocab_size=len(tokenizer), intermediate_size=12, **sizes, **ids)
    save_checkpoint(SUTForConditionalGeneration(config).eval(), tmp_path / "sut", tokenizer)
    path = tmp_path / "pairs.tsv"
    path.write_text("written\tiso\n" + "".join(f"{number} May\t05-{number:02}\n" for number in range(1, 21)))
    columns = ("--source-column", "written", "--target-column", "iso")
    words = (tmp_path / "sut", path, *columns, "--metric-name", "bleu")
    tables, out, _ = evaluated(*words)
    table = tables["test"]
    assert table["n"] == 20
    assert f"BLEU {table['bleu']:.1f}" in out
    with pytest.warns(UserWarning, match="20 of 20 sources of pairs.tsv have more than max_source_length=9 tokens"):
        evaluated(*words, "--source-prefix", "date: ", "--max-source-length", "9")
    succeed("experts", tmp_path / "sut", path, *columns)
    assert "test" in json.loads((tmp_path / "sut" / "expert_stats.json").read_text())["splits"]
    succeed("sweep", tmp_path / "sut", path, *columns, "--thresholds", "0.5", "--repeats", "1")
    assert "label_column is 'iso', but" in refuse("evaluate", tmp_path / "sut", path, "--label-column", "iso")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--text-column", "text", *COLUMNS[2:]),
            "text_column is 'text': reviews.csv has the columns 'review', 'stars'",
        ),
        (("--text-column", "review"), "reviews.csv has no column 'label': .* with --label-column"),
        (("--text-column", "review", "--label-column", "kind"), "test has 2 labels that the model has not: 'a|'b"),
        ((*COLUMNS, "--slice-by", "star"), "slice_by is 'star': .*did you mean stars"),
        ((*COLUMNS, "--source-column", "review"), "source_column is 'review', but .* is a sequence classifier"),
        ((*COLUMNS, "--set", "num_test=3"), "--set num_test=3: this is not for .*reviews.csv"),
        ((*COLUMNS, "--config", "lra"), "--config lra: this is not for a file"),
        ((*COLUMNS, "--dataset-name", "org/reviews"), "both are given"),
    ],
)
def test_bad_requests_are_named(refuse, checkpoint, file, words, message):
    assert re.search(message, refuse("evaluate", checkpoint, file, *words))


@pytest.mark.slow
def test_the_card_of_own_data_is_measured_again(run, refuse, tmp_path):
    from hf_recurrent.hub import lint_card
    from hf_recurrent.hub.card import read_card
    from hf_recurrent.training.run import run as train

    validation, tests = (
        write_csv(tmp_path / f"{name}.csv", rows(count)) for name, count in (("held", 80), ("new", 50))
    )
    files = {"train_file": write_csv(tmp_path / "reviews.csv", rows(90)), "validation_file": validation}
    flags = {**files, "test_file": tests, "text_column": "review", "label_column": "stars", "slice_by": "kind"}
    flags |= {"tokenizer": "words", "max_seq_length": 8, "model_type": "gut", "config": json.dumps(SIZES)}
    flags |= {
        "max_steps": 2,
        "use_cpu": "true",
        "disable_tqdm": "true",
        "thresholds": 0.9,
        "output_dir": tmp_path / "run",
    }
    with pytest.warns(UserWarning, match="more than max_seq_length=8 tokens"):
        train([str(word) for name, value in flags.items() for word in (f"--{name}", value)])
    goal = ("--without-labels", "--budget", "depth=1", "--repeats", "1", "--criterion", "confidence", "--only_exits")
    goal += ("--in_place", "--card")
    words = ("calibrate", tmp_path / "run", validation)
    before = (tmp_path / "run" / "README.md").read_text()
    assert "test has no file: name it with --split and --test-file" in refuse(*words, *goal)
    others = write_csv(tmp_path / "others.csv", rows(80))
    with pytest.warns(UserWarning, match="more than max_seq_length=8 tokens"):
        assert "has results of 50 examples of test, of which" in refuse(*words, "--test-file", others, *goal)
    assert "are of own data, reviews: name its files" in refuse("calibrate", tmp_path / "run", "listops", *goal)
    assert (tmp_path / "run" / "README.md").read_text() == before
    with pytest.warns(UserWarning, match="more than max_seq_length=8 tokens"):
        status, _, err = run(*words, "--test-file", tests, *goal)
    assert status == 0, err
    lint_card(tmp_path / "run")
    card = read_card(tmp_path / "run")
    assert card.halting == "confidence"
    assert [result.table["n"] for result in card.results] == [50]
    # by the columns that it had
    assert list(card.results[0].table["slices"]) == ["kind", "length"]
    limit = "It was trained on `reviews` alone: how well it does on texts of another kind was not measured."
    assert card.limitations.count(limit) == 1
    # `evaluate --card` measures the same again
    before = (tmp_path / "run" / "README.md").read_text()
    (tmp_path / "run" / "halting_stats.json").write_text("{}")
    with pytest.warns(UserWarning, match="more than max_seq_length=8 tokens"):
        status, _, err = run("evaluate", tmp_path / "run", tests, "--card")
    assert status == 0, err
    assert (tmp_path / "run" / "README.md").read_text() == before
    assert '"accuracy"' in (tmp_path / "run" / "halting_stats.json").read_text()
    assert "--limit 3: this is for results that no card has" in refuse(
        "evaluate", tmp_path / "run", tests, "--card", "--limit", "3"
    )
