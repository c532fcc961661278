"""Lanes that an operator paused begin no turn, and go on when he says so."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from relay import errors
from relay.config import Ordering
from relay.journal import Unavailable
from relay.journal.memory import MemoryJournal
from relay.journal.shelf import Shelf
from relay.lanes import SLEEP, Effect, Go, Lane, LaneBook, Pass, Ticket, lane_key
from relay.pauses import EVERY_S, Pauses
from relay.tasks import TaskOwner
from relay.testing.samples import ALICE, BOB, CHAIN
from relay.turns import Turns
from tests.test_turns import Bench
from tests.workers_rig import until

if TYPE_CHECKING:
    import pytest

    from relay.journal.records import Lane as LaneSetting
    from relay.lanes import Step


class Broken(MemoryJournal):
    """A journal that cannot be read while ``fault`` is set."""

    fault: Unavailable | None = None

    async def paused(self) -> list[LaneSetting]:
        if self.fault is not None:
            raise self.fault
        return await super().paused()


class Inner:
    """Another witness, who remembers what he was asked."""

    def __init__(self) -> None:
        self.wake: Any = None
        self.seen: list[Any] = []

    def screen(self, lane: Lane[Any], step: Step[Any]) -> Step[Any]:
        self.seen.append(type(step))
        return step

    def gaps_from(self, lane: Lane[Any]) -> float:
        return 7.0

    def may_follow(self, lane: Lane[Any], nonce: int) -> bool:
        return nonce < 7

    def begins(self, lane: Lane[Any], ticket: Ticket[Any]) -> None:
        self.seen.append(("begins", ticket.submission))

    def ends(self, ticket: Ticket[Any]) -> None:
        self.seen.append(("ends", ticket.submission))


class Yard(Bench):
    """Turns of the lanes of Alice and Bob under an operator's eyes."""

    def __init__(self, inner: Inner | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.journal = Broken()
        shelf = Shelf("memory:")
        shelf._journal = self.journal
        self.pauses = Pauses(shelf, inner)
        self.book = LaneBook(Ordering(**options))
        self.turns = Turns(self.book, self, self.owner, self.report, time.monotonic, witness=self.pauses)

    def come(self, name: str, nonce: int = 0, *, sender: bytes = ALICE) -> Lane[str]:
        """A submission comes in."""
        self.ends[name] = asyncio.get_running_loop().create_future()
        joined = self.book.join(lane_key(CHAIN, sender), name, nonce, time.monotonic())
        assert not isinstance(joined, errors.Refusal)
        self.turns.wake(joined[0])
        return joined[0]

    async def set(self, *, paused: bool, sender: bytes = ALICE) -> None:
        """An operator pauses a lane or lets it go on."""
        lane, _ = await self.journal.lane(CHAIN, sender)
        await self.journal.set_paused(CHAIN, sender, paused=paused, version=lane.version, detail="why", actor="op")

    async def held(self, lane: Lane[str]) -> None:
        """Until the lane's task sleeps with its turn held back."""
        await until(lambda: lane.key in self.pauses._held)

    async def finish(self, *names: str) -> None:
        """Let these turns begin and end, in this order."""
        for name in names:
            assert await self.next_turn() == name
            self.ends[name].set_result(Effect.ACCEPTED)
        await self.owner.settled()
        assert self.faults == []


async def test_a_paused_lane_waits_and_others_do_not() -> None:
    """Then it goes on in its order, as soon as the change is read."""
    yard = Yard()
    await yard.set(paused=True)
    await yard.pauses.look()
    lane = yard.come("second", 1)
    yard.come("first", 0)
    yard.come("other", sender=BOB)
    await yard.held(lane)
    assert await yard.next_turn() == "other"
    yard.ends["other"].set_result(Effect.ACCEPTED)
    assert yard.began.empty()
    await yard.set(paused=False)
    await yard.pauses.look()
    await yard.finish("first", "second")


async def test_a_turn_that_runs_is_not_interrupted() -> None:
    """What comes after it waits."""
    yard = Yard()
    await yard.pauses.look()
    lane = yard.come("runs", 0)
    assert await yard.next_turn() == "runs"
    yard.come("waits", 1)
    await yard.set(paused=True)
    await yard.pauses.look()
    yard.ends["runs"].set_result(Effect.ACCEPTED)
    await yard.held(lane)
    assert yard.ended == ["runs"]
    await yard.set(paused=False)
    await yard.pauses.look()
    await yard.finish("waits")


async def test_what_waits_in_a_paused_lane_is_turned_away_at_its_limit() -> None:
    """As ever (G5); and the lane, empty then, is not woken when it is resumed."""
    yard = Yard()
    await yard.set(paused=True)
    await yard.pauses.look()
    lane = yard.come("late")
    await yard.held(lane)
    yard.turns._clock = lambda: time.monotonic() + 3600
    yard.turns.sweep()
    await yard.owner.settled()
    assert [(name, refusal.case) for name, refusal in yard.away] == [("late", errors.WAITED_TOO_LONG)]
    assert (yard.book.busy, yard.pauses._held) == (0, {})
    await yard.set(paused=False)
    await yard.pauses.look()
    await yard.owner.settled()
    assert yard.faults == []


async def test_nothing_goes_before_the_pauses_were_read_once() -> None:
    """A pause outlives a restart of the relay, also while the journal cannot be read."""
    yard = Yard()
    yard.journal.fault = Unavailable("full")
    await yard.set(paused=True, sender=BOB)
    lane, other = yard.come("waits"), yard.come("paused", sender=BOB)
    await yard.held(lane)
    await yard.held(other)
    await yard.pauses.look()
    assert yard.began.empty()
    yard.journal.fault = None
    await yard.pauses.look()
    assert await yard.next_turn() == "waits"
    yard.ends["waits"].set_result(Effect.ACCEPTED)
    assert other.key in yard.pauses._held
    await yard.owner.close()


async def test_what_was_read_last_holds_while_the_journal_is_away() -> None:
    """A pause does not end because the journal does."""
    yard = Yard()
    await yard.set(paused=True)
    await yard.pauses.look()
    yard.journal.fault = Unavailable("locked")
    await yard.pauses.look()
    free: Go[str] = Go(Ticket("any", 0, 0.0, 1))
    assert yard.pauses.screen(Lane(lane_key(CHAIN, ALICE), yard.book.rules), free) is SLEEP
    assert yard.pauses.screen(Lane(lane_key(CHAIN, BOB), yard.book.rules), free) is free


async def test_a_gap_is_not_passed_in_a_paused_lane() -> None:
    """Where instances share an order, passing a gap begins a turn."""
    yard = Yard()
    await yard.set(paused=True)
    await yard.pauses.look()
    assert yard.pauses.screen(Lane(lane_key(CHAIN, ALICE), yard.book.rules), Pass(Ticket("any", 0, 0.0, 1))) is SLEEP


async def test_the_inner_witness_is_asked_about_what_goes() -> None:
    """And not about what is held: it would take the turn for begun."""
    inner = Inner()
    yard = Yard(inner)
    await yard.set(paused=True)
    await yard.pauses.look()
    lane = yard.come("one")
    await yard.held(lane)
    assert Go not in inner.seen
    await yard.set(paused=False)
    await yard.pauses.look()
    await yard.finish("one")
    assert [seen for seen in inner.seen if isinstance(seen, tuple)] == [("begins", "one"), ("ends", "one")]
    assert inner.wake == yard.turns.wake
    assert yard.pauses.gaps_from(lane) == 7.0
    assert [yard.pauses.may_follow(lane, nonce) for nonce in (6, 7)] == [True, False]


async def test_a_change_is_read_at_once_when_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at the next look in its time; and the watch ends when it is cancelled, wherever it is."""
    monkeypatch.setattr("relay.pauses.EVERY_S", 3600.0)
    assert EVERY_S == 1.0
    yard = Yard()
    background = TaskOwner("test", yard.report)
    background.start("pauses", yard.pauses.watch_forever())
    lane = yard.come("first")
    assert await yard.next_turn() == "first"
    await yard.set(paused=True)
    yard.pauses.changed()
    await until(lambda: lane.key in (yard.pauses._paused or ()))
    yard.come("second", 1)
    yard.ends["first"].set_result(Effect.ACCEPTED)
    await yard.held(lane)
    await yard.set(paused=False)
    yard.pauses.changed()
    await yard.finish("second")
    await background.close()
    assert yard.faults == []
