"""The params of the relay's own methods, read into values, or why they cannot be.

Job: JSON text → a hash, an address, a filter, an id. Must not know: what is asked with them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from relay import errors, jsonrpc
from relay.journal.records import LARGEST

if TYPE_CHECKING:
    from relay.errors import Refusal

MAX_NAMES: Final = 1000
"""Hashes and senders in one subscription."""

_HASH: Final = re.compile(r"0x[0-9a-fA-F]{64}")
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}")
_QUANTITY: Final = re.compile(r"0x[0-9a-fA-F]{1,16}")
_FIELDS: Final = frozenset({"hashes", "senders"})


class Invalid(Exception):  # noqa: N818 - not a fault: it becomes a refusal at once
    """What is wrong with them, for the client."""

    @property
    def refusal(self) -> Refusal:
        """As an answer."""
        return errors.INVALID_PARAMS.refusal(detail=str(self))


class LaneName(NamedTuple):
    """Whose lane, and on which chain if it was said."""

    sender: bytes
    chain_id: int | None


class Filter(NamedTuple):
    """Which changes a client wants to hear of: those of these transactions, and of these senders."""

    hashes: frozenset[bytes]
    senders: frozenset[bytes]

    def __len__(self) -> int:
        """How many names it has."""
        return len(self.hashes) + len(self.senders)


def hash_of(text: str) -> bytes | None:
    """A transaction's hash out of its text, None if it is none."""
    return bytes.fromhex(text[2:]) if _HASH.fullmatch(text) else None


def one_hash(params: bytes | None) -> bytes:
    """``[hash]``. Raises Invalid."""
    (value,) = _values(params, least=1, most=1)
    return _hash(value, "argument 0")


def lane_name(params: bytes | None) -> LaneName:
    """``[address]`` or ``[address, chain id]``. Raises Invalid."""
    address, *rest = _values(params, least=1, most=2)
    return LaneName(_address(address, "argument 0"), _chain_id(rest[0]) if rest else None)


def subscription(params: bytes | None) -> Filter:
    """``["transactions", {"hashes": […], "senders": […]}]``. Raises Invalid."""
    kind, *rest = _values(params, least=1, most=2)
    if kind != "transactions":
        raise Invalid('invalid argument 0: there is one kind of subscription, "transactions"')
    wanted = rest[0] if rest else None
    if not isinstance(wanted, dict) or not _FIELDS.issuperset(wanted):
        raise Invalid('invalid argument 1: an object with "hashes", "senders" or both')
    hashes, senders = _list(wanted, "hashes"), _list(wanted, "senders")
    if not 0 < len(hashes) + len(senders) <= MAX_NAMES:
        raise Invalid(f"invalid argument 1: from 1 to {MAX_NAMES} hashes and senders in all")
    return Filter(
        frozenset(_hash(value, "argument 1") for value in hashes),
        frozenset(_address(value, "argument 1") for value in senders),
    )


def one_id(params: bytes | None) -> str:
    """``[id of a subscription]``. Raises Invalid."""
    (value,) = _values(params, least=1, most=1)
    if not isinstance(value, str):
        raise Invalid("invalid argument 0: the id of a subscription is a text")
    return value


def _values(params: bytes | None, *, least: int, most: int) -> list[Any]:
    try:
        values = jsonrpc.read_json(params or b"[]")
    except ValueError as error:
        raise Invalid(f"invalid params: {error}") from None
    if not isinstance(values, list):
        raise Invalid("non-array args")
    if len(values) < least:
        raise Invalid(f"missing value for required argument {len(values)}")
    if len(values) > most:
        raise Invalid(f"too many arguments, want at most {most}")
    return values


def _hash(value: Any, where: str) -> bytes:
    found = hash_of(value) if isinstance(value, str) else None
    if found is None:
        raise Invalid(f"invalid {where}: the hash of a transaction is 0x and 64 hex digits")
    return found


def _address(value: Any, where: str) -> bytes:
    if not isinstance(value, str) or not _ADDRESS.fullmatch(value):
        raise Invalid(f"invalid {where}: an address is 0x and 40 hex digits")
    return bytes.fromhex(value[2:])


def _chain_id(value: Any) -> int:
    number = int(value, 16) if isinstance(value, str) and _QUANTITY.fullmatch(value) else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= LARGEST:
        raise Invalid("invalid argument 1: a chain id is a number or a 0x quantity")
    return number


def _list(wanted: dict[str, Any], name: str) -> list[Any]:
    value = wanted.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise Invalid(f'invalid argument 1: "{name}" is an array')
    return value
