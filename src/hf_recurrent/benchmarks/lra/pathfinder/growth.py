"""One more segment for each of many contours, each on a plane of its own.

Everything that a contour needs of its plane is looked up at the few cells that matter to it.
"""

from dataclasses import dataclass, fields

import numpy as np

from .random_bits import uniform
from .tables import Patches, Tables

# draws of a segment before its contour is given up
TRIALS = 3
# weights of candidates add up to less than this: nowhere to go
_DEAD_END = 1e-4 * 255


@dataclass(frozen=True)
class Planes:
    """Of each lane, the mask of what is there, and how free each cell is: (lanes * area,) uint8 from 0 to 255."""

    masks: np.ndarray
    spaces: np.ndarray
    area: int

    @classmethod
    def empty(cls, tables: Tables, lanes: int) -> "Planes":
        mask, space = tables.empty_planes()
        return cls(np.tile(mask.ravel(), lanes), np.tile(space.ravel(), lanes), tables.side**2)

    def of(self, lanes: np.ndarray) -> "Planes":
        """A copy of some lanes."""
        masks, spaces = (plane.reshape(-1, self.area)[lanes].ravel() for plane in (self.masks, self.spaces))
        return Planes(masks, spaces, self.area)

    def assign(self, lanes: np.ndarray, other: "Planes", others: np.ndarray) -> None:
        """Makes some lanes those of another."""
        for mine, theirs in ((self.masks, other.masks), (self.spaces, other.spaces)):
            mine.reshape(-1, self.area)[lanes] = theirs.reshape(-1, self.area)[others]

    def protect(self, tables: Tables, starts: np.ndarray, directions: np.ndarray) -> None:
        """Adds segments to the planes; at most one to each.

        Cells outside the picture take part: only a segment across the border, whose cells are full, could reach them.
        """
        _compose(self.masks, tables.masks, starts, directions, np.maximum)
        _compose(self.spaces, tables.spaces, starts, directions, np.minimum)


def _compose(plane: np.ndarray, patches: Patches, starts: np.ndarray, directions: np.ndarray, join: np.ufunc) -> None:
    cells = starts[:, None] + patches.offsets[directions]
    plane[cells] = join(plane[cells], patches.values[directions])


@dataclass(frozen=True)
class Tips:
    """The ends that contours have grown to, one a row.

    - `lanes`: the plane that each is on.
    - `pivot_y`, `pivot_x`: coordinates in the plane of the pivot of the last segment.
    - `directions`: of the last segment.
    - `starts`: its first cell, counted over all planes. It is not on the plane yet.
    """

    lanes: np.ndarray
    pivot_y: np.ndarray
    pivot_x: np.ndarray
    directions: np.ndarray
    starts: np.ndarray

    def __getitem__(self, which: np.ndarray) -> "Tips":
        return Tips(*(getattr(self, field.name)[which] for field in fields(self)))

    def coordinates(self, tables: Tables) -> np.ndarray:
        """Row and column in the picture of the last segments' first cells, and their directions: (tips, 3)."""
        cells = self.starts % tables.side**2
        return np.stack([cells // tables.side - tables.rim, cells % tables.side - tables.rim, self.directions], axis=1)


def extend(tables: Tables, planes: Planes, tips: Tips, keys: np.ndarray) -> tuple[np.ndarray, Tips]:
    """The numbers of the tips that could go on, and their new tips.

    The segments before are then protected: the last segment of a contour is not, while the next one is looked for.

    Args:
        keys: (tips,) of the random numbers of this segment.
    """
    y, x = tables.next_y[tips.directions, tips.pivot_y], tables.next_x[tips.directions, tips.pivot_x]
    pivots = tips.lanes * planes.area + tables.cell(y, x)
    cells = pivots[:, None] + tables.candidates
    bounds = np.cumsum(tables.weights[tips.directions] * planes.spaces[cells], axis=1)
    choices = np.zeros(len(pivots), dtype=np.int64)
    found = np.zeros(len(pivots), dtype=bool)
    left = np.flatnonzero(bounds[:, -1] >= _DEAD_END)
    for trial in range(TRIALS):
        drawn = uniform(keys[left], trial) * bounds[left, -1]
        # the last candidate where rounding makes the product the whole
        choice = np.minimum((bounds[left] <= drawn[:, None]).sum(axis=1), len(tables.candidates) - 1)
        direction = choice + len(tables.angles) - len(tables.candidates)
        cores = cells[left, choice][:, None] + tables.cores.offsets[direction]
        fits = (planes.masks[cores] < tables.cores.values[direction]).all(axis=1)
        choices[left] = choice
        found[left[fits]] = True
        left = left[~fits]
        if not len(left):
            break
    alive = np.flatnonzero(found)
    planes.protect(tables, tips.starts[alive], tips.directions[alive])
    grown = choices[alive] + len(tables.angles) - len(tables.candidates)
    return alive, Tips(tips.lanes[alive], y[alive], x[alive], grown, cells[alive, choices[alive]])
