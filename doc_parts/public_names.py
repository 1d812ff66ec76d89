"""The public names of the package for type checkers and editors, which do not see imports on first use."""

from pathlib import Path

import hf_recurrent

STUB = Path(hf_recurrent.__file__).with_name("__init__.pyi")


def stub() -> str:
    """The text of `__init__.pyi`."""
    places = {**hf_recurrent.PUBLIC, "ARCHITECTURES": "hf_recurrent.registry"}
    lines = sorted(
        f"from {place.removeprefix('hf_recurrent')} import {name} as {name}" for name, place in places.items()
    )
    summary = '"""The public names, for type checkers and editors. Written by `python -m doc_parts`."""'
    return "\n".join([summary, "", *lines, "", "__version__: str", ""])
