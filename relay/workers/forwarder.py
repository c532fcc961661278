"""The desk of a worker that takes clients: each ticket goes over a link to the lane process.

    waiting ──── link ───► with the lane process ──── outcome ───► answered
       ▲                      │        │
       ├────── returned ──────┘        │          too old: answered here, by what is known
       └─ marked maybe sent ◄─ drop ───┘

Job: number the tickets, attach equal ones, send them, and send them again to whoever replaces the lane process.
Rules
- A ticket that was written to a link which then drops may be at the node (G6): it is sent again marked, in the old
  order and with its first arrival, and is never called a failure here. One that was returned, or never written, is not.
- Nothing waits for ever (G5): the lane process answers within ``max_wait_s``; what is older than that and `SLACK_S` is
  answered here. One sweep for all tickets.
- A lane process that leaves is sent no further ticket; what it keeps it will answer.
- A copy with a key of its own is a ticket of its own: only the journal knows whether the key may be used.
Must not know: lanes, the upstream, what an outcome means.
"""

from __future__ import annotations

import asyncio
from itertools import count, takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from relay import errors
from relay.lifecycle import Mode
from relay.submit import MAX_INFLIGHT_BYTES
from relay.telemetry.metrics import REFUSALS
from relay.workers import messages
from relay.workers.frames import Garbled
from relay.workers.link import Link

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.config import Settings
    from relay.errors import Refusal
    from relay.submission import Outcome, Submission
    from relay.tasks import TaskOwner
    from relay.telemetry.metrics import Metrics
    from relay.workers.frames import Frame

SLACK_S: Final = 2.0
"""The lane process decides last, if it lives."""
SWEEP_S: Final = 0.25
PAUSES_S: Final = (0.0, 0.01, 0.02, 0.05, 0.1, 0.25)
"""Between tries to connect; the last one repeats."""
STEADY_S: Final = 1.0
"""A link that lived so long was no failed try."""
OUTAGE_S: Final = 1.0
"""Longer than a link is down while a lane process hands over or is replaced."""


class LinkCheck(NamedTuple):
    """What /readyz says of the link."""

    ready: bool
    detail: str


class _Ticket:
    """``link``: who has it; None while it waits for one."""

    __slots__ = ("link", "number", "submission")

    def __init__(self, number: int, submission: Submission) -> None:
        self.number = number
        self.submission = submission
        self.link: Link | None = None


class Forwarder:
    """See the module. ``owner`` keeps the two tasks that run until `close`; ``name``: of this process."""

    def __init__(
        self,
        path: str,
        settings: Settings,
        metrics: Metrics,
        owner: TaskOwner,
        *,
        clock: Callable[[], float],
        name: int,
    ) -> None:
        self._path = path
        self._name = name
        self._longest_s = settings.ordering.max_wait_s + SLACK_S
        self._owner = owner
        self._clock = clock
        self._numbers = count(1)
        self._tickets: dict[int, _Ticket] = {}
        """All that are not answered yet, oldest first."""
        self._inflight: dict[tuple[str, bytes], _Ticket] = {}
        self._copies: dict[Submission, _Ticket] = {}
        """Those of further clients, which wait for what is in flight under keys of their own."""
        self._inflight_bytes = 0
        self._link: Link | None = None
        """Where tickets go; a link that its lane process is leaving is this no more."""
        self._opening: Link | None = None
        """The last one that was connected."""
        self._links: set[Link] = set()
        self._unlinked = asyncio.Event()
        self._linkless_since = clock()
        self._no_link_for = "not tried yet"
        """Why the last try failed, for an operator."""
        self._outage_told = False
        self._draining = False
        self._tasks: list[asyncio.Task[None]] = []
        self._log = structlog.get_logger("relay.workers")
        self._refusals = {name: metrics.lane_refusals.cell(name) for name in REFUSALS}
        self._drops = metrics.link_drops.cell()
        self._again = {why: metrics.forwarded_again.cell(why) for why in ("returned", "maybe_sent")}
        metrics.forwarded.read_from(lambda: len(self._tickets))

    def __repr__(self) -> str:
        return f"<forwarder: {len(self._tickets)} tickets out, {self._link or 'no link'}>"

    @property
    def linked(self) -> bool:
        """Is there a lane process that takes tickets, as far as one can see from here?"""
        return self._link is not None

    def check(self) -> LinkCheck:
        """Can tickets be handed on? A link that is down for a moment is no trouble."""
        if self._link is not None:
            return LinkCheck(ready=True, detail="linked")
        seconds = self._clock() - self._linkless_since
        return LinkCheck(seconds < OUTAGE_S, f"no link to the lane process for {seconds:.1f} s: {self._no_link_for}")

    async def start(self) -> None:
        """Begin to look for the lane process. Tickets can be taken before it is there."""
        self._tasks = [
            self._owner.spawn("link", self._stay_linked()),
            self._owner.spawn("unanswered", self._sweep_forever()),
        ]

    # What the intake asks.

    def find(self, key: tuple[str, bytes]) -> Submission | None:
        """The submission of this key that this worker has handed on."""
        ticket = self._inflight.get(key)
        return ticket.submission if ticket is not None else None

    def take(self, submission: Submission) -> Refusal | None:
        """Number it and send it, at the end of this turn of the loop; without a link it waits for one."""
        if self._draining:
            return self._refuse(errors.DRAINING.refusal())
        if self._inflight_bytes + submission.size > MAX_INFLIGHT_BYTES:
            return self._refuse(errors.TOO_MUCH_WAITING.refusal(mib=self._inflight_bytes >> 20))
        self._inflight[submission.key] = self._new_ticket(submission)
        self._inflight_bytes += submission.size
        return None

    def attach(self, submission: Submission, key: str) -> Submission:
        """One more client wants it; under a key that is new the lane process is asked, by a ticket of its own."""
        submission.copies += 1
        if submission.serves(key):
            return submission
        copy = submission.copy_under(key)
        self._copies[copy] = self._new_ticket(copy)
        return copy

    def promise(self, submission: Submission) -> None:
        """A client is told yes before the verdict. The lane process hears of it, if it does not know yet."""
        if submission.mode is Mode.ACCEPTED:
            return
        submission.mode = submission.carrier.mode = Mode.ACCEPTED
        ticket = self._copies.get(submission) or self._inflight.get(submission.key)
        if ticket is not None and ticket.link is not None:
            ticket.link.send((messages.PROMISED, ticket.number))

    def _new_ticket(self, submission: Submission) -> _Ticket:
        ticket = _Ticket(next(self._numbers), submission)
        self._tickets[ticket.number] = ticket
        self._send(ticket)
        return ticket

    def _refuse(self, refusal: Refusal) -> Refusal:
        self._refusals[refusal.case.name].n += 1
        return refusal

    def _send(self, ticket: _Ticket) -> None:
        ticket.link = self._link
        if self._link is not None:
            self._link.send(messages.ticket(ticket.number, ticket.submission))

    def _finish(self, ticket: _Ticket, outcome: Outcome) -> None:
        del self._tickets[ticket.number]
        if self._copies.pop(ticket.submission, None) is None:
            del self._inflight[ticket.submission.key]
            self._inflight_bytes -= ticket.submission.size
        ticket.submission.outcome.set_result(outcome)

    # The link.

    async def _stay_linked(self) -> None:
        failed = 0
        while True:
            began = self._clock()
            await self._use_one()
            failed = 0 if self._clock() - began >= STEADY_S else min(failed + 1, len(PAUSES_S) - 1)
            await asyncio.sleep(PAUSES_S[failed])

    async def _use_one(self) -> None:
        """One link, until it is of no more use."""
        self._unlinked.clear()
        try:
            _, link = await asyncio.get_running_loop().create_unix_connection(self._new_link, self._path)
        except OSError as error:
            self._no_link_for = str(error)
            return
        if not link.closing:
            self._links.add(link)
            self._opening = link
            self._no_link_for = "it does not answer"
            await self._unlinked.wait()

    def _new_link(self) -> Link:
        # Not yet one of ours: it may never be connected, and nobody would say so.
        link = Link(
            lambda frame: self._heard(link, frame),
            lambda why: self._dropped(link, why),
            on_greeted=lambda: self._linked(link),
        )
        return link

    def _linked(self, link: Link) -> None:
        """A lane process speaks: only now is it one, for the system takes connections in its absence, too."""
        self._link = link
        self._send_waiting()
        link.send((messages.HANDED_IN, self._name))
        self._tell_end_of_outage()

    def _send_waiting(self) -> None:
        for ticket in self._tickets.values():
            if ticket.link is None:
                self._send(ticket)

    def _heard(self, link: Link, frame: Frame) -> None:
        match frame[:1]:
            case (messages.OUTCOME,):
                number, outcome = messages.read_outcome(frame)
                if (ticket := self._tickets.get(number)) is not None:  # else it was answered here, long ago
                    self._finish(ticket, outcome)
            case (messages.ADMITTED,):
                self._admitted(*messages.read_outcome(frame))
            case (messages.RETURNED,):
                self._returned(messages.read_number(frame))
            case (messages.LEAVING,):
                self._leave(link)
            case _:
                raise Garbled(f"a frame that no desk sends: {frame[:1]!r:.50}")

    def _admitted(self, number: int, outcome: Outcome) -> None:
        ticket = self._tickets.get(number)
        admitted = ticket.submission.admitted if ticket is not None else None
        if admitted is not None and not admitted.done():  # the lane process before may have said so already
            admitted.set_result(outcome)

    def _returned(self, number: int) -> None:
        if (ticket := self._tickets.get(number)) is not None:
            self._again["returned"].n += 1
            self._send(ticket)

    def _leave(self, link: Link) -> None:
        link.send((messages.LEFT,))
        self._unlink(link)

    def _unlink(self, link: Link) -> None:
        if self._link is link:
            self._link = None
            self._linkless_since = self._clock()
            self._unlinked.set()
        elif self._opening is link and self._link is None:
            self._unlinked.set()

    def _tell_outage(self) -> None:
        found = self.check()
        if not found.ready and not self._outage_told:
            self._outage_told = True
            self._log.warning("no link to the lane process, submissions wait", reason=self._no_link_for)

    def _tell_end_of_outage(self) -> None:
        if self._outage_told:
            self._outage_told = False
            seconds = round(self._clock() - self._linkless_since, 1)
            self._log.info("linked to the lane process again", seconds=seconds)

    def _dropped(self, link: Link, why: str) -> None:
        self._links.discard(link)
        self._no_link_for = why
        self._unlink(link)
        lost = [ticket for ticket in self._tickets.values() if ticket.link is link]
        for ticket in lost:
            ticket.link = None
            ticket.submission.maybe_sent = True
        if lost:
            self._drops.n += 1
            self._again["maybe_sent"].n += len(lost)
            self._log.warning("the lane process is gone", tickets=len(lost), detail=why)
        if self._link is not None:
            self._send_waiting()

    # The end of waiting.

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self._tell_outage()
            self.sweep()

    def sweep(self) -> None:
        """Answer what nobody answers."""
        oldest = self._clock() - self._longest_s
        for ticket in list(takewhile(lambda ticket: ticket.submission.arrived < oldest, self._tickets.values())):
            seconds = self._clock() - ticket.submission.arrived
            self._answer_here(ticket, errors.LANES_UNAVAILABLE.refusal(seconds=seconds))

    def _answer_here(self, ticket: _Ticket, refusal: Refusal) -> None:
        """``refusal``, if it is certain that nothing was sent."""
        certain = ticket.link is None and not ticket.submission.maybe_sent
        self._finish(ticket, self._refuse(refusal) if certain else ticket.submission.unknown)

    def stop_taking(self) -> None:
        """From now on new submissions are refused; copies of those handed on still attach."""
        self._draining = True

    def give_up(self) -> None:
        """The drain is over: answer whoever still waits, by what is known here."""
        for ticket in list(self._tickets.values()):
            self._answer_here(ticket, errors.DRAINING.refusal())

    async def close(self) -> None:
        """Close the links. Idempotent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        links = list(self._links)
        for link in links:
            link.abort("closed here")
        await asyncio.gather(*(link.closed for link in links))
