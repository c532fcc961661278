"""What the two sides of an upstream exchange say to each other.

Job: the types between whoever wants an upstream's answer (a sink) and the connection that gets it.
Rules: every method of a sink is called synchronously from the event loop's callbacks, never before `send` has
returned, never after `answered`, `ended` or `failed`, and must not raise (if one does, that is reported and the
answer is lost, nothing else); a sink that goes away calls `abandon`.
Must not know: JSON-RPC, clients, lanes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable


class Lack(Enum):
    """Why there is no answer. The values are the labels of the metric."""

    UNREACHABLE = "unreachable"
    """No connection could be had; not a byte was sent."""
    TIMED_OUT = "timed_out"
    """Sent (at least in part), and no complete answer in time."""
    CUT_OFF = "cut_off"
    """Sent (at least in part), and the connection ended before the answer was complete."""
    UNUSABLE = "unusable"
    """An answer came that is no HTTP/1.1 response."""


@dataclass(frozen=True, slots=True)
class Failure:
    """No answer, why, and in words that a client may read: no address.

    Only `Lack.UNREACHABLE` proves that nothing was sent.
    """

    lack: Lack
    detail: str


SHUT_DOWN: Final = Failure(Lack.CUT_OFF, "the instance is shutting down; the call may have been carried out")
"""Said by whoever gives an exchange up because the drain is over."""


class Head(msgspec.Struct, frozen=True, gc=False):
    """The head of an upstream's answer, ready to be written to a client.

    ``lines``: the end-to-end header lines, each ended by CRLF, as they came (Date and Server too: they are the
    node's); without hop-by-hop headers, Content-Length, Transfer-Encoding, Access-Control-* and the Origin in Vary,
    which the client's side writes.
    """

    status: int
    reason: bytes
    lines: bytes


class Sink(Protocol):
    """Who gets the answer: either `answered`, or `began` then `more`… then `ended`; `failed` at any point instead."""

    def answered(self, head: Head, body: bytes) -> None:
        """The whole answer at once (the usual case)."""

    def began(self, head: Head, length: int | None) -> None:
        """The head of an answer whose body follows; ``length`` in bytes where the upstream named it."""

    def more(self, chunk: bytes) -> None:
        """The next bytes of the body, decoded from chunks, still compressed if they were.

        What was read before `Exchange.pause` still comes.
        """

    def ended(self) -> None:
        """The body is complete."""

    def failed(self, failure: Failure) -> None:
        """There is no (complete) answer. After `began` this means that the client must see a cut."""


class Exchange(Protocol):
    """One request on its way. Calls after the end do nothing."""

    def pause(self) -> None:
        """Stop reading the answer: the client does not take it."""

    def resume(self) -> None:
        """Read on."""

    def abandon(self) -> None:
        """Nobody wants the answer any more: drop the request or its connection. The sink hears nothing further."""


class Sender(Protocol):
    """Sends requests to the upstream (`relay.upstream.pool.Pool`)."""

    def send(  # noqa: PLR0913 - each is a fact about this one request, and most callers name one or two
        self,
        body: bytes,
        sink: Sink,
        *,
        lines: bytes = b"",
        timeout_s: float | None = None,
        submission: bool = False,
        repeatable: Callable[[], bool] | None = None,
        before_write: Callable[[], bool] | None = None,
    ) -> Exchange:
        """Post ``body``.

        ``lines``: further header lines, each ended by CRLF, for the request's head (a client's, already filtered).
        ``timeout_s``: bound for the wait for a free connection and the answer's head, then for each pause in its
        body; for a submission for all of it, however the answer trickles. None: the configured one. Up to a
        quarter of a second may be added.
        ``submission``: for a lane's sake (a transaction, or a read that one waits for): may use the connections kept
        for those.
        ``repeatable``: asked only when a reused connection ended without one byte of an answer: may this request be
        sent once more on a fresh connection? None: never, as for every request that hands a transaction over.
        ``before_write``: asked in the same synchronous stretch as each write to an open connection; if it says no,
        nothing is written and the sink hears `failed` with `Lack.UNREACHABLE`.
        """
