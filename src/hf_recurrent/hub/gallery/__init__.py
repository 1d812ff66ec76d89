"""A folder of checkpoint folders, such as `model_cards/`: its index, its checks and its browsable page."""

from .entries import Entry, read_gallery
from .page import build_page, render_index
from .upkeep import gallery_problems, refresh

__all__ = ["Entry", "build_page", "gallery_problems", "read_gallery", "refresh", "render_index"]
