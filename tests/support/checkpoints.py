"""Committed checkpoints for tests: those of the gallery, and small ones that are kept for tests and measurements."""

from pathlib import Path

MODEL_CARDS = Path(__file__).parents[2] / "model_cards"
KEPT = Path(__file__).parents[1] / "checkpoints"
# a classifier that halts by itself, with a card that has what most cards have
GUT_LISTOPS = KEPT / "gut-listops-cpu"


def committed_checkpoint(name: str) -> Path:
    """The folder of a checkpoint with its card."""
    return KEPT / name if (KEPT / name).is_dir() else MODEL_CARDS / name
