"""Limits on what others supply: text, archives, tables, pictures. What exceeds one is refused before it fills memory.

Each is raised by the environment variable that its message names, also for commands and the processes they start.
"""

import os
from dataclasses import dataclass

_MIB, _GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Limit:
    """At most `default` of a `unit`, or as many as the environment variable `variable` says."""

    variable: str
    default: int
    unit: str

    @property
    def value(self) -> int:
        """The limit as it is set.

        Raises:
            ValueError: the variable holds no whole number above 0.
        """
        given = os.environ.get(self.variable, "").strip()
        if not given:
            return self.default
        if not given.isdecimal() or int(given) < 1:
            raise ValueError(f"{self.variable}={given!r}: expected a whole number of {self.unit} above 0")
        return int(given)

    def check(self, amount: int, what: str) -> None:
        """Raise a ValueError if `amount` exceeds the limit; `what` has so many."""
        if amount > self.value:
            raise self.exceeded(what, f"{amount:,}")

    def exceeded(self, what: str, amount: str = "more") -> ValueError:
        """The error for something with too large an `amount`."""
        return ValueError(
            f"{what} has {amount} {self.unit}, and the limit is {self.value:,}: if it is to be trusted, set "
            f"{self.variable} to a higher number"
        )


# one text: a file that is read whole, a line, a document, a value in a table
TEXT = Limit("HF_RECURRENT_MAX_TEXT_BYTES", 256 * _MIB, "bytes of text")
# all of an archive, or of a compressed file
UNPACKED = Limit("HF_RECURRENT_MAX_UNPACKED_BYTES", 64 * _GIB, "bytes when unpacked")
JSON = Limit("HF_RECURRENT_MAX_JSON_BYTES", 64 * _MIB, "bytes of JSON")
YAML = Limit("HF_RECURRENT_MAX_YAML_BYTES", _MIB, "bytes of YAML")
NESTING = Limit("HF_RECURRENT_MAX_NESTING", 100, "levels of nesting")
# columns of a Parquet file are unpacked a group of rows at a time
ROW_GROUP = Limit("HF_RECURRENT_MAX_ROW_GROUP_BYTES", 4 * _GIB, "bytes in a group of rows")
# one example that is looked into, whose maps have the square of it
EXAMPLE_TOKENS = Limit("HF_RECURRENT_MAX_EXAMPLE_TOKENS", 128, "tokens")
# what a visitor of a served page may send
