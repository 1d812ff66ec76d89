"""Handwritten digits: the 1,797 images of 8 x 8 pixels, with values from 0 to 16, that scikit-learn brings along."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..long_documents.documents import shares, split_of
from ..lra.rows import image_row
from ..sampling import Shard, make_shards

if TYPE_CHECKING:
    import numpy as np


def split_names(config_name: str, params: Mapping[str, Any]) -> list[str]:
    """The splits that have a share. Raises ValueError where validation and test are more than everything."""
    return list(shares(params))


def plan(config_name: str, params: Mapping[str, Any]) -> dict[str, list[Shard]]:
    """The shards of every split; a hash of its place says where an image goes.

    Raises:
        ValueError: scikit-learn is not installed, or a split with a share gets no image.
    """
    splits: dict[str, list[int]] = {split: [] for split in split_names(config_name, params)}
    for place in range(len(_digits()[0])):
        splits[split_of(f"digits {place}", params)].append(place)
    empty = [split for split, places in splits.items() if not places]
    if empty:
        raise ValueError(
            f"validation_share={params['validation_share']}, test_share={params['test_share']}: no image falls "
            f"into {', '.join(empty)}; give larger shares, or 0 for a split that is not wanted"
        )
    return {split: make_shards("digits", places) for split, places in splits.items()}


def rows(shard: Shard) -> Iterator[dict[str, object]]:
    """The rows of a planned shard."""
    images, labels = _digits()
    for place in shard.payload:
        yield image_row(images[place], int(labels[place]))


@lru_cache(maxsize=1)
def _digits() -> "tuple[np.ndarray, np.ndarray]":
    """Images (N, 8, 8) uint8 and labels (N,)."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ValueError(
            f"config 'digits' needs scikit-learn, which brings the images ({error}): pip install 'hf-recurrent[digits]'"
        ) from error
    found = load_digits()
    return found.images.astype("uint8"), found.target
