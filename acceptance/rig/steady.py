"""Clients that never stop: each posts, and posts again, and keeps its connection as long as it may.

Job: count what a client that keeps to HTTP would call a failure: a connection that ends without an answer, a reset, a
connection that is refused.
Rules: a client that was told ``Connection: close`` connects anew, others do not. Every third client connects anew each
time.
Must not know: what stands behind the address.
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

_HEAD = b"POST / HTTP/1.1\r\nHost: relay\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"


@dataclass(slots=True)
class Steady:
    """What happened so far."""

    url: str
    bodies: list[bytes] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    told_to_close: int = 0
    _over: bool = False
    _waiting: list[tuple[int, asyncio.Event]] = field(default_factory=list)

    async def answered(self, more: int) -> None:
        """Until ``more`` further answers are here."""
        event = asyncio.Event()
        self._waiting.append((len(self.bodies) + more, event))
        async with asyncio.timeout(60):
            await event.wait()

    async def client(self, number: int, texts: Iterator[bytes]) -> None:
        """Posts ``texts``, one after the other."""
        parts = urlsplit(self.url)
        text = next(texts, None)
        while text is not None and not self._over:
            try:
                reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            except OSError as error:
                self.failures.append(f"connecting: {error!r}")
                return
            try:
                closes = False
                while text is not None and not closes and not self._over:
                    closes = await self._post(reader, writer, text) or number % 3 == 0
                    text = next(texts, None)
            except (OSError, EOFError) as error:
                self.failures.append(f"posting: {error!r}")
                return
            finally:
                writer.close()

    async def _post(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: bytes) -> bool:
        writer.write(_HEAD % (len(text), text))
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        at = head.index(b"content-length:") + len(b"content-length:")
        self.bodies.append(await reader.readexactly(int(head[at : head.index(b"\r\n", at)])))
        for count, event in self._waiting:
            if len(self.bodies) >= count:
                event.set()
        told = b"connection: close" in head
        self.told_to_close += told
        return told

    def end(self) -> None:
        """Each client stops after the answer it waits for."""
        self._over = True


@asynccontextmanager
async def steady(url: str, clients: int, texts: Callable[[int], Iterator[bytes]]) -> AsyncIterator[Steady]:
    """So many clients at work; left when each has its last answer."""
    load = Steady(url)
    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            group.create_task(load.client(number, texts(number)), name=f"steady {number}")
        yield load
        load.end()


def forever(text: bytes) -> Iterator[bytes]:
    """The same body again and again."""
    return itertools.repeat(text)
