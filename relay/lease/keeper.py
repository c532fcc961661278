"""One lane's lease, as its instance sees it: what to say to the server next, and whether anything may be sent.

        need            held, gap              grant, yours
    idle ──────► entering ───────► waiting ────────────────────┐
     ▲             │  ▲              │ ▲ poll, need: enter    ▼
     │             │  └──────────────┘ │                   holding ◄─┐ yours
     │           yours ───────────────────────────────────►  │ │ └────┘
     │                            │ need                     │ │
     └───────────────── leaving ◄─┴──────────────────────────┘ │ renew: no
                                                               ▼
                                                    lost ──► entering | idle (when the turn has ended)

Job: the state machine. The lane says what it needs (`require`), the server what it answers and pushes; `command` is
what to say next, `may_send` whether a write may happen at this very instant.
Rules
- One command in flight. A deadline counts from before the request left; a pushed grant's from before the registration
  left that it answers, plus the age it carries: a waiter that was paused must not think that a lease is young.
- A grant is adopted only if it answers one of the last two registrations, its fence is above all seen here, its
  deadline is ahead and somebody still waits. Whatever else brings a lease that nobody wants is given back at once.
- A lease is kept as long as the own head is at or below ``next``; over a gap it is good for one ticket.
- Nothing is written under a lease that is lost.
Must not know: Redis, tasks, transactions. Pure; time is handed in (seconds, a clock that counts suspends).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from relay.lease.protocol import (
    NOBODY,
    UNKNOWN,
    Done,
    Enter,
    Granted,
    Held,
    Hinted,
    InGap,
    Late,
    Leave,
    NotYours,
    Renew,
    Renewed,
    Wanted,
    Yours,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from relay.lease.protocol import Answer, Command, Push

NEVER: Final = float("inf")
AFTER_EXPIRY_S: Final = 0.003
"""A poll comes this much after the expiry of the lease that it waits for."""


class State(Enum):
    """See the picture above."""

    IDLE = "idle"
    ENTERING = "entering"
    WAITING = "waiting"
    HOLDING = "holding"
    LEAVING = "leaving"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Timing:
    """`[redis]` and `[ordering]` as a keeper uses them. ``turns``, ``turns_s``: by arrival, a wanted lane goes on."""

    lease_s: float
    window_s: float
    by_arrival: bool = False
    poll_s: float = 1.0
    turns: int = 16
    turns_s: float = 0.25

    @property
    def margin_s(self) -> float:
        """The holder stops this much earlier than the server lets the lease expire."""
        return max(0.005, 0.02 * self.lease_s)

    @property
    def renew_s(self) -> float:
        """From one proof of the lease to the next."""
        return self.lease_s / 3


@dataclass(frozen=True, slots=True)
class Need:
    """What a lane wants the lease for: its lowest nonce, and whether the gap below it has been waited out.

    ``unsure``: the lane is about to learn its next nonce, so a lease that is held stays until it has.
    """

    head: int
    gap: bool = False
    unsure: bool = False


class Keeper:
    """See the module. ``known``: the lane's own next nonce. ``heard``: the highest next that the server told."""

    __slots__ = (
        "_deadline", "_flight", "_jitter", "_left", "_numbers", "_opened", "_poll", "_proven", "_renew", "_stray",
        "_timing", "_told", "_turns", "_wanted", "_wanted_since", "fence", "heard", "known", "need", "seen", "state",
        "turn",
    )  # fmt: skip

    def __init__(self, timing: Timing, numbers: Iterator[int], jitter: Callable[[], float], seen: int = 0) -> None:
        self._timing = timing
        self._numbers = numbers
        self._jitter = jitter
        self.state = State.IDLE
        self.need: Need | None = None
        self.known = UNKNOWN
        self.heard = UNKNOWN
        self.seen = seen
        self.fence = 0
        self.turn = False
        self._flight: Command | None = None
        self._told: tuple[Need, int] | None = None
        self._left: dict[int, float] = {}
        self._deadline = -NEVER
        self._opened = NOBODY
        self._poll = self._renew = NEVER
        self._proven = True
        self._stray = False
        self._wanted = NOBODY
        self._wanted_since = NEVER
        self._turns = 0

    def __repr__(self) -> str:
        return f"<keeper {self.state.value}: need {self.need}, known {self.known}, fence {self.fence}>"

    # What the lane says and asks.

    def require(self, need: Need | None, known: int) -> None:
        """What the lane needs from now on, and the next nonce as it knows it."""
        self.need = need
        self.known = known

    def begin_turn(self) -> None:
        """A submission of the lane is on its way."""
        self.turn = True
        self._turns += 1

    def end_turn(self) -> None:
        """It is answered, or never will be."""
        self.turn = False

    def may_send(self, now: float) -> bool:
        """Is the lease proven to be this instance's at this instant?"""
        return self.state is State.HOLDING and self._proven and now < self._deadline

    def may_begin(self, nonce: int, now: float) -> bool:
        """May a turn begin with ``nonce``?"""
        return self.may_send(now) and self._reaches(nonce) and not self._yields(nonce, now)

    def may_follow(self, nonce: int, now: float) -> bool:
        """May ``nonce`` share a turn that begins below it? Nobody lower is known to wait elsewhere."""
        return not self._yields(nonce, now)

    @property
    def forgettable(self) -> bool:
        """Nothing is under way and nothing is held."""
        return self.state is State.IDLE and self.need is None and self._flight is None and not self._stray

    # What to say to the server.

    def command(self, now: float) -> Command | None:
        """What to say now; it is in flight from then on."""
        if self._flight is not None:
            return None
        if self.state is State.LOST and not self.turn:
            self.state = State.IDLE
        command = self._next_command(now)
        if command is not None:
            self._flight = command
            self._left[command.registration] = now
            for old in sorted(self._left)[:-2]:
                del self._left[old]
        return command

    @property
    def due(self) -> float:
        """When to ask `command` again, if nothing happens before."""
        if self._flight is not None:
            return NEVER
        return {State.WAITING: self._poll, State.HOLDING: self._renew}.get(self.state, NEVER)

    def _next_command(self, now: float) -> Command | None:
        if self.state is State.HOLDING:
            return self._while_holding(now)
        if self.state is State.WAITING:
            if self.need is None:
                return self._give_back()
            return self._enter(self.need) if now >= self._poll or self._has_news(self.need) else None
        if self.state is State.IDLE and self.need is not None:
            return self._enter(self.need)
        return self._give_back() if self._stray else None

    def _while_holding(self, now: float) -> Command | None:
        need = self.need
        if not self.turn and need is None:
            return self._leave(None)
        if now >= self._renew or not self._proven:
            return Renew(next(self._numbers), self.fence)
        if self.turn or need is None or need.unsure:
            return None
        if not self._reaches(need.head) or self._yields(need.head, now):
            return self._leave(need)
        return None

    def _enter(self, need: Need) -> Enter:
        self.state = State.ENTERING
        self._stray = False
        self._told = (need, self._next())
        return Enter(next(self._numbers), self._place(need), self._next(), need.gap, self.seen)

    def _leave(self, need: Need | None) -> Leave:
        self.state = State.LEAVING
        known = self._next()
        self._told = (need, known) if need else None
        return Leave(next(self._numbers), self.fence, known, self._place(need) if need else NOBODY, known)

    def _give_back(self) -> Leave:
        """Whatever the server thinks that this instance has here: a place, or a lease that nobody wants."""
        if self.state is not State.LOST:
            self.state = State.LEAVING
        self._stray = False
        self._told = None
        return Leave(next(self._numbers), 0)

    def _place(self, need: Need) -> int:
        return 0 if self._timing.by_arrival else need.head

    def _next(self) -> int:
        """The next nonce, by what the lane knows and by what the server told that the lane has not taken in yet."""
        return UNKNOWN if self._timing.by_arrival else max(self.known, self.heard)

    # What the server says.

    def answered(self, command: Command, answer: Answer, now: float) -> None:
        """``command`` was answered."""
        if self._flight is not command:
            return  # given up meanwhile, or overtaken by a grant
        self._flight = None
        left = self._left[command.registration]
        match answer:
            case Yours(fence, _, over_gap):
                self._hold(fence, left)
                self._opened = self._told[0].head if over_gap and self._told else NOBODY
            case Held(ms):
                self._wait(now + min(ms / 1000 + AFTER_EXPIRY_S, self._poll_s()))
            case InGap(ms):
                self._wait(now + min(ms / 1000, self._poll_s()))
            case Renewed(lowest):
                self._prove(left)
                self._want(lowest, now)
            case NotYours() | Late():
                self._lose()
            case Done():
                self._leave_behind()
        if isinstance(answer, Yours | Held | InGap):
            self._hear(answer.next)

    def pushed(self, push: Push, now: float) -> None:
        """Something was pushed."""
        match push:
            case Granted():
                self._granted(push, now)
            case Wanted(head):
                self._want(head, now)
            case Hinted(next_):
                self._hear(next_)
                if self.state is State.WAITING and self.need is not None and self.need.gap:
                    self._poll = now  # the lane is free, and the gap was waited out: ask for it at once

    def _granted(self, grant: Granted, now: float) -> None:
        if grant.fence <= self.seen:
            return
        left = self._left.get(grant.registration)
        answers = self.state is State.WAITING or (
            self._flight is not None and self._told is not None and grant.registration == self._flight.registration
        )
        if left is None or not answers or self.need is None or self._deadline_of(left + grant.age_s) <= now:
            self._refuse(grant.fence, now)
            return
        self._hear(grant.next)
        self._flight = None  # an answer that this grant has overtaken says less than it
        self._hold(grant.fence, left + grant.age_s)

    def _refuse(self, fence: int, now: float) -> None:
        """A lease came that cannot be used as it is: ask anew if it is wanted, else give it back."""
        self.seen = max(self.seen, fence)
        if self.state is State.WAITING:
            self._poll = now
        elif self._flight is None and self.state in (State.IDLE, State.LOST):
            self._stray = True

    def suspend(self) -> None:
        """The server is gone. What was in flight may have been done or not; a lease held is good to its deadline."""
        self._flight = None
        self.need = None
        self._told = None
        if self.state is State.HOLDING:
            self.doubt()
        elif self.state is not State.LOST:
            self._stray = self._stray or self.state is not State.IDLE
            self.state = State.IDLE

    def doubt(self) -> None:
        """The connection is new: perhaps the server is another one. A lease must be proven before it is used again."""
        self._proven = self.state is not State.HOLDING
        self._poll = -NEVER

    # Bookkeeping.

    def _hold(self, fence: int, since: float) -> None:
        self.state = State.HOLDING
        self.fence = fence
        self.seen = max(self.seen, fence)
        self._opened = NOBODY
        self._forget_wants()
        self._prove(since)

    def _prove(self, since: float) -> None:
        self._deadline = self._deadline_of(since)
        self._renew = since + self._timing.renew_s
        self._proven = True

    def _deadline_of(self, since: float) -> float:
        return since + self._timing.lease_s - self._timing.margin_s

    def _wait(self, poll: float) -> None:
        self.state = State.WAITING
        self._poll = poll

    def _leave_behind(self) -> None:
        if self.state is State.LEAVING:  # a stray lease may also be given back while the state is lost
            self.state = State.IDLE

    def _lose(self) -> None:
        self.state = State.LOST
        self._told = None

    def _hear(self, next_: int) -> None:
        if not self._timing.by_arrival:
            self.heard = max(self.heard, next_)

    def _want(self, head: int, now: float) -> None:
        if self.state is not State.HOLDING or head == NOBODY:
            return
        self._wanted = head if self._wanted == NOBODY else min(head, self._wanted)
        if self._wanted_since == NEVER:
            self._wanted_since, self._turns = now, 0

    def _forget_wants(self) -> None:
        self._wanted = NOBODY
        self._wanted_since = NEVER
        self._turns = 0

    def _poll_s(self) -> float:
        return self._timing.poll_s * (0.8 + 0.4 * self._jitter())

    def _reaches(self, nonce: int) -> bool:
        known = self._next()
        return known == UNKNOWN or nonce <= known or nonce == self._opened

    def _yields(self, nonce: int, now: float) -> bool:
        if self._wanted == NOBODY:
            return False
        if self._timing.by_arrival:
            return self._turns >= self._timing.turns or now >= self._wanted_since + self._timing.turns_s
        return self._wanted < nonce

    def _has_news(self, need: Need) -> bool:
        """Would the server decide otherwise if it knew what the lane needs by now?"""
        if self._told is None:
            return True
        told, known = self._told
        moved = self._place(need) != self._place(told)
        return moved or (need.gap and not told.gap) or known < need.head <= self._next()
