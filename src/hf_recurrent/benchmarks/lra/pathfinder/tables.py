"""Everything about segments that can be known before growing: as arrays, so that many contours grow in lockstep.

A direction is the number of an angle: first the 360 whole degrees of first segments, then one for each cell that a
segment can end on, seen from the pivot it grows from. Cells are numbers into planes that have `rim` more cells on every
side than the picture has, so that nothing leaves them.

Segments and markers have grey values and mask values from 0 to 255. Lines and discs are drawn finer than the picture
and reduced by Lanczos' filter. The filter rings: around a line are cells of small values, and the greatest is below
255.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from .settings import Settings

DEGREES = 360
# weights are multiples of 2**-30: their sums are exact, and so the same on every machine
_WEIGHT_UNIT = 2.0**30
# a segment may lie over others as long as nowhere their mask values, 0 to 1, add up to this
_OVERLAP = 1.8
# a cell counts as free up to a mask value of .3
FREE = 76


@dataclass(frozen=True)
class Patches:
    """Values that each direction puts around a cell: (directions, cells) offsets in a plane, and values.

    Rows are filled up by repeating their last cell.
    """

    offsets: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class Tables:
    """Arrays of one margin of some settings; D directions, C candidates, `side` cells of a plane's side.

    - `angles` (D,): radians.
    - `candidates` (C,): offsets in a plane, from the pivot, of the cells a segment can end on; `candidates_yx` (C, 2).
    - `weights` (D, C): how likely a contour of a direction goes on to a candidate, if nothing is there.
    - `next_y`, `next_x` (D, side): the pivot's coordinates after a segment, by direction and old coordinate.
    - `seed_inside_y`, `seed_inside_x` (360, side): whether a first segment there has its head and pivot inside.
    - `seed_pivot_y`, `seed_pivot_x` (360, side): its pivot.
    - `cores`: of each direction's mask, the cells that can be too much with others, and from which value of others on.
    - `masks`, `spaces`: the mask, and the rest of 255 beside the mask widened by the margin.
    - `pictures` (D, 2h + 1, 2h + 1): grey values, in squares around the cell a segment starts from.
    - `kernels`: for each degree, the offsets (n, 2) from a first cell that have to be free; None: no cell will do.
    """

    settings: Settings
    margin: int
    rim: int
    angles: np.ndarray
    candidates: np.ndarray
    candidates_yx: np.ndarray
    weights: np.ndarray
    next_y: np.ndarray
    next_x: np.ndarray
    seed_inside_y: np.ndarray
    seed_inside_x: np.ndarray
    seed_pivot_y: np.ndarray
    seed_pivot_x: np.ndarray
    cores: Patches
    masks: Patches
    spaces: Patches
    pictures: np.ndarray
    kernels: tuple[np.ndarray | None, ...]

    @property
    def side(self) -> int:
        return self.settings.size + 2 * self.rim

    def cell(self, y: np.ndarray, x: np.ndarray) -> np.ndarray:
        """The numbers of cells in a plane, by coordinates of the plane."""
        return y * self.side + x

    def empty_planes(self) -> tuple[np.ndarray, np.ndarray]:
        """Mask (side, side) with the border alone, and the space that it leaves; outside the picture is none."""
        settings, rim, size = self.settings, self.rim, self.settings.size
        border = np.full((size, size), 255, dtype=np.uint8)
        border[settings.padding : size - settings.padding, settings.padding : size - settings.padding] = 0
        mask, space = (np.zeros((self.side, self.side), dtype=np.uint8) for _ in range(2))
        inside = slice(rim, rim + size)
        mask[inside, inside] = border
        space[inside, inside] = 255 - dilated(border, disc(self.margin))
        return mask, space


def make_tables(settings: Settings, margin: int) -> Tables:
    """The tables of one of the margins of some settings."""
    return replace(_make_tables(settings.drawing, margin), settings=settings)


@lru_cache(maxsize=16)
def _make_tables(settings: Settings, margin: int) -> Tables:
    length = settings.segment_length
    # from a pivot at the picture's side: one step on, then the farthest candidate
    rim = 2 * length + 3 * margin + 4
    side = settings.size + 2 * rim
    # candidates: the cells (C, 2) of a circle about one pixel apart, by rows
    radius = length + margin
    step = math.radians(360 / (2 * math.pi * radius))
    turns = [number * step for number in range(math.ceil(2 * math.pi / step))]
    cells = {(math.floor(radius * math.sin(turn)), math.floor(radius * math.cos(turn))) for turn in turns}
    offsets = np.array(sorted(cells))
    seeds = [degree * math.pi / 180 for degree in range(-DEGREES // 2, DEGREES // 2)]
    grown = [math.atan2(y, x) for y, x in offsets]
    angles = np.array([*seeds, *grown])
    inside_y, pivot_y = _seed_table(settings, margin, rim, [(math.sin(a), math.sin(_reverse(a))) for a in seeds])
    inside_x, pivot_x = _seed_table(settings, margin, rim, [(math.cos(a), math.cos(_reverse(a))) for a in seeds])
    # for each mask value of a segment, the least one of others that is too much with it; 256: none is
    # the generator's masks are single precision
    values = (np.arange(256) / 255).astype(np.float32).astype(np.float64)
    limits = (values + values[:, None] < _OVERLAP).sum(axis=1)
    turn = np.abs(np.array(grown) - angles[:, None])
    turn = np.minimum(turn, 2 * np.pi - turn)
    weights = np.cos(np.minimum(settings.continuity * turn, np.pi / 2)) ** 2
    # a grown segment is drawn from its new end back to the pivot
    drawn = [segment(settings, margin, angle) for angle in (*seeds, *map(_reverse, grown))]
    masks = [mask for _, mask in drawn]
    half = settings.half(margin)
    return Tables(
        settings=settings,
        margin=margin,
        rim=rim,
        angles=angles,
        candidates=offsets[:, 0] * side + offsets[:, 1],
        candidates_yx=offsets,
        weights=np.round(weights * _WEIGHT_UNIT) / _WEIGHT_UNIT,
        next_y=_steps([math.sin(angle) for angle in angles], length + 2 * margin, rim, side),
        next_x=_steps([math.cos(angle) for angle in angles], length + 2 * margin, rim, side),
        seed_inside_y=inside_y,
        seed_inside_x=inside_x,
        seed_pivot_y=pivot_y,
        seed_pivot_x=pivot_x,
        cores=_patches([np.where(limits[mask] <= 255, mask, 0) for mask in masks], side, limits),
        masks=_patches(masks, side, np.arange(256)),
        spaces=_patches([dilated(np.pad(mask, margin), disc(margin)) for mask in masks], side, np.arange(255, -1, -1)),
        pictures=np.stack([picture for picture, _ in drawn]),
        kernels=tuple(_kernel(mask, half, length + margin) for mask in masks[:DEGREES]),
    )


def _reverse(angle: float) -> float:
    return angle + math.pi if angle < 0 else angle - math.pi


def _steps(parts: list[float], distance: int, rim: int, side: int) -> np.ndarray:
    """Each coordinate of a plane, `distance` on: a table, as rounding depends on the coordinate itself."""
    starts = np.arange(side) - rim
    moved = np.ceil(starts + distance * np.array(parts)[:, None]).astype(np.int64)
    return np.clip(moved + rim, 0, side - 1)


def _seed_table(
    settings: Settings, margin: int, rim: int, parts: list[tuple[float, float]]
) -> tuple[np.ndarray, np.ndarray]:
    """Of one coordinate: whether a first segment from it has head and pivot inside, and its pivot in a plane.

    `parts` are sines or cosines of each angle and of its reverse.
    """
    size, side, length = settings.size, settings.size + 2 * rim, settings.segment_length
    forth, back = np.array(parts).T[:, :, None]
    heads = np.ceil(np.arange(side) - rim + length * forth)
    pivots = np.ceil(heads + (length + margin) * back)
    inside = (heads >= 0) & (heads < size) & (pivots >= 0) & (pivots < size)
    return inside, np.clip(pivots.astype(np.int64) + rim, 0, side - 1)


def _patches(squares: list[np.ndarray], side: int, code: np.ndarray) -> Patches:
    """The cells of each square that are not 0, as offsets from its middle; `code` (256,) has their meanings."""
    found = [np.nonzero(square) for square in squares]
    most = max(len(y) for y, _ in found)
    offsets = np.zeros((len(squares), most), dtype=np.int64)
    values = np.zeros((len(squares), most), dtype=np.uint8)
    for number, (square, (y, x)) in enumerate(zip(squares, found, strict=True)):
        half = square.shape[0] // 2
        offsets[number] = np.pad((y - half) * side + x - half, (0, most - len(y)), mode="edge")
        values[number] = np.pad(code[square[y, x]], (0, most - len(y)), mode="edge")
    return Patches(offsets, values)


def _kernel(mask: np.ndarray, half: int, reach: int) -> np.ndarray | None:
    """The cells that have to be free for a first segment: those whose mask is full, in a square about its cell.

    The generator draws the segment one cell lower and to the right of the square's middle, and cuts it there: the
    cells that it looks at are off by one. It also takes the greatest mask value of no cells, where all of them are
    outside the picture, for a sign that nothing is free. So directions do not occur in which that happens in a corner.
    """
    y, x = np.nonzero(mask == 255)
    offsets = np.stack([y, x], axis=1) - half + 1
    offsets = offsets[(np.abs(offsets) <= reach).all(axis=1)]
    # from each corner of a picture one of the offsets, at least, is within it
    corners = ((1, 1), (1, -1), (-1, 1), (-1, -1))
    return offsets if all((offsets * corner >= 0).all(axis=1).any() for corner in corners) else None


# finer pixels around a disc, beyond which the reduced picture is 0
_REACH = 8


def disc(radius: int) -> np.ndarray:
    """The offsets (n, 2) of the cells within `radius` of a cell."""
    span = np.arange(-radius, radius + 1)
    y, x = np.meshgrid(span, span, indexing="ij")
    inside = y**2 + x**2 <= radius**2
    return np.stack([y[inside], x[inside]], axis=1)


def dilated(picture: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The greatest value of each cell and those `offsets` (symmetric about 0) away, within the picture."""
    reach = int(np.abs(offsets).max())
    height, width = picture.shape
    wide = np.pad(picture, reach)
    shifted = (wide[reach + y : reach + y + height, reach + x : reach + x + width] for y, x in offsets)
    return np.maximum.reduce(list(shifted))


def _reduced(fine: np.ndarray, height: int, width: int) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.fromarray(fine).resize((width, height), Image.Resampling.LANCZOS))


def segment(settings: Settings, margin: int, angle: float) -> tuple[np.ndarray, np.ndarray]:
    """Picture and mask, (2h + 1, 2h + 1) uint8, of a segment from the middle; h is `settings.half(margin)`.

    `angle` is in radians, from the x axis towards growing y. The mask is the line made wider by the margin.
    """
    from PIL import Image, ImageDraw

    scale, half = settings.antialias, settings.half(margin)
    middle, length = half * scale, settings.segment_length * scale
    canvas = Image.new("L", (2 * middle + 1, 2 * middle + 1))
    end = tuple(math.ceil(middle + length * part) for part in (math.cos(angle), math.sin(angle)))
    ImageDraw.Draw(canvas).line([(middle, middle), end], fill=255, width=round(settings.thickness * scale))
    line = np.asarray(canvas)
    wide = dilated(line, disc(margin * scale))
    return tuple(_reduced(fine, 2 * half + 1, 2 * half + 1) for fine in (line, wide))


def marker(settings: Settings, y: int, x: int) -> tuple[slice, slice, np.ndarray]:
    """Rows, columns and the uint8 values of the part of a picture that has the disc at a cell."""
    scale, reach = settings.antialias, math.ceil(settings.marker_radius) + _REACH
    # the filter has other weights at the picture's sides, so the part ends there, and elsewhere far from the disc
    rows, columns = (slice(max(0, at - reach), min(settings.size, at + reach)) for at in (y, x))
    fine_y = np.arange(rows.start * scale, rows.stop * scale)[:, None] - y * scale
    fine_x = np.arange(columns.start * scale, columns.stop * scale) - x * scale
    fine = np.where(fine_y**2 + fine_x**2 <= (settings.marker_radius * scale) ** 2, 255, 0).astype(np.uint8)
    return rows, columns, _reduced(fine, rows.stop - rows.start, columns.stop - columns.start)
