"""Generated Pathfinder pictures against those of the reference generator, and their labels against a tracer.

`tests/parity/long-range-arena` has statistics of the reference generator's pictures, and 600 of these.
"""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage, stats

from hf_recurrent.benchmarks.lra.pathfinder.generate import generate
from hf_recurrent.benchmarks.lra.pathfinder.random_bits import subkeys
from hf_recurrent.benchmarks.lra.pathfinder.settings import make_settings
from reference.pathfinder_tracer import Tracer

PARITY = Path(__file__).parents[1] / "parity" / "long-range-arena"
# sets of the reference: segments of a long contour, and pictures made here
SETS = {"curv_contour_length_14": (14, 400), "curv_baseline": (6, 300), "curv_contour_length_9": (9, 300)}
# standard errors
FAR = 4.0


@cache
def ours(name):
    length, number = SETS[name]
    return generate(make_settings(32, length), subkeys(np.uint64(length), np.arange(number)))


@cache
def reference(name):
    return json.loads((PARITY / "stats.json").read_text())[name]


@cache
def fixture():
    with np.load(PARITY / "pathfinder32.npz") as stored:
        return dict(stored)


def components(images, least):
    return np.array([ndimage.label(image >= least, np.ones((3, 3)))[1] for image in images])


def measured(pictures):
    """Of each picture, what the reference has the mean and the deviation of."""
    images, labels, distances = pictures.images, pictures.labels, pictures.distances
    return {
        "mean_intensity": images.mean(axis=(1, 2)),
        "frac_nonzero": (images > 0).mean(axis=(1, 2)),
        "frac_ge64": (images >= 64).mean(axis=(1, 2)),
        "frac_ge128": (images >= 128).mean(axis=(1, 2)),
        "components8_gt0": components(images, 1),
        "components8_ge64": components(images, 64),
        "marker_distance": distances,
        "pre_scale_max": pictures.peaks,
        "two_contour_attempts": pictures.attempts,
        "distractors_placed": pictures.placed,
        "distractor_attempts": pictures.tries,
        "mean_by_label": [images[labels == label].mean(axis=(1, 2)) for label in (0, 1)],
        "marker_distance_mean_by_label": [distances[labels == label] for label in (0, 1)],
    }


def deviations(pictures, expected):
    """How many standard errors each statistic is away."""
    found = {}
    for name, values in measured(pictures).items():
        if name.endswith("by_label"):
            spread = expected["mean_intensity" if name == "mean_by_label" else "marker_distance"]["sd"]
            for label, part in enumerate(values):
                error = spread * (1 / len(part) + 1 / expected["label_counts"][label]) ** 0.5
                found[f"{name} {label}"] = (part.mean() - expected[name][label]) / error
        else:
            error = (expected[name]["sd"] ** 2 * (1 / len(values) + 1 / expected["n"])) ** 0.5
            found[name] = (values.mean() - expected[name]["mean"]) / error
    return found


def unlikely(pictures, expected):
    """How likely the places of markers are, and the labels, if both have the same distribution."""
    found = {"label": stats.chi2_contingency([np.bincount(pictures.labels), expected["label_counts"]]).pvalue}
    for place, kind in enumerate(("origin", "terminal")):
        for axis, side in enumerate(("row", "col")):
            counts = np.histogram(pictures.markers[:, place, axis], 8, (0, 32))[0]
            both = np.array([counts, expected[f"{kind}_marker_{side}_hist8"]])
            found[f"{kind} {side}"] = stats.chi2_contingency(both[:, both.sum(axis=0) > 0]).pvalue
    return found


@pytest.mark.parametrize("name", SETS)
def test_statistics_are_those_of_the_reference(name):
    pictures, expected = ours(name), reference(name)
    away = deviations(pictures, expected)
    assert max(map(abs, away.values())) < FAR, away
    chances = unlikely(pictures, expected)
    assert min(chances.values()) > 1e-4, chances
    assert pictures.images.max(axis=(1, 2)).tolist() == [255] * len(pictures.images)
    # what a picture's brightest cell can be before it is stretched
    assert pictures.peaks.min() == 1.0
    assert pictures.peaks.max() == expected["pre_scale_max"]["max"]


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_labels_are_those_that_a_tracer_finds(name):
    """From the picture alone. Where two contours meet on a pivot, each can be the continuation of either."""
    pictures, tracer = ours(name), Tracer(make_settings(32, SETS[name][0]), 1)
    alone = 0
    for image, markers, label, pair in zip(
        pictures.images, pictures.markers, pictures.labels, pictures.contours, strict=True
    ):
        found = tracer.labels(image, markers)
        # the two last segments are not protected from each other: both contours may end on one cell
        same_end = (pair[0, -1, :2] == pair[1, -1, :2]).all()
        assert label in found or (same_end and 1 in found)
        alone += list(found) == [label]
    assert alone > 0.88 * len(pictures.labels)


def test_the_tracer_finds_the_labels_of_the_reference():
    """So that it, and the strokes it looks for, are not only right about pictures made here."""
    stored = fixture()
    chosen = np.flatnonzero(stored["setting"] == "curv_contour_length_14")[:100]
    tracer, alone = Tracer(make_settings(32, 14), 1), 0
    for number in chosen:
        found, label = tracer.labels(stored["images"][number], stored["markers_yx"][number]), stored["labels"][number]
        assert label in found
        alone += list(found) == [label]
    assert alone > 0.88 * len(chosen)
