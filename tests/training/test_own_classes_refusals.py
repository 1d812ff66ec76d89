"""Settings of own data that do not go together, and data that do not fit: one clear line, and nothing left behind."""

import json

import pytest
from tiny_run import TINY

from support.other_tokenizers import bert_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore:the texts give a vocabulary:UserWarning")


@pytest.fixture
def refused(script, tmp_path):
    """The message that the script ends with for flags; FILE stands for a good file, and PLACE for its folder."""
    rows = [{"text": f"film {i}", "label": i % 2, "hard": i} for i in range(40)]
    file = tmp_path / "films.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run(*flags):
        argv = ["--model_type", "gut", "--config", json.dumps(TINY["config"]), "--use_cpu", "true", "--max_steps", "1"]
        flags = [flag.replace("FILE", str(file)).replace("PLACE", str(tmp_path)) for flag in flags]
        folder = tmp_path / "new" / "run"
        with pytest.raises(ValueError, match=r".") as caught:
            script.main([*argv, *flags, "--output_dir", str(folder)])
        assert not folder.parent.exists()
        message = str(caught.value)
        assert "\n" not in message
        return message

    return run


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--task_name sst-2", "task_name is 'sst-2': expected one of cola, mnli, "),
        ("--task_name record", "task_name is 'record', which fills in entities: expected one of cola, mnli, "),
        ("--task_name sst2 --text_column a", "text_column is ['a'] and task_name 'sst2', which has its own"),
        ("--task_name sst2 --train_file FILE", "task_name is 'sst2' and train_file "),
        (
            '--train_file FILE --benchmark_params {"num_train":5}',
            "benchmark_params is {'num_train': 5} and train_file ",
        ),
        ("--train_file FILE --validation_file FILE", "train_file and validation_file are both "),
        ("--train_file PLACE/flims.jsonl", "flims.jsonl': there is no such file or folder; did you mean films.jsonl?"),
        ("--validation_file FILE", "validation_file is "),
        ("--text_column a", "text_column is ['a'], which is for your own data: name it with train_file"),
        ("--train_file FILE --text_column_names text,hard", "films.jsonl, line 1: hard is 0, which is no text"),
        ("--train_file FILE --encoding latin-99", "encoding is 'latin-99': expected one that Python knows"),
        (
            "--train_file FILE --validation_file FILE --validation_split_percentage 9",
            "validation_split_percentage is 9 and validation_file ",
        ),
        ("--train_file FILE --train_split a", "train_split is a split of a data set, but train_file names a file"),
        ("--train_file FILE --dataset_config_name en", "dataset_config_name is 'en', but train_file names a file"),
        ("--train_file FILE --tokenizer bytes --vocab_size 300", "vocab_size is 300 and tokenizer 'bytes'"),
        ("--train_file FILE --tokenizer ./none", "tokenizer='./none': there is no such folder"),
        ("--train_file FILE --do_regression true --label_delimiter ;", "do_regression is true and label_delimiter ';'"),
    ],
)
def test_refusals(flags, message, refused):
    assert message in refused(*flags.split())


def test_tokenizers_that_cannot_pad(refused, tmp_path):
    tokenizer = bert_tokenizer()
    tokenizer.pad_token = tokenizer.sep_token = tokenizer.eos_token = None
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    found = refused("--train_file", "FILE", "--tokenizer", "PLACE/tokenizer")
    assert "has neither a padding nor an end-of-text token" in found


def test_limits_below_what_a_tokenizer_adds(refused):
    found = refused("--train_file", "FILE", "--max_seq_length", "1")
    assert found.startswith("max_seq_length is 1")


def test_a_folder_of_splits_is_not_one_of_labels(refused, tmp_path):
    for split in ("train", "test"):
        for label in ("bad", "good"):
            (tmp_path / "films" / split / label).mkdir(parents=True)
            (tmp_path / "films" / split / label / "1.txt").write_text(f"a {label} film")
    found = refused("--train_file", "PLACE/films")
    assert found.endswith("films has the splits test, train: name the folder of each by itself")
    found = refused("--train_file", "PLACE/films/train", "--test_file", "PLACE/films/train/good")
    assert "one within the other: name different examples" in found
