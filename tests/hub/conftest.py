import pytest
from card_factory import make_card

from hf_recurrent.hub.card import Plot


@pytest.fixture
def card():
    return make_card()


@pytest.fixture
def picture(tmp_path):
    """A folder with one figure, and the plot entry that shows it."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "steps.png").write_bytes(b"png")
    return Plot("steps", "assets/steps.png", split="test")
