"""Submissions and outcomes as frames: what goes in comes out, and nothing of another shape does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay import errors, transaction
from relay.lifecycle import Mode
from relay.methods import SUBMISSIONS, Request
from relay.submission import Accepted, Declined, Submission
from relay.workers import messages
from relay.workers.frames import GREETING, Decoder, Garbled, encode
from tests.stand import signed
from tests.test_workers_link import plain

if TYPE_CHECKING:
    from relay.workers.frames import Frame

ACCESS = [{"address": "0x" + "bb" * 20, "storageKeys": ["0x" + "00" * 32] * 2}]


def over(frame: Frame) -> Frame:
    """The frame at the other end."""
    [out] = Decoder().feed(GREETING + encode(frame))
    return out


@pytest.mark.parametrize(
    "raw",
    [
        signed(0),
        signed(2**63, value=2**200, accessList=ACCESS),
        signed(3, to="", data="0x6000", gas=100_000),
    ],
)
@pytest.mark.parametrize("method", SUBMISSIONS)
async def test_a_submission_is_the_same_at_the_other_end(method: str, raw: str) -> None:
    """Every field, whatever its type and size; the sender is not recovered twice."""
    decoded = transaction.decode(bytes.fromhex(raw[2:]))
    request = Request(SUBMISSIONS[method], decoded.raw, b'["%b"]' % raw.encode(), 1.5)
    submission = Submission(request, decoded, 12.5)
    submission.maybe_sent = True
    number, there = messages.read_ticket(over(messages.ticket(7, submission)), 20.0)

    assert number == 7
    assert (there.request, there.transaction) == (request, decoded)
    assert (there.arrived, there.maybe_sent, there.key) == (12.5, True, submission.key)
    assert messages.read_ticket(messages.ticket(7, submission), 10.0)[1].arrived == 10.0


@pytest.mark.parametrize("accepted", [False, True])
@pytest.mark.parametrize("key", ["", "k" * 255])
async def test_a_wish_is_the_same_at_the_other_end(key: str, accepted: bool) -> None:
    """With a journal; without one there is nothing to carry."""
    decoded = transaction.decode(bytes.fromhex(signed(0)[2:]))
    submission = Submission(Request(SUBMISSIONS["eth_sendRawTransaction"], decoded.raw, b"[]", 0.0), decoded, 1.0)
    _, without = messages.read_ticket(over(messages.ticket(7, submission)), 2.0)
    submission.admitted = asyncio.get_running_loop().create_future()
    submission.idempotency_key, submission.bounded = key, not accepted
    submission.mode = Mode.ACCEPTED if accepted else Mode.VERDICT
    _, there = messages.read_ticket(over(messages.ticket(7, submission)), 2.0)

    assert without.admitted is None
    assert there.admitted is not None
    assert (there.idempotency_key, there.mode, there.bounded) == (key, submission.mode, not accepted)


@pytest.mark.parametrize("frame", [messages.outcome, messages.admitted])
@pytest.mark.parametrize(
    "outcome",
    [
        Accepted(b'"0xab"'),
        Declined(b'{"code":1}'),
        errors.OUTCOME_UNKNOWN.refusal(data={"hash": "0xab"}),
        errors.QUEUE_FULL.refusal(waiting=3),
    ],
)
def test_an_outcome_is_the_same_at_the_other_end(frame: Any, outcome: Any) -> None:
    """Case, text and data of a refusal included; of a ticket, or of its record."""
    assert messages.read_outcome(over(frame(9, outcome))) == (9, outcome)


def _changed(frame: Any, path: list[int], value: object) -> Any:
    """``frame`` with one part, or a part of a part, replaced."""
    if not path or not isinstance(frame, tuple | list) or not frame:
        return value
    at = path[0] % len(frame)
    return (*frame[:at], _changed(frame[at], path[1:], value), *frame[at + 1 :])


@given(st.lists(st.integers(0, 30), min_size=1, max_size=3), plain)
def test_a_ticket_of_another_shape_is_garbled(path: list[int], value: object) -> None:
    """Whatever stands in a frame: a submission of sound types and sizes, or Garbled; never another exception."""

    async def read() -> None:
        raw = signed(0)
        decoded = transaction.decode(bytes.fromhex(raw[2:]))
        request = Request(SUBMISSIONS["eth_sendRawTransaction"], decoded.raw, b"[]", 0.0)
        submission = Submission(request, decoded, 1.0)
        submission.admitted = asyncio.get_running_loop().create_future()
        frame = _changed(messages.ticket(1, submission), path, value)
        try:
            _, there = messages.read_ticket(frame, 2.0)
        except Garbled:
            return
        assert len(there.transaction.sender_bytes) == 20
        assert type(there.transaction.raw) is bytes
        assert there.arrived <= 2.0
        assert type(there.idempotency_key) is str

    asyncio.run(read())


@given(st.lists(plain, max_size=5).map(tuple))
def test_an_answer_of_another_shape_is_garbled(frame: Frame) -> None:
    """Never another exception."""
    for read in (messages.read_outcome, messages.read_number):
        try:
            read(frame)
        except Garbled:
            continue
