"""Documents as text files."""

import random
from collections.abc import Mapping
from pathlib import Path


def write_texts(folder: Path, counts: Mapping[str, int], fewest: int, most: int) -> Path:
    """Write `counts` documents of each split into `folder`, of `fewest` to `most` words, not all ASCII -> the folder.

    One more of the split `test` is shorter than any segment.
    """
    rng = random.Random(0)
    for split, count in counts.items():
        (folder / split).mkdir(parents=True)
        for index in range(count):
            words = [rng.choice(["state", "window", "block", "größe"]) for _ in range(rng.randint(fewest, most))]
            (folder / split / f"{index}.txt").write_text(" ".join(words), encoding="utf-8")
    (folder / "test" / "short.txt").write_text("brief")
    return folder
