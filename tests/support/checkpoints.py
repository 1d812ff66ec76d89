"""Committed checkpoints for tests: those of the gallery, and a small one that is kept for tests and measurements."""

from pathlib import Path

MODEL_CARDS = Path(__file__).parents[2] / "model_cards"
# a classifier that halts by itself, with a card that has what most cards have
GUT_LISTOPS = Path(__file__).parents[1] / "checkpoints" / "gut-listops-cpu"


def committed_checkpoint(name: str) -> Path:
    """The folder of a checkpoint with its card."""
    return GUT_LISTOPS if name == GUT_LISTOPS.name else MODEL_CARDS / name
