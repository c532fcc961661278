"""A receiver of webhooks: a real server, which the test tells what to answer."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from aiohttp import web

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Mapping


@dataclass(frozen=True)
class Delivery:
    """What came."""

    headers: Mapping[str, str]
    body: bytes
    path: str

    @property
    def value(self) -> Any:
        """The body, read."""
        return json.loads(self.body)

    @property
    def id(self) -> str:
        """By the header."""
        return self.headers["webhook-id"]


@dataclass
class Hook:
    """``answer`` makes the answer to each delivery; None cuts the connection. ``got`` has them as they came."""

    answer: Callable[[Delivery], Awaitable[web.Response | None]] | None = None
    got: list[Delivery] = field(default_factory=list)
    inside: int = 0
    most_inside: int = 0
    url: str = ""
    tls: ssl.SSLContext | None = None

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._take)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self.tls)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http{'s' if self.tls else ''}://{host}:{port}/hook"
        self._more = asyncio.Condition()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def take(self, count: int) -> list[Delivery]:
        """The deliveries so far, once there are ``count``."""
        async with self._more:
            await self._more.wait_for(lambda: len(self.got) >= count)
        return list(self.got)

    async def _take(self, request: web.Request) -> web.StreamResponse:
        delivery = Delivery(request.headers.copy(), await request.read(), request.path)
        async with self._more:
            self.got.append(delivery)
            self._more.notify_all()
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        try:
            response = await self.answer(delivery) if self.answer else web.Response(status=204)
        finally:
            self.inside -= 1
        if response is None:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        return response
