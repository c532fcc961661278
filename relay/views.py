"""How a submission and its lane are shown: values of the journal as dicts that JSON can hold.

Job: two audiences. `public` is for whoever knows the hash; `operator` adds what only the relay's own people see: keys
of rows, attempts and their nodes, actors, fences, words of nodes and of people.
Rules: names are camelCase. What Ethereum's JSON-RPC has a form for is in that form (quantities and data as hex with
``0x``, addresses in small letters); times are RFC 3339, UTC, to the millisecond; what is the relay's own is a plain
number. A key is there also where its value is not known (null), except a receipt's.
Must not know: stores, HTTP, JSON-RPC, who asks.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from relay.lifecycle import WORDS, Reason, State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relay.journal.records import Attempt, Event, Lane, Outstanding, ReceiptSeen, Record

View: TypeAlias = dict[str, Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ON_CHAIN: Final = frozenset({State.MINED, State.COMPLETED})


def public(record: Record, receipts: Sequence[ReceiptSeen] = ()) -> View:
    """What a client is told. ``receipts`` are all that were seen, oldest first; the newest counts while it is mined."""
    return {
        "hash": data(record.hash),
        "chainId": quantity(record.chain_id),
        "from": data(record.sender),
        "nonce": quantity(record.nonce),
        "state": record.state.value,
        "subStatus": sub_status(record.reason),
        "mayStillLand": record.may_still_land,
        "admitted": moment(record.admitted_ms),
        "since": moment(record.since_ms),
        "otherHash": None if record.other_hash is None else data(record.other_hash),
        **(_inclusion(receipts[-1]) if receipts and record.state in _ON_CHAIN else {}),
    }


def event(told: Event) -> View:
    """A change, as a client is told it. ``id`` is the same at every telling; ``origin`` is null for the first.

    ``version`` rises by one with each change of a submission.
    """
    return {
        "id": told.id,
        "version": told.version,
        "at": moment(told.at_ms),
        "origin": None if told.origin is None else told.origin.value,
        "state": told.state.value,
        "subStatus": sub_status(told.reason),
    }


def sub_status(reason: Reason | None) -> View | None:
    """The reason with its kind and its words."""
    if reason is None:
        return None
    meaning = WORDS[reason]
    return {"kind": meaning.sub_status.value, "reason": reason.value, "words": meaning.words}


# For operators.


def operator_row(record: Record, receipts: Sequence[ReceiptSeen] = ()) -> View:
    """A row of a list."""
    return {
        "id": record.id,
        "version": record.version,
        **public(record, receipts),
        "detail": record.detail,
        "method": record.method,
        "mode": record.mode.value,
        "fence": record.fence,
        "tries": record.tries,
        "attemptCount": record.attempts,
        "openAttempts": record.open_attempts,
    }


def operator(
    record: Record, attempts: Sequence[Attempt], receipts: Sequence[ReceiptSeen], history: Sequence[Event]
) -> View:
    """Everything that is known of one submission; lists are oldest first."""
    return {
        **operator_row(record, receipts),
        "attempts": [attempt(one) for one in attempts],
        "receipts": [receipt(one) for one in receipts],
        "history": [operator_event(one) for one in history],
    }


def attempt(made: Attempt) -> View:
    """One send. ``taken`` is null while no answer is known."""
    return {
        "id": made.id,
        "at": moment(made.at_ms),
        "node": made.node,
        "fence": made.fence,
        "actor": made.actor,
        "answered": None if made.answered_ms is None else moment(made.answered_ms),
        "taken": None if made.taken is None else made.taken.value,
        "verdict": made.verdict,
        "text": made.text,
    }


def receipt(seen: ReceiptSeen) -> View:
    """A receipt, and where and when it was first seen."""
    return {**_inclusion(seen), "node": seen.receipt.node, "seen": moment(seen.at_ms)}


def operator_event(told: Event) -> View:
    """A change, with who made it."""
    return {
        **event(told),
        "detail": told.detail,
        "actor": told.actor,
        "fence": told.fence,
    }


def lane(setting: Lane) -> View:
    """A lane as an operator set it. ``at`` is null where nobody ever did."""
    return {
        "chainId": quantity(setting.chain_id),
        "address": data(setting.sender),
        "paused": setting.paused,
        "version": setting.version,
        "detail": setting.detail,
        "actor": setting.actor,
        "at": moment(setting.at_ms) if setting.version else None,
    }


def outstanding(waiting: Outstanding) -> View:
    """A lane in which something is live."""
    return {
        "chainId": quantity(waiting.chain_id),
        "address": data(waiting.sender),
        "lowest": quantity(waiting.lowest),
        "rows": waiting.rows,
        "oldest": moment(waiting.oldest_ms),
    }


# Forms.


def quantity(number: int) -> str:
    """A number as Ethereum's JSON-RPC writes one."""
    return hex(number)


def data(octets: bytes) -> str:
    """Bytes as Ethereum's JSON-RPC writes them."""
    return "0x" + octets.hex()


def moment(since_epoch_ms: int) -> str:
    """RFC 3339, UTC, to the millisecond."""
    return (_EPOCH + timedelta(milliseconds=since_epoch_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _inclusion(seen: ReceiptSeen) -> View:
    receipt_ = seen.receipt
    return {
        "blockNumber": quantity(receipt_.block_number),
        "blockHash": data(receipt_.block_hash),
        "status": quantity(receipt_.status),
    }
