r"""From keys to pictures. A picture depends on its key and the settings alone.

From segments and markers to the grey values of pictures."""

from dataclasses import dataclass, fields

import numpy as np

from .contours import check_possible, draw_contours, draw_distractors, lanes_for
from .random_bits import below, subkeys
from .settings import Settings
from .tables import Tables, make_tables, marker

_LABEL, _MARGIN, _ORIGIN, _CONTOURS, _DISTRACTORS = range(5)


@dataclass(frozen=True)
class Pictures:
    """N pictures of S x S pixels, and what is on them.

    - `images` (N, S, S) uint8; `labels` (N,): 1 where both markers are on one contour.
    - `markers` (N, 2, 2): row and column of the marker at the beginning of a contour, and of that at an end.
    - `contours` (N, 2, n, 3), `distractors` (N, asked for, n', 3): row, column and direction of each segment, as in
      `contours.py`; -1 where a short contour is missing.
    - `margins` (N,): the space that was kept around segments.
    - `placed` (N,): short contours that are there; `tries` (N,): how often one was tried; `attempts` (N,): how often
      the two long ones were.
    - `peaks` (N,): greatest value before the picture was stretched.
    """

    images: np.ndarray
    labels: np.ndarray
    markers: np.ndarray
    contours: np.ndarray
    distractors: np.ndarray
    margins: np.ndarray
    placed: np.ndarray
    attempts: np.ndarray
    tries: np.ndarray
    peaks: np.ndarray

    @property
    def distances(self) -> np.ndarray:
        """Distance of the markers in pixels, (N,) float64."""
        return np.hypot(*(self.markers[:, 0] - self.markers[:, 1]).T.astype(np.float64))


def generate(settings: Settings, keys: np.ndarray) -> Pictures:
    """The pictures of uint64 `keys` (N,), N >= 1.

    Raises:
        ValueError: two long contours of such a length do not fit.
    """
    check_possible(settings)
    choices = np.array(settings.margins)[below(keys, _MARGIN, len(settings.margins))]
    places, parts = [], []
    for margin in sorted(set(settings.margins)):
        with_margin = np.flatnonzero(choices == margin)
        limit = lanes_for(make_tables(settings, margin))
        for start in range(0, len(with_margin), limit):
            places.append(with_margin[start : start + limit])
            parts.append(_with_margin(settings, margin, keys[places[-1]]))
    order = np.argsort(np.concatenate(places))
    joined = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts])[order] for field in fields(Pictures)
    }
    return Pictures(**joined)


def _with_margin(settings: Settings, margin: int, keys: np.ndarray) -> Pictures:
    tables = make_tables(settings, margin)
    contours, attempts = draw_contours(tables, subkeys(keys, _CONTOURS))
    distractors, tries = draw_distractors(tables, contours, subkeys(keys, _DISTRACTORS))
    labels, origins = below(keys, _LABEL, 2), below(keys, _ORIGIN, 2)
    number = len(keys)
    rows = np.arange(number)
    # the other marker is at the far end of the same contour, or of the other one
    ends = np.where(labels == 1, origins, 1 - origins)
    markers = np.stack([contours[rows, origins, 0, :2], contours[rows, ends, -1, :2]], axis=1).astype(np.int64)
    values = np.maximum(
        _shades(settings.target_contrast)[draw_segments(tables, contours.reshape(number, -1, 3))],
        _shades(settings.snake_contrast)[draw_segments(tables, distractors.reshape(number, -1, 3))],
    )
    discs = np.zeros((number, settings.size, settings.size), dtype=np.uint8)
    for plane, places in zip(discs, markers, strict=True):
        for y, x in places:
            height, width, grey = marker(settings, int(y), int(x))
            np.maximum(plane[height, width], grey, out=plane[height, width])
    values = np.maximum(values, discs / 255)
    # each picture is stretched as a whole: its minimum becomes 0 and its maximum 255
    low, high = (join(axis=(1, 2), keepdims=True) for join in (values.min, values.max))
    stretched = np.floor((values - low) * (255 / (high - low)) + 0.5)
    return Pictures(
        images=stretched.astype(np.uint8),
        labels=labels,
        markers=markers,
        contours=contours,
        distractors=distractors,
        margins=np.full(number, margin),
        placed=(distractors[:, :, 0, 2] >= 0).sum(axis=1),
        attempts=attempts,
        tries=tries,
        peaks=high[:, 0, 0],
    )


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


def _shades(contrast: float) -> np.ndarray:
    """Grey values 0 to 255 with a contrast, where 255 is 1 without: (256,) float64."""
    # in single precision, as in the generator: with a contrast of 1.5 every other value is a tie to be rounded
    return (np.arange(256) / 255 * contrast).astype(np.float32).astype(np.float64)
