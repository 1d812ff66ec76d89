"""The authors' Pathfinder images, and how they are divided into splits.

`pathfinder<size>/<difficulty>/` has `metadata/<batch>.npy`, which list the images of a batch with their labels, and
`imgs/<batch>/sample_<number>.png`. In the release the lists are plain text whatever their name says; the generator that
is public writes arrays of strings. Both are read.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from random import Random
from typing import Any, NamedTuple

import numpy as np

from ...pixels import spell
from ...sampling import Shard
from ..configs import DIFFICULTIES, WINDOWS
from ..release import find

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


class Images(NamedTuple):
    """Images of a split, and all metadata files of the folder."""

    folder: str
    size: int
    images: tuple[Image, ...]
    metadata: tuple[str, ...]


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


def plan(config_name: str, params: Mapping[str, Any], data_dir: Path) -> dict[str, list[Shard]]:
    """The shards of every split that has images.

    `data_dir` is the release, its folder `pathfinder<size>`, or the folder of the difficulty.

    Raises:
        ValueError: folders or images are missing, images are empty, or metadata cannot be read.
    """
    difficulty = params["difficulty"]
    folder = find(data_dir, (f"{config_name}/{difficulty}", difficulty), ("imgs", "metadata"))
    if folder.name in DIFFICULTIES and folder.name != difficulty:
        raise ValueError(
            f"difficulty={difficulty!r}: data_dir={str(data_dir)!r} has the images of {folder.name!r}; give that "
            "difficulty or another folder"
        )
    metadata = _metadata_files(folder)
    listed = [image for path in metadata for image in _read_metadata(path)]
    images = [image for image in listed if (config_name, difficulty, image.place) not in BLACKLIST]
    _check_images(folder, images)
    planned = {}
    for split, order in SPLIT_RULES[params["split_rule"]](len(images)).items():
        parts = (order[start : start + IMAGES_PER_SHARD] for start in range(0, len(order), IMAGES_PER_SHARD))
        planned[split] = [
            Shard(number, "file", _part(config_name, folder, [images[place] for place in part], metadata))
            for number, part in enumerate(parts)
        ]
    return {split: shards for split, shards in planned.items() if shards}


def _part(config_name: str, folder: Path, images: list[Image], metadata: list[Path]) -> Images:
    return Images(str(folder), WINDOWS[config_name], tuple(images), tuple(map(str, metadata)))


def paths(shard: Shard) -> tuple[str, ...]:
    """The files that say which images there are, and their labels.

    The images themselves are too many to be read for a cache's key: change the metadata, or use another cache, where
    they are replaced by others of the same names.
    """
    return shard.payload.metadata


def rows(shard: Shard) -> Iterator[dict[str, object]]:
    """The rows of a planned shard.

    Raises:
        ValueError: an image cannot be read, or has another size than the config says.
    """
    part = shard.payload
    for image in part.images:
        yield {
            "pixels": spell(_read_image(Path(part.folder, image.place), part.size)),
            "label": image.label,
            "contour_length": image.contour_length,
            "distractor_length": image.distractor_length,
            # the files do not say
            "num_distractors": -1,
            "num_placed": -1,
            "marker_distance": -1,
        }


def _metadata_files(folder: Path) -> list[Path]:
    """In the order that published code reads them in: by number."""
    found = [path for path in (folder / "metadata").glob("*.npy") if path.stem.isascii() and path.stem.isdecimal()]
    if not found:
        raise ValueError(f"{folder / 'metadata'}: there is no <number>.npy, which lists the images of a batch")
    return sorted(found, key=lambda path: (int(path.stem), path.stem))


def _read_metadata(path: Path) -> Iterator[Image]:
    for number, fields in enumerate(_lines(path), start=1):
        if not fields:
            continue
        try:
            folder, name, _, label, _, contour_length, distractor_length = fields[:_FIELDS]
            place = PurePosixPath(folder, name)
            image = Image(str(place), int(label), int(float(contour_length)), int(float(distractor_length)))
        except (ValueError, OverflowError) as error:
            raise ValueError(
                f"{path}:{number}: expected folder, file, number, label, continuity, and lengths of contours, got "
                f"{' '.join(fields)!r:.120}"
            ) from error
        if image.label not in (0, 1):
            raise ValueError(f"{path}:{number}: the label is {image.label}; expected 0 or 1")
        if place.is_absolute() or ".." in place.parts:
            raise ValueError(f"{path}:{number}: {image.place!r} is not below the folder of the images")
        yield image


def _lines(path: Path) -> list[list[str]]:
    """The fields of each line, whichever of both forms the file has."""
    content = path.read_bytes()
    try:
        if not content.startswith(_ARRAY_MAGIC):
            return [line.split() for line in content.decode("utf-8").split("\n")]
        table = np.load(path, allow_pickle=False)
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


def _read_image(path: Path, size: int) -> np.ndarray:
    from PIL import Image as Pictures
    from PIL import UnidentifiedImageError

    try:
        with Pictures.open(path, formats=("PNG",)) as picture:
            found, mode, pixels = picture.size, picture.mode, np.asarray(picture)
    except (OSError, SyntaxError, UnidentifiedImageError, Pictures.DecompressionBombError) as error:
        raise ValueError(f"{path}: no PNG image that can be read ({error})") from error
    if found != (size, size):
        raise ValueError(f"{path}: the image has {found[0]} x {found[1]} pixels; expected {size} x {size}")
    if mode != "L":
        raise ValueError(f"{path}: the image is of kind {mode!r}; expected 8-bit grey ('L')")
    return pixels
