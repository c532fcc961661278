"""What a dead process left is taken up: once, in order, beside what comes fresh."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from relay.devnode import NodeSettings
from relay.devnode.faults import Hang
from relay.journal.faults import Unavailable
from relay.journal.memory import MemoryJournal
from relay.journal.records import Intake, Seal, Sealed
from relay.lifecycle import Mode, Reason, State
from relay.recorder import taking_up
from relay.recorder.taking_up import TakingUp
from relay.transaction import decode
from tests.recorder_rig import ProxiedShelf, attempts, mined, nothing_unrecorded, path, record, shelf_of
from tests.stand import CHAIN_ID, Stand, signed, submission
from tests.test_recorder import FAILED, PENDING, POOL, QUEUED, SEALED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    import pytest

    from relay.errors import Refusal

STRICT = NodeSettings(mode="strict")
OWN, OTHER = "stand", "another/127.0.0.1:8545"


async def left(stand: Stand, raws: Iterable[str], *, actor: str = OWN, sealed: bool = False, **fields: Any) -> None:
    """Rows of a process that has died."""
    journal = shelf_of(stand).journal
    intakes = []
    for raw in raws:
        bytes_ = bytes.fromhex(raw[2:])
        tx = decode(bytes_)
        hash_ = bytes.fromhex(tx.hash[2:])
        intake = Intake(CHAIN_ID, tx.sender_bytes, tx.nonce, hash_, bytes_, "eth_sendRawTransaction", actor=actor)
        intakes.append(intake._replace(**fields))
    admissions = await journal.admit(intakes)
    if sealed:
        seals = [Seal(one.record.id, QUEUED, 1, "a node", actor=actor) for one in admissions]
        assert all(isinstance(one, Sealed) for one in await journal.seal(seals))


@asynccontextmanager
async def taking(stand: Stand, max_wait_s: float = 60) -> AsyncIterator[TakingUp]:
    """As a start does it."""
    assert stand.recorder is not None
    begun = TakingUp(
        shelf_of(stand),
        stand.recorder,
        take=stand.submitter.take,
        find=stand.submitter.find,
        max_wait_s=max_wait_s,
        report=stand.report,
        clock=time.monotonic,
    )
    try:
        yield begun
    finally:
        await begun.close()


async def taken_up(stand: Stand, max_wait_s: float = 60) -> None:
    """All that is left has had its turn."""
    async with taking(stand, max_wait_s) as begun:
        await begun.orphans()


async def test_what_was_queued_is_sent_lowest_nonce_first() -> None:
    """However it lies in the journal: a strict node refuses none."""
    async with Stand.recording(ProxiedShelf(), STRICT) as stand:
        await left(stand, [signed(nonce, who=who) for nonce in (3, 1, 0, 2) for who in (0, 1)])
        await taken_up(stand)

        assert [mined(stand, who) for who in (0, 1)] == [4, 4]
        assert (stand.node.arrivals.total, stand.node.arrivals.inversions) == (8, 0)
        assert await path(stand, signed(3)) == [(QUEUED, None), (SEALED, None), (PENDING, None)]
        await nothing_unrecorded(stand)


async def test_what_was_sealed_is_looked_for_then_sent_again() -> None:
    """The node has the first: that is found. It has not the second: the same bytes go, as another attempt."""
    async with Stand.recording(ProxiedShelf(), POOL) as stand:
        await stand.client.post(submission(signed(0)))
        await left(stand, [signed(0), signed(1)], sealed=True)
        await taken_up(stand)

        assert [arrival.nonce for arrival in stand.node.arrivals] == [0, 1]
        assert (await path(stand, signed(0)))[2:] == [(PENDING, None)]
        assert (await path(stand, signed(1)))[2:] == [(SEALED, None), (PENDING, None)]
        assert [len(await attempts(stand, signed(nonce))) for nonce in (0, 1)] == [1, 2]


async def test_what_another_may_work_on_is_left_to_it() -> None:
    """Until it has stood still for longer than a submission may wait, by the store's clock."""
    shelf, now_ms = ProxiedShelf(), [1_000_000]
    async with Stand.recording(shelf) as stand:
        shelf._journal = MemoryJournal(now_ms=lambda: now_ms[0])
        await left(stand, [signed(0)], actor=OTHER)
        await taken_up(stand, max_wait_s=60)
        assert stand.node.arrivals.total == 0
        now_ms[0] += 60_001
        await taken_up(stand, max_wait_s=60)

        assert mined(stand) == 1


async def test_what_was_sent_or_ended_is_not_touched() -> None:
    """That is the sweep's, or nobody's."""
    async with Stand.recording(ProxiedShelf(), POOL) as stand:
        await stand.send(signed(0))
        before = await record(stand, signed(0))
        await taken_up(stand)

        assert await record(stand, signed(0)) == before
        assert stand.node.arrivals.total == 1


async def test_what_comes_fresh_is_ordered_with_it() -> None:
    """A client sends the next nonces, and one of those that were left, while they are taken up."""
    async with Stand.recording(ProxiedShelf(), NodeSettings(mode="strict", delay_ms=(1, 3), seed=2)) as stand:
        await left(stand, [signed(nonce) for nonce in range(10)])
        async with taking(stand) as begun, asyncio.TaskGroup() as group:
            running = group.create_task(begun.orphans())
            replies = await asyncio.gather(*(stand.send(signed(nonce)) for nonce in (12, 11, 10, 5)))
            await running

        assert all("result" in reply for reply in replies)
        assert (mined(stand), stand.node.arrivals.inversions, stand.node.arrivals.total) == (13, 0, 13)
        await nothing_unrecorded(stand)


async def test_a_client_attaches_to_what_is_taken_up() -> None:
    """One attempt, and its answer."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf) as stand:
        await left(stand, [signed(0)])
        seal = shelf.proxy.hold("seal")
        async with taking(stand) as begun, asyncio.TaskGroup() as group:
            running = group.create_task(begun.orphans())
            await seal.waiting.acquire()
            wait = stand.route(submission(signed(0)))
            seal.go.set()
            await running

        assert "result" in json.loads((await wait).body)
        assert (stand.node.arrivals.total, len(await attempts(stand, signed(0)))) == (1, 1)


async def test_what_a_client_sends_before_it_is_taken_up_is_one() -> None:
    """It is held already when its page is read."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf, POOL) as stand:
        await left(stand, [signed(0)])
        page = shelf.proxy.hold("unfinished", before=False)
        async with taking(stand) as begun, asyncio.TaskGroup() as group:
            running = group.create_task(begun.orphans())
            await page.waiting.acquire()
            stand.node.script.add(Hang(times=1))
            wait = stand.route(submission(signed(0)))
            await stand.node.until(lambda: stand.node.hanging == 1)
            page.go.set()
            await running
        stand.node.release()
        await wait

        assert {arrival.hash for arrival in stand.node.arrivals} == {decode(bytes.fromhex(signed(0)[2:])).hash}
        assert [state for state, _ in await path(stand, signed(0))].count(SEALED) == 1


async def test_a_lane_without_room_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is lost for it, and none is told to wait too long."""
    monkeypatch.setattr(taking_up, "AGAIN_S", 0.01)
    async with Stand.recording(ProxiedShelf(), STRICT, ordering={"max_queue": 3}) as stand:
        await left(stand, [signed(nonce) for nonce in range(30)])
        await taken_up(stand)

        assert (mined(stand), stand.node.arrivals.inversions) == (30, 0)


async def test_a_store_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each thing that is read."""
    monkeypatch.setattr(taking_up, "AGAIN_S", 0.01)
    shelf = ProxiedShelf()
    async with Stand.recording(shelf) as stand:
        await left(stand, [signed(nonce) for nonce in range(3)])
        for operation in ("unfinished", "census", "history", "by_id", "payload"):
            shelf.proxy.fail(operation, Unavailable("away"), times=2)
        await taken_up(stand)

        assert mined(stand) == 3


async def test_many_are_taken_up_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages, and so many in flight: memory does not grow with what was left."""
    monkeypatch.setattr(taking_up, "PAGE", 20)
    monkeypatch.setattr(taking_up, "WINDOW", 4)
    monkeypatch.setattr(taking_up, "LANES", 2)
    shelf, most = ProxiedShelf(), [0]
    async with Stand.recording(shelf, STRICT) as stand:
        await left(stand, [signed(nonce, who=who) for who in range(4) for nonce in range(30)])
        take = stand.submitter.take

        def counted(one: Any) -> Refusal | None:
            refusal = take(one)
            most[0] = max(most[0], len(stand.submitter._ends.all()))
            return refusal

        monkeypatch.setattr(stand.submitter, "take", counted)
        await taken_up(stand)

        assert [mined(stand, who) for who in range(4)] == [30] * 4
        assert 1 < most[0] <= 8
        assert len(shelf.proxy.asked("unfinished")) < 45


async def test_a_sender_whose_turns_hang_holds_no_other_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many it has."""
    monkeypatch.setattr(taking_up, "WINDOW", 4)
    async with Stand.recording(ProxiedShelf(), POOL) as stand:
        first, second = sorted((0, 1), key=lambda who: decode(bytes.fromhex(signed(0, who=who)[2:])).sender_bytes)
        stand.node.script.add(Hang(sender=decode(bytes.fromhex(signed(0, who=first)[2:])).sender))
        await left(stand, [signed(nonce, who=first) for nonce in range(20)])
        await left(stand, [signed(0, who=second)])
        async with taking(stand) as begun, asyncio.TaskGroup() as group:
            running = group.create_task(begun.orphans())
            await asyncio.wait_for(stand.node.until(lambda: stand.node.arrivals.total == 2), 5)
            running.cancel()

        assert (await record(stand, signed(0, who=second))).state in (SEALED, PENDING)


async def test_who_was_told_yes_is_held_on() -> None:
    """The mode is the record's."""
    async with Stand.recording(ProxiedShelf(), ordering={"reorder_window_ms": 20, "on_gap": "refuse"}) as stand:
        await left(stand, [signed(5)], mode=Mode.ACCEPTED)
        await left(stand, [signed(5, who=1)])
        await taken_up(stand)

        assert (await path(stand, signed(5)))[-1] == (QUEUED, Reason.BEHIND_GAP)
        assert (await path(stand, signed(5, who=1)))[-1] == (FAILED, Reason.TURNED_AWAY)


async def test_a_node_that_is_not_there_fails_nothing_that_was_left() -> None:
    """Nobody was told no: it is held for the sweep."""
    async with Stand.recording(ProxiedShelf()) as stand:
        await stand.node.close()
        await left(stand, [signed(0)])
        await left(stand, [signed(0, who=1)], sealed=True)
        await taken_up(stand)

        assert (await path(stand, signed(0)))[-1] == (QUEUED, Reason.HELD_UNREACHABLE)
        assert (await record(stand, signed(0, who=1))).state is State.SENT


async def test_what_cannot_be_read_stops_nothing() -> None:
    """A method of a newer relay, bytes that are none: left to a person, the others go."""
    async with Stand.recording(ProxiedShelf()) as stand:
        await left(stand, [signed(0, who=1)], method="eth_sendFromTheFuture")
        await left(stand, [signed(0, who=2)], raw=b"\x02nothing")
        await left(stand, [signed(0)])
        await taken_up(stand)

        assert mined(stand) == 1
        assert [(await record(stand, signed(0, who=who))).state for who in (1, 2)] == [QUEUED, QUEUED]


async def test_a_drain_leaves_what_it_took_up_as_it_was() -> None:
    """Nobody was told anything of it: the next start goes on with it."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf, POOL) as stand:
        stand.node.script.add(Hang(times=1))
        await left(stand, [signed(nonce) for nonce in range(3)])
        async with taking(stand) as begun, asyncio.TaskGroup() as group:
            running = group.create_task(begun.orphans())
            await stand.node.until(lambda: stand.node.hanging == 1)
            stand.submitter.stop_taking()
            stand.submitter.give_up()
            running.cancel()

        assert [(await record(stand, signed(nonce))).state for nonce in (1, 2)] == [State.QUEUED] * 2
