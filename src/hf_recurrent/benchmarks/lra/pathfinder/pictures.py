"""From segments and markers to the grey values of pictures."""

import numpy as np

from .rasters import marker
from .tables import Tables


def draw_segments(tables: Tables, segments: np.ndarray) -> np.ndarray:
    """The greatest grey value of any segment at each cell, before contrast: (N, size, size) uint8.

    Args:
        segments: (N, n, 3) row, column, direction; a direction of -1 is no segment.
    """
    number, rim, reach = len(segments), tables.rim, tables.pictures.shape[1] // 2
    planes = np.zeros((number, tables.side, tables.side), dtype=np.uint8)
    span = np.arange(-reach, reach + 1)
    offsets = span[:, None] * tables.side + span
    flat = planes.reshape(-1)
    for place in range(segments.shape[1]):
        lanes = np.flatnonzero(segments[:, place, 2] >= 0)
        y, x, directions = segments[lanes, place].astype(np.int64).T
        starts = lanes * tables.side**2 + tables.cell(y + rim, x + rim)
        cells = starts[:, None, None] + offsets
        flat[cells] = np.maximum(flat[cells], tables.pictures[directions])
    return planes[:, rim : rim + tables.settings.size, rim : rim + tables.settings.size]


def draw_markers(tables: Tables, markers: np.ndarray) -> np.ndarray:
    """The discs at (N, 2, 2) markers, rows and columns: (N, size, size) uint8."""
    size = tables.settings.size
    planes = np.zeros((len(markers), size, size), dtype=np.uint8)
    for plane, places in zip(planes, markers, strict=True):
        for y, x in places:
            rows, columns, values = marker(tables.settings, int(y), int(x))
            np.maximum(plane[rows, columns], values, out=plane[rows, columns])
    return planes


def _shades(contrast: float) -> np.ndarray:
    """What grey values 0 to 255 are with a contrast, where 255 is 1 without: (256,) float64."""
    # in single precision, as in the generator: with a contrast of 1.5 every other value is a tie to be rounded
    return (np.arange(256) / 255 * contrast).astype(np.float32).astype(np.float64)


def compose(
    tables: Tables, contours: np.ndarray, distractors: np.ndarray, markers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The pictures (N, size, size) uint8, and the greatest value each had before it was stretched, markers being 1.

    Each picture is stretched as a whole: its least value becomes 0 and its greatest 255.

    Args:
        contours: (N, 2, n, 3) segments; distractors: (N, m, n, 3); markers: (N, 2, 2).
    """
    settings, number = tables.settings, len(contours)
    values = np.maximum(
        _shades(settings.target_contrast)[draw_segments(tables, contours.reshape(number, -1, 3))],
        _shades(settings.snake_contrast)[draw_segments(tables, distractors.reshape(number, -1, 3))],
    )
    values = np.maximum(values, draw_markers(tables, markers) / 255)
    least, most = (join(axis=(1, 2), keepdims=True) for join in (values.min, values.max))
    stretched = np.floor((values - least) * (255 / (most - least)) + 0.5)
    return stretched.astype(np.uint8), most[:, 0, 0]
