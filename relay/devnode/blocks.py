"""Blocks and what mining made of their transactions.

Job: a block's header, its hash, and the places of its transactions.
Rules: the hash is the true one of the header (keccak of its RLP, Prague), so clients can follow parents. There are no
tries: the roots are digests of the block's transactions, which no client of a development chain recomputes.
Must not know: how a block came about, the form of an answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import rlp

from relay.devnode.transactions import blob_gas, hexed, keccak

if TYPE_CHECKING:
    from relay.transaction import SignedTransaction

Header = dict[str, "bytes | int"]

MINER: Final = b"\xc0" * 20
EMPTY_ROOT: Final = keccak(rlp.encode(b""))
EMPTY_UNCLES: Final = keccak(rlp.encode([]))
NO_REQUESTS: Final = bytes.fromhex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
"""SHA-256 of nothing (EIP-7685)."""
BLOOM: Final = bytes(256)
NO_PARENT: Final = hexed(bytes(32))


@dataclass(frozen=True, slots=True)
class Mined:
    """A transaction and its place."""

    tx: SignedTransaction
    block: int
    index: int
    gas_used: int
    cumulative: int
    """Gas used in the block up to and including this one."""
    price: int
    """Wei paid for a unit of gas."""


@dataclass(frozen=True, slots=True)
class Block:
    """``timestamp``: Unix time in seconds."""

    number: int
    parent: str
    timestamp: int
    gas_limit: int
    base_fee: int
    mined: tuple[Mined, ...] = ()
    hash: str = field(init=False)

    def __post_init__(self) -> None:
        # frozen: the hash is derived once, for every later block and answer shows it
        object.__setattr__(self, "hash", hexed(keccak(encoded(self))))

    @property
    def gas_used(self) -> int:
        """By all its transactions."""
        return self.mined[-1].cumulative if self.mined else 0

    @property
    def blob_gas_used(self) -> int:
        """By all their blobs."""
        return sum(blob_gas(one.tx) for one in self.mined)


def header(block: Block) -> Header:
    """The header's fields in the order in which they are hashed, under the names of the JSON-RPC API."""
    return {
        "parentHash": bytes.fromhex(block.parent[2:]),
        "sha3Uncles": EMPTY_UNCLES,
        "miner": MINER,
        "stateRoot": EMPTY_ROOT,
        "transactionsRoot": (root := _digest(block)),
        "receiptsRoot": root,
        "logsBloom": BLOOM,
        "difficulty": 0,
        "number": block.number,
        "gasLimit": block.gas_limit,
        "gasUsed": block.gas_used,
        "timestamp": block.timestamp,
        "extraData": b"relay dev",
        "mixHash": bytes(32),
        "nonce": bytes(8),
        "baseFeePerGas": block.base_fee,
        "withdrawalsRoot": EMPTY_ROOT,
        "blobGasUsed": block.blob_gas_used,
        "excessBlobGas": 0,
        "parentBeaconBlockRoot": bytes(32),
        "requestsHash": NO_REQUESTS,
    }


def encoded(block: Block) -> bytes:
    """The header's RLP."""
    items = [value if isinstance(value, bytes) else _minimal(value) for value in header(block).values()]
    text: bytes = rlp.encode(items, infer_serializer=False)  # inference is two thirds of the cost of a block
    return text


def _minimal(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8)


def _digest(block: Block) -> bytes:
    if not block.mined:
        return EMPTY_ROOT
    return keccak(b"".join(bytes.fromhex(one.tx.hash[2:]) for one in block.mined))
