"""Whether the development chain takes a transaction.

Job: the checks a node makes before it answers with the hash, in geth's order and words, as a table for each mode.
Rules: a check returns geth's text, or None. ``strict`` nodes judge the nonce against what they have accepted and keep
nothing back (Hedera, sequencers); ``pool`` nodes keep transactions above a gap and let a higher bid replace one.
Must not know: where transactions are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from relay.devnode.transactions import needs, tip_cap
from relay.transaction import BLOB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from relay.devnode.ledger import Account
    from relay.devnode.settings import NodeSettings
    from relay.transaction import SignedTransaction

MAX_NONCE: Final = 2**64 - 1
MAX_BYTES: Final = 131_072
MAX_INITCODE: Final = 49_152
SET_CODE: Final = 4
BUMP_PERCENT: Final = 10
"""By how much both bids must rise to replace a transaction."""
BLOB_BUMP_PERCENT: Final = 100


@dataclass(slots=True)
class Queue:
    """What the pool keeps of one sender. Only `relay.devnode.mempool` changes it."""

    next: int
    """The first nonce that is neither mined nor ready to be."""
    by_nonce: dict[int, SignedTransaction] = field(default_factory=dict)
    cost: int = 0
    """Wei set aside for all of them."""


@dataclass(frozen=True, slots=True)
class View:
    """What a transaction is judged against."""

    settings: NodeSettings
    account: Account
    queue: Queue


def refusal(tx: SignedTransaction, view: View) -> str | None:
    """What the first check that says no says, in geth's words."""
    for check in CHECKS[view.settings.mode]:
        if text := check(tx, view):
            return text
    return None


def _known(tx: SignedTransaction, view: View) -> str | None:
    held = view.queue.by_nonce.get(tx.nonce)
    return "already known" if held and held.hash == tx.hash else None


def _size(tx: SignedTransaction, _view: View) -> str | None:
    if tx.type == BLOB or tx.size <= MAX_BYTES:
        return None
    return f"oversized data: transaction size {tx.size}, limit {MAX_BYTES}"


def _initcode(tx: SignedTransaction, _view: View) -> str | None:
    if tx.to or tx.data_length <= MAX_INITCODE:
        return None
    return f"max initcode size exceeded: code size {tx.data_length} limit {MAX_INITCODE}"


def _block_gas(tx: SignedTransaction, view: View) -> str | None:
    return "exceeds block gas limit" if tx.gas > view.settings.gas_limit else None


def _tip(tx: SignedTransaction, _view: View) -> str | None:
    return "max priority fee per gas higher than max fee per gas" if tip_cap(tx) > tx.fee_cap else None


def _chain(tx: SignedTransaction, view: View) -> str | None:
    want = view.settings.chain_id
    if tx.chain_id in {None, want}:
        return None
    return f"invalid sender: invalid chain id for signer: have {tx.chain_id} want {want}"


def _signature(tx: SignedTransaction, _view: View) -> str | None:
    return "invalid sender: invalid transaction v, r, s values" if tx.high_s else None


def _nonce_range(tx: SignedTransaction, _view: View) -> str | None:
    return "nonce has max value" if tx.nonce >= MAX_NONCE else None


def _intrinsic(tx: SignedTransaction, _view: View) -> str | None:
    if tx.gas >= needs(tx).intrinsic:
        return None
    return f"intrinsic gas too low: gas {tx.gas}, minimum needed {needs(tx).intrinsic}"


def _floor(tx: SignedTransaction, _view: View) -> str | None:
    if tx.gas >= needs(tx).floor:
        return None
    return f"insufficient gas for floor data gas cost: gas {tx.gas}, minimum needed {needs(tx).floor}"


def _content(tx: SignedTransaction, _view: View) -> str | None:
    if tx.type == BLOB and not tx.blob_hashes:
        return "blobless blob transaction"
    if tx.type == SET_CODE and not tx.authorizations:
        return "set code tx must have at least one authorization tuple"
    return None


def _not_mined(tx: SignedTransaction, view: View) -> str | None:
    return _too_low(tx, view.account.nonce) if tx.nonce < view.account.nonce else None


def _exactly_next(tx: SignedTransaction, view: View) -> str | None:
    if tx.nonce < view.queue.next:
        return _too_low(tx, view.queue.next)
    if tx.nonce > view.queue.next:
        return f"nonce too high: next nonce {view.queue.next}, tx nonce {tx.nonce}"
    return None


def _too_low(tx: SignedTransaction, next_nonce: int) -> str:
    return f"nonce too low: next nonce {next_nonce}, tx nonce {tx.nonce}"


def _funds(tx: SignedTransaction, view: View) -> str | None:
    """Enough for this one, and for it and all others of the sender that wait."""
    balance = view.account.balance
    replaced = view.queue.by_nonce.get(tx.nonce)
    queued = view.queue.cost - (replaced.max_cost if replaced else 0)
    words = "insufficient funds for gas * price + value"
    if tx.max_cost > balance:
        return f"{words}: balance {balance}, tx cost {tx.max_cost}, overshot {tx.max_cost - balance}"
    if (overshot := queued + tx.max_cost - balance) > 0:
        return f"{words}: balance {balance}, queued cost {queued}, tx cost {tx.max_cost}, overshot {overshot}"
    return None


def _replacement(tx: SignedTransaction, view: View) -> str | None:
    held = view.queue.by_nonce.get(tx.nonce)
    if held is None:
        return None
    bids = [(held.fee_cap, tx.fee_cap), (tip_cap(held), tip_cap(tx))]
    if tx.type == BLOB:
        bids.append((held.max_fee_per_blob_gas or 0, tx.max_fee_per_blob_gas or 0))
    percent = 100 + (BLOB_BUMP_PERCENT if tx.type == BLOB else BUMP_PERCENT)
    raised = all(new > old and new * 100 >= old * percent for old, new in bids)
    return None if raised else "replacement transaction underpriced"


_STATELESS: Final = (
    _known, _size, _initcode, _block_gas, _tip, _signature, _chain, _nonce_range, _intrinsic, _floor, _content,
)  # fmt: skip
CHECKS: Final[Mapping[str, tuple[Callable[[SignedTransaction, View], str | None], ...]]] = {
    "strict": (*_STATELESS, _exactly_next, _funds),
    "pool": (*_STATELESS, _not_mined, _funds, _replacement),
}
"""Mode → its checks, in order."""
