"""Watch and sweep over a development chain: what becomes of what was accepted."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from relay import config, methods
from relay.devnode import FUNDED, Answer, DevNode, Hang, NodeSettings, Refuse
from relay.journal.faults import Unavailable
from relay.journal.memory import MemoryJournal
from relay.journal.records import START, Seal, Sealed
from relay.lifecycle import Mode, Reason, State
from relay.settlement.asking import BATCH
from relay.settlement.sweep import End
from relay.sides import House, LaneSide, NodeSide
from relay.submission import Submission
from relay.tasks import TaskOwner
from relay.telemetry.metrics import Metrics
from relay.testing.samples import intake
from relay.transaction import decode
from tests.settlement_rig import OLD_S, Held, Rig, rig
from tests.stand import CHAIN_ID, signed, submission

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

POOL = NodeSettings(mode="pool", block_time_s=None)
GWEI = 10**9


def hash_of(raw: str) -> str:
    """0x…"""
    return decode(bytes.fromhex(raw[2:])).hash


async def told(here: Rig, raw: str) -> list[State]:
    """The states of its history, each once where it stayed."""
    events = await here.journal.history((await here.record(raw)).id)
    return [event.state for event in events if event.origin is not event.state]


# The watch.


async def test_a_transaction_is_mined_then_completed() -> None:
    """The receipt is kept with its block; three blocks deep it is final."""
    async with rig(POOL) as here:
        raw = signed(0)
        record = await here.send(raw)
        await here.watch()
        assert await here.state(raw) is State.PENDING
        block = here.node.mine()
        await here.watch()
        assert await here.state(raw) is State.MINED
        here.node.mine()
        await here.watch()
        assert await here.state(raw) is State.MINED
        here.node.mine()
        await here.watch()
        seen = await here.journal.receipts(record.id)

        assert await here.state(raw) is State.COMPLETED
        assert [(each.receipt.block_number, each.receipt.block_hash.hex()) for each in seen] == [(1, block.hash[2:])]
        assert here.metrics.settlements.cell("completed").n == 1


async def test_the_node_is_not_asked_while_nothing_is_out() -> None:
    """An idle journal costs it nothing, and neither does a head that was seen before."""
    async with rig(POOL) as here:
        here.node.arrivals.clear()
        await here.watch()
        assert here.node.arrivals.calls.total() == 0
        await here.send(signed(0))
        await here.watch()
        here.node.arrivals.clear()
        await here.watch()
        assert dict(here.node.arrivals.calls) == {"eth_blockNumber": 1}


async def test_receipts_are_asked_for_in_batches_and_singly_where_those_are_refused() -> None:
    """A page is one request to the node; one that refuses batches is not sent another for a while."""
    async with rig(POOL) as here:
        for nonce in range(BATCH // 2):
            await here.send(signed(nonce))
        here.node.script.add(Refuse(method="dev_batch", message="batches are not allowed", every=1))
        here.node.mine()
        await here.watch()
        here.node.mine()
        await here.watch()
        states = {record.state for record in await here.journal.unfinished(START)}

        assert states == {State.MINED}
        assert here.node.script.hits() == [1]


async def test_a_reorganisation_takes_a_transaction_back_and_it_is_mined_again() -> None:
    """Another block at its height: pending again; then another receipt, and both are kept."""
    async with rig(POOL) as here:
        raw = signed(0)
        record = await here.send(raw)
        here.node.mine()
        await here.watch()
        here.node.chain.reorganise(1)
        waiting = here.node.chain.pool.clear()
        here.node.mine()
        here.node.mine()
        await here.watch()
        taken_back = await here.record(raw)
        await here.old_sweep()
        here.node.mine()
        await here.watch()

        assert waiting == 1
        assert (taken_back.state, taken_back.reason) == (State.PENDING, Reason.REORGANISED)
        assert await here.state(raw) is State.MINED
        assert len(await here.journal.receipts(record.id)) == 2
        assert here.metrics.reorganisations.cell().n == 1


async def test_a_transaction_that_moves_to_another_block_stays_mined() -> None:
    """The reorganisation is told, and it is completed by its new block's depth."""
    async with rig(POOL) as here:
        raw = signed(0)
        await here.send(raw)
        here.node.mine()
        await here.watch()
        here.node.chain.reorganise(1)
        here.node.mine()
        here.pass_s(60)
        await here.watch()
        moved = await here.record(raw)
        here.node.mine()
        here.node.mine()
        await here.watch()

        assert (moved.state, moved.reason) == (State.MINED, Reason.REORGANISED)
        assert await here.state(raw) is State.COMPLETED


async def test_an_empty_receipt_is_no_evidence() -> None:
    """A node whose index lags behind: its block is still there, so nothing moves, however often it says so."""
    async with rig(POOL) as here:
        raw = signed(0)
        await here.send(raw)
        here.node.mine()
        await here.watch()
        del here.node.chain._mined[hash_of(raw)]
        for _ in range(6):
            here.node.mine()
            await here.watch()
        assert await here.state(raw) is State.MINED


async def test_a_chain_that_became_shorter_is_believed_after_some_heads() -> None:
    """No receipt and no block at that height is what a lagging node says, too."""
    async with rig(POOL) as here:
        raw = signed(0)
        await here.send(raw)
        here.node.mine()
        await here.watch()
        here.node.chain.reorganise(1, keep=False)
        for _ in range(4):
            here.pass_s(60)
            await here.watch()
        lagging = await here.state(raw)
        here.node.mine()
        await here.watch()

        assert lagging is State.MINED
        assert await here.state(raw) is State.PENDING


async def test_an_answer_that_holds_neither_receipt_nor_block_is_believed_after_three_heads() -> None:
    """The same head counts once, however often it is looked at: a node that is behind says the same."""
    async with rig(POOL) as here:
        raw = signed(0)
        await here.send(raw)
        here.node.mine()
        await here.watch()
        del here.node.chain._mined[hash_of(raw)]
        here.node.script.add(Answer(method="eth_getBlockByNumber", result=None, every=1))
        states = []
        for block in (False, False, False, True, True):
            if block:
                here.node.mine()
            here.pass_s(60)
            await here.watch()
            states.append(await here.state(raw))
        assert states == [State.MINED] * 4 + [State.PENDING]


async def test_a_completed_one_is_reopened_by_a_deep_reorganisation() -> None:
    """Deeper than `confirmations`: the sweep looks at what was completed lately; it ends on the chain again."""
    async with rig(POOL) as here:
        raw = signed(0)
        await here.send(raw)
        for _ in range(3):
            here.node.mine()
        await here.watch()
        completed = await here.state(raw)
        here.node.chain.reorganise(3)
        for _ in range(2):
            here.node.mine()
        await here.sweep()
        reopened = await here.state(raw)
        here.node.mine()
        here.pass_s(60)
        await here.watch()

        assert (completed, reopened) == (State.COMPLETED, State.MINED)
        assert await here.state(raw) is State.COMPLETED


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (lambda here, raw: None, Reason.TIMEOUT_IN_POOL),
        (lambda here, raw: here.node.chain.forget(hash_of(raw)), Reason.TIMEOUT_DROPPED),
        (lambda here, raw: here.node.chain.pool.clear(), Reason.TIMEOUT_GAP),
    ],
    ids=["in pool", "dropped", "gap"],
)
async def test_what_has_no_receipt_for_two_minutes_is_named(what: Callable[[Rig, str], Any], reason: Reason) -> None:
    """By the watch, once: it is not written again at the next head."""
    async with rig(POOL) as here:
        await here.send(signed(0))
        raw = signed(1)
        record = await here.send(raw)
        what(here, raw)
        here.pass_s(119)
        await here.watch()
        early = await here.record(raw)
        here.pass_s(OLD_S)
        await here.watch()
        late = await here.record(raw)
        here.pass_s(OLD_S)
        await here.watch()

        assert early == record
        assert (late.state, late.reason) == (State.PENDING, reason)
        assert (await here.record(raw)).version == late.version


async def test_a_nonce_that_another_used_is_named() -> None:
    """By the watch, before it is deep enough for more."""
    async with rig(POOL) as here:
        raw = signed(0)
        await here.send(raw)
        here.node.chain.forget(hash_of(raw))
        assert here.node.chain.submit(decode(bytes.fromhex(signed(0, value=7)[2:]))) is None
        here.node.mine()
        here.pass_s(OLD_S)
        await here.watch()
        assert (await here.record(raw)).reason is Reason.TIMEOUT_NONCE_USED


# The sweep.


async def test_a_dropped_transaction_is_sent_again_and_mined() -> None:
    """The same bytes, through the lane; the history tells of the second attempt."""
    async with rig(POOL) as here:
        raw = signed(0)
        record = await here.send(raw)
        here.node.chain.forget(hash_of(raw))
        await here.old_sweep()
        again = await here.record(raw)
        here.node.mine()
        await here.watch()

        assert (again.state, again.tries) == (State.PENDING, 2)
        assert len(await here.journal.attempts(record.id)) == 2
        assert await here.state(raw) is State.MINED
        assert [each.hash for each in here.node.arrivals] == [hash_of(raw)] * 2
        assert here.metrics.resends.cell("pending").n == 1


async def test_what_was_sent_a_moment_ago_is_left_alone() -> None:
    """Nobody is asked about it."""
    async with rig(POOL) as here:
        raw = signed(0)
        record = await here.send(raw)
        here.node.chain.forget(hash_of(raw))
        here.pass_s(100)
        await here.sweep()
        assert await here.record(raw) == record


async def test_what_is_in_flight_here_is_left_alone() -> None:
    """Its turn is longer than most: whoever sent it is still at it."""
    async with rig(POOL) as here:
        raw = signed(0)
        here.node.script.add(Hang())
        waiting = here.stand.route(submission(raw))
        await here.node.until(lambda: here.node.hanging == 1)
        here.pass_s(OLD_S)
        await here.settlement._sweep_once(here.journal, asked=True)
        resends = sum(cell.n for cell in here.metrics.resends.cells.values())
        here.node.release()
        await waiting

        assert resends == 0
        assert await here.state(raw) is State.PENDING


async def test_a_pool_that_forgot_everything_gets_it_back_in_nonce_order() -> None:
    """All of a sender's, and of several senders: a restart of the node that keeps no pool."""
    async with rig(POOL) as here:
        raws = {(who, nonce): signed(nonce, who=who) for nonce in range(4) for who in range(3)}
        for raw in raws.values():
            await here.send(raw)
        here.node.chain.pool.clear()
        here.node.arrivals.clear()
        await here.old_sweep()
        order = [(each.sender, each.nonce) for each in here.node.arrivals]
        here.node.mine()
        await here.watch()

        assert [nonce for sender, nonce in order if sender == order[0][0]] == [0, 1, 2, 3]
        assert here.node.arrivals.inversions == here.node.arrivals.overlaps == 0
        assert {await here.state(raw) for raw in raws.values()} == {State.MINED}


async def test_resends_are_counted_and_end_in_a_dead_letter_that_proof_revives() -> None:
    """A node that says yes and keeps nothing: sent `max_resends` times more, then a person's; or on the chain yet."""
    async with rig(POOL, journal={"max_resends": 2}) as here:
        raw = signed(0)
        await here.send(raw)
        states = []
        for _ in range(4):
            here.node.chain.forget(hash_of(raw))
            await here.old_sweep()
            states.append(await here.state(raw))
        dead = await here.record(raw)
        assert here.node.chain.submit(decode(bytes.fromhex(raw[2:]))) is None
        for _ in range(3):
            here.node.mine()
        await here.sweep()

        assert states == [State.PENDING, State.PENDING, State.DEAD_LETTER, State.DEAD_LETTER]
        assert (dead.reason, dead.tries, dead.may_still_land) == (Reason.RESENDS_USED_UP, 3, True)
        assert await here.state(raw) is State.COMPLETED


async def test_a_witness_that_knows_it_keeps_it_from_being_sent_again() -> None:
    """The upstream has lost it, another node has it."""
    async with DevNode(POOL) as witness, rig(POOL, upstream={"witnesses": [witness.url]}) as here:
        raw = signed(0)
        await here.send(raw)
        here.node.chain.forget(hash_of(raw))
        assert witness.chain.submit(decode(bytes.fromhex(raw[2:]))) is None
        await here.old_sweep()
        known = await here.record(raw)
        witness.chain.forget(hash_of(raw))
        await here.old_sweep()

        assert (known.reason, known.tries) == (Reason.TIMEOUT_IN_POOL, 1)
        assert (await here.record(raw)).tries == 2
        assert len(witness.arrivals) == 0


@pytest.mark.parametrize("wrong", ["away", "other chain"])
async def test_while_a_witness_does_not_answer_nothing_moves(wrong: str) -> None:
    """It is held, counted as unresolved, and sent again when everybody answers."""
    settings = NodeSettings(mode="pool", block_time_s=None, chain_id=7 if wrong == "other chain" else CHAIN_ID)
    witness = DevNode(settings)
    await witness.start()
    async with rig(POOL, upstream={"witnesses": [witness.url]}) as here:
        if wrong == "away":
            await witness.close()
        raw = signed(0)
        await here.send(raw)
        here.node.chain.forget(hash_of(raw))
        await here.old_sweep()
        held = await here.record(raw)
        await here.old_sweep()
        unresolved = here.settlement._sweep.unresolved
        if wrong == "away":
            await witness.start()
        else:
            witness.reset(POOL)
        await here.old_sweep()

        assert (held.state, held.reason, held.tries) == (State.PENDING, Reason.HELD_UNANSWERED, 1)
        assert unresolved == 1
        assert (await here.record(raw)).tries == 2
        assert here.settlement._sweep.unresolved == 0
    await witness.close()


async def test_a_nonce_that_another_took_for_good_names_it() -> None:
    """Superseded only when it is deep enough, with the hash that the chain shows there."""
    async with rig(POOL) as here:
        raw, other = signed(3), signed(3, value=7)
        for nonce in range(3):
            await here.send(signed(nonce))
        await here.send(raw)
        here.node.chain.forget(hash_of(raw))
        assert here.node.chain.submit(decode(bytes.fromhex(other[2:]))) is None
        here.node.mine()
        await here.old_sweep()
        early = await here.record(raw)
        for _ in range(7):
            here.node.mine()
        await here.old_sweep()
        late = await here.record(raw)

        assert (early.state, early.reason) == (State.PENDING, Reason.TIMEOUT_NONCE_USED)
        assert (late.state, late.reason) == (State.SUPERSEDED, Reason.NONCE_TAKEN)
        assert late.other_hash == bytes.fromhex(hash_of(other)[2:])


async def test_a_slot_that_another_holds_in_the_pool_is_held() -> None:
    """Ours is gone, the pending count says that the nonce is taken: nothing is sent into it."""
    async with rig(POOL) as here:
        raw, other = signed(0), signed(0, value=7)
        await here.send(raw)
        here.node.chain.forget(hash_of(raw))
        assert here.node.chain.submit(decode(bytes.fromhex(other[2:]))) is None
        await here.old_sweep()
        held = await here.record(raw)
        assert (held.reason, held.tries) == (Reason.HELD_DROPPED, 1)


async def test_what_a_lower_nonce_is_missing_for_is_held_until_it_is_there() -> None:
    """Not sent into a gap that we cannot fill; sent when somebody has filled it."""
    async with rig(POOL, ordering={"reorder_window_ms": 0}) as here:
        raw = signed(2)
        await here.send(raw)
        here.node.chain.pool.clear()
        await here.old_sweep()
        held = await here.record(raw)
        for nonce in range(2):
            assert here.node.chain.submit(decode(bytes.fromhex(signed(nonce)[2:]))) is None
        await here.old_sweep()

        assert (held.reason, held.tries) == (Reason.BEHIND_GAP, 1)
        assert (await here.record(raw)).tries == 2


async def test_under_the_base_fee_is_named_and_not_sent_again() -> None:
    """In the pool and out of it; when the fee has fallen it is sent and mined."""
    async with rig(POOL) as here:
        raw = signed(0)
        await here.send(raw)
        here.node.change(base_fee=100 * GWEI)
        here.node.mine()
        await here.old_sweep()
        inside = await here.record(raw)
        here.node.chain.forget(hash_of(raw))
        await here.old_sweep()
        outside = await here.record(raw)
        here.node.change(base_fee=GWEI)
        here.node.mine()
        await here.old_sweep()
        here.node.mine()
        await here.watch()

        assert inside.reason is Reason.UNDER_BASE_FEE
        assert (outside.reason, outside.tries) == (Reason.UNDER_BASE_FEE, 1)
        assert await here.state(raw) is State.MINED


async def test_an_unfunded_one_is_named_and_sent_when_it_is_funded() -> None:
    """No attempt is wasted on a sender that cannot pay."""
    async with rig(POOL) as here:
        raw = signed(0)
        await here.send(raw)
        sender = bytes.fromhex(FUNDED[0].address[2:])
        here.node.chain.fund(sender, 1)
        here.node.chain.forget(hash_of(raw))
        await here.old_sweep()
        held = await here.record(raw)
        here.node.chain.fund(sender, 10**18)
        await here.old_sweep()

        assert (held.reason, held.tries) == (Reason.UNFUNDED, 1)
        assert (await here.record(raw)).tries == 2


async def test_a_paused_lane_is_not_sent_into() -> None:
    """Until an operator resumes it."""
    async with rig(POOL) as here:
        raw = signed(0)
        record = await here.send(raw)
        here.node.chain.forget(hash_of(raw))
        lane = await here.journal.set_paused(CHAIN_ID, record.sender, paused=True, version=0, detail="", actor="me")
        assert lane is not None
        await here.old_sweep()
        paused = await here.record(raw)
        await here.journal.set_paused(CHAIN_ID, record.sender, paused=False, version=1, detail="", actor="me")
        await here.old_sweep()

        assert paused.tries == 1
        assert (await here.record(raw)).tries == 2


async def left(here: Rig, raw: str, mode: Mode = Mode.ACCEPTED, *, seal: bool = False) -> None:
    """What a process that died has left: queued, or sealed."""
    signed_ = decode(bytes.fromhex(raw[2:]))
    bytes_ = bytes.fromhex(raw[2:])
    fields = intake(
        signed_.nonce, sender=signed_.sender_bytes, chain_id=CHAIN_ID, hash_=bytes.fromhex(signed_.hash[2:]),
        raw=bytes_, mode=mode,
    )  # fmt: skip
    record = (await here.journal.admit([fields]))[0].record
    if seal:
        done = (await here.journal.seal([Seal(record.id, record.state, record.version, "node")]))[0]
        assert isinstance(done, Sealed)


@pytest.mark.parametrize("seal", [False, True])
async def test_what_another_instance_left_is_sent(seal: bool) -> None:
    """Queued or sealed, and nobody works on it for longer than a submission may wait."""
    async with rig(POOL) as here:
        raw = signed(0)
        await left(here, raw, seal=seal)
        here.pass_s(10)
        await here.sweep()
        early = await here.state(raw)
        here.pass_s(20)
        await here.sweep()

        assert early is (State.SEALED if seal else State.QUEUED)
        assert await here.state(raw) is State.PENDING
        assert len(here.node.arrivals) == 1


async def test_a_sealed_one_that_the_node_has_is_not_sent() -> None:
    """It had left before the process died."""
    async with rig(POOL) as here:
        raw = signed(0)
        await left(here, raw, seal=True)
        assert here.node.chain.submit(decode(bytes.fromhex(raw[2:]))) is None
        here.pass_s(30)
        await here.sweep()
        assert await here.state(raw) is State.PENDING
        assert len(here.node.arrivals) == 0


async def test_an_endpoint_that_tells_less_than_before_lags() -> None:
    """A node behind a balancer that is behind: nothing is concluded from it, until it says so three sweeps in a row."""
    async with rig(POOL) as here:
        raw = signed(0)
        record = await here.send(raw)
        here.node.chain.forget(hash_of(raw))
        await here.journal.note_count(here.stand.pool.endpoint.name, CHAIN_ID, record.sender, 5)
        seen = []
        for _ in range(3):
            await here.old_sweep()
            record = await here.record(raw)
            seen.append((record.reason, record.tries))

        assert seen[:2] == [(Reason.HELD_UNANSWERED, 1)] * 2
        assert record.tries == 2


async def test_a_sweep_that_uses_up_its_time_goes_on_at_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that were looked at are not looked at again before the others were."""
    monkeypatch.setattr("relay.settlement.sweep.PAGE", 1)
    async with rig(POOL) as here:
        raws = [signed(0, who=who) for who in range(3)]
        for raw in raws:
            await here.send(raw)
            here.node.chain.forget(hash_of(raw))
        look = here.settlement._sweep._landings.look

        async def slow(*args: Any) -> Any:
            here.pass_s(70)
            return await look(*args)

        monkeypatch.setattr(here.settlement._sweep._landings, "look", slow)
        here.pass_s(OLD_S)
        first = await here.sweep()
        tries = sorted([(await here.record(raw)).tries for raw in raws])
        second = await here.sweep()

        assert (first, tries) == (End.CUT, [1, 2, 2])
        assert second is End.DONE
        assert [(await here.record(raw)).tries for raw in raws] == [2, 2, 2]


async def test_another_chain_than_the_transactions_is_not_believed() -> None:
    """The node was replaced: nothing is concluded."""
    async with rig(POOL, prechecks={"chain_id": CHAIN_ID}) as here:
        raw = signed(0)
        await here.send(raw)
        here.node.reset(NodeSettings(mode="pool", block_time_s=None, chain_id=7))
        here.pass_s(OLD_S)
        end = await here.sweep()
        assert end is End.FAILED
        assert (await here.record(raw)).tries == 1


# Housekeeping.


async def test_one_instance_sweeps_and_another_when_it_is_gone() -> None:
    """By a claim in the journal; whoever is asked sweeps all the same."""
    async with rig(POOL) as here:
        owner, other = here.settlement, here.settlement
        assert await owner._sweep_once(here.journal, asked=False) is End.DONE
        other._actor = "other"
        assert await other._sweep_once(here.journal, asked=False) is End.LEFT
        assert await other._sweep_once(here.journal, asked=True) is End.DONE
        here.pass_s(1000)
        assert await other._sweep_once(here.journal, asked=False) is End.DONE


async def test_what_ended_long_ago_is_deleted_but_not_a_lanes_highest_nonce() -> None:
    """After the sweep, by `retention_d`."""
    async with rig(POOL, journal={"retention_d": 1}) as here:
        raws = [signed(0), signed(1)]
        records = [await here.send(raw) for raw in raws]
        for _ in range(3):
            here.node.mine()
        await here.watch()
        here.pass_s(86_000)
        await here.sweep()
        kept = await here.journal.by_id(records[0].id)
        here.pass_s(1_000)
        await here.sweep()

        assert kept is not None
        assert await here.journal.by_id(records[0].id) is None
        assert await here.state(raws[1]) is State.COMPLETED
        assert here.metrics.pruned.cell().n == 1


async def test_a_gap_is_told_and_a_wedged_lane_after_ten_minutes() -> None:
    """With what is missing; it is over when the nonce has come."""
    async with rig(POOL, ordering={"reorder_window_ms": 0}) as here:
        gaps = here.settlement._gaps
        await here.send(signed(2))
        await gaps.look(here.journal, CHAIN_ID)
        (gap,) = gaps._gaps.values()
        missing = (gap.first, gap.lowest)
        counted = [here.metrics.lanes_wedged.values()[()]]
        here.pass_s(600)
        await gaps.look(here.journal, CHAIN_ID)
        counted.append(here.metrics.lanes_wedged.values()[()])
        for nonce in range(2):
            assert here.node.chain.submit(decode(bytes.fromhex(signed(nonce)[2:]))) is None
        await gaps.look(here.journal, CHAIN_ID)

        assert missing == (0, 2)
        assert counted == [(0,), (1,)]
        assert here.metrics.lanes_gapped.values()[()] == (0,)


async def test_the_gauges_show_what_is_open_and_why() -> None:
    """By the census that was taken last."""
    async with rig(POOL) as here:
        raw = signed(0)
        await here.send(raw)
        here.node.chain.forget(hash_of(raw))
        here.pass_s(OLD_S)
        await here.watch()
        await here.settlement._standing.refresh(here.journal)
        here.pass_s(10)

        assert here.metrics.journal_rows.values()[("pending",)] == (1,)
        assert here.metrics.journal_held.values()[("timeout_dropped",)] == (1,)
        assert here.metrics.journal_oldest_age.values()[()] == (OLD_S + 10,)
        assert here.metrics.journal_census_age.values()[()] == (10,)


async def test_a_store_that_fails_delays_and_ends_nothing() -> None:
    """Watch and sweep go on when it is back."""
    async with rig(POOL) as plain:
        raw = signed(0)
        await plain.send(raw)
        plain.node.mine()
        settlement, journal = plain.settlement, plain.journal
        unfinished = journal.unfinished

        async def away(*_: Any, **__: Any) -> Any:
            raise Unavailable("the disk is full ([journal] url)")

        journal.unfinished = away  # type: ignore[method-assign]
        assert await settlement._guarded("watch", settlement._step) is None
        journal.unfinished = unfinished  # type: ignore[method-assign]
        assert await settlement._guarded("watch", settlement._step) is True
        assert await plain.state(raw) is State.MINED


async def interrupted(work: Callable[[], Awaitable[object]], at: int) -> bool:
    """Cancelled after ``at`` steps of the loop; did it end before?"""
    task = asyncio.ensure_future(work())  # noqa: TID251 - the test owns it
    for _ in range(at):
        if task.done():
            break
        await asyncio.sleep(0)
    done = task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return done


async def test_a_sweep_that_is_cancelled_anywhere_loses_nothing() -> None:
    """Whatever it was about to do, the next one does; no resend is doubled."""
    async with rig(POOL, journal={"max_resends": 1000}) as here:
        raw = signed(0)
        await here.send(raw)
        at = 0
        while True:
            here.node.chain.forget(hash_of(raw))
            here.pass_s(OLD_S)
            before = here.node.arrivals.total
            done = await interrupted(lambda: here.settlement._sweep_once(here.journal, asked=True), at)
            await here.settlement._sweep.settled()
            assert here.stand.recorder is not None
            await here.stand.recorder.settled()
            here.pass_s(OLD_S)
            await here.sweep()
            assert here.node.arrivals.total - before <= 2
            assert await here.state(raw) is State.PENDING
            assert here.node.chain.pool.get(hash_of(raw)) is not None
            if done:
                break
            at += 7


async def test_a_watch_that_is_cancelled_anywhere_looks_again() -> None:
    """At the same head, too."""
    async with rig(POOL) as here:
        at, done = 0, False
        while not done:
            raw = signed(at)
            await here.send(raw)
            here.node.mine()
            done = await interrupted(lambda: here.settlement._step(here.journal), at)
            await here.watch()
            assert await here.state(raw) is State.MINED
            at += 1


async def test_a_chain_that_nobody_configured_is_asked_for() -> None:
    """`[prechecks] chain_id = "off"`: transactions of any chain pass, and those of the node's are watched."""
    async with rig(POOL, prechecks={"chain_id": "off"}) as here:
        raw = signed(0)
        await here.send(raw)
        here.node.mine()
        await here.watch()
        assert await here.state(raw) is State.MINED


async def test_it_runs_by_itself_from_start_to_close() -> None:
    """Watched in the background; a sweep that is wanted comes at once; the claim is let go at the end."""
    async with rig(POOL) as here:
        here.settlement.start(here.stand.owner)
        raw = signed(0)
        await here.send(raw)
        here.node.mine()
        assert await here.settlement.sweep_now() is End.DONE
        assert await here.state(raw) is State.MINED
        await here.settlement.close()
        claim = await here.journal.claim("sweep", "another", for_ms=1)
        assert claim.mine


async def test_a_relay_with_a_journal_settles_what_it_sends() -> None:
    """As the composition root wires it: the lanes' side has a settlement, which stops with it."""
    async with DevNode(POOL) as node:
        settings = config.check({"upstream": {"url": node.url}})
        faults: list[str] = []
        metrics, background = Metrics(), TaskOwner("test", lambda name, _: faults.append(name))
        house = House(settings, metrics, lambda name, _: faults.append(name), time.monotonic, Held(MemoryJournal()))
        nodes = NodeSide(house)
        lanes = LaneSide(house, nodes)
        await nodes.identity.refresh()
        await lanes.start(background)
        assert lanes.settlement is not None
        raw = signed(0)
        request = methods.read(methods.SUBMISSIONS["eth_sendRawTransaction"], f'["{raw}"]'.encode())
        assert isinstance(request, methods.Request)
        one = Submission(request, decode(bytes.fromhex(raw[2:])), time.monotonic())
        assert lanes.submitter.take(one) is None
        await one.outcome
        node.mine()
        ended = await lanes.settlement.sweep_now()
        assert house.shelf is not None
        record = await house.shelf.journal.by_hash(CHAIN_ID, bytes.fromhex(hash_of(raw)[2:]))
        await lanes.close()
        claim = await house.shelf.journal.claim("sweep", "another", for_ms=1)
        await background.close()
        await nodes.close()

    assert ended is End.DONE
    assert record is not None
    assert record.state is State.MINED
    assert faults == []
    assert claim.mine
