"""The contract, part one: the way of a submission, facts, guards, history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relay.journal.records import Answer, Decision, Forbidden, Missing, Receipt, Record, Sealed, Taken, storable
from relay.lifecycle import TERMINAL, TRANSITIONS, Guard, Mode, Reason, State, transition
from relay.testing.opening import Opening
from relay.testing.samples import admitted, decision, failed, intake, moved, seal, sealed

if TYPE_CHECKING:
    from relay.journal import Journal

PATHS: dict[State, tuple[State, ...]] = {
    State.QUEUED: (),
    State.SEALED: (State.SEALED,),
    State.SENT: (State.SEALED, State.SENT),
    State.PENDING: (State.SEALED, State.PENDING),
    State.MINED: (State.SEALED, State.MINED),
    State.COMPLETED: (State.SEALED, State.MINED, State.COMPLETED),
    State.FAILED: (State.FAILED,),
    State.SUPERSEDED: (State.SUPERSEDED,),
    State.CANCELLED: (State.CANCELLED,),
    State.DEAD_LETTER: (State.DEAD_LETTER,),
}
"""A way to each state."""


class Way(Opening):
    """One submission, one writer."""

    async def test_an_admitted_one_is_queued_with_its_bytes(self, journal: Journal) -> None:
        """QUEUED at version 1, under the store's time, and the payload comes back as it was."""
        blob = intake(7, raw=b"\x03" + bytes(300_000))._replace(params=b'[{"tx":"0x03"}]', method="eth_send")
        record = (await journal.admit([blob]))[0].record
        assert (record.state, record.version, record.nonce, record.attempts) == (State.QUEUED, 1, 7, 0)
        assert record.admitted_ms == record.since_ms > 1_700_000_000_000
        assert await journal.payload(record.id) == (blob.raw, "eth_send", blob.params)
        assert await journal.by_id(record.id) == await journal.by_hash(blob.chain_id, blob.hash) == record

    async def test_the_largest_numbers_fit(self, journal: Journal) -> None:
        """Nonce, chain and fence of 63 bits."""
        largest = (1 << 63) - 1
        record = (await journal.admit([intake(largest, chain_id=largest)]))[0].record
        done = await sealed(journal, record, fence=largest)
        assert (done.record.nonce, done.record.chain_id, done.record.fence) == (largest, largest, largest)

    async def test_answers_come_in_the_order_of_the_questions(self, journal: Journal) -> None:
        """Many in one call, a copy among them."""
        intakes = [intake(nonce) for nonce in (3, 1, 2)]
        admissions = await journal.admit([*intakes, intakes[0]])
        assert [each.record.nonce for each in admissions] == [3, 1, 2, 3]
        assert [each.fresh for each in admissions] == [True, True, True, False]
        assert [*await journal.admit([]), *await journal.seal([]), *await journal.decide([])] == []

    async def test_sealed_sent_and_mined(self, journal: Journal) -> None:
        """The common way: the version rises with each decision, the attempt keeps the node's answer."""
        done = await sealed(journal, await admitted(journal), fence=5)
        assert (done.record.state, done.record.version, done.record.fence) == (State.SEALED, 2, 5)
        assert (done.record.tries, done.record.attempts, done.record.open_attempts) == (1, 1, 1)
        answer = Answer(done.attempt, Taken.YES, "accepted", "0xabc")
        pending = (await journal.decide([decision(done.record, State.PENDING, fence=5, facts=(answer,))]))[0]
        assert isinstance(pending, Record)
        assert (pending.state, pending.version, pending.open_attempts) == (State.PENDING, 3, 1)
        (attempt,) = await journal.attempts(pending.id)
        assert (attempt.node, attempt.fence, attempt.taken, attempt.text) == ("node", 5, Taken.YES, "0xabc")
        assert attempt.answered_ms is not None
        assert attempt.answered_ms >= attempt.at_ms
        final = await moved(journal, pending, State.MINED, State.COMPLETED)
        assert (final.version, final.may_still_land) == (5, False)

    async def test_the_history_tells_every_change(self, journal: Journal) -> None:
        """From, to, reason, actor, fence, version and time, oldest first."""
        record = await admitted(journal)
        record = (await sealed(journal, record, fence=9)).record
        held = decision(record, State.SENT, fence=9)._replace(reason=Reason.TIMEOUT_GAP, detail="3 missing")
        assert isinstance((await journal.decide([held]))[0], Record)
        events = await journal.history(record.id)
        assert [(each.origin, each.state, each.version) for each in events] == [
            (None, State.QUEUED, 1),
            (State.QUEUED, State.SEALED, 2),
            (State.SEALED, State.SENT, 3),
        ]
        last = events[-1]
        assert (last.reason, last.detail, last.actor, last.fence) == (Reason.TIMEOUT_GAP, "3 missing", "one", 9)
        assert [each.id for each in events] == sorted(each.id for each in events)
        assert events[0].at_ms <= last.at_ms

    async def test_a_reason_changes_without_the_state(self, journal: Journal) -> None:
        """A decision like any other, but the time in the state goes on."""
        record = await moved(journal, await admitted(journal), *PATHS[State.PENDING])
        again = decision(record, State.PENDING)._replace(reason=Reason.TIMEOUT_DROPPED)
        result = (await journal.decide([again]))[0]
        assert isinstance(result, Record)
        assert (result.reason, result.version, result.since_ms) == (
            Reason.TIMEOUT_DROPPED, record.version + 1, record.since_ms,
        )  # fmt: skip

    @pytest.mark.parametrize("origin", State)
    async def test_only_ways_of_the_table_are_open(self, journal: Journal, origin: State) -> None:
        """Each pair of states: permitted if and only if the table has it. Guards hold in these cases."""
        for target in State:
            start = await moved(journal, await admitted(journal), *PATHS[origin])
            attempts = await journal.attempts(start.id)
            row = None if target is State.SEALED is not origin else transition(origin, target)
            if row is not None and row.guard is not Guard.NONE:
                await journal.note([Answer(attempt.id, Taken.NO, "refused") for attempt in attempts])
            result = (await journal.decide([decision(start, target)]))[0]
            if row is None:
                assert isinstance(result, Forbidden), (origin, target)
                assert result.record == start
                assert str(target) in result.why
            else:
                assert isinstance(result, Record), (origin, target)
                assert result.state is target

    async def test_into_sealed_leads_only_a_seal(self, journal: Journal) -> None:
        """From wherever the table has a way, the sealed itself included: a relay may have died there."""
        for origin in State:
            start = await moved(journal, await admitted(journal), *PATHS[origin])
            result = (await journal.seal([seal(start)]))[0]
            if transition(origin, State.SEALED) is None:
                assert isinstance(result, Forbidden), origin
            else:
                assert isinstance(result, Sealed), origin
                assert len(await journal.attempts(start.id)) == start.attempts + 1

    async def test_failed_is_said_only_when_nothing_is_open(self, journal: Journal) -> None:
        """An attempt without an answer, or with one that proves nothing, forbids it; proof opens the way."""
        done = await sealed(journal, await admitted(journal))
        fail = decision(done.record, State.FAILED)
        assert isinstance((await journal.decide([fail]))[0], Forbidden)
        second = await journal.attempt(done.record.id, "node", fence=1, actor="one")
        assert second is not None
        unknown = Answer(second, Taken.UNKNOWN, "timeout")
        assert isinstance((await journal.decide([fail._replace(facts=(unknown,))]))[0], Forbidden)
        await journal.note([Answer(done.attempt, Taken.NO, "refused")])
        refused = (await journal.decide([fail]))[0]
        assert isinstance(refused, Forbidden)
        assert (refused.record.attempts, refused.record.open_attempts) == (2, 1)
        assert refused.record.tries == 1, "sends of one turn are one try"
        assert refused.record.version == fail.version

    async def test_the_facts_of_a_decision_count_for_its_guard(self, journal: Journal) -> None:
        """The refusal and the failure that follows from it go in one step."""
        record = await failed(journal)
        assert (record.state, record.open_attempts, record.may_still_land) == (State.FAILED, 0, False)

    async def test_the_first_answer_stands(self, journal: Journal) -> None:
        """A second one of the same attempt changes nothing, and does not count twice."""
        done = await sealed(journal, await admitted(journal))
        await journal.note([Answer(done.attempt, Taken.NO, "refused")] * 2)
        await journal.note([Answer(done.attempt, Taken.YES, "accepted")])
        record = await journal.by_id(done.record.id)
        assert record is not None
        assert record.open_attempts == 0
        assert [attempt.taken for attempt in await journal.attempts(record.id)] == [Taken.NO]

    async def test_cancelling_is_for_what_was_never_sent(self, journal: Journal) -> None:
        """Proof that it was not taken is not enough: a client may have been told its hash."""
        done = await sealed(journal, await admitted(journal))
        back = decision(done.record, State.QUEUED, facts=(Answer(done.attempt, Taken.NO, "not_now"),))
        queued = (await journal.decide([back]))[0]
        assert isinstance(queued, Record)
        assert isinstance((await journal.decide([decision(queued, State.CANCELLED)]))[0], Forbidden)

    async def test_a_dead_letter_that_may_land_needs_a_word(self, journal: Journal) -> None:
        """Retried only by one who attests that it was stopped; with a fresh budget, the attempts still known."""
        record = await moved(journal, await admitted(journal), State.SEALED, State.DEAD_LETTER)
        assert record.may_still_land
        retry = decision(record, State.QUEUED)
        assert isinstance((await journal.decide([retry]))[0], Forbidden)
        again = (await journal.decide([retry._replace(attested=True)]))[0]
        assert isinstance(again, Record)
        assert (again.tries, again.attempts, again.open_attempts) == (0, 1, 1)

    async def test_a_failed_one_is_taken_up_again(self, journal: Journal) -> None:
        """The same row, a fresh budget, and the mode of the one who asked again."""
        retry = decision(await failed(journal), State.QUEUED)._replace(mode=Mode.ACCEPTED)
        again = (await journal.decide([retry]))[0]
        assert isinstance(again, Record)
        assert (again.state, again.mode, again.tries, again.attempts) == (State.QUEUED, Mode.ACCEPTED, 0, 1)

    async def test_who_took_the_nonce_is_named(self, journal: Journal) -> None:
        """The other hash stays with the record."""
        record = await moved(journal, await admitted(journal), *PATHS[State.PENDING])
        taken = decision(record, State.SUPERSEDED, other_hash=b"\x07" * 32)
        result = (await journal.decide([taken]))[0]
        assert isinstance(result, Record)
        assert result.other_hash == b"\x07" * 32

    async def test_whatever_words_are_kept(self, journal: Journal) -> None:
        """A node's and a person's: with a NUL, half a character, a page of them."""
        done = await sealed(journal, await admitted(journal))
        words = "nonce too low: \0 \ud800 ☃" + "." * 5000
        facts = (Answer(done.attempt, Taken.UNKNOWN, "uncertain", words),)
        result = (await journal.decide([decision(done.record, State.SENT, facts=facts)._replace(detail=words)]))[0]
        assert isinstance(result, Record)
        assert result.detail == storable(words) == (await journal.attempts(result.id))[0].text
        assert result.detail.startswith("nonce too low: \ufffd ? ☃...")
        assert len(result.detail) == 2000

    async def test_receipts_are_kept_once_for_each_block(self, journal: Journal) -> None:
        """A reorganisation brings a second one, a second look does not."""
        record = await moved(journal, await admitted(journal), *PATHS[State.PENDING])
        first, second = (Receipt(record.id, 9, bytes([n]) * 32, 1, "node") for n in (1, 2))
        await journal.note([first, first, second])
        await journal.decide([decision(record, State.MINED, facts=(second._replace(node="another"),))])
        assert [seen.receipt for seen in await journal.receipts(record.id)] == [first, second]

    async def test_what_is_not_there_is_missing(self, journal: Journal) -> None:
        """Nobody's rows are nobody's."""
        gone = Decision(12345, State.QUEUED, 1, State.FAILED)
        record = await admitted(journal)
        assert await journal.decide([gone]) == [Missing(12345)]
        assert await journal.seal([seal(record)._replace(submission=12345)]) == [Missing(12345)]
        assert await journal.attempt(12345, "node") is None
        assert await journal.payload(12345) is None
        assert await journal.by_id(12345) is None
        assert await journal.by_hash(1, b"\x01" * 32) is None
        await journal.note([Answer(12345, Taken.NO, "refused"), Receipt(12345, 1, b"\x01" * 32, 1)])
        assert await journal.receipts(12345) == []

    async def test_one_refusal_in_a_group_leaves_the_others(self, journal: Journal) -> None:
        """A group is one transaction, not one fate."""
        first, second = [each.record for each in await journal.admit([intake(1), intake(2)])]
        results = await journal.decide([decision(first, State.COMPLETED), decision(second, State.FAILED)])
        assert isinstance(results[0], Forbidden)
        assert isinstance(results[1], Record)
        seals = await journal.seal([seal(first), seal(second)])
        assert isinstance(seals[0], Sealed)
        assert not isinstance(seals[1], Sealed)


assert set(PATHS) >= TERMINAL
assert {row.origin for row in TRANSITIONS} <= set(PATHS)
