"""The programs of a test, wired together by the test.

Job: start a relay, a development chain, a real node, a client, and wait until each is ready; end them all with the
test, last one first.
Rules: a part that cannot be had is a skip that says how to get it.
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from acceptance.rig import nginx
from acceptance.rig.calls import Caller
from acceptance.rig.chain import Chain
from acceptance.rig.crowd import Crowd
from acceptance.rig.processes import ROOT, Process, spawn
from acceptance.rig.tap import Tap
from acceptance.rig.wire import Wire
from tests.redis_server import RedisServer, free_port

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    import aiohttp

CLIENTS: Final = ROOT / "acceptance" / "clients"
URL: Final = r"(?P<url>https?://[\w.:\[\]-]+)"
READY: Final = rf"ready.*?{URL}"
RELAY_READY: Final = rf"{READY} \(upstream (?P<upstream>[^,]+), ops (?P<ops>[^)]+)\)"


@dataclass(frozen=True, slots=True)
class Part:
    """A program that listens. ``ops_url`` is for a relay's health and metrics."""

    process: Process
    url: str
    ops_url: str = ""

    @property
    def ws_url(self) -> str:
        """The same place for WebSockets."""
        return "ws" + self.url.removeprefix("http")


class Rig:
    """Starts parts, and ends them when it is left. Made by the fixture ``rig``."""

    def __init__(self, stack: AsyncExitStack, session: aiohttp.ClientSession, workers: str = "1") -> None:
        self._workers = workers
        self._stack = stack
        self._session = session

    @asynccontextmanager
    async def inner(self) -> AsyncIterator[Rig]:
        """A rig whose parts end with the block."""
        async with AsyncExitStack() as stack:
            yield Rig(stack, self._session)

    async def start(self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> Process:
        """Any program; it is ended with the rig."""
        process = await spawn(name, argv, env=env)
        self._stack.push_async_callback(process.stop)
        return process

    async def relay(self, upstream: str, *flags: str, **settings: object) -> Part:
        """``relay serve`` before ``upstream``; settings by path: ``ordering__max_queue=5``."""
        argv = [sys.executable, "-m", "relay", "serve", "--upstream", upstream]
        argv += ["--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--workers", self._workers, *flags]
        process = await self.start("relay", argv, env=environment(settings))
        ready = await process.line(RELAY_READY)
        return Part(process, ready["url"], ready["ops"])

    async def command(self, *argv: str, **settings: object) -> Process:
        """The ``relay`` command, whatever comes of it."""
        return await self.start("relay", [sys.executable, "-m", "relay", *argv], env=environment(settings))

    async def dev(self) -> str:
        """``relay dev``: the URL of its relay. Its chain mines at once what it accepts."""
        _, ready = await self._dev()
        return ready["url"]

    async def chain(self, **settings: Any) -> Chain:
        """A development chain in a process of its own, with ``settings`` changed (the relay beside it idles)."""
        process, ready = await self._dev()
        chain = Chain(self._session, ready["upstream"], process)
        await chain.reset(**settings)
        return chain

    async def _dev(self) -> tuple[Process, re.Match[str]]:
        argv = [sys.executable, "-m", "relay", "dev", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"]
        process = await self.start("relay dev", [*argv, "--chain-listen", "127.0.0.1:0"])
        return process, await process.line(RELAY_READY)

    async def anvil(self, *flags: str) -> Part:
        """A real node, which mines a block a second unless told otherwise."""
        argv = [native("anvil"), "--port", "0", *(flags or ("--block-time", "1"))]
        process = await self.start("anvil", argv)
        match = await process.line(r"Listening on (?P<place>[\d.]+:\d+)")
        return Part(process, f"http://{match['place']}")

    async def redis(self, kind: str = "valkey", *options: str, config: Path | None = None) -> RedisServer:
        """A server for the order between instances."""
        return await self._stack.enter_async_context(RedisServer(kind, *options, config=config))

    async def wire(self, port: int, tls: ssl.SSLContext | None = None) -> Wire:
        """A line to ``port`` that can be made slow, silent or cut."""
        return await self._stack.enter_async_context(Wire(port, tls))

    async def instances(self, count: int, upstream: str, redis: str, **settings: object) -> list[Part]:
        """Relays that share a Redis."""
        return [await self.relay(upstream, "--redis", redis, **settings) for _ in range(count)]

    async def nginx(self, folder: Path, relays: Sequence[Part]) -> Part:
        """The balancer of ``deploy/`` before ``relays``."""
        place = f"127.0.0.1:{free_port()}"
        file = nginx.written(folder, place, [relay.url.removeprefix("http://") for relay in relays])
        process = await self.start("nginx", nginx.command(folder, file))
        await nginx.listening(place)
        return Part(process, f"http://{place}")

    async def readiness(self, relay: Part) -> tuple[int, dict[str, Any]]:
        """The status of a relay's /readyz, and what its checks say."""
        async with self._session.get(f"{relay.ops_url}/readyz") as response:
            return response.status, (await response.json())["checks"]

    async def metric(self, relay: Part, name: str) -> float:
        """One metric; without labels in ``name``, the sum over them."""
        async with self._session.get(f"{relay.ops_url}/metrics") as response:
            text = await response.text()
        return sum(float(value) for value in re.findall(rf"^{re.escape(name)}(?:{{.*}})? (\S+)$", text, re.MULTILINE))

    def crowd(self) -> Crowd:
        """Clients that send again until they know."""
        return Crowd(self._session)

    async def yes_node(self) -> Part:
        """A node that only says yes, for load."""
        process = await self.start("yes node", [sys.executable, "-m", "acceptance.rig.yes_node"])
        return Part(process, (await process.line(READY))["url"])

    async def tap(self, node: str) -> Tap:
        """A tap before ``node``."""
        return await self._stack.enter_async_context(Tap(node))

    def caller(self, url: str) -> Caller:
        """Asks ``url``."""
        return Caller(self._session, url)

    async def client(self, script: str, timeout_s: float = 120, **task: Any) -> dict[str, Any]:
        """Run a program of ``clients/`` with ``task`` as its argument to its end; the JSON it printed last."""
        process = await self.start(script, [*program(script), json.dumps(task)])
        code = await process.ended(timeout_s)
        assert code == 0, f"{script} ended with {code}:\n{process.output}"
        result: dict[str, Any] = json.loads(process.lines[-1])
        return result

    async def run(self, *argv: str, env: Mapping[str, str] | None = None, timeout_s: float = 120) -> str:
        """Run a program to its end; what it wrote. A code other than 0 fails the test."""
        process = await self.start(argv[0], argv, env=env)
        code = await process.ended(timeout_s)
        assert code == 0, f"{argv} ended with {code}:\n{process.output}"
        return process.output

    async def burst(self, url: str, file: Path, *flags: str) -> dict[str, Any]:
        """Run the burst command on the test mnemonic; its summary, whatever its exit code."""
        argv = [sys.executable, "-m", "acceptance", "burst", "--rpc", url, "--json", str(file), *flags]
        process = await self.start("burst", argv)
        code = await process.ended(120)
        assert code in (0, 1), process.output
        summary: dict[str, Any] = json.loads(file.read_text("utf-8"))  # noqa: ASYNC240 - a small file
        return summary


def native(tool: str) -> str:
    """A program of Foundry, itself and not its wrapper, which costs a start of Node each time."""
    found = sorted((ROOT / "node_modules" / "@foundry-rs").glob(f"{tool}-*/bin/{tool}*"))
    if not found:
        pytest.skip(f"{tool} is missing: run `npm install` in the project's root")
    return str(found[0])


def program(script: str) -> list[str]:
    """How to start a program of ``clients/``."""
    if script.endswith(".py"):
        return [sys.executable, "-m", f"acceptance.clients.{script.removesuffix('.py')}"]
    if not (ROOT / "node_modules" / "ethers").is_dir():
        pytest.skip("the clients' libraries are missing: run `npm install` in the project's root")
    return ["node", str(CLIENTS / script)]


def environment(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings by path, as a relay reads them."""
    return {
        f"RELAY_{path.upper()}": json.dumps(value) if not isinstance(value, str) else value
        for path, value in settings.items()
    }
