"""What became of a submission whose answer proves nothing (G6).

Job: look the hash up at the upstream, then send the same bytes again, and only at the very end say "unknown".
Rules: the same bytes by the same method, never others, and only while the lane is ours (``gate``). A refusal of
a resend proves nothing about the first send. The whole takes no longer than the caller's deadline. The absence of a
private submission is not looked for: it proves nothing.
Must not know: lanes, clients.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from relay.jsonrpc import NULL
from relay.upstream.client import Answered
from relay.verdict import Disposition, classify

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relay.methods import Request
    from relay.telemetry.metrics import Metrics
    from relay.upstream.accounts import Accounts
    from relay.upstream.client import Attempt, UpstreamClient
    from relay.verdict import Client, Verdict

WAITS_S: Final = (0.2, 0.4, 0.8)
"""Before each resend."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The node has it. ``result`` is its own text where a resend brought one."""

    result: bytes | None
    found: bool


class NodeFacts(Protocol):
    """What is known of the node."""

    @property
    def client(self) -> Client | None:
        """Which client it runs."""


class Resolver:
    """Finds out, within a deadline."""

    def __init__(
        self,
        *,
        client: UpstreamClient,
        accounts: Accounts,
        facts: NodeFacts,
        metrics: Metrics,
        clock: Callable[[], float],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._accounts = accounts
        self._facts = facts
        self._clock = clock
        self._pause = pause
        self._ends = {end: metrics.unknown.cell(end) for end in ("found", "accepted", "unknown")}

    async def resolve(
        self, request: Request, hash_: str, deadline: float, gate: Callable[[], bool] | None = None
    ) -> Settled | None:
        """The node has the transaction (`Settled`), or nobody can tell (None). ``gate`` is asked before each resend."""
        settled = await self._resolve(request, hash_, deadline, gate)
        self._ends["unknown" if settled is None else "found" if settled.found else "accepted"].n += 1
        return settled

    async def find(self, request: Request, hash_: str, deadline: float) -> bool:
        """Does the node show what may have been sent to it? Counted if it does; else nothing has ended yet."""
        found = await self._found(request, hash_, deadline)
        if found:
            self._ends["found"].n += 1
        return found

    async def _resolve(
        self, request: Request, hash_: str, deadline: float, gate: Callable[[], bool] | None
    ) -> Settled | None:
        if await self._found(request, hash_, deadline):
            return Settled(None, found=True)
        for number, wait in enumerate(WAITS_S):
            if self._clock() + wait >= deadline:
                break
            await self._pause(wait)
            left = deadline - self._clock()
            share = left / (len(WAITS_S) - number + 1)
            attempt = await self._client.submit(request.method.wire, request.wire_params, share, gate)
            if (result := self._proof(attempt, request, hash_)) is not None:
                return Settled(result or None, found=False)
            if await self._found(request, hash_, deadline):
                return Settled(None, found=True)
        return None

    def _proof(self, attempt: Attempt, request: Request, hash_: str) -> bytes | None:
        """The result's text (empty for "already known") if this answer to a resend shows that the node has it."""
        if not isinstance(attempt, Answered):
            return None
        reply = attempt.reply
        if reply.result is not None:
            return reply.result if fits(request, hash_, reply.result) else None
        return b"" if judge(reply.error, self._facts.client).disposition is Disposition.IN_POOL else None

    async def _found(self, request: Request, hash_: str, deadline: float) -> bool:
        left = deadline - self._clock()
        return request.method.public and left > 0 and await self._accounts.knows(hash_, left) is True


def fits(request: Request, hash_: str, result: bytes) -> bool:
    """Is this the answer to this transaction? A plain one is answered by its hash, others by what the node likes."""
    if not request.method.by_bytes:
        return result != NULL
    return result.lower() == b'"%b"' % hash_.encode()


def judge(error: object, client: Client | None) -> Verdict:
    """The verdict on an error member, whatever its shape (some nodes send a bare string)."""
    if not isinstance(error, dict):
        return classify(error if isinstance(error, str) else "", client=client)
    message, code = error.get("message"), error.get("code")
    return classify(
        message if isinstance(message, str) else "",
        code if isinstance(code, int) else None,
        error.get("data"),
        client,
    )
