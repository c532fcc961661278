"""The development chain's state: what is accepted, queued, replaced, mined, charged and forgotten."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import rlp
from coincurve import PrivateKey
from eth_account import Account
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.devnode import FUNDED, Chain, NodeSettings
from relay.devnode.blocks import MINER, Mined
from relay.devnode.transactions import created, keccak, needs
from relay.devnode.views import receipt_view, transaction_view
from relay.transaction import SignedTransaction, decode

if TYPE_CHECKING:
    from collections.abc import Callable

GWEI = 10**9
ETHER = 10**18
ALICE, BOB = FUNDED[0], FUNDED[1]
CAROL = bytes.fromhex(FUNDED[2].address[2:])
NEWCOMER = bytes(19) + b"\x01"


@cache
def transfer(nonce: int = 0, sender: int = 0, price: int = 2, value: int = 1, **changes: Any) -> SignedTransaction:
    """A signed value transfer to a newcomer; ``price`` in gwei is cap and tip."""
    body = {
        "type": 2,
        "chainId": 1337,
        "nonce": nonce,
        "to": NEWCOMER,
        "value": value,
        "gas": 21_000,
        "maxFeePerGas": price * GWEI,
        "maxPriorityFeePerGas": price * GWEI,
    }
    signed = Account.sign_transaction(body | changes, FUNDED[sender].key)
    return decode(bytes(signed.raw_transaction))


def blob_transaction(blobs: int) -> SignedTransaction:
    """A blob transaction as it stands in a block, signed by Alice."""
    hashes = [b"\x01" + bytes(31)] * blobs
    body: list[Any] = [1337, 0, GWEI, 2 * GWEI, 21_000, NEWCOMER, 1, b"", [], 5, hashes]
    key = PrivateKey.from_hex(ALICE.key[2:])
    signature = key.sign_recoverable(keccak(b"\x03" + rlp.encode(body)), hasher=None)
    body += [signature[64], int.from_bytes(signature[:32]), int.from_bytes(signature[32:64])]
    return decode(b"\x03" + rlp.encode(body))


def chain(**changes: Any) -> Chain:
    """A fresh chain whose clock stands still."""
    return Chain(NodeSettings(**changes), lambda: 1_700_000_000)


def pending(of: Chain, sender: bytes = ALICE.address_bytes) -> int:
    """The pending count."""
    account = of.account(sender, "pending")
    assert account is not None
    return account.nonce


def latest(of: Chain, sender: bytes = ALICE.address_bytes) -> int:
    """The count of mined transactions."""
    return of.ledger.account(sender).nonce


# --- strict ---


def test_strict_takes_only_the_next_nonce() -> None:
    """Each accepted transaction counts at once; every other nonce is refused in geth's words."""
    strict = chain(mode="strict")
    assert strict.submit(transfer(1)) == "nonce too high: next nonce 0, tx nonce 1"
    assert strict.submit(transfer(0)) is None
    assert strict.submit(transfer(1)) is None
    assert strict.submit(transfer(1, value=9)) == "nonce too low: next nonce 2, tx nonce 1"
    assert strict.submit(transfer(3)) == "nonce too high: next nonce 2, tx nonce 3"
    assert (latest(strict), pending(strict)) == (0, 2)


@pytest.mark.parametrize("mode", ["strict", "pool"])
def test_the_same_bytes_are_known_while_they_wait_and_spent_once_mined(mode: str) -> None:
    """A copy of a waiting transaction is `already known`; after mining its nonce is too low."""
    node = chain(mode=mode)
    assert node.submit(transfer(0)) is None
    assert node.submit(transfer(0)) == "already known"
    node.mine()
    assert node.submit(transfer(0)) == "nonce too low: next nonce 1, tx nonce 0"


# --- pool ---


def test_the_pool_keeps_what_is_above_a_gap_and_promotes_it() -> None:
    """Nonces above a gap wait, are shown, do not count as pending, are not mined; filling the gap readies them all."""
    pool = chain(mode="pool")
    for nonce in (2, 1, 4):
        assert pool.submit(transfer(nonce)) is None
    assert (pending(pool), len(pool.pool), pool.can_mine) == (0, 3, False)
    assert pool.transaction(transfer(2).hash) == transfer(2)
    assert pool.submit(transfer(0)) is None
    assert pending(pool) == 3
    assert [one.tx.nonce for one in pool.mine().mined] == [0, 1, 2]
    assert (latest(pool), pending(pool), len(pool.pool)) == (3, 3, 1)


@pytest.mark.parametrize(
    ("cap", "tip", "replaces"),
    [(110, 110, True), (109, 200, False), (200, 109, False), (100, 100, False), (111, 110, True)],
)
def test_both_bids_must_rise_by_a_tenth_to_replace(cap: int, tip: int, *, replaces: bool) -> None:
    """A replacement is taken if cap and tip both rise by 10 %; the replaced transaction is then unknown."""
    pool = chain(mode="pool")
    bids = {"maxFeePerGas": cap * GWEI, "maxPriorityFeePerGas": min(tip, cap) * GWEI}
    old, new = transfer(0, price=100), transfer(0, value=7, **bids)
    assert pool.submit(old) is None
    assert pool.submit(new) == (None if replaces else "replacement transaction underpriced")
    kept, gone = (new, old) if replaces else (old, new)
    assert (pool.transaction(kept.hash), pool.transaction(gone.hash)) == (kept, None)
    assert [one.tx for one in pool.mine().mined] == [kept]


def test_a_bid_below_the_base_fee_waits_and_holds_its_successors() -> None:
    """What pays less than the base fee stays in the pool with all that follows it, until a higher bid replaces it."""
    pool = chain(mode="pool", base_fee=5 * GWEI)
    assert pool.submit(transfer(0, price=4)) is None
    assert pool.submit(transfer(1, price=9)) is None
    assert pending(pool) == 2
    assert not pool.can_mine
    assert pool.mine().mined == ()
    assert pool.submit(transfer(0, price=8)) is None
    assert [one.tx.nonce for one in pool.mine().mined] == [0, 1]


@pytest.mark.parametrize("mode", ["strict", "pool"])
def test_a_forgotten_transaction_leaves_a_gap(mode: str) -> None:
    """Forgetting lowers the pending count to the dropped nonce, later ones wait, and the same bytes are taken again."""
    node = chain(mode=mode)
    for nonce in range(3):
        assert node.submit(transfer(nonce)) is None
    assert node.forget(transfer(1).hash)
    assert not node.forget(transfer(1).hash)
    assert (node.transaction(transfer(1).hash), pending(node)) == (None, 1)
    assert [one.tx.nonce for one in node.mine().mined] == [0]
    assert node.submit(transfer(1)) is None
    assert pending(node) == 3
    assert [one.tx.nonce for one in node.mine().mined] == [1, 2]


# --- refusals ---


def high_s() -> SignedTransaction:
    """The malleated twin of a transaction: s in the upper half of the curve's order."""
    order = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
    items = rlp.decode(transfer(0).raw[1:])
    items[-1] = (order - int.from_bytes(items[-1])).to_bytes(32)
    items[-3] = b"" if items[-3] else b"\x01"
    return decode(b"\x02" + rlp.encode(items))


REFUSED: dict[str, tuple[Callable[[], SignedTransaction], str]] = {
    "chain": (lambda: transfer(chainId=5), "invalid sender: invalid chain id for signer: have 5 want 1337"),
    "signature": (high_s, "invalid sender: invalid transaction v, r, s values"),
    "gas": (lambda: transfer(gas=20_999), "intrinsic gas too low: gas 20999, minimum needed 21000"),
    "data": (lambda: transfer(data=b"\x01" * 10), "intrinsic gas too low: gas 21000, minimum needed 21160"),
    "floor": (
        lambda: transfer(data=b"\x01" * 10, gas=21_300),
        "insufficient gas for floor data gas cost: gas 21300, minimum needed 21400",
    ),
    "block": (lambda: transfer(gas=60_000_001), "exceeds block gas limit"),
    "tip": (
        lambda: transfer(maxFeePerGas=1, maxPriorityFeePerGas=2),
        "max priority fee per gas higher than max fee per gas",
    ),
    "size": (
        lambda: transfer(data=bytes(131_072), gas=10**7),
        "oversized data: transaction size 131189, limit 131072",
    ),
    "initcode": (
        lambda: transfer(to=b"", data=bytes(49_153), gas=10**7),
        "max initcode size exceeded: code size 49153 limit 49152",
    ),
    "funds": (
        lambda: transfer(value=10_000 * ETHER),
        "insufficient funds for gas * price + value: balance 10000000000000000000000, "
        "tx cost 10000000042000000000000, overshot 42000000000000",
    ),
    "no blobs": (lambda: blob_transaction(0), "blobless blob transaction"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_node_takes_is_refused_in_geths_words(case: str) -> None:
    """Each stateless check, and the balance, has geth's text; nothing of it reaches the pool."""
    make, text = REFUSED[case]
    node = chain()
    assert node.submit(make()) == text
    assert len(node.pool) == 0


def test_funds_are_set_aside_for_what_waits() -> None:
    """A sender cannot promise more than its balance over all of its waiting transactions; mining sets funds free."""
    node = chain()
    assert node.submit(transfer(0, value=6_000 * ETHER)) is None
    refused = node.submit(transfer(1, value=6_000 * ETHER)) or ""
    assert refused.startswith(
        "insufficient funds for gas * price + value: balance 10000000000000000000000, queued cost"
    )
    assert node.submit(transfer(1, value=3_000 * ETHER)) is None


def test_a_transaction_that_can_no_longer_be_paid_is_not_mined() -> None:
    """A balance that fell below the cost keeps the transaction in the pool, and no empty promise into a block."""
    node = chain()
    assert node.submit(transfer(0)) is None
    node.fund(ALICE.address_bytes, 0)
    assert not node.can_mine
    assert node.mine().mined == ()
    node.fund(ALICE.address_bytes, ETHER)
    assert len(node.mine().mined) == 1


# --- mining ---


def test_value_and_fees_are_exact() -> None:
    """Sender pays value + gas × (base fee + tip), the miner gets the tip, the base fee is burnt."""
    node = chain(base_fee=7)
    tx = transfer(0, value=ETHER, maxFeePerGas=100, maxPriorityFeePerGas=3)
    assert node.submit(tx) is None
    (mined,) = node.mine().mined
    assert (mined.price, mined.gas_used) == (10, 21_000)
    assert node.ledger.account(ALICE.address_bytes) == (1, 9_999 * ETHER - 210_000)
    assert node.ledger.account(NEWCOMER) == (0, ETHER)
    assert node.ledger.account(MINER) == (0, 63_000)


def test_blobs_are_charged() -> None:
    """A blob transaction pays for its blobs' gas beside its own."""
    node = chain(base_fee=GWEI)
    tx = blob_transaction(2)
    assert node.submit(tx) is None
    block = node.mine()
    assert block.blob_gas_used == 2 * 131_072
    assert node.ledger.account(ALICE.address_bytes).balance == 10_000 * ETHER - 1 - 21_000 * 2 * GWEI - 2 * 131_072
    assert receipt_view(node, block.mined[0])["blobGasUsed"] == "0x40000"
    assert transaction_view(node, block.mined[0])["blobVersionedHashes"] == ["0x01" + "00" * 31] * 2


def test_a_block_takes_senders_by_arrival_and_each_in_nonce_order() -> None:
    """Within a block a sender's nonces rise; which sender is next follows the arrival of its lowest transaction."""
    pool = chain(mode="pool")
    for tx in (transfer(1, 0), transfer(0, 1), transfer(0, 0), transfer(1, 1)):
        assert pool.submit(tx) is None
    mined = [(one.tx.sender, one.tx.nonce) for one in pool.mine().mined]
    assert mined == [(BOB.address, 0), (ALICE.address, 0), (ALICE.address, 1), (BOB.address, 1)]


def test_a_full_block_leaves_the_rest_for_the_next() -> None:
    """No block exceeds the gas limit; what did not fit is mined next, and receipts add up within their block."""
    node = chain(gas_limit=45_000)
    for nonce in range(3):
        assert node.submit(transfer(nonce)) is None
    first, second = node.mine(), node.mine()
    assert [(one.index, one.cumulative) for one in first.mined] == [(0, 21_000), (1, 42_000)]
    assert [(one.index, one.cumulative) for one in second.mined] == [(0, 21_000)]
    assert (second.number, second.parent) == (2, first.hash)


def test_earlier_blocks_keep_their_state() -> None:
    """Balance and count can be read at any height, by number or hash; beyond the newest block there is nothing."""
    node = chain()
    for nonce in range(3):
        assert node.submit(transfer(nonce, value=5)) is None
        node.mine()
    counts = [node.account(ALICE.address_bytes, height) for height in range(4)]
    assert [account.nonce for account in counts if account] == [0, 1, 2, 3]
    second = node.block(2)
    assert second is not None
    assert node.account(NEWCOMER, second.hash) == (0, 10)
    assert node.account(NEWCOMER, 0) == (0, 0)
    assert node.account(NEWCOMER, 4) is None


def test_a_private_transaction_is_shown_only_once_mined() -> None:
    """Submitted privately, it counts as pending, but its hash is unknown until it is in a block."""
    node = chain()
    assert node.submit(transfer(0), private=True) is None
    assert (node.transaction(transfer(0).hash), pending(node)) == (None, 1)
    node.mine()
    assert isinstance(node.transaction(transfer(0).hash), Mined)


def test_a_creation_gets_the_address_that_every_tool_predicts() -> None:
    """The first contract of the first test account has its well-known address."""
    tx = transfer(to=b"", data=b"\x60\x00", gas=100_000)
    assert created(tx).hex() == "5fbdb2315678afecb367f032d93f642f64180aa3"
    assert needs(tx).used == 21_000 + 32_000 + 2 + 4 + 16
    node = chain()
    assert node.submit(tx) is None
    assert receipt_view(node, node.mine().mined[0])["contractAddress"] == "0x5fbdb2315678afecb367f032d93f642f64180aa3"


# --- any sequence ---

STEP = st.one_of(
    st.tuples(st.just("submit"), st.integers(0, 5), st.sampled_from([2, 3, 4])),
    st.tuples(st.just("forget"), st.integers(0, 5), st.sampled_from([2, 3, 4])),
    st.tuples(st.just("mine"), st.just(0), st.just(0)),
)


def expected_refusal(mode: str, waiting: dict[int, int], mined: int, nonce: int, price: int) -> str | None:
    """The verdict on a submission, from first principles."""
    upcoming = mined
    while upcoming in waiting:
        upcoming += 1
    if waiting.get(nonce) == price:
        return "already known"
    if mode == "strict":
        words = "low" if nonce < upcoming else "high"
        return None if nonce == upcoming else f"nonce too {words}: next nonce {upcoming}, tx nonce {nonce}"
    if nonce < mined:
        return f"nonce too low: next nonce {mined}, tx nonce {nonce}"
    return "replacement transaction underpriced" if waiting.get(nonce, 0) > price else None


@settings(max_examples=150, deadline=None)
@given(mode=st.sampled_from(["strict", "pool"]), steps=st.lists(STEP, max_size=40))
def test_any_sequence_of_submissions_forgetting_and_mining(mode: str, steps: list[tuple[str, int, int]]) -> None:
    """Refusals, counts and the pool agree with a plain model; wei are only moved, burnt or paid to the miner."""
    node = chain(mode=mode)
    waiting: dict[int, int] = {}
    mined = 0
    for step, nonce, price in steps:
        if step == "submit":
            refused = expected_refusal(mode, waiting, mined, nonce, price)
            assert node.submit(transfer(nonce, price=price)) == refused
            waiting |= {} if refused else {nonce: price}
        elif step == "forget":
            assert node.forget(transfer(nonce, price=price).hash) == (waiting.get(nonce) == price)
            waiting = {key: bid for key, bid in waiting.items() if (key, bid) != (nonce, price)}
        else:
            node.mine()
            while waiting.pop(mined, None):
                mined += 1
        assert (latest(node), len(node.pool)) == (mined, len(waiting))
        assert pending(node) == next(n for n in range(mined, 8) if n not in waiting)
    accounts = (ALICE.address_bytes, NEWCOMER, MINER)
    burnt = sum(block.gas_used * block.base_fee for block in node.blocks)
    assert sum(node.ledger.account(one).balance for one in accounts) == 10_000 * ETHER - burnt
