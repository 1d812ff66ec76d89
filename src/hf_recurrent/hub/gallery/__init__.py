"""A folder of checkpoint folders, such as `model_cards/`: its index, its checks and its browsable page."""

from .check import gallery_problems
from .entries import Entry, read_gallery
from .index import render_index
from .page import build_page
from .refresh import refresh

__all__ = ["Entry", "build_page", "gallery_problems", "read_gallery", "refresh", "render_index"]
