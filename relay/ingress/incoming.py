"""The requests of one connection, cut out of its bytes.

Job: bytes in any cut → whole requests in order, refusals, and the moment at which a client wants to be told to go on.
Rules: no I/O and no clock, so that each cut can be tried. A request that will never be one is refused as soon as that
is sure, not when it ends: it may never end.
Must not know: transports, answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from relay.errors import Refusal
from relay.ingress.body import BodyReader
from relay.ingress.head import HEAD_END, Plan, Refused, too_large
from relay.ingress.limits import MAX_HEAD_BYTES

if TYPE_CHECKING:
    from relay.ingress.head import HeadMemo


class Complete(msgspec.Struct, frozen=True, gc=False):
    """A whole request. ``head`` is its head as it came."""

    plan: Plan
    body: bytes
    head: bytes


class Continue:
    """The client waits for "100 Continue" before it sends the body."""

    __slots__ = ()


CONTINUE: Final = Continue()


class Incoming:
    """Takes bytes and gives requests. After a refusal there is nothing more to ask."""

    __slots__ = ("_head", "_heads", "_limit", "_plan", "_reader", "waiting")

    _plan: Plan
    """Of the request whose body is being read."""
    _head: bytes

    def __init__(self, heads: HeadMemo, max_body_bytes: int) -> None:
        self._heads = heads
        self._limit = max_body_bytes
        self.waiting = bytearray()
        """Bytes of which nothing is made yet. Looked at for each request, changed only here."""
        self._reader: BodyReader | None = None

    @property
    def plan(self) -> Plan | None:
        """The plan of the request whose body is not complete, None if none is."""
        return self._plan if self._reader is not None else None

    def hold(self, data: bytes) -> None:
        """Keep what was sent ahead for later."""
        self.waiting += data

    def put_back(self, head: bytes) -> None:
        """Undo the taking of a request without a body."""
        self.waiting[:0] = head

    def take_all(self) -> bytes:
        """Everything that waits, as bytes; nothing waits then."""
        held = bytes(self.waiting)
        self.waiting.clear()
        self._reader = None
        return held

    def take(self, data: bytes = b"") -> Complete | Refused | Continue | None:
        """The next thing in what waits and ``data``: None if nothing is whole."""
        if self._reader is not None:
            return self._read_body(self._reader, data)
        self.waiting += data
        if self.waiting.startswith((b"\r", b"\n")):
            self.waiting[:] = self.waiting.lstrip(b"\r\n")
        end = self.waiting.find(HEAD_END) + len(HEAD_END)
        if end < len(HEAD_END):
            return self._hopeless()
        head = bytes(self.waiting[:end])
        del self.waiting[:end]
        plan = self._heads.plan(head)
        return plan if isinstance(plan, Refused) else self._start_body(plan, head)

    def _hopeless(self) -> Refused | None:
        """Can this still become a head? It has to begin with a letter and end each line with CRLF."""
        start = self.waiting
        if len(start) > MAX_HEAD_BYTES:
            return self._heads.refuse(bytes(start[:MAX_HEAD_BYTES]), too_large())
        if start and (not start[:1].isalpha() or start.count(b"\n") != start.count(b"\r\n")):
            return self._heads.refuse(bytes(start))
        return None

    def _start_body(self, plan: Plan, head: bytes) -> Complete | Refused | Continue | None:
        if plan.length is not None and plan.length <= len(self.waiting) and not plan.gzip:
            body = bytes(self.waiting[: plan.length])
            del self.waiting[: plan.length]
            return Complete(plan, body, head)
        self._plan = plan
        self._head = head
        waits = plan.expects and not self.waiting
        data = self.take_all()
        self._reader = BodyReader(plan, self._limit)
        return CONTINUE if waits else self._read_body(self._reader, data)

    def _read_body(self, reader: BodyReader, data: bytes) -> Complete | Refused | None:
        rest = reader.take(data)
        if rest is None:
            return None
        self._reader = None
        if isinstance(rest, Refusal):
            return Refused(rest, self._plan.last_tail)
        self.waiting += rest
        return Complete(self._plan, reader.body, self._head)
