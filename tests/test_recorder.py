"""With a journal: what becomes of a submission, and what its record says of it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from relay.devnode import NodeSettings
from relay.devnode.faults import Answer, Page, Refuse, Reset
from relay.journal.records import Taken
from relay.lifecycle import Mode, Reason, State
from tests.recorder_rig import (
    ProxiedShelf,
    attempts,
    enter,
    mined,
    nothing_unrecorded,
    path,
    record,
)
from tests.stand import Stand, call, signed, submission

POOL = NodeSettings(mode="pool", block_time_s=None)
QUEUED, SEALED, SENT, PENDING, FAILED = State.QUEUED, State.SEALED, State.SENT, State.PENDING, State.FAILED
DEAD = State.DEAD_LETTER


def code(reply: dict[str, Any]) -> int:
    """Of an error."""
    assert "error" in reply, reply
    found: int = reply["error"]["code"]
    return found


async def test_what_a_node_took_is_pending() -> None:
    """On disk at each step, under the names of the node and of this relay."""
    async with Stand.recording(ProxiedShelf()) as stand:
        assert "result" in await stand.send(signed(0))

        assert await path(stand, signed(0)) == [(QUEUED, None), (SEALED, None), (PENDING, None)]
        (attempt,) = await attempts(stand, signed(0))
        assert (attempt.node, attempt.actor, attempt.taken, attempt.verdict) == (
            stand.node.url,
            "stand",
            Taken.YES,
            "accepted",
        )


async def test_what_a_node_had_already_is_pending() -> None:
    """Its word for it is a yes."""
    async with Stand.recording(ProxiedShelf(), POOL) as stand:
        await stand.client.post(submission(signed(0)))

        assert "result" in await stand.send(signed(0))
        assert (await path(stand, signed(0)))[-1] == (PENDING, None)
        assert [attempt.verdict for attempt in await attempts(stand, signed(0))] == ["in_pool"]


NO: dict[str, tuple[str, Reason, Reason]] = {
    "funds": ("insufficient funds for gas * price + value", Reason.FUNDS, Reason.HELD_FUNDS),
    "not_now": ("txpool is full", Reason.NOT_NOW, Reason.HELD_NOT_NOW),
    "reprice": ("transaction underpriced", Reason.REPRICE, Reason.HELD_REPRICE),
    "slot_taken": ("replacement transaction underpriced", Reason.SLOT_TAKEN, Reason.SLOT_TAKEN),
    "refused": ("exceeds block gas limit", Reason.REFUSED, Reason.REFUSED),
}


@pytest.mark.parametrize(("words", "reason"), [(words, no) for words, no, _ in NO.values()], ids=NO)
async def test_a_refusal_that_was_told_is_the_end(words: str, reason: Reason) -> None:
    """The client acts on it, so the relay never sends it again of itself; the attempt is closed by it."""
    async with Stand.recording(ProxiedShelf()) as stand:
        stand.node.script.add(Refuse(message=words, times=1))
        reply = await stand.send(signed(0))

        assert reply["error"]["message"] == words
        assert (await path(stand, signed(0)))[1:] == [(SEALED, None), (FAILED, reason)]
        (attempt,) = await attempts(stand, signed(0))
        assert attempt.taken is Taken.NO
        assert words in attempt.text
        assert not (await record(stand, signed(0))).may_still_land


@pytest.mark.parametrize(("words", "reason"), [(words, held) for words, _, held in NO.values()], ids=NO)
async def test_who_was_told_yes_is_not_failed_for_what_may_pass(words: str, reason: Reason) -> None:
    """It waits, named; whoever waits for its outcome is not told that it will not land."""
    async with Stand.recording(ProxiedShelf()) as stand:
        stand.node.script.add(Refuse(message=words, times=1))
        outcome = await enter(stand, signed(0), Mode.ACCEPTED).outcome
        last = (await path(stand, signed(0)))[-1]

        assert last == ((QUEUED if reason.startswith("held") else FAILED), reason)
        assert (getattr(outcome, "code", None) == -32040) == (last[0] is QUEUED)


async def test_words_that_nobody_knows_leave_a_dead_letter() -> None:
    """The client hears them; the bytes may still land."""
    async with Stand.recording(ProxiedShelf()) as stand:
        stand.node.script.add(Refuse(message="an unheard-of error", code=-32099, times=1))

        assert code(await stand.send(signed(0))) == -32099
        assert (await path(stand, signed(0)))[-1] == (DEAD, Reason.REFUSED_UNPROVEN)
        assert (await record(stand, signed(0))).may_still_land


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_lost_answer_is_found_or_sent_again(when: Any) -> None:
    """Two attempts where it was sent twice, the first one's answer unknown."""
    async with Stand.recording(ProxiedShelf()) as stand:
        stand.node.script.add(Reset(when=when, times=1))

        assert "result" in await stand.send(signed(0))
        assert (await path(stand, signed(0)))[1:] == [(SEALED, None), (PENDING, None)]
        found = [(one.taken, one.verdict) for one in await attempts(stand, signed(0))]
        assert found == [(Taken.UNKNOWN, "lost"), (Taken.YES, "accepted")][: 1 if when == "after" else 2]
        await nothing_unrecorded(stand)


async def test_what_cannot_be_found_out_is_sent() -> None:
    """And nothing says that it failed."""
    async with Stand.recording(ProxiedShelf(), ordering={"max_wait_s": 2}) as stand:
        stand.node.script.add(Page(when="before"), Page(method="eth_getTransactionByHash"))

        assert code(await stand.send(signed(0))) == -32040
        assert (await path(stand, signed(0)))[1:] == [(SEALED, None), (SENT, None)]
        await nothing_unrecorded(stand)


async def test_a_node_that_is_not_there_has_taken_nothing() -> None:
    """The attempt is closed; the same bytes are a new attempt of the same row."""
    async with Stand.recording(ProxiedShelf()) as stand:
        await stand.node.close()

        assert code(await stand.send(signed(0))) == -32011
        assert (await path(stand, signed(0)))[1:] == [(SEALED, None), (FAILED, Reason.NOT_SENT)]
        assert [one.taken for one in await attempts(stand, signed(0))] == [Taken.NO]


async def test_a_precheck_ends_it_without_an_attempt() -> None:
    """The balance is asked at its turn."""
    async with Stand.recording(ProxiedShelf(), prechecks={"balance": True}) as stand:
        raw = signed(0, value=10**30)

        assert code(await stand.send(raw)) == -32000
        assert await path(stand, raw) == [(QUEUED, None), (FAILED, Reason.PRECHECK)]
        assert await attempts(stand, raw) == []


async def test_a_gap_that_is_refused_ends_it() -> None:
    """Without an attempt."""
    async with Stand.recording(ProxiedShelf(), ordering={"reorder_window_ms": 30, "on_gap": "refuse"}) as stand:
        assert code(await stand.send(signed(4))) == -32000
        assert await path(stand, signed(4)) == [(QUEUED, None), (FAILED, Reason.TURNED_AWAY)]


async def test_a_gap_holds_who_was_told_yes() -> None:
    """It waits for what is missing, named."""
    async with Stand.recording(ProxiedShelf(), ordering={"reorder_window_ms": 30, "on_gap": "refuse"}) as stand:
        outcome = await enter(stand, signed(4), Mode.ACCEPTED).outcome

        assert getattr(outcome, "code", None) == -32040
        assert (await path(stand, signed(4)))[-1] == (QUEUED, Reason.BEHIND_GAP)


async def test_a_drain_ends_what_waits() -> None:
    """What has no turn is refused, and its record says so; what is at the node is unknown, and its record, too."""
    async with Stand.recording(ProxiedShelf()) as stand:
        stand.node.script.add(Answer(method="eth_getTransactionByHash", result=None))
        held = stand.shelf.proxy.hold("seal", before=False)  # type: ignore[union-attr]
        waits = [stand.route(submission(signed(nonce))) for nonce in (0, 1)]
        await held.waiting.acquire()
        stand.submitter.give_up()
        replies = [json.loads((await wait).body) for wait in waits]
        held.go.set()

        assert list(map(code, replies)) == [-32040, -32012]
        assert (await path(stand, signed(1)))[-1] == (FAILED, Reason.TURNED_AWAY)
        assert (await record(stand, signed(0))).may_still_land


async def test_methods_beside_the_plain_one_are_kept_with_their_params() -> None:
    """So that they can be sent again as they came."""
    async with Stand.recording(ProxiedShelf()) as stand:
        await stand.ask(call("eth_sendRawTransactionConditional", signed(0), {"blockNumberMax": "0x99"}))
        await stand.ask(call("eth_sendPrivateTransaction", {"tx": signed(0, who=1), "fast": True}))
        journal = stand.shelf.journal  # type: ignore[union-attr]
        kept = [await journal.payload((await record(stand, signed(0, who=who))).id) for who in (0, 1)]

        assert [(one.method, json.loads(one.params)) for one in kept if one is not None] == [
            ("eth_sendRawTransactionConditional", [signed(0), {"blockNumberMax": "0x99"}]),
            ("eth_sendPrivateTransaction", [{"tx": signed(0, who=1), "fast": True}]),
        ]


async def test_a_burst_in_any_order_keeps_its_order_and_is_recorded_in_groups() -> None:
    """One call for what comes in one turn of the loop, however many senders."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf, NodeSettings(mode="strict", delay_ms=(0, 4), seed=1)) as stand:
        waits = [stand.route(submission(signed(nonce ^ 1, who=who))) for nonce in range(30) for who in range(3)]
        replies = [json.loads((await wait).body) for wait in waits]

        assert all("result" in reply for reply in replies)
        assert (stand.node.arrivals.inversions, stand.node.arrivals.overlaps) == (0, 0)
        assert shelf.proxy.asked("admit") == [90]
        assert [mined(stand, who) for who in range(3)] == [30] * 3
        await nothing_unrecorded(stand)


async def test_a_run_is_sealed_in_one_call() -> None:
    """And each of it has an end of its own."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf, upstream={"submit": "batch"}) as stand:
        waits = [stand.route(submission(signed(nonce))) for nonce in range(8)]
        assert all(["result" in json.loads((await wait).body) for wait in waits])

        assert shelf.proxy.asked("seal") == [8]
        assert [await path(stand, signed(nonce)) for nonce in range(8)] == [
            [(QUEUED, None), (SEALED, None), (PENDING, None)]
        ] * 8


async def test_a_follower_that_goes_back_says_so() -> None:
    """Behind one that was refused it waits again; its history tells, and the next turn is another attempt."""
    async with Stand.recording(ProxiedShelf(), NodeSettings(mode="strict"), upstream={"submit": "batch"}) as stand:
        stand.node.script.add(Refuse(message="txpool is full", nonce=0, times=1))
        waits = [stand.route(submission(signed(nonce))) for nonce in (0, 1)]
        first = json.loads((await waits[0]).body)
        again = await stand.send(signed(0))
        second = json.loads((await waits[1]).body)

        assert first["error"]["message"] == "txpool is full"
        assert ("result" in again, "result" in second) == (True, True)
        sealed = [(SEALED, None), (PENDING, None)]
        assert await path(stand, signed(0)) == [
            (QUEUED, None),
            (SEALED, None),
            (FAILED, Reason.NOT_NOW),
            (QUEUED, Reason.RETRIED),
            *sealed,
        ]
        steps = await path(stand, signed(1))
        assert steps[:2] == [(QUEUED, None), (SEALED, None)]
        assert steps[-1] == (PENDING, None)
        assert mined(stand) == 2
        await nothing_unrecorded(stand)


async def test_the_client_hears_after_the_disk_and_the_lane_goes_before_it() -> None:
    """The next one is at the node while the first one's end is being written (G3)."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf, NodeSettings(mode="strict")) as stand:
        decide = shelf.proxy.hold("decide")
        waits = [stand.route(submission(signed(nonce))) for nonce in range(3)]
        await stand.node.until(lambda: stand.node.arrivals.total == 3)
        await decide.waiting.acquire()
        assert not any(wait.done() for wait in waits)
        decide.go.set()

        assert all(["result" in json.loads((await wait).body) for wait in waits])


async def test_nothing_leaves_before_it_is_on_disk() -> None:
    """Neither before it is admitted nor before its intent is."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf) as stand:
        admit, seal = shelf.proxy.hold("admit"), shelf.proxy.hold("seal")
        wait = stand.route(submission(signed(0)))
        await admit.waiting.acquire()
        assert shelf.proxy.asked("seal") == []
        admit.go.set()
        await seal.waiting.acquire()
        assert stand.node.arrivals.total == 0
        seal.go.set()

        assert "result" in json.loads((await wait).body)


async def test_a_slow_admission_of_one_holds_no_other_sender() -> None:
    """Its lane waits, others go."""
    shelf = ProxiedShelf()
    async with Stand.recording(shelf) as stand:
        admit = shelf.proxy.hold("admit")
        wait = stand.route(submission(signed(0)))
        await admit.waiting.acquire()
        del shelf.proxy.holds["admit"]

        assert "result" in await stand.send(signed(0, who=1))
        admit.go.set()
        await asyncio.wait([wait])
        assert repr(stand.recorder) == "<recorder stand: 0 in flight>"
