"""The contract, part four: pages, lanes, counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay.journal.records import Count, Cursor
from relay.lifecycle import LIVE, OPEN, Reason, State
from relay.testing.opening import Opening
from relay.testing.samples import ALICE, BOB, CHAIN, admitted, decision, intake, moved

if TYPE_CHECKING:
    from relay.journal import Journal

CAROL = b"\xcc" * 20


class Looking(Opening):
    """What the sweep, the watch, the console and the metrics read."""

    async def test_pages_walk_the_lanes_in_nonce_order(self, journal: Journal) -> None:
        """Each row once, by chain, sender, nonce and arrival, however small the page."""
        entries = [
            intake(nonce, sender=sender, chain_id=chain)
            for nonce in (2, 0, 1, 1)
            for sender in (BOB, ALICE)
            for chain in (7, 5)
        ]
        await journal.admit(entries)
        seen, cursor = [], Cursor()
        while page := await journal.unfinished(cursor, limit=3):
            assert len(page) <= 3
            seen += page
            cursor = Cursor.after(page[-1])
        assert seen == sorted(seen, key=Cursor.after)
        assert len({record.id for record in seen}) == len(entries)

    async def test_pages_hold_what_is_asked_for(self, journal: Journal) -> None:
        """Live rows; dead letters where they are wanted; nothing that has ended."""
        paths: list[tuple[State, ...]] = [
            (), (State.SEALED,), (State.SEALED, State.SENT), (State.PENDING,), (State.MINED,), (State.DEAD_LETTER,),
            (State.FAILED,), (State.CANCELLED,), (State.SUPERSEDED,), (State.MINED, State.COMPLETED),
        ]  # fmt: skip
        for nonce, path in enumerate(paths):
            await moved(journal, await admitted(journal, nonce), *path)
        assert [record.nonce for record in await journal.unfinished()] == [0, 1, 2, 3, 4]
        assert [record.nonce for record in await journal.unfinished(states=OPEN)] == [0, 1, 2, 3, 4, 5]
        assert [record.nonce for record in await journal.unfinished(states=[State.DEAD_LETTER])] == [5]
        assert {record.state for record in await journal.unfinished()} == LIVE

    async def test_the_lowest_outstanding_of_each_lane(self, journal: Journal) -> None:
        """What a gap is measured by; dead letters and the rest block nobody."""
        for nonce, sender, path in (
            (4, ALICE, ()), (6, ALICE, ()), (2, ALICE, (State.DEAD_LETTER,)), (9, BOB, (State.PENDING,)),
            (1, CAROL, (State.FAILED,)),
        ):  # fmt: skip
            await moved(journal, await admitted(journal, nonce, sender=sender), *path)
        lanes = await journal.outstanding()
        assert [(lane.sender, lane.lowest, lane.rows) for lane in lanes] == [(ALICE, 4, 2), (BOB, 9, 1)]
        assert lanes[0].oldest_ms <= lanes[1].oldest_ms
        assert await journal.outstanding(limit=1) == lanes[:1]
        assert await journal.outstanding(Cursor(CHAIN, ALICE)) == lanes[1:]
        assert await journal.lowest(CHAIN, ALICE) == 4
        assert await journal.lowest(CHAIN, CAROL) is None

    async def test_a_lane_shows_its_open_rows_and_its_setting(self, journal: Journal, other: Journal) -> None:
        """In nonce order; paused or not, with a version, on every instance."""
        for nonce in (3, 1, 2):
            await admitted(journal, nonce)
        lane, rows = await journal.lane(CHAIN, ALICE, limit=2)
        assert (lane.paused, lane.version, [row.nonce for row in rows]) == (False, 0, [1, 2])
        paused = await journal.set_paused(CHAIN, ALICE, paused=True, version=0, detail="stuck", actor="op")
        assert paused is not None
        assert (paused.paused, paused.version, paused.detail, paused.actor) == (True, 1, "stuck", "op")
        assert paused.at_ms > 0
        assert (await other.lane(CHAIN, ALICE))[0] == paused
        assert (await other.lane(CHAIN, BOB))[0].version == 0

    async def test_a_lane_is_set_by_one_who_saw_it(self, journal: Journal, other: Journal) -> None:
        """Two operators: the second must look first. Each setting stays in the history."""
        first = await journal.set_paused(CHAIN, ALICE, paused=True, version=0, detail="a", actor="x")
        assert await other.set_paused(CHAIN, ALICE, paused=True, version=0, detail="b", actor="y") is None
        second = await other.set_paused(CHAIN, ALICE, paused=False, version=1, detail="c", actor="y")
        assert await journal.lane_history(CHAIN, ALICE) == [first, second]
        assert await journal.lane_history(CHAIN, BOB) == []

    async def test_a_hash_is_found_on_whatever_chain(self, journal: Journal) -> None:
        """A transaction without a chain id may be on several; the latest is told where no chain is named."""
        first = (await journal.admit([intake(chain_id=5, hash_=b"\x77" * 32)]))[0].record
        assert await journal.by_hash(None, first.hash) == first
        second = (await journal.admit([intake(chain_id=7, hash_=first.hash)]))[0].record
        assert await journal.by_hash(None, first.hash) == second
        assert await journal.by_hash(5, first.hash) == first
        assert await journal.by_hash(9, first.hash) is None
        assert await journal.by_hash(None, b"\x78" * 32) is None

    async def test_changes_are_followed_by_their_ids(self, journal: Journal, other: Journal) -> None:
        """In pages, on every instance, with the record as it is now, however far that is."""
        assert await journal.latest_changes(10) == []
        ended = await moved(journal, await admitted(journal), State.SEALED, State.PENDING)
        cancelled = await moved(other, await admitted(other, 1), State.CANCELLED)
        latest = await other.latest_changes(10)
        assert [change.event.state for change in latest] == [
            State.QUEUED, State.SEALED, State.PENDING, State.QUEUED, State.CANCELLED,
        ]  # fmt: skip
        assert [change.record for change in latest] == [ended] * 3 + [cancelled] * 2
        ids = [change.event.id for change in latest]
        assert ids == sorted(set(ids))
        assert await journal.latest_changes(2) == latest[3:]
        assert await journal.changes_since(0, limit=2) == latest[:2]
        assert await journal.changes_since(ids[1]) == latest[2:]
        assert await journal.changes_since(ids[-1]) == []
        assert await journal.changes_of([ids[4], ids[0], ids[-1] + 1000]) == [latest[0], latest[4]]
        assert await journal.changes_of([]) == []
        assert [change.event for change in latest[:3]] == await journal.history(ended.id)

    async def test_the_paused_lanes_are_told_in_one_list(self, journal: Journal, other: Journal) -> None:
        """As they were set last, on every instance; one that goes on again is not among them."""
        assert await journal.paused() == []
        for sender in (BOB, ALICE, CAROL):
            await journal.set_paused(CHAIN, sender, paused=True, version=0, detail="stuck", actor="op")
        await journal.set_paused(5, BOB, paused=True, version=0, detail="another chain", actor="op")
        await other.set_paused(CHAIN, BOB, paused=False, version=1, detail="well again", actor="op")
        paused = await other.paused()
        assert [(lane.chain_id, lane.sender, lane.version) for lane in paused] == [
            (5, BOB, 1),
            (CHAIN, ALICE, 1),
            (CHAIN, CAROL, 1),
        ]
        assert paused[1] == (await journal.lane(CHAIN, ALICE))[0]
        again = await journal.set_paused(CHAIN, BOB, paused=True, version=2, detail="stuck again", actor="op")
        assert again in await other.paused()

    async def test_a_listing_shows_the_latest_first(self, journal: Journal) -> None:
        """By the time of the change, in pages."""
        records = [await admitted(journal, nonce) for nonce in range(5)]
        for record in records[::-1]:
            await moved(journal, record, State.FAILED)
        listed = await journal.listing(State.FAILED)
        assert len(listed) == 5
        assert [(row.since_ms, row.id) for row in listed] == sorted(
            ((row.since_ms, row.id) for row in listed), reverse=True
        )
        assert await journal.listing(State.FAILED, limit=2) == listed[:2]
        last = listed[1]
        assert await journal.listing(State.FAILED, before=(last.since_ms, last.id)) == listed[2:]
        assert await journal.listing(State.COMPLETED) == []

    async def test_the_census_counts_what_is_open(self, journal: Journal) -> None:
        """By state and reason, with the oldest; what has ended is not counted."""
        queued = [await admitted(journal, nonce) for nonce in range(3)]
        await moved(journal, queued[0], State.FAILED)
        held = decision(queued[1], State.QUEUED)._replace(reason=Reason.HELD_PAUSED)
        await journal.decide([held])
        await moved(journal, await admitted(journal, 9), State.DEAD_LETTER)
        census = await journal.census()
        assert {(row.state, row.reason): row.rows for row in census.open} == {
            (State.QUEUED, None): 1,
            (State.QUEUED, Reason.HELD_PAUSED): 1,
            (State.DEAD_LETTER, None): 1,
        }
        assert Count(State.QUEUED, None, 1, queued[2].since_ms) in census.open
        assert census.now_ms >= queued[2].since_ms
