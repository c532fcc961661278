"""A relay with a journal in front of a development chain: real sockets, a real store, clients that ask."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from relay import config
from relay.devnode import DevNode, NodeSettings
from relay.sides import ClientSide, House, LaneSide, NodeSide, shelf_of
from relay.tasks import TaskOwner
from relay.telemetry.metrics import Metrics
from relay.testing.samples import CHAIN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relay.journal import Journal
    from relay.journal.shelf import Shelf

ALICE = "0x" + "aa" * 20
UNKNOWN = "0x" + "99" * 32


@dataclass
class Relay:
    """One process's way in."""

    url: str
    node: DevNode
    shelf: Shelf | None
    clients: ClientSide
    metrics: Metrics
    faults: list[str] = field(default_factory=list)
    http: aiohttp.ClientSession = field(default_factory=aiohttp.ClientSession)

    @property
    def journal(self) -> Journal:
        """Its journal."""
        assert self.shelf is not None
        return self.shelf.journal

    async def post(self, body: Any) -> Any:
        """The answer to a call or a batch, as values; None where there is none."""
        async with self.http.post(self.url, json=body) as answer:
            text = await answer.read()
            return json.loads(text) if text else None

    async def call(self, method: str, *params: Any) -> Any:
        """The response object."""
        return await self.post(call(method, *params))

    async def result(self, method: str, *params: Any) -> Any:
        """The result."""
        answer = await self.call(method, *params)
        assert "error" not in answer, answer
        return answer["result"]

    async def get(self, path: str, method: str = "GET", **headers: str) -> tuple[aiohttp.ClientResponse, bytes]:
        """The answer to GET, and its body."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.http.request(method, self.url + path, headers=names) as answer:
            return answer, await answer.read()

    def count(self, way: str, kind: str, outcome: str) -> int:
        """Requests counted."""
        return self.metrics.requests.cell(way, kind, outcome).n


def call(method: str, *params: Any, id_: Any = 1) -> dict[str, Any]:
    """A request object."""
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": list(params)}


@asynccontextmanager
async def relay(url: str = "memory:", **tables: dict[str, Any]) -> AsyncIterator[Relay]:
    """A relay with its journal at ``url``, "" for none, and these further tables. At the end no fault was reported."""
    node = DevNode(NodeSettings(chain_id=CHAIN))
    await node.start()
    settings = config.check({**tables, "upstream": {"url": node.url, **tables.get("upstream", {})}})
    settings = msgspec.structs.replace(settings, journal=msgspec.structs.replace(settings.journal, url=url))
    faults: list[str] = []

    def report(name: str, error: BaseException) -> None:
        faults.append(f"{name}: {error!r}")

    metrics, background = Metrics(), TaskOwner("test", report)
    shelf = shelf_of(settings, metrics)
    house = House(settings, metrics, report, time.monotonic, shelf)
    nodes = NodeSide(house)
    lanes = LaneSide(house, nodes)
    clients = ClientSide(house, nodes, lanes.submitter)
    if shelf is not None:
        await shelf.start(background)
    await lanes.start(background)
    await nodes.identity.refresh()
    host, port = await clients.start(("127.0.0.1", 0))
    here = Relay(f"http://{host}:{port}", node, shelf, clients, metrics, faults)
    try:
        yield here
    finally:
        await here.http.close()
        await clients.drain(time.monotonic() + 5)
        for side in (clients, lanes, background, *((shelf,) if shelf else ()), nodes, node):
            await side.close()
    assert faults == []


async def hear(socket: aiohttp.ClientWebSocketResponse) -> Any:
    """The next message, as values."""
    async with asyncio.timeout(10):
        return await socket.receive_json()
