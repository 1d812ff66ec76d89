"""Committed model cards: publishable as they are, and their checkpoints load."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import hf_recurrent  # noqa: F401 - registers the families
from hf_recurrent.hub.gallery import gallery_problems

ROOT = Path(__file__).parents[1] / "model_cards"
FOLDERS = sorted(path.parent for path in ROOT.glob("*/config.json"))


def test_there_are_cards():
    assert FOLDERS


def test_every_folder_is_a_publishable_repository():
    assert gallery_problems(ROOT) == []


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
