"""`hf-recurrent evaluate` and `predict` on a user's own examples, which are read as training read its own."""

import csv
import json
import re
import shutil

import pytest
import torch
from datasets import ClassLabel, Dataset, Features, Value
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from hf_recurrent import SUTConfig, SUTForConditionalGeneration
from hf_recurrent.data.tokenizers import train_tokenizer
from hf_recurrent.hub import lint_card
from hf_recurrent.hub.checkpoint import save_checkpoint
from hf_recurrent.hub.results import read_results
from support.task_checkpoints import NAMES, READ, ROWS, SIZES, classifier, named, record, review_rows, write_csv
from support.token_checkpoints import WORDS

COLUMNS = READ["classes"]


@pytest.fixture
def copied(own, tmp_path):
    """Copies the classifier with what a run records."""

    def copied(name="model", **facts):
        return record(shutil.copytree(own("classes")[0], tmp_path / name), **facts)

    return copied


@pytest.mark.parametrize(("known", "read", "found"), [(1, "single texts", "pairs"), (2, "pairs", "single texts")])
def test_pairs_and_single_texts_are_told_apart_by_training(refuse, copied, own, tmp_path, known, read, found):
    folder, file = copied(text_column=["review", "kind"][:known]), own("classes")[1]
    columns = ("--text_column", "review", *(("--text_column", "kind") if known == 1 else ()))
    message = f"for {found}, but {folder} was trained on {read}: name "
    assert message in refuse("evaluate", folder, file, *columns, *COLUMNS[2:4])
    assert message in refuse("predict", folder, "--file", file, *columns, "--output", tmp_path / "p.csv")


def test_the_encoding_of_a_file_is_not_guessed(refuse, copied, tmp_path):
    folder, file = copied(), tmp_path / "reviews.csv"
    file.write_bytes("review,stars\ncafé,positive\n".encode("cp1252"))
    (folder / "recipe.yaml").write_text("encoding: cp1252\n")
    assert "byte 0xe9 is not utf-8: pass the file's encoding" in refuse("evaluate", folder, file, *COLUMNS[:4])
    words = ("--text_column", "review", "--output", tmp_path / "p.csv")
    assert "byte 0xe9 is not utf-8: pass the file's encoding" in refuse("predict", folder, "--file", file, *words)


def test_columns_are_those_of_training(evaluated, succeed, copied, tmp_path):
    """Where the file has them; a column of a usual name is another one then."""
    folder = copied(text_column=["review"], label_column="stars")
    found = [{**row, "label": NAMES[0], "text": "good"} for row in review_rows(30)]
    files = {"all": found, "usual": [{"text": row["review"], "label": row["stars"]} for row in found]}
    files = {name: write_csv(tmp_path / f"{name}.csv", rows) for name, rows in files.items()}

    def table(*words):
        found = evaluated(folder, *words)[0]["test"]
        return [found[name] for name in ("accuracy", "majority_baseline")]

    wanted = table(files["all"], "--text_column", "review", "--label_column", "stars")
    assert table(files["all"]) == table(files["usual"]) == wanted
    assert table(files["all"], "--text_column", "text", "--label_column", "label")[1] == 1.0 > wanted[1]
    answers = []
    for name, path in files.items():
        succeed("predict", folder, "--file", path, "--output", tmp_path / f"{name}_predicted.csv")
        with (tmp_path / f"{name}_predicted.csv").open(newline="") as file:
            answers.append([(row["prediction"], row["steps"]) for row in csv.DictReader(file)])
    assert answers[0] == answers[1]


def test_a_file_is_the_test_split_and_called_by_its_name(evaluated, own):
    folder, file, _ = own("classes")
    tables, out, _ = evaluated(folder, file, *COLUMNS, "--batch_size", "7")
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer, right = AutoTokenizer.from_pretrained(folder), []
    for row in review_rows(ROWS):
        with torch.no_grad():
            answer = model(**tokenizer(row["review"], return_tensors="pt")).logits.argmax().item()
        right.append(model.config.id2label[answer] == row["stars"])
    table = tables["test"]
    assert (table["n"], table["accuracy"]) == (ROWS, pytest.approx(sum(right) / ROWS))
    assert set(table["slices"]) == {"kind", "length"}
    assert table["positive_label"] == model.config.id2label[1]
    assert f"f1 of {model.config.id2label[1]} " in out
    assert "held.csv by kind" in out


def test_a_data_set(evaluated, refuse, own, tmp_path):
    features = Features({"text": Value("string"), "label": ClassLabel(names=list(NAMES))})
    found = [{"text": row["review"], "label": NAMES.index(row["stars"])} for row in review_rows(30)]
    (tmp_path / "set").mkdir()
    for name, rows in {"train": found, "validation": [*found, {**found[0], "label": -1}]}.items():
        Dataset.from_list(rows, features=features).to_parquet(tmp_path / "set" / f"{name}.parquet")
    words = (own("classes")[0], "--dataset_name", tmp_path / "set")
    with pytest.warns(UserWarning, match=r"1 of 31 examples have no label \(-1 or -100\) and are left out"):
        assert {name: table["n"] for name, table in evaluated(*words)[0].items()} == {"validation": 30}
    assert list(evaluated(*words, "--split", "train")[0]) == ["train"]
    assert "split is 'exam': " in refuse("evaluate", *words, "--split", "exam")


@pytest.mark.slow
def test_several_labels_and_numbers(evaluated, succeed, refuse, own, tmp_path):
    several = classifier(tmp_path / "several", **named(*WORDS[:3]), problem_type="multi_label_classification")
    kept = write_csv(tmp_path / "several.csv", [row for row in review_rows(ROWS) if row["topics"]])
    topics = (several, kept, "--text_column", "review", "--label_column", "topics")
    assert "exact labels" in succeed("evaluate", *topics, "--label_delimiter", "|")[0]
    assert "several.csv, row 1: the label is" in refuse("evaluate", *topics)
    record(several, label_column="topics", text_column=["review"], label_delimiter="|")
    assert "exact labels" in succeed("evaluate", several, kept)[0]

    number = classifier(tmp_path / "number", num_labels=1, problem_type="regression")
    tables, out, _ = evaluated(number, own("classes")[1], "--text_column", "review", "--label_column", "score")
    assert "R²: share of the labels' variance" in out
    assert {"mse", "pearson", "spearman"} <= tables["test"]["scores"].keys()


@pytest.mark.slow
def test_sources_and_targets(evaluated, succeed, refuse, tmp_path):
    tokenizer = train_tokenizer("bytes", [], frame="seq2seq")
    ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "attention_experts": 3, "attention_experts_per_token": 2}
    sizes |= {"halting": "token"}
    sizes |= {"num_attention_heads": 1, "head_dim": 8, "feed_forward_experts": 3, "feed_forward_experts_per_token": 2}
    torch.manual_seed(0)
    config = SUTConfig(is_encoder_decoder=True, vocab_size=len(tokenizer), intermediate_size=12, **sizes, **ids)
    folder, path = tmp_path / "sut", tmp_path / "pairs.tsv"
    save_checkpoint(SUTForConditionalGeneration(config).eval(), folder, tokenizer)
    path.write_text("written\tiso\n" + "".join(f"{number} May\t05-{number:02}\n" for number in range(1, 21)))
    columns = ("--source_column", "written", "--target_column", "iso")
    words = (folder, path, *columns, "--metric_name", "bleu")
    tables, out, _ = evaluated(*words)
    assert tables["test"]["n"] == 20
    assert f"BLEU {tables['test']['bleu']:.1f}" in out
    with pytest.warns(UserWarning, match="20 of 20 sources of pairs.tsv have more than max_source_length=9 tokens"):
        evaluated(*words, "--source_prefix", "date: ", "--max_source_length", "9")
    succeed("experts", folder, path, *columns)
    assert "test" in json.loads((folder / "expert_stats.json").read_text())["splits"]
    assert "label_column is ['iso'], but" in refuse("evaluate", folder, path, "--label_column", "iso")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--text_column", "text", *COLUMNS[2:]), "text_column is 'text': held.csv has the columns 'review', 'stars'"),
        (("--text_column", "review"), "held.csv has no column 'label': .* with --label.column"),
        (("--text_column", "review", "--label_column", "kind"), "has 2 labels that the model has not: 'a|'b"),
        ((*COLUMNS, "--slice_by", "star"), "slice_by is 'star': .*did you mean stars"),
        ((*COLUMNS, "--source_column", "review"), "source_column is 'review', but .* is a sequence classifier"),
        ((*COLUMNS, "--benchmark_params", "{num_test: 3}"), "--benchmark.params .*num_test.*: this is not for a file"),
        ((*COLUMNS, "--benchmark_config", "lra"), "--benchmark.config lra: this is not for a file"),
        ((*COLUMNS, "--dataset_name", "org/reviews"), "both are given"),
    ],
)
def test_bad_requests_are_named(refuse, own, words, message):
    assert re.search(message, refuse("evaluate", *own("classes")[:2], *words))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*more than max_seq_length=8 tokens:UserWarning")
def test_the_card_of_own_data_is_measured_again(succeed, refuse, tmp_path):
    files = {name: write_csv(tmp_path / f"{name}.csv", review_rows(90, seed)) for seed, name in enumerate("abc")}
    flags = {f"{split}_file": files[name] for split, name in zip(("train", "validation", "test"), "abc", strict=True)}
    flags |= {"text_column": "review", "label_column": "stars", "slice_by": "kind", "tokenizer": "words"}
    flags |= {"max_seq_length": 8, "model_type": "gut", "config": json.dumps(SIZES)}
    flags |= {"max_steps": 2, "use_cpu": "true", "disable_tqdm": "true", "output_dir": tmp_path / "run"}
    succeed("train", *(word for name, value in flags.items() for word in (f"--{name}", value)))
    before = (tmp_path / "run" / "README.md").read_text()
    found = read_results(tmp_path / "run")
    table = found["splits"]["test"]
    (tmp_path / "run" / "results.json").write_text(json.dumps({**found, "splits": {"test": {**table, "accuracy": 0}}}))
    with pytest.raises(ValueError, match=r"is not what results.json renders to"):
        lint_card(tmp_path / "run")
    succeed("evaluate", tmp_path / "run", files["c"], "--card")
    lint_card(tmp_path / "run")
    assert read_results(tmp_path / "run")["splits"]["test"]["accuracy"] == table["accuracy"]
    assert (tmp_path / "run" / "README.md").read_text() == before
    words = ("evaluate", tmp_path / "run", files["c"], "--card", "--limit", "3")
    assert "--limit 3: this is not for results of a card" in refuse(*words)
