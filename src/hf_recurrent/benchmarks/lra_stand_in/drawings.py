"""Pathfinder drawings of 16 x 16 pixels: the generator of the arena's, in a window that no release has."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..lra.pathfinder.settings import Settings
from ..lra.pathfinder.splits import plan_pictures, rows, split_names
from ..sampling import Shard

__all__ = ["plan", "rows", "split_names"]

# as the arena's smallest, but for what would not fit
_SMALL = Settings(
    size=16,
    seed_distance=3,
    marker_radius=1.0,
    thickness=0.5,
    margins=(1,),
    num_distractors=0,
    continuity=1.0,
    snake_contrast=2.0,
    segment_contrast=0.75,
    segment_length=2,
    contour_length=3,
    distractor_length=1,
)


def plan(config_name: str, params: Mapping[str, Any]) -> dict[str, list[Shard]]:
    """The shards of every split that has rows.

    Raises:
        ValueError: no split has rows, or contours of such a length do not fit into the images.
    """
    names = ("contour_length", "distractor_length", "num_distractors")
    settings = replace(_SMALL, **{name: params[name] for name in names})
    return plan_pictures(settings, split_names(config_name, params), params)
