"""The lockstep generator against one that makes a picture at a time, and what its results do not depend on."""

from dataclasses import fields, replace

import numpy as np
import pytest

from hf_recurrent.benchmarks.lra.pathfinder import contours
from hf_recurrent.benchmarks.lra.pathfinder.generate import Pictures, generate
from hf_recurrent.benchmarks.lra.pathfinder.random_bits import below, subkeys
from hf_recurrent.benchmarks.lra.pathfinder.settings import SETTINGS, make_settings
from reference.pathfinder_naive import Naive

KEYS = subkeys(np.uint64(99), np.arange(40))
# which random number says what contour the first marker is on
ORIGIN = 2


def cells(segments):
    """As lists of cells, without those that are missing."""
    return [[tuple(cell) for cell in contour[:, :2].tolist()] for contour in segments if contour[0, 2] >= 0]


# wide windows, where attempts are slow for the naive one, with short contours: rasters, margins and borders differ
@pytest.mark.slow
@pytest.mark.parametrize(("size", "length", "number"), [(32, 6, 4), (32, 14, 1), (64, 4, 1), (128, 3, 2), (256, 2, 1)])
def test_pictures_are_those_of_the_naive_generator(size, length, number):
    # short contours as long as those of the published pictures: they have to grow too
    settings = replace(make_settings(size, length), distractor_length=3, num_distractors=4)
    pictures = generate(settings, KEYS[:number])
    for row in range(number):
        naive = Naive(settings, int(pictures.margins[row]))
        origin = int(below(KEYS[row : row + 1], ORIGIN, 2)[0])
        image, pair, short, attempts = naive.picture(KEYS[row], pictures.labels[row], origin)
        assert cells(pictures.contours[row]) == pair
        assert cells(pictures.distractors[row]) == short
        assert pictures.attempts[row] == attempts
        assert pictures.placed[row] == len(short)
        np.testing.assert_array_equal(pictures.images[row], image)
    # beside the longest contours there may be no room
    assert length == 14 or pictures.placed.sum() > 0


@pytest.mark.parametrize("size", [32, 128])
def test_a_picture_does_not_depend_on_those_made_with_it(size, monkeypatch):
    settings = make_settings(size, 5, num_distractors=2)
    keys = KEYS[:10]
    whole = generate(settings, keys)
    assert len(np.unique(whole.images, axis=0)) == len(keys)
    order = np.arange(len(keys))[::-1]
    shuffled = generate(settings, keys[order])
    # few planes at a time, so that batches are cut otherwise
    monkeypatch.setattr(contours, "_LANES", 32)
    parts = [generate(settings, keys[:1]), generate(settings, keys[1:])]
    for field in fields(Pictures):
        expected = getattr(whole, field.name)
        np.testing.assert_array_equal(getattr(shuffled, field.name)[order], expected)
        np.testing.assert_array_equal(np.concatenate([getattr(part, field.name) for part in parts]), expected)
    # as both margins must be in the comparison
    assert set(whole.margins.tolist()) == set(settings.margins)


def test_markers_are_at_contours_as_the_label_says():
    pictures = generate(make_settings(32, 6), KEYS)
    for row, (origin, other) in enumerate(pictures.markers.tolist()):
        begins = [pictures.contours[row, contour, 0, :2].tolist() for contour in range(2)]
        ends = [pictures.contours[row, contour, -1, :2].tolist() for contour in range(2)]
        where = begins.index(origin)
        assert other == ends[where if pictures.labels[row] else 1 - where]
    assert 0 < pictures.labels.sum() < len(KEYS)
    assert pictures.distances[0] == pytest.approx(np.linalg.norm(pictures.markers[0, 0] - pictures.markers[0, 1]))


def test_published_settings():
    """The descriptions of the data sets in the Long Range Arena's code."""
    assert [settings.distractor_length for settings in SETTINGS.values()] == [4, 4, 4, 4]
    assert [settings.num_distractors for settings in SETTINGS.values()] == [5, 5, 8, 7]
    assert [settings.margins for settings in SETTINGS.values()] == [(1,), (1,), (2, 3), (3,)]
    assert [settings.seed_distance for settings in SETTINGS.values()] == [7, 12, 20, 27]
    assert [settings.target_contrast for settings in SETTINGS.values()] == [1.5, 0.8, 0.9, 1.0]
    assert all(make_settings(size) == settings for size, settings in SETTINGS.items())
    baseline = make_settings(32, 6)
    assert (baseline.distractor_length, baseline.num_distractors) == (2, 10)
    assert (make_settings(32, 9).distractor_length, make_settings(32, 9).num_distractors) == (3, 6)
    given = make_settings(64, 5, 2, 3, 0.5)
    assert (given.distractor_length, given.num_distractors, given.continuity) == (2, 3, 0.5)


def test_lengths_of_one_and_no_short_contours():
    pictures = generate(make_settings(32, 2, 1, 2), KEYS[:6])
    assert pictures.contours.shape == (6, 2, 2, 3)
    assert pictures.placed.max() > 0
    none = generate(make_settings(32, 2, 1, 0), KEYS[:2])
    assert none.distractors.shape == (2, 0, 1, 3)
    assert none.placed.tolist() == none.tries.tolist() == [0, 0]


def test_settings_that_cannot_be():
    with pytest.raises(ValueError, match=r"contour_length=200: .* do not fit into 32 x 32"):
        make_settings(32, 200)


def test_contours_that_never_fit_end_in_an_error(monkeypatch):
    monkeypatch.setattr(contours, "PROBE", 2000)
    with pytest.raises(ValueError, match=r"contour_length=40: two such contours were not found in 2000 attempts"):
        generate(make_settings(32, 40), KEYS[:1])
