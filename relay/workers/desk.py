"""The desk of the lane process: tickets come over links, outcomes go back.

Job: accept links on a socket that outlives the process, take each ticket for the lanes, attach equal ones of other
workers, answer when the outcome is there; hand the lanes over to a replacement.
Rules
- A link that dies loses no ticket (G8): what it brought is carried out, and its outcome is dropped.
- Handing over: accept no more links (those that queue are the replacement's), begin no more turns, *return* what
  waits, answer what runs, and only then close. A link is closed after its forwarder has said that nothing follows on
  it, so that no ticket is on its way when it ends.
- A ticket that may have been sent by another process is not refused here: its outcome is unknown.
- A client that is told yes before the verdict is told so after the lanes know that it is.
Must not know: clients, how a ticket is carried out.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from relay.lifecycle import Mode
from relay.submission import Accepted
from relay.workers import messages
from relay.workers.frames import Garbled
from relay.workers.link import Link

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from relay.submission import Outcome, Submission
    from relay.submit import Submitter
    from relay.tasks import TaskOwner
    from relay.telemetry.metrics import Metrics
    from relay.workers.frames import Frame
    from relay.workers.muster import Muster

CLOSE_S: Final = 1.0
"""A forwarder that does not read does not keep the process from its end."""
PAUSE_S: Final = 0.25
"""After a link could not be accepted: the process is out of files, and a connection ends sooner or later."""


class _Waiter(NamedTuple):
    """A ticket at its forwarder. ``async_``: its client is answered as soon as the record is on disk."""

    link: Link
    number: int
    async_: bool


class LaneDesk:
    """See the module. ``sock`` listens already, and is not closed here; ``muster`` hears who has handed in."""

    def __init__(  # noqa: PLR0913 - the rooms it stands between
        self,
        submitter: Submitter,
        sock: socket.socket,
        muster: Muster,
        metrics: Metrics,
        owner: TaskOwner,
        *,
        report: Callable[[str, BaseException], None],
        clock: Callable[[], float],
    ) -> None:
        self._submitter = submitter
        self._sock = sock
        self._muster = muster
        self._owner = owner
        self._report = report
        self._clock = clock
        self._links: set[Link] = set()
        self._staying: set[Link] = set()
        """Links on which a ticket may still come."""
        self._waiters: dict[Submission, list[_Waiter]] = {}
        self._copies: set[Submission] = set()
        """Those that wait for others in flight, under keys of their own."""
        self._recorded: dict[tuple[Link, int], Submission] = {}
        """By ticket, with a journal only: those whose clients may be promised something."""
        self._leaving = False
        self._left = asyncio.Event()
        self._deserted = asyncio.Event()
        self._deserted.set()
        self._accepting: asyncio.Task[None] | None = None
        self._attached = metrics.attached.cell()

    def __repr__(self) -> str:
        return f"<desk: {len(self._waiters)} submissions of {len(self._links)} links{', leaving' * self._leaving}>"

    async def start(self) -> None:
        """Accept links, those first that queue at the socket."""
        self._sock.setblocking(False)  # noqa: FBT003 - the socket module's own spelling
        self._accepting = self._owner.spawn("links", self._accept_forever())

    async def _accept_forever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._sock)
                await self._open(connection)
            except OSError as error:
                self._report("links", error)
                await asyncio.sleep(PAUSE_S)

    async def _open(self, connection: socket.socket) -> None:
        link = Link(lambda frame: self._heard(link, frame), lambda _: self._dropped(link), answering=True)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: link, connection)
        except (OSError, asyncio.CancelledError):
            link.abort("not accepted")
            connection.close()
            raise
        if not link.closing:
            self._links.add(link)
            self._deserted.clear()
            self._staying.add(link)

    def _heard(self, link: Link, frame: Frame) -> None:
        match frame[:1]:
            case (messages.TICKET,):
                number, submission = messages.read_ticket(frame, self._clock())
                self._take(link, number, submission)
            case (messages.HANDED_IN,):
                self._muster.present(messages.read_number(frame))
            case (messages.PROMISE,):
                number = messages.read_number(frame)
                if (wanted := self._recorded.get((link, number))) is not None:
                    self._promise(wanted, lambda kept: link.send((messages.KEPT, number, kept)))
            case (messages.LEFT,):
                self._gone(link)
            case _:
                raise Garbled(f"a frame that no forwarder sends: {frame[:1]!r:.50}")

    def _dropped(self, link: Link) -> None:
        self._links.discard(link)
        if not self._links:
            self._deserted.set()
        self._gone(link)

    def _gone(self, link: Link) -> None:
        self._staying.discard(link)
        self._look_whether_left()

    # Tickets: synchronous from the frame to the ticket.

    def _take(self, link: Link, number: int, submission: Submission) -> None:
        if self._leaving:
            link.send((messages.RETURNED, number))
            return
        waiter = _Waiter(link, number, submission.mode is Mode.ACCEPTED)
        same = self._submitter.find(submission.key)
        if same is not None:
            same.maybe_sent |= submission.maybe_sent
            self._attached.n += 1
            self._wait(self._submitter.attach(same, submission.idempotency_key), waiter)
        elif (refusal := self._submitter.take(submission)) is not None:
            link.send(messages.outcome(number, submission.refused(refusal)))
        else:
            self._wait(submission, waiter)

    def _wait(self, submission: Submission, waiter: _Waiter) -> None:
        if submission not in self._waiters:
            self._waiters[submission] = []
            submission.outcome.add_done_callback(lambda _: self._answer(submission))
            if submission.original is not None:
                self._copies.add(submission)
        self._waiters[submission].append(waiter)
        if submission.admitted is not None:
            self._recorded[waiter.link, waiter.number] = submission
            submission.admitted.add_done_callback(
                lambda admitted: self._admitted(submission, waiter, admitted.result())
            )

    def _admitted(self, submission: Submission, waiter: _Waiter, result: Outcome) -> None:
        """Nothing if it was answered or returned meanwhile."""
        if (waiter.link, waiter.number) in self._recorded:
            if waiter.async_ and isinstance(result, Accepted):
                # Where it cannot be promised, the outcome follows.
                self._promise(submission, lambda kept: self._say_admitted(waiter, result) if kept else None)
            else:
                self._say_admitted(waiter, result)

    def _promise(self, submission: Submission, tell: Callable[[bool], None]) -> None:
        promised = self._submitter.promise(submission)
        if promised is None:
            tell(True)  # noqa: FBT003 - the one thing that is told
        else:
            promised.add_done_callback(lambda kept: tell(kept.result()))

    def _say_admitted(self, waiter: _Waiter, result: Outcome) -> None:
        if (waiter.link, waiter.number) in self._recorded:
            waiter.link.send(messages.admitted(waiter.number, result))

    def _answer(self, submission: Submission) -> None:
        outcome = submission.outcome.result()
        for waiter in self._dismiss(submission):
            waiter.link.send(messages.outcome(waiter.number, outcome))
        self._look_whether_left()

    def _return(self, submission: Submission) -> None:
        for one in (submission, *[copy for copy in self._copies if copy.original is submission]):
            for waiter in self._dismiss(one):
                waiter.link.send((messages.RETURNED, waiter.number))
        self._look_whether_left()

    def _dismiss(self, submission: Submission) -> list[_Waiter]:
        """They wait for it no longer."""
        waiters = self._waiters.pop(submission, [])
        self._copies.discard(submission)
        if submission.admitted is not None:
            for waiter in waiters:
                self._recorded.pop((waiter.link, waiter.number), None)
        return waiters

    def _look_whether_left(self) -> None:
        if self._leaving and not self._waiters and not self._staying:
            self._left.set()

    # The end.

    async def hand_over(self) -> None:
        """Give what waits back, finish what runs, and close. Takes as long as the longest turn, or until `give_up`."""
        self._leaving = True
        if self._accepting is not None:
            self._accepting.cancel()
        for link in self._links:
            link.send((messages.LEAVING,))
        self._submitter.hand_back(self._return)
        self._look_whether_left()
        await self._left.wait()
        await self.close()

    async def deserted(self) -> None:
        """Wait until no link is left."""
        await self._deserted.wait()

    def give_up(self) -> None:
        """Answer every ticket, now: refused if nothing was sent, else unknown."""
        self._submitter.give_up()
        self._left.set()

    async def close(self) -> None:
        """Write what was answered, for at most `CLOSE_S`, and close the links. Idempotent."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
        for submission in [one for one in self._waiters if one.outcome.done()]:
            self._answer(submission)  # its callback is yet to come
        links = list(self._links)
        for link in links:
            link.close()
        if links:
            await asyncio.wait([link.closed for link in links], timeout=CLOSE_S)
        for link in links:
            link.abort("closed here")
