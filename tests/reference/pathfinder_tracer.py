"""Finds the label of a Pathfinder picture by following its strokes from one marker, with nothing but the picture.

It is given the grey values and where the two markers are, in any order. At each place where a contour may go on, it
looks which strokes are possible, being nowhere brighter than the picture, and how many of their bright cells the picture
has in other shades: those that something else covers. Of all contours from both markers, the one with the fewest such
cells is taken to be there. Strokes under markers are hidden for the most part: there, many are possible.
"""

import math

import numpy as np
from reference.pathfinder_naive import Naive, move, reverse

# only cells of at least this grey value are counted, and no contour with more of them covered is looked for
BRIGHT, MOST = 32, 16
OUTSIDE = 255


def stretched(values, peak):
    return np.floor(values * (255 / peak) + 0.5)


class Tracer:
    """Traces the pictures of some settings, of one margin."""

    def __init__(self, settings, margin):
        self.settings, self.margin, self.naive = settings, margin, Naive(settings, margin)
        radius = settings.segment_length + margin
        steps = np.arange(0, 360, 360 / (2 * np.pi * radius)) * np.pi / 180
        points = np.stack([np.floor(radius * np.sin(steps)), np.floor(radius * np.cos(steps))], axis=1)
        self.offsets = np.unique(points.astype(int), axis=0)
        self.angles = [math.atan2(y, x) for y, x in self.offsets]
        self.degrees = [degree * math.pi / 180 for degree in range(-180, 180)]
        self.firsts = np.stack([self._square(angle) for angle in self.degrees])
        self.nexts = np.stack([self._square(reverse(angle)) for angle in self.angles])
        brightest = np.concatenate([self.firsts, self.nexts]).max(axis=(1, 2)) * settings.snake_contrast
        self.peaks = sorted({1.0, *brightest[brightest > 1].astype(np.float32).astype(float).tolist()})

    def _square(self, angle):
        self.naive.segment((0, 0), angle)
        return self.naive.squares[angle][0]

    def _seen(self, squares, peak):
        """Strokes of a long contour as they are in a picture that was stretched."""
        shade = squares * self.settings.snake_contrast * self.settings.segment_contrast
        return stretched(shade.astype(np.float32).astype(float), peak)

    def _covered(self, strokes, cells):
        """How many bright cells of each stroke are under something; more than `MOST` where it is not possible."""
        reach = strokes.shape[1] // 2
        span = np.arange(2 * reach + 1)
        rows, columns = (cells[:, axis, None] + span for axis in (0, 1))
        picture, discs = (plane[rows[:, :, None], columns[:, None, :]] for plane in (self.picture, self.discs))
        bright = (strokes >= BRIGHT) & (strokes > discs)
        covered = (bright & (strokes != picture)).sum(axis=(1, 2))
        return np.where((strokes <= picture).all(axis=(1, 2)), covered, MOST + 1)

    def ends(self, start):
        """The cells that contours of the full length can lead to from a cell, and how much of these is covered."""
        settings, margin = self.settings, self.margin
        covered = self._covered(self.shown_firsts, np.tile(start, (len(self.degrees), 1)))
        now = {}
        for number in np.flatnonzero(covered <= MOST):
            angle = self.degrees[number]
            head = move(start, angle, settings.segment_length)
            state = move(head, reverse(angle), settings.segment_length + margin), angle, start
            now[state] = int(covered[number])
        for _ in range(settings.contour_length - 1):
            grown = {}
            for (pivot, angle, _), before in now.items():
                pivot = move(pivot, angle, settings.segment_length + 2 * margin)
                cells = pivot + self.offsets
                turns = np.abs(np.array(self.angles) - angle)
                turns = np.minimum(turns, 2 * np.pi - turns)
                near = ((cells >= 0) & (cells < settings.size)).all(axis=1)
                where = np.flatnonzero(near & (settings.continuity * turns < np.pi / 2))
                covered = before + self._covered(self.shown_nexts[where], cells[where])
                for place in np.flatnonzero(covered <= MOST):
                    state = pivot, self.angles[where[place]], tuple(cells[where[place]].tolist())
                    grown[state] = min(int(covered[place]), grown.get(state, MOST))
            now = grown
        found = {}
        for (_, _, cell), covered in now.items():
            found[cell] = min(covered, found.get(cell, MOST))
        return found

    def label(self, picture, markers):
        """1 if the contour that is covered least leads from one marker to the other, 0 if it leads elsewhere.

        Raises:
            ValueError: no contour begins at a marker.
        """
        reach = self.firsts.shape[1] // 2
        markers = [tuple(int(part) for part in marker) for marker in markers]
        discs = np.maximum(*(self.naive.marker(marker) for marker in markers))
        bright = discs >= 0.5
        peak = max(self.peaks, key=lambda peak: (stretched(discs, peak) == picture)[bright].sum())
        self.picture = np.pad(picture, reach, constant_values=OUTSIDE).astype(int)
        self.discs = np.pad(stretched(discs, peak), reach, constant_values=OUTSIDE)
        self.shown_firsts, self.shown_nexts = self._seen(self.firsts, peak), self._seen(self.nexts, peak)
        found = [
            (covered, cell != other)
            for marker, other in (markers, markers[::-1])
            for cell, covered in self.ends(marker).items()
        ]
        if not found:
            raise ValueError("no contour begins at a marker")
        _, elsewhere = min(found)
        return int(not elsewhere)
