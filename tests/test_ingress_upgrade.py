"""WebSocket upgrades are handed over with every byte, and with nothing of ours unsent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

from tests.ingress_rig import (
    GET,
    on_each_loop,
    post,
    serving,
    turns,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# Upgrades.


UPGRADE = b"GET /ws HTTP/1.1\r\nHost: relay\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\r\n"


class Echo(asyncio.Protocol):
    """Owns a transport that was handed over: sends back whatever comes."""

    def __init__(self, transport: asyncio.Transport, data: bytes, closed: Callable[[], None]) -> None:
        self.transport = transport
        self.first = data
        self.closed = closed
        self.unsent = transport.get_write_buffer_size()
        transport.set_protocol(self)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed()


@on_each_loop
async def test_an_upgrade_is_handed_over_with_all_its_bytes() -> None:
    """The new owner gets the head and what came behind it; the connection counts until its transport is closed."""
    owners: list[Echo] = []
    async with serving(lambda *given: owners.append(Echo(*given)), max_connections=1, keepalive_s=1) as rig:
        wire = await rig.wire()
        await wire.send(GET + UPGRADE + b"frames")
        await wire.reply()
        while not owners:
            await turns()
        assert owners[0].unsent == 0
        assert owners[0].first == UPGRADE + b"frames"
        await wire.send(b"more")
        assert await wire._exactly(4) == b"more"
        rig.pass_seconds(1000)
        await turns()
        assert rig.server.connections == 0
        assert (await rig.ask(post())).status == 503
        await rig.server.drain(rig.clock.now)
        await wire.send(b"after")
        assert await wire._exactly(5) == b"after"
        wire.close()
        while rig.server._shared.handed_over:
            await turns()


@on_each_loop
async def test_an_upgrade_waits_for_what_is_unsent() -> None:
    """Behind answers that the client has not read, many bytes or few, the upgrade waits, and nothing is lost."""
    owners: list[Echo] = []
    async with serving(lambda *given: owners.append(Echo(*given))) as rig:
        for answer in (b"x" * 12_000_000, b"x" * 40_000):
            rig.upstream.script = lambda sent, answer=answer: sent.answer(answer)
            wire = await rig.wire(receive_buffer=65_536)
            await turns()
            transport = next(iter(rig.server._shared.open))._transport
            asked = 0
            while not transport.get_write_buffer_size():
                await wire.send(post())
                await turns(5)
                asked += 1
            await wire.send(UPGRADE)
            await turns(50)
            assert not owners
            for _ in range(asked):
                assert (await wire.reply()).body == answer
            while not owners:
                await turns()
            assert (owners[0].unsent, owners.pop().first) == (0, UPGRADE)
            wire.close()
            while rig.server._shared.handed_over:
                await turns()


@on_each_loop
async def test_an_upgrade_that_fails_to_be_taken_is_a_fault_of_ours() -> None:
    """A new owner that raises is reported, and the client is cut."""

    def refuse(transport: asyncio.Transport, data: bytes, closed: Callable[[], None]) -> None:
        raise ZeroDivisionError

    async with serving(refuse) as rig:
        wire = await rig.wire()
        await wire.send(UPGRADE)
        assert await wire.ended()
        await turns()
        assert len(rig.faults) == 1
        assert not rig.server._shared.handed_over
        rig.faults.clear()


@on_each_loop
async def test_aiohttp_takes_an_upgrade() -> None:
    """A real WebSocket client and aiohttp's server meet through the hand-over."""

    async def talk(request: web.BaseRequest) -> web.StreamResponse:
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        async for message in ws:
            await ws.send_str(message.data + "!")
        return ws

    server = web.Server(talk)

    def take(transport: asyncio.Transport, data: bytes, closed: Callable[[], None]) -> None:
        handler = server()
        transport.set_protocol(handler)
        handler.connection_made(transport)
        handler.data_received(data)

    async with serving(take) as rig, aiohttp.ClientSession() as session:
        host, port = rig.place
        async with session.ws_connect(f"http://{host}:{port}/") as ws:
            await ws.send_str("hello")
            assert await ws.receive_str() == "hello!"
        await server.shutdown()
