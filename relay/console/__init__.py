"""The operator's API: submissions and lanes seen and steered over HTTP, on the ops listener.

`routes` is the table of it, `api` does what each route says, `actions` judges, `openapi` draws the document.
Job of this file: the application that `relay.ops` puts under its prefix: the token, the messages.
Rules: without a token and a journal there is no API, and whoever asks is told what is missing. Who has no token learns
nothing else. Whatever happens is answered as JSON, an expected "no" as a problem (RFC 9457).
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any, Final

import orjson
import structlog
from aiohttp import web

from relay.console.api import Answer, Api
from relay.console.openapi import JSON, PROBLEM_JSON
from relay.console.problems import Problem
from relay.console.reading import Asked, etag, read_body, read_params
from relay.console.routes import PREFIX, ROUTES, Route
from relay.journal.faults import Unavailable, Unusable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp.typedefs import Handler

    from relay.console.hand import Hand
    from relay.journal.shelf import Shelf

__all__ = ["MAX_BODY", "PREFIX", "console", "no_console"]

MAX_BODY: Final = 64 * 1024
"""Bytes. A reason is a sentence."""


def console(token: str, shelf: Shelf, hand: Hand, chain: Callable[[], int | None]) -> web.Application:
    """The API, for whoever knows ``token``. ``chain`` tells the node's chain id, once it is known."""
    api = Api(shelf, hand, chain)
    app = web.Application(middlewares=[_as_problems, _only_with(token)])
    for route in ROUTES:
        add = app.router.add_get if route.method == "GET" else app.router.add_post  # what can be got has a head, too
        add(route.path, _handler(route, getattr(api, route.name)))
    return app


def no_console() -> web.Application:
    """In its place where it is not configured."""

    @web.middleware
    async def hint(request: web.Request, handler: Handler) -> web.StreamResponse:
        return _problem(Problem("no_api", "there is no operator's API", ("set [ops] token and [journal] url",)))

    return web.Application(middlewares=[hint])


def _handler(route: Route, act: Callable[[Asked], Awaitable[Answer | Problem]]) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        asked = await _asked(route, request)
        done = asked if isinstance(asked, Problem) else await act(asked)
        if isinstance(done, Problem):
            return _problem(done)
        headers = {} if done.version is None else {"ETag": etag(done.version)}
        return web.json_response(body=orjson.dumps(done.body), status=route.status, headers=headers, content_type=JSON)

    return handle


async def _asked(route: Route, request: web.Request) -> Asked | Problem:
    values = read_params(route.params, request.match_info, request.query, request.headers)
    if isinstance(values, Problem) or route.body is None:
        return values if isinstance(values, Problem) else Asked(values)
    body = read_body(route.body, request.content_type, await request.read())
    return body if isinstance(body, Problem) else Asked(values, body)


def _only_with(token: str) -> Any:
    wanted = f"Bearer {token}".encode()

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        shown = f"{scheme.capitalize()} {given.strip()}".encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(shown, wanted):
            refused = Problem("unauthorized", "send Authorization: Bearer with the token of [ops] token")
            return _problem(refused, {"WWW-Authenticate": 'Bearer realm="relay"'})
        return await handler(request)

    return guard


@web.middleware
async def _as_problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What aiohttp says in its own way, and what breaks."""
    try:
        return await handler(request)
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        return _problem(
            Problem("wrong_method", f"{request.method} is not for this route: {allowed}"), {"Allow": allowed}
        )
    except web.HTTPRequestEntityTooLarge:
        return _problem(Problem("too_large", f"the body has more than {MAX_BODY} bytes"))
    except web.HTTPNotFound:
        return _problem(Problem("not_found", f"there is no such route; {PREFIX}/openapi.json has those that there are"))
    except (Unavailable, Unusable) as fault:
        return _problem(Problem("journal_unavailable", str(fault), ("ask again, or see /readyz",)))
    except web.HTTPException:
        raise
    except Exception as error:  # noqa: BLE001 - the answer is JSON whatever breaks
        structlog.get_logger("relay.console").exception("fault", error=repr(error))
        return _problem(Problem("internal", "a fault of the relay; its log names it"))


def _problem(problem: Problem, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        body=orjson.dumps(problem.body()), status=problem.kind.status, headers=headers, content_type=PROBLEM_JSON
    )
