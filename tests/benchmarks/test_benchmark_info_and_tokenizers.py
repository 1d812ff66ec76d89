"""What benchmarks say about themselves, and their tokenizers."""

import subprocess
import sys

import pytest
from transformers import AutoTokenizer

from hf_recurrent.benchmarks import (
    BenchmarkInfo,
    benchmark_info,
    build_tokenizer,
    list_benchmarks,
    load_benchmark,
    normalize_expression,
)
from hf_recurrent.benchmarks.registry import get_benchmark

EXAMPLES = {
    "listops": "[MAX 2 9 [MIN 4 7 ] 0 ]",
    "listops_depth": "[MAX 2 9 [MIN 4 7 ] 0 ]",
    "logical_inference": "( not ( a ( and b ) ) )",
    "flip_flop": "w 0 i 1 r 0",
    "compositional_table_lookup": "101 a b",
    "simple_arithmetic": "( 3 + ( 4 * 5 ) )",
    "logical_inference_translation": "( not ( a ( and b ) ) ) #SEP# a",
}
# those whose texts others wrote, and that cannot be had without a network
DOWNLOADED = ("cfq", "wmt14_en_de")
# those whose configs have facts of their own; test_configs_that_differ.py tests these
DIFFERING = ("lra",)
ALIKE = [name for name in list_benchmarks() if name not in DIFFERING]
# those whose words are known; long documents are tested in test_long_documents_tokenizers.py
SYNTHETIC = [name for name in ALIKE if name not in ("long_documents", *DOWNLOADED)]
# those whose tokenizers put [EOS] behind a text; test_sequence_tokenizers.py tests the others of these
SEQUENCES = ("logical_inference_translation",)
# those whose rows have a label, and whose tokenizers put [BOS] and [EOS] around a text
LABELLED = [name for name in SYNTHETIC if name not in ("flip_flop", *SEQUENCES)]


@pytest.mark.parametrize("name", ALIKE)
def test_info(name, cache):
    info = benchmark_info(name)
    assert isinstance(info, BenchmarkInfo)
    assert info.name == name
    assert info.default_config in info.configs
    assert set(info.parameters) == set(info.configs)
    assert {known for defaults in info.parameters.values() for known in defaults} == set(info.parameter_meanings)
    assert list(info.column_meanings) == [*info.text_columns, *info.name_columns, *info.slice_columns]
    assert info.label_meanings is None or len(info.label_meanings) == len(info.label_names)
    assert info.synthetic == (name in SYNTHETIC) == bool(info.parse_meaning)
    assert bool(info.name_columns) == (name == "long_documents")
    assert info.target_column == ("target" if name in (*SEQUENCES, *DOWNLOADED) else "")
    assert info.text_columns == ("source", "target") or not info.target_column
    if name in DOWNLOADED:
        assert (get_benchmark(name).export_configs, info.label_names, info.vocabulary) == ((), (), ())
        return
    sizes = {"num_train": 5, "num_validation": 1, "num_test": 1} if info.synthetic else {}
    rows = load_benchmark(name, cache_dir=cache, split="train", **sizes)
    assert bool(info.label_names) == (name in LABELLED)
    label = ["label"] if info.label_names else []
    assert rows.column_names == [*info.text_columns, *info.name_columns, *label, *info.slice_columns]
    assert not info.label_names or tuple(rows.features["label"].names) == info.label_names
    assert info.filter_column is None or info.filter_column in info.slice_columns
    words = {word for column in info.text_columns for text in rows[column] for word in text.split()}
    assert (words <= set(info.vocabulary)) == info.synthetic


def test_import_is_light():
    code = (
        "import sys, hf_recurrent.benchmarks as b; b.benchmark_info('listops');"
        "own = {m.split('.')[2] for m in sys.modules if m.startswith('hf_recurrent.benchmarks.')};"
        "print('other benchmarks:', *own & {'lra', 'cfq', 'logical_inference', 'simple_arithmetic'});"
        "sys.exit(any(m in sys.modules for m in ('datasets', 'transformers', 'torch')))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "other benchmarks:\n"), done.stderr


@pytest.mark.parametrize("name", SYNTHETIC)
def test_tokenizer_round_trip(name, tmp_path):
    tokenizer = build_tokenizer(name)
    assert tokenizer.convert_ids_to_tokens([0, 1, 2, 3]) == ["[PAD]", "[UNK]", "[BOS]", "[EOS]"]
    assert tokenizer.pad_token_id == 0
    assert len(tokenizer) == 4 + len(benchmark_info(name).vocabulary)
    text = EXAMPLES[name]
    encoded = tokenizer(text)
    inputs = ["input_ids", *(["token_type_ids"] if name in LABELLED else []), "attention_mask"]
    assert set(encoded) == set(inputs)
    before = ["[BOS]"] if name in LABELLED else []
    after = ["[EOS]"] if name in (*LABELLED, *SEQUENCES) else []
    assert tokenizer.convert_ids_to_tokens(encoded["input_ids"]) == [*before, *text.split(), *after]
    assert tokenizer.decode(encoded["input_ids"], skip_special_tokens=True) == text
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again.get_vocab() == tokenizer.get_vocab()
    assert again.model_input_names == inputs
    # a language model goes on at the end of a text
    assert again.padding_side == ("left" if name == "flip_flop" else "right")
    batch = [text, text.split()[-1]]
    assert dict(again(batch, batch, padding=True)) == dict(tokenizer(batch, batch, padding=True))


@pytest.mark.parametrize(
    ("name", "loose"),
    [
        ("listops", "[MAX 2 9[MIN 4 7]0]"),
        ("listops", "( ( ( ( ( [MAX 2 ) 9 ) ( ( ( [MIN 4 ) 7 ) ] ) ) 0 ) ] )"),
        ("logical_inference", "(not (a(and b)))"),
    ],
)
def test_loose_spelling(name, loose):
    tokenizer = build_tokenizer(name)
    assert tokenizer(loose)["input_ids"] == tokenizer(EXAMPLES[name])["input_ids"]
    assert normalize_expression(loose, name) == EXAMPLES[name]


def test_unknown_words():
    tokenizer = build_tokenizer("listops")
    assert tokenizer.convert_ids_to_tokens(tokenizer("[MAX x ]")["input_ids"])[2] == "[UNK]"
