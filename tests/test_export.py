"""Checkpoints load where this package is not: the files of code that they carry are all they need."""

import copy
import importlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from hf_recurrent import ARCHITECTURES
from hf_recurrent.hub.bundle import GENERATES, carried_heads, code_files
from hf_recurrent.hub.checkpoint import save_checkpoint
from hf_recurrent.models.depth import loop
from hf_recurrent.models.sut.modeling_sut import SUTForConditionalGeneration
from support.client import must_succeed, run_client
from support.compare import assert_same, gradients
from support.families import (
    BY_NAME,
    LANGUAGE_BY_NAME,
    VOCAB_SIZE,
    make_batch,
    make_language_model,
    make_model,
    make_text,
    slow,
)
from support.sut_models import make_sut
from support.token_heads import make_head, make_head_batch
from support.tokenizer import make_tokenizer

BASE, CLASSIFIER, MASKED = "AutoModel", "AutoModelForSequenceClassification", "AutoModelForMaskedLM"
LANGUAGE, TRANSLATION = GENERATES
OPTIONS = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}

# runs without this package; `sys.argv`: the folders of checkpoints and their Auto classes, and whether to compile
SCRIPT = f"""
import json
import sys
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoTokenizer, pipeline

folders, compiles = json.loads(sys.argv[1]), sys.argv[2] == "compile"
try:
    AutoConfig.from_pretrained(next(iter(folders)), trust_remote_code=False)
except ValueError as error:
    assert "trust_remote_code" in str(error), error
else:
    raise AssertionError("loaded without its code")

def tensors(output, prefix=""):
    return {{prefix + name: value for name, value in output.items() if isinstance(value, torch.Tensor)}}

for folder, auto_class in folders.items():
    loader, batch = getattr(transformers, auto_class), load_file(folder + "/batch.safetensors")
    prompt = {{name: batch[name] for name in ("input_ids", "attention_mask")}}
    model, report = loader.from_pretrained(folder, trust_remote_code=True, output_loading_info=True)
    assert not any(report.values()), report
    assert type(model).__module__.startswith("transformers_modules."), type(model)
    assert type(model.config).__module__.startswith("transformers_modules."), type(model.config)
    assert AutoTokenizer.from_pretrained(folder)("w4 w5").input_ids == [2, 4, 5, 3]
    AutoModel.from_pretrained(folder, trust_remote_code=True)
    # kernels that take a learned bias depend on whether its gradient is wanted
    with torch.no_grad():
        results = tensors(model.eval()(**batch))
    model.save_pretrained(folder + "/again")
    again = loader.from_pretrained(folder + "/again", trust_remote_code=True)
    with torch.no_grad():
        results |= tensors(again(**batch), "again.")
    if hasattr(model, "generate"):
        results["sequences"] = model.generate(**prompt, **{OPTIONS!r})
        results["plain"] = model.generate(**prompt, **{OPTIONS!r}, use_cache=False)
    if auto_class == {LANGUAGE!r}:
        (answer,) = pipeline("text-generation", model=folder, trust_remote_code=True)("w4 w5 w6", max_new_tokens=3)
        assert answer["generated_text"].startswith("w4 w5 w6")
    if compiles:
        # a traced call sums in another order, which float32 shows
        with torch.no_grad():
            results |= tensors(torch.compile(again.double(), backend="eager")(**batch), "compiled.")
    torch.manual_seed(0)
    output = model.train()(**batch)
    (output.last_hidden_state.sum() if "loss" not in output else output.loss).backward()
    for name, each in model.named_parameters():
        results["gradient." + name] = torch.zeros_like(each) if each.grad is None else each.grad
    model.resize_token_embeddings(model.config.vocab_size + 3)
    model.zero_grad()
    with torch.no_grad():
        larger = model.eval()(**batch)
    assert model.get_input_embeddings().num_embeddings == model.config.vocab_size
    assert model.get_output_embeddings() is None or larger.logits.shape[-1] == model.config.vocab_size
    save_file({{name: value.contiguous().clone() for name, value in results.items()}}, folder + "/results.safetensors")
assert "hf_recurrent" not in sys.modules
"""


@dataclass(frozen=True)
class Case:
    """A model of an architecture with the head that `auto_class` loads, and a batch for it."""

    architecture: str
    auto_class: str

    @property
    def name(self) -> str:
        """Of the variant of its architecture."""
        named = {
            ("gut", CLASSIFIER): "gut_siamese",
            ("block_recurrent", LANGUAGE): "block_recurrent_feedback",
            ("rnn", CLASSIFIER): "rnn_dnc",
            ("rnn", MASKED): "rnn_bilstm",
        }
        usual = "rnn_lstm" if self.architecture == "rnn" else self.architecture
        return named.get((self.architecture, self.auto_class), usual)

    def model(self):
        if self.auto_class == TRANSLATION:
            return make_sut("t5", SUTForConditionalGeneration, vocab_size=VOCAB_SIZE).float()
        if self.auto_class == LANGUAGE:
            return make_language_model(LANGUAGE_BY_NAME[self.name])
        if self.auto_class in (BASE, CLASSIFIER):
            model = make_model(BY_NAME[self.name])
            return model.model if self.auto_class == BASE else model
        return make_head(self.name, self.auto_class)

    def batch(self) -> dict[str, torch.Tensor]:
        if self.auto_class in GENERATES:
            batch = make_text(LANGUAGE_BY_NAME["ut"])
            return batch | {"labels": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)}
        if self.auto_class in (BASE, CLASSIFIER):
            batch = make_batch(BY_NAME[self.name])
            return {name: batch[name] for name in batch if name != "labels" or self.auto_class == CLASSIFIER}
        return make_head_batch(self.name, self.auto_class)

    def code(self) -> tuple[dict[str, str], dict[str, str]]:
        """The files of code and the `auto_map` of its checkpoint."""
        # base models of architectures that are always causal
        causal = self.auto_class == BASE and BY_NAME[self.name].always_causal
        saved = LANGUAGE if causal else self.auto_class
        heads = carried_heads(self.architecture, saved)
        files = code_files(self.architecture, saved, self.model().config.to_dict())
        return files, ARCHITECTURES[self.architecture].auto_map(heads)

    def __str__(self) -> str:
        return f"{self.architecture}_{self.auto_class}"


CASES = [Case(name, head) for name, family in ARCHITECTURES.items() for head in family.heads]
# a language model, a classifier of pairs, and one that carries several heads and kernels
QUICK = [Case("gutlb", LANGUAGE), Case("gut", CLASSIFIER), Case("ndr", MASKED)]


def save(case: Case, home: Path) -> Path:
    """Save a checkpoint with its batch."""
    folder = save_checkpoint(case.model(), home / str(case), make_tokenizer())
    save_file({name: value.contiguous() for name, value in case.batch().items()}, folder / "batch.safetensors")
    return folder


def check(cases: list[Case], home: Path, how: str = "plain") -> None:
    """Compare what a process without this package computes with models that were never saved."""
    folders = {case: save(case, home) for case in cases}
    environment = {**os.environ, "HF_HOME": str(home / "cache"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    argument = json.dumps({str(folder): case.auto_class for case, folder in folders.items()})
    must_succeed(run_client(SCRIPT, environment, argument, how, cwd=home, timeout=1500, without_package=True))
    for case, folder in folders.items():
        model, batch, results = case.model(), case.batch(), load_file(folder / "results.safetensors")
        with torch.no_grad():
            outputs = {"": model(**batch), "again.": model(**batch)}
            if how == "compile":
                outputs["compiled."] = copy.deepcopy(model).double()(**batch)
        expected = {
            prefix + name: value
            for prefix, output in outputs.items()
            for name, value in output.items()
            if isinstance(value, torch.Tensor)
        }
        if case.auto_class in GENERATES:
            prompt = {name: batch[name] for name in ("input_ids", "attention_mask")}
            expected |= dict.fromkeys(("sequences", "plain"), model.generate(**prompt, **OPTIONS))
        torch.manual_seed(0)
        model.train()
        if case.auto_class == BASE:
            model(**batch).last_hidden_state.sum().backward()
            trained = {
                name: torch.zeros_like(each) if each.grad is None else each.grad
                for name, each in model.named_parameters()
            }
        else:
            trained = gradients(model, batch)
        expected |= {f"gradient.{name}": value for name, value in trained.items()}
        assert_same(results, expected, tolerance=1e-6)
        # transformers carries the code along
        for place in (folder, folder / "again"):
            config = json.loads((place / "config.json").read_text())
            written = {path.name: path.read_text() for path in place.glob("*.py")}
            assert (written, config["auto_map"]) == case.code(), place


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_the_code_of_a_checkpoint_computes_the_same(case, tmp_path, monkeypatch):
    """In this process, which has imported the package; the slower tier does it without."""
    monkeypatch.syspath_prepend(tmp_path)
    folder, batch, expected = save(case, tmp_path), case.batch(), case.model()
    named = json.loads((folder / "config.json").read_text())["auto_map"][case.auto_class]
    module, name = named.split(".")
    model = getattr(importlib.import_module(f"{folder.name}.{module}"), name).from_pretrained(folder)
    assert all(base.__module__.partition(".")[0] != "hf_recurrent" for base in type(model).__mro__)
    assert_same(gradients(model.train(), batch), gradients(expected.train(), batch), tolerance=1e-6)
    with torch.no_grad():
        assert_same(model.eval()(**batch).logits, expected.eval()(**batch).logits, tolerance=1e-6)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_clean_process_computes_the_same(architecture, tmp_path, monkeypatch):
    """Outputs, gradients and generated text of every head, and outputs after that process saved the model again."""
    # gathers as late as that process: sums in another order differ
    monkeypatch.setattr(loop, "PRODUCTS_PER_COMPACTION", 1 << 23)
    check([case for case in CASES if case.architecture == architecture], tmp_path)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("auto_class", [CLASSIFIER, *GENERATES])
def test_a_clean_process_computes_the_same_when_compiled(auto_class, tmp_path):
    check([case for case in CASES if case.auto_class == auto_class], tmp_path, "compile")


# what starts no process
@pytest.mark.parametrize("case", [case if case in QUICK else slow(case) for case in CASES], ids=str)
def test_the_package_loads_its_checkpoints_by_its_own_classes(case, tmp_path):
    folder = save(case, tmp_path)
    model = getattr(transformers, case.auto_class).from_pretrained(folder).eval()
    assert type(model).__module__.startswith("hf_recurrent.")
    batch = case.batch()
    with torch.no_grad():
        computed, expected = model(**batch)[0], case.model()(**batch)[0]
    assert_same({"first": computed}, {"first": expected}, tolerance=1e-6)
    files = {path.name for path in folder.iterdir() if path.is_file()} - {"batch.safetensors"}
    assert {"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"} <= files
    assert {file for file in files if not file.endswith((".json", ".safetensors"))} == case.code()[0].keys()


def test_foreign_models_are_refused(tmp_path):
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=8, num_attention_heads=2, intermediate_size=8, num_hidden_layers=1, vocab_size=9)
    with pytest.raises(ValueError, match="model is of class BertModel: pass a model of this package"):
        save_checkpoint(BertModel(config), tmp_path / "bert")
    assert not (tmp_path / "bert").exists()
