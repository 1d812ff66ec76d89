"""Where things are in the authors' release, of which any part may be given."""

from collections.abc import Sequence
from pathlib import Path

# what the archive is unpacked to
_ROOTS = ("", "lra_release", "lra_release/lra_release")


def find(data_dir: Path, folders: Sequence[str], names: Sequence[str]) -> Path:
    """The folder that holds all of `names` (files or folders): `data_dir`, or one of `folders` in the release.

    Raises:
        ValueError: there is none; the message has all that is missing where the most is there.
    """
    if data_dir.is_file():
        raise ValueError(f"data_dir={str(data_dir)!r} is a file: unpack it, and give the folder")
    places = [data_dir / root / folder for folder in ("", *folders) for root in _ROOTS]
    missing = {place: [name for name in names if not (place / name).exists()] for place in places}
    best = min(places, key=lambda place: len(missing[place]))
    if missing[best]:
        # where nothing is found, the first place is what the user meant
        raise ValueError(
            f"data_dir={str(data_dir)!r}: {best} has no {', '.join(missing[best])}; expected {', '.join(names)} there, "
            f"or in its folder {' or '.join(folders)}"
        )
    return best
