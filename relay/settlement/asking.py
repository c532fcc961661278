"""One endpoint, as watch and sweep ask it: many questions of one kind at once.

Job: `Endpoint.ask` puts questions in JSON-RPC batches of bounded size; a node that refuses batches is asked one by one
for a while.
Rules: an answer that cannot be read is no answer. Nothing is ever submitted here, and the connections that are kept for
the lanes are not used.
Must not know: submissions, what follows from an answer.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final

import structlog

from relay.upstream.client import Unread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from relay.upstream.client import UpstreamClient

BATCH: Final = 50
"""Questions in one batch: what gateways take without being told."""
ABREAST: Final = 8
"""Questions at once where batches are refused."""
SINGLY_S: Final = 600.0
"""How long a node that refused a batch is sent none."""
TIMEOUT_S: Final = 5.0
_QUANTITY: Final = re.compile(r"0x[0-9a-fA-F]{1,64}\Z")


class Endpoint:
    """The upstream, or a witness. ``name`` is for operators: its host and port."""

    def __init__(self, name: str, client: UpstreamClient, clock: Callable[[], float]) -> None:
        self.name = name
        self._client = client
        self._clock = clock
        self._singly_until = float("-inf")
        self._log = structlog.get_logger("relay.settlement")

    def __repr__(self) -> str:
        return f"<endpoint {self.name}>"

    async def ask(self, method: str, questions: Sequence[list[Any]]) -> list[Any]:
        """The result of ``method`` for each list of params, in their order; `Unread` where there is none."""
        found: list[Any] = []
        for page in pages(questions, BATCH):
            found += await self._page(method, page)
        return found

    async def one(self, method: str, *params: Any) -> Any:
        """The result of one call, or `Unread`."""
        return await self._client.read(method, list(params), TIMEOUT_S)

    async def head(self) -> int | None:
        """The height of the newest block."""
        return quantity(await self.one("eth_blockNumber"))

    async def chain_id(self) -> int | None:
        """The chain that it is on."""
        return quantity(await self.one("eth_chainId"))

    async def _page(self, method: str, page: Sequence[list[Any]]) -> list[Any]:
        if len(page) > 1 and self._clock() >= self._singly_until:
            batch = await self._client.read_batch(method, page, TIMEOUT_S)
            if not batch.refused:
                return batch.results
            self._go_singly()
        return await self._singly(method, page)

    async def _singly(self, method: str, page: Sequence[list[Any]]) -> list[Any]:
        """A node that does not answer the first ones is not asked for the rest."""
        found: list[Any] = []
        for few in pages(page, ABREAST):
            if found and all(isinstance(each, Unread) for each in found[-ABREAST:]):
                found += [found[-1]] * len(few)
            else:
                found += await asyncio.gather(*(self.one(method, *params) for params in few))
        return found

    def _go_singly(self) -> None:
        self._singly_until = self._clock() + SINGLY_S
        self._log.warning(
            "an endpoint refuses batches, receipts and look-ups are asked for one by one for a while",
            endpoint=self.name,
            seconds=SINGLY_S,
        )


def pages(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """``items`` in parts of at most ``size``."""
    return (items[at : at + size] for at in range(0, len(items), size))


def quantity(value: Any) -> int | None:
    """A number as the JSON-RPC API writes it."""
    return int(value, 16) if isinstance(value, str) and _QUANTITY.match(value) else None


def digest(value: Any) -> bytes | None:
    """A hash as the JSON-RPC API writes it."""
    try:
        found = bytes.fromhex(value[2:]) if isinstance(value, str) and value[:2] == "0x" else b""
    except ValueError:
        return None
    return found if len(found) == 32 else None  # noqa: PLR2004 - bytes of a hash


def hexed(data: bytes) -> str:
    """Bytes as the JSON-RPC API writes them."""
    return "0x" + data.hex()


def distinct(items: Iterable[Any]) -> list[Any]:
    """Each once, in their order."""
    return list(dict.fromkeys(items))
