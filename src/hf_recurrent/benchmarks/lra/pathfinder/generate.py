"""From keys to pictures. A picture depends on its key and the settings alone."""

from dataclasses import dataclass, fields

import numpy as np

from .contours import check_possible, draw_contours, lanes_for
from .distractors import draw_distractors
from .pictures import compose
from .random_bits import below, subkeys
from .settings import Settings
from .tables import make_tables

_LABEL, _MARGIN, _ORIGIN, _CONTOURS, _DISTRACTORS = range(5)


@dataclass(frozen=True)
class Pictures:
    """N pictures of S x S pixels, and what is on them.

    - `images` (N, S, S) uint8; `labels` (N,): 1 where both markers are on one contour.
    - `markers` (N, 2, 2): row and column of the marker at the beginning of a contour, and of that at an end.
    - `contours` (N, 2, n, 3), `distractors` (N, asked for, n', 3): row, column and direction of each segment, as in
      `contours.py`; -1 where a short contour is missing.
    - `margins` (N,): the room that was kept around segments.
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
        ValueError: there are no keys, or two long contours of such a length do not fit.
    """
    keys = np.asarray(keys, dtype=np.uint64)
    if keys.ndim != 1 or not len(keys):
        raise ValueError(f"keys: expected at least one, in an array of shape (N,), got shape {keys.shape}")
    check_possible(settings)
    choices = np.array(settings.margins)[below(keys, _MARGIN, len(settings.margins))]
    places, parts = [], []
    for margin in sorted(set(settings.margins)):
        with_margin = np.flatnonzero(choices == margin)
        most = lanes_for(make_tables(settings, margin))
        for start in range(0, len(with_margin), most):
            places.append(with_margin[start : start + most])
            parts.append(_with_margin(settings, margin, keys[places[-1]]))
    order = np.argsort(np.concatenate(places))
    joined = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts])[order] for field in fields(Pictures)
    }
    return Pictures(**joined)


def _with_margin(settings: Settings, margin: int, keys: np.ndarray) -> Pictures:
    tables = make_tables(settings, margin)
    contours = draw_contours(tables, subkeys(keys, _CONTOURS))
    distractors = draw_distractors(tables, contours, subkeys(keys, _DISTRACTORS))
    labels, origins = below(keys, _LABEL, 2), below(keys, _ORIGIN, 2)
    rows = np.arange(len(keys))
    # the other marker is at the far end of the same contour, or of the other one
    ends = np.where(labels == 1, origins, 1 - origins)
    markers = np.stack([contours.segments[rows, origins, 0, :2], contours.segments[rows, ends, -1, :2]], axis=1).astype(
        np.int64
    )
    images, peaks = compose(tables, contours.segments, distractors.segments, markers)
    return Pictures(
        images=images,
        labels=labels,
        markers=markers,
        contours=contours.segments,
        distractors=distractors.segments,
        margins=np.full(len(keys), margin),
        placed=distractors.placed,
        attempts=contours.attempts,
        tries=distractors.tries,
        peaks=peaks,
    )
