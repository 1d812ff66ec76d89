"""Faults on demand: which requests meet one, and what happens to them."""

import re
from dataclasses import dataclass, field

from .routes import ROUTES


@dataclass
class Fault:
    """One thing that goes wrong, `times` times (None: always). `hits` counts how often it did."""

    target: str
    times: int | None = 1
    status: int | None = None
    message: str = "Injected fault"
    headers: dict[str, str] = field(default_factory=dict)
    # read the request, then hang up: nothing happens
    drop: bool = False
    # hang up in the middle of the request's body: nothing happens
    drop_upload: bool = False
    # do as asked, then hang up before answering
    lose_answer: bool = False
    # do as asked, but hang up in the middle of the answer's body
    cut: bool = False
    hits: int = 0

    def __post_init__(self):
        kinds = [self.status is not None, self.drop, self.drop_upload, self.lose_answer, self.cut]
        if sum(kinds) != 1:
            raise ValueError(
                f"fault on {self.target!r}: give exactly one of status, drop, drop_upload, lose_answer or cut,"
                f" not {sum(kinds)} of them"
            )
        names = sorted({route.name for route in ROUTES})
        if " " not in self.target and self.target not in names:
            raise ValueError(f"fault on {self.target!r}: expected a route ({', '.join(names)}) or 'METHOD path-regex'")

    def strikes(self, route: str | None, method: str, path: str) -> bool:
        """Whether this request meets the fault; counts it if so."""
        if self.times is not None and self.hits >= self.times:
            return False
        fault_method, _, pattern = self.target.partition(" ")
        meets = (fault_method == method and re.search(pattern, path) is not None) if pattern else self.target == route
        self.hits += meets
        return meets
