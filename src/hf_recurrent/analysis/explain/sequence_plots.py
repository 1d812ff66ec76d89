"""The figure of a reading, of pixels or of bytes."""

import os
from pathlib import Path

from .byte_plots import plot_bytes
from .canvas import PIXELS, Canvas
from .pixel_plots import plot_pixels
from .reading import Reading


def plot_reading(reading: Reading, canvas: Canvas, path: str | os.PathLike) -> Path:
    """Draw what a row is made of; see `plot_pixels` and `plot_bytes`."""
    return (plot_pixels if canvas.kind == PIXELS else plot_bytes)(reading, canvas, path)
