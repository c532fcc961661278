"""The operator's API over a real socket, on a journal in memory or a file; what it asks of the lanes is remembered."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
from structlog.testing import capture_logs

from relay.config import Ops
from relay.console import console
from relay.journal.shelf import Shelf
from relay.ops import OpsServer, of_process
from relay.tasks import TaskOwner
from relay.telemetry.metrics import Metrics
from relay.testing.samples import CHAIN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from relay.journal import Journal

TOKEN = "the-operators-own-token"
REASON = {"reason": "customer asked, ticket 7"}


class Hand:
    """What the lanes' process was asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def resend(self, submission: int) -> None:
        self.asked.append(submission)

    def sweep(self) -> None:
        self.asked.append("sweep")

    def lanes_changed(self) -> None:
        self.asked.append("lanes changed")


class Said(NamedTuple):
    """An answer."""

    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def problem(self) -> str:
        """The name of the problem that it is."""
        assert self.headers["Content-Type"] == "application/problem+json"
        assert self.body["status"] == self.status
        return str(self.body["type"]).removeprefix("urn:relay:problem:")


class Desk:
    """An operator at work."""

    def __init__(self, shelf: Shelf, hand: Hand, url: str, client: aiohttp.ClientSession, log: Any) -> None:
        self.shelf = shelf
        self.hand = hand
        self.url = url
        self.client = client
        self.log = log

    @property
    def journal(self) -> Journal:
        """What he works on."""
        return self.shelf.journal

    async def ask(self, method: str, path: str, token: str = TOKEN, **more: Any) -> Said:
        """One request. ``headers`` are added to the token's."""
        headers = {"Authorization": f"Bearer {token}", **more.pop("headers", {})}
        async with self.client.request(method, self.url + path, headers=headers, **more) as answer:
            body = await answer.json(content_type=None) if method != "HEAD" else None
            return Said(answer.status, body, answer.headers)

    async def get(self, path: str, **more: Any) -> Said:
        """Look."""
        return await self.ask("GET", f"/api{path}", **more)

    async def post(self, path: str, body: Any = REASON, **headers: str) -> Said:
        """Act."""
        return await self.ask("POST", f"/api{path}", json=body, headers=headers)


@asynccontextmanager
async def at_the_desk(url: str = "memory:", *, chain: int | None = CHAIN) -> AsyncIterator[Desk]:
    """The API on a free port. At the end no fault was reported."""
    faults: list[str] = []
    background = TaskOwner("test", lambda name, error: faults.append(f"{name}: {error!r}"))
    shelf, hand = Shelf(url), Hand()
    await shelf.start(background)
    app = console(TOKEN, shelf, hand, lambda: chain)
    server = OpsServer(Ops(listen="127.0.0.1:0"), of_process(Metrics()), console=app)
    host, port = await server.start()
    try:
        with capture_logs() as log:
            async with aiohttp.ClientSession() as client:
                yield Desk(shelf, hand, f"http://{host}:{port}", client, log)
    finally:
        await server.close()
        await background.close()
        await shelf.close()
    assert faults == []
