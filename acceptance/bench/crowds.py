"""The clients of a soak: each kind does one thing again and again until it is told to stop, and counts.

Rules: whatever a client gets is either expected, and counted by name, or ends the run with what it was.
Must not know: what is measured.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import aiohttp

from acceptance.rig.load import body, connected
from acceptance.rig.signing import random_keys, sign

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from acceptance.rig.parts import Part

CHAIN_ID: Final = 1337
OTHER_CHAIN: Final = 1
UNDECODABLE: Final = b'{"jsonrpc":"2.0","id":1,"method":"eth_sendRawTransaction","params":["0x02c0"]}'
HUNDRED, WRONG_EVERY, SESSION_CALLS = 100, 20, 10
PAUSE_S: Final = 0.01
"""Between hang-ups, for they cost the client nothing and would drown the rest."""
SUBSCRIBE: Final = '{"jsonrpc":"2.0","id":0,"method":"eth_subscribe","params":["newHeads"]}'
CALL: Final = '{"jsonrpc":"2.0","id":%d,"method":"eth_blockNumber","params":[]}'


@dataclass(slots=True)
class Crowd:
    """Clients of one relay. ``counts`` says what they met; ``stopped`` ends them."""

    relay: Part
    session: aiohttp.ClientSession
    counts: Counter[str] = field(default_factory=Counter)
    stopped: bool = False

    async def run(self, sizes: dict[str, int]) -> None:
        """So many of each kind, until ``stopped``."""
        async with asyncio.TaskGroup() as group:
            for kind, size in sizes.items():
                for number in range(size):
                    group.create_task(self._again(KINDS[kind]), name=f"{kind} {number}")

    async def _again(self, client: Callable[[Crowd], Awaitable[None]]) -> None:
        while not self.stopped:
            await client(self)


async def submitter(crowd: Crowd) -> None:
    """A connection with a hundred new senders' first transactions, some of them wrong, the last one behind a gap."""
    keys = random_keys()
    async with connected(crowd.relay.url) as line:
        for number in range(HUNDRED):
            nonce = 3 if number == HUNDRED - 1 else 0
            chain_id = OTHER_CHAIN if number % WRONG_EVERY == 0 else CHAIN_ID
            wrong = number % WRONG_EVERY == WRONG_EVERY // 2
            answer = await line.post(UNDECODABLE if wrong else body(sign(next(keys), nonce, chain_id)))
            crowd.counts[_named(answer.body)] += 1


async def caller(crowd: Crowd) -> None:
    """A connection with a hundred calls, each with a head and an id of its own."""
    parts = urlsplit(crowd.relay.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    for _ in range(HUNDRED):
        call = CALL % int.from_bytes(os.urandom(4))
        writer.write(
            f"POST / HTTP/1.1\r\nHost: relay\r\nContent-Type: application/json\r\nX-Trace: {os.urandom(16).hex()}\r\n"
            f"Content-Length: {len(call)}\r\n\r\n{call}".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        assert b'"result"' in await reader.readexactly(length), head
        crowd.counts["calls"] += 1
    writer.close()


async def leaver(crowd: Crowd) -> None:
    """One that leaves in the middle of a request, or before its answer."""
    key = next(random_keys())
    parts = urlsplit(crowd.relay.url)
    request = body(sign(key, 0, CHAIN_ID))
    for said in (request[: len(request) // 2], request, CALL.encode() % 1):
        _, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(b"POST / HTTP/1.1\r\nHost: relay\r\nContent-Length: %d\r\n\r\n%b" % (len(request), said))
        await writer.drain()
        writer.transport.abort()
        crowd.counts["hang-ups"] += 1
        await asyncio.sleep(PAUSE_S)


async def watcher(crowd: Crowd) -> None:
    """A WebSocket that subscribes, calls, submits, and closes properly or not."""
    key = next(random_keys())
    async with crowd.session.ws_connect(crowd.relay.ws_url) as socket:
        await socket.send_str(SUBSCRIBE)
        for number in range(1, SESSION_CALLS):
            await socket.send_str(CALL % number)
        await socket.send_bytes(body(sign(key, 0, CHAIN_ID)))
        told = 0
        while told < SESSION_CALLS:
            told += "id" in await _heard(socket)
        crowd.counts["WebSocket sessions"] += 1
        if next(NUMBERS) % 2 and (transport := socket.get_extra_info("socket")) is not None:
            with suppress(OSError):
                transport.shutdown(2)


async def _heard(socket: aiohttp.ClientWebSocketResponse) -> dict[str, Any]:
    message = await socket.receive(30)
    assert message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY), message
    heard: dict[str, Any] = json.loads(message.data)
    return heard


def _named(answer: bytes) -> str:
    said = json.loads(answer)
    return "accepted" if "result" in said else f"refused: {REFUSALS[said['error']['code']]}"


REFUSALS: Final = {-32000: "by a rule of the relay or by the node", -32040: "outcome unknown"}
NUMBERS: Final = count()
KINDS: Final[dict[str, Callable[[Crowd], Awaitable[None]]]] = {
    "submitters": submitter,
    "callers": caller,
    "leavers": leaver,
    "watchers": watcher,
}
