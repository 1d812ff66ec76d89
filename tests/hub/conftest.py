import shutil
from pathlib import Path

import pytest
from card_factory import make_card

from hf_recurrent.hub.card import Plot

MODEL_CARDS = Path(__file__).parents[2] / "model_cards"


@pytest.fixture
def card():
    return make_card()


@pytest.fixture
def picture(tmp_path):
    """A folder with one figure, and the plot entry that shows it."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "steps.png").write_bytes(b"png")
    return Plot("steps", "assets/steps.png", split="test")


@pytest.fixture
def run_folder(tmp_path):
    """A finished run's folder to publish or to break."""
    return Path(shutil.copytree(MODEL_CARDS / "gut-listops-cpu", tmp_path / "run"))
