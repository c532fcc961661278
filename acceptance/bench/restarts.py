"""Clients during a rolling restart: each request must get its answer, whichever worker goes.

Rules: as HTTP clients do (RFC 9112, 9.3), a kept connection is left when an answer says ``Connection: close`` or when
it was closed between two requests. What counts as cut off: no connection, or one that ended between a request and the
end of its answer.
Must not know: workers.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import count
from typing import Final
from urllib.parse import urlsplit

from acceptance.rig.load import body
from acceptance.rig.signing import random_keys, sign

CHAIN_ID: Final = 1337
KEYS: Final = random_keys()
NUMBERS: Final = count()
KEPT, NEW = 8, 4
SUBMIT_EVERY: Final = 5
PAUSE_S: Final = 0.001
CALL: Final = b'{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}'
FAILED: Final = (OSError, asyncio.IncompleteReadError)


@dataclass(slots=True)
class Clients:
    """Call and submit until ``stopped``."""

    url: str
    answered: int = 0
    cut: list[str] = field(default_factory=list)
    refused: list[bytes] = field(default_factory=list)
    stopped: bool = False

    async def run(self) -> None:
        """Some on connections they keep, some on a new one for each request."""
        async with asyncio.TaskGroup() as group:
            for number in range(KEPT + NEW):
                group.create_task(self._client(kept=number < KEPT), name=f"client {number}")

    async def _client(self, *, kept: bool) -> None:
        while not self.stopped:
            try:
                await self._on_one_connection(kept=kept)
            except FAILED as error:
                self.cut.append(repr(error))

    async def _on_one_connection(self, *, kept: bool) -> None:
        parts = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            while True:
                request = CALL if next(NUMBERS) % SUBMIT_EVERY else body(sign(next(KEYS), 0, CHAIN_ID))
                again = await self._asked(reader, writer, request)
                await asyncio.sleep(PAUSE_S)
                if not (kept and again) or self.stopped or reader.at_eof():
                    return
        finally:
            writer.close()

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bool:
        """One request; whether the connection may be used again."""
        head = b"POST / HTTP/1.1\r\nHost: relay\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(request) + request)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(answer.partition(b"content-length:")[2].partition(b"\r\n")[0])
        text = await reader.readexactly(length)
        self.answered += 1
        if b'"result"' not in text:
            self.refused.append(text)
        return b"connection: close" not in answer
