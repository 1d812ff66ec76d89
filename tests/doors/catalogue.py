"""Every door, in the order of the table. Modules with doors have a `ROOM`."""

from importlib import import_module

from .door import Door

MODULES = (
    *("auto_classes", "pipelines", "calls", "generation", "attention", "graphs"),
    *("training", "neighbours", "preference", "adapters", "placement", "text_models"),
)
DOORS: tuple[Door, ...] = tuple(door for name in MODULES for door in import_module(f".{name}", __package__).ROOM.doors)
