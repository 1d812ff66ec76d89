"""From the parameters of a config to the generated rows of every split.

Row number i of a split is drawn by random numbers of its own, made of the seed, the split, the settings and i: neither
the sizes of splits nor what is generated with it change it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from ...pixels import spell
from ...sampling import Shard, digest, split_names
from ..configs import WINDOWS
from .contours import check_possible
from .generate import generate
from .random_bits import subkeys
from .settings import Settings, make_settings

# few enough that several processes share a small split, and enough to grow contours in lockstep
ROWS_PER_SHARD = 250


class Run(NamedTuple):
    """Rows `start` to below `stop` of a split."""

    settings: Settings
    seed: int
    split: str
    start: int
    stop: int

    def keys(self) -> np.ndarray:
        """The random numbers of each row."""
        name = digest("pathfinder", asdict(self.settings), self.seed, self.split)
        return subkeys(np.uint64(int(name[:16], 16)), np.arange(self.start, self.stop))


def settings_of(config_name: str, params: Mapping[str, Any]) -> Settings:
    """The settings that parameters ask for.

    Raises:
        ValueError: there can be no such images.
    """
    names = ("contour_length", "distractor_length", "num_distractors", "continuity")
    return make_settings(WINDOWS[config_name], **{name: params[name] for name in names})


def plan(config_name: str, params: Mapping[str, Any]) -> dict[str, list[Shard]]:
    """The shards of every split that has rows.

    Raises:
        ValueError: no split has rows, or contours of such a length do not fit into the images.
    """
    return plan_pictures(settings_of(config_name, params), split_names(config_name, params), params)


def plan_pictures(settings: Settings, splits: Iterable[str], params: Mapping[str, Any]) -> dict[str, list[Shard]]:
    """The shards of some splits of pictures with the same settings; `params` has the seed and their sizes."""
    # said before many rows are begun
    check_possible(settings)
    planned = {}
    for split in splits:
        size = params[f"num_{split}"]
        runs = (
            Run(settings, params["seed"], split, start, min(start + ROWS_PER_SHARD, size))
            for start in range(0, size, ROWS_PER_SHARD)
        )
        planned[split] = [Shard(number, "generated", run) for number, run in enumerate(runs)]
    return planned


def rows(shard: Shard) -> Iterator[dict[str, object]]:
    """The rows of a planned shard."""
    run = shard.payload
    settings, pictures = run.settings, generate(run.settings, run.keys())
    columns = zip(pictures.images, pictures.labels, pictures.placed, pictures.distances, strict=True)
    for image, label, placed, distance in columns:
        yield {
            "pixels": spell(image),
            "label": int(label),
            "contour_length": settings.contour_length,
            "distractor_length": settings.distractor_length,
            "num_distractors": settings.num_distractors,
            "num_placed": int(placed),
            "marker_distance": round(float(distance)),
        }
