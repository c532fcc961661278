"""Many calls over a few kept connections, at a tenth of a client library's cost.

Job: post prepared bodies and take the time of each answer.
Rules: a connection has one request under way; answers must carry a Content-Length.
Must not know: what is in the bodies.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

    from acceptance.rig.signing import Transfer


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer's body and how long it took."""

    body: bytes
    seconds: float


class Line:
    """One connection. Made by `connected`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def post(self, body: bytes) -> Answered:
        """Post a body and wait for its answer."""
        began = time.monotonic()
        self.write(body)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        at = head.index(b"content-length:") + len(b"content-length:")
        length = int(head[at : head.index(b"\r\n", at)])
        return Answered(await self._reader.readexactly(length), time.monotonic() - began)

    def write(self, body: bytes) -> None:
        """Hand a request to the socket; nobody waits for its answer."""
        self._writer.write(
            b"POST / HTTP/1.1\r\nHost: relay\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (len(body), body)
        )


@asynccontextmanager
async def connected(url: str, source: str | None = None) -> AsyncIterator[Line]:
    """A connection to ``url``, from an address of ours if one is given, closed in the end."""
    parts, bound = urlsplit(url), (source, 0) if source else None
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=2**24, local_addr=bound)
    try:
        yield Line(reader, writer)
    finally:
        writer.close()


async def pump(url: str, bodies: Iterable[bytes], lines: int) -> list[Answered]:
    """Post all ``bodies`` over ``lines`` connections, each as soon as one is free."""
    todo = iter(bodies)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_pump_one(url, todo), name=f"load {number}") for number in range(lines)]
    return [answered for task in tasks for answered in task.result()]


async def _pump_one(url: str, todo: Iterator[bytes]) -> list[Answered]:
    async with connected(url) as line:
        return [await line.post(body) for body in todo]


def body(transfer: Transfer) -> bytes:
    """A submission."""
    return b'{"jsonrpc":"2.0","id":1,"method":"eth_sendRawTransaction","params":["%b"]}' % transfer.raw.encode()


def batch(transfers: Sequence[Transfer]) -> bytes:
    """One body with a submission of each of ``transfers``."""
    return b"[" + b",".join(map(body, transfers)) + b"]"
