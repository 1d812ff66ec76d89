"""Names of settings that earlier versions saved, in configs and in cards, and their names of today."""

from typing import Any

SAVED_NAMES = {"max_steps": "max_depth", "min_steps": "min_depth"}


def renamed(saved: Any) -> Any:
    """What an earlier version saved, under the names of today; names of labels stay."""
    if isinstance(saved, list):
        return [renamed(item) for item in saved]
    if not isinstance(saved, dict):
        return saved
    return {
        SAVED_NAMES.get(name, name): value if name == "label2id" else renamed(value) for name, value in saved.items()
    }
