"""What a log line may show.

Job: turn whatever a room logs into values that can be written as JSON and hold no raw transaction and no secret.
Rules: a key in `SECRET` hides its value; elsewhere URLs are masked and long hex or bytes are cut out, in exceptions'
texts too. Everything is bounded, and nothing here raises, for a line must never break the room that logs it.
Must not know: who writes the lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from enum import Enum
from itertools import islice
from typing import Any, Final

from relay.config import masked

HIDDEN: Final = "***"
SECRET: Final = frozenset({
    "raw", "raw_transaction", "signed_transaction", "params", "body",
    "headers", "authorization", "proxy-authorization", "cookie", "set-cookie", "token", "secret", "password",
    "mnemonic", "private_key", "api_key", "x-api-key",
})  # fmt: skip
MAX_TEXT: Final = 8192
"""Characters of one value; the middle of a longer one is left out."""
MAX_ITEMS: Final = 64
"""Elements of one table or list."""
MAX_DEPTH: Final = 4
"""Tables and lists inside one another."""

_SHORT: Final = 100
"""A text up to this long, without a URL, holds no transaction: the smallest signed one has more than 80 bytes."""
_URL: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]{0,20}://[^\s'\"<>]+")
_BYTES: Final = re.compile(r"""(?:0x)?[0-9a-fA-F]{150,}|\bb'(?:[^'\\]|\\.){75,}'|\bb"(?:[^"\\]|\\.){75,}\"""")


def redact(_logger: object, _level: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor: make every value of ``event`` one that may be shown."""
    for key, value in event.items():
        kind = type(value)
        if key in SECRET:
            event[key] = HIDDEN
        elif kind is str:
            if len(value) > _SHORT or "://" in value or not value.isascii():
                event[key] = safe_text(value)
        elif not (kind is float or kind is bool or value is None or (kind is int and _fits_json(value))):
            event[key] = _safe(value, MAX_DEPTH)
    return event


def safe_text(text: str) -> str:
    """``text`` without secrets, encodable, and at most a little longer than `MAX_TEXT`."""
    if "://" in text:
        text = _URL.sub(lambda match: masked(match[0]), text)
    if len(text) > _SHORT:
        text = _BYTES.sub(lambda match: f"<{len(match[0])} characters>", text)
    if len(text) > MAX_TEXT:
        half = MAX_TEXT // 2
        text = f"{text[:half]} … {text[-half:]}"
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _safe(value: Any, depth: int) -> Any:
    match value:
        case Enum():
            return _safe(value.value, depth)
        case Mapping() if depth:
            return {safe_text(str(key)): _item(key, item, depth) for key, item in islice(value.items(), MAX_ITEMS)}
        case list() | tuple() | set() | frozenset() if depth:
            return [_safe(item, depth - 1) for item in islice(value, MAX_ITEMS)]
        case _:
            return _scalar(value)


def _scalar(value: Any) -> Any:
    match value:
        case None | bool() | float():
            return value
        case int() if _fits_json(value):
            return value
        case bytes() | bytearray() | memoryview():
            return f"<{len(value)} bytes>"
        case _:
            return _described(value)


def _fits_json(value: int) -> bool:
    """Can the writer of the lines write it as a number?"""
    return -(1 << 63) <= value < 1 << 64


def _item(key: object, item: Any, depth: int) -> Any:
    return HIDDEN if str(key).lower() in SECRET else _safe(item, depth - 1)


def _described(value: object) -> str:
    try:
        return safe_text(str(value))
    except Exception:  # noqa: BLE001 - a foreign __str__, or an integer of more digits than Python prints
        return f"<{type(value).__name__}>"
