"""One request on its way to the node, and the queue in which it waits for a connection.

Job: what sender, pool and connection know of a request; every word to its sink passes here.
Rules: a request ends exactly once, and its bookkeeping is done before its sink hears of it. A sink that raises is
reported and loses its answer; whoever called goes on.
Must not know: HTTP, sockets, how many connections there are.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from relay.upstream.exchange import Failure, Lack

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.upstream.exchange import Head, Sink


class Carrier(Protocol):
    """The connection a request is on."""

    def pause(self) -> None:
        """Stop reading."""

    def resume(self) -> None:
        """Read on."""

    def drop(self, failure: Failure | None) -> None:
        """End the connection and its request; None: without a word to the sink."""


class Desk(Protocol):
    """What a request needs of the pool. ``passing``: how many passed-through requests hold a connection."""

    passing: int

    def now(self) -> float:
        """Monotonic seconds."""

    def report(self, place: str, fault: BaseException) -> None:
        """Tell of a fault that ends here."""

    def forget(self, request: Request) -> None:
        """It has no connection and wants none any more."""

    def count(self, lack: Lack) -> None:
        """An exchange brought nothing."""


class Nobody:
    """The sink of an abandoned request."""

    def answered(self, head: Head, body: bytes) -> None:
        """Not heard."""

    def began(self, head: Head, length: int | None) -> None:
        """Not heard."""

    def more(self, chunk: bytes) -> None:
        """Not heard."""

    def ended(self) -> None:
        """Not heard."""

    def failed(self, failure: Failure) -> None:
        """Not heard."""


NOBODY: Final = Nobody()


class Request(msgspec.Struct, eq=False):
    """An `exchange.Exchange`: what `exchange.Sender.send` was given, and how far it has come.

    ``deadline`` is monotonic; ``on`` is the connection while it has one.
    """

    _desk: Desk
    body: bytes
    _sink: Sink
    lines: bytes
    timeout_s: float
    deadline: float
    submission: bool
    _repeatable: Callable[[], bool] | None
    before_write: Callable[[], bool] | None
    on: Carrier | None = None
    sent: bool = False
    paused: bool = False
    done: bool = False

    # what its sender says

    def pause(self) -> None:
        """Stop reading the answer. Meanwhile its deadline does not count: it is the client who is slow."""
        self.paused = True
        if self.on is not None:
            self.on.pause()

    def resume(self) -> None:
        """Read on."""
        if not self.paused:
            return
        self.paused = False
        if self.on is not None:
            self.progress()
            self.on.resume()

    def abandon(self) -> None:
        """Drop the request or its connection; the sink hears nothing further."""
        self._sink = NOBODY
        if self.on is not None:
            self.on.drop(None)
        elif not self.done:
            self._desk.forget(self)
            self.finish()

    # what pool and connection ask and say

    @property
    def arrived(self) -> float:
        """When it was sent, as long as it waits for its first connection."""
        return self.deadline - self.timeout_s

    def may_be_written(self) -> bool:
        """Asked right before the write. A question that raises is a no."""
        return self.before_write is None or self._asked(self.before_write)

    def may_be_repeated(self) -> bool:
        """Asked when a reused connection died under it. Whoever hands a transaction over never lets it be."""
        return self._repeatable is not None and self._asked(self._repeatable)

    def progress(self) -> None:
        """The answer has come a bit further: its deadline starts anew, but never a submission's."""
        if not self.submission:
            self.deadline = self._desk.now() + self.timeout_s

    def finish(self) -> None:
        """Over, one way or the other."""
        self.done = True
        self.on = None
        if self.sent and not self.submission:
            self._desk.passing -= 1

    def fail(self, failure: Failure) -> None:
        """No answer. What has been sent before can no longer be called unsent."""
        if self.done:
            return
        if self.sent and failure.lack is Lack.UNREACHABLE:
            failure = Failure(Lack.CUT_OFF, f"sent once on a connection that then closed, and {failure.detail}")
        self.finish()
        self._desk.count(failure.lack)
        self._tell_failed(failure)

    def withhold(self) -> None:
        """Its sender took it back before the write: not a failure of the node, so it is not counted."""
        if not self.done:
            self.finish()
            lack = Lack.CUT_OFF if self.sent else Lack.UNREACHABLE
            self._tell_failed(Failure(lack, "withheld by its sender at the moment of the write"))

    def answered(self, head: Head, body: bytes) -> None:
        """The request is finished already; so with `ended`."""
        try:
            self._sink.answered(head, body)
        except Exception as fault:  # noqa: BLE001 - a foreign callback's fault must not end the connection
            self._raised(fault)

    def began(self, head: Head, length: int | None) -> None:
        """The head, and more to come."""
        try:
            self._sink.began(head, length)
        except Exception as fault:  # noqa: BLE001 - as above
            self._raised(fault)

    def more(self, chunk: bytes) -> None:
        """The next bytes of the body."""
        try:
            self._sink.more(chunk)
        except Exception as fault:  # noqa: BLE001 - as above
            self._raised(fault)

    def ended(self) -> None:
        """The body is complete."""
        try:
            self._sink.ended()
        except Exception as fault:  # noqa: BLE001 - as above
            self._raised(fault)

    def _tell_failed(self, failure: Failure) -> None:
        try:
            self._sink.failed(failure)
        except Exception as fault:  # noqa: BLE001 - as above
            self._raised(fault)

    def _raised(self, fault: Exception) -> None:
        self._desk.report("upstream.sink", fault)
        if self.on is not None:
            self.on.drop(Failure(Lack.CUT_OFF, "the answer could not be handed on"))
        self._sink = NOBODY

    def _asked(self, question: Callable[[], bool]) -> bool:
        try:
            return question()
        except Exception as fault:  # noqa: BLE001 - as above; a no is always safe
            self._desk.report("upstream.sender", fault)
            return False


class Queue:
    """Who waits for a connection: first come, first served, but passed-through requests may have to stand aside."""

    __slots__ = ("passed", "submissions")

    def __init__(self) -> None:
        self.passed: deque[Request] = deque()
        self.submissions: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self.passed) + len(self.submissions)

    def push(self, request: Request) -> None:
        """To the end."""
        self._row(request).append(request)

    def put_back(self, request: Request) -> None:
        """To the front, where it was taken from."""
        self._row(request).appendleft(request)

    def pop(self, room: int) -> Request | None:
        """The one that has waited longest; a passed-through one only if there is ``room`` for it."""
        first = self.submissions[0] if self.submissions else None
        if room > 0 and self.passed and (first is None or self.passed[0].arrived <= first.arrived):
            return self.passed.popleft()
        return first and self.submissions.popleft()

    def wanted(self, room: int) -> int:
        """How many connections those who wait could use, ``room`` of them for passed-through ones."""
        return len(self.submissions) + min(len(self.passed), room)

    def discard(self, request: Request) -> None:
        """Take it out, if it is in."""
        with contextlib.suppress(ValueError):
            self._row(request).remove(request)

    def take_overdue(self, now: float) -> list[Request]:
        """Take out those whose deadline has come."""
        overdue = [request for row in (self.submissions, self.passed) for request in row if now >= request.deadline]
        for request in overdue:
            self.discard(request)
        return overdue

    def take_all(self) -> list[Request]:
        """Take out everybody."""
        everybody = [*self.submissions, *self.passed]
        self.submissions.clear()
        self.passed.clear()
        return everybody

    def _row(self, request: Request) -> deque[Request]:
        return self.submissions if request.submission else self.passed
