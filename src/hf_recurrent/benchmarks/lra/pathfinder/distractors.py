"""The short contours of each picture: each is tried some times, and left out where it does not fit."""

from dataclasses import dataclass

import numpy as np

from .contours import Contours, free_cells, seed_inside, seed_tips
from .growth import TRIALS, Planes, Tips, extend
from .random_bits import below, subkeys
from .tables import DEGREES, FREE, Tables

TRIES = 5
# of the picture's cells; with less left no short contour is begun
_LEAST_FREE = 0.01


@dataclass(frozen=True)
class Distractors:
    """`segments` (N, asked for, n, 3) as those of `Contours`, -1 where one is missing; `tries` (N,) made in all."""

    segments: np.ndarray
    tries: np.ndarray

    @property
    def placed(self) -> np.ndarray:
        """How many short contours each picture has."""
        return (self.segments[:, :, 0, 2] >= 0).sum(axis=1)


def occupied(tables: Tables, contours: Contours) -> Planes:
    """The planes of pictures with their two long contours.

    The last segment of the first contour is not protected, as in the generator: the mask of a segment is added with the
    next one of its contour, and at the end that of the second contour alone is.
    """
    number, _, length, _ = contours.segments.shape
    planes = Planes.empty(tables, number)
    segments = contours.segments.astype(np.int64)
    cells = tables.cell(segments[..., 0] + tables.rim, segments[..., 1] + tables.rim)
    cells += (np.arange(number) * planes.area)[:, None, None]
    for contour in range(2):
        for place in range(length - 1 + contour):
            planes.protect(tables, cells[:, contour, place], segments[:, contour, place, 2])
    return planes


def _seed(tables: Tables, mask: np.ndarray, draws: np.ndarray) -> tuple[int, int, int] | None:
    """Direction and first cell, in the plane, of a short contour in a plane's mask (side, side).

    Args:
        draws: (TRIALS, 2) keys for the directions and the cells.
    """
    if tables.kernels[draws[0, 0]] is None:
        return None
    inside = slice(tables.rim, tables.rim + tables.settings.size)
    blocked = mask[inside, inside] > FREE
    if blocked.size - np.count_nonzero(blocked) < _LEAST_FREE * blocked.size:
        return None
    blocked[[0, -1]] = blocked[:, [0, -1]] = True
    for degree, key in draws:
        cells = free_cells(blocked, tables.kernels[degree])
        if not len(cells):
            return None
        y, x = (int(part) + tables.rim for part in divmod(cells[below(key, 0, len(cells))], tables.settings.size))
        if seed_inside(tables, degree, y, x):
            return int(degree), y, x
    return None


def _seeds(tables: Tables, planes: Planes, lanes: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, Tips]:
    """The numbers of the tries that can be begun, and their tips on planes numbered like the tries."""
    masks = planes.masks.reshape(-1, tables.side, tables.side)
    numbers = np.arange(TRIALS)
    degrees = below(keys[:, None], 2 * numbers, DEGREES)
    draws = np.stack([degrees.astype(np.uint64), subkeys(keys[:, None], 2 * numbers + 1)], axis=2)
    found = [_seed(tables, masks[lane], draw) for lane, draw in zip(lanes, draws, strict=True)]
    begun = np.array([number for number, seed in enumerate(found) if seed is not None], dtype=np.int64)
    seeds = np.array([found[number] for number in begun], dtype=np.int64).reshape(-1, 3)
    return begun, seed_tips(tables, begun, *seeds.T)


def _try(tables: Tables, planes: Planes, lanes: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tries one short contour on some of the planes: the numbers of those that got it, and its segments (n, 3)."""
    length = tables.settings.distractor_length
    begun, tips = _seeds(tables, planes, lanes, subkeys(keys, 0))
    # a try that fails leaves nothing behind
    copies = planes.of(lanes[begun])
    tips = seed_tips(tables, np.arange(len(begun)), tips.directions, *divmod(tips.starts % planes.area, tables.side))
    segments = np.zeros((len(begun), length, 3), dtype=np.int16)
    segments[:, 0] = tips.coordinates(tables)
    for number in range(1, length):
        _, tips = extend(tables, copies, tips, subkeys(keys[begun[tips.lanes]], number))
        segments[tips.lanes, number] = tips.coordinates(tables)
    copies.protect(tables, tips.starts, tips.directions)
    planes.assign(lanes[begun[tips.lanes]], copies, tips.lanes)
    return begun[tips.lanes], segments[tips.lanes]


def draw_distractors(tables: Tables, contours: Contours, keys: np.ndarray) -> Distractors:
    """The short contours of pictures with long `contours`, by their keys (N,)."""
    settings, number = tables.settings, len(keys)
    planes = occupied(tables, contours)
    segments = np.full((number, settings.num_distractors, settings.distractor_length, 3), -1, dtype=np.int16)
    tries = np.zeros(number, dtype=np.int64)
    for distractor in range(settings.num_distractors):
        left = np.arange(number)
        for attempt in range(TRIES):
            tries[left] += 1
            done, grown = _try(tables, planes, left, subkeys(subkeys(keys[left], distractor), attempt))
            segments[left[done], distractor] = grown
            left = np.delete(left, done)
    return Distractors(segments, tries)
