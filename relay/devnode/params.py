"""The parameters of a call, in geth's words where they do not fit.

Job: one reader for each kind of parameter.
Rules: a parameter that does not fit raises `BadParams`, which `relay.devnode.node` turns into the answer: -32602. It
never leaves this room.
Must not know: what the parameters are for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import orjson

if TYPE_CHECKING:
    from relay.devnode.chain import Place

T = TypeVar("T")

HASH_DIGITS: Final = 64
ADDRESS_DIGITS: Final = 40
_DIGITS: Final = frozenset("0123456789abcdefABCDEF")
_TAGS: Final[dict[str, Place]] = {
    "latest": "latest", "pending": "pending", "safe": "latest", "finalized": "latest", "earliest": 0,
}  # fmt: skip


class BadParams(Exception):  # noqa: N818 - what it is, not an error of ours
    """A parameter is missing or of the wrong form."""


class Params:
    """The array of parameters, read by position."""

    __slots__ = ("_values",)

    def __init__(self, text: bytes | None) -> None:
        try:
            values = orjson.loads(text) if text else []
        except orjson.JSONDecodeError as error:
            raise BadParams(str(error)) from None
        if not isinstance(values, list):
            raise BadParams("non-array args")
        self._values: list[Any] = values

    def value(self, at: int, default: Any = None) -> Any:
        """Anything; the default where it is missing or null."""
        return self._values[at] if at < len(self._values) and self._values[at] is not None else default

    def text(self, at: int) -> str:
        """Any string."""
        value = self.value(at)
        if not isinstance(value, str):
            raise _bad(at, "want a string")
        return value

    def flag(self, at: int) -> bool:
        """A boolean, false if missing."""
        return bool(self.value(at, default=False))

    def number(self, at: int, default: int | None = None) -> int:
        """A count: a JSON number or a hex quantity."""
        value = self.value(at, default)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        return int(_digits(at, value) or "0", 16)

    def data(self, at: int) -> bytes:
        """Bytes in hex."""
        return unhexed(at, self.value(at))

    def hash(self, at: int) -> str:
        """32 bytes in hex, lower case."""
        return "0x" + self._fixed(at, HASH_DIGITS, "common.Hash")

    def address(self, at: int) -> bytes:
        """20 bytes in hex."""
        return bytes.fromhex(self._fixed(at, ADDRESS_DIGITS, "common.Address"))

    def place(self, at: int) -> Place:
        """A block by tag, number, hash or EIP-1898 object; ``latest`` if missing."""
        value = self.value(at, "latest")
        if isinstance(value, dict):
            value = value.get("blockHash", value.get("blockNumber", "latest"))
        if isinstance(value, str) and value in _TAGS:
            return _TAGS[value]
        digits = _digits(at, value)
        return f"0x{digits}".lower() if len(digits) == HASH_DIGITS else int(digits or "0", 16)

    def typed(self, at: int, kind: type[T]) -> T:
        """A value of a msgspec type, unknown keys refused; an empty one if missing."""
        return _typed(at, self.value(at, {}), kind)

    def all(self, kind: Any) -> list[Any]:
        """Every parameter as a value of a msgspec type (or union of such)."""
        return [_typed(at, value, kind) for at, value in enumerate(self._values)]

    def _fixed(self, at: int, digits: int, kind: str) -> str:
        text = _digits(at, self.value(at))
        if len(text) != digits:
            raise _bad(at, f"hex string has length {len(text)}, want {digits} for {kind}")
        return text.lower()


def unhexed(at: int, value: Any) -> bytes:
    """The bytes of a hex text that is, or is in, this parameter."""
    digits = _digits(at, value)
    if len(digits) % 2:
        raise _unmarshal(at, "hex string of odd length")
    return bytes.fromhex(digits)


def _typed(at: int, value: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _bad(at, str(error)) from None


def _digits(at: int, value: Any) -> str:
    if value is None:
        raise BadParams(f"missing value for required argument {at}")
    if not isinstance(value, str):
        raise _unmarshal(at, "non-string")
    if value[:2] not in {"0x", "0X"}:
        raise _unmarshal(at, "hex string without 0x prefix")
    if not _DIGITS.issuperset(value[2:]):
        raise _unmarshal(at, "invalid hex string")
    return value[2:]


def _unmarshal(at: int, what: str) -> BadParams:
    return _bad(at, f"json: cannot unmarshal {what} into Go value of type hexutil.Bytes")


def _bad(at: int, detail: str) -> BadParams:
    return BadParams(f"invalid argument {at}: {detail}")
