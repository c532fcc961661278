"""One URL that is told.

Job: one POST, and what its answer means. This room owns the library's exceptions.
Rules: 2xx is a delivery, 410 says never again (Standard Webhooks), everything else is tried again: a redirect too, for
what was signed for one place is not carried to another. Texts name no path and no credentials, a URL may hold a secret.
Must not know: the journal, when it is tried again.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import aiohttp

from relay.config import masked
from relay.journal.records import Delivery
from relay.telemetry.redaction import safe_text
from relay.webhooks.backoff import asked_for_s
from relay.webhooks.signing import signed_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

GONE: Final = 410
_REST: Final = 65_536
"""Bytes of an answer that are read, so that its connection can be used again."""


class Answer(NamedTuple):
    """What came of a try. WAITING: it failed; ``retry_after_s`` is the receiver's own wish, 0 without."""

    delivery: Delivery
    error: str = ""
    retry_after_s: float = 0.0


def receiver_name(url: str) -> str:
    """What the journal knows a receiver by: it says nothing about the URL, and changes with it."""
    return hashlib.sha256(url.encode()).hexdigest()[:16]


class Receiver:
    """``wall_s``: seconds since the epoch, which the receiver compares with its own."""

    def __init__(self, url: str, key: bytes, session: aiohttp.ClientSession, wall_s: Callable[[], float]) -> None:
        self.name = receiver_name(url)
        self.shown = masked(url)
        self._url = url
        self._key = key
        self._session = session
        self._wall_s = wall_s

    def __repr__(self) -> str:
        return f"<receiver {self.name} {self.shown}>"

    async def post(self, id_: str, body: bytes) -> Answer:
        """One try."""
        headers = {"content-type": "application/json", **signed_headers(self._key, id_, int(self._wall_s()), body)}
        try:
            async with self._session.post(self._url, data=body, headers=headers, allow_redirects=False) as response:
                answer = self._meaning(response.status, response.headers)
                with suppress(aiohttp.ClientError, TimeoutError):
                    await response.content.read(_REST)
                return answer
        except TimeoutError:
            return Answer(Delivery.WAITING, "no answer in time")
        except (aiohttp.ClientError, OSError) as error:
            return Answer(Delivery.WAITING, safe_text(str(error) or type(error).__name__))

    def _meaning(self, status: int, headers: Mapping[str, str]) -> Answer:
        if 200 <= status < 300:  # noqa: PLR2004 - the class of success
            return Answer(Delivery.DELIVERED)
        if status == GONE:
            return Answer(Delivery.DEAD, "HTTP 410: the receiver wants no more")
        return Answer(Delivery.WAITING, f"HTTP {status}", asked_for_s(headers.get("retry-after"), self._wall_s()))
