"""Pipelines, each made from a saved folder, and their answers beside the model's own."""

import torch
from transformers import pipeline

from hf_recurrent import save_checkpoint
from support.tokenizer import make_tokenizer

from .door import Room
from .models import ALWAYS_CAUSAL, BASE, CLASSIFIER, ENCODERS, LANGUAGE, MASKED, TOKENS, compute, live, refused

ROOM = Room("Pipelines")
TEXTS = ["w4 w9 w5", "w23 w11 w6 w8", "w5 w10"]

# of transformers' error, which goes on with tracebacks
NO_MASKED = refused(
    r"AutoModelForMaskedLM has no model for \w+: load it with one of [^:]+: \w+(?:, \w+)*",
    *ALWAYS_CAUSAL,
    by="transformers",
)


def opened(task, architecture, head, folder, mask_token=None, **options):
    """A pipeline, and what the model computes of each text."""
    model, tokenizer = live(architecture, head), make_tokenizer()
    tokenizer.mask_token = mask_token
    save_checkpoint(model, folder, tokenizer)
    made = pipeline(task, model=str(folder), device="cpu", **options)
    return made, [compute(model, tokenizer(text, return_tensors="pt")) for text in TEXTS]


@ROOM.door("text-classification")
def enter_text_classification(architecture, folder):
    classify, outputs = opened("text-classification", architecture, CLASSIFIER, folder)
    answers = classify(TEXTS, batch_size=2)
    assert [answer["label"] for answer in answers] == [f"LABEL_{int(each.logits.argmax())}" for each in outputs]


@ROOM.door("token-classification")
def enter_token_classification(architecture, folder):
    classify, outputs = opened("token-classification", architecture, TOKENS, folder, ignore_labels=[])
    for text, answer, output in zip(TEXTS, classify(TEXTS, batch_size=2), outputs, strict=True):
        labels = [f"LABEL_{label}" for label in output.logits[0, 1:-1].argmax(-1).tolist()]
        assert [(item["word"], item["entity"]) for item in answer] == list(zip(text.split(), labels, strict=True))


@ROOM.door("fill-mask", NO_MASKED)
def enter_fill_mask(architecture, folder):
    if architecture in ALWAYS_CAUSAL:
        live(architecture).save_pretrained(folder)
        pipeline("fill-mask", model=str(folder), tokenizer=make_tokenizer())
    fill, outputs = opened("fill-mask", architecture, MASKED, folder, mask_token="w5")
    for text, answer, output in zip(TEXTS[::2], fill(TEXTS[::2]), outputs[::2], strict=True):
        place = 1 + text.split().index("w5")
        assert [item["token"] for item in answer] == output.logits[0, place].topk(5).indices.tolist()


@ROOM.door("text-generation", ENCODERS)
def enter_text_generation(architecture, folder):
    write, outputs = opened("text-generation", architecture, LANGUAGE, folder)
    answers = write(TEXTS, max_new_tokens=1, do_sample=False, add_special_tokens=True)
    for text, (answer,), output in zip(TEXTS, answers, outputs, strict=True):
        new = make_tokenizer().decode(output.logits[0, -1].argmax(), skip_special_tokens=True)
        assert answer["generated_text"].removeprefix(text).strip() == new


@ROOM.door("feature-extraction")
def enter_feature_extraction(architecture, folder):
    extract, outputs = opened("feature-extraction", architecture, BASE, folder)
    for features, output in zip(extract(TEXTS), outputs, strict=True):
        torch.testing.assert_close(torch.tensor(features), output.last_hidden_state)
