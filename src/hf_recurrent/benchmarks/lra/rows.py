"""The rows of texts, pairs of texts and images, of the arena and of what stands in for it."""

from typing import TYPE_CHECKING

from ..byte_text import decode_bytes
from ..pixels import spell

if TYPE_CHECKING:
    import numpy as np


def text_row(content: bytes, label: int, max_bytes: int) -> dict[str, object]:
    """The row of a text, of which the first `max_bytes` are kept; a cut goes through characters too."""
    kept = content[:max_bytes]
    return {"text": decode_bytes(kept), "label": label, "length": len(kept), "full_length": len(content)}


def pair_row(first: bytes, second: bytes, label: int, max_bytes: int) -> dict[str, object]:
    """The row of two texts, each cut by itself."""
    first, second = first[:max_bytes], second[:max_bytes]
    return {
        "text": decode_bytes(first),
        "text_pair": decode_bytes(second),
        "label": label,
        "length": len(first),
        "length_pair": len(second),
    }


def image_row(pixels: "np.ndarray", label: int) -> dict[str, object]:
    """The row of an image of whole numbers (side, side)."""
    return {
        "pixels": spell(pixels),
        "label": label,
        "brightness": round(float(pixels.mean())),
        "contrast": round(float(pixels.std())),
    }
