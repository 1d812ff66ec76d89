"""Checkpoints load where this package is not: the two files of code that they carry are all they need."""

import copy
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from hf_recurrent import ARCHITECTURES
from hf_recurrent.hub.bundle import code_files
from hf_recurrent.hub.checkpoint import save_checkpoint
from hf_recurrent.models.sut.modeling_sut import SUTForConditionalGeneration
from support.client import WITHOUT_PACKAGE
from support.compare import assert_same
from support.families import (
    BY_NAME,
    LANGUAGE_BY_NAME,
    VOCAB_SIZE,
    make_batch,
    make_language_model,
    make_model,
    make_text,
    nightly,
    slow,
)
from support.sut_models import make_sut
from support.token_heads import NEW_HEADS
from support.tokenizer import make_tokenizer

CLASSIFIER, LANGUAGE = "AutoModelForSequenceClassification", "AutoModelForCausalLM"
TRANSLATION = "AutoModelForSeq2SeqLM"
OPTIONS = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
# a head of each architecture
CORE = {
    "xpos_transformer": CLASSIFIER,
    "ut": LANGUAGE,
    "gut_siamese": CLASSIFIER,
    "tlb": CLASSIFIER,
    "gutlb": LANGUAGE,
    "ndr": CLASSIFIER,
    "rnn_dnc": LANGUAGE,
    "block_recurrent_feedback": LANGUAGE,
    "sut": TRANSLATION,
    "albert_recurrent": CLASSIFIER,
    "ouro_recurrent": LANGUAGE,
    "huginn_recurrent": LANGUAGE,
}
CLASSIFIERS = (
    *("ut", "gut", "gutlb", "rnn_bilstm", "rnn_dnc", "block_recurrent", "sut", "ouro_recurrent", "huginn_recurrent"),
)
LANGUAGE_MODELS = ("xpos_transformer", "gut", "tlb", "ndr", "rnn_lstm", "sut")

# runs in another process; `sys.argv`: the folders of checkpoints, how much to do, and the folders of models to compile
SCRIPT = f"""
{WITHOUT_PACKAGE}
import json
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoTokenizer, pipeline

OPTIONS = {OPTIONS!r}
folders, thorough, compiled = json.loads(sys.argv[1]), sys.argv[2] == "thorough", sys.argv[3:]

def compute(model, batch, **options):
    # kernels that take a learned bias depend on whether its gradient is wanted
    with torch.no_grad():
        return model(**batch, **options)

try:
    AutoConfig.from_pretrained(next(iter(folders)), trust_remote_code=False)
except ValueError as error:
    assert "trust_remote_code" in str(error), error
else:
    raise AssertionError("loaded without its code")

for folder, auto_class in folders.items():
    remote = {{"trust_remote_code": True}}
    loader = getattr(transformers, auto_class)
    batch = load_file(folder + "/batch.safetensors")
    prompt = {{name: batch[name] for name in ("input_ids", "attention_mask")}}
    config = AutoConfig.from_pretrained(folder, **remote)
    model, base = loader.from_pretrained(folder, **remote).eval(), AutoModel.from_pretrained(folder, **remote).eval()
    assert type(model).__module__.startswith("transformers_modules."), type(model)
    assert type(config).__name__ == type(model.config).__name__
    assert AutoTokenizer.from_pretrained(folder)("w4 w5").input_ids == [2, 4, 5, 3]
    weights = load_file(folder + "/model.safetensors")
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items() if name in weights)
    results = {{"logits": compute(model, batch).logits}}
    if config.is_encoder_decoder:
        assert base.encoder.config.is_causal < base.decoder.config.is_causal
    else:
        results["states"] = compute(base, prompt).last_hidden_state
    model.save_pretrained(folder + "/again")
    again = loader.from_pretrained(folder + "/again", **remote).eval()
    results["again"] = compute(again, batch).logits
    if auto_class != "{CLASSIFIER}":
        results["sequences"] = model.generate(**prompt, **OPTIONS)
        if thorough:
            results["plain"] = model.generate(**prompt, **OPTIONS, use_cache=False)
            results["continued"] = again.generate(**prompt, **OPTIONS)
    if thorough and auto_class == "{LANGUAGE}":
        (answer,) = pipeline("text-generation", model=folder, **remote)("w4 w5 w6", max_new_tokens=3)
        assert answer["generated_text"].startswith("w4 w5 w6")
    if folder in compiled:
        # a traced call sums in another order, which float32 shows
        results["compiled"] = compute(torch.compile(again.double(), backend="eager"), batch).logits
    save_file({{name: value.contiguous() for name, value in results.items()}}, folder + "/results.safetensors")
assert "hf_recurrent" not in sys.modules
"""


@dataclass(frozen=True)
class Case:
    """A model of a variant with the head that `auto_class` loads, and a batch for it."""

    name: str
    auto_class: str

    @property
    def architecture(self) -> str:
        return {**LANGUAGE_BY_NAME, **BY_NAME}[self.name].architecture

    def model(self):
        if self.auto_class == CLASSIFIER:
            return make_model(BY_NAME[self.name])
        if self.auto_class == LANGUAGE:
            return make_language_model(LANGUAGE_BY_NAME[self.name])
        return make_sut("t5", SUTForConditionalGeneration, vocab_size=VOCAB_SIZE).float()

    def batch(self) -> dict[str, torch.Tensor]:
        return make_batch(BY_NAME[self.name]) if self.auto_class == CLASSIFIER else make_text(LANGUAGE_BY_NAME["ut"])

    def __str__(self) -> str:
        return f"{self.name}-{self.auto_class}"


CASES = [Case(name, auto_class) for name, auto_class in CORE.items()]
MORE_CASES = [
    *(Case(name, CLASSIFIER) for name in CLASSIFIERS),
    *(Case(name, LANGUAGE) for name in LANGUAGE_MODELS),
]
# a language model and a classifier of pairs
QUICK = CASES[1:3]
# what starts no process
in_process = pytest.mark.parametrize("case", [case if case in QUICK else slow(case) for case in CASES], ids=str)


def save(cases: list[Case], home: Path) -> dict[Case, Path]:
    """Save a checkpoint of each case, with its batch."""
    folders = {case: home / str(case) for case in cases}
    for case, folder in folders.items():
        assert save_checkpoint(case.model(), folder, make_tokenizer()) == folder
        save_file(case.batch(), folder / "batch.safetensors")
    return folders


def export(cases: list[Case], home: Path, how: str, compiled: Sequence[Case] = ()) -> dict[Case, Path]:
    """Save a checkpoint of each case, and what a process without this package computes with it."""
    folders = save(cases, home)
    environment = {**os.environ, "HF_HOME": str(home / "cache"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    argument = json.dumps({str(folder): case.auto_class for case, folder in folders.items()})
    command = [sys.executable, "-c", SCRIPT, argument, how, *(str(folders[case]) for case in compiled)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=home)
    assert done.returncode == 0, done.stderr
    return folders


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save(QUICK, tmp_path_factory.mktemp("saved"))


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    return export(CASES, tmp_path_factory.mktemp("core"), "thorough", compiled=QUICK)


@pytest.fixture(scope="module")
def more(tmp_path_factory):
    return export(MORE_CASES, tmp_path_factory.mktemp("more"), "thorough")


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    return export(CASES, tmp_path_factory.mktemp("traced"), "quick", compiled=CASES)


@pytest.fixture
def folder(request, case):
    """Of a checkpoint that no other process has loaded, where `make test` has one."""
    return request.getfixturevalue("saved" if case in QUICK else "core")[case]


def check_results(case: Case, folder: Path) -> None:
    """Compare what was computed without this package with a model that never was saved."""
    model, batch, results = case.model(), case.batch(), load_file(folder / "results.safetensors")
    prompt = {key: batch[key] for key in ("input_ids", "attention_mask")}
    with torch.no_grad():
        logits = model(**batch).logits
        states = None if case.auto_class == TRANSLATION else model.model(**prompt).last_hidden_state
    computed = {key: value for key, value in results.items() if value.is_floating_point()}
    expected = {key: states if key == "states" else logits for key in computed}
    if "compiled" in computed:
        with torch.no_grad():
            expected["compiled"] = copy.deepcopy(model).double()(**batch).logits
    assert_same(computed, expected, tolerance=1e-6)
    if case.auto_class != CLASSIFIER:
        sequences = model.generate(**prompt, **OPTIONS)
        for key in results.keys() - computed.keys():
            assert torch.equal(results[key], sequences), key
        assert "sequences" in results
    code = {path.name: path.read_text() for path in folder.glob("*.py")}
    assert code == code_files(case.architecture, case.auto_class)
    # transformers carries the code along
    assert code == {path.name: path.read_text() for path in (folder / "again").glob("*.py")}
    again = json.loads((folder / "again" / "config.json").read_text())
    assert again["auto_map"] == ARCHITECTURES[case.architecture].auto_map(["AutoModel", case.auto_class])


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("case", [*map(slow, CASES), *map(nightly, MORE_CASES)], ids=str)
def test_a_clean_process_computes_the_same(request, case):
    """Also when compiled, for some, and language models in pipelines."""
    check_results(case, request.getfixturevalue("core" if case in CASES else "more")[case])


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_clean_process_computes_the_same_when_compiled(traced, case):
    check_results(case, traced[case])


@in_process
def test_the_package_loads_its_checkpoints_by_its_own_classes(folder, case):
    model = getattr(transformers, case.auto_class).from_pretrained(folder).eval()
    assert type(model).__module__.startswith("hf_recurrent.")
    batch = case.batch()
    with torch.no_grad():
        assert_same({"logits": model(**batch).logits}, {"logits": case.model()(**batch).logits}, tolerance=1e-6)


@in_process
def test_folder_is_complete(folder, case):
    architecture = ARCHITECTURES[case.architecture]
    config = json.loads((folder / "config.json").read_text())
    assert config["auto_map"] == architecture.auto_map(["AutoModel", case.auto_class])
    kernels = {"kernels_ndr.py"} if case.architecture == "ndr" else set()
    code = {f"configuration_{case.architecture}.py", f"modeling_{case.architecture}.py"} | kernels
    written = {"batch.safetensors", "results.safetensors"}
    files = {path.name for path in folder.iterdir() if path.is_file()} - written
    assert {"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"} <= files
    assert {file for file in files if not file.endswith((".json", ".safetensors"))} == code


def test_every_architecture_is_exported():
    assert {case.architecture for case in CASES} == set(ARCHITECTURES)
    heads = {(case.architecture, case.auto_class) for case in [*CASES, *MORE_CASES]}
    expected = {(row.model_type, head) for row in ARCHITECTURES.values() for head in row.heads}
    # the others are those of `test_token_heads_ecosystem`
    assert heads == {pair for pair in expected if pair[1] not in ("AutoModel", *NEW_HEADS)}


def test_foreign_models_are_refused(tmp_path):
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=8, num_attention_heads=2, intermediate_size=8, num_hidden_layers=1, vocab_size=9)
    with pytest.raises(ValueError, match="model is of class BertModel: pass a model of this package"):
        save_checkpoint(BertModel(config), tmp_path / "bert")
    assert not (tmp_path / "bert").exists()
