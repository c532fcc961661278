"""Lanes' tasks do what the lane says, and nothing is lost when something breaks."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from relay import errors
from relay.config import Ordering
from relay.errors import Refusal
from relay.lanes import Effect, Lane, LaneBook, Reading, Ticket
from relay.tasks import TaskOwner
from relay.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = b"\x22" * 20


class Bench:
    """A lane's work with behaviour: turns end when the test says so."""

    def __init__(self, **options: Any) -> None:
        self.faults: list[str] = []
        self.owner = TaskOwner("test", lambda name, error: self.faults.append(f"{name}: {error}"))
        self.book: LaneBook[str] = LaneBook(Ordering(**options))
        self.turns: Turns[str] = Turns(self.book, self, self.owner, self.report, time.monotonic)
        self.began: asyncio.Queue[Ticket[str]] = asyncio.Queue()
        self.ends: dict[str, asyncio.Future[Effect]] = {}
        self.ended: list[str] = []
        self.away: list[tuple[str, Refusal]] = []
        self.count: Callable[[], int | None] = lambda: 0
        self.counted = asyncio.Event()

    def report(self, name: str, error: BaseException) -> None:
        self.faults.append(f"{name}: {error}")

    def send(self, name: str, nonce: int) -> None:
        """A submission comes in, as `Submitter.take` does it."""
        self.ends[name] = asyncio.get_running_loop().create_future()
        joined = self.book.join(KEY, name, nonce, time.monotonic())
        assert not isinstance(joined, Refusal)
        self.turns.wake(joined[0])

    async def settle(self, lane: Lane[str], ticket: Ticket[str]) -> Effect:
        self.began.put_nowait(ticket)
        effect = await self.ends[ticket.submission]
        self.ended.append(ticket.submission)
        return effect

    async def read_counts(self, lane: Lane[str], reading: Reading[str]) -> int | None:
        asyncio.get_running_loop().call_soon(self.counted.set)
        return self.count()

    def turned_away(self, ticket: Ticket[str], refusal: Refusal) -> None:
        self.away.append((ticket.submission, refusal))

    def broken(self, ticket: Ticket[str], error: BaseException) -> None:
        self.ended.append(f"broken {ticket.submission}")

    async def next_turn(self) -> str:
        """Which submission's turn begins."""
        return (await self.began.get()).submission


async def test_one_turn_at_a_time_in_nonce_order() -> None:
    """The next turn begins when the one before has ended, not earlier (G1)."""
    bench = Bench()
    for name, nonce in (("b", 1), ("c", 2), ("a", 0)):
        bench.send(name, nonce)

    for name in ("a", "b", "c"):
        assert await bench.next_turn() == name
        assert bench.began.empty()
        bench.ends[name].set_result(Effect.ACCEPTED)

    await bench.owner.settled()
    assert bench.ended == ["a", "b", "c"]
    assert (bench.book.busy, bench.book.idle) == (0, 1)


async def test_the_next_turn_begins_before_anybody_hears_of_the_last() -> None:
    """Release comes before the answer (G3): who waits for the outcome runs after the successor was sent."""
    bench = Bench()
    bench.send("a", 0)
    bench.send("b", 1)
    assert await bench.next_turn() == "a"
    seen: list[bool] = []
    bench.ends["a"].add_done_callback(
        lambda _: asyncio.get_running_loop().call_soon(lambda: seen.append(bench.began.empty()))
    )

    bench.ends["a"].set_result(Effect.ACCEPTED)

    assert await bench.next_turn() == "b"
    bench.ends["b"].set_result(Effect.ACCEPTED)
    await bench.owner.settled()
    assert len(seen) == 1


async def test_a_lower_nonce_that_comes_while_the_lane_sleeps_wakes_it() -> None:
    """A gap's window is not slept out when the missing nonce comes."""
    bench = Bench(reorder_window_ms=60_000)
    bench.send("above", 1)
    lane = bench.book.busy_lanes()[0]
    await bench.counted.wait()
    assert lane.next == 0
    bench.send("missing", 0)

    assert await bench.next_turn() == "missing"
    bench.ends["missing"].set_result(Effect.ACCEPTED)
    assert await bench.next_turn() == "above"
    bench.ends["above"].set_result(Effect.ACCEPTED)
    await bench.owner.settled()


async def test_a_gap_is_slept_out_and_passed() -> None:
    """The window ends by itself; nobody has to come."""
    bench = Bench(reorder_window_ms=20)
    bench.send("above", 1)

    assert await bench.next_turn() == "above"
    bench.ends["above"].set_result(Effect.ACCEPTED)
    await bench.owner.settled()


async def test_a_fault_in_a_turn_ends_the_turn_and_not_the_lane() -> None:
    """What follows in the lane still goes, after the count was read afresh."""
    bench = Bench()
    bench.send("bad", 0)
    bench.send("good", 1)
    assert await bench.next_turn() == "bad"
    bench.count = lambda: 1

    bench.ends["bad"].set_exception(ZeroDivisionError("a bug"))

    assert await bench.next_turn() == "good"
    bench.ends["good"].set_result(Effect.ACCEPTED)
    await bench.owner.settled()
    assert bench.ended == ["broken bad", "good"]


async def test_a_fault_outside_a_turn_is_answered_and_the_lane_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a task that is dead; what comes next is carried out."""
    bench = Bench()
    real = Lane.decide

    def break_once(lane: Lane[str], now: float) -> Any:
        monkeypatch.setattr(Lane, "decide", real)
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Lane, "decide", break_once)
    bench.send("a", 0)
    await bench.owner.settled()
    assert bench.away == [("a", errors.INTERNAL.refusal())]
    assert bench.faults == ["lane: a bug"]

    bench.send("b", 0)
    assert await bench.next_turn() == "b"
    bench.ends["b"].set_result(Effect.ACCEPTED)
    await bench.owner.settled()
    assert (bench.book.busy, bench.book.idle) == (0, 1)


async def test_a_read_that_dies_leaves_the_lane_blind_not_stuck() -> None:
    """A fault while reading counts is reported; the tickets go on."""
    bench = Bench()

    def die() -> int:
        raise ZeroDivisionError("a bug")

    bench.count = die
    bench.send("a", 5)

    assert await bench.next_turn() == "a"
    bench.ends["a"].set_result(Effect.ACCEPTED)
    await bench.owner.settled()
    assert bench.faults == ["counts: a bug"]


async def test_overdue_tickets_leave_while_another_holds_the_lane() -> None:
    """A hanging node does not keep anybody waiting past the limit (G5)."""
    now = [0.0]
    bench = Bench(max_wait_s=10)
    bench.turns = Turns(bench.book, bench, bench.owner, bench.report, lambda: now[0])
    for name, nonce in (("holder", 0), ("late", 1)):
        bench.ends[name] = asyncio.get_running_loop().create_future()
        joined = bench.book.join(KEY, name, nonce, 0.0)
        assert not isinstance(joined, Refusal)
        bench.turns.wake(joined[0])
    assert await bench.next_turn() == "holder"

    now[0] = 8.0
    bench.turns.sweep()

    assert bench.away == [("late", errors.WAITED_TOO_LONG.refusal(seconds=8.0))]
    bench.ends["holder"].set_result(Effect.ACCEPTED)
    await bench.owner.settled()


async def test_a_drain_refuses_what_waits_and_lets_the_holder_finish() -> None:
    """G12: nothing of the waiting ones was sent."""
    bench = Bench()
    bench.send("holder", 0)
    bench.send("waiting", 1)
    assert await bench.next_turn() == "holder"

    bench.turns.turn_all_away(errors.DRAINING.refusal())

    assert bench.away == [("waiting", errors.DRAINING.refusal())]
    bench.ends["holder"].set_result(Effect.ACCEPTED)
    await bench.owner.settled()
    assert bench.ended == ["holder"]


async def test_a_lane_whose_tickets_left_while_it_asked_comes_to_rest() -> None:
    """The drain empties it, the read comes back late: nothing breaks, nothing is left behind."""
    bench = Bench()
    answered = asyncio.Event()

    async def slowly(lane: Lane[str], reading: Reading[str]) -> int | None:
        bench.counted.set()
        await answered.wait()
        return 0

    bench.read_counts = slowly  # type: ignore[method-assign] # behaviour of this one test
    bench.send("a", 0)
    await bench.counted.wait()
    bench.turns.turn_all_away(errors.DRAINING.refusal())
    answered.set()

    await bench.owner.settled()
    assert (bench.book.busy, bench.book.idle, bench.faults) == (0, 1, [])


@pytest.mark.parametrize("senders", [200])
async def test_lanes_do_not_wait_for_each_other(senders: int) -> None:
    """Every sender's turn begins although none has ended."""
    bench = Bench()
    for number in range(senders):
        name = f"sender {number}"
        bench.ends[name] = asyncio.get_running_loop().create_future()
        joined = bench.book.join(number.to_bytes(20, "big"), name, 0, time.monotonic())
        assert not isinstance(joined, Refusal)
        bench.turns.wake(joined[0])

    begun = {await bench.next_turn() for _ in range(senders)}

    assert len(begun) == senders
    for future in bench.ends.values():
        future.set_result(Effect.ACCEPTED)
    await bench.owner.settled()
