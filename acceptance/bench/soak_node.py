"""A node for days of mixed load: says yes to most, refuses some, drops some connections, and speaks WebSocket.

Run as ``python -m acceptance.bench.soak_node``; prints ``ready http://HOST:PORT ws ws://HOST:PORT``. Every 50th
submission is refused, every 500th is answered with the end of its connection. A subscription is told of five heads.
It keeps nothing.
"""

from __future__ import annotations

import asyncio
import json
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import uvloop
from aiohttp import WSMsgType, web

from acceptance.rig import yes_node

if TYPE_CHECKING:
    from collections.abc import Iterator

REFUSED_EVERY, DROPPED_EVERY = 50, 500
HEADS: Final = 5
NUMBER: Final[Iterator[int]] = count(1)
REFUSAL: Final = {"code": -32000, "message": "insufficient funds for gas * price + value"}
FRAMES: Final = (WSMsgType.TEXT, WSMsgType.BINARY)


class Connection(yes_node.Connection):
    """One connection over HTTP."""

    def take(self, body: bytes) -> None:
        """Answer one request, or do not."""
        call = json.loads(body)
        number = next(NUMBER) if call["method"] == "eth_sendRawTransaction" else 1
        if number % DROPPED_EVERY == 0:
            assert self._transport is not None
            self._transport.abort()
        elif number % REFUSED_EVERY == 0:
            self.write(json.dumps({"jsonrpc": "2.0", "id": call["id"], "error": REFUSAL}).encode())
        else:
            self.write(json.dumps(yes_node.answer(call)).encode())


async def session(request: web.Request) -> web.WebSocketResponse:
    """One WebSocket: calls, and subscriptions."""
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        if message.type in FRAMES:
            await _answer(socket, json.loads(message.data))
    return socket


async def _answer(socket: web.WebSocketResponse, call: dict[str, Any]) -> None:
    if call["method"] != "eth_subscribe":
        await socket.send_str(json.dumps(yes_node.answer(call)))
        return
    await socket.send_str(json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": "0x1"}))
    for number in range(HEADS):
        told = {"subscription": "0x1", "result": {"number": hex(number)}}
        await socket.send_str(json.dumps({"jsonrpc": "2.0", "method": "eth_subscription", "params": told}))


async def serve() -> None:
    """Listen until the process is ended."""
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0, backlog=4096)
    app = web.Application()
    app.router.add_get("/", session)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = server.sockets[0].getsockname()[:2]
    ws_host, ws_port = runner.addresses[0][:2]
    print(f"ready http://{host}:{port} ws ws://{ws_host}:{ws_port}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve())
