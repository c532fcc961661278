"""A client's wishes, read out of its request's headers.

    Idempotency-Key: "5f0e…"            a structured field's string, or the same bare; 1 to 255 visible characters
    Prefer: respond-async, wait=10      any number of lines, any case; of two equal preferences the first counts

Job: the values of both headers → a `Wish`, or why the key is none.
Rules: a key guards money, so one that cannot be read in exactly one way is refused. A preference that is not known, or
has no sense, is ignored (RFC 7240, 2).
Must not know: heads, bodies, what is done about a wish.

Sources: draft-ietf-httpapi-idempotency-key-header-07, RFC 9651 section 4.2.5 (strings), RFC 7240
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from relay.errors import INVALID_KEY, Refusal
from relay.wish import NO_WISH, Wish

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KEY: Final = b"idempotency-key"
PREFER: Final = b"prefer"
NAMES: Final = frozenset({KEY, PREFER})
MAX_KEY: Final = 255
"""Characters, its quotes and escapes not among them."""

_QUOTED: Final = re.compile(rb'"((?:[^"\\]|\\["\\])*)"')
_ESCAPED: Final = re.compile(rb"\\(.)")
_VISIBLE: Final = re.compile(rb"[!-~]{1,%d}" % MAX_KEY)
_PIECES: Final = re.compile(rb'"(?:[^"\\]|\\.)*"?|[^",;]+|[,;]')
"""Of a list: quoted texts, other texts, and what separates them."""
_SECONDS: Final = re.compile(rb"[0-9]{1,9}")
"""More than nine digits are thirty years: as good as no bound."""


def read(keys: Sequence[bytes], prefers: Sequence[bytes]) -> Wish | Refusal:
    """``keys`` and ``prefers`` are the values of these headers' lines, stripped; none: the header is not there."""
    key = _key(keys) if keys else ""
    if isinstance(key, Refusal):
        return key
    preferences = _preferences(b",".join(prefers))
    seconds = preferences.get(b"wait", b"")
    wait_s = int(seconds) if _SECONDS.fullmatch(seconds) else None
    wish = Wish(key, preferences.get(b"respond-async") == b"", wait_s)
    return NO_WISH if wish == NO_WISH else wish


def _key(values: Sequence[bytes]) -> str | Refusal:
    if len(values) > 1:
        return INVALID_KEY.refusal(detail="the header stands there more than once")
    value = values[0]
    if value.startswith(b'"'):
        quoted = _QUOTED.fullmatch(value)
        if quoted is None:
            return INVALID_KEY.refusal(detail='it begins with " and is no text in quotes')
        value = _ESCAPED.sub(rb"\1", quoted[1])
    if not _VISIBLE.fullmatch(value):
        return INVALID_KEY.refusal(detail=f"write 1 to {MAX_KEY} visible ASCII characters, such as a UUID")
    return value.decode("ascii")


def _preferences(text: bytes) -> dict[bytes, bytes]:
    """Names in lower case → values, without quotes; a name without a value has the empty one, which is the same."""
    found: dict[bytes, bytes] = {}
    for preference in _elements(text):
        name, _, value = preference.partition(b"=")
        found.setdefault(name.strip(b" \t").lower(), _unquoted(value.strip(b" \t")))
    return found


def _elements(text: bytes) -> Iterator[bytes]:
    """The elements of a list, each without its parameters. What stands in quotes separates nothing."""
    element, in_parameters = b"", False
    for piece in _PIECES.findall(text):
        if piece == b",":
            yield element
            element, in_parameters = b"", False
        elif piece == b";":
            in_parameters = True
        elif not in_parameters:
            element += piece
    yield element


def _unquoted(value: bytes) -> bytes:
    return _ESCAPED.sub(rb"\1", value[1:-1]) if len(value) > 1 and value[:1] == value[-1:] == b'"' else value
