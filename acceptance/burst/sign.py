"""Signed transfers.

Job: one raw transaction and its hash for a key, a nonce and the burst's terms.
Must not know: the schedule, the network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

    from acceptance.burst.chain import Terms


@dataclass(frozen=True, slots=True)
class Signed:
    """A transaction ready to be sent; ``raw`` and ``hash`` in hex with 0x."""

    nonce: int
    raw: str
    hash: str


def transfer(account: LocalAccount, nonce: int, terms: Terms) -> Signed:
    """Sign a transfer to ``terms.to``, or to the sender itself, which costs no more than its gas."""
    fields = {
        "chainId": terms.chain_id,
        "nonce": nonce,
        "to": terms.to or account.address,
        "value": terms.value,
        "gas": terms.gas,
        **_fee_fields(terms),
    }
    signed = account.sign_transaction(fields)
    return Signed(nonce, "0x" + signed.raw_transaction.hex(), "0x" + signed.hash.hex())


def _fee_fields(terms: Terms) -> dict[str, Any]:
    if terms.type == 0:
        return {"gasPrice": terms.max_fee}
    return {"type": 2, "maxFeePerGas": terms.max_fee, "maxPriorityFeePerGas": terms.tip}
