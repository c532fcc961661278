"""A line between two programs that can be made slow, silent or cut.

Job: a TCP proxy on loopback.
Rules: bytes keep their order while the delay stays the same. Silence holds bytes back, a cut refuses and resets.
Must not know: what passes.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

CHUNK: Final = 65536


class Wire:
    """Listens on ``port`` while entered and passes everything to ``target``, another port of this machine.

    ``delay_s`` is how much later the target's bytes come back. With ``tls`` it is spoken to in TLS.
    """

    def __init__(self, target: int, tls: ssl.SSLContext | None = None) -> None:
        self.port = 0
        self.delay_s = 0.0
        self._target = target
        self._tls = tls
        self._passing = asyncio.Event()
        self._passing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    def silence(self) -> None:
        """From now on it accepts and passes nothing."""
        self._passing.clear()

    def speak(self) -> None:
        """Pass what was held back, and all that comes."""
        self._passing.set()

    async def cut(self) -> None:
        """Refuse new connections and reset the old ones."""
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def mend(self) -> None:
        """Listen again, on the same port."""
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def __aenter__(self) -> Self:
        await self.mend()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.speak()
        await self.cut()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with self._kept(writer), contextlib.suppress(OSError):
            back, out = await asyncio.open_connection("127.0.0.1", self._target)
            with self._kept(out), contextlib.suppress(ExceptionGroup):
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pump(reader, out, late=False), name="out")
                    both.create_task(self._pump(back, writer, late=True), name="back")

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, late: bool) -> None:
        """Pass one direction until it ends, which ends the other one too."""
        loop = asyncio.get_running_loop()
        while data := await reader.read(CHUNK):
            await self._passing.wait()
            if late and self.delay_s:
                loop.call_later(self.delay_s, _write, writer, data)
            else:
                writer.write(data)
        raise ConnectionResetError

    @contextlib.contextmanager
    def _kept(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        self._writers.add(writer)
        try:
            yield
        finally:
            self._writers.discard(writer)
            writer.transport.abort()


def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    if not writer.is_closing():
        writer.write(data)
