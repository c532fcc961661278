"""What forwarders and the lane process say to each other, as frames.

    forwarder → desk     ticket (number, …)    promise (number)    handed in (forwarder)    left
    desk → forwarder     admitted (number, …)    kept (number, …)    outcome (number, …)    returned (number)    leaving

Job: submissions and outcomes as plain tuples, and back.
Rules: a number is the forwarder's, for one ticket over one link. A ticket brings what was decoded, so that nobody
recovers a sender twice. Whatever is read is checked for its types and sizes first; `Garbled` if it is not as written
here.
Must not know: links, lanes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from relay.errors import CATALOGUE, Refusal
from relay.lifecycle import Mode
from relay.methods import SUBMISSIONS, Request
from relay.submission import Accepted, Declined, Submission
from relay.transaction import SignedTransaction
from relay.workers.frames import Garbled

if TYPE_CHECKING:
    from relay.submission import Outcome
    from relay.workers.frames import Frame

TICKET: Final = "ticket"
HANDED_IN: Final = "handed in"
"""What the forwarder had when this link began stands before this; its name is its process."""
PROMISE: Final = "promise"
"""The client of this ticket is to be told yes before its outcome."""
KEPT: Final = "kept"
"""(…, is it on disk?): it may be told."""
ADMITTED: Final = "admitted"
"""This ticket's record is on disk, or will not be; with a journal only."""
OUTCOME: Final = "outcome"
RETURNED: Final = "returned"
"""Nothing of this ticket was sent: the forwarder keeps it for the next lane process."""
LEAVING: Final = "leaving"
"""The lane process hands over: what it has not returned it will answer; send everything else to its replacement."""
LEFT: Final = "left"
"""Understood: no ticket follows on this link."""

_FIELDS: Final = SignedTransaction.__struct_fields__
_ADDRESS: Final = 20
_HASH: Final = 66
_KEY: Final = 255
_WORD: Final = 1 << 256
_NONCES: Final = 1 << 64


def ticket(number: int, submission: Submission) -> Frame:
    """A submission, as the forwarder has it."""
    request = submission.request
    signed = submission.transaction
    fields = [*msgspec.structs.astuple(signed)]
    fields[_SPAN], fields[_ACCESS] = tuple(signed.data_span), tuple(signed.access_list)
    return (
        TICKET, number, request.method.name, request.wire_params, request.timeout_s, submission.arrived,
        submission.maybe_sent, fields, _wished(submission),
    )  # fmt: skip


def _wished(submission: Submission) -> tuple[str, bool, bool] | None:
    """What there is only with a journal."""
    if submission.admitted is None:
        return None
    return submission.idempotency_key, submission.mode is Mode.ACCEPTED, submission.bounded


_SPAN: Final = _FIELDS.index("data_span")
_ACCESS: Final = _FIELDS.index("access_list")


def read_ticket(frame: Frame, now: float) -> tuple[int, Submission]:
    """The ticket's number, and the submission as it was at the forwarder; one from the future has arrived now."""
    match frame:
        case (
            _,
            int(number),
            str(name),
            bytes(wire_params),
            float(timeout_s),
            float(arrived),
            bool(maybe_sent),
            fields,
            wished,
        ):
            method = SUBMISSIONS.get(name)
        case _:
            raise Garbled(f"a ticket of {len(frame)} parts, or of other types")
    if method is None:
        raise Garbled(f"a ticket for {name[:100]}")
    signed = _signed(fields)
    submission = Submission(Request(method, signed.raw, wire_params, timeout_s), signed, min(arrived, now))
    submission.maybe_sent = maybe_sent
    if wished is not None:
        _wish(submission, wished)
    return number, submission


def _wish(submission: Submission, wished: object) -> None:
    match wished:
        case (str(key), bool(accepted), bool(bounded)) if len(key) <= _KEY:
            submission.idempotency_key = key
            submission.mode = Mode.ACCEPTED if accepted else Mode.VERDICT
            submission.bounded = bounded
            submission.admitted = asyncio.get_running_loop().create_future()
        case _:
            raise Garbled("a wish of another shape")


def _signed(fields: object) -> SignedTransaction:
    if not isinstance(fields, list) or len(fields) != len(_FIELDS):
        raise Garbled("a transaction of another shape")
    try:
        signed = msgspec.convert(dict(zip(_FIELDS, fields, strict=True)), SignedTransaction, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise Garbled(f"a transaction of other types: {error}") from error
    fits = len(signed.sender_bytes) == _ADDRESS and len(signed.hash) == _HASH and signed.hash.startswith("0x")
    if not fits or not 0 <= signed.nonce < _NONCES or not 0 <= (signed.chain_id or 0) < _WORD:
        raise Garbled("a transaction of other sizes")
    return signed


def read_kept(frame: Frame) -> tuple[int, bool]:
    """The ticket's number, and whether its client may be told."""
    match frame:
        case (_, int(number), bool(kept)):
            return number, kept
        case _:
            raise Garbled(f"a promise kept of {len(frame)} parts, or of other types")


def outcome(number: int, result: Outcome) -> Frame:
    """What became of a ticket."""
    return OUTCOME, number, *_parts(result)


def admitted(number: int, result: Outcome) -> Frame:
    """Accepted with its hash: a ticket's record is on disk. Else why there is none."""
    return ADMITTED, number, *_parts(result)


def _parts(result: Outcome) -> tuple[str, Any]:
    match result:
        case Accepted(text):
            return "accepted", text
        case Declined(text):
            return "declined", text
        case Refusal(case, message, data):
            return case.name, (message, data)


def read_outcome(frame: Frame) -> tuple[int, Outcome]:
    """The ticket's number, and what became of it (or of its record)."""
    match frame:
        case (_, int(number), "accepted", bytes(text)):
            return number, Accepted(text)
        case (_, int(number), "declined", bytes(text)):
            return number, Declined(text)
        case (_, int(number), str(name), (str(message), data)) if name in CATALOGUE:
            return number, Refusal(CATALOGUE[name], message, data)
        case _:
            raise Garbled(f"an outcome of {len(frame)} parts, or of other types")


def read_number(frame: Frame) -> int:
    """Of a ticket, or of the forwarder that has handed in."""
    match frame:
        case (_, int(number)):
            return number
        case _:
            raise Garbled(f"a frame without a number: {frame[:1]!r:.50}")
