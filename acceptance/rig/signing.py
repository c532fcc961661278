"""Transactions in bulk: EIP-1559 transfers signed in some tens of microseconds each.

Rules: for load, where eth-account (a fifth of a millisecond each) would be the bottleneck. The well-known test keys are
those that every development chain funds.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import sha3
from coincurve import PrivateKey
from eth_account import Account

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eth_account.signers.local import LocalAccount

MNEMONIC: Final = "test test test test test test test test test test test junk"
GAS: Final = 21_000
FEE: Final = 20 * 10**9
TIP: Final = 10**9
RECEIVER: Final = bytes.fromhex("00000000000000000000000000000000000000aa")


@dataclass(frozen=True, slots=True)
class Transfer:
    """A signed transaction; ``raw`` and ``hash`` in hex with 0x."""

    nonce: int
    raw: str
    hash: str


def funded(count: int) -> list[LocalAccount]:
    """The first accounts of the test mnemonic."""
    Account.enable_unaudited_hdwallet_features()
    return [Account.from_mnemonic(MNEMONIC, account_path=f"m/44'/60'/0'/0/{number}") for number in range(count)]


def key_of(account: LocalAccount) -> PrivateKey:
    """The account's key, ready for `sign`."""
    return PrivateKey(bytes(account.key))


def random_keys() -> Iterator[PrivateKey]:
    """Keys nobody has used."""
    while True:
        yield PrivateKey(os.urandom(32))


def keccak(data: bytes) -> bytes:
    """Ethereum's hash."""
    digest: bytes = sha3.keccak_256(data).digest()
    return digest


def address(key: PrivateKey) -> str:
    """The key's address, in lower case."""
    return "0x" + keccak(key.public_key.format(compressed=False)[1:])[12:].hex()


def sign(key: PrivateKey, nonce: int, chain_id: int, value: int = 0) -> Transfer:
    """A transfer of ``value`` wei to nobody in particular."""
    fields = [*map(_scalar, (chain_id, nonce, TIP, FEE, GAS)), _item(RECEIVER), _scalar(value), _item(b""), _list([])]
    signature = key.sign_recoverable(keccak(b"\x02" + _list(fields)), hasher=None)
    parity, r, s = signature[64], int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:64], "big")
    raw = b"\x02" + _list([*fields, *map(_scalar, (parity, r, s))])
    return Transfer(nonce, "0x" + raw.hex(), "0x" + keccak(raw).hex())


# Just enough RLP for a transfer, whose every list is shorter than 256 bytes: the library takes longer than the curve.


def _scalar(number: int) -> bytes:
    return _item(number.to_bytes((number.bit_length() + 7) // 8, "big"))


def _item(text: bytes) -> bytes:
    return text if len(text) == 1 and text[0] < 0x80 else bytes((0x80 + len(text),)) + text


def _list(items: list[bytes]) -> bytes:
    payload = b"".join(items)
    head = bytes((0xC0 + len(payload),)) if len(payload) < 56 else bytes((0xF8, len(payload)))
    return head + payload
