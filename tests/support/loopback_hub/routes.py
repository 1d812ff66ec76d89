"""The table of routes: a name that faults and logs know, a method, a pattern, and the function that answers.

Patterns are matched against the quoted path, so that a slash inside a branch name does not split it. `{kinds}` is
models or datasets, `{prefix}` the same outside the API, where models have none; `{id}` is a repository;
`{name}` any one part; `{name+}` the rest of the path; what stands in [...] may be absent.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from .messages import Request, Response

if TYPE_CHECKING:
    from .store import Store

Endpoint = Callable[["Store", Request], Response]


@dataclass(frozen=True)
class Route:
    name: str
    methods: tuple[str, ...]
    pattern: re.Pattern
    endpoint: Endpoint

    def match(self, method: str, path: str) -> dict[str, str | None] | None:
        """Parts of the path, unquoted, or None."""
        found = self.pattern.fullmatch(path) if method in self.methods else None
        if found is None:
            return None
        return {name: unquote(part) if part is not None else None for name, part in found.groupdict().items()}


ROUTES: list[Route] = []


def route(name: str, methods: str, template: str) -> Callable[[Endpoint], Endpoint]:
    """Register a function for `methods` (separated by spaces) and a path template."""
    pattern = re.escape(template).replace(r"\[", "(?:").replace(r"\]", ")?")
    pattern = pattern.replace(r"\{kinds\}", "(?P<kinds>models|datasets)")
    pattern = pattern.replace(r"\{prefix\}", "(?P<kinds>datasets)")
    # model ids may lack a namespace: such repositories do not exist here, but clients may ask for them
    pattern = pattern.replace(r"\{id\}", "(?P<id>[^/]+(?:/[^/]+)?)")
    pattern = re.sub(r"\\\{(\w+)\\\+\\\}", r"(?P<\1>.+)", pattern)
    pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", pattern)

    def register(endpoint: Endpoint) -> Endpoint:
        ROUTES.append(Route(name, tuple(methods.split()), re.compile(pattern), endpoint))
        return endpoint

    return register


def find_route(method: str, path: str) -> tuple[Route, dict[str, str | None]] | None:
    for candidate in ROUTES:
        parts = candidate.match(method, path)
        if parts is not None:
            return candidate, parts
    return None
