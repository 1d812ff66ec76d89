"""Reference checkpoints of the papers' codebases, loaded into this package's models."""

from .pretrained import from_pretrained_recurrent, save_original
from .reference import Reference, load_reference

__all__ = ["Reference", "from_pretrained_recurrent", "load_reference", "save_original"]
