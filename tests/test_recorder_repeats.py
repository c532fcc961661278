"""With a journal: the same bytes again, and what others did to a record meanwhile."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from relay.devnode import NodeSettings
from relay.devnode.faults import Forget, Hang, Page, Refuse
from relay.journal.records import Decision, Receipt, Seal
from relay.lifecycle import Mode, Reason, State
from tests.recorder_rig import ProxiedShelf, attempts, enter, nothing_unrecorded, path, record, shelf_of
from tests.stand import Stand, call, signed, submission
from tests.test_recorder import DEAD, FAILED, PENDING, POOL, QUEUED, SEALED, SENT, code

if TYPE_CHECKING:
    from relay.journal.records import Record


async def decided(stand: Stand, raw: str, *steps: tuple[State, Reason | None], fence: int = 0) -> Record:
    """Another process moves its record."""
    for target, reason in steps:
        now = await record(stand, raw)
        change = Decision(now.id, now.state, now.version, target, fence=fence, reason=reason, actor="another")
        (found,) = await shelf_of(stand).journal.decide([change])
        assert found == await record(stand, raw)
    return await record(stand, raw)


async def sealed(stand: Stand, raw: str, fence: int = 0) -> None:
    """Another process seals it."""
    now = await record(stand, raw)
    await shelf_of(stand).journal.seal([Seal(now.id, now.state, now.version, "another's", fence=fence)])


async def test_copies_in_flight_are_one_row() -> None:
    """One admission, one attempt."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf, NodeSettings(delay_ms=(5, 5))) as stand:
        replies = await asyncio.gather(*(stand.send(signed(0), id_=number) for number in range(3)))

        assert all("result" in reply for reply in replies)
        assert (shelf.proxy.asked("admit"), len(await attempts(stand, signed(0)))) == ([1], 1)


async def test_a_copy_that_comes_while_the_end_is_written_waits_with_it() -> None:
    """It is in flight until that is on disk."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf) as stand:
        decide = shelf.proxy.hold("decide")
        first = stand.route(submission(signed(0)))
        await decide.waiting.acquire()
        second = stand.route(submission(signed(0)))
        decide.go.set()

        assert json.loads((await first).body) == json.loads((await second).body)
        assert shelf.proxy.asked("admit") == [1]


async def test_what_a_node_took_is_read_back() -> None:
    """The node is not asked again: the watch knows if it has it still."""
    async with Stand.recording(ProxiedShelf(), POOL) as stand:
        first = await stand.send(signed(0))

        assert await stand.send(signed(0)) == first
        assert (stand.node.arrivals.total, len(await path(stand, signed(0)))) == (1, 3)


async def test_where_there_is_doubt_that_the_node_has_it_it_is_looked_for() -> None:
    """Found, or sent again as an attempt of the same row."""
    async with Stand.recording(ProxiedShelf(), POOL) as stand:
        stand.node.script.add(Forget(nonce=1, times=1))
        for nonce in (0, 1):
            await stand.send(signed(nonce))
            await decided(stand, signed(nonce), (PENDING, Reason.TIMEOUT_DROPPED))

        assert ["result" in await stand.send(signed(nonce)) for nonce in (0, 1)] == [True, True]
        assert [arrival.nonce for arrival in stand.node.arrivals] == [0, 1, 1]
        assert (await path(stand, signed(0)))[3:] == [(PENDING, Reason.TIMEOUT_DROPPED), (PENDING, None)]
        assert (await path(stand, signed(1)))[3:] == [
            (PENDING, Reason.TIMEOUT_DROPPED),
            (SEALED, None),
            (PENDING, None),
        ]
        await nothing_unrecorded(stand)


async def test_what_is_on_the_chain_is_read_back() -> None:
    """Whatever the node says of it."""
    async with Stand.recording(ProxiedShelf()) as stand:
        first = await stand.send(signed(0))
        await shelf_of(stand).journal.note([Receipt((await record(stand, signed(0))).id, 1, b"b" * 32, 1)])
        await decided(stand, signed(0), (State.MINED, None), (State.COMPLETED, None))

        assert await stand.send(signed(0)) == first
        assert stand.node.arrivals.total == 1


async def test_what_failed_is_a_new_attempt_of_the_same_row() -> None:
    """As often as the client likes."""
    async with Stand.recording(ProxiedShelf()) as stand:
        stand.node.script.add(Refuse(message="txpool is full", times=2))
        replies = [await stand.send(signed(0)) for _ in range(3)]

        assert ["result" in reply for reply in replies] == [False, False, True]
        failed = [(SEALED, None), (FAILED, Reason.NOT_NOW), (QUEUED, Reason.RETRIED)]
        assert await path(stand, signed(0)) == [(QUEUED, None), *failed, *failed, (SEALED, None), (PENDING, None)]
        assert len(await attempts(stand, signed(0))) == 3


async def test_what_may_have_been_sent_is_asked_for_first() -> None:
    """Its record is open: the second client finds what the first one could not be told."""
    async with Stand.recording(ProxiedShelf(), ordering={"max_wait_s": 2}) as stand:
        stand.node.script.add(Page(when="after", times=1), Page(method="eth_getTransactionByHash"), Hang(first=2))
        first = await stand.send(signed(0))
        assert (await path(stand, signed(0)))[-1] == (SENT, None)
        arrivals = stand.node.arrivals.total
        stand.node.script.clear()

        assert code(first) == -32040
        assert "result" in await stand.send(signed(0))
        assert stand.node.arrivals.total == arrivals
        assert (await path(stand, signed(0)))[-1] == (PENDING, None)


async def test_what_ended_otherwise_is_refused_in_words() -> None:
    """A dead letter that may land says so; nothing is sent."""
    async with Stand.recording(ProxiedShelf()) as stand:
        stand.node.script.add(Refuse(message="an unheard-of error", code=-32099, times=1))
        await stand.send(signed(0))
        dead = (await stand.send(signed(0)))["error"]
        taken = enter(stand, signed(1), Mode.VERDICT)  # behind a gap: time to withdraw it
        await stand.recorder.entered(taken)  # type: ignore[union-attr]
        await decided(stand, signed(1), (State.CANCELLED, Reason.BY_OPERATOR))
        cancelled = (await stand.send(signed(1, value=1)))["error"]

        assert (dead["code"], dead["data"]["state"], dead["data"]["mayStillLand"]) == (-32031, DEAD, True)
        assert "send no other in its place" in dead["message"]
        assert (cancelled["code"], cancelled["data"]["state"]) == (-32031, "cancelled")
        assert stand.node.arrivals.total == 1


async def test_cancelled_before_its_turn_it_is_not_sent() -> None:
    """An operator was first: the seal is refused, its client hears it, the lane goes on."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf) as stand:

        async def cancel() -> None:
            shelf.proxy.beside.clear()
            await decided(stand, signed(0), (State.CANCELLED, Reason.BY_OPERATOR))

        shelf.proxy.beside["seal"] = cancel
        reply = await stand.send(signed(0))

        assert (code(reply), reply["error"]["data"]["state"]) == (-32031, "cancelled")
        assert stand.node.arrivals.total == 0
        assert await path(stand, signed(0)) == [(QUEUED, None), (State.CANCELLED, Reason.BY_OPERATOR)]
        assert "result" in await stand.send(signed(0, value=2))


async def test_superseded_before_its_turn_it_is_not_sent() -> None:
    """Another hash is final at its nonce."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf) as stand:

        async def supersede() -> None:
            await decided(stand, signed(0), (State.SUPERSEDED, Reason.NONCE_TAKEN))

        shelf.proxy.beside["seal"] = supersede

        assert code(await stand.send(signed(0))) == -32031
        assert stand.node.arrivals.total == 0


async def test_sealed_by_another_instance_it_is_looked_for_first() -> None:
    """Found at the node it is not sent a second time."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf, POOL) as stand:

        async def send_it() -> None:
            await sealed(stand, signed(0))
            await stand.client.post(submission(signed(0)))

        shelf.proxy.beside["seal"] = send_it

        assert "result" in await stand.send(signed(0))
        assert stand.node.arrivals.total == 1
        assert [state for state, _ in await path(stand, signed(0))] == [QUEUED, SEALED, PENDING]


async def test_a_late_decision_is_refused_and_its_facts_are_kept() -> None:
    """A receipt was seen before the answer was written: mined it stays, and the client is told the node's yes."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf) as stand:

        async def mine() -> None:
            shelf.proxy.beside.clear()
            await decided(stand, signed(0), (State.MINED, None))

        shelf.proxy.beside["decide"] = mine
        reply = await stand.send(signed(0))

        assert "result" in reply
        assert (await record(stand, signed(0))).state is State.MINED
        assert [attempt.verdict for attempt in await attempts(stand, signed(0))] == ["accepted"]


async def test_a_late_no_is_told_only_if_the_record_agrees() -> None:
    """The sweep has sent it again meanwhile: then it may land, whatever this node said."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf) as stand:

        async def resend() -> None:
            shelf.proxy.beside.clear()
            await sealed(stand, signed(0))

        shelf.proxy.beside["decide"] = resend
        stand.node.script.add(Refuse(message="txpool is full", times=1))

        assert code(await stand.send(signed(0))) == -32040
        assert (await record(stand, signed(0))).may_still_land
        assert [attempt.verdict for attempt in await attempts(stand, signed(0))] == ["not_now", ""]


async def test_the_same_bytes_by_another_method_are_one_row() -> None:
    """Both are sent, one after the other, under one record; while one is in flight the record is held."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf, POOL) as stand:
        decide = shelf.proxy.hold("decide")
        first = stand.route(submission(signed(0)))
        second = stand.route(call("eth_sendRawTransactionConditional", signed(0), {}))
        await decide.waiting.acquire()
        kept = await record(stand, signed(0))
        assert stand.recorder is not None
        assert stand.recorder.holds(kept.id)
        decide.go.set()
        replies = [json.loads((await wait).body) for wait in (first, second)]

        assert all("result" in reply for reply in replies), replies
        assert not stand.recorder.holds(kept.id)
        assert (await path(stand, signed(0)))[-1] == (PENDING, None)
        await nothing_unrecorded(stand)


async def test_a_recorded_yes_is_no_end_for_who_comes_later() -> None:
    """The one who was told yes counts on it: a refusal does not fail the row, and is not told to the other."""
    async with Stand.recording(ProxiedShelf()) as stand:
        stand.node.script.add(Refuse(message="txpool is full", times=2))
        await enter(stand, signed(0), Mode.ACCEPTED).outcome
        later = await stand.send(signed(0))

        assert code(later) == -32040
        assert (await path(stand, signed(0)))[-1] == (QUEUED, Reason.HELD_NOT_NOW)
        assert (await record(stand, signed(0))).mode is Mode.ACCEPTED


async def test_what_is_on_the_chain_by_another_is_no_refusal() -> None:
    """It waited here until its time was over; another instance had sent it, and it is final: its client hears yes."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf, ordering={"max_wait_s": 1, "reorder_window_ms": 60_000}) as stand:
        waiting = stand.route(submission(signed(1)))
        await asyncio.wait([shelf_entered(stand)])
        await sealed(stand, signed(1))
        await decided(stand, signed(1), (PENDING, None), (State.MINED, None), (State.COMPLETED, None))

        assert "result" in json.loads((await waiting).body)
        assert stand.node.arrivals.total == 0


def shelf_entered(stand: Stand) -> asyncio.Future[None]:
    """Done when the one submission in flight is on disk."""
    (one,) = stand.submitter._ends.all()
    return one.known_row.ready


async def test_failed_by_another_meanwhile_it_is_a_new_attempt() -> None:
    """Its client was told no elsewhere; here the same bytes are sent in the same turn."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf) as stand:

        async def fail() -> None:
            await decided(stand, signed(0), (FAILED, Reason.FUNDS))

        shelf.proxy.beside["seal"] = fail

        assert "result" in await stand.send(signed(0))
        assert [state for state, _ in await path(stand, signed(0))] == [QUEUED, FAILED, QUEUED, SEALED, PENDING]


async def test_a_yes_that_another_gave_changes_what_a_no_leads_to() -> None:
    """Another instance's client was told yes while this one was at the node: it is held, and nobody is told no."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf) as stand:

        async def promise() -> None:
            shelf.proxy.beside.clear()
            now = await record(stand, signed(0))
            yes = Decision(now.id, now.state, now.version, now.state, reason=now.reason, mode=Mode.ACCEPTED)
            await shelf_of(stand).journal.decide([yes])

        shelf.proxy.beside["decide"] = promise
        stand.node.script.add(Refuse(message="insufficient funds for gas * price + value", times=1))

        assert code(await stand.send(signed(0))) == -32040
        last = await record(stand, signed(0))
        assert (last.state, last.reason, last.mode) == (QUEUED, Reason.HELD_FUNDS, Mode.ACCEPTED)


async def test_what_a_person_ended_is_not_taken_up_by_a_turn() -> None:
    """Failed by an operator before its turn, for a client who was told yes: it is not sent, and stays failed."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf) as stand:

        async def fail() -> None:
            await decided(stand, signed(0), (FAILED, Reason.BY_OPERATOR))

        shelf.proxy.beside["seal"] = fail
        submission_ = enter(stand, signed(0), Mode.ACCEPTED)
        await submission_.outcome

        assert stand.node.arrivals.total == 0
        assert [state for state, _ in await path(stand, signed(0))] == [QUEUED, FAILED]


async def test_a_yes_that_was_given_here_while_the_end_was_written_is_no_late_decision() -> None:
    """What is known here is newer than what the decision was made on: it is made once more, and the record moves on."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf) as stand:

        async def promise() -> None:
            shelf.proxy.beside.clear()
            (one,) = stand.submitter._ends.all()
            promised = stand.submitter.promise(one)
            assert promised is not None
            assert await promised

        shelf.proxy.beside["decide"] = promise

        assert "result" in await stand.send(signed(0))
        last = await record(stand, signed(0))
        assert (last.state, last.mode) == (PENDING, Mode.ACCEPTED)
