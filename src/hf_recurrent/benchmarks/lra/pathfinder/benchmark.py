r"""The Pathfinder task: generated images, and those of the authors with their splits.

Example number i of a generated split is drawn by random numbers of its own, made of the seed, the split, the settings
and i: neither the sizes of splits nor what is generated with it change it.

Of the authors' images, `pathfinder<size>/<difficulty>/` has `metadata/<batch>.npy`, which list the images of a batch
with their labels, and `imgs/<batch>/sample_<number>.png`. In the release the lists are plain text whatever their name
is; the generator that is public writes arrays of strings. Both are read.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from random import Random
from typing import Any, NamedTuple

import numpy as np

from ...benchmark import Plan
from ...files import read_picture
from ...pixels import format_pixels
from ...sampling import Shard, digest
from ..common import (
    BLACK_PIXELS,
    DIFFICULTIES,
    PATHFINDER_FILES,
    PIXELS,
    PIXELS_MEANING,
    WINDOWS,
    PixelTask,
    find,
    task_info,
)
from .contours import check_possible
from .generate import generate
from .random_bits import subkeys
from .settings import Settings, make_settings

# few enough for several processes to share a small split, and enough to grow contours in lockstep
EXAMPLES_PER_SHARD = 250


def plan_images(settings: Sequence[Settings], sizes: Mapping[str, int], seed: int) -> Plan:
    """The shards of splits of generated images, by the sizes of the splits; settings take turns within each split.

    Raises ValueError where contours of such a length do not fit into the images.
    """
    # reported before many examples are begun
    for each in settings:
        check_possible(each)
    return {
        split: [
            Shard(generated_examples, (tuple(settings), seed, split, start, min(start + EXAMPLES_PER_SHARD, size)))
            for start in range(0, size, EXAMPLES_PER_SHARD)
        ]
        for split, size in sizes.items()
    }


def example_keys(settings: Settings, seed: int, split: str, start: int, stop: int) -> np.ndarray:
    """The keys of the random numbers of examples `start` to below `stop` of a split, uint64."""
    name = digest("pathfinder", asdict(settings), seed, split)
    return subkeys(np.uint64(int(name[:16], 16)), np.arange(start, stop))


def generated_examples(
    settings: Sequence[Settings], seed: int, split: str, start: int, stop: int
) -> Iterator[dict[str, object]]:
    """Examples `start` to below `stop` of a split: settings number i mod n, of n, make example i."""
    # of the examples before one, how many are of the same settings: its number among them
    before = [[len(range(place, end, len(settings))) for end in (start, stop)] for place in range(len(settings))]
    turns = [
        _examples(each, example_keys(each, seed, split, first, last))
        for each, (first, last) in zip(settings, before, strict=True)
    ]
    for number in range(start, stop):
        yield next(turns[number % len(settings)])


def _examples(settings: Settings, keys: np.ndarray) -> Iterator[dict[str, object]]:
    """The examples of images of the same settings, by their keys."""
    pictures = generate(settings, keys)
    columns = zip(pictures.images, pictures.labels, pictures.placed, pictures.distances, strict=True)
    for image, label, placed, distance in columns:
        yield {
            "pixels": format_pixels(image),
            "label": int(label),
            "contour_length": settings.contour_length,
            "distractor_length": settings.distractor_length,
            "num_distractors": settings.num_distractors,
            "num_placed": int(placed),
            "marker_distance": round(float(distance)),
        }


IMAGES_PER_SHARD = 1000
# has no content in the release; published code leaves it out
BLACKLIST = frozenset({("pathfinder32", "curv_baseline", "imgs/0/sample_172.png")})

_ARRAY_MAGIC = b"\x93NUMPY"
# folder, name, number in the batch, label, continuity, segments of long contours, and of short ones; more follow
_FIELDS = 7
_SEED = 42
_SHOWN = 10


class Image(NamedTuple):
    """A line of the metadata; `place` is its path below the folder of the difficulty."""

    place: str
    label: int
    contour_length: int
    distractor_length: int


def _dynamic_halt(number: int) -> dict[str, Sequence[int]]:
    """As the code of the dynamic halt paper: a shuffled list, from which test and validation are cut first."""
    order = list(range(number))
    # the paper's code shuffles with Python's own generator
    Random(_SEED).shuffle(order)
    held_out = math.ceil(0.1 * number)
    return {
        "train": order[2 * held_out :],
        "validation": order[held_out : 2 * held_out],
        "test": order[:held_out],
    }


def _s4(number: int) -> dict[str, Sequence[int]]:
    """As the code of S4: a permutation of torch, from which train is cut first."""
    import torch

    order = torch.randperm(number, generator=torch.Generator().manual_seed(_SEED)).tolist()
    held_out = int(0.1 * number)
    return {
        "train": order[: number - 2 * held_out],
        "validation": order[number - 2 * held_out : number - held_out],
        "test": order[number - held_out :],
    }


SPLIT_RULES: Mapping[str, Callable[[int], dict[str, Sequence[int]]]] = {"dynamic_halt": _dynamic_halt, "s4": _s4}


def file_examples(folder: str, size: int, images: Sequence[Image]) -> Iterator[dict[str, object]]:
    """The examples of images.

    Raises:
        ValueError: an image cannot be read, or has another size than the config.
    """
    for image in images:
        path = Path(folder, image.place)
        yield {
            "pixels": format_pixels(read_picture(path, str(path), (size, size), "L")),
            "label": image.label,
            "contour_length": image.contour_length,
            "distractor_length": image.distractor_length,
            # the files do not have these
            "num_distractors": -1,
            "num_placed": -1,
            "marker_distance": -1,
        }


def _read_metadata(path: Path) -> Iterator[Image]:
    for number, fields in enumerate(_lines(path), start=1):
        if not fields:
            continue
        try:
            folder, name, _, label, _, contour_length, distractor_length = fields[:_FIELDS]
            place = str(PurePosixPath(folder, name))
            image = Image(place, int(label), int(float(contour_length)), int(float(distractor_length)))
        except (ValueError, OverflowError) as error:
            raise ValueError(
                f"{path}:{number}: expected folder, file, number, label, continuity, and lengths of contours, got "
                f"{' '.join(fields)!r:.120}"
            ) from error
        if image.label not in (0, 1):
            raise ValueError(f"{path}:{number}: the label is {image.label}; expected 0 or 1")
        yield image


def _lines(path: Path) -> list[list[str]]:
    """The fields of each line, whichever of both forms the file has."""
    content = path.read_bytes()
    try:
        if not content.startswith(_ARRAY_MAGIC):
            return [line.split() for line in content.decode("utf-8").split("\n")]
        # a map of the file, which holds as much as its header claims or is refused
        table = np.load(path, mmap_mode="r", allow_pickle=False)
        if table.ndim != 2 or table.dtype.kind not in "US":
            raise ValueError(f"an array of {table.dtype} with shape {table.shape}")
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(
            f"{path}: expected lines of text or a table of strings without Python objects: {error}"
        ) from error
    return table.astype(str).tolist()


def _check_images(folder: Path, images: list[Image]) -> None:
    """Raises ValueError where images are missing or empty, with the first of them and how many there are."""
    sizes: dict[str, int] = {}
    for batch in sorted({str(PurePosixPath(image.place).parent) for image in images}):
        if (folder / batch).is_dir():
            with os.scandir(folder / batch) as entries:
                sizes.update({str(PurePosixPath(batch, entry.name)): entry.stat().st_size for entry in entries})
    missing = [image.place for image in images if image.place not in sizes]
    empty = [image.place for image in images if sizes.get(image.place) == 0]
    faults = [
        f"{len(places)} of {len(images)} images {what}: {', '.join(places[:_SHOWN])}{', ...' * (len(places) > _SHOWN)}"
        for what, places in (("are missing", missing), ("are empty", empty))
        if places
    ]
    if faults:
        raise ValueError(f"{folder}: {'; '.join(faults)}")


class Pathfinder(PixelTask):
    """Whether two discs are on the same dashed contour, by the side of the images (Linsley et al., 2018)."""

    file_parameters = tuple(PATHFINDER_FILES)

    def __init__(self, config: str):
        side = WINDOWS[config]
        self.file_configs = (config,)
        self.file_names = f"{config}/<difficulty>/imgs and metadata"
        self.info = task_info(
            "pathfinder",
            title=f"Long Range Arena: Pathfinder-{side}{' (Path-X)' if side == 128 else ''}",
            description=f"Drawings of {side} x {side} grey pixels, read one after the other: two long dashed contours, "
            "short ones that distract, and two discs; the label is whether one contour joins the discs.",
            label_names=("separate", "connected"),
            text_columns=("pixels",),
            slice_columns=("contour_length", "distractor_length", "num_distractors", "num_placed", "marker_distance"),
            filter_column="marker_distance",
            column_meanings={
                "pixels": PIXELS_MEANING,
                "contour_length": "segments of each of the two long contours",
                "distractor_length": "segments of each short contour",
                "num_distractors": "short contours that were to be placed; -1 in the authors' files, which do not "
                "have it",
                "num_placed": "short contours for which there was space; -1 in the authors' files",
                "marker_distance": "pixels between the centres of the discs, rounded; -1 in the authors' files",
            },
            vocabulary=PIXELS,
            modality="pixels",
            packages=("pillow",),
            limits=(
                "The images are not those of the release. Their statistics are compared with those of the reference "
                "generator, not with the release.",
                "In about 7% of the drawings of 32 x 32 pixels with contours of 14 segments, the contours meet so that "
                "both answers agree with the rules; the label is the generator's.",
                "Fewer short contours are placed than asked for, where there is no space for more.",
                "Of the authors' files, the cache knows the metadata: an image that is replaced under its name is not "
                "read again (give another cache_dir).",
                "Pillow draws and shrinks the segments: another version of it may shade pixels otherwise, most of all "
                "from 64 pixels on, where lines are wider than one.",
                BLACK_PIXELS,
            ),
        )

    def complete(self, config_name: str, params: dict[str, Any]) -> dict[str, Any]:
        """Checks that parameters of files are left alone where images are generated."""
        if params["num_validation"] is None:
            raise ValueError(f"num_validation=None: config {config_name!r} needs a number")
        for name, value in PATHFINDER_FILES.items():
            if params[name] != value:
                raise ValueError(
                    f"{name}={params[name]!r} chooses among the images in data_dir: give data_dir, or for generated "
                    "images contour_length"
                )
        return params

    def plan(self, config_name: str, params: Mapping[str, Any]) -> Plan:
        """The shards of every split. Raises ValueError where there can be no such images."""
        names = ("contour_length", "distractor_length", "num_distractors", "continuity")
        settings = make_settings(WINDOWS[config_name], **{name: params[name] for name in names})
        sizes = {split: params[f"num_{split}"] for split in self.split_names(config_name, params)}
        return plan_images([settings], sizes, params["seed"])

    def plan_files(self, config_name: str, params: Mapping[str, Any], folder: Path) -> Plan:
        """The shards of every split that has images, in the release, its folder `pathfinder<size>`, or the folder of
        the difficulty.

        The paths of shards are those of the metadata: images are too many to be read for the key of a cache. Where they
        are replaced by others of the same names, change the metadata, or use another cache.

        Raises:
            ValueError: folders or images are missing, images are empty, or metadata cannot be read.
        """
        difficulty = params["difficulty"]
        found = find(folder, (f"{config_name}/{difficulty}", difficulty), ("imgs", "metadata"))
        if found.name in DIFFICULTIES and found.name != difficulty:
            raise ValueError(
                f"difficulty={difficulty!r}: data_dir={str(folder)!r} has the images of {found.name!r}; give that "
                "difficulty or another folder"
            )
        # in the order that published code reads them in: by number
        numbered = [path for path in (found / "metadata").glob("*.npy") if path.stem.isascii()]
        metadata = sorted(
            (path for path in numbered if path.stem.isdecimal()), key=lambda path: (int(path.stem), path.stem)
        )
        if not metadata:
            raise ValueError(f"{found / 'metadata'}: there is no <number>.npy, which lists the images of a batch")
        listed = [image for path in metadata for image in _read_metadata(path)]
        images = [image for image in listed if (config_name, difficulty, image.place) not in BLACKLIST]
        _check_images(found, images)
        orders, paths = SPLIT_RULES[params["split_rule"]](len(images)), tuple(map(str, metadata))
        planned = {
            split: [
                Shard(
                    file_examples,
                    (
                        str(found),
                        WINDOWS[config_name],
                        [images[place] for place in order[start : start + IMAGES_PER_SHARD]],
                    ),
                    paths,
                )
                for start in range(0, len(order), IMAGES_PER_SHARD)
            ]
            for split, order in orders.items()
        }
        return {split: shards for split, shards in planned.items() if shards}
