"""The contract, part three: copies and idempotency keys."""

from __future__ import annotations

import asyncio

from relay.journal import Journal, Repeat, judge
from relay.journal.records import Answer, Taken
from relay.lifecycle import Mode, State
from relay.testing.opening import Opening
from relay.testing.samples import ALICE, BOB, CHAIN, decision, intake, moved, sealed

DAY_MS = 86_400_000


class Keys(Opening):
    """What is the same submission."""

    async def test_a_key_leads_to_its_submission(self, journal: Journal, other: Journal) -> None:
        """The same key and bytes find the row, from any instance."""
        entry = intake(key="k")
        first = (await journal.admit([entry]))[0]
        again = (await other.admit([entry]))[0]
        assert (first.fresh, again.fresh, again.same_bytes) == (True, False, True)
        assert again.record == first.record
        assert judge(first, DAY_MS) is Repeat.ENTER
        assert judge(again, DAY_MS) is Repeat.ATTACH
        found = await other.by_key(CHAIN, ALICE, "k")
        assert found is not None
        assert found.record == first.record
        assert await other.by_key(CHAIN, ALICE, "unused") is None

    async def test_a_re_signed_payment_is_a_conflict(self, journal: Journal) -> None:
        """The same key with other bytes makes no row: the client timed out, and signed again with the next nonce."""
        first = (await journal.admit([intake(0, key="k")]))[0]
        second = intake(1, key="k")
        admission = (await journal.admit([second]))[0]
        assert (admission.fresh, admission.same_bytes) == (False, False)
        assert admission.record == first.record
        assert judge(admission, DAY_MS) is Repeat.CONFLICT_BYTES
        assert await journal.by_hash(CHAIN, second.hash) is None

    async def test_a_key_is_scoped(self, journal: Journal) -> None:
        """Another sender's, or another chain's, is another key."""
        entries = [intake(key="k"), intake(key="k", sender=BOB), intake(key="k", chain_id=5)]
        assert [each.fresh for each in await journal.admit(entries)] == [True, True, True]

    async def test_the_same_bytes_attach_across_keys(self, journal: Journal) -> None:
        """Without a key, then with one, then with another: one row, and both keys lead to it."""
        entry = intake()
        record = (await journal.admit([entry]))[0].record
        for key in ("a", "b"):
            admission = (await journal.admit([entry._replace(key=key)]))[0]
            assert (admission.fresh, admission.record) == (False, record)
            conflict = (await journal.admit([intake(9, key=key)]))[0]
            assert judge(conflict, DAY_MS) is Repeat.CONFLICT_BYTES
        bound = await journal.keys(record.id)
        assert {each.key for each in bound} == {"a", "b"}
        assert bound == sorted(bound, key=lambda each: (each.first_ms, each.key))
        assert bound[0].first_ms >= record.admitted_ms
        unbound = (await journal.admit([intake(5)]))[0].record
        assert await journal.keys(unbound.id) == []

    async def test_an_old_key_is_a_conflict(self, journal: Journal) -> None:
        """Counted from its first use by the store's clock; a second use does not renew it."""
        entry = intake(key="k")
        await journal.admit([entry])
        again = (await journal.admit([entry]))[0]
        assert again.key_age_ms >= 0
        assert judge(again, -1) is Repeat.CONFLICT_OLD

    async def test_two_payments_race_for_one_key(self, journal: Journal, other: Journal) -> None:
        """One wins by the store's word, everyone else is told of it, and no row of theirs is left."""
        entries = [intake(nonce, key="k") for nonce in range(6)]
        results = await asyncio.gather(
            *((journal, other)[n % 2].admit([entry]) for n, entry in enumerate(entries)),
        )
        admissions = [admission for (admission,) in results]
        assert sum(each.fresh for each in admissions) == 1
        assert len({each.record.id for each in admissions}) == 1
        assert len(await journal.unfinished()) == 1

    async def test_a_told_failure_releases_the_key(self, journal: Journal) -> None:
        """The client may use it for other bytes; and the same bytes are a new attempt of the same row."""
        entry = intake(key="k")
        record = (await journal.admit([entry]))[0].record
        record = await moved(journal, record, State.FAILED)
        assert judge((await journal.admit([entry]))[0], DAY_MS) is Repeat.AGAIN
        other = (await journal.admit([intake(1, key="k")]))[0]
        assert other.fresh
        assert not (await journal.admit([entry]))[0].same_bytes
        assert judge((await journal.admit([entry._replace(key="")]))[0], DAY_MS) is Repeat.AGAIN

    async def test_taken_up_again_it_holds_its_key(self, journal: Journal) -> None:
        """Released while it had failed, held while it is on its way."""
        entry = intake(key="k")
        record = await moved(journal, (await journal.admit([entry]))[0].record, State.FAILED)
        assert (await journal.admit([entry]))[0].key_age_ms == 0
        await moved(journal, record, State.QUEUED)
        assert judge((await journal.admit([intake(1, key="k")]))[0], DAY_MS) is Repeat.CONFLICT_BYTES

    async def test_a_failure_that_nobody_was_told_keeps_the_key(self, journal: Journal) -> None:
        """The client was answered "accepted", so it is refused and told what became of it; no other bytes pass."""
        entry = intake(key="k", mode=Mode.ACCEPTED)
        done = await sealed(journal, (await journal.admit([entry]))[0].record)
        facts = (Answer(done.attempt, Taken.NO, "refused"),)
        await journal.decide([decision(done.record, State.FAILED, facts=facts)])
        assert judge((await journal.admit([entry]))[0], DAY_MS) is Repeat.REFUSE
        assert judge((await journal.admit([intake(1, key="k")]))[0], DAY_MS) is Repeat.CONFLICT_BYTES

    async def test_what_ended_reads_back_or_refuses(self, journal: Journal) -> None:
        """By where it stands."""
        ways: dict[Repeat, tuple[tuple[State, ...], ...]] = {
            Repeat.ATTACH: ((), (State.SEALED,), (State.SEALED, State.SENT)),
            Repeat.READ_BACK: ((State.PENDING,), (State.MINED,), (State.MINED, State.COMPLETED)),
            Repeat.REFUSE: ((State.CANCELLED,), (State.SUPERSEDED,), (State.DEAD_LETTER,)),
        }
        for repeat, paths in ways.items():
            for path in paths:
                entry = intake(key="k" + "".join(path))
                await moved(journal, (await journal.admit([entry]))[0].record, *path)
                assert judge((await journal.admit([entry]))[0], DAY_MS) is repeat, path

    async def test_a_group_with_one_key_twice(self, journal: Journal) -> None:
        """The first of the group has it."""
        first, second = await journal.admit([intake(0, key="k"), intake(1, key="k")])
        assert (first.fresh, second.fresh, second.same_bytes) == (True, False, False)
        assert isinstance((await journal.decide([decision(first.record, State.FAILED)]))[0], type(first.record))
