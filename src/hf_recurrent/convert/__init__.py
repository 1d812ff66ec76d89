"""Reference checkpoints of the papers' codebases, loaded into this package's models."""

from .authors import load_authors
from .pretrained import from_pretrained_recurrent, save_original

__all__ = ["from_pretrained_recurrent", "load_authors", "save_original"]
