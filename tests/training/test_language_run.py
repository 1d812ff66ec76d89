"""Language models of own documents, from files to a folder that can be published."""

import json
import math
import re
import sys
import warnings
from itertools import islice
from unittest import mock

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, ByT5Tokenizer, pipeline

from hf_recurrent.hub import lint_card
from hf_recurrent.registry import ARCHITECTURES
from hf_recurrent.text_data.tokenizers import train_tokenizer
from hf_recurrent.training.arguments import LanguageDataArguments
from hf_recurrent.training.language_data import LanguageCollator, load_blocks
from hf_recurrent.training.language_run import LanguageRun
from hf_recurrent.training.metrics import compute_text_metrics, token_statistics
from hf_recurrent.training.model import forget_begin
from hf_recurrent.training.run import as_command, matching_script, run_and_print
from hf_recurrent.training.trainer import RecurrentTrainer
from support.compare import assert_close
from support.families import nightly

SIZES = "{hidden_size: 16, num_attention_heads: 2, intermediate_size: 24, num_hidden_layers: 2, dropout: 0.1}"
RNN_SIZES = "{hidden_size: 16, num_hidden_layers: 2}"
OPTIONS = {
    "use_cpu": "true",
    "disable_tqdm": "true",
    "per_device_train_batch_size": 2,
    "block_size": 16,
    "max_steps": 2,
}


@pytest.fixture(scope="module")
def speeches(tmp_path_factory):
    """Forty documents, with their year, as JSONL."""
    path = tmp_path_factory.mktemp("speeches") / "speeches.jsonl"
    rows = [
        {"text": f"Fellow citizens, {number} years of work.\n" * (1 + number % 5), "year": 1900 + number % 3}
        for number in range(40)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def flags(folder, path, **options):
    config = SIZES.replace("}", ", halting: global}")
    chosen = {"model_type": "gut", "config": config, **OPTIONS, "train_file": path, "output_dir": folder, **options}
    return [part for name, value in chosen.items() if value is not None for part in (f"--{name}", str(value))]


def trained(folder, path, **options):
    return LanguageRun(flags(folder, path, **options)).execute()


def table_of(folder, split="validation"):
    return json.loads((folder / "recurrence_stats.json").read_text())["splits"][split]


@pytest.fixture(scope="module")
def straight(speeches, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "speeches"
    options = {"eval_strategy": "steps", "eval_steps": 2, "save_steps": 2, "keep_checkpoints": "true", "max_steps": 6}
    trained(folder, speeches, tokenizer="bpe", vocab_size=300, learning_rate=0.01, **options)
    return folder


@pytest.mark.slow
def test_folder_is_publishable(straight):
    lint_card(straight)
    text = (straight / "README.md").read_text()
    assert "cut into blocks of 16 tokens. Each block is read from its beginning, without what stands before it" in text
    assert "It is measured on validation examples" in text
    assert "segments" not in text
    card = json.loads((straight / "card.json").read_text())
    assert card["metric"] == "bits_per_byte"
    assert card["training"]["command"].startswith("accelerate launch -m hf_recurrent.train --model_type gut")
    assert "--task text-generation" in card["training"]["command"]
    assert card["benchmark"]["parameters"]["documents"] == {"train": 38, "validation": 2}
    assert AutoTokenizer.from_pretrained(straight).padding_side == "left"
    assert "bos_token_id" not in json.loads((straight / "generation_config.json").read_text())


@pytest.mark.slow
def test_usage_of_the_card_runs(straight, monkeypatch, capsys):
    monkeypatch.chdir(straight.parent)
    first, *_, piped = re.findall(r"```python\n(.*?)```", (straight / "README.md").read_text(), re.S)[:3]
    exec(first, {})  # noqa: S102
    assert capsys.readouterr().out.strip()
    prompt = re.search(r"generator\('(.*?)', max", piped.replace('"', "'"))[1]
    generator = pipeline("text-generation", model="speeches")
    assert generator(prompt, max_new_tokens=4, do_sample=False)[0]["generated_text"].startswith(prompt)


@pytest.mark.slow
def test_evaluations_on_the_way_report_perplexity_and_accuracy(straight):
    state = json.loads((straight / "checkpoint-6" / "trainer_state.json").read_text())
    evaluations = [log for log in state["log_history"] if "eval_loss" in log]
    assert len(evaluations) == 3
    for log in evaluations:
        assert log["eval_perplexity"] == pytest.approx(math.exp(log["eval_nll"]))
        assert 0 <= log["eval_token_accuracy"] <= 1
    last, table = evaluations[-1], table_of(straight)
    assert table["bits_per_token"] == pytest.approx(last["eval_nll"] / math.log(2), rel=1e-4)
    assert table["perplexity"] == pytest.approx(last["eval_perplexity"], rel=1e-3)
    assert table["token_accuracy"] == pytest.approx(last["eval_token_accuracy"], abs=1e-6)
    assert 0 < table["mean_steps"] <= 2


@pytest.mark.slow
def test_table_is_that_of_a_naive_pass(straight, speeches):
    """One text at a time, without padding."""
    tokenizer = AutoTokenizer.from_pretrained(straight)
    model = AutoModelForCausalLM.from_pretrained(straight).eval()
    rows = [json.loads(line)["text"] for line in speeches.read_text().splitlines()]
    ids = [token for number in (0, 20) for token in [*tokenizer(rows[number])["input_ids"], tokenizer.eos_token_id]]
    nats, right, tokens, steps = 0.0, 0, 0, []
    blocks = [ids[start : start + 16] for start in range(0, len(ids), 16)]
    for block in blocks:
        with torch.no_grad():
            outputs = model(torch.tensor([block]))
        scores = outputs.logits[0, :-1].log_softmax(-1)
        targets = torch.tensor(block[1:])
        nats -= scores.gather(1, targets[:, None]).sum().item()
        right += (scores.argmax(-1) == targets).sum().item()
        tokens += len(targets)
        steps += outputs.ponder_steps[0].tolist()
    table = table_of(straight)
    assert (table["documents"], table["tokens"]) == (len(blocks), tokens)
    assert table["bits_per_token"] == pytest.approx(nats / math.log(2) / tokens, rel=1e-4)
    assert table["token_accuracy"] == pytest.approx(right / tokens)
    assert table["mean_steps"] == pytest.approx(np.mean(steps))
    predicted = "".join(tokenizer.decode(block[1:]).replace("[EOS]", "") for block in blocks)
    assert table["bytes"] == len(predicted.encode())
    assert sum(row["tokens"] for row in table["by_position"]) == tokens


class Killed(BaseException):
    pass


def kill_at(monkeypatch, step):
    original = RecurrentTrainer.training_step

    def killed(self, *args, **kwargs):
        if self.state.global_step == step:
            raise Killed
        return original(self, *args, **kwargs)

    monkeypatch.setattr(RecurrentTrainer, "training_step", killed)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* documents have more than block_size")
@pytest.mark.parametrize(
    ("streaming", "pack"), [("false", "true"), ("true", "false"), nightly("true", "true"), nightly("false", "false")]
)
def test_resumed_run_equals_straight_run(speeches, tmp_path, monkeypatch, streaming, pack):
    options = {"tokenizer": "bytes", "streaming": streaming, "pack": pack, "max_steps": 6, "save_steps": 2}
    trained(tmp_path / "straight", speeches, **options)
    with monkeypatch.context() as patch:
        kill_at(patch, 5)
        with pytest.raises(Killed):
            trained(tmp_path / "run", speeches, **options)
    trained(tmp_path / "run", speeches, **options)
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("run", "straight"))
    assert_close(ours, theirs, 1e-6)
    assert table_of(tmp_path / "run")["bits_per_token"] == pytest.approx(
        table_of(tmp_path / "straight")["bits_per_token"], rel=1e-5
    )


@pytest.mark.slow
def test_a_streamed_run_learns_what_an_unstreamed_one_does(speeches, tmp_path, monkeypatch):
    """In the order of the documents, past the end of a pass."""
    monkeypatch.setattr("datasets.Dataset.from_generator", pytest.fail)
    options = {"tokenizer": "bpe", "vocab_size": 300, "max_train_samples": 7, "train_sampling_strategy": "sequential"}
    # each pass over a data set draws from the generator of dropout
    options["config"] = SIZES.replace("dropout: 0.1", "dropout: 0.0, attention_dropout: 0.0")
    trained(tmp_path / "streamed", speeches, streaming="true", max_steps=6, **options)
    monkeypatch.undo()
    # batches of 2 from 7 blocks: the last one of a pass is smaller, which a stream does not know
    options["max_train_samples"] = 8
    trained(tmp_path / "copied", speeches, max_steps=6, **options)
    trained(tmp_path / "again", speeches, streaming="true", max_steps=6, **options)
    weights = {name: load_file(tmp_path / name / "model.safetensors") for name in ("streamed", "copied", "again")}
    assert_close(weights["again"], weights["copied"], 1e-6)
    first, other = (weights[name]["model.embed_tokens.weight"] for name in ("streamed", "copied"))
    assert not torch.allclose(first, other)


@pytest.fixture(scope="module")
def words():
    return train_tokenizer("bytes", (), frame="language")


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.filterwarnings("ignore:.* documents have more than block_size")
def test_a_stream_has_the_blocks_of_a_copy(speeches, words, pack):
    options = {"train_file": str(speeches), "block_size": 32, "pack": pack}
    copied, streamed = (
        load_blocks(LanguageDataArguments(**options, streaming=streaming), words) for streaming in (False, True)
    )
    expected = copied.train["input_ids"][:]
    found = [block["input_ids"].tolist() for block in islice(streamed.train, 2 * len(expected))]
    assert found == [*expected, *expected]
    assert streamed.validation["validation"].to_list() == copied.validation["validation"].to_list()


@pytest.mark.parametrize("streaming", [False, True])
def test_a_data_set_is_read_by_its_splits(words, tmp_path, streaming):
    folder = tmp_path / "lines"
    folder.mkdir()
    for split, number in (("train", 30), ("validation", 4)):
        rows = [{"text": f"Line {place} of {split}.", "genre": "ab"[place % 2]} for place in range(number)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"dataset_name": str(folder), "streaming": streaming, "cache_dir": str(tmp_path / "cache")}
    data = LanguageDataArguments(**options, pack=False, slice_by=["genre"])
    (split,) = load_blocks(data, words).evaluation
    assert split.slices == {"length": [len("Line 0 of validation.") + 1] * 4, "genre": ["a", "b", "a", "b"]}
    with pytest.raises(ValueError, match="text_column is 'txt': train has the columns 'text', 'genre'"):
        load_blocks(LanguageDataArguments(**options, text_column="txt"), words)


def test_a_stream_does_not_touch_the_cache(speeches, words, tmp_path):
    options = {"train_file": str(speeches), "block_size": 32, "cache_dir": str(tmp_path), "streaming": True}
    splits = load_blocks(LanguageDataArguments(**options), words)
    assert len(list(islice(splits.train, 50))) == 50
    assert not list(tmp_path.rglob("*"))


@pytest.mark.parametrize(("begin", "end", "kept"), [(2, 3, None), (2, 2, 2), (2, [3, 2], 2), (None, 3, None)])
def test_generation_begins_with_no_token_that_training_has_not(begin, end, kept, tmp_path):
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 2}
    config = ARCHITECTURES["gut"].config_class(vocab_size=8, bos_token_id=2, eos_token_id=3, pad_token_id=0, **sizes)
    model = AutoModelForCausalLM.from_config(config)
    model.generation_config.bos_token_id, model.generation_config.eos_token_id = begin, end
    forget_begin(model)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert (loaded.generation_config.bos_token_id, loaded.config.bos_token_id) == (kept, 2)
    if kept is None:
        with pytest.raises(ValueError, match="`bos_token_id` has to be defined"):
            loaded.generate(max_new_tokens=1)


def test_labels_are_all_tokens_but_padding(words):
    """Also where padding is the end-of-text token."""
    words.pad_token = words.eos_token
    batch = LanguageCollator(words)([{"input_ids": [7, 8, 3]}, {"input_ids": np.array([9])}])
    words.pad_token = "[PAD]"
    assert batch["input_ids"].tolist() == [[7, 8, 3], [3, 3, 9]]
    assert batch["labels"].tolist() == [[7, 8, 3], [-100, -100, 9]]


def test_metrics_are_those_of_each_token():
    torch.manual_seed(0)
    logits, labels = torch.randn(3, 6, 5), torch.randint(0, 5, (3, 6))
    labels[0, :2], labels[1, :5] = -100, -100
    nats, right, tokens = 0.0, 0, 0
    for row in range(3):
        for place in range(1, 6):
            if labels[row, place] >= 0 and labels[row, place - 1] >= 0:
                scores = logits[row, place - 1].log_softmax(-1)
                nats -= scores[labels[row, place]].item()
                right += int(scores.argmax() == labels[row, place])
                tokens += 1
    found = compute_text_metrics(mock.Mock(predictions=token_statistics(logits, labels).numpy(), label_ids=None))
    assert found["nll"] == pytest.approx(nats / tokens, rel=1e-5)
    assert found["token_accuracy"] == right / tokens
    assert found["perplexity"] == pytest.approx(math.exp(nats / tokens), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model_type",
    [
        name if name in ("tlb", "rnn", "sut") else nightly(name)
        for name, family in ARCHITECTURES.items()
        if "AutoModelForCausalLM" in family.auto_map
    ],
)
def test_every_causal_architecture_trains(speeches, tmp_path, model_type):
    """With a block that is no multiple of its windows or chunks."""
    config = RNN_SIZES if model_type == "rnn" else SIZES
    if model_type == "block_recurrent":
        config = config.replace("}", ", window_size: 8, num_state_vectors: 4}")
    if model_type in ("tlb", "gutlb"):
        config = config.replace("}", ", chunk_size: 6, num_memory_slots: 3}")
    trained(tmp_path / "run", speeches, model_type=model_type, config=config, tokenizer="bytes", block_size=19)
    lint_card(tmp_path / "run")
    assert 0 < table_of(tmp_path / "run")["bits_per_byte"] < 12


@pytest.mark.slow
def test_documents_one_by_one_are_sliced_by_column_and_length(speeches, tmp_path, capsys):
    options = {"tokenizer": "bytes", "pack": "false", "slice_by": "year", "block_size": 100}
    options |= {"validation_split_percentage": 50}
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        trained(tmp_path / "run", speeches, **options)
    cut = [str(item.message) for item in seen if "block_size=100" in str(item.message)]
    assert re.match(r"train: \d+ of 20 documents have more than block_size=100 tokens, at most \d+, and were", cut[0])
    assert re.match(r"validation: \d+ of 20 documents", cut[1])
    lint_card(tmp_path / "run")
    table = table_of(tmp_path / "run")
    assert table["texts"] == "documents"
    assert table["documents"] == 20
    years = table["by_column"]["year"]
    assert [row["value"] for row in years["rows"]] == ["1900", "1901", "1902"]
    assert sum(row["n"] for row in years["rows"]) == 20
    for rows in (years["rows"], table["by_column"]["length"]["rows"]):
        assert sum(row["tokens"] for row in rows) == table["tokens"]
        bits = sum(row["tokens"] * row["bits_per_token"] for row in rows)
        assert bits == pytest.approx(table["tokens"] * table["bits_per_token"])
    text = (tmp_path / "run" / "README.md").read_text()
    assert "### `validation` by year" in text
    assert "Each document is read from its beginning, at most 100 tokens of it" in text


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* tokens stand for words that the tokenizer does not know:UserWarning")
def test_a_test_file_is_what_the_card_is_about(speeches, tmp_path):
    book, other = tmp_path / "book.txt", tmp_path / "other.txt"
    for path in (book, other):
        path.write_text("It was a dark night.\n" * 30)
    files = {"validation_file": other, "test_file": speeches}
    trained(tmp_path / "run", book, tokenizer="words", **files)
    card = json.loads((tmp_path / "run" / "card.json").read_text())
    assert [result["split"] for result in card["results"]] == ["test"]
    assert card["metric"] == "bits_per_token"
    assert not any("validation examples" in line for line in card["limitations"])


@pytest.fixture
def refuse(tmp_path, speeches):
    """Runs flags -> the one line they are refused with; nothing is written."""

    def refuse(path=speeches, **options):
        before = sorted(tmp_path.rglob("*"))
        command = ["run", *flags(tmp_path / "new" / "run", path, **options)]
        with mock.patch.object(sys, "argv", command), pytest.raises(SystemExit) as refused:
            as_command(lambda argv: run_and_print(argv, "training/run_clm.py"))
        assert sorted(tmp_path.rglob("*")) == before
        assert refused.value.code.startswith("error: ")
        assert len(refused.value.code.splitlines()) == 1
        return refused.value.code.removeprefix("error: ")

    return refuse


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_size": 1}, "block_size is 1: a block needs 2 tokens"),
        ({"block_size": 100_000}, r"block_size is 100000, but speeches.jsonl has \d+ tokens to train on: set it to"),
        ({"slice_by": "year"}, "slice_by is year: blocks hold parts of several documents; pass --line_by_line"),
        ({"pack": "true", "line_by_line": "true"}, "pack is True and line_by_line True: .*leave one of them out"),
        ({"max_seq_length": 9, "block_size": 8}, "max_seq_length is 9 and block_size 8: both are the tokens of"),
        ({"max_length": 9}, "max_length is 9: the length of own texts here is block_size"),
        ({"benchmark": "flip_flop"}, "benchmark is 'flip_flop' and train_file .*: both name data"),
        ({"streaming": "true", "max_steps": None}, "streaming is true: the number of blocks is not known, so set max"),
        ({"streaming": "true", "batch_tokens": 9, "per_device_train_batch_size": None}, "batch_tokens is 9 and stream"),
        ({"streaming": "true", "dataloader_num_workers": 2}, "dataloader_num_workers is 2 and streaming true"),
        ({"write_predictions": "true"}, "write_predictions is true"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(refuse, options, message):
    assert re.search(message, refuse(**{"tokenizer": "bytes", **options}))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "book.txt has 0 characters of text"),
        (b"caf\xe9 " * 99, r"book.txt, line 1: the byte 0xE9 is not utf-8; pass the file's encoding"),
        (b"a b c d", "block_size is 16, but book.txt has . tokens to train on"),
    ],
)
@pytest.mark.parametrize("streaming", ["false", "true"])
def test_a_file_that_cannot_be_used_is_refused(refuse, tmp_path, content, message, streaming):
    (tmp_path / "book.txt").write_bytes(content)
    options = {"validation_split_percentage": 20, "tokenizer": "bytes", "streaming": streaming}
    assert re.search(message, refuse(tmp_path / "book.txt", **options))


def test_a_stream_without_text_to_evaluate_on_is_refused(refuse, tmp_path):
    (tmp_path / "blank.jsonl").write_text('{"text": " "}\n')
    options = {"validation_file": tmp_path / "blank.jsonl", "tokenizer": "bytes", "streaming": "true"}
    assert refuse(**options) == "blank.jsonl has no two tokens of text: give more, or name other data"


@pytest.mark.slow
def test_broken_rows_of_a_stream_are_not_counted_and_that_is_said(speeches, tmp_path):
    broken = tmp_path / "broken.jsonl"
    broken.write_text("nonsense\n" + speeches.read_text())
    options = {"validation_file": speeches, "tokenizer": "bytes", "streaming": "true", "on_error": "skip"}
    with pytest.warns(UserWarning, match="broken rows are left out as they come, and not counted"):
        trained(tmp_path / "run", broken, **options)
    assert "Broken rows were left out of its documents, and not counted." in (tmp_path / "run/README.md").read_text()


def test_unknown_words_to_evaluate_on_are_said(tmp_path):
    for name, text in {"train": "one two three\n" * 9, "validation": "one four two five\n"}.items():
        (tmp_path / f"{name}.txt").write_text(text)
    files = {f"{name}_file": str(tmp_path / f"{name}.txt") for name in ("train", "validation")}
    data = LanguageDataArguments(**files, block_size=3)
    for kind, message in {"words": "validation: 2 of 5 tokens stand for words", "bytes": None}.items():
        tokenizer = train_tokenizer(kind, ["one two three"], frame="language")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            load_blocks(data, tokenizer)
        assert [message in str(item.message) for item in said] == ([] if message is None else [True])


def test_a_tokenizer_without_an_end_of_text_token_is_refused(refuse, tmp_path):
    tokenizer = train_tokenizer("words", ["a b"], frame="language")
    tokenizer.eos_token = None
    tokenizer.save_pretrained(tmp_path / "words")
    assert "has no end-of-text token, which stands after each document" in refuse(tokenizer=str(tmp_path / "words"))


def test_a_tokenizer_in_python_is_refused(refuse, tmp_path):
    ByT5Tokenizer().save_pretrained(tmp_path / "byt5")
    assert "a ByT5Tokenizer, which is written in Python: documents need a fast one" in refuse(
        tokenizer=str(tmp_path / "byt5")
    )


@pytest.mark.parametrize(
    ("flag", "script"), [("--block_size", "run_clm.py"), ("--segment_length", "run_clm_accelerate.py")]
)
def test_a_command_for_any_task_knows_documents_by_their_flags(flag, script):
    assert matching_script(["--train_file", "book.txt", flag, "64"], None) == f"training/{script}"


def test_values_of_files_are_numbers_where_all_are(words, speeches):
    options = {"train_file": str(speeches), "pack": False, "slice_by": ["year"]}
    (split,) = load_blocks(LanguageDataArguments(**options), words).evaluation
    assert split.slices["year"] == [1900, 1902]
