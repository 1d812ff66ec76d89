"""Reference checkpoints of the papers' codebases, loaded into this package's models."""

from .reference import Reference, load_reference

__all__ = ["Reference", "load_reference"]
