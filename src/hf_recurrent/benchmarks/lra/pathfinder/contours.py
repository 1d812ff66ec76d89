"""The contours of each picture.

The two long ones are attempted in lockstep, and the first attempt that succeeds counts. Attempts are rare to succeed
(one in 300 for 14 segments in 32 x 32 pixels), so that many of each picture are made at a time. Each has random numbers
of its own: the result does not depend on how many are made together.

Each short one is tried some times, and left out where it does not fit.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from .growth import TRIALS, Planes, Tips, extend
from .random_bits import below, subkeys
from .settings import Settings
from .tables import DEGREES, FREE, Tables, make_tables

# at a first picture of some settings, before they count as impossible
PROBE = 2**16
# at any other: where the first one succeeded, even rare settings do long before
MAX_ATTEMPTS = 64 * PROBE
# planes at a time, and what they take
_LANES, _BYTES = 4096, 2**25
# attempts at a picture that is new; later as many as were made before
_AT_FIRST = 64


def free_cells(blocked: np.ndarray, kernel: np.ndarray | None) -> np.ndarray:
    """The cells (n,) of a picture from which none of the `kernel`'s offsets (k, 2) is blocked; outside, nothing is."""
    if kernel is None:
        return np.zeros(0, dtype=np.int64)
    size = blocked.shape[0]
    taken = np.zeros_like(blocked)
    for y, x in kernel:
        rows, columns = (slice(max(0, -by), size - max(0, by)) for by in (y, x))
        there = blocked[rows.start + y : rows.stop + y, columns.start + x : columns.stop + x]
        np.logical_or(taken[rows, columns], there, out=taken[rows, columns])
    return np.flatnonzero(~taken)


@lru_cache(maxsize=16)
def _first_cells(settings: Settings, margin: int) -> tuple[np.ndarray, np.ndarray]:
    """For each degree, how many cells the first contour can start from, and these cells of the picture."""
    tables, band = make_tables(settings, margin), 2 * settings.seed_distance
    blocked = np.ones((settings.size, settings.size), dtype=bool)
    inner = slice(max(band, settings.padding), settings.size - max(band, settings.padding))
    blocked[inner, inner] = False
    free = [free_cells(blocked, kernel) for kernel in tables.kernels]
    counts = np.array([len(cells) for cells in free])
    return counts, np.stack([np.pad(cells, (0, counts.max() - len(cells))) for cells in free])


def seed_inside(tables: Tables, degrees: np.ndarray, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Whether first segments from cells, by coordinates of a plane, have their head and pivot in the picture."""
    return tables.seed_inside_y[degrees, y] & tables.seed_inside_x[degrees, x]


def seed_tips(tables: Tables, lanes: np.ndarray, degrees: np.ndarray, y: np.ndarray, x: np.ndarray) -> Tips:
    starts = lanes * tables.side**2 + tables.cell(y, x)
    return Tips(lanes, tables.seed_pivot_y[degrees, y], tables.seed_pivot_x[degrees, x], degrees, starts)


Seeds = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _first_seeds(tables: Tables, keys: np.ndarray) -> Seeds:
    """Of each attempt, whether there is a first segment, its direction, and its first cell in a plane."""
    counts, cells = _first_cells(tables.settings.drawing, tables.margin)

    def place(left: np.ndarray, trial: int) -> tuple[np.ndarray, ...]:
        degree = below(keys[left], 2 * trial, DEGREES)
        # no free cell ends the attempt; a segment that leaves the picture does not
        left, degree = left[counts[degree] > 0], degree[counts[degree] > 0]
        cell = cells[degree, below(keys[left], 2 * trial + 1, counts[degree])]
        return left, degree, *(part + tables.rim for part in divmod(cell, tables.settings.size))

    return _seeds(tables, len(keys), place)


def _second_seeds(tables: Tables, keys: np.ndarray, first_y: np.ndarray, first_x: np.ndarray) -> Seeds:
    """As for the first, on a circle round its first cell; what is there already does not matter."""
    angles = [degree * math.pi / 180 for degree in range(DEGREES)]
    distance, last = tables.settings.seed_distance, tables.side - 1
    by_y, by_x = (distance * np.array([part(angle) for angle in angles]) for part in (math.sin, math.cos))

    def place(left: np.ndarray, trial: int) -> tuple[np.ndarray, ...]:
        turn = below(keys[left], 2 * trial + 1, DEGREES)
        parts = ((first_y, by_y), (first_x, by_x))
        cells = (np.clip(np.rint(first[left] + by[turn]).astype(np.int64), 0, last) for first, by in parts)
        return left, below(keys[left], 2 * trial, DEGREES), *cells

    return _seeds(tables, len(keys), place)


def _seeds(tables: Tables, number: int, place: Callable[[np.ndarray, int], tuple[np.ndarray, ...]]) -> Seeds:
    """The first segments of attempts.

    Args:
        place: (attempts without a segment, trial) -> the attempts that go on, and the segment that each of them tries.
    """
    found = np.zeros(number, dtype=bool)
    degrees, y, x = np.zeros((3, number), dtype=np.int64)
    left = np.arange(number)
    for trial in range(TRIALS):
        left, *tried = place(left, trial)
        degrees[left], y[left], x[left] = tried
        found[left] = seed_inside(tables, degrees[left], y[left], x[left])
        left = left[~found[left]]
    return found, degrees, y, x


def _attempt(tables: Tables, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which attempts succeed, and the segments of these: (successes,), (successes, 2, n, 3)."""
    length = tables.settings.contour_length
    found, degrees, y, x = _first_seeds(tables, subkeys(keys, 0))
    found_too, degrees_too, y_too, x_too = _second_seeds(tables, subkeys(keys, 1), y, x)
    attempts = np.flatnonzero(found & found_too)
    lanes = np.arange(len(attempts))
    planes = Planes.empty(tables, len(attempts))
    tips = [
        seed_tips(tables, lanes, degrees[attempts], y[attempts], x[attempts]),
        seed_tips(tables, lanes, degrees_too[attempts], y_too[attempts], x_too[attempts]),
    ]
    segments = np.zeros((len(attempts), 2, length, 3), dtype=np.int16)
    for contour in range(2):
        segments[:, contour, 0] = tips[contour].coordinates(tables)
    for number in range(1, length):
        for contour in range(2):
            step = subkeys(keys[attempts[tips[0].lanes]], 2 * number + contour)
            alive, grown = extend(tables, planes, tips[contour], step)
            tips[1 - contour] = tips[1 - contour][alive]
            tips[contour] = grown
            segments[grown.lanes, contour, number] = grown.coordinates(tables)
    return attempts[tips[0].lanes], segments[tips[0].lanes]


def lanes_for(tables: Tables) -> int:
    """How many planes are kept at a time."""
    return max(16, min(_LANES, _BYTES // (2 * tables.side**2)))


@lru_cache(maxsize=16)
def check_possible(settings: Settings) -> None:
    """Raises ValueError where two long contours do not fit, as far as `PROBE` attempts can tell."""
    for margin in settings.margins:
        draw_contours(make_tables(settings, margin), np.zeros(1, dtype=np.uint64), PROBE)


def draw_contours(tables: Tables, keys: np.ndarray, max_attempts: int = MAX_ATTEMPTS) -> tuple[np.ndarray, np.ndarray]:
    """Two contours for each picture, by their keys (N,).

    Returns:
        `segments` (N, 2, n, 3) of row, column, direction, and the attempts (N,) made for them. Row and column are those
        of a segment's first cell: of the first segment the contour's end, of others the end they grew to.

    Raises:
        ValueError: those of a picture are not found in `max_attempts` attempts.
    """
    # few directions may allow a first segment, and only attempts that have one need a plane
    counts, _ = _first_cells(tables.settings.drawing, tables.margin)
    limit = int(lanes_for(tables) / max(np.mean(counts > 0), 0.05))
    segments = np.zeros((len(keys), 2, tables.settings.contour_length, 3), dtype=np.int16)
    attempts, made = (np.zeros(len(keys), dtype=np.int64) for _ in range(2))
    left = np.arange(len(keys))
    while len(left):
        now = left[:limit]
        if made[now].max() >= max_attempts:
            settings = tables.settings
            raise ValueError(
                f"contour_length={settings.contour_length}: two such contours were not found in {max_attempts} "
                f"attempts in {settings.size} x {settings.size} pixels (continuity={settings.continuity}); give a "
                "shorter length"
            )
        each = int(min(limit // len(now), max(_AT_FIRST, made[now].min())))
        numbers = made[now][:, None] + np.arange(each)
        successes, found = _attempt(tables, subkeys(keys[now][:, None], numbers).ravel())
        pictures, firsts = np.unique(successes // each, return_index=True)
        done = now[pictures]
        segments[done] = found[firsts]
        attempts[done] = numbers.ravel()[successes[firsts]] + 1
        made[now] += each
        left = left[attempts[left] == 0]
    return segments, attempts


TRIES = 5
# of the picture's cells; with less left no short contour is begun
_LEAST_FREE = 0.01


def occupied(tables: Tables, segments: np.ndarray) -> Planes:
    """The planes of pictures with their two long contours (N, 2, n, 3).

    The last segment of the first contour is not protected, as in the generator: the mask of a segment is added with the
    next one of its contour, and at the end that of the second contour alone is.
    """
    number, _, length, _ = segments.shape
    planes = Planes.empty(tables, number)
    segments = segments.astype(np.int64)
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


def _try(tables: Tables, planes: Planes, lanes: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tries one short contour on some of the planes: the numbers of those that got it, and its segments (n, 3)."""
    length = tables.settings.distractor_length
    masks = planes.masks.reshape(-1, tables.side, tables.side)
    numbers, of_seeds = np.arange(TRIALS), subkeys(keys, 0)[:, None]
    degrees = below(of_seeds, 2 * numbers, DEGREES)
    draws = np.stack([degrees.astype(np.uint64), subkeys(of_seeds, 2 * numbers + 1)], axis=2)
    found = [_seed(tables, masks[lane], draw) for lane, draw in zip(lanes, draws, strict=True)]
    begun = np.array([number for number, seed in enumerate(found) if seed is not None], dtype=np.int64)
    seeds = np.array([found[number] for number in begun], dtype=np.int64).reshape(-1, 3)
    # a try that fails leaves nothing behind
    copies = planes.of(lanes[begun])
    tips = seed_tips(tables, np.arange(len(begun)), *seeds.T)
    segments = np.zeros((len(begun), length, 3), dtype=np.int16)
    segments[:, 0] = tips.coordinates(tables)
    for number in range(1, length):
        _, tips = extend(tables, copies, tips, subkeys(keys[begun[tips.lanes]], number))
        segments[tips.lanes, number] = tips.coordinates(tables)
    copies.protect(tables, tips.starts, tips.directions)
    planes.assign(lanes[begun[tips.lanes]], copies, tips.lanes)
    return begun[tips.lanes], segments[tips.lanes]


def draw_distractors(tables: Tables, contours: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The short contours of pictures with the long `contours` (N, 2, n, 3), by their keys (N,).

    Returns:
        Their segments (N, asked for, n, 3), -1 where one is missing, and the tries (N,) made in all.
    """
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
    return segments, tries
