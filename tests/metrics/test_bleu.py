"""BLEU of plain texts and of words with compounds split, beside a BLEU that is counted here."""

import math
import sys
from collections import Counter

import pytest
import sacrebleu

from hf_recurrent.metrics.bleu import bleu, compound_split_bleu, split_compounds

REFERENCES = ["Der Vor-Ort-Test war ein großer Erfolg.", "Die Katze sitzt auf der Matte.", "Er sagte: nein, nie!"]
PREDICTIONS = ["Der Vor-Ort-Test war kein Erfolg.", "Die Katze sitzt auf der alten Matte.", "Er sagte: nein!"]


def counted(predictions, references):
    """Corpus BLEU of words by its definition, without smoothing."""
    matches, total, lengths = [0] * 4, [0] * 4, [0, 0]
    for predicted, wanted in zip(predictions, references, strict=True):
        words = [predicted.split(), wanted.split()]
        lengths = [length + len(own) for length, own in zip(lengths, words, strict=True)]
        for n in range(1, 5):
            found, there = (Counter(zip(*(own[i:] for i in range(n)), strict=False)) for own in words)
            matches[n - 1] += sum((found & there).values())
            total[n - 1] += sum(found.values())
    if 0 in matches:
        return 0.0
    precision = math.exp(sum(math.log(match / all_) for match, all_ in zip(matches, total, strict=True)) / 4)
    return 100 * precision * min(1.0, math.exp(1 - lengths[1] / lengths[0]))


def spaced(texts):
    """Words with spaces between them, as a tokenizer gives them."""
    for sign in ".,:!":
        texts = [text.replace(sign, f" {sign}") for text in texts]
    return texts


def test_compounds_are_split():
    assert split_compounds("Vor-Ort Test - a -b c- d") == "Vor ##AT##-##AT## Ort Test - a -b c- d"
    # a letter is part of one compound only
    assert split_compounds("a-b-c ab-cd-ef") == "a ##AT##-##AT## b-c ab ##AT##-##AT## cd ##AT##-##AT## ef"


def test_of_words():
    predictions, references = spaced(PREDICTIONS), spaced(REFERENCES)
    found = compound_split_bleu(predictions, references)
    split = [[split_compounds(text) for text in texts] for texts in (predictions, references)]
    assert found.score == pytest.approx(counted(*split))
    assert found.score > counted(predictions, references)
    assert "compounds:split" in found.signature
    # punctuation that is not set apart yet
    assert compound_split_bleu(PREDICTIONS, REFERENCES, "13a").score == pytest.approx(found.score)
    assert compound_split_bleu(PREDICTIONS, REFERENCES).score != pytest.approx(found.score)


def test_of_words_is_not_smoothed():
    assert compound_split_bleu(["a b c d e"], ["a b c x e"]).score == counted(["a b c d e"], ["a b c x e"]) == 0
    assert bleu(["a b c d e"], ["a b c x e"]).score > 1


def test_of_plain_texts():
    found = bleu(PREDICTIONS, REFERENCES)
    assert found.score == pytest.approx(counted(spaced(PREDICTIONS), spaced(REFERENCES)))
    assert found.score == pytest.approx(sacrebleu.corpus_bleu(PREDICTIONS, [REFERENCES]).score)
    assert found.signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    assert len(found.precisions) == 4
    assert bleu(REFERENCES, REFERENCES).score == pytest.approx(100)
    assert bleu([text.lower() for text in REFERENCES], REFERENCES).score < 80


def test_short_predictions_are_penalized():
    found = bleu(["Die Katze sitzt auf"], ["Die Katze sitzt auf der Matte"])
    assert found.brevity_penalty == pytest.approx(math.exp(1 - 6 / 4))
    assert found.score == pytest.approx(100 * found.brevity_penalty)
    assert bleu(["", *PREDICTIONS[1:]], REFERENCES).score < bleu(PREDICTIONS, REFERENCES).score


def test_tokenizers_differ():
    texts = ["a\u2013b c d e f"], ["a \u2013 b c d e f"]
    assert bleu(*texts, "intl").score == pytest.approx(100)
    assert bleu(*texts, "none").score < 100
    assert "tok:char" in bleu(*texts, "char").signature


@pytest.mark.parametrize("score", [bleu, compound_split_bleu])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], []), "equally long and not empty, got 0 and 0 texts"),
        (("a", "a"), "must be lists of texts, not one text"),
        ((["a", "b"], ["a", " "]), r"references\[1\] is empty: there is nothing to compare with"),
        ((["a"], ["a"], "moses"), "tokenizer='moses': expected one of 13a, intl, char, none"),
    ],
)
def test_bad_input(score, arguments, message):
    with pytest.raises(ValueError, match=message):
        score(*arguments)


@pytest.mark.parametrize("score", [bleu, compound_split_bleu])
def test_without_sacrebleu(score, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(ImportError, match=r"not installed: pip install 'hf-recurrent\[translation\]'"):
        score(["a"], ["a"])
