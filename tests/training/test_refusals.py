"""Refused runs: one line says what is wrong, before the folder is claimed, and nothing is left behind."""

import re
import sys
from unittest import mock

import pytest
import torch
from tiny_run import CHOSEN, QUIET, SIZES, TINY, write_recipe
from transformers.trainer_utils import IntervalStrategy

from hf_recurrent.training.arguments import RecurrentTrainingArguments
from hf_recurrent.training.run import as_command, run_and_print
from hf_recurrent.training.stages import Run
from support.documents import write_texts
from support.other_tokenizers import bert_tokenizer
from support.own_data import choice, flags, question, spoken, tagged, write_file

pytestmark = pytest.mark.filterwarnings("ignore:the texts give a vocabulary:UserWarning")

GOOD, FOUR = question(0), choice(0)
ONE_TAGGED = {"tokens": ["May", "went", "in", "May", "."], "ner_tags": ["B-PER", *"OOOO"]}
FILES = {
    "FILMS": [{"text": f"film {i}", "label": i % 2, "hard": i} for i in range(40)],
    "BOOK": [{"text": f"Fellow citizens, {i} years of work.\n" * (1 + i % 5), "year": i} for i in range(40)],
    "BLANK": [{"text": " "}],
    "NOVELS": [{"title": str(i), "body": f"It was the {i}th of May.\n"} for i in range(30)],
    "WORDS": [tagged(i) for i in range(40)],
    "SHORTER": [ONE_TAGGED, {"tokens": ["a", "b", "c"], "ner_tags": ["O", "O"]}],
    "HOLLOW_WORD": [{**ONE_TAGGED, "tokens": ["May", " ", "b", "c", "d"]}],
    "PLACES": [{"tokens": ["Paris"], "ner_tags": ["B-LOC"]}] * 2,
    "NO_NAMES": [{"tokens": ["a", "b"], "ner_tags": ["O", "O"]}] * 40,
    "SPANS": [question(i) for i in range(48)],
    "ANSWERED": [question(i) for i in range(48) if i % 3 < 2],
    "MOVED": [GOOD, {**GOOD, "answers": {"text": ["Rome"], "answer_start": [3]}}],
    "LISTS": [{**GOOD, "answers": ["Rome"]}],
    "CHOICES": [choice(i) for i in range(48)],
    "FIFTH": [FOUR, {**FOUR, "label": 5}],
    "HOLLOW": [{**FOUR, "ending1": ""}],
    "ONE": [{"sent1": "a", "ending0": "b", "label": 0}],
    "PAIRS": [spoken(i) for i in range(0, 300, 3)],
}
NEW = {**QUIET, "model_type": "gut", "config": SIZES, "max_steps": 1}
PAIR = {**NEW, "model_type": "sut", "config": {}, **CHOSEN, "eval_steps": 1, "save_steps": 1}
DOCUMENT = {**QUIET, "model_type": "block_recurrent", "config": {"window_size": 8}, "segment_length": 16}
# what each command begins with; words in capitals stand for files
BASES = {
    "listops": TINY,
    "films": {**NEW, "train_file": "FILMS"},
    "book": {**NEW, "task": "text-generation", "train_file": "BOOK", "block_size": 16, "tokenizer": "bytes"},
    "masks": {**NEW, "task": "fill-mask", "train_file": "BOOK", "tokenizer": "bytes"},
    "words": {**NEW, "task": "token-classification", "train_file": "WORDS"},
    "spans": {**NEW, "task": "question-answering", "train_file": "ANSWERED"},
    "choices": {**NEW, "task": "multiple-choice", "train_file": "CHOICES"},
    "pairs": {
        **PAIR,
        **{"train_file": "PAIRS", "source_column": "words", "target_column": "digits", "tokenizer": "bytes"},
    },
    "logic": {
        **PAIR,
        "benchmark": "logical_inference_translation",
        "benchmark_params": {"num_train": 8, "num_validation": 4, "num_test": 4},
    },
    "documents": {**DOCUMENT, "benchmark": "long_documents", "benchmark_config": "folder", "data_dir": "TEXTS"},
    "novels": {**DOCUMENT, "task": "long-documents", "train_file": "NOVELS"},
    "router": {**NEW, "model_type": "ndr", "benchmark": "compositional_table_lookup"},
}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    found = {name: write_file(folder / f"{name.lower()}.jsonl", rows) for name, rows in FILES.items()}
    found["TABLE"] = write_file(folder / "table.csv", "a,b\nx y,O O\n")
    for name, content in {"EMPTY": b"", "LATIN": b"caf\xe9 " * 99, "FEW": b"a b c d"}.items():
        found[name] = write_file(folder / f"{name.lower()}.txt", content)
    tokenizer = bert_tokenizer()
    tokenizer.pad_token = tokenizer.sep_token = tokenizer.eos_token = None
    tokenizer.save_pretrained(folder / "tokenizer")
    write_file(folder / "bert" / "config.json", '{"model_type": "bert"}')
    found |= {"TEXTS": str(write_texts(folder / "texts", {"train": 3, "validation": 1, "test": 1}, 5, 20))}
    return {**found, "DATA": str(folder)}


@pytest.fixture
def refuse(tmp_path, places):
    """Runs a command, with changes of which None removes a flag -> the one line it is refused with."""

    def refuse(base, output_dir=tmp_path / "new" / "run", recipe=None, **changes):
        settings = {**BASES.get(base, {}), "output_dir": output_dir, **changes}
        found = flags(settings)
        for name, place in places.items():
            found = [re.sub(rf"\b{name}\b", place, word) for word in found]
        before = sorted(tmp_path.rglob("*"))
        command = ["run", *filter(None, [recipe]), *found]
        with mock.patch.object(sys, "argv", command), pytest.raises(SystemExit) as refused:
            as_command(run_and_print)
        assert sorted(tmp_path.rglob("*")) == before
        assert refused.value.code.startswith("error: ")
        assert len(refused.value.code.splitlines()) == 1
        return refused.value.code.removeprefix("error: ")

    return refuse


CASES = [
    # settings of every run
    ("listops", {"config": {"halting": "act"}}, "config is {'halting': 'act'}: .* must be 'token' or"),
    ("listops", {"config": "[1]"}, r"config is '\[1\]': expected a mapping"),
    ("listops", {"config": {"hidden_size": "x"}}, "config is {'hidden_size': 'x'}: .*hidden_size"),
    ("listops", {"config": {"dtype": "banana"}}, "config is {'dtype': 'banana'}: "),
    ("listops", {"config": "{dropout: 0.1, dropout: 0.2}"}, "the key 'dropout' is there twice"),
    ("listops", {"learning_rate": "nan"}, "learning_rate is nan: expected a number"),
    ("listops", {"dataset_id": "none"}, "dataset_id='none': expected owner/name"),
    ("listops", {"license": "MIT License"}, "license is 'MIT License': expected what the Hub calls a licence"),
    (
        "listops",
        {"metric_for_best_model": "acuracy"},
        "'acuracy': .* expected one of accuracy, .* did you mean accuracy",
    ),
    ("listops", {"lr_scheduler_kwargs": "banana"}, "lr_scheduler_kwargs is 'banana': expected a mapping"),
    ("listops", {"label_smoothing_factor": 0.1}, "label_smoothing_factor is 0.1: it would replace the model's loss"),
    (
        "listops",
        {"lr_schedule": "linear", "lr_scheduler_type": "cosine"},
        "lr_schedule is 'linear' and lr_scheduler_type 'cosine': both choose the schedule",
    ),
    ("listops", {"accelerator_config": {"banana": 1}}, "banana"),
    ("listops", {"fp16": True}, "fp16 is True, but training runs on a CPU: leave it out, or set bf16 to True"),
    (
        "listops",
        {"early_stopping_patience": 1, "load_best_model_at_end": False, "metric_for_best_model": None},
        "early_stopping_patience is 1: it needs load_best_model_at_end: true",
    ),
    ("listops", {"report_to": "banana"}, "report_to is banana: banana is not supported"),
    (
        "listops",
        {"deepspeed": {"zero_optimization": {"stage": 2}}},
        "deepspeed is not supported, .* set distributed_type of accelerate's",
    ),
    *(
        ("listops", {name: value}, f"{name} is {value}: it is for a checkpoint, model_name_or_path")
        for name, value in {"model_revision": "v2", "ignore_mismatched_sizes": True, "freeze_base_model": True}.items()
    ),
    *(
        ("listops", {name: 0.5}, f"{name} is 0.5: it is for batch_sampling short_first, not None")
        for name in ("short_first_share", "short_first_power")
    ),
    ("listops", {"paper_variants": {"a = 1": None}}, "paper_variants is set without paper: set paper to the row"),
    ("listops", {"config": {"preset": "huge"}}, "config.preset is 'huge': expected one of tiny, small, base, large"),
    ("listops", {"config": {"preset": ["tiny"]}}, r"config.preset is \['tiny'\]: expected one of tiny, small, base"),
    ("listops", {"benchmark_params": {"num_train": -3}}, "num_train=-3: expected"),
    ("listops", {"attn_implementation": "flash"}, "attn_implementation=.flash.. is not supported"),
    ("listops", {"modl_type": "gut"}, "unknown argument '--modl_type'; did you mean model_type?"),
    ("listops", {"push_to_hub": True}, "hub_model_id='': expected owner/name"),
    ("listops", {"push_to_hub": True, "hub_model_id": "tiny"}, "hub_model_id='tiny': expected owner/name"),
    ("listops", {"model_type": None, "config": None, "model_name_or_path": "/none"}, "'/none': there"),
    (
        "listops",
        {"model_type": None, "config": None, "model_name_or_path": "DATA/bert"},
        "bert has model_type 'bert': expected one of xpos_transformer, ut, gut",
    ),
    ("router", {"evaluation_depth": 9, "config": {"copy_gate": False, "halting": "act"}}, "is 9, .*halts by itself"),
    ("router", {"evaluation_depth": 9, "model_type": "rnn", "config": {}}, "'rnn', whose layers are not shared"),
    ("router", {"batch_sampling": "by_lenght"}, "batch_sampling is 'by_lenght': .* did you mean by_length"),
    (
        "router",
        {"batch_sampling": "by_length", "train_sampling_strategy": "group_by_length"},
        "both choose the examples of a batch, set one of them",
    ),
    # texts with labels
    ("films", {"train_file": None, "task_name": "sst-2"}, "task_name is 'sst-2': expected one of cola, mnli, "),
    ("films", {"train_file": None, "task_name": "record"}, "task_name is 'record': expected one of cola"),
    ("films", {"train_file": None, "task_name": "sst2", "text_column": "a"}, "and task_name 'sst2', which has its own"),
    ("films", {"task_name": "sst2"}, "task_name is 'sst2' and train_file .*: both choose the data"),
    ("films", {"benchmark_params": {"num_train": 5}}, "benchmark_params is {'num_train': 5}, which is for benchmarks"),
    (
        "films",
        {"validation_file": "FILMS"},
        "train_file is .* and validation_file .*, the same or one within the other",
    ),
    ("films", {"train_file": "DATA/flims.jsonl"}, r"no such file or folder; did you mean films.jsonl"),
    ("films", {"train_file": None, "validation_file": "FILMS"}, "validation_file is "),
    ("films", {"train_file": None, "text_column": "a"}, r"text_column is \['a'\], which is for your own data: name it"),
    ("films", {"text_column_names": "text,hard"}, "films.jsonl, row 1: hard is 0, which is no text"),
    ("films", {"encoding": "latin-99"}, "encoding is 'latin-99': expected one that Python knows"),
    (
        "films",
        {"test_file": "BOOK", "validation_split_percentage": 9},
        "validation_split_percentage is 9, but test_file is given",
    ),
    ("films", {"train_split": "a"}, "train_split is 'a', but train_file names a file"),
    ("films", {"dataset_config_name": "en"}, "dataset_config_name is 'en', but train_file names a file"),
    ("films", {"tokenizer": "bytes", "vocab_size": 300}, "vocab_size is 300, and tokenizer 'bytes'"),
    ("films", {"tokenizer": "./none"}, "tokenizer='./none' does not load"),
    ("films", {"tokenizer": "DATA/tokenizer"}, "has neither a padding nor an end-of-text token"),
    ("films", {"do_regression": True, "label_delimiter": ";"}, "do_regression is true and label_delimiter ';'"),
    ("films", {"max_seq_length": 1}, "max_seq_length is 1"),
    # documents as blocks
    ("book", {"block_size": 1}, "block_size is 1: a block needs 2 tokens"),
    ("book", {"block_size": 100_000}, r"block_size is 100000, but book.jsonl has \d+ tokens to train on: set it to"),
    ("book", {"slice_by": "year"}, "slice_by is year: blocks hold parts of several documents; pass --line_by_line"),
    ("book", {"pack": True, "line_by_line": True}, "pack is True and line_by_line True: .*leave one of them out"),
    ("book", {"max_seq_length": 9}, "max_seq_length is 9 and block_size 16: both are the tokens of"),
    ("book", {"max_length": 9}, "max_length is 9: the length of texts here is block_size"),
    ("book", {"benchmark": "flip_flop"}, "train_file is .* and benchmark 'flip_flop': both choose the data"),
    ("book", {"write_predictions": True}, "write_predictions is true"),
    (
        "book",
        {"streaming": True, "max_steps": None},
        "streaming is true: the number of blocks is not known, so set max",
    ),
    ("book", {"streaming": True, "batch_tokens": 99}, "batch_tokens is 99 and streaming true"),
    ("book", {"streaming": True, "dataloader_num_workers": 2}, "dataloader_num_workers is 2 and streaming true"),
    ("book", {"streaming": True, "validation_file": "BLANK"}, "^blank.jsonl has no two tokens of text: give more"),
    *(
        ("book", {"train_file": name, "validation_split_percentage": 20, "streaming": streaming}, message)
        for name, message in (
            ("EMPTY", "empty.txt"),
            ("LATIN", "latin.txt: byte 0xe9 is not utf-8: pass the file's encoding"),
            ("FEW", "block_size is 16, but few.txt has . tokens to train on"),
        )
        for streaming in (False, True)
    ),
    ("masks", {"mlm_probability": 0}, "mlm_probability is 0.0, which masks no token"),
    ("masks", {"streaming": True}, "streaming is true: how often tokens occur in training is counted first"),
    ("masks", {"write_predictions": True}, "write_predictions is true: masked tokens are many"),
    ("masks", {"train_sampling_strategy": "sequential"}, "train_sampling_strategy is 'sequential': all epochs"),
    ("masks", {"model_type": "block_recurrent"}, "'block_recurrent', which has no AutoModelForMaskedLM"),
    # words, questions and choices
    ("words", {"label_column_name": "year"}, "words.jsonl, row 1: year is '0': expected a list of labels"),
    (
        "words",
        {"train_file": "SHORTER"},
        "shorter.jsonl, row 2: ner_tags is .*: expected .*, one for each of 3 words",
    ),
    (
        "words",
        {"train_file": "TABLE", "text_column_name": "a", "label_column_name": "b"},
        "a is 'x y': expected a list of words, as files",
    ),
    ("words", {"train_file": "HOLLOW_WORD"}, "hollow_word.jsonl, row 1: tokens has the word ' ': expected a text"),
    (
        "words",
        {"test_file": "PLACES"},
        r"places.jsonl has 1 label that training has not: 'B-LOC' \(2 times\), first in",
    ),
    ("words", {"train_file": "NO_NAMES"}, "all training examples have the label O: there is nothing to learn"),
    ("spans", {"context_column": "text"}, "context_column is 'text': answered.jsonl has the columns"),
    ("spans", {"train_file": "MOVED"}, "moved.jsonl, row 2: answers is an answer 'Rome' at 3, where .* 'a lives"),
    ("spans", {"train_file": "LISTS"}, r"answers is \['Rome'\]: expected lists of the answers' texts and of their"),
    ("spans", {"train_file": "SPANS"}, "questions of .* have no answer: pass --version_2_with_negative if"),
    ("spans", {"max_seq_length": 14, "doc_stride": 12}, "the question 'Where is"),
    ("spans", {"doc_stride": 500}, "doc_stride is 500 and max_seq_length 384: windows share fewer tokens"),
    ("spans", {"null_score_diff_threshold": 1}, "null_score_diff_threshold is 1.0, and every question has"),
    ("spans", {"max_length": 9}, "max_length is 9: the length of texts here is max_seq_length"),
    ("choices", {"ending_columns": ["ending0", "endin1"]}, r"ending_columns \(2\) is 'endin1': choices.jsonl has the"),
    ("choices", {"train_file": "ONE"}, "name the two or more to choose from with --ending_columns"),
    ("choices", {"train_file": "FIFTH"}, "fifth.jsonl, row 2: label is 5, but the data name labels 0 to 2"),
    ("choices", {"train_file": "HOLLOW"}, "hollow.jsonl, row 1: ending1 is empty"),
    ("choices", {"max_seq_length": 3}, "max_seq_length is 3, and the tokenizer puts 4 tokens around texts"),
    # sources and targets
    ("pairs", {"target_column": "words"}, "source_column and target_column are both 'words'"),
    ("pairs", {"target_column": None}, "source_column is 'words' and target_column is not set"),
    ("pairs", {"max_seq_length": 8}, "set max_source_length and max_target_length"),
    ("pairs", {"metric_name": "rouge"}, "metric_name is 'rouge': expected one of exact_match, bleu"),
    # evaluations on the way read targets and write none
    ("pairs", {"metric_for_best_model": "bleu"}, "metric_for_best_model is 'bleu'"),
    ("pairs", {"source_lang": "de"}, "source_lang is 'de' and target_lang is not set: name both"),
    ("pairs", {"source_lang": "de", "target_lang": "en"}, "source_lang is 'de' and source_column 'words'"),
    ("logic", {"source_prefix": "x: "}, "source_prefix is 'x: ', which is for your own data"),
    ("logic", {"batch_tokens": 20}, "batch_tokens is 20, but an example has"),
    ("logic", {"max_length": 1}, "there are no training examples"),
    # long documents
    ("documents", {"segment_length": 12}, "segment_length is 12 .* whole windows, such as 16"),
    ("documents", {"eval_segment_length": 12}, "eval_segment_length is 12 .* whole windows"),
    ("documents", {"model_type": "ut", "config": {}}, "model_type is 'ut', whose cache grows with the document"),
    ("documents", {"model_type": "tlb", "config": {"chunking": "count"}}, "chunking is 'count'.*: expected 'fixed'"),
    (
        "documents",
        {"model_type": "gutlb", "config": {"depth_sampling": "uniform"}},
        "all segments of a document take the same number of steps",
    ),
    ("documents", {"tokenizer": "bpe"}, "vocab_size None: bpe needs a size"),
    ("documents", {"lr_schedule": "greedy"}, "lr_schedule is 'greedy': expected one of rootwarmup"),
    ("documents", {"weight_decay": 0.1}, r"weight_decay is 0\.1, which optim: adafactor has not"),
    ("documents", {"adam_beta1": 0.8}, r"adam_beta1 is 0\.8, which optim: adafactor has not: leave it out"),
    ("documents", {"save_steps": 0.5}, "save_steps.*: invalid int value: '0.5'"),
    ("documents", {"save_total_limit": -1}, "save_total_limit is -1: expected a number from 0 on"),
    ("documents", {"gradient_accumulation_steps": 0}, "gradient_accumulation_steps is 0: expected a number from 1 on"),
    ("documents", {"push_to_hub": True}, "hub_model_id='': expected owner/name"),
    ("documents", {"text_column": "body"}, "text_column is 'body', which is for your own data"),
    ("novels", {}, "novels.jsonl has the columns title, body: name the one with the texts with --text_column"),
    ("novels", {"text_column": "body", "slice_by": "title"}, "slice_by is .*: documents are read to their ends"),
    ("novels", {"text_column": "body", "vocab_size": 9}, "tokenizer is None and vocab_size 9: bpe needs a size"),
    ("novels", {"train_file": "FEW", "test_file": "EMPTY"}, "empty.txt"),
]


@pytest.mark.parametrize(
    ("base", "changes", "message"), CASES, ids=[f"{base}-{number}" for number, (base, *_) in enumerate(CASES)]
)
def test_what_is_wrong_is_said_before_anything_is_written(refuse, base, changes, message):
    assert re.search(message, refuse(base, **changes))


@pytest.mark.parametrize("evaluates", ["epoch", IntervalStrategy.STEPS])
def test_the_best_checkpoint_is_that_of_least_loss_unless_a_metric_is_named(tmp_path, evaluates):
    saves = {"save_strategy": "best", "eval_strategy": evaluates, "load_best_model_at_end": True}
    args = RecurrentTrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to="none", **saves)
    assert (args.metric_for_best_model, args.greater_is_better) == ("loss", False)


@pytest.mark.parametrize("base", ["listops", "documents"])
@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("ACCELERATE_USE_DEEPSPEED", "deepspeed is not supported, because its checkpoints are in parts"),
        ("ACCELERATE_USE_MEGATRON_LM", "megatron_lm is not supported, because its checkpoints are in parts"),
        ("PARALLELISM_CONFIG_TP_SIZE", "tp_size is 2, but a state goes through whole texts"),
        ("PARALLELISM_CONFIG_CP_SIZE", "cp_size is 2, but a state goes through whole texts"),
        ("PARALLELISM_CONFIG_SP_SIZE", "sp_size is 2, but a state goes through whole texts"),
    ],
)
def test_engines_that_runs_do_not_take(refuse, monkeypatch, base, variable, message):
    monkeypatch.setenv(variable, "true" if "USE" in variable else "2")
    assert message in refuse(base)


def test_a_missing_tracker_is_named(refuse, monkeypatch):
    monkeypatch.setattr("transformers.integrations.integration_utils.is_wandb_available", lambda: False)
    assert "report_to is wandb: WandbCallback requires wandb to be installed" in refuse("listops", report_to="wandb")


def test_a_missing_flash_attention_is_named(refuse, monkeypatch):
    monkeypatch.setattr("transformers.modeling_utils.is_flash_attn_2_available", lambda: False, raising=False)
    message = refuse("listops", attn_implementation="flash_attention_2")
    assert "FlashAttention2" in message or "flash_attention_2" in message


def test_a_kernel_with_wrong_gradients_is_left_out():
    torch.backends.cuda.enable_cudnn_sdp(True)
    argv = ["listops_gut", "--output_dir", "unused", "--bf16", "false", "--use_cpu", "true"]
    Run(argv, "text-classification")
    assert not torch.backends.cuda.cudnn_sdp_enabled()


def test_a_key_that_is_there_twice(refuse, tmp_path):
    path = write_recipe(tmp_path / "twice.yaml", TINY)
    with open(path, "a") as file:
        file.write("max_steps: 3\n")
    assert "the key 'max_steps' is there twice" in refuse("none", recipe=path)


def test_a_folder_of_splits_is_not_one_of_labels(refuse, write):
    for split in ("train", "test"):
        for label in ("bad", "good"):
            place = write(f"films/{split}/{label}/1.txt", f"a {label} film").rpartition(f"/{split}/")[0]
    assert refuse("films", train_file=place).endswith(
        "films has the splits test, train: name the folder of each by itself"
    )
    found = refuse("films", train_file=f"{place}/train", test_file=f"{place}/train/good")
    assert "one within the other: name different examples" in found


def test_places_where_no_folder_can_be(refuse, write, monkeypatch):
    file = write("file", "")
    for place in (file, f"{file}/run"):
        assert f"output_dir {place} cannot be written" in refuse("listops", output_dir=place)

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hf_recurrent.training.run_folder.write_json", full)
    assert "No space left on device" in refuse("listops")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # the embeddings are too few for the tokenizer, known at the first step
        ({"config": {**SIZES, "vocab_size": 5}}, "`input_ids` holds ids from"),
        (
            {"lr_schedule": "cosine", "lr_scheduler_kwargs": {"banana": 1}},
            "lr_scheduler_kwargs {'banana': 1} is refused",
        ),
        ({"lr_schedule": "warmup_stable_decay"}, "lr_scheduler_kwargs None is refused: get_wsd_schedule"),
        ({"optim_args": "banana"}, "optim_args 'banana' is refused"),
        ({"metric_for_best_model": ""}, "metric_for_best_model is ''"),
        (
            {"config": {**SIZES, "halting": "none"}, "metric_for_best_model": "ponder_cost"},
            "metric_for_best_model is 'ponder_cost': this run is validated on validation, so expected one of accuracy, "
            "loss, ponder_steps",
        ),
        ({"resume_from_checkpoint": "/none"}, "resume_from_checkpoint /none"),
        ({"benchmark": "lra", "benchmark_params": None, "evaluate_on": "image"}, "other inputs or labels"),
    ],
)
def test_a_run_that_fails_before_its_first_step_gives_the_folder_back(refuse, changes, message, tmp_path):
    if "evaluate_on" in changes:
        small = {"num_train": 8, "num_validation": 4, "num_test": 6, "contour_length": 4}
        changes |= {"benchmark_config": "pathfinder32", "benchmark_params": small}
    assert message in refuse("listops", **changes)
    (tmp_path / "kept").mkdir()
    assert message in refuse("listops", **changes, output_dir=tmp_path / "kept")
    assert not list((tmp_path / "kept").iterdir())


def test_an_interrupted_command_says_so_in_one_line(capsys):
    def main(argv):
        raise KeyboardInterrupt("a repository was left")

    with mock.patch.object(sys, "argv", ["run"]), pytest.raises(SystemExit) as ended:
        as_command(main)
    assert (ended.value.code, capsys.readouterr().err) == (130, "a repository was left\ninterrupted\n")
