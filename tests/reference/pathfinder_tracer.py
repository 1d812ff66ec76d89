"""Finds the label of a Pathfinder picture by following its strokes from one marker, with nothing but the picture.

It is given the grey values and where the two markers are, in any order. At each place where a contour may go on, it
looks which strokes are possible, being nowhere brighter than the picture, and how many of their bright cells have other
shades in the picture: those that something else covers. Strokes under markers are hidden for the most part: there, many
are possible.

A few pictures have both answers: the two long contours begin near each other, and the rules allow them to meet on the
same pivot, from where each may be the continuation of either.
"""

import math

import numpy as np

from reference.pathfinder_naive import Naive, move, reverse

# only cells of at least this grey value are counted, and no contour with more of them covered is looked for
BRIGHT, MOST = 32, 48
OUTSIDE = 255


def stretched(values, peak):
    return np.floor(values * (255 / peak) + 0.5).astype(np.int16)


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
        size = strokes.shape[1:]
        views = (np.lib.stride_tricks.sliding_window_view(plane, size) for plane in (self.picture, self.discs))
        picture, discs = (view[cells[:, 0], cells[:, 1]] for view in views)
        bright = (strokes >= BRIGHT) & (strokes > discs)
        covered = (bright & (strokes != picture)).sum(axis=(1, 2))
        return np.where((strokes <= picture).all(axis=(1, 2)), covered, MOST + 1)

    def ends(self, start):
        """The cells that contours of the full length can lead to from a cell, and how many of its cells are covered."""
        settings, margin = self.settings, self.margin
        covered = self._covered(self.shown_firsts, np.tile(start, (len(self.degrees), 1)))
        now = {}
        for number in np.flatnonzero(covered <= MOST):
            angle = self.degrees[number]
            head = move(start, angle, settings.segment_length)
            now[move(head, reverse(angle), settings.segment_length + margin), angle, start] = int(covered[number])
        for _ in range(settings.contour_length - 1):
            now = self._grown(now) if now else now
        found = {}
        for (_, _, cell), covered in now.items():
            found[cell] = min(covered, found.get(cell, MOST))
        return found

    def _grown(self, states):
        settings, grown = self.settings, {}
        pivots = np.array([move(*state[:2], settings.segment_length + 2 * self.margin) for state in states])
        turns = np.abs(np.array(self.angles) - np.array([angle for _, angle, _ in states])[:, None])
        turns = np.minimum(turns, 2 * np.pi - turns)
        cells = pivots[:, None] + self.offsets
        near = ((cells >= 0) & (cells < settings.size)).all(axis=2)
        which, numbers = np.nonzero(near & (settings.continuity * turns < np.pi / 2))
        cells = cells[which, numbers]
        covered = np.array(list(states.values()))[which] + self._covered(self.shown_nexts[numbers], cells)
        for place in np.flatnonzero(covered <= MOST):
            state = (
                tuple(pivots[which[place]].tolist()),
                self.angles[numbers[place]],
                tuple(cells[place].tolist()),
            )
            grown[state] = min(int(covered[place]), grown.get(state, MOST))
        return grown

    def labels(self, picture, markers):
        """The labels that a picture can have, and how many cells of the contour are covered: {label: cells}.

        1 where a contour leads from one marker to the other, 0 where it leads elsewhere.
        """
        reach = self.firsts.shape[1] // 2
        markers = [tuple(int(part) for part in marker) for marker in markers]
        discs = np.maximum(*(self.naive.marker(marker) for marker in markers))
        bright = discs >= 0.5
        peak = max(self.peaks, key=lambda peak: (stretched(discs, peak) == picture)[bright].sum())
        self.picture = np.pad(picture, reach, constant_values=OUTSIDE).astype(np.int16)
        self.discs = np.pad(stretched(discs, peak), reach, constant_values=OUTSIDE)
        self.shown_firsts, self.shown_nexts = self._seen(self.firsts, peak), self._seen(self.nexts, peak)
        found = {}
        for marker, other in (markers, markers[::-1]):
            for cell, covered in self.ends(marker).items():
                label = int(cell == other)
                found[label] = min(covered, found.get(label, MOST))
        return found
