"""Turn-taking: one task for each busy lane does what the lane says.

Job: wake a lane when something happened, run its steps one after the other, and hold no lane longer than its turn.
Rules: the end of a turn and the begin of the next happen in one synchronous stretch; bookkeeping comes after (G3). A
turn is one ticket's, or a run's where runs are wanted; what belongs to a run is decided at the instant it begins. A
turn is never cancelled by a client (G8). Reads of counts go beside the lane. A fault inside a turn ends the turn, not
the lane; a fault outside of it is answered to all that wait, and the next ticket begins anew.
Must not know: what a submission is, how counts are read, what an answer means.
"""

from __future__ import annotations

import asyncio
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from relay import errors
from relay.lanes import REST, Ask, Effect, Go, Pass, Rest, Sleep, TurnAway

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from relay.errors import Refusal
    from relay.lanes import Lane, LaneBook, Reading, Step, Ticket
    from relay.lease import Tier
    from relay.tasks import TaskOwner

T = TypeVar("T")

SWEEP_S: Final = 0.25
"""How often overdue tickets are looked for."""


class Work(Protocol[T]):
    """What is done at a turn and beside it (`relay.submit`). Raises only for faults."""

    async def settle(self, lane: Lane[T], ticket: Ticket[T]) -> Effect:
        """Carry the submission out; return as soon as the upstream has answered, or never will."""

    async def settle_run(self, lane: Lane[T], run: Sequence[Ticket[T]]) -> Sequence[Effect]:
        """Carry out several of consecutive nonces at once; the effect of each, in their order."""

    async def read_counts(self, lane: Lane[T], reading: Reading[T]) -> int | None:
        """The pending count (None: not to be had). Takes out of the lane what ``reading`` judges to be spent."""

    def turned_away(self, ticket: Ticket[T], refusal: Refusal) -> None:
        """``ticket`` left the lane without a turn."""

    def broken(self, ticket: Ticket[T], error: BaseException) -> None:
        """`settle` or `settle_run` raised: a fault of ours."""


class Runs(Protocol[T]):
    """Which submissions may go together (`relay.runs`)."""

    def riders(self, head: T, following: Iterator[Ticket[T]]) -> list[Ticket[T]]:
        """Of the tickets ``following`` that of ``head``, the first ones that share its turn."""


class Witness(Protocol[T]):
    """Who remembers, beyond this process, which turns run (`relay.workers.aftermath`)."""

    wake: Callable[[Lane[Any]], None]
    """Set by the turns: a lane that was held back may go on."""

    def gaps_from(self, lane: Lane[T]) -> float:
        """No gap of ``lane`` counts as older than this (`Lane.decide`)."""

    def screen(self, lane: Lane[T], step: Step[T]) -> Step[T]:
        """What becomes of the lane's next step."""

    def may_follow(self, lane: Lane[T], nonce: int) -> bool:
        """May ``nonce`` share the turn that begins?"""

    def begins(self, lane: Lane[T], ticket: Ticket[T]) -> None:
        """A turn begins."""

    def ends(self, ticket: Ticket[T]) -> None:
        """It has ended, and its outcome is known."""


class Turns(Generic[T]):
    """Runs the lanes of a book."""

    def __init__(  # noqa: PLR0913 - what a turn needs, each a room of its own
        self,
        book: LaneBook[T],
        work: Work[T],
        owner: TaskOwner,
        report: Callable[[str, BaseException], None],
        clock: Callable[[], float],
        *,
        tier: Tier | None = None,
        runs: Runs[T] | None = None,
        witness: Witness[T] | None = None,
    ) -> None:
        self._book = book
        self._work = work
        self._owner = owner
        self._report = report
        self._clock = clock
        self._tier = tier
        self._runs = runs
        if tier is not None:
            tier.wake, tier.wake_all = self.wake, self.wake_all
        self._witness = witness
        if witness is not None:
            witness.wake = self.wake
        self.running = 0

    def wake(self, lane: Lane[T]) -> None:
        """Something happened in ``lane``: a ticket came, or a read ended. Starts its task if it has none."""
        runner = lane.runner
        if runner is None:
            runner = lane.runner = _Runner()
            self._owner.start("lane", self._run(lane, runner))
        else:
            runner.wake()

    def wake_all(self) -> None:
        """Something happened that concerns every lane."""
        for lane in self._book.busy_lanes():
            self.wake(lane)

    async def sweep_forever(self) -> None:
        """Turn overdue tickets away, whoever holds their lane."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self.sweep()

    def sweep(self) -> None:
        """One round of `sweep_forever`."""
        now = self._clock()
        for lane in self._book.busy_lanes():
            if late := lane.overdue(now):
                self._turn_away(late)
                self.wake(lane)

    def turn_all_away(self, refusal: Refusal) -> None:
        """Whatever still waits is refused; what holds its lane goes on (G12)."""
        for lane in self._book.busy_lanes():
            self._turn_away(lane.turn_all_away(refusal))
            self.wake(lane)

    async def _run(self, lane: Lane[T], runner: _Runner) -> None:
        try:
            await self._steps(lane, runner)
        except Exception as error:  # noqa: BLE001 - a lane must never be left with a dead task
            self._report("lane", error)
            lane.runner = None
            self._turn_away(lane.turn_all_away(errors.INTERNAL.refusal()))
            if self._tier is not None:
                self._tier.screen(lane, REST, self._clock())

    async def _steps(self, lane: Lane[T], runner: _Runner) -> None:
        while True:
            match step := self._next(lane, now := self._clock()):
                case Go(ticket):
                    await self._turn(lane, self._run_of(lane, ticket))
                case Ask():
                    read = self._read(lane, lane.asked(now))
                    if lane.in_doubt and self._tier is None:  # nothing can go before the count is known
                        await read
                    else:
                        self._owner.start("counts", read)
                case TurnAway():
                    self._turn_away(step)
                case Sleep(until):
                    await runner.sleep(until, self._clock)
                case Pass():
                    await runner.sleep(None, self._clock)
                case Rest():
                    # No await between the lane's word that it is empty and its leaving the busy ones.
                    lane.runner = None
                    self._book.rest(lane)
                    return

    def _next(self, lane: Lane[T], now: float) -> Step[T]:
        """What the lane wants, the dead process before and the other instances considered."""
        if self._witness is None:
            step = lane.decide(now)
        else:
            step = self._witness.screen(lane, lane.decide(now, self._witness.gaps_from(lane)))
        if self._tier is not None:
            step = self._tier.screen(lane, step, now)
        return step

    def _run_of(self, lane: Lane[T], head: Ticket[T]) -> Sequence[Ticket[T]]:
        """Whose turn begins with that of ``head``: nothing above what waits lower elsewhere, or was at the node."""
        if self._runs is None:
            return (head,)
        following = lane.following(head)
        for guard in (self._tier, self._witness):
            if guard is not None:
                following = _allowed(guard, lane, following)
        return (head, *self._runs.riders(head.submission, following))

    async def _turn(self, lane: Lane[T], run: Sequence[Ticket[T]]) -> None:
        for ticket in run:
            lane.granted(ticket)
        self.running += len(run)
        if self._tier is not None:
            self._tier.begins(lane)
        if self._witness is not None:
            for ticket in run:
                self._witness.begins(lane, ticket)
        try:
            effects = await self._carry_out(lane, run)
        finally:
            self.running -= len(run)
            if self._tier is not None:
                self._tier.ends(lane)
        now = self._clock()
        for ticket, effect in zip(run, effects, strict=True):
            if self._witness is not None:
                self._witness.ends(ticket)
            lane.released(ticket, effect, now)

    async def _carry_out(self, lane: Lane[T], run: Sequence[Ticket[T]]) -> Sequence[Effect]:
        try:
            if len(run) == 1:
                return (await self._work.settle(lane, run[0]),)
            return await self._work.settle_run(lane, run)
        except Exception as error:  # noqa: BLE001 - a fault in one turn must not end the lane
            for ticket in run:
                self._work.broken(ticket, error)
            return [Effect.DOUBTFUL] * len(run)

    async def _read(self, lane: Lane[T], reading: Reading[T]) -> None:
        pending = None
        try:
            pending = await self._work.read_counts(lane, reading)
        except Exception as error:  # noqa: BLE001 - a lane must never wait for a read that died
            self._report("counts", error)
        if full := lane.told(reading, pending, self._clock()):
            self._turn_away(full)
        self.wake(lane)

    def _turn_away(self, leaving: TurnAway[T]) -> None:
        for ticket, refusal in leaving.tickets:
            self._work.turned_away(ticket, refusal)


def _allowed(guard: Tier | Witness[T], lane: Lane[T], following: Iterator[Ticket[T]]) -> Iterator[Ticket[T]]:
    return takewhile(lambda ticket: guard.may_follow(lane, ticket.nonce), following)


class _Runner:
    """Where a lane's task sleeps, and how it is woken; a wake while it is at work is not lost."""

    __slots__ = ("_bed", "_woken")

    def __init__(self) -> None:
        self._bed: asyncio.Future[None] | None = None
        self._woken = False

    def wake(self) -> None:
        self._woken = True
        if self._bed is not None and not self._bed.done():
            self._bed.set_result(None)

    async def sleep(self, until: float | None, clock: Callable[[], float]) -> None:
        """Until woken, or ``until``."""
        if not self._woken:
            loop = asyncio.get_running_loop()
            self._bed = loop.create_future()
            timer = None if until is None else loop.call_later(max(0.0, until - clock()), self.wake)
            try:
                await self._bed
            finally:
                self._bed = None
                if timer is not None:
                    timer.cancel()
        self._woken = False
