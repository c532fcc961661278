"""The operator's API as an OpenAPI 3.1 document, drawn from its routes, shapes and problems.

Job: the document; ``docs/openapi.json`` is held to it by a test. Must not know: HTTP, what a route does.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from relay.console.problems import KINDS
from relay.console.routes import EVERYWHERE, PREFIX, ROUTES
from relay.console.shapes import ref, schemas

if TYPE_CHECKING:
    from relay.console.reading import Param
    from relay.console.routes import Route

JSON: Final = "application/json"
PROBLEM_JSON: Final = "application/problem+json"

_ABOUT: Final = (
    "Look at submissions and lanes, and steer them. Every action needs a reason, which stands in the history with its "
    "actor. Hashes, addresses and quantities are as in Ethereum's JSON-RPC, times as in RFC 3339. It is served on the "
    "ops listener where `[ops] token` and `[journal] url` are set."
)


@cache
def document() -> dict[str, Any]:
    """The document."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(PREFIX + route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "relay: the operator's API", "version": "1", "description": _ABOUT},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "`[ops] token`"}},
            "schemas": schemas(),
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": [_parameter(param) for param in route.params],
        "responses": {str(route.status): _answer(route), **_problems(route)},
    }
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": ref(route.body.__name__)}}}
    return operation


def _parameter(param: Param) -> dict[str, Any]:
    return {
        "name": param.name,
        "in": param.place,
        "required": param.required,
        "description": param.words,
        "schema": dict(param.schema),
    }


def _answer(route: Route) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": route.summary, "content": {JSON: {"schema": ref(route.answer)}}}
    if route.tagged:
        answer["headers"] = {"ETag": {"schema": {"type": "string"}, "description": "Its version, for `If-Match`."}}
    return answer


def _problems(route: Route) -> dict[str, Any]:
    """By status; several kinds may share one."""
    shared: dict[int, list[str]] = {}
    for name in (*route.problems, *EVERYWHERE):
        shared.setdefault(KINDS[name].status, []).append(f"`{name}`: {KINDS[name].when}")
    return {
        str(status): {"description": "; ".join(whens), "content": {PROBLEM_JSON: {"schema": ref("Problem")}}}
        for status, whens in sorted(shared.items())
    }
