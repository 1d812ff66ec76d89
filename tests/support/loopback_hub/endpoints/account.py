"""Who am I, may I, and is this card valid."""

from ..accounts import check_may_write
from ..cards import check_card
from ..errors import authentication_required, bad_request
from ..messages import Request, Response, json_response
from ..names import KINDS
from ..routes import route
from ..store import Store


@route("whoami", "GET", "/api/whoami-v2")
def whoami(store: Store, request: Request) -> Response:
    if request.token is None:
        raise authentication_required()
    return json_response(request.token.whoami())


@route("auth-check", "GET", "/api/{kinds}/{id}/auth-check[/{right}]")
def auth_check(store: Store, request: Request) -> Response:
    repository = store.readable(request)
    if request.parts["right"] not in (None, "write"):
        raise bad_request(f"Unknown right: {request.parts['right']}")
    if request.parts["right"] == "write":
        check_may_write(repository.namespace, request.token, f"write to this {repository.kind}")
    return json_response({"success": True})


@route("validate-yaml", "POST", "/api/validate-yaml")
def validate_yaml(store: Store, request: Request) -> Response:
    data = request.json()
    kind = data.get("repoType", "model")
    if not isinstance(data.get("content"), str) or kind not in KINDS:
        raise bad_request(f'"content" must be a string and "repoType" one of {list(KINDS)}')
    errors, warnings = check_card(data["content"], kind)
    answer = {
        "errors": [{"message": message} for message in errors],
        "warnings": [{"message": message} for message in warnings],
    }
    return json_response(answer, 400 if errors else 200)


@route("agent-harnesses", "GET", "/api/agent-harnesses")
def agent_harnesses(store: Store, request: Request) -> Response:
    """A registry that clients ask for once a day to name the program in their user agent: empty."""
    return json_response({"standardEnvVars": [], "harnesses": {}})
