"""Canonical RLP, read in place.

Job: values out of bytes without copying what is not asked for; fields by a table.
Rules: only the canonical form is read: no length and no number longer than it must be. A reader takes the bytes and a
position and gives the value and the position behind it; it does not know where the list around it ends, `read_fields`
and `read_list` see to that. A header that promises bytes which are not there ends in an IndexError or behind the end.
Must not know: transactions.

Sources: Yellow Paper, appendix B. The texts are those of go-ethereum's package rlp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

STRING: Final = 0x80
"""A first byte below this is the value itself."""
LIST: Final = 0xC0
_LONG_STRING: Final = 0xB8
_LONG_LIST: Final = 0xF8
_SHORTEST_LONG: Final = 56

Reader = Callable[[bytes, int], tuple[Any, int]]


class Undecodable(Exception):  # noqa: N818 - not a fault: what a client sent is no transaction
    """The bytes are no transaction that any node reads. The text is geth's."""


class Span(NamedTuple):
    """Where a value's bytes stand."""

    start: int
    stop: int


class Field(NamedTuple):
    """One field of a list: our name, geth's (for its error texts), how it is read."""

    attribute: str
    name: str
    read: Reader


class Struct(NamedTuple):
    """A list of fields: geth's name for it, and they in their order."""

    name: str
    fields: tuple[Field, ...]


def read_list(raw: bytes, position: int, noun: str) -> tuple[int, int]:
    """Where a list's items begin and end. ``noun`` is geth's name for what the list should be."""
    first = raw[position]
    if first < LIST:
        raise Undecodable(f"rlp: expected input list for {noun}")
    if first < _LONG_LIST:
        return position + 1, position + 1 + first - LIST
    return _long(raw, position, first - _LONG_LIST + 1, noun)


def read_fields(raw: bytes, position: int, end: int, struct: Struct) -> tuple[dict[str, Any], int]:
    """The fields of ``struct`` from ``position`` on, and where they end, which is at most ``end``."""
    found: dict[str, Any] = {}
    try:
        for attribute, _, read in struct.fields:
            if position >= end:
                break
            found[attribute], position = read(raw, position)
    except Undecodable as error:
        raise Undecodable(f"{error}, decoding into {_path(struct, len(found))}") from None
    if position > end:
        path = _path(struct, len(found) - 1)
        raise Undecodable(f"rlp: element is larger than containing list, decoding into {path}")
    if len(found) < len(struct.fields):
        raise Undecodable(f"rlp: too few elements for types.{struct.name}")
    return found, position


def at_end(position: int, end: int, name: str) -> None:
    """Nothing may follow: is ``position`` the end of the list called ``name``?"""
    if position < end:
        raise Undecodable(f"rlp: input list has too many elements for types.{name}")
    if position > end:
        raise Undecodable("rlp: element is larger than containing list")


def read_strings(raw: bytes, position: int, noun: str, header: bytes, size: int) -> tuple[int, int]:
    """How many strings of ``size`` bytes, each behind the same ``header``, a list holds.

    Only headers are looked at. A list that is no whole number of strings has one more byte in a stride.
    """
    start, stop = read_list(raw, position, f"[]{noun}")
    stride = len(header) + size
    count = (stop - start) // stride
    for offset in range(len(header)):
        if raw[start + offset : stop : stride] != header[offset : offset + 1] * count:
            raise Undecodable(f"rlp: input string of the wrong length for {noun}")
    return count, stop


def integer(width: int) -> Reader:
    """A reader of unsigned integers of at most ``width`` bytes."""
    noun = f"uint{8 * width}"
    longest = STRING + width

    def read(raw: bytes, position: int) -> tuple[int, int]:
        first = raw[position]
        if 0 < first < STRING:
            return first, position + 1
        if first == STRING:
            return 0, position + 1
        if first == 0:
            raise Undecodable(f"rlp: non-canonical integer (leading zero bytes) for {noun}")
        if first > longest:
            raise _no_string_of(noun, first, longest)
        start = position + 1
        stop = start + first - STRING
        if first == STRING + 1 and raw[start] < STRING:
            raise Undecodable(f"rlp: non-canonical size information for {noun}")
        if raw[start] == 0:
            raise Undecodable(f"rlp: non-canonical integer (leading zero bytes) for {noun}")
        return int.from_bytes(raw[start:stop]), stop

    return read


def fixed(noun: str, size: int) -> Reader:
    """A reader of strings of exactly ``size`` bytes (2 to 55)."""
    header = STRING + size

    def read(raw: bytes, position: int) -> tuple[bytes, int]:
        start = position + 1
        if raw[position] != header:
            raise _no_string_of(noun, raw[position], header)
        return raw[start : start + size], start + size

    return read


def read_span(raw: bytes, position: int) -> tuple[Span, int]:
    """Where the bytes of a string of any length stand."""
    noun = "[]uint8"
    first = raw[position]
    if first < STRING:
        return Span(position, position + 1), position + 1
    if first >= LIST:
        raise _no_string_of(noun, first, first)
    if first >= _LONG_STRING:
        span = Span(*_long(raw, position, first - _LONG_STRING + 1, noun))
        return span, span.stop
    span = Span(position + 1, position + 1 + first - STRING)
    if first == STRING + 1 and raw[span.start] < STRING:
        raise Undecodable(f"rlp: non-canonical size information for {noun}")
    return span, span.stop


def list_header(length: int) -> bytes:
    """What stands before ``length`` bytes of items."""
    if length < _SHORTEST_LONG:
        return bytes((LIST + length,))
    digits = _digits(length)
    return bytes((_LONG_LIST - 1 + len(digits),)) + digits


def encode_integer(value: int) -> bytes:
    """An unsigned integer of at most 55 bytes."""
    if 0 < value < STRING:
        return bytes((value,))
    digits = _digits(value)
    return bytes((STRING + len(digits),)) + digits


def _digits(value: int) -> bytes:
    return value.to_bytes((value.bit_length() + 7) // 8)


def _long(raw: bytes, position: int, width: int, noun: str) -> tuple[int, int]:
    """Where a string or list begins and ends whose length stands in ``width`` bytes of its own."""
    start = position + 1 + width
    length = int.from_bytes(raw[position + 1 : start])
    if raw[position + 1] == 0 or length < _SHORTEST_LONG:
        raise Undecodable(f"rlp: non-canonical size information for {noun}")
    return start, start + length


def _no_string_of(noun: str, first: int, header: int) -> Undecodable:
    if first >= LIST:
        return Undecodable(f"rlp: expected input string or byte for {noun}")
    return Undecodable(f"rlp: input string too {'long' if first > header else 'short'} for {noun}")


def _path(struct: Struct, index: int) -> str:
    return f"(types.{struct.name}).{struct.fields[index].name}"
