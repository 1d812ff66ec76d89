"""Random detours of a reading: those that a model's cache can take, and what it must refuse.

What can be cropped is said here by rule, not asked of a cache.
"""

import random
from collections.abc import Sequence

from fuzz.comparing.reading import Detour

LONGEST, MOST_ROWS = 4, 12
# a detour before a piece, and one of another group than the property's
SHARE, OTHER_SHARE = 0.6, 0.2
GROUPS = {
    "crop": ("crop", "crop", "crop_too_far"),
    "rows": ("reorder", "reorder", "rows_outside", "select", "repeat"),
    "copies": ("save", "duplicate", "detach", "reset"),
    "documents": ("start", "start", "pad", "start_too_late"),
}


class Itinerary:
    """Draws detours one after the other, and keeps count of where each row is.

    Args:
        columns: of the tokens of each row.
    """

    def __init__(self, config, columns: Sequence[Sequence[int]], rng: random.Random):
        self.config, self.rng = config, rng
        self.grows = config.capabilities.growing_cache
        self.columns, self.begin = list(columns), 0
        self.read_padding = False

    def detour(self, group: str, begin: int) -> Detour | None:
        """A detour before the piece from column `begin` on, None where there is none."""
        self.begin = begin
        if self.rng.random() > SHARE:
            return None
        if self.rng.random() < OTHER_SHARE:
            group = self.rng.choice(list(GROUPS))
        kind = self.rng.choice(GROUPS[group])
        return getattr(self, kind)() if begin or kind in ("crop", "start", "reset") else None

    def counts(self, further: int = 0) -> list[int]:
        """Tokens of each row, with so many further ones in those that have not ended."""
        return [
            sum(column < self.begin for column in columns) + further * (not self.ended(columns))
            for columns in self.columns
        ]

    def ended(self, columns: Sequence[int]) -> bool:
        return columns[-1] < self.begin - 1

    def croppable(self, further: int = 0) -> int:
        """How many of the last columns can be taken back."""
        config, counts = self.config, self.counts(further)
        if self.grows:
            return self.begin + further
        if config.capabilities.reads == "tokens" or any(self.ended(columns) for columns in self.columns):
            return 0
        if hasattr(config, "window_size"):
            return min(count % config.window_size for count in counts)
        # a complete chunk is written when the next one begins
        return min((count - 1) % config.chunk_size + 1 if count else 0 for count in counts)

    def width(self) -> int:
        return self.rng.randint(1, LONGEST)

    def crop(self) -> Detour | None:
        widths = [width for width in range(1, LONGEST + 1) if width <= self.croppable(width)]
        return Detour("crop", self.rng.choice(widths)) if widths and not self.read_padding else self.crop_too_far()

    def crop_too_far(self) -> Detour | None:
        # padding between pieces may be refused, or not
        return None if self.read_padding or not self.begin else Detour("crop_too_far", self.croppable() + 1)

    def go_on_with(self, kind: str, rows: Sequence[int]) -> Detour:
        self.columns = [self.columns[row] for row in rows]
        return Detour(kind, rows=tuple(rows))

    def reorder(self) -> Detour:
        return self.go_on_with("reorder", self.rng.choices(range(len(self.columns)), k=len(self.columns)))

    def rows_outside(self) -> Detour:
        number = len(self.columns)
        return Detour("rows_outside", rows=tuple(self.rng.choice((-1, number + row)) for row in range(number)))

    def select(self) -> Detour:
        number = len(self.columns)
        return self.go_on_with("select", self.rng.sample(range(number), self.rng.randint(1, number)))

    def repeat(self) -> Detour | None:
        number = self.rng.randint(2, 3)
        rows = [row for row in range(len(self.columns)) for _ in range(number)]
        return self.go_on_with("repeat", rows) if len(rows) <= MOST_ROWS else None

    def back(self) -> int:
        return self.rng.randint(0, 1) if self.croppable() and not self.read_padding else 0

    def save(self) -> Detour:
        return Detour("save", self.width(), back=self.back())

    def duplicate(self) -> Detour:
        return Detour("duplicate", self.width(), back=self.back())

    def detach(self) -> Detour:
        return Detour("detach")

    def reset(self) -> Detour | None:
        return None if self.begin else Detour("reset", self.width())

    def start(self) -> Detour | None:
        return self.start_too_late() if self.grows else self.after_padding("start")

    def start_too_late(self) -> Detour | None:
        # two stacks have no such argument
        possible = self.grows and self.begin and not self.config.is_encoder_decoder
        return Detour("start_too_late", self.rng.randrange(len(self.columns))) if possible else None

    def pad(self) -> Detour | None:
        return None if self.grows else self.after_padding("pad")

    def after_padding(self, kind: str) -> Detour:
        self.read_padding = True
        return Detour(kind, self.width())


def drawn_detours(
    group: str, config, columns: Sequence[Sequence[int]], cuts: Sequence[int], rng: random.Random
) -> tuple[Detour | None, ...]:
    """A detour, or none, before each piece."""
    itinerary = Itinerary(config, columns, rng)
    return tuple(itinerary.detour(group, sum(cuts[:number])) for number in range(len(cuts)))
