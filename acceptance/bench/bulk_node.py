"""The other end for large bodies: throws away what it reads, and answers a trace with 50 MB.

Run as ``python -m acceptance.bench.bulk_node``; prints ``ready http://HOST:PORT``. `node` would look into each body and
be busier than the contenders.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

import uvloop

from acceptance.rig import yes_node

LARGE_BYTES: Final = 50_000_000
HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
SMALL: Final = b'{"jsonrpc":"2.0","id":1,"result":"0x1"}'
LARGE: Final = b'{"jsonrpc":"2.0","id":1,"result":"0x%b"}' % (b"a" * (LARGE_BYTES - 38))
TRACE: Final = b'"debug_trace'
START: Final = 2048
"""Head and method stand within so many bytes."""


class Connection(asyncio.Protocol):
    """One keep-alive connection; requests carry a Content-Length, and come one at a time."""

    def __init__(self) -> None:
        self._start = b""
        self._missing: int | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A relay has connected."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one by its methods only

    def data_received(self, data: bytes) -> None:
        """Keep the start, count the rest."""
        if len(self._start) < START:
            self._start += data
        if self._missing is not None:
            self._missing -= len(data)
        else:
            head, found, body = self._start.partition(b"\r\n\r\n")
            if not found:
                return
            self._missing = yes_node.content_length(head) - len(body)
        if self._missing == 0:
            self._answer()

    def _answer(self) -> None:
        body = LARGE if TRACE in self._start else SMALL
        self._start, self._missing = b"", None
        self._transport.writelines((HEAD % len(body), body))


if __name__ == "__main__":
    uvloop.run(yes_node.serve(Connection))
