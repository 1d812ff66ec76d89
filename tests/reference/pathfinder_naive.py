"""Pathfinder pictures made one attempt at a time, on whole planes of numbers from 0 to 1: slow, and plain to read.

The steps are those of the published generator (Kim et al., 2020) as the package describes it. Random numbers are the
package's, so that the pictures should be the same, cell by cell.
"""

import math

import numpy as np
from PIL import Image, ImageDraw
from scipy import ndimage

from hf_recurrent.benchmarks.lra.pathfinder.random_bits import below, subkeys, uniform


def key(above, *numbers):
    """The key below a key, as an array of one."""
    keys = np.atleast_1d(np.asarray(above, dtype=np.uint64))
    for number in numbers:
        keys = subkeys(keys, number)
    return keys


def move(cell, angle, distance):
    return math.ceil(cell[0] + distance * math.sin(angle)), math.ceil(cell[1] + distance * math.cos(angle))


def reverse(angle):
    return angle + math.pi if angle < 0 else angle - math.pi


def disc(radius):
    y, x = np.ogrid[-radius : radius + 1, -radius : radius + 1]
    return y**2 + x**2 <= radius**2


def dilate(plane, footprint):
    """The greatest value under a footprint; where all of it is outside, minus infinity."""
    return ndimage.grey_dilation(plane, footprint=footprint[::-1, ::-1], mode="constant", cval=-np.inf)


def paste(square, start, height, width):
    half = square.shape[0] // 2
    plane = np.zeros((height, width))
    for y in range(square.shape[0]):
        for x in range(square.shape[1]):
            at_y, at_x = start[0] + y - half, start[1] + x - half
            if 0 <= at_y < height and 0 <= at_x < width:
                plane[at_y, at_x] = square[y, x]
    return plane


class Naive:
    """The pictures of some settings, of one margin."""

    def __init__(self, settings, margin):
        self.settings, self.margin = settings, margin
        self.squares = {}

    def segment(self, start, angle, height=None, width=None):
        """Values and mask of a segment on a plane of the picture's size, from 0 to 1, in single precision."""
        settings, scale = self.settings, self.settings.antialias
        height, width = height or settings.size, width or settings.size
        if angle not in self.squares:
            half = settings.segment_length + math.ceil(settings.thickness) + self.margin
            middle = (half * scale, half * scale)
            image = Image.new("F", (2 * half * scale + 1, 2 * half * scale + 1))
            end = move(middle, angle, settings.segment_length * scale)
            ImageDraw.Draw(image).line([middle, end[::-1]], fill=255, width=round(settings.thickness * scale))
            fine = np.array(image).astype(np.uint8)
            wide = ndimage.grey_dilation(fine, footprint=disc(self.margin * scale), mode="constant", cval=0)
            small = (2 * half + 1, 2 * half + 1)
            resized = [np.array(Image.fromarray(part).resize(small, Image.LANCZOS)) / 255 for part in (fine, wide)]
            self.squares[angle] = resized
        picture, mask = self.squares[angle]
        return paste(picture, start, height, width), paste(mask, start, height, width).astype(np.float32)

    def free(self, blocked, angle):
        reach = self.settings.segment_length + self.margin
        _, mask = self.segment((reach + 1, reach + 1), angle, 2 * reach + 1, 2 * reach + 1)
        kernel = mask == 1
        if not kernel.any():
            return np.zeros((0, 2), dtype=int)
        found = np.ceil(dilate(blocked, kernel) - 0.3)
        return np.argwhere(found == 0) if found.min() >= 0 else np.zeros((0, 2), dtype=int)

    def inside(self, *cells):
        return all(0 <= part < self.settings.size for cell in cells for part in cell)

    def seed(self, blocked, degrees, cells):
        """Tail, pivot and angle of a first segment; `degrees` and `cells` draw the numbers of a trial."""
        for trial in range(3):
            angle = (degrees(trial) - 180) * math.pi / 180
            free = self.free(blocked, angle)
            if not len(free):
                return None
            tail = tuple(int(part) for part in free[cells(trial, len(free))])
            found = self.seed_from(tail, angle)
            if found:
                return found
        return None

    def seed_from(self, tail, angle):
        length = self.settings.segment_length
        head = move(tail, angle, length)
        pivot = move(head, reverse(angle), length + self.margin)
        return (tail, pivot, angle) if self.inside(head, pivot) else None

    def extend(self, mask, pivot, angle, last_mask, draws):
        """The next pivot, angle, own mask, and the plane's mask with the segment before; None where there is none."""
        settings, margin = self.settings, self.margin
        pivot = move(pivot, angle, settings.segment_length + 2 * margin)
        radius = settings.segment_length + margin
        turns = np.arange(0, 360, 360 / (2 * np.pi * radius)) * np.pi / 180
        points = np.stack([pivot[0] + radius * np.sin(turns), pivot[1] + radius * np.cos(turns)], axis=1)
        points = points[((points >= 0) & (points < settings.size)).all(axis=1)]
        if not len(points):
            return None
        cells = np.unique(points.astype(int), axis=0)
        angles = np.arctan2(cells[:, 0] - pivot[0], cells[:, 1] - pivot[1])
        turn = np.abs(angles - angle)
        turn = np.minimum(np.minimum(turn, 2 * np.pi - turn) * settings.continuity, np.pi / 2)
        taken = dilate(mask, disc(margin))[cells[:, 0], cells[:, 1]]
        weights = np.maximum(np.cos(turn), 0) ** 2 * (1 - taken)
        if weights.sum() < 1e-4:
            return None
        bounds = np.cumsum(weights / weights.sum())
        for trial in range(3):
            chosen = int(np.argmax(bounds > draws(trial)))
            start = tuple(int(part) for part in cells[chosen])
            _, own = self.segment(start, reverse(float(angles[chosen])))
            if (mask + own).max() < 1.8:
                return start, pivot, float(angles[chosen]), own, np.maximum(mask, last_mask)
        return None

    def attempt(self, attempt_key):
        """Two contours as lists of (cell, drawn angle), and the mask they leave; None where they fail."""
        settings, size = self.settings, self.settings.size
        mask = np.ones((size, size))
        mask[settings.padding : -settings.padding, settings.padding : -settings.padding] = 0
        band = 2 * settings.seed_distance
        blocked = np.ones_like(mask)
        blocked[band:-band, band:-band] = mask[band:-band, band:-band]
        first_key, second_key = key(attempt_key, 0), key(attempt_key, 1)
        first = self.seed(
            blocked,
            lambda trial: int(below(first_key, 2 * trial, 360)[0]),
            lambda trial, number: int(below(first_key, 2 * trial + 1, number)[0]),
        )
        second = None
        for trial in range(3):
            if first is None:
                return None
            turn = int(below(second_key, 2 * trial + 1, 360)[0]) * math.pi / 180
            place = (math.sin(turn), math.cos(turn))
            tail = tuple(int(np.rint(a + settings.seed_distance * b)) for a, b in zip(first[0], place, strict=True))
            second = self.seed_from(tail, (int(below(second_key, 2 * trial, 360)[0]) - 180) * math.pi / 180)
            if second:
                break
        if second is None:
            return None
        return self.grow(mask, [first, second], attempt_key)

    def grow(self, mask, seeds, attempt_key):
        contours = [[(tail, angle)] for tail, _, angle in seeds]
        states = [(pivot, angle, self.segment(tail, angle)[1]) for tail, pivot, angle in seeds]
        for number in range(1, self.settings.contour_length):
            for contour in range(2):
                step = key(attempt_key, 2 * number + contour)
                grown = self.extend(mask, *states[contour], lambda trial, step=step: float(uniform(step, trial)[0]))
                if grown is None:
                    return None
                start, pivot, angle, own, mask = grown
                states[contour] = pivot, angle, own
                contours[contour].append((start, reverse(angle)))
        return contours, np.maximum(mask, states[1][2])

    def distractor(self, mask, try_key):
        free = np.ceil(mask - 0.3) == 0
        if free.mean() < 0.01:
            return None
        blocked = mask.copy()
        blocked[[0, -1]] = blocked[:, [0, -1]] = 1
        seed_key = key(try_key, 0)
        seed = self.seed(
            blocked,
            lambda trial: int(below(seed_key, 2 * trial, 360)[0]),
            lambda trial, number: int(below(key(seed_key, 2 * trial + 1), 0, number)[0]),
        )
        if seed is None:
            return None
        tail, pivot, angle = seed
        state, drawn = (pivot, angle, self.segment(tail, angle)[1]), [(tail, angle)]
        for number in range(1, self.settings.distractor_length):
            step = key(try_key, number)
            grown = self.extend(mask, *state, lambda trial, step=step: float(uniform(step, trial)[0]))
            if grown is None:
                return None
            start, *state, mask = grown
            drawn.append((start, reverse(state[1])))
        return drawn, np.maximum(mask, state[2])

    def marker(self, cell):
        settings = self.settings
        span = np.arange(settings.size * settings.antialias)
        y, x = (span - part * settings.antialias for part in cell)
        fine = np.where(y[:, None] ** 2 + x**2 <= (settings.marker_radius * settings.antialias) ** 2, 255, 0)
        small = Image.fromarray(fine.astype(np.uint8)).resize((settings.size, settings.size), Image.LANCZOS)
        return np.array(small) / 255

    def picture(self, picture_key, label, origin):
        """Picture, the two contours' and the short contours' first cells, and the number of attempts."""
        settings, attempts = self.settings, 0
        contour_key, distractor_key = key(picture_key, 3), key(picture_key, 4)
        while (found := self.attempt(key(contour_key, attempts))) is None:
            attempts += 1
        contours, mask = found
        plane = np.zeros((settings.size, settings.size))
        short = []
        for start, angle in [*contours[0], *contours[1]]:
            shade = self.segment(start, angle)[0] * settings.snake_contrast * settings.segment_contrast
            plane = np.maximum(plane, shade.astype(np.float32))
        for number in range(settings.num_distractors):
            for attempt in range(5):
                grown = self.distractor(mask, key(distractor_key, number, attempt))
                if grown:
                    drawn, mask = grown
                    short.append([start for start, _ in drawn])
                    for start, angle in drawn:
                        shade = self.segment(start, angle)[0] * settings.snake_contrast
                        plane = np.maximum(plane, shade.astype(np.float32))
                    break
        end = origin if label else 1 - origin
        for cell in (contours[origin][0][0], contours[end][-1][0]):
            plane = np.maximum(plane, self.marker(cell))
        stretched = np.floor((plane - plane.min()) * (255 / (plane.max() - plane.min())) + 0.5).astype(np.uint8)
        return stretched, [[cell for cell, _ in contour] for contour in contours], short, attempts + 1
