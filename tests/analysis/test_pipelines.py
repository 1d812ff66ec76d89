"""transformers' pipeline with depth steps."""

import subprocess
import sys

import pytest
import torch
from transformers import pipeline

from hf_recurrent.analysis.pipelines import RecurrentTextClassificationPipeline
from hf_recurrent.hub.checkpoint import save_checkpoint
from support.families import BY_NAME, make_model
from support.tokenizer import make_tokenizer

TEXTS = ["w5 w6 w7", "w8", "w9 w10 w11 w12"]


def classifier(name="gut", **options):
    model, tokenizer = make_model(BY_NAME[name]).eval(), make_tokenizer()
    options = {"tokenizer": tokenizer, "pipeline_class": RecurrentTextClassificationPipeline, **options}
    return pipeline("text-classification", model, **options)


def steps_alone(classify, text, **options):
    with torch.no_grad():
        return classify.model(**classify.tokenizer(text, return_tensors="pt"), **options).ponder_steps.double().mean()


@pytest.mark.parametrize("batch_size", [None, 2])
def test_steps_on_request(batch_size):
    classify = classifier()
    plain = classify(TEXTS, batch_size=batch_size)
    assert [set(result) for result in plain] == [{"label", "score"}] * 3, "as transformers' own"
    found = classify(TEXTS, batch_size=batch_size, return_steps=True)
    assert [result["steps"] for result in found] == [steps_alone(classify, text).item() for text in TEXTS]
    assert [result["label"] for result in found] == [result["label"] for result in plain]
    assert classifier(return_steps=True)(TEXTS[0])[0]["steps"] == found[0]["steps"]


def test_steps_with_labels_depth_and_pairs():
    classify = classifier()
    every = classify(TEXTS, top_k=None, return_steps=True, max_depth=1)
    alone = [steps_alone(classify, text, max_depth=1).item() for text in TEXTS]
    assert [[result["steps"] for result in results] for results in every] == [[steps] * 3 for steps in alone]
    rule = {"exit_criterion": "confidence", "exit_threshold": 0.35}
    found = classify(TEXTS, return_steps=True, **rule)
    assert [result["steps"] for result in found] == [steps_alone(classify, text, **rule).item() for text in TEXTS]
    siamese = classifier("gut_siamese")
    result = siamese({"text": "w5", "text_pair": "w6 w7"}, return_steps=True)
    inputs = siamese.tokenizer("w5", "w6 w7", return_tensors="pt")
    with torch.no_grad():
        expected = siamese.model(**inputs).ponder_steps.double().mean().item()
    assert result["steps"] == pytest.approx(expected)


def test_pipelines_of_transformers_stop_as_the_config_says(tmp_path):
    """Those that hand arguments of a call to the tokenizer; the guide to predictions says so."""
    save_checkpoint(make_model(BY_NAME["gut"]), tmp_path, make_tokenizer())
    classify = pipeline("text-classification", str(tmp_path))
    plain = classify(TEXTS[0])
    assert classify(TEXTS[0], exit_criterion="confidence", exit_threshold=0.35, max_depth=1) == plain
    configured = {"exit_criterion": "confidence", "exit_threshold": 0.35}
    found = pipeline("text-classification", str(tmp_path), model_kwargs=configured)(TEXTS[0])
    (expected,) = classifier()(TEXTS[0], **configured)
    assert found[0]["score"] == pytest.approx(expected["score"])
    assert found[0]["score"] != pytest.approx(plain[0]["score"])


@pytest.mark.parametrize(("wrong", "meant"), [("exit_treshold", "exit_threshold"), ("max_dept", "max_depth")])
def test_misspelt_arguments_are_refused(wrong, meant):
    with pytest.raises(ValueError, match=f"the pipeline has no argument `{wrong}`: did you mean `{meant}`"):
        classifier()(TEXTS, **{wrong: 0.1})


def test_a_fixed_depth_has_no_steps():
    assert classifier("xpos_transformer")(TEXTS, return_steps=True)[0]["steps"] is None


@pytest.mark.slow
def test_models_of_a_checkpoints_own_code(tmp_path):
    """In a process of its own, for classes of the checkpoint's code would be registered in this one."""
    folder = save_checkpoint(make_model(BY_NAME["gut"]), tmp_path / "gut", make_tokenizer())
    code = (
        "import sys\nfrom transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline\n"
        "model = AutoModelForSequenceClassification.from_pretrained(sys.argv[1], trust_remote_code=True)\n"
        "assert type(model).__module__.startswith('transformers_modules'), type(model)\n"
        "from hf_recurrent.analysis.pipelines import RecurrentTextClassificationPipeline as Own\n"
        "tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])\n"
        "classify = pipeline('text-classification', model, tokenizer=tokenizer, pipeline_class=Own)\n"
        "print(classify('w5 w6 w7', return_steps=True)[0]['steps'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == classifier()(TEXTS[0], return_steps=True)[0]["steps"]
