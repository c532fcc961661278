"""The contract, part five: the outbox, claims, counts, pruning, closing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from relay.journal.records import Answer, Delivery, Record, Taken
from relay.lifecycle import State
from relay.testing.opening import RECEIVER, Opening, Stores
from relay.testing.samples import ALICE, BOB, CHAIN, admitted, decision, failed, intake, moved, sealed

if TYPE_CHECKING:
    from relay.journal import Journal

HOUR_MS = 3_600_000


async def told(journal: Journal) -> None:
    """Deliver everything."""
    for notice in await journal.take_notices(RECEIVER, 1000, hold_ms=HOUR_MS):
        await journal.mark_notice(notice.event.id, RECEIVER, Delivery.DELIVERED)


class Keeping(Opening):
    """What runs beside the submissions."""

    # The outbox.

    async def test_every_change_waits_to_be_told(self, journal: Journal) -> None:
        """With the event that made it and the record as it is now, oldest first."""
        record = await moved(journal, await admitted(journal), State.SEALED, State.PENDING)
        notices = await journal.take_notices(RECEIVER, 10, hold_ms=HOUR_MS)
        assert [notice.event for notice in notices] == await journal.history(record.id)
        assert [(notice.record, notice.tries) for notice in notices] == [(record, 1)] * 3

    async def test_a_refused_decision_tells_nothing(self, journal: Journal) -> None:
        """No change, no notice."""
        record = await admitted(journal)
        await told(journal)
        await journal.decide([decision(record, State.COMPLETED), decision(record, State.SENT)])
        assert await journal.take_notices(RECEIVER, 10, hold_ms=0) == []

    async def test_a_notice_is_held_by_one(self, journal: Journal, other: Journal) -> None:
        """Not given twice while it is held; given again when the holder did not come back."""
        for nonce in range(4):
            await admitted(journal, nonce)
        here, there = await asyncio.gather(
            journal.take_notices(RECEIVER, 2, hold_ms=HOUR_MS), other.take_notices(RECEIVER, 2, hold_ms=HOUR_MS)
        )
        taken = {notice.event.id for notice in (*here, *there)}
        rest = await journal.take_notices(RECEIVER, 10, hold_ms=0)
        assert len(taken) == len(here) + len(there)
        assert taken.isdisjoint(notice.event.id for notice in rest)
        assert len(taken) + len(rest) == 4
        assert [notice.tries for notice in await other.take_notices(RECEIVER, 10, hold_ms=0)] == [2] * len(rest)

    async def test_a_notice_is_postponed_buried_or_done(self, journal: Journal) -> None:
        """And the census shows what waits and what is dead."""
        for nonce in range(3):
            await admitted(journal, nonce)
        later, dead, done = await journal.take_notices(RECEIVER, 10, hold_ms=0)
        await journal.mark_notice(later.event.id, RECEIVER, Delivery.WAITING, due_in_ms=HOUR_MS, error="HTTP 500")
        await journal.mark_notice(dead.event.id, RECEIVER, Delivery.DEAD, error="HTTP 410")
        await journal.mark_notice(done.event.id, RECEIVER, Delivery.DELIVERED)
        assert await journal.take_notices(RECEIVER, 10, hold_ms=0) == []
        census = await journal.census()
        assert (census.outbox_waiting, census.outbox_dead) == (1, 1)
        assert census.outbox_oldest_ms == later.event.at_ms
        await journal.mark_notice(later.event.id, RECEIVER, Delivery.WAITING)
        assert [notice.event for notice in await journal.take_notices(RECEIVER, 10, hold_ms=0)] == [later.event]

    async def test_a_late_mark_changes_only_what_it_knows(self, journal: Journal) -> None:
        """Who held a notice for too long brings back nothing that others ended; a delivery is a fact."""
        for nonce in range(2):
            await admitted(journal, nonce)
        done, dead = [notice.event.id for notice in await journal.take_notices(RECEIVER, 10, hold_ms=0)]
        await journal.mark_notice(done, RECEIVER, Delivery.DELIVERED)
        await journal.mark_notice(dead, RECEIVER, Delivery.DEAD)
        for event in (done, dead):
            await journal.mark_notice(event, RECEIVER, Delivery.WAITING)
        await journal.mark_notice(done, RECEIVER, Delivery.DEAD)
        census = await journal.census()
        assert (census.outbox_waiting, census.outbox_dead) == (0, 1)
        await journal.mark_notice(dead, RECEIVER, Delivery.DELIVERED)
        assert (await journal.census()).outbox_dead == 0

    async def test_what_waited_too_long_is_buried_whoever_should_have_it(self, journal: Journal) -> None:
        """In steps, the oldest first; what is younger, or was told, is left alone."""
        for nonce in range(3):
            await admitted(journal, nonce)
        (told_one,) = await journal.take_notices(RECEIVER, 1, hold_ms=HOUR_MS)
        await journal.mark_notice(told_one.event.id, RECEIVER, Delivery.DELIVERED)
        assert await journal.bury_notices(older_than_ms=HOUR_MS, error="too late") == 0
        steps = [await journal.bury_notices(older_than_ms=0, error="too late", limit=1) for _ in range(3)]
        assert steps == [1, 1, 0]
        census = await journal.census()
        assert (census.outbox_waiting, census.outbox_dead) == (0, 2)
        assert await journal.take_notices(RECEIVER, 10, hold_ms=0) == []

    async def test_each_receiver_has_its_own(self, stores: Stores) -> None:
        """What one has taken, another still waits for; nobody gets what is another's."""
        journal = await stores.open(receivers=("one", "two"))
        try:
            await admitted(journal)
            (notice,) = await journal.take_notices("one", 10, hold_ms=0)
            await journal.mark_notice(notice.event.id, "one", Delivery.DELIVERED)
            assert await journal.take_notices("one", 10, hold_ms=0) == []
            assert await journal.take_notices("three", 10, hold_ms=0) == []
            assert await journal.take_notices("two", 10, hold_ms=0) == [notice]
            assert (await journal.census()).outbox_waiting == 1
        finally:
            await journal.close()

    async def test_a_postponed_notice_holds_no_other_up(self, journal: Journal) -> None:
        """What has been due for longest comes first, whichever event is older."""
        for nonce in range(2):
            await admitted(journal, nonce)
        (first,) = await journal.take_notices(RECEIVER, 1, hold_ms=HOUR_MS)
        await journal.mark_notice(first.event.id, RECEIVER, Delivery.WAITING, due_in_ms=1)
        (second,) = await journal.take_notices(RECEIVER, 1, hold_ms=HOUR_MS)
        assert second.event.id > first.event.id

    # Claims and counts.

    async def test_a_claim_has_one_owner(self, journal: Journal, other: Journal) -> None:
        """By the store's time; the fence rises when it changes hands, and only then."""
        mine = await journal.claim("sweep", "a", for_ms=HOUR_MS)
        theirs = await other.claim("sweep", "b", for_ms=HOUR_MS)
        assert (mine.mine, mine.fence, theirs.mine, theirs.owner) == (True, 1, False, "a")
        assert (await journal.claim("sweep", "a", for_ms=0)).fence == 1
        taken = await other.claim("sweep", "b", for_ms=HOUR_MS)
        assert (taken.mine, taken.owner, taken.fence) == (True, "b", 2)
        assert not (await journal.claim("sweep", "a", for_ms=HOUR_MS)).mine
        assert (await journal.claim("another", "a", for_ms=HOUR_MS)).mine

    async def test_a_claim_is_released_by_its_owner(self, journal: Journal, other: Journal) -> None:
        """Nobody else's word counts."""
        await journal.claim("sweep", "a", for_ms=HOUR_MS)
        await other.release("sweep", "b")
        assert not (await other.claim("sweep", "b", for_ms=HOUR_MS)).mine
        await journal.release("sweep", "a")
        assert (await other.claim("sweep", "b", for_ms=HOUR_MS)).mine

    async def test_a_claim_is_raced_for(self, journal: Journal, other: Journal) -> None:
        """However many ask at once, one gets it."""
        claims = await asyncio.gather(
            *((journal, other)[n % 2].claim("sweep", f"owner {n}", for_ms=HOUR_MS) for n in range(8))
        )
        assert sum(claim.mine for claim in claims) == 1
        assert len({claim.owner for claim in claims}) == 1

    async def test_the_highest_count_of_an_endpoint_is_kept(self, journal: Journal, other: Journal) -> None:
        """Balancers go backwards; each endpoint and sender for itself."""
        assert await journal.note_count("a", CHAIN, ALICE, 7) == 7
        assert await other.note_count("a", CHAIN, ALICE, 5) == 7
        assert await other.note_count("b", CHAIN, ALICE, 5) == 5
        assert await journal.note_count("a", CHAIN, BOB, 1) == 1

    # Pruning.

    async def test_what_ended_long_ago_is_pruned_with_all_that_belongs_to_it(self, journal: Journal) -> None:
        """Its key, attempts, receipts and history too."""
        record = (await journal.admit([intake(0, key="k")]))[0].record
        done = await sealed(journal, record)
        await moved(journal, done.record, State.MINED, State.COMPLETED)
        await admitted(journal, 1)
        await told(journal)
        assert await journal.prune(older_than_ms=HOUR_MS) == 0
        assert await journal.prune(older_than_ms=0) == 1
        assert await journal.by_hash(CHAIN, record.hash) is None
        assert await journal.by_key(CHAIN, ALICE, "k") is None
        assert await journal.payload(record.id) is None
        assert [*await journal.attempts(record.id), *await journal.history(record.id)] == []
        assert (await journal.admit([intake(2, key="k")]))[0].fresh

    async def test_what_may_still_land_is_never_pruned(self, journal: Journal) -> None:
        """Nor is anything live. A dead letter whose attempts were all refused may go."""
        for nonce, path in enumerate([(), (State.PENDING,), (State.MINED,), (State.SEALED, State.DEAD_LETTER)]):
            await moved(journal, await admitted(journal, nonce), *path)
        done = await sealed(journal, await admitted(journal, 5))
        refused = (Answer(done.attempt, Taken.NO, "funds"),)
        dead = (await journal.decide([decision(done.record, State.DEAD_LETTER, facts=refused)]))[0]
        assert isinstance(dead, Record)
        await admitted(journal, 6)
        await told(journal)
        assert await journal.prune(older_than_ms=0) == 1
        assert await journal.by_id(dead.id) is None

    async def test_the_highest_nonce_of_a_lane_is_never_pruned(self, journal: Journal) -> None:
        """So that what a sender used last is always known."""
        await failed(journal, 0)
        last = await failed(journal, 1)
        await told(journal)
        assert await journal.prune(older_than_ms=0) == 1
        assert await journal.prune(older_than_ms=0) == 0
        assert await journal.by_id(last.id) == last

    async def test_what_waits_to_be_told_is_not_pruned(self, journal: Journal) -> None:
        """The receiver gets it first."""
        await failed(journal, 0)
        await admitted(journal, 1)
        assert await journal.prune(older_than_ms=0) == 0

    async def test_where_nobody_is_told_nothing_waits(self, journal: Journal, stores: Stores) -> None:
        """Webhooks were configured once, and are not any more."""
        await failed(journal, 0)
        await admitted(journal, 1)
        silent = await stores.open()
        try:
            expected = 0 if silent is journal else 1  # in memory there is one instance, which tells
            assert await silent.prune(older_than_ms=0) == expected
        finally:
            await silent.close()

    async def test_pruning_goes_in_steps(self, journal: Journal) -> None:
        """So that no lock is held for long."""
        for nonce in range(4):
            await failed(journal, nonce)
        await told(journal)
        assert [await journal.prune(older_than_ms=0, limit=2) for _ in range(3)] == [2, 1, 0]

    # Opening and closing.

    async def test_it_outlives_its_instance(self, journal: Journal, other: Journal, stores: Stores) -> None:
        """Closed and opened again, everything is there; closing twice is nothing."""
        record = await moved(journal, await admitted(journal), State.SEALED)
        await journal.check()
        await journal.close()
        await journal.close()
        again = await stores.open()
        try:
            assert await again.by_id(record.id) == await other.by_id(record.id) == record
        finally:
            await again.close()

    async def test_without_an_outbox_nothing_piles_up(self, stores: Stores) -> None:
        """Where nobody is to be told, no row waits for it."""
        silent = await stores.open()
        try:
            await admitted(silent)
            assert await silent.take_notices(RECEIVER, 10, hold_ms=0) == []
        finally:
            await silent.close()
