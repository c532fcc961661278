"""When a client hears, and of what: by futures that a test resolves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from relay import errors, transaction
from relay.lifecycle import Mode
from relay.methods import SUBMISSIONS, Request
from relay.submission import Accepted, Declined, Handle, Submission, Telling
from relay.telling import telling
from tests.stand import signed

NO = Declined(b'{"code":1}')
REFUSED = errors.JOURNAL_UNAVAILABLE.refusal(detail="x")


def submitted(*, kept: bool = True) -> Submission:
    """A submission on its way, with a record to be or without."""
    decoded = transaction.decode(bytes.fromhex(signed(0)[2:]))
    submission = Submission(Request(SUBMISSIONS["eth_sendRawTransaction"], decoded.raw, b"[]", 0.0), decoded, 0.0)
    if kept:
        submission.admitted = asyncio.get_running_loop().create_future()
    return submission


def admit(submission: Submission, outcome: Any = None) -> None:
    """Its record is on disk, or not."""
    assert submission.admitted is not None
    submission.admitted.set_result(outcome or submission.own_hash)


def promised(submission: Submission) -> None:
    """What a desk does."""
    submission.mode = Mode.ACCEPTED


def tell(submission: Submission, patience_s: float | None) -> Telling:
    """What a client of so much patience will hear."""
    return telling(submission, patience_s, "wait=9", promised)


async def few_turns() -> None:
    """Let callbacks run."""
    for _ in range(4):
        await asyncio.sleep(0)


async def test_without_a_wish_the_verdict_is_waited_for() -> None:
    """The submission's own future: nothing is made for whoever wishes nothing, nor without a journal."""
    kept, unkept = submitted(), submitted(kept=False)

    assert tell(kept, None) is kept.outcome
    assert tell(unkept, 0) is unkept.outcome


async def test_the_impatient_get_a_handle_when_the_record_is_there() -> None:
    """And not before; from then on the submission is one whose client was told yes."""
    submission = submitted()
    told = tell(submission, 0)
    await few_turns()
    assert not told.done()
    admit(submission)

    assert await told == Handle(submission.transaction.hash, "wait=9")
    assert submission.mode is Mode.ACCEPTED
    assert not submission.outcome.done()


async def test_who_comes_after_the_record_gets_a_handle_at_once() -> None:
    """A copy of what is in flight."""
    submission = submitted()
    admit(submission)

    assert isinstance(await tell(submission, 0), Handle)


async def test_a_record_that_cannot_be_made_is_told() -> None:
    """No promise without a record."""
    submission = submitted()
    told = tell(submission, 0)
    admit(submission, REFUSED)

    assert await told == REFUSED
    assert submission.mode is Mode.VERDICT


@pytest.mark.parametrize("patience_s", [0, 3600])
@pytest.mark.parametrize("outcome", [NO, Accepted(b'"0x1"'), errors.DRAINING.refusal()])
async def test_a_verdict_that_comes_first_is_told(patience_s: float, outcome: Any) -> None:
    """Before the record (nothing was sent then), or within the time that the client gave."""
    submission = submitted()
    told = tell(submission, patience_s)
    if patience_s:
        admit(submission)
        await few_turns()
    submission.outcome.set_result(outcome)

    assert await told == outcome
    assert submission.mode is Mode.VERDICT


async def test_a_bounded_wait_ends_with_a_handle() -> None:
    """When its time is over and the record is there, whichever comes later."""
    first, second = submitted(), submitted()
    admit(first)
    told = [tell(first, 0.001), tell(second, 0.001)]
    assert isinstance(await told[0], Handle)
    assert not told[1].done()
    admit(second)

    assert isinstance(await told[1], Handle)
    assert (first.mode, second.mode) == (Mode.ACCEPTED, Mode.ACCEPTED)


async def test_what_failed_before_it_was_promised_is_told_as_failed() -> None:
    """Record and verdict come in the same instant: a "no" that ends the matter is not covered by a handle."""
    submission = submitted()
    told = tell(submission, 0)
    admit(submission)
    submission.outcome.set_result(NO)

    assert await told == NO
    assert submission.mode is Mode.VERDICT


async def test_what_was_promised_to_one_is_a_handle_to_the_next() -> None:
    """It was admitted as accepted, so that a "no" of the node does not end it."""
    submission = submitted()
    submission.mode = Mode.ACCEPTED
    told = tell(submission, 0)
    admit(submission)
    submission.outcome.set_result(NO)

    assert isinstance(await told, Handle)


async def test_who_stops_waiting_stops_nothing() -> None:
    """Neither the submission nor the timer's owner; the other clients hear theirs."""
    submission = submitted()
    gone, stays, patient = tell(submission, 0), tell(submission, 0), tell(submission, 3600)
    gone.cancel()
    admit(submission)

    assert isinstance(await stays, Handle)
    assert not submission.outcome.cancelled()
    submission.outcome.set_result(NO)
    assert await patient == NO


async def test_a_fault_reaches_whoever_waits() -> None:
    """A submission that was cancelled or died by a bug leaves nobody waiting."""
    broken, cancelled = submitted(), submitted()
    told = [tell(broken, 3600), tell(cancelled, 3600)]
    broken.outcome.set_exception(ZeroDivisionError("a bug"))
    cancelled.outcome.cancel()

    with pytest.raises(ZeroDivisionError):
        await told[0]
    with pytest.raises(asyncio.CancelledError):
        await told[1]


async def test_a_verdict_that_is_being_written_down_is_waited_for() -> None:
    """The bound is over while the disk has the node's "no": a handle would promise what is decided already."""
    submission = submitted()
    told = tell(submission, 0)
    submission.ended = True
    admit(submission)
    await few_turns()
    assert not told.done()
    submission.outcome.set_result(NO)

    assert await told == NO
    assert submission.mode is Mode.VERDICT
