"""What takes the place of a transaction that was sent: another one of its nonce, which pays more.

Job: from the bytes to the least fees that nodes take for a replacement, and the words for whoever signs it. Pure.
Rules: the relay holds no keys. Nodes want each fee raised by a tenth, for blob transactions doubled, and a blob
transaction only by another one (go-ethereum, ``txpool.pricebump`` 10, ``blobpool.pricebump`` 100).
Must not know: HTTP, stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from relay.transaction import BLOB, Undecodable, decode
from relay.views import data, quantity

if TYPE_CHECKING:
    from relay.journal.records import Record

BUMP: Final = 110
BLOB_BUMP: Final = 200
"""Percent of each fee."""


def replacement(record: Record, raw: bytes) -> dict[str, Any] | None:
    """The transaction to sign, as far as it is given: quantities as in JSON-RPC, each fee the least.

    None where the bytes cannot be read.
    """
    try:
        signed = decode(raw)
    except Undecodable:
        return None
    percent = BLOB_BUMP if signed.type == BLOB else BUMP
    fees = {
        "gasPrice": signed.gas_price,
        "maxFeePerGas": signed.max_fee_per_gas,
        "maxPriorityFeePerGas": signed.max_priority_fee_per_gas,
        "maxFeePerBlobGas": signed.max_fee_per_blob_gas,
    }
    least = {name: quantity(raised(fee, percent)) for name, fee in fees.items() if fee is not None}
    return {
        "from": data(record.sender),
        "chainId": quantity(record.chain_id),
        "nonce": quantity(record.nonce),
        "type": quantity(signed.type),
        **least,
        "words": _BLOB_WORDS if signed.type == BLOB else _WORDS,
    }


def raised(fee: int, percent: int) -> int:
    """The least that replaces ``fee``, in wei: rounded up, and more in any case."""
    return max(-(-fee * percent // 100), fee + 1)


_WORDS: Final = (
    "sign a transaction with this nonce and at least these fees (one that sends nothing to the sender itself only "
    "takes the place) and send it by the relay"
)
_BLOB_WORDS: Final = (
    "sign a blob transaction with this nonce and at least these fees and send it by the relay; nodes take no other "
    "kind in the place of a blob transaction"
)
