"""``GET /transactions/{hash}``: where a transaction stands, over plain HTTP.

Job: a head → what is asked, or nothing of ours; what was found → the answer. ETag and If-None-Match, so that whoever
asks again and again is told "as before" in a few bytes.
Rules: an answer may be kept, but is asked for anew each time it is used, and by the client alone. An error is a
JSON-RPC error, as everywhere on this listener. HEAD is answered as GET, without the body.
Must not know: connections, journals.

Source: RFC 9110, 8.8.3 (ETag), 13.1.2 (If-None-Match), 15.4.5 (304).
"""

from __future__ import annotations

import re
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from relay import errors, jsonrpc
from relay.ask.params import hash_of
from relay.errors import Refusal
from relay.ingress.answers import Ready, own

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from relay.tasks import TaskOwner
    from relay.views import View

_TARGET: Final = re.compile(rb"(GET|HEAD) (?:(?i:https?)://[^/?#]*)?/transactions/([^?# ]*)[^ ]* ")
_IF_NONE_MATCH: Final = re.compile(rb"\r\nIf-None-Match:[ \t]*([^\r\n]*)", re.IGNORECASE)
_TAG: Final = re.compile(rb'"[^"]*"')
_SERVICE_UNAVAILABLE: Final = 503
_SERVER_ERROR: Final = 500


class Question(NamedTuple):
    """``hash``: None where what stands there is none. ``known``: the tags that the client has already."""

    hash: bytes | None
    known: frozenset[bytes]
    with_body: bool


def question(head: bytes) -> Question | None:
    """What a head asks for; None: nothing of ours."""
    target = _TARGET.match(head)
    if target is None:
        return None
    known = b",".join(_IF_NONE_MATCH.findall(head))
    tags = {b"*"} if known.strip() == b"*" else _TAG.findall(known)
    return Question(hash_of(target[2].decode("latin-1")), frozenset(tags), with_body=target[1] == b"GET")


class Looker:
    """``look`` gives where a transaction stands, None if it is not known."""

    def __init__(
        self,
        look: Callable[[bytes], Awaitable[View | Refusal | None]],
        owner: TaskOwner,
    ) -> None:
        self._look = look
        self._owner = owner

    def __call__(self, asked: Question, found: Callable[[Ready], None]) -> None:
        """Have ``found`` called with the answer, always."""
        self._owner.spawn("look", self._answer(asked)).add_done_callback(partial(self._done, asked, found))

    async def _answer(self, asked: Question) -> Ready:
        if asked.hash is None:
            return _refused(asked, errors.HTTP_HASH.refusal())
        view = await self._look(asked.hash)
        if view is None:
            return _refused(asked, errors.TRANSACTION_UNKNOWN.refusal())
        if isinstance(view, Refusal):
            return _refused(asked, view, _SERVICE_UNAVAILABLE)
        return _shown(asked, orjson.dumps(view))

    def _done(self, asked: Question, found: Callable[[Ready], None], task: asyncio.Task[Ready]) -> None:
        failed = task.cancelled() or task.exception() is not None  # which the owner reports
        found(_refused(asked, errors.INTERNAL.refusal(), _SERVER_ERROR) if failed else task.result())


def _shown(asked: Question, body: bytes) -> Ready:
    tag = b'"%b"' % blake2b(body, digest_size=8).hexdigest().encode()
    lines = b"ETag: %b\r\nCache-Control: private, no-cache\r\n" % tag
    if not asked.known.isdisjoint({tag, b"*"}):
        return own(304, b"", lines)
    return own(200, body, lines, with_body=asked.with_body)


def _refused(asked: Question, refusal: Refusal, status: int | None = None) -> Ready:
    body = jsonrpc.refusal_text(jsonrpc.NULL, refusal)
    return own(status or refusal.case.http, body, b"Cache-Control: no-store\r\n", with_body=asked.with_body)
