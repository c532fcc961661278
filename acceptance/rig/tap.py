"""A tap on the line between relay and node: the judge of order before a real node, which keeps no record.

Job: an HTTP proxy that passes everything on and keeps the begin and the end of each `eth_sendRawTransaction`.
Rules: an arrival begins when its request is complete and ends when its answer is handed back.
Must not know: which program is on which side.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Self

import aiohttp
from aiohttp import web
from eth_account import Account
from eth_account.typed_transactions.typed_transaction import TypedTransaction
from hexbytes import HexBytes

if TYPE_CHECKING:
    from types import TracebackType

SUBMISSION: Final = b"eth_sendRawTransaction"


@dataclass(slots=True)
class Arrival:
    """One submission at the node. Times in seconds, monotonic."""

    raw: str
    began_s: float
    ended_s: float = float("inf")

    @property
    def sender(self) -> str:
        """Who signed it."""
        return str(Account.recover_transaction(self.raw))

    @property
    def nonce(self) -> int:
        """The transaction's, which has to be a typed one."""
        return int(TypedTransaction.from_bytes(HexBytes(self.raw)).as_dict()["nonce"])


@dataclass(frozen=True, slots=True)
class Order:
    """What the arrivals show: how many came after a higher nonce of their sender, how many of one sender at once."""

    arrivals: int
    inversions: int
    most_at_once: int


class Tap:
    """Listens on ``url`` while entered."""

    def __init__(self, node: str) -> None:
        self.arrivals: list[Arrival] = []
        self._node = node
        self._session: aiohttp.ClientSession | None = None
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, access_log=None)

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    def order(self) -> Order:
        """Judge the arrivals so far, each sender's by themselves."""
        by_sender: defaultdict[str, list[tuple[int, Arrival]]] = defaultdict(list)
        for arrival in self.arrivals:
            by_sender[arrival.sender].append((arrival.nonce, arrival))
        lanes = by_sender.values()
        return Order(
            arrivals=len(self.arrivals),
            inversions=sum(later < earlier for lane in lanes for (earlier, _), (later, _) in pairwise(lane)),
            most_at_once=max((_most_at_once([arrival for _, arrival in lane]) for lane in lanes), default=0),
        )

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, backlog=4096).start()
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self._runner.cleanup()
        assert self._session is not None
        await self._session.close()

    async def _pass(self, request: web.Request) -> web.Response:
        body = await request.read()
        arrival = Arrival(raw, time.monotonic()) if (raw := _submitted(body)) else None
        if arrival is None:
            return await self._forward(body)
        self.arrivals.append(arrival)
        response = await self._forward(body)
        arrival.ended_s = time.monotonic()
        return response

    async def _forward(self, body: bytes) -> web.Response:
        assert self._session is not None
        headers = {"Content-Type": "application/json"}
        async with self._session.post(self._node, data=body, headers=headers) as response:
            return web.Response(status=response.status, body=await response.read(), content_type=response.content_type)


def _submitted(body: bytes) -> str | None:
    """The raw transaction of a single submission."""
    call = json.loads(body) if SUBMISSION in body else None
    return str(call["params"][0]) if isinstance(call, dict) and call["method"] == SUBMISSION.decode() else None


def _most_at_once(arrivals: list[Arrival]) -> int:
    """How many were under way at the busiest instant; one that ends as another begins is over."""
    steps = sorted([(arrival.began_s, 1) for arrival in arrivals] + [(arrival.ended_s, -1) for arrival in arrivals])
    running = most = 0
    for _, change in steps:
        running += change
        most = max(most, running)
    return most
