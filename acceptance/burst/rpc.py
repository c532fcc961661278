"""JSON-RPC over HTTP, for asking a node and for timing its answers.

Job: one endpoint; aiohttp's and JSON's exceptions end here.
Rules: an error of the node is a value of the reply; only `call`, which cannot go on without a result, raises.
"""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from acceptance.burst.faults import BurstFault

UNANSWERED: Final = (aiohttp.ClientError, TimeoutError, OSError)


@dataclass(slots=True)
class Stamp:
    """When a request's body was handed to the socket (None: not yet), on the monotonic clock, in seconds."""

    sent: float | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: a ``result``, or an ``error`` text with the JSON-RPC ``code`` if there was one."""

    result: Any = None
    error: str = ""
    code: int | None = None


class NoReply(Exception):  # noqa: N818 - not an error of this program
    """There was no answer. The text says why, without the URL."""


def open_session(timeout_s: float) -> aiohttp.ClientSession:
    """A session with a connection for each request in flight, which fills in a request's `Stamp`."""
    trace = aiohttp.TraceConfig()
    trace.on_request_chunk_sent.append(_stamp)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        trace_configs=[trace],
    )


class Endpoint:
    """One URL to call."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.url = url
        self._session = session
        self._ids = itertools.count(1)

    async def post(self, method: str, *params: Any, stamp: Stamp | None = None) -> Reply:
        """One call. Raises NoReply if nothing came back that has a status and a body."""
        body = json.dumps({"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}).encode()
        try:
            async with self._session.post(
                self.url,
                data=body,
                headers={"Content-Type": "application/json"},
                trace_request_ctx=stamp or Stamp(),
            ) as response:
                return _reply(response.status, await response.read())
        except UNANSWERED as error:
            raise NoReply(str(error) or type(error).__name__) from None

    async def call(self, method: str, *params: Any) -> Any:
        """The result of one call. Raises BurstFault if there is none."""
        try:
            reply = await self.post(method, *params)
        except NoReply as error:
            raise BurstFault(f"{self.url} cannot be reached: {error}") from None
        if reply.error:
            raise BurstFault(f"{self.url} answers {method} with: {reply.error}")
        return reply.result


def _reply(status: int, body: bytes) -> Reply:
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, dict):
        return Reply(error=str(error.get("message")), code=error.get("code"))
    if status == 200 and isinstance(answer, dict) and "result" in answer:
        return Reply(result=answer["result"])
    return Reply(error=f"HTTP {status} without a JSON-RPC answer")


async def _stamp(_session: object, context: Any, _chunk: object) -> None:
    context.trace_request_ctx.sent = time.monotonic()
