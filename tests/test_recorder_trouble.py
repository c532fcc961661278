"""With a journal that cannot be written: what clients hear, what is sent, what is kept."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from relay import app
from relay.devnode import NodeSettings
from relay.devnode.faults import Refuse, Reset
from relay.journal.faults import Unavailable, Unusable
from relay.lifecycle import Reason, State
from tests.recorder_rig import ProxiedShelf, attempts, nothing_unrecorded, path, record
from tests.stand import Stand, call, signed, submission
from tests.test_app import running
from tests.test_recorder import FAILED, PENDING, POOL, QUEUED, SEALED, code

if TYPE_CHECKING:
    from relay.recorder import Recorder

AWAY = Unavailable("the store is away ([journal] url)")
MAYBE = Unavailable("the connection broke ([journal] url)", maybe=True)
UNFIT = Unusable("the store is read-only ([journal] url)")
FULL = Refuse(message="txpool is full", times=1)


def recorder(stand: Stand) -> Recorder:
    """The stand's, which has one."""
    assert stand.recorder is not None
    return stand.recorder


@pytest.mark.parametrize("fault", [AWAY, UNFIT], ids=["away", "unfit"])
async def test_what_cannot_be_admitted_is_refused(fault: Exception) -> None:
    """Certain: nothing was sent, nothing is kept. The lane goes on; so does what needs no journal."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf) as stand:
        shelf.proxy.fail("admit", fault)
        reply = await stand.send(signed(0))

        assert code(reply) == -32032
        assert "[journal] url" not in reply["error"]["message"], "where it lies is no client's business"
        assert stand.node.arrivals.total == 0
        assert "result" in await stand.send(signed(0))


@pytest.mark.parametrize("committed", [True, False])
async def test_what_may_have_been_admitted_is_unknown(committed: Any) -> None:
    """A row that is there would be taken up and sent."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf) as stand:
        shelf.proxy.fail("admit", MAYBE, committed=committed)

        assert code(await stand.send(signed(0))) == -32040
        assert stand.node.arrivals.total == 0
        assert "result" in await stand.send(signed(0))
        assert [state for state, _ in await path(stand, signed(0))] == [QUEUED, SEALED, PENDING]


async def test_without_an_open_journal_nothing_is_sent_and_calls_pass() -> None:
    """Until it is there."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf) as stand:
        journal, shelf._journal = shelf._journal, None
        refused = await stand.send(signed(0))
        passed = await stand.client.post(call("eth_blockNumber"))
        shelf._journal = journal

        assert code(refused) == -32032
        assert b"result" in passed.body  # type: ignore[union-attr]
        assert stand.node.arrivals.total == 0
        assert "result" in await stand.send(signed(0))


async def test_calls_do_not_wait_for_a_journal_that_hangs() -> None:
    """They never touch it."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf) as stand:
        admit = shelf.proxy.hold("admit")
        wait = stand.route(submission(signed(0)))
        await admit.waiting.acquire()
        passed = await stand.client.post(call("eth_blockNumber"))

        assert b"result" in passed.body  # type: ignore[union-attr]
        assert not wait.done()
        admit.go.set()
        await wait


async def test_a_retry_that_cannot_be_written_fails_alone() -> None:
    """What else came in its group is on disk: refused as "nothing is kept", it would be sent after a restart."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf) as stand:
        stand.node.script.add(FULL)
        await stand.send(signed(0))
        shelf.proxy.fail("decide", AWAY)
        again, other = await asyncio.gather(stand.send(signed(0)), stand.send(signed(0, who=1)))

        assert code(again) == -32032
        assert "result" in other
        assert (await path(stand, signed(0)))[-1] == (FAILED, Reason.NOT_NOW)


@pytest.mark.parametrize("fault", [AWAY, UNFIT], ids=["away", "unfit"])
async def test_what_cannot_be_sealed_is_refused_and_its_record_says_so(fault: Exception) -> None:
    """Told only when that is on disk; the next of the lane is not held up."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf) as stand:
        shelf.proxy.fail("seal", fault)

        assert code(await stand.send(signed(0))) == -32032
        assert stand.node.arrivals.total == 0
        assert await path(stand, signed(0)) == [(QUEUED, None), (FAILED, Reason.TURNED_AWAY)]
        assert "result" in await stand.send(signed(0))


async def test_what_can_be_neither_sealed_nor_refused_is_unknown() -> None:
    """Its record would have it sent after a restart."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf, ordering={"max_wait_s": 1}) as stand:
        shelf.proxy.fail("seal", AWAY)
        shelf.proxy.fail("decide", AWAY, times=100)

        assert code(await stand.send(signed(0))) == -32040
        assert stand.node.arrivals.total == 0
        assert await path(stand, signed(0)) == [(QUEUED, None)]


async def test_what_may_have_been_sealed_is_unknown_or_refused_as_the_record_says() -> None:
    """Committed, there is an open attempt that nothing closes; not committed, it is certain."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf) as stand:
        shelf.proxy.fail("seal", MAYBE, committed=True)
        shelf.proxy.fail("seal", MAYBE)
        replies = [await stand.send(signed(0, who=who)) for who in (0, 1)]

        assert [code(reply) for reply in replies] == [-32040, -32032]
        assert [(await record(stand, signed(0, who=who))).may_still_land for who in (0, 1)] == [True, False]
        assert stand.node.arrivals.total == 0
        assert ["result" in await stand.send(signed(0, who=who)) for who in (0, 1)] == [True, True]
        await nothing_unrecorded(stand)


async def test_a_run_that_cannot_be_sealed_is_not_sent() -> None:
    """Its head hears why, the others take their turns again."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf, upstream={"submit": "batch"}) as stand:
        shelf.proxy.fail("seal", AWAY)
        waits = [stand.route(submission(signed(nonce))) for nonce in range(4)]
        replies = [json.loads((await wait).body) for wait in waits]

        assert code(replies[0]) == -32032
        await nothing_unrecorded(stand)


@pytest.mark.parametrize("committed", [True, False])
async def test_a_yes_that_cannot_be_written_for_a_while_is_told_when_it_is(committed: Any) -> None:
    """Tried again; what was committed although its answer was lost is not decided twice."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf) as stand:
        shelf.proxy.fail("decide", MAYBE, times=2 if not committed else 1, committed=committed)

        assert "result" in await stand.send(signed(0))
        assert await path(stand, signed(0)) == [(QUEUED, None), (SEALED, None), (PENDING, None)]
        assert [attempt.verdict for attempt in await attempts(stand, signed(0))] == ["accepted"]


async def test_ends_that_can_never_be_written_are_told_within_the_submissions_time() -> None:
    """A yes as it is, a no as unknown: its record would have it sent again."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf, ordering={"max_wait_s": 1}) as stand:
        shelf.proxy.fail("decide", UNFIT, times=100)
        stand.node.script.add(FULL)
        no, yes = await asyncio.gather(stand.send(signed(0)), stand.send(signed(0, who=1)))

        assert code(no) == -32040
        assert "result" in yes
        assert [(await record(stand, signed(0, who=who))).state for who in (0, 1)] == [SEALED, SEALED]


async def test_a_resend_that_cannot_be_written_is_not_sent() -> None:
    """The answer of the first send was lost, and nothing more leaves."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf, ordering={"max_wait_s": 3}) as stand:
        stand.node.script.add(Reset(when="before", times=1))
        shelf.proxy.fail("attempt", AWAY, times=100)

        assert code(await stand.send(signed(0))) == -32040
        assert stand.node.arrivals.total == 1
        assert (await path(stand, signed(0)))[-1] == (State.SENT, None)


async def test_a_resend_that_may_have_been_written_leaves_no_certainty() -> None:
    """The attempt is open in the store: a refusal that comes later fails nothing."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf) as stand:
        stand.node.script.add(Reset(when="before", times=1))
        shelf.proxy.fail("attempt", MAYBE, committed=True)

        assert "result" in await stand.send(signed(0))
        assert [attempt.verdict for attempt in await attempts(stand, signed(0))] == ["lost", "", "accepted"]


async def test_the_lane_goes_on_while_ends_cannot_be_written() -> None:
    """Each next one is sent; all hear of it when the store is back."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf, NodeSettings(mode="strict")) as stand:
        shelf.proxy.fail("decide", AWAY, times=6)
        waits = [stand.route(submission(signed(nonce))) for nonce in range(5)]
        await stand.node.until(lambda: stand.node.arrivals.total == 5)

        assert all(["result" in json.loads((await wait).body) for wait in waits])
        assert {(await record(stand, signed(nonce))).state for nonce in range(5)} == {PENDING}


@pytest.mark.parametrize("operation", ["admit", "seal", "decide"])
@pytest.mark.parametrize("before", [True, False], ids=["not yet", "done"])
async def test_the_end_of_the_process_leaves_nobody_waiting(operation: str, before: Any) -> None:
    """The store hangs: who waits hears "unknown", or the node's yes, or that it had no turn; no task is left."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf, POOL) as stand:
        hold = shelf.proxy.hold(operation, before=before)
        waits = [stand.route(submission(signed(0, who=who))) for who in range(3)]
        await hold.waiting.acquire()
        stand.submitter.give_up()
        await recorder(stand).close()
        assert stand.submitter._ends.all() == []
        replies = [json.loads((await wait).body) for wait in waits]

        assert all("result" in reply or code(reply) in (-32040, -32012) for reply in replies)
        assert len(recorder(stand).owner) == 0
        await nothing_unrecorded(stand)


async def test_what_is_asked_right_before_the_end_is_told() -> None:
    """Its tasks have not begun when they are cancelled."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf) as stand:
        await stand.send(signed(0))  # the connection is there
        wait = stand.route(submission(signed(1)))
        stand.submitter.give_up()
        await recorder(stand).close()

        assert code(json.loads((await wait).body)) in (-32012, -32040)
        await recorder(stand).owner.settled()


@pytest.mark.parametrize("operation", ["admit", "seal", "decide"])
async def test_a_client_that_leaves_changes_nothing(operation: str) -> None:
    """At whatever write: it is carried out and recorded all the same (G8)."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf) as stand:
        hold = shelf.proxy.hold(operation)
        wait = stand.route(submission(signed(0)))
        await hold.waiting.acquire()
        wait.cancel()
        hold.go.set()

        assert "result" in await stand.send(signed(1))
        assert (await path(stand, signed(0)))[-1] == (PENDING, None)


@pytest.mark.parametrize("operation", ["admit", "decide"])
async def test_a_drain_gives_the_journal_up_in_time(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What hangs in the store when a drain gives up is told while its clients can still hear it."""
    shelf = ProxiedShelf()
    monkeypatch.setattr(app, "shelf_of", lambda *_: shelf)
    async with running(POOL, server={"drain_s": 0.2}) as relay, asyncio.TaskGroup() as group:
        hold = shelf.proxy.hold(operation)
        wait = group.create_task(relay.post(submission(signed(0))))
        await hold.waiting.acquire()
        await relay.instance.drain()
        _, reply = await wait

        assert "result" in reply if operation == "decide" else code(reply) == -32040
