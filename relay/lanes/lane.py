"""Lanes: one for each sender, one submission at a time, in nonce order.

Job: hold the tickets of a lane and say, synchronously, what happens next: whose turn it is, what must be asked of the
upstream first, who has waited too long, how long there is nothing to do. `relay.turns` does what is said here.
Rules
- `join` is synchronous; where a submission stands is decided before anybody can await anything.
- ``next`` is the next nonce as far as the lane knows. It starts from a pending count, rises by one when the accepted
  nonce equals it, and to a count that was read. After an answer that puts it in doubt it is forgotten and read afresh.
- A ticket at or below ``next`` waits for nothing. Above it is a gap: the ticket waits without holding the lane, until
  the lower nonces came or the gap is passed (`Lane.decide` says when), for all that waits above it at once.
- A ticket below ``next`` (every ticket, while ``next`` is unknown) is *unproven*: anyone can replay what a sender once
  signed. It takes no place in the queue until a count, read after it arrived, shows that its nonce is not spent. A
  cached count proves nothing, for a reorganisation can lower it.
- A lane with a ticket is never evicted.
Must not know: transactions, the upstream, tasks. Pure; time is handed in (monotonic seconds).
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from relay import errors
from relay.lanes.steps import ASK, REST, SLEEP, Effect, Go, Reading, Sleep, Ticket, TurnAway

if TYPE_CHECKING:
    from relay.errors import Refusal
    from relay.lanes.rules import Rules
    from relay.lanes.steps import Step

T = TypeVar("T")

UNPROVEN_FACTOR: Final = 4
"""Unproven tickets have a room of their own, this many times ``max_queue``: replays must not crowd out the sender."""

NEVER: Final = float("-inf")


class Lane(Generic[T]):
    """One sender's tickets. Mutable; touched only from the event loop's thread."""

    __slots__ = (
        "_arrivals",
        "_asked_next",
        "_blind",
        "_confirmed",
        "_gap",
        "_holder",
        "_next",
        "_open_to",
        "_reading",
        "_ready",
        "_risen",
        "_rules",
        "_unproven",
        "key",
        "runner",
    )

    def __init__(self, key: bytes, rules: Rules) -> None:
        self.key = key
        self.runner: Any = None
        self._rules = rules
        self._next: int | None = None
        self._risen = NEVER
        self._holder: Ticket[T] | None = None
        self._reading: Reading[T] | None = None
        self._forget_the_moment()

    def _forget_the_moment(self) -> None:
        """What exists only while the lane is busy: 100,000 idle lanes must stay small."""
        self._ready: list[Ticket[T]] | None = None
        self._unproven: list[Ticket[T]] | None = None
        self._arrivals: deque[Ticket[T]] | None = None
        self._open_to = -1
        self._asked_next: int | None = None
        self._confirmed = NEVER
        self._blind = False
        self._gap = False

    def __repr__(self) -> str:
        return (
            f"<lane {self.key.hex()}: next {self._next}, {self.waiting} waiting"
            f"{f', {self._holder} holds' if self._holder else ''}{', asking' if self._reading else ''}>"
        )

    @property
    def next(self) -> int | None:
        """The next nonce as far as the lane knows."""
        return self._next

    @property
    def waiting(self) -> int:
        """Tickets without a turn, unproven ones included."""
        return len(self._ready or ()) + len(self._unproven or ())

    @property
    def idle(self) -> bool:
        """No ticket at all."""
        return self._holder is None and not self._ready and not self._unproven

    def join(self, submission: T, nonce: int, now: float, number: int) -> Ticket[T] | Refusal:
        """Take a ticket. Synchronous: the caller has not awaited anything since the request was complete."""
        if self._ready is None or self._unproven is None or self._arrivals is None:
            self._ready, self._unproven, self._arrivals = [], [], deque()
        room, limit = (
            (self._ready, self._rules.max_queue)
            if self._is_proven(nonce)
            else (self._unproven, self._rules.max_queue * UNPROVEN_FACTOR)
        )
        if len(room) >= limit:
            return errors.QUEUE_FULL.refusal(waiting=len(room))
        ticket = Ticket(submission, nonce, now, number)
        if room is self._ready:
            self._insert(ticket)
        else:
            room.append(ticket)
        self._arrivals.append(ticket)
        return ticket

    def decide(self, now: float) -> Step[T]:
        """What happens next. Asked again after each change; changes nothing but by turning tickets away."""
        if self._holder is not None:
            return SLEEP
        if not self._ready and not self._unproven:
            return REST
        if self._must_ask():
            return ASK
        head = self._ready[0] if self._ready else None
        if head is None or (self._reading and self._next is None and self._rules.by_nonce):
            return SLEEP
        if self._may_go(head):
            return Go(head)
        return self._at_gap(head, now)

    def granted(self, ticket: Ticket[T]) -> None:
        """``ticket`` begins its turn."""
        self._holder = ticket
        self._leave(ticket)
        if self._gap and self._next is not None and ticket.nonce <= self._next:
            self._gap = False
            self._rules.gaps.filled += 1

    def released(self, ticket: Ticket[T], effect: Effect, now: float) -> None:
        """The turn is over: the upstream has answered, or never will."""
        assert self._holder is ticket
        self._holder = None
        if effect is Effect.DOUBTFUL:
            self._next = None
            self._open_to = -1
            self._blind = False
            if self._reading:
                self._reading.void = True
        elif effect is Effect.ACCEPTED and ticket.nonce == self._next:
            self._rise(ticket.nonce + 1, now)

    def asked(self, now: float) -> Reading[T]:
        """A read of the counts begins."""
        self._reading = Reading(now, list(self._unproven or ()))
        self._asked_next = self._next
        return self._reading

    def told(self, reading: Reading[T], pending: int | None, now: float) -> TurnAway[T] | None:
        """``reading`` has ended. ``pending`` is the count, None where the upstream did not say.

        Of the tickets it judged, those whose nonce is spent have been taken out before (`withdraw`); the rest is
        proven. Returns those for which the queue then has no room, the newest ones.
        """
        self._reading = None
        if not reading.void:
            self._confirmed = reading.began
            self._blind = pending is None
            if pending is not None:
                self._learn(pending, now)
        return self._admit([ticket for ticket in reading.judged if ticket.waiting])

    def withdraw(self, ticket: Ticket[T]) -> None:
        """``ticket`` leaves without a turn: its nonce is spent, or the instance drains."""
        self._leave(ticket)

    def turn_all_away(self, refusal: Refusal) -> TurnAway[T]:
        """Every waiting ticket leaves (drain)."""
        leaving = self._empty(self._ready) + self._empty(self._unproven)
        return TurnAway([(ticket, refusal) for ticket in leaving])

    def overdue(self, now: float) -> TurnAway[T] | None:
        """Those whose turn did not begin within the limit leave; arrival order is the order of the limits."""
        late = []
        arrivals = self._arrivals
        while arrivals and (not arrivals[0].waiting or now >= arrivals[0].arrived + self._rules.wait_s):
            ticket = arrivals.popleft()
            if ticket.waiting:
                self._leave(ticket)
                late.append((ticket, errors.WAITED_TOO_LONG.refusal(seconds=now - ticket.arrived)))
        return TurnAway(late) if late else None

    def rest(self) -> None:
        """The lane is idle: keep only what the next burst can use."""
        assert self.idle
        self._forget_the_moment()

    # Which tickets may go.

    def _is_proven(self, nonce: int) -> bool:
        return not self._rules.by_nonce or (self._next is not None and nonce >= self._next)

    def _may_go(self, head: Ticket[T]) -> bool:
        return not self._rules.by_nonce or self._next is None or head.nonce <= max(self._next, self._open_to)

    def _must_ask(self) -> bool:
        if self._reading or not self._rules.by_nonce:
            return False
        if self._unproven:
            return True
        if self._next is None:
            return not self._blind
        head = self._ready[0] if self._ready else None
        return head is not None and not self._may_go(head) and self._asked_next != self._next

    def _at_gap(self, head: Ticket[T], now: float) -> Step[T]:
        """``head`` waits above a gap.

        Passed when the ticket is older than the window, ``next`` has not risen for a window, nobody holds the lane and
        no lower ticket waits (both true here), and the upstream, asked after all of that came true, says the same.
        """
        self._gap = True
        passes = max(head.arrived, self._risen) + self._rules.window_s
        if now < passes:
            return Sleep(passes)
        if self._reading:
            return SLEEP
        if self._confirmed < passes:
            return ASK
        assert self._ready
        assert self._next is not None
        self._gap = False
        if self._rules.forward_gaps:
            self._open_to = self._ready[-1].nonce
            self._rules.gaps.forwarded += 1
            return Go(head)
        self._rules.gaps.refused += 1
        return TurnAway(
            [
                (ticket, errors.NONCE_GAP.refusal(next=self._next, nonce=ticket.nonce))
                for ticket in self._empty(self._ready)
            ]
        )

    # Bookkeeping.

    def _learn(self, pending: int, now: float) -> None:
        """A count was read. It never lowers ``next``: it may lag behind what the node has already accepted."""
        if self._next is None:
            self._next = self._asked_next = pending
        elif pending > self._next:
            self._rise(pending, now)
            self._asked_next = pending

    def _rise(self, nonce: int, now: float) -> None:
        self._next = nonce
        self._risen = now

    def _insert(self, ticket: Ticket[T]) -> None:
        assert self._ready is not None
        insort(self._ready, ticket, key=self._rules.sort_key)

    def _admit(self, proven: list[Ticket[T]]) -> TurnAway[T] | None:
        """Unproven tickets become proven; the newest ones above ``max_queue`` find no room."""
        if self._ready is None or self._unproven is None:
            return None
        members = set(proven)
        self._unproven[:] = [ticket for ticket in self._unproven if ticket not in members]
        room = max(0, self._rules.max_queue - len(self._ready))
        for ticket in proven[:room]:
            self._insert(ticket)
        surplus = proven[room:]
        for ticket in surplus:
            ticket.waiting = False
        full = errors.QUEUE_FULL.refusal(waiting=self._rules.max_queue)
        return TurnAway([(ticket, full) for ticket in surplus]) if surplus else None

    def _leave(self, ticket: Ticket[T]) -> None:
        ticket.waiting = False
        for room in (self._ready, self._unproven):
            if room and room[0] is ticket:
                del room[0]
                return
        for room in (self._ready, self._unproven):
            if room and ticket in room:
                room.remove(ticket)
                return

    @staticmethod
    def _empty(room: list[Ticket[T]] | None) -> list[Ticket[T]]:
        leaving = list(room or ())
        if room:
            room.clear()
        for ticket in leaving:
            ticket.waiting = False
        return leaving
