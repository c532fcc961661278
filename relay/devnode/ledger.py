"""Balances and nonces, now and at every earlier block.

Job: the development chain's whole state; there is no code and no storage.
Rules: an account's versions only grow; a version says from which block on it holds. Addresses are 20 bytes.
Must not know: transactions, the pool.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Account(NamedTuple):
    """Transactions mined so far, and wei."""

    nonce: int
    balance: int


class _Version(NamedTuple):
    """An account from the block of this height on."""

    height: int
    nonce: int
    balance: int


NOBODY: Final = Account(0, 0)


class Ledger:
    """The accounts."""

    __slots__ = ("_versions",)

    def __init__(self, balances: Mapping[bytes, int]) -> None:
        self._versions: dict[bytes, list[_Version]] = {
            address: [_Version(0, 0, wei)] for address, wei in balances.items()
        }

    def __repr__(self) -> str:
        return f"<ledger of {len(self._versions)} accounts>"

    def account(self, address: bytes, height: int | None = None) -> Account:
        """An account after the block of this height; None: as it is."""
        versions = self._versions.get(address)
        if not versions:
            return NOBODY
        at = len(versions) if height is None else bisect_right(versions, height, key=itemgetter(0))
        return Account(*versions[at - 1][1:]) if at else NOBODY

    def put(self, address: bytes, account: Account, height: int) -> None:
        """From the block of this height on the account is so."""
        versions = self._versions.setdefault(address, [])
        if versions and versions[-1].height == height:
            versions.pop()
        versions.append(_Version(height, *account))

    def rewind(self, height: int) -> None:
        """Forget whatever blocks above this height changed."""
        for versions in self._versions.values():
            while len(versions) > 1 and versions[-1].height > height:
                versions.pop()
            if versions[-1].height > height:
                versions[-1] = _Version(height, *NOBODY)

    def credit(self, address: bytes, wei: int, height: int) -> None:
        """Add to a balance (take from it, if negative)."""
        account = self.account(address)
        self.put(address, account._replace(balance=account.balance + wei), height)
