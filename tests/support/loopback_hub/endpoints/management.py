"""Creating repositories, and their branches, tags and settings."""

from ..accounts import check_may_write
from ..errors import authentication_required, bad_request
from ..messages import Request, Response, json_response
from ..names import KINDS
from ..routes import route
from ..store import Store

VISIBILITIES = ("public", "private")


@route("create", "POST", "/api/repos/create")
def create(store: Store, request: Request) -> Response:
    data = request.json()
    if request.token is None:
        raise authentication_required()
    kind, name = data.get("type") or "model", data.get("name")
    if kind not in KINDS or not isinstance(name, str):
        raise bad_request(f'"type" must be one of {list(KINDS)} and "name" a string')
    user = request.token.user.name
    repository_id = f"{data.get('organization') or user}/{name}"
    check_may_write(repository_id.partition("/")[0], request.token, f"create a {kind}")
    private = _private(data)
    repository = store.create(repository_id, kind, user, private=bool(private))
    return json_response({"url": store.url(repository), "name": repository.id, "id": f"{kind}/{repository.id}"})


@route("refs", "GET", "/api/{kinds}/{id}/refs")
def refs(store: Store, request: Request) -> Response:
    repository = store.readable(request)

    def rows(references: dict[str, str], folder: str) -> list[dict]:
        return [
            {"name": name, "ref": f"refs/{folder}/{name}", "targetCommit": oid}
            for name, oid in sorted(references.items())
        ]

    answer = {"branches": rows(repository.branches, "heads"), "tags": rows(repository.tags, "tags"), "converts": []}
    if request.flag("include_prs"):
        answer["pullRequests"] = []
    return json_response(answer)


@route("branch", "POST", "/api/{kinds}/{id}/branch/{name}")
def branch(store: Store, request: Request) -> Response:
    repository = store.writable(request, "change branches")
    repository.add_reference("branch", request.parts["name"], request.json().get("startingPoint") or "main")
    return json_response({"success": True})


@route("tag", "POST", "/api/{kinds}/{id}/tag/{name}")
def tag(store: Store, request: Request) -> Response:
    """The path names the revision, the body the tag."""
    repository = store.writable(request, "change tags")
    name = request.json().get("tag")
    if not isinstance(name, str):
        raise bad_request('"tag" must be a string')
    repository.add_reference("tag", name, request.parts["name"])
    return json_response({"success": True, "ref": f"refs/tags/{name}", "targetCommit": repository.tags[name]})


def _private(data: dict) -> bool | None:
    """Whether a body asks for privacy, None where it does not say."""
    visibility = data.get("visibility")
    if visibility is None:
        return data.get("private")
    if visibility not in VISIBILITIES:
        raise bad_request(f'"visibility" must be one of {list(VISIBILITIES)}')
    return visibility == "private"
