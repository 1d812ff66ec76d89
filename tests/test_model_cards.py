"""Committed model cards: sound, rendered from their data, and their checkpoints load."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import hf_recurrent  # noqa: F401 - registers the families
from hf_recurrent.hub import lint_card

ROOT = Path(__file__).parents[1] / "model_cards"
FOLDERS = sorted(path.parent for path in ROOT.glob("*/config.json"))


def test_there_are_cards():
    assert FOLDERS


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_card_is_rendered_from_its_data(folder):
    lint_card(folder)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_folder_holds_nothing_that_executes_on_load(folder):
    assert not [path for path in folder.rglob("*") if path.suffix in {".bin", ".pt", ".pth", ".pkl"}]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_checkpoint_answers(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    siamese = model.config.pair_encoding == "siamese"
    sentences = ("( a ( and b ) )", "( not a )") if siamese else ("[MAX 2 9 [MIN 4 7 ] 0 ]",)
    with torch.no_grad():
        outputs = model(**tokenizer(*sentences, return_tensors="pt"))
    assert outputs.logits.isfinite().all()
    assert (outputs.ponder_steps >= 0).any()
