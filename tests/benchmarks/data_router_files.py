"""Rows and statistics of the reference implementation of the Neural Data Router, and a comparison of counts."""

import csv
import json
import math
from collections import Counter
from pathlib import Path

FOLDER = Path(__file__).with_name("data") / "data_router"


def read(name):
    with open(FOLDER / f"{name}.tsv", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def statistics(name):
    return json.loads((FOLDER / "statistics.json").read_text())[name]


def deviation(found, expected):
    """How many standard deviations chi-square lies above its mean if both counts come from one distribution."""
    keys = sorted({*found, *expected}, key=lambda key: -found.get(key, 0) - expected.get(key, 0))
    cells = [(found.get(key, 0), expected.get(key, 0)) for key in keys]
    # rare values share a cell
    large = [cell for cell in cells if sum(cell) >= 20]
    small = [cell for cell in cells if sum(cell) < 20]
    if small:
        large.append(tuple(map(sum, zip(*small, strict=True))))
    totals = [sum(column) for column in zip(*large, strict=True)]
    whole = sum(totals)
    square = 0.0
    for cell in large:
        for count, total in zip(cell, totals, strict=True):
            mean = sum(cell) * total / whole
            square += (count - mean) ** 2 / mean
    freedom = len(large) - 1
    return (square - freedom) / math.sqrt(2 * freedom) if freedom else 0.0


def counts(values):
    return dict(Counter(map(str, values)))
