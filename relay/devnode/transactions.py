"""What the development chain needs of a signed transaction beyond `relay.transaction`.

Job: gas and prices by the protocol's rules, and the transaction object of the JSON-RPC API.
Rules: the gas rules are Prague's, written down here a second time on purpose: a node that shared them with the
prechecks could not contradict them. Fields that only an answer shows are read again, with the rlp library, when it
does: a chain of many transactions stays small.
Must not know: the chain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import rlp
import sha3

from relay.transaction import BLOB, BLOB_GAS, LEGACY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from relay.transaction import SignedTransaction

Json = dict[str, Any]

_FEES: Final = ("maxPriorityFeePerGas", "maxFeePerGas", "gas", "to", "value", "input", "accessList")
_SIGNATURE: Final = ("v", "r", "s")
LAYOUTS: Final[Mapping[int, tuple[str, ...]]] = {
    0: ("nonce", "gasPrice", "gas", "to", "value", "input", *_SIGNATURE),
    1: ("chainId", "nonce", "gasPrice", "gas", "to", "value", "input", "accessList", *_SIGNATURE),
    2: ("chainId", "nonce", *_FEES, *_SIGNATURE),
    3: ("chainId", "nonce", *_FEES, "maxFeePerBlobGas", "blobVersionedHashes", *_SIGNATURE),
    4: ("chainId", "nonce", *_FEES, "authorizationList", *_SIGNATURE),
}
"""Type → the fields of the signed list, in order, under the names of the JSON-RPC API (execution-apis; EIP-155, 2930,
1559, 4844, 7702)."""


class GasNeeded(NamedTuple):
    """What the protocol asks for before anything runs (EIP-2028, 2930, 3860, 7623, 7702)."""

    intrinsic: int
    floor: int

    @property
    def used(self) -> int:
        """What a transaction uses where nothing runs."""
        return max(self)


def gas_needed(
    length: int, zeros: int, *, create: bool, addresses: int = 0, keys: int = 0, authorizations: int = 0
) -> GasNeeded:
    """The two minima for input of ``length`` bytes, ``zeros`` of them zero, and so many entries of each list."""
    tokens = zeros + 4 * (length - zeros)
    creation = 32_000 + 2 * ((length + 31) // 32) if create else 0
    lists = 2_400 * addresses + 1_900 * keys + 25_000 * authorizations
    return GasNeeded(21_000 + 4 * tokens + creation + lists, 21_000 + 10 * tokens)


def needs(tx: SignedTransaction) -> GasNeeded:
    """The minima for a transaction."""
    return gas_needed(
        tx.data_length,
        tx.data_zeros,
        create=tx.to is None,
        addresses=tx.access_list.addresses,
        keys=tx.access_list.keys,
        authorizations=tx.authorizations,
    )


def tip_cap(tx: SignedTransaction) -> int:
    """The most that the miner gets for a unit of gas, whatever the type, in wei."""
    return tx.fee_cap if tx.max_priority_fee_per_gas is None else tx.max_priority_fee_per_gas


def price(tx: SignedTransaction, base_fee: int) -> int:
    """What is paid for a unit of gas in a block with this base fee, in wei (EIP-1559)."""
    return min(tx.fee_cap, base_fee + tip_cap(tx))


def blob_gas(tx: SignedTransaction) -> int:
    """Of all its blobs (EIP-4844)."""
    return tx.blob_hashes * BLOB_GAS


def keccak(data: bytes) -> bytes:
    """Keccak-256."""
    digest: bytes = sha3.keccak_256(data).digest()
    return digest


def hexed(data: bytes) -> str:
    """Bytes as the JSON-RPC API writes them."""
    return "0x" + data.hex()


def created(tx: SignedTransaction) -> bytes:
    """The address of the contract that a creation makes."""
    return keccak(rlp.encode([tx.sender_bytes, tx.nonce]))[12:]


def fields(tx: SignedTransaction) -> Json:
    """The transaction's own part of a transaction object: everything but its place in a block."""
    items = rlp.decode(tx.raw if tx.type == LEGACY else tx.raw[1:])
    if tx.type == BLOB and isinstance(items[0], list):
        items = items[0]
    names = zip(LAYOUTS[tx.type], items, strict=True)
    shown = {name: _SHOWN.get(name, _quantity)(item) for name, item in names}
    if tx.type != LEGACY:
        shown["yParity"] = shown["v"]
    elif tx.chain_id is not None:
        shown["chainId"] = hex(tx.chain_id)
    return {**shown, "hash": tx.hash, "from": hexed(tx.sender_bytes), "type": hex(tx.type)}


def _quantity(item: bytes) -> str:
    return hex(int.from_bytes(item))


def _address(item: bytes) -> str | None:
    return hexed(item) if item else None


def _access_list(entries: Sequence[Sequence[Any]]) -> list[Json]:
    return [{"address": hexed(address), "storageKeys": [*map(hexed, keys)]} for address, keys in entries]


def _hashes(items: Sequence[bytes]) -> list[str]:
    return [*map(hexed, items)]


def _authorizations(entries: Sequence[Sequence[bytes]]) -> list[Json]:
    names = ("chainId", "address", "nonce", "yParity", "r", "s")
    return [
        {name: hexed(item) if name == "address" else _quantity(item) for name, item in zip(names, entry, strict=True)}
        for entry in entries
    ]


_SHOWN: Final[Mapping[str, Callable[[Any], Any]]] = {
    "to": _address,
    "input": hexed,
    "accessList": _access_list,
    "blobVersionedHashes": _hashes,
    "authorizationList": _authorizations,
}
"""How a field is shown, where it is no quantity."""
