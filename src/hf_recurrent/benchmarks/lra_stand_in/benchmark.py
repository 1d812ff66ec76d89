"""Toy data sets that are at hand offline, in place of the tasks of Long Range Arena: a benchmark for each of them."""

from dataclasses import replace
from types import MappingProxyType

from .images import Digits, Drawings
from .passages import Passages
from .reviews import ToyReviews


class LongRangeArenaStandIn(Digits):
    """Data for trials of models that are meant for Long Range Arena."""

    info = replace(
        Digits.info,
        description="Data that is at hand offline, most of it real, for trials of models that are meant for Long Range "
        "Arena. Nothing measured on it is a number of that benchmark.",
    )
    members = MappingProxyType(
        {"digits": Digits(), "pathfinder16": Drawings(), "reviews": ToyReviews(), "passages": Passages()}
    )
