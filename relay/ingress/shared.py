"""What all connections of one listener share.

Job: the parts a connection works with, the set of open ones, and what changes for all at once (Date, draining).
Rules: read on the hot path, so plain attributes. A connection is open until its transport is closed, whoever it
belongs to by then.
Must not know: how a connection works.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from email.utils import formatdate
from functools import partial
from typing import TYPE_CHECKING

from relay.errors import TOO_MANY_CONNECTIONS
from relay.ingress.head import HeadMemo
from relay.ingress.limits import BODY_S, HEAD_S, LINGER_S, MAX_TURNED_AWAY, RETIRED_IDLE_S, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay import config
    from relay.ingress.answers import Ready
    from relay.ingress.connection import Connection
    from relay.ingress.head import Refused
    from relay.ingress.looking import Question
    from relay.router import Routes
    from relay.telemetry.metrics import Metrics
    from relay.upstream.exchange import Sender


class Outcomes:
    """The counters of one kind of request."""

    __slots__ = ("answered", "failed", "gone")

    def __init__(self, metrics: Metrics, kind: str) -> None:
        self.answered = metrics.requests.cell("http", kind, "answered")
        self.failed = metrics.requests.cell("http", kind, "failed")
        self.gone = metrics.requests.cell("http", kind, "gone")


@dataclass(frozen=True, slots=True)
class Parts:
    """What a way in works with.

    ``report`` gets the place and the error of each fault of ours. ``upgrade`` gets a WebSocket client's transport,
    every byte read from it, and what to call once the transport is closed; None: upgrades are ignored. ``look``
    answers a question by a call, always; None: nothing may be asked.
    """

    routes: Routes
    sender: Sender
    report: Callable[[str, BaseException], None]
    upgrade: Callable[[asyncio.Transport, bytes, Callable[[], None]], None] | None
    look: Callable[[Question, Callable[[Ready], None]], None] | None = None


class Shared:
    """See the module."""

    __slots__ = (
        "asked", "closing", "date", "draining", "emptied", "handed_over", "heads", "limits", "look", "max_body_bytes",
        "max_connections", "max_turned_away", "open", "passed", "refused", "report", "routes", "sender", "submitted",
        "upgrade", "upstream_timeout_s",
    )  # fmt: skip

    def __init__(self, settings: config.Settings, parts: Parts, metrics: Metrics) -> None:
        server = settings.server
        self.routes = parts.routes
        self.sender = parts.sender
        self.report = parts.report
        self.upgrade = parts.upgrade
        self.look = parts.look
        self.heads = HeadMemo(server, asks=parts.look is not None, wishes=bool(settings.journal.url))
        self.max_body_bytes = server.max_body_bytes
        self.max_connections = server.max_connections
        self.max_turned_away = min(MAX_TURNED_AWAY, server.max_connections)
        self.upstream_timeout_s = settings.upstream.timeout_s
        self.limits = {
            State.IDLE: server.keepalive_s, State.HEAD: HEAD_S, State.BODY: BODY_S, State.LINGERING: LINGER_S,
        }  # fmt: skip
        self.passed = Outcomes(metrics, "pass")
        self.submitted = Outcomes(metrics, "submission")
        self.asked = Outcomes(metrics, "ask")
        self.refused = Outcomes(metrics, "refused")
        self.closing = False
        """Each answer is its connection's last."""
        self.draining = False
        """What was not taken up yet is refused."""
        self.date = b""
        self.open: set[Connection] = set()
        self.handed_over: set[Connection] = set()
        self.emptied = asyncio.Event()
        """Set when the last open connection goes."""
        self.tick()

    def tick(self) -> None:
        """Each second: our own answers say when they were given (RFC 9110, 6.6.1); a passed one says what it says."""
        self.date = b"Date: %b\r\n" % formatdate(usegmt=True).encode()

    def retire(self) -> None:
        """Requests are answered as ever, each as the last of its connection."""
        self.closing = True
        self.limits[State.IDLE] = RETIRED_IDLE_S

    def drain(self) -> None:
        """Requests that are not taken up yet are refused."""
        self.closing = self.draining = True

    def enter(self, connection: Connection) -> int:
        """Count a new connection. Returns how many there are beyond the limit."""
        self.open.add(connection)
        return len(self.open) + len(self.handed_over) - self.max_connections

    @property
    def too_many(self) -> Refused:
        """What one beyond the limit is told."""
        return self.heads.refuse(b"", TOO_MANY_CONNECTIONS.refusal(limit=self.max_connections))

    def repeatable(self, body: bytes) -> bool:
        """As `Routes.repeatable`; a fault is reported, and "no" is always safe."""
        try:
            return self.routes.repeatable(body)
        except Exception as error:  # noqa: BLE001 - as above
            self.report("ingress.http", error)
            return False

    def hand_over(self, connection: Connection) -> Callable[[], None]:
        """It belongs to the WebSocket side now, and still counts. Returns what to call when it is closed."""
        self.leave(connection)
        self.handed_over.add(connection)
        return partial(self.leave, connection)

    def leave(self, connection: Connection) -> None:
        """Its transport is closed."""
        self.open.discard(connection)
        self.handed_over.discard(connection)
        if not self.open:
            self.emptied.set()
