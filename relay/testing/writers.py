"""The contract, part two: several writers. The pause is played here; `two` plays it with real processes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from relay.journal.records import Admission, Answer, Receipt, Record, Sealed, Stale, Taken
from relay.lifecycle import State
from relay.testing.opening import Opening
from relay.testing.samples import admitted, decision, intake, moved, seal, sealed

if TYPE_CHECKING:
    from relay.journal import Journal


class Writers(Opening):
    """Two instances on one set of stores."""

    async def test_a_paused_worker_wakes_up_and_writes(self, journal: Journal, other: Journal) -> None:
        """Its stale decision is refused with the newest version and fence; its facts are kept."""
        asleep = await sealed(journal, await admitted(journal), fence=10)
        taken_over = await moved(other, asleep.record, State.SENT, State.SEALED, State.PENDING, fence=20)
        facts = (Answer(asleep.attempt, Taken.YES, "accepted"), Receipt(asleep.record.id, 5, b"\x05" * 32, 1))
        woken = (await journal.decide([decision(asleep.record, State.SENT, fence=10, facts=facts)]))[0]
        assert isinstance(woken, Stale)
        assert (woken.record.fence, woken.record.version) == (20, taken_over.version)
        assert woken.record.state is State.PENDING
        assert [attempt.taken for attempt in await other.attempts(asleep.record.id)] == [Taken.YES, None]
        assert len(await other.receipts(asleep.record.id)) == 1
        assert len(await other.history(asleep.record.id)) == taken_over.version

    async def test_an_old_fence_is_refused_at_the_right_version(self, journal: Journal) -> None:
        """Whoever read the newest row with an old lease may not write either."""
        record = (await sealed(journal, await admitted(journal), fence=20)).record
        late = (await journal.decide([decision(record, State.SENT, fence=19)]))[0]
        assert late == Stale(record)
        assert (await journal.seal([seal(record._replace(state=State.SENT), fence=19)]))[0] == Stale(record)
        assert isinstance((await journal.decide([decision(record, State.SENT, fence=20)]))[0], Record)

    async def test_a_decision_on_another_state_is_refused(self, journal: Journal) -> None:
        """Whatever is claimed about where it stands: a terminal state has no secret way out."""
        ended = await moved(journal, await admitted(journal), State.CANCELLED)
        claimed = ended._replace(state=State.QUEUED)
        assert await journal.decide([decision(claimed, State.PENDING)]) == [Stale(ended)]
        assert await journal.seal([seal(claimed)]) == [Stale(ended)]

    async def test_without_a_fence_the_version_decides(self, journal: Journal, other: Journal) -> None:
        """While Redis is lost the row alone arbitrates, and the highest fence stays on it."""
        record = (await sealed(journal, await admitted(journal), fence=20)).record
        here, there = await asyncio.gather(
            journal.decide([decision(record, State.SENT)]), other.decide([decision(record, State.PENDING)])
        )
        won = [result for result in (*here, *there) if isinstance(result, Record)]
        lost = [result for result in (*here, *there) if isinstance(result, Stale)]
        assert len(won) == len(lost) == 1
        assert (won[0].fence, won[0].version) == (20, record.version + 1)
        assert lost[0].record == won[0]

    async def test_two_seals_one_wins(self, journal: Journal, other: Journal) -> None:
        """Two workers read the same row and both want to send it: one attempt is made."""
        record = await admitted(journal)
        results = await asyncio.gather(*(each.seal([seal(record)]) for each in (journal, other) for _ in range(4)))
        won = [result for (result,) in results if isinstance(result, Sealed)]
        assert len(won) == 1
        assert len(await journal.attempts(record.id)) == 1
        assert all(isinstance(result, Sealed | Stale) for (result,) in results)

    async def test_the_same_bytes_from_two_sides_are_one_row(self, journal: Journal, other: Journal) -> None:
        """One side makes it, the other finds it, and both in any order of many."""
        intakes = [intake(nonce) for nonce in range(20)]
        here, there = await asyncio.gather(journal.admit(intakes), other.admit(intakes[::-1]))
        assert [each.record.id for each in here] == [each.record.id for each in there[::-1]]
        assert [a.fresh != b.fresh for a, b in zip(here, there[::-1], strict=True)] == [True] * 20

    async def test_a_late_fact_closes_the_way_at_once(self, journal: Journal, other: Journal) -> None:
        """A guard sees what another instance sent a moment ago, although the version is still the same."""
        record = await admitted(journal)
        assert await other.attempt(record.id, "node") is not None
        for target in (State.CANCELLED, State.FAILED):
            assert not isinstance((await journal.decide([decision(record, target)]))[0], Record)

    async def test_whoever_stops_waiting_undoes_nothing(self, journal: Journal, other: Journal) -> None:
        """A cancelled call is carried out: the submission is there, once."""
        entry = intake()
        task = asyncio.get_running_loop().create_task(journal.admit([entry]))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with asyncio.timeout(10):
            while (record := await journal.by_hash(entry.chain_id, entry.hash)) is None:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0)
        assert (await other.admit([entry]))[0] == Admission(record, fresh=False)
