"""One spawned program: its output line by line, its end, its memory.

Rules: whoever waits waits for a line or for the end, never for time alone. Every program leads a process group of
its own, so that a wrapper's children end with it.
Must not know: which program it is.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT: Final = Path(__file__).parents[2]
PATIENCE_S: Final = 30.0


class ProcessEnded(AssertionError):  # noqa: N818 - what happened
    """The program ended, or said nothing, before the line that was waited for. The text holds its output."""


class Process(asyncio.SubprocessProtocol):
    """A running program. Made by `spawn`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[str] = []
        self._rest = b""
        self._transport: asyncio.SubprocessTransport | None = None
        loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._closed: asyncio.Future[None] = loop.create_future()

    def __repr__(self) -> str:
        return f"<{self.name}, pid {self.pid}>"

    @property
    def pid(self) -> int:
        """The program's, and its group's."""
        assert self._transport is not None
        return self._transport.get_pid()

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        assert self._transport is not None
        return self._transport.get_returncode()

    @property
    def output(self) -> str:
        """All it has written, both streams."""
        return "\n".join(self.lines)

    async def line(self, pattern: str, timeout_s: float = PATIENCE_S) -> re.Match[str]:
        """The first line, already written or still to come, in which ``pattern`` is found."""
        seen = 0
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    for text in self.lines[seen:]:
                        if match := re.search(pattern, text):
                            return match
                    seen = len(self.lines)
                    if self._closed.done():
                        raise ProcessEnded(f"{self.name} ended without a line like {pattern!r}:\n{self.output}")
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise ProcessEnded(f"{self.name}: no line like {pattern!r} in {timeout_s} s:\n{self.output}") from None

    async def ended(self, timeout_s: float = PATIENCE_S) -> int:
        """Its exit code (negative: the signal that ended it), once it has ended and all its output is here."""
        async with asyncio.timeout(timeout_s):
            await asyncio.shield(self._closed)
        assert self.returncode is not None
        return self.returncode

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program and its children."""
        if self.returncode is None:
            os.killpg(self.pid, number)

    async def stop(self) -> None:
        """Ask it to end; insist if it does not."""
        self.signal(signal.SIGTERM)
        try:
            await self.ended(10)
        except TimeoutError:
            self.signal(signal.SIGKILL)
            await self.ended()

    def rss_bytes(self) -> int:
        """The memory it holds right now."""
        return memory_bytes(self.pid)

    # what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It runs."""
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport

    def pipe_data_received(self, _fd: int, data: bytes) -> None:
        """It has written."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        self.lines += [text.decode(errors="replace") for text in whole]
        self._news.set()

    def connection_lost(self, _error: Exception | None) -> None:
        """It has ended and its output is complete."""
        if self._rest:
            self.lines.append(self._rest.decode(errors="replace"))
        assert self._transport is not None
        self._transport.close()
        self._closed.set_result(None)
        self._news.set()


def memory_bytes(pid: int, kind: str = "VmRSS") -> int:
    """The memory a process holds right now; of ``VmHWM``, the most it has held."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    found = re.search(rf"{kind}:\s+(\d+) kB", status)
    assert found, status
    return int(found[1]) * 1024


def forget_peak(pid: int) -> None:
    """Let a process's ``VmHWM`` begin anew, at what it holds right now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", "ascii")


async def spawn(name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> Process:
    """Start a program in a process group of its own, with ``env`` on top of ours."""
    _, process = await asyncio.get_running_loop().subprocess_exec(
        lambda: Process(name),
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        start_new_session=True,
    )
    return process
