"""A request as the endpoints see it, and what they answer."""

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from .accounts import Token
from .errors import HubError, bad_request


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, list[str]] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    # parts of the path, unquoted, by the names that the route gives them
    parts: dict[str, str | None] = field(default_factory=dict)
    token: Token | None = None

    @property
    def kind(self) -> str:
        return (self.parts.get("kinds") or "models").removesuffix("s")

    def flag(self, name: str) -> bool:
        return self.query.get(name, [""])[-1].lower() in ("1", "true")

    def json(self) -> dict[str, Any]:
        """The body as a JSON object, or 400."""
        try:
            data = json.loads(self.body or b"{}")
        except ValueError as error:
            raise bad_request(f"Invalid JSON: {error}") from error
        if not isinstance(data, dict):
            raise bad_request("The body must be a JSON object")
        return data

    def form(self) -> dict[str, list[str]]:
        """The body as a form, or as JSON with lists."""
        if self.headers.get("content-type", "").startswith("application/json"):
            return {key: value if isinstance(value, list) else [value] for key, value in self.json().items()}
        return parse_qs(self.body.decode(), keep_blank_values=True)


@dataclass
class Response:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


def json_response(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    # a card's YAML may hold dates, which JSON does not know
    body = json.dumps(data, default=str).encode()
    return Response(status, body, {"Content-Type": "application/json; charset=utf-8", **(headers or {})})


def error_response(error: HubError) -> Response:
    headers = dict(error.headers)
    if error.code:
        headers["X-Error-Code"] = error.code
    # a header is one line of ASCII
    headers["X-Error-Message"] = " ".join(error.message.split()).encode("ascii", "replace").decode()
    return json_response(error.payload, error.status, headers)
