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
- One turn at a time. A turn is one ticket's, or that of a run: tickets of consecutive nonces, of which `Lane.following`
  says how far they reach. Each has an end of its own.
- A lane with a ticket is never evicted.
Must not know: transactions, the upstream, tasks. Pure; time is handed in (monotonic seconds).
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from relay import errors
from relay.lanes.steps import ASK, REST, SLEEP, Effect, Go, Pass, Reading, Sleep, Ticket, TurnAway

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relay.errors import Refusal
    from relay.lanes.rules import Rules
    from relay.lanes.steps import Step

T = TypeVar("T")

UNPROVEN_FACTOR: Final = 4
"""Unproven tickets have a room of their own, this many times ``max_queue``: replays must not crowd out the sender."""

LOOK_S: Final = 0.05
"""While a gap is open the upstream is asked again after this, and each time after twice as long: what goes by other
ways (another instance, while nothing tells of it) must not cost a whole window."""

NEVER: Final = float("-inf")
_ARRIVED: Final = attrgetter("arrived")


class _Moment(Generic[T]):
    """What a lane holds while it is busy. Idle ones have none: 100,000 of them must stay small."""

    __slots__ = (
        "arrivals",
        "asked_next",
        "blind",
        "confirmed",
        "gap",
        "holders",
        "looks",
        "open_to",
        "reading",
        "ready",
        "risen",
        "unproven",
    )

    def __init__(self) -> None:
        self.ready: list[Ticket[T]] = []
        """Proven tickets, in the order of the rules."""
        self.unproven: list[Ticket[T]] = []
        """As they came."""
        self.arrivals: deque[Ticket[T]] = deque()
        """All that waited, as they came; those that left are dropped when they reach the front."""
        self.holders: list[Ticket[T]] = []
        """Whose turn it is: nobody's, one's, or a run's."""
        self.reading: Reading[T] | None = None
        self.risen = NEVER
        """When ``next`` last rose."""
        self.open_to = -1
        """Nonces up to here may go: their gap was passed."""
        self.asked_next: int | None = None
        """The ``next`` of which the upstream was last asked whether it knows more."""
        self.confirmed = NEVER
        """When the last read that counts began."""
        self.looks = 0
        """How often the upstream was asked since ``next`` last moved."""
        self.blind = False
        """The last read brought no count: go without."""
        self.gap = False
        """The head has been waiting above a gap."""


_IDLE: Final[_Moment[Any]] = _Moment()
"""The moment of every idle lane; never written to."""


class Lane(Generic[T]):
    """One sender's tickets. Mutable; touched only from the event loop's thread."""

    __slots__ = ("_moment", "_next", "_rules", "fence", "key", "runner")

    def __init__(self, key: bytes, rules: Rules) -> None:
        self.key = key
        self.runner: Any = None
        self.fence = 0
        self._rules = rules
        self._next: int | None = None
        self._moment: _Moment[T] = _IDLE

    def __repr__(self) -> str:
        moment = self._moment
        holds = f", {moment.holders} hold" if moment.holders else ""
        asks = ", asking" if moment.reading else ""
        return f"<lane {self.key.hex()}: next {self._next}, {self.waiting} waiting{holds}{asks}>"

    @property
    def next(self) -> int | None:
        """The next nonce as far as the lane knows."""
        return self._next

    @property
    def waiting(self) -> int:
        """Tickets without a turn, unproven ones included."""
        return len(self._moment.ready) + len(self._moment.unproven)

    @property
    def head(self) -> int | None:
        """The lowest nonce that wants a turn; among unproven ones only while nothing is known of the lane."""
        moment = self._moment
        if moment.ready:
            return moment.ready[0].nonce
        if self._next is None and moment.unproven:
            return min(ticket.nonce for ticket in moment.unproven)
        return None

    @property
    def in_doubt(self) -> bool:
        """``next`` is not known, and can still be asked for."""
        return self._rules.by_nonce and self._next is None and not self._moment.blind

    def join(
        self, submission: T, nonce: int, arrived: float, number: int, came: float | None = None
    ) -> Ticket[T] | Refusal:
        """Take a ticket, which ``came`` now, if not as it ``arrived``. Synchronous: the caller has awaited nothing."""
        moment = self._awake()
        proven = self._is_proven(nonce)
        room = moment.ready if proven else moment.unproven
        if len(room) >= self._rules.max_queue * (1 if proven else UNPROVEN_FACTOR):
            return errors.QUEUE_FULL.refusal(waiting=len(room))
        ticket = Ticket(submission, nonce, arrived, number, came)
        if proven:
            self._insert(ticket)
        else:
            room.append(ticket)
        if moment.arrivals and moment.arrivals[-1].arrived > arrived:
            insort(moment.arrivals, ticket, key=_ARRIVED)  # it comes a second time, by way of another process
        else:
            moment.arrivals.append(ticket)
        return ticket

    def decide(self, now: float, gaps_from: float = NEVER) -> Step[T]:
        """What happens next. Asked again after each change; changes nothing but by turning tickets away.

        ``gaps_from``: no gap counts as older than this; infinite while none can be told from what is yet to come.
        """
        moment = self._moment
        if moment.holders:
            return SLEEP
        if not moment.ready and not moment.unproven:
            return SLEEP if moment.reading else REST
        if self._must_ask():
            return ASK
        head = moment.ready[0] if moment.ready else None
        if head is None or (moment.reading and self._next is None and not moment.blind and self._rules.by_nonce):
            return SLEEP
        if self._may_go(head):
            return Go(head)
        return self._at_gap(head, now, gaps_from)

    def following(self, head: Ticket[T]) -> Iterator[Ticket[T]]:
        """What may share the turn of ``head``, which may go: the proven tickets behind it, nonce by nonce.

        None over a gap, and none while ``next`` is unknown: such a head tries what the others had better wait for. A
        second ticket of a nonce ends it. To be read before anything changes.
        """
        if not self._rules.by_nonce or self._next is None or head.nonce > self._next:
            return
        behind = islice(self._moment.ready, 1, None)
        for nonce, ticket in enumerate(behind, head.nonce + 1):
            if ticket.nonce != nonce:
                return
            yield ticket

    def granted(self, ticket: Ticket[T]) -> None:
        """``ticket`` begins its turn, alone or after the others of its run."""
        moment = self._moment
        moment.holders.append(ticket)
        self._leave(ticket)
        if moment.gap and self._next is not None and ticket.nonce <= self._next:
            moment.gap = False
            self._rules.gaps.filled += 1

    def released(self, ticket: Ticket[T], effect: Effect, now: float) -> None:
        """Its part of the turn is over: the upstream has answered, or never will. A run ends in nonce order."""
        moment = self._moment
        moment.holders.remove(ticket)
        if effect is Effect.DOUBTFUL:
            self._next = None
            moment.open_to = -1
            moment.blind = False
            if moment.reading:
                moment.reading.void = True
        elif effect is Effect.WITHHELD:
            self._return(ticket)
        elif effect is Effect.ACCEPTED and ticket.nonce == self._next:
            self._rise(ticket.nonce + 1, now)

    def asked(self, now: float) -> Reading[T]:
        """A read of the counts begins."""
        moment = self._awake()
        moment.asked_next = self._next
        moment.looks += 1
        moment.reading = Reading(now, list(moment.unproven))
        return moment.reading

    def told(self, reading: Reading[T], pending: int | None, now: float) -> TurnAway[T] | None:
        """``reading`` has ended. ``pending`` is the count, None where the upstream did not say.

        Of the tickets it judged, those whose nonce is spent have been taken out before (`withdraw`); the rest is
        proven. Returns those for which the queue then has no room, the newest ones.
        """
        moment = self._moment
        moment.reading = None
        if not reading.void:
            moment.confirmed = reading.began
            moment.blind = pending is None
            if pending is not None:
                self._learn(pending, now)
        return self._admit([ticket for ticket in reading.judged if ticket.waiting])

    def learn(self, next_: int, now: float) -> bool:
        """Another instance knows ``next_``. Says whether that is news. Not while `in_doubt`."""
        if not self._rules.by_nonce or (self._next is not None and next_ <= self._next):
            return False
        self._awake()
        self._rise(next_, now)
        return True

    def pass_gap(self) -> Go[T] | TurnAway[T]:
        """The gap below the head is passed, for all that waits above it: forwarded, or refused."""
        moment = self._moment
        moment.gap = False
        if self._rules.forward_gaps:
            moment.open_to = moment.ready[-1].nonce
            self._rules.gaps.forwarded += 1
            return Go(moment.ready[0])
        self._rules.gaps.refused += 1
        return self._refuse_gap()

    def withdraw(self, ticket: Ticket[T]) -> None:
        """``ticket`` leaves without a turn: its nonce is spent, or the instance drains."""
        self._leave(ticket)

    def turn_all_away(self, refusal: Refusal) -> TurnAway[T]:
        """Every waiting ticket leaves (drain)."""
        leaving = self._empty(self._moment.ready) + self._empty(self._moment.unproven)
        return TurnAway([(ticket, refusal) for ticket in leaving])

    def overdue(self, now: float) -> TurnAway[T] | None:
        """Those whose turn did not begin within the limit leave; arrival order is the order of the limits."""
        late = []
        arrivals = self._moment.arrivals
        while arrivals and (not arrivals[0].waiting or now >= arrivals[0].arrived + self._rules.wait_s):
            ticket = arrivals.popleft()
            if ticket.waiting:
                self._leave(ticket)
                late.append((ticket, errors.WAITED_TOO_LONG.refusal(seconds=now - ticket.arrived)))
        return TurnAway(late) if late else None

    def rest(self) -> None:
        """The lane is idle: keep only what the next burst can use."""
        moment = self._moment
        busy = moment.ready or moment.unproven or moment.holders or moment.reading
        assert not busy
        self._moment = _IDLE

    # Which tickets may go.

    def _is_proven(self, nonce: int) -> bool:
        return not self._rules.by_nonce or (self._next is not None and nonce >= self._next)

    def _may_go(self, head: Ticket[T]) -> bool:
        return not self._rules.by_nonce or self._next is None or head.nonce <= max(self._next, self._moment.open_to)

    def _must_ask(self) -> bool:
        moment = self._moment
        if moment.reading or not self._rules.by_nonce:
            return False
        if moment.unproven:
            return True
        if self._next is None:
            return not moment.blind
        head = moment.ready[0] if moment.ready else None
        if head is None or self._may_go(head):
            return False
        # Where the lane is shared, who holds it tells of each step of `next`: asking at each would cost a read for each
        # transaction of a burst. What came to the node by other ways is found once for each head, and at the window.
        return moment.confirmed < head.arrived if self._rules.shared else moment.asked_next != self._next

    def _at_gap(self, head: Ticket[T], now: float, gaps_from: float) -> Step[T]:
        """``head`` waits above a gap.

        The upstream is looked at again and again, more and more seldom: what fills the gap may go by other ways.
        Passed when the ticket has been here for a window, ``next`` has not risen for as long, nobody holds the lane and
        no lower ticket waits (both true here), and the upstream, asked after all of that came true, says the same.
        """
        moment = self._moment
        moment.gap = True
        passes = max(head.came, moment.risen, gaps_from) + self._rules.window_s
        if moment.reading:
            return SLEEP
        look = max(moment.confirmed, moment.risen) + LOOK_S * 2 ** min(moment.looks - 1, 16)
        if now < passes:
            return ASK if now >= look else Sleep(min(passes, look))
        if moment.confirmed < passes:
            return ASK
        return Pass(head) if self._rules.shared else self.pass_gap()

    def _refuse_gap(self) -> TurnAway[T]:
        assert self._next is not None
        refused = self._empty(self._moment.ready)
        return TurnAway([(one, errors.NONCE_GAP.refusal(next=self._next, nonce=one.nonce)) for one in refused])

    # Bookkeeping.

    def _awake(self) -> _Moment[T]:
        if self._moment is _IDLE:
            self._moment = _Moment()
        return self._moment

    def _learn(self, pending: int, now: float) -> None:
        """A count was read. It never lowers ``next``: it may lag behind what the node has already accepted."""
        if self._next is None:
            self._next = self._moment.asked_next = pending
        elif pending > self._next:
            self._rise(pending, now)
            self._moment.asked_next = pending

    def _rise(self, nonce: int, now: float) -> None:
        self._next = nonce
        self._moment.risen = now
        self._moment.looks = 0

    def _insert(self, ticket: Ticket[T]) -> None:
        insort(self._moment.ready, ticket, key=self._rules.sort_key)

    def _return(self, ticket: Ticket[T]) -> None:
        """Its turn came to nothing: it waits on, by the limits of its arrival."""
        ticket.waiting = True
        self._insert(ticket)
        if ticket not in self._moment.arrivals:
            insort(self._moment.arrivals, ticket, key=_ARRIVED)

    def _admit(self, proven: list[Ticket[T]]) -> TurnAway[T] | None:
        """Unproven tickets become proven; the newest ones above ``max_queue`` find no room."""
        moment = self._moment
        members = set(proven)
        moment.unproven[:] = [ticket for ticket in moment.unproven if ticket not in members]
        room = max(0, self._rules.max_queue - len(moment.ready))
        for ticket in proven[:room]:
            self._insert(ticket)
        surplus = proven[room:]
        for ticket in surplus:
            ticket.waiting = False
        if not surplus:
            return None
        full = errors.QUEUE_FULL.refusal(waiting=self._rules.max_queue)
        return TurnAway([(ticket, full) for ticket in surplus])

    def _leave(self, ticket: Ticket[T]) -> None:
        ticket.waiting = False
        for room in (self._moment.ready, self._moment.unproven):
            if room and room[0] is ticket:
                del room[0]
                return
        for room in (self._moment.ready, self._moment.unproven):
            if room and ticket in room:
                room.remove(ticket)
                return

    @staticmethod
    def _empty(room: list[Ticket[T]]) -> list[Ticket[T]]:
        leaving = room.copy()
        room.clear()
        for ticket in leaving:
            ticket.waiting = False
        return leaving
