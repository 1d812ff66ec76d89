"""A language model's checkpoint: published, loaded and continued by strangers, evaluated and shown in a gallery."""

import json
import re
import shlex
from typing import NamedTuple

import pytest
import torch
from huggingface_hub import HfApi
from language_run import CHUNKS, copied, make_language_run
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_recurrent.cli import main
from hf_recurrent.hub import read_results
from hf_recurrent.hub.gallery import build_page, gallery_problems, refresh
from hf_recurrent.hub.publish import publish_checkpoint
from hf_recurrent.hub.reload import check_reload
from hf_recurrent.hub.staging import stage_checkpoint
from support.client import WITHOUT_PACKAGE, client_in_this_process, must_succeed, run_client
from support.loopback_hub import LoopbackHub

# huggingface_hub passes the bytes of large files in a way that its HTTP client advises against
pytestmark = [pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"), pytest.mark.slow]

REPO = "org/gutlb-flip-flop"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("rows")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def gutlb(runs, cache):
    """Halts, and reads chunk by chunk."""
    return make_language_run(runs / "gutlb", cache, "gutlb", **CHUNKS)


@pytest.fixture(scope="module")
def counting(runs, cache):
    """Of a fixed depth, with chunks that move as a row grows."""
    return make_language_run(runs / "tlb", cache, "tlb", chunking="count", num_chunks=3, num_memory_slots=3)


# processes of their own, forked from one that has imported the libraries already: that is what takes long
FORKED = """
import json, os, sys
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

for code in json.loads(sys.argv.pop(1)):
    if (child := os.fork()) == 0:
        exec(code, {"__name__": "__main__"})
        sys.exit()
    if os.waitpid(child, 0)[1]:
        sys.exit(1)
"""

STRANGER = """
import json
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

name, prompts = sys.argv[1], json.loads(sys.argv[2])
options = {"max_new_tokens": 6, "do_sample": False}
tokenizer = AutoTokenizer.from_pretrained(name)
model = AutoModelForCausalLM.from_pretrained(name, trust_remote_code=True)
batch = tokenizer(prompts, padding=True, padding_side="left", return_tensors="pt")
save_file({"generated": model.generate(**batch, **options)}, sys.argv[3] + "/found.safetensors")
generator = pipeline("text-generation", model=name, trust_remote_code=True)
texts = [generator(prompt, **options, return_full_text=False)[0]["generated_text"] for prompt in prompts]
with open(sys.argv[3] + "/found.json", "w") as file:
    json.dump(texts, file)
"""

PROMPTS = ["w 0 i 1 i 0 r", "w 1 r"]
OFFLINE = "from huggingface_hub import constants\nconstants.HF_HUB_OFFLINE = True"


def usage(folder):
    """The code of a card, which prints what its pipeline gives."""
    blocks = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    *before, call = blocks[1].strip().splitlines()
    assert call.startswith("pipe(")
    return "\n".join([blocks[0], *before, f"print({call}[0])"])


class Strangers(NamedTuple):
    """The files published; what a process without this package makes of them; what the code of the cards prints."""

    published: set[str]
    generated: torch.Tensor
    texts: list[str]
    usage: list[str]


@pytest.fixture(scope="module")
def strangers(runs, gutlb, counting, tmp_path_factory):
    place = tmp_path_factory.mktemp("strangers")
    cards = "\n".join([OFFLINE, *(f'print("next")\n{usage(folder)}' for folder in (gutlb, counting))])
    codes = json.dumps([WITHOUT_PACKAGE + STRANGER, cards])
    with LoopbackHub(page_size=5) as hub, client_in_this_process(hub, place):
        files = publish_checkpoint(gutlb, REPO, api=HfApi(hub.endpoint, token=hub.token)).files
        environment = hub.environment(place, token=False)
        done = run_client(FORKED, environment, codes, REPO, json.dumps(PROMPTS), place, cwd=runs)
        assert hub.unknown == []
    _, *printed = must_succeed(done).split("next\n")
    generated = load_file(place / "found.safetensors")["generated"]
    return Strangers(set(files), generated, json.loads((place / "found.json").read_text()), printed)


def test_the_card_follows_from_the_run(gutlb):
    results = read_results(gutlb)
    assert (results["task"], results["metric"]) == ("text-generation", "last_read_accuracy")
    assert results["model"]["chunks"] == {"chunking": "fixed", **CHUNKS}
    assert results["training"]["command"] == "accelerate launch -m hf_recurrent.train tiny.yaml --output_dir run"
    # the split that is like the training rows comes first
    found = {split: table["distribution"] for split, table in results["splits"].items()}
    assert next(iter(found.items())) == ("test_16_p80", "as in training")
    assert found["test_32_p10"] == "longer, fewer ignored bits"
    assert not any("paper" in table for table in results["splits"].values())
    example = results["example"]
    assert example["text"].endswith(" r")
    assert example["answer"] == example["text"].rpartition("w ")[2].split()[0]


def test_the_usage_sections_run_as_they_stand(strangers, gutlb, counting):
    for printed, folder in zip(strangers.usage, (gutlb, counting), strict=True):
        prompt = read_results(folder)["example"]["text"]
        tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
        with torch.no_grad():
            answer = tokenizer.decode(model(**tokenizer(prompt, return_tensors="pt")).logits[0, -1].argmax())
        assert printed == f"{answer}\n{ {'generated_text': f'{prompt}{answer}'} }\n"


RETURN = "        return RecurrentOutput(logits=logits, **losses, **base_outputs(outputs))"


def scale_ponder_cost(path, factor: str) -> None:
    """Change the code of a staged model."""
    text = path.read_text()
    assert RETURN in text
    path.write_text(text.replace(RETURN, f"        outputs.ponder_cost = outputs.ponder_cost * {factor}\n{RETURN}"))


def test_a_model_that_gives_other_results_is_not_published(gutlb, tmp_path):
    staged = stage_checkpoint(gutlb, tmp_path / "staged", REPO)
    scale_ponder_cost(staged / "modeling_gutlb.py", "1.001")
    with pytest.raises(ValueError, match=r"gives other results without this package, in ponder_cost\. Publish again"):
        check_reload(gutlb, staged)


def test_a_difference_in_the_last_bit_is_none(gutlb, tmp_path):
    staged = stage_checkpoint(gutlb, tmp_path / "staged", REPO)
    scale_ponder_cost(staged / "modeling_gutlb.py", "(1 + 2.0**-23)")
    check_reload(gutlb, staged)


def test_a_card_of_another_task_is_refused(gutlb, tmp_path):
    folder = copied(gutlb, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["GUTLBForSequenceClassification"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="the weights do not fit GUTLBForSequenceClassification"):
        publish_checkpoint(folder, REPO, dry_run=True)
    problems = gallery_problems(tmp_path)
    assert any("config.json is not of a model for text-generation" in problem for problem in problems)


def test_a_stranger_continues_as_its_maker_does(gutlb, strangers):
    assert {"generation_config.json", "configuration_gutlb.py", "modeling_gutlb.py"} <= strangers.published
    tokenizer, model = AutoTokenizer.from_pretrained(gutlb), AutoModelForCausalLM.from_pretrained(gutlb)
    batch = tokenizer(PROMPTS, padding=True, padding_side="left", return_tensors="pt")
    expected = model.eval().generate(**batch, max_new_tokens=6, do_sample=False)
    new = expected[:, batch["input_ids"].shape[1] :]
    assert torch.equal(strangers.generated, expected)
    assert strangers.texts == tokenizer.batch_decode(new)


def test_the_command_on_the_card_gives_its_numbers(gutlb, cache, tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(cache))
    monkeypatch.chdir(gutlb.parent)
    (shown,) = re.findall(r"^hf-recurrent (evaluate .*)$", (gutlb / "README.md").read_text(), re.MULTILINE)
    with pytest.raises(SystemExit) as finished:
        main([*shlex.split(shown), "--output", str(tmp_path / "t.json"), "--batch-size", "8", "--device", "cpu"])
    assert finished.value.code == 0
    tables = json.loads((tmp_path / "t.json").read_text())["splits"]
    shown = read_results(gutlb)["splits"]
    assert tables == {split: {key: shown[split][key] for key in table} for split, table in tables.items()}
    assert tables.keys() == shown.keys()


def test_a_gallery_tells_last_reads_from_accuracy(gutlb, counting, tmp_path):
    for folder in (gutlb, counting):
        copied(folder, tmp_path / "cards")
    root = tmp_path / "cards"
    refresh(root)
    assert gallery_problems(root) == []
    index = (root / "README.md").read_text()
    assert "Accuracy on flip_flop original: The last read of a string is answered with the last bit written." in index
    assert "distance: " in index
    assert "length: " not in index
    page = build_page(root, tmp_path / "page.html").read_text()
    assert "<dt>Accuracy on flip_flop original</dt>" in page
    assert '<th class="number">Last-read accuracy</th>' in page
