"""What segments and markers look like on the pixel grid, as grey values and mask values from 0 to 255.

Lines and discs are drawn finer than the picture and reduced by Lanczos' filter. The filter rings: around a line are
cells of small values, and the greatest is below 255.
"""

import math

import numpy as np

from .settings import Settings

# finer pixels around a disc, beyond which the reduced picture is 0
_REACH = 8


def move(start: int, angle_part: float, distance: float) -> int:
    """One coordinate of the cell that lies `distance` from `start`; `angle_part` is the sine or cosine."""
    return math.ceil(start + distance * angle_part)


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
    end = move(middle, math.cos(angle), length), move(middle, math.sin(angle), length)
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
