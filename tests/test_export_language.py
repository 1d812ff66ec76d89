"""A saved language model writes the same where this package is not."""

import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from hf_recurrent.hub.checkpoint import save_checkpoint
from hf_recurrent.models.sut.modeling_sut import SUTForConditionalGeneration
from support.compare import assert_close
from support.families import LANGUAGE_BY_NAME, VOCAB_SIZE, make_language_model, make_text
from support.sut_models import make_sut
from support.tokenizer import make_tokenizer

# loading in a clean process is tested for every architecture by its classifier
pytestmark = pytest.mark.slow
NAMES = ["ut", "gut", "tlb", "gutlb", "ndr", "rnn_dnc", "block_recurrent_feedback", "sut_translation"]
TRANSLATES = "sut_translation"
OPTIONS = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}

# runs in another process; `sys.argv`: folders of checkpoints
SCRIPT = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "hf_recurrent":
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM, pipeline

for folder in sys.argv[1:]:
    text = load_file(folder + "/text.safetensors")
    prompt = {{name: text[name] for name in ("input_ids", "attention_mask")}}
    both = AutoConfig.from_pretrained(folder, trust_remote_code=True).is_encoder_decoder
    auto_class = AutoModelForSeq2SeqLM if both else AutoModelForCausalLM
    model = auto_class.from_pretrained(folder, trust_remote_code=True)
    # kernels that take a learned bias depend on whether its gradient is wanted
    with torch.no_grad():
        results = {{"logits": model(**text).logits}}
    results["sequences"] = model.generate(**prompt, **{OPTIONS!r})
    results["plain"] = model.generate(**prompt, **{OPTIONS!r}, use_cache=False)
    model.save_pretrained(folder + "/again")
    again = auto_class.from_pretrained(folder + "/again", trust_remote_code=True)
    results["again"] = again.generate(**prompt, **{OPTIONS!r})
    save_file(results, folder + "/results.safetensors")
    if both:
        base = AutoModel.from_pretrained(folder, trust_remote_code=True)
        assert base.encoder.config.is_causal < base.decoder.config.is_causal
        continue
    writer = pipeline("text-generation", model=folder, trust_remote_code=True)
    (answer,) = writer("w4 w5 w6", max_new_tokens=3)
    assert answer["generated_text"].startswith("w4 w5 w6")
assert "hf_recurrent" not in sys.modules
"""


def model_of(name: str):
    if name != TRANSLATES:
        return make_language_model(LANGUAGE_BY_NAME[name])
    return make_sut("t5", SUTForConditionalGeneration, vocab_size=VOCAB_SIZE).float()


def text_of(name: str) -> dict[str, torch.Tensor]:
    return make_text(LANGUAGE_BY_NAME["ut" if name == TRANSLATES else name])


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    home, folders = tmp_path_factory.mktemp("home"), {}
    for name in NAMES:
        folders[name] = home / name
        save_checkpoint(model_of(name), folders[name], make_tokenizer())
        save_file(text_of(name), folders[name] / "text.safetensors")
    environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, *map(str, folders.values())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False, cwd=home)
    assert done.returncode == 0, done.stderr
    return folders


@pytest.mark.parametrize("name", NAMES)
def test_a_clean_process_writes_the_same(checkpoints, name):
    model, text = model_of(name), text_of(name)
    results = load_file(checkpoints[name] / "results.safetensors")
    with torch.no_grad():
        assert_close(results["logits"], model(**text).logits)
    prompt = {key: text[key] for key in ("input_ids", "attention_mask")}
    expected = model.generate(**prompt, **OPTIONS)
    assert expected.shape == (4, 9 if name == TRANSLATES else 22)
    for key in ("sequences", "plain", "again"):
        assert torch.equal(results[key], expected), key
