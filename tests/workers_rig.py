"""Workers of one relay without their processes: what tests of the links between them need.

Each part has the rooms, connections and metrics of its own that a process would have; links go over a real Unix socket
that outlives the lane process, what is at the node stands in real shared memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from relay import config
from relay.devnode import DevNode, NodeSettings
from relay.intake import Intake
from relay.router import Answer, Forward, Router
from relay.submit import Submitter
from relay.tasks import TaskOwner
from relay.telemetry.metrics import Metrics
from relay.upstream.accounts import Accounts
from relay.upstream.client import UpstreamClient
from relay.upstream.identity import Identity
from relay.upstream.pool import Pool
from relay.wish import NO_WISH, Wish
from relay.workers.aftermath import Aftermath
from relay.workers.desk import LaneDesk
from relay.workers.forwarder import Forwarder
from relay.workers.inflight import InflightTable
from relay.workers.muster import Muster
from tests.fleet import order
from tests.stand import signed, submission

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from relay.config import Settings

SLOTS = 64


class Part:
    """What every worker has: its own way to the node."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.settings = crew.settings
        self.metrics = Metrics()
        self.owner = TaskOwner("test", crew.report)
        self.pool = Pool(self.settings.upstream, self.metrics, crew.report)
        self.client = UpstreamClient(self.pool, self.metrics, self.settings.upstream.timeout_s)
        self.identity = Identity(self.client, self.settings.prechecks)
        self.accounts = Accounts(self.client)

    async def start(self) -> Self:
        """It runs when this returns."""
        await self.identity.refresh()
        return self

    async def close(self) -> None:
        """It ends, and nothing of it is left."""
        await self.owner.close()
        await self.pool.close()


class Ingress(Part):
    """A worker that takes clients."""

    async def start(self) -> Self:
        """See `Part.start`."""
        await super().start()
        self.forwarder = Forwarder(
            self.crew.path, self.settings, self.metrics, self.owner, clock=self.crew.clock, name=id(self)
        )
        self.intake = Intake(
            settings=self.settings,
            desk=self.forwarder,
            accounts=self.accounts,
            identity=self.identity,
            metrics=self.metrics,
            clock=self.crew.clock,
        )
        self.router = Router(self.settings, self.intake, self.client, self.owner, self.crew.report)
        await self.forwarder.start()
        return self

    async def close(self) -> None:
        """See `Part.close`."""
        await self.forwarder.close()
        await super().close()

    def route(self, raw: str, wish: Wish = NO_WISH) -> asyncio.Future[Answer]:
        """Submit; it is on its way to the lane process when this returns."""
        routed = self.router.route(submission(raw), wish)
        assert not isinstance(routed, Forward)
        if isinstance(routed, Answer):
            done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            done.set_result(routed)
            return done
        return routed

    async def send(self, raw: str) -> Any:
        """Submit and wait: the response object."""
        return json.loads((await self.route(raw)).body)


class LaneProcess(Part):
    """The worker that owns the lanes."""

    async def start(self) -> Self:
        """See `Part.start`."""
        await super().start()
        self.table = InflightTable(self.crew.fd, SLOTS)
        self.muster = Muster(self.settings.ordering.max_wait_s, self.crew.clock)
        self.aftermath = Aftermath(
            self.table,
            self.muster,
            settings=self.settings,
            accounts=self.accounts,
            metrics=self.metrics,
            owner=self.owner,
            clock=self.crew.clock,
        )
        self.submitter = Submitter(
            settings=self.settings,
            client=self.client,
            accounts=self.accounts,
            identity=self.identity,
            owner=self.owner,
            metrics=self.metrics,
            report=self.crew.report,
            clock=self.crew.clock,
            witness=self.aftermath,
        )
        self.owner.start("overdue", self.submitter.turns.sweep_forever())
        self.desk = LaneDesk(
            self.submitter,
            self.crew.socket,
            self.muster,
            self.metrics,
            self.owner,
            report=self.crew.report,
            clock=self.crew.clock,
        )
        self.muster.complete = self.submitter.turns.wake_all
        self.aftermath.start()
        await self.desk.start()
        self.muster.begin(id(one) for one in self.crew.ingress)
        return self

    async def close(self) -> None:
        """See `Part.close`."""
        await self.desk.close()
        self.muster.close()
        await super().close()
        self.table.close()

    async def die(self) -> None:
        """As by SIGKILL: its links and its connections to the node break, nothing is answered or tidied up."""
        for link in list(self.desk._links):
            link.abort("killed")
        self.muster.close()
        await self.owner.close()
        await self.pool.close()
        self.table.close()


class Crew:
    """``async with Crew(3) as crew``: so many workers that take clients, and a lane process if not ``laneless``."""

    def __init__(
        self,
        count: int = 1,
        node: NodeSettings | None = None,
        *,
        laneless: bool = False,
        clock: Any = time.monotonic,
        **tables: Mapping[str, Any],
    ) -> None:
        self.count = count
        self.node = DevNode(node or NodeSettings())
        self.laneless = laneless
        self.clock = clock
        self.tables = tables
        self.faults: list[str] = []
        self.ingress: list[Ingress] = []
        self.settings: Settings

    async def __aenter__(self) -> Self:
        await self.node.start()
        self.settings = config.check(
            {**self.tables, "upstream": {"url": self.node.url, **self.tables.get("upstream", {})}}
        )
        self._directory = tempfile.TemporaryDirectory()
        self.path = str(Path(self._directory.name) / "lanes")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind(self.path)
        self.socket.listen(64)
        self.fd = InflightTable.create()
        self.lanes: LaneProcess | None = None if self.laneless else await LaneProcess(self).start()
        for _ in range(self.count):
            self.ingress.append(await Ingress(self).start())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.node.release()
        for part in (*self.ingress, *([self.lanes] if self.lanes else [])):
            await part.close()
        self.socket.close()
        os.close(self.fd)
        self._directory.cleanup()
        await self.node.close()
        assert self.faults == []

    def report(self, name: str, error: BaseException) -> None:
        """A fault of the relay itself."""
        self.faults.append(f"{name}: {error!r}")

    async def kill_lanes(self) -> None:
        """The lane process dies; nobody replaces it yet."""
        assert self.lanes is not None
        await self.lanes.die()
        self.lanes = None

    async def start_lanes(self) -> LaneProcess:
        """A replacement."""
        self.lanes = await LaneProcess(self).start()
        return self.lanes

    async def burst(self, senders: int, count: int, seed: int = 1) -> list[Any]:
        """``count`` nonces of each of ``senders``, neighbours swapped, round robin over the workers; the answers."""
        randomly = random.Random(seed)
        plan = [(nonce, who) for nonce in order(0, count, True, randomly) for who in range(senders)]
        answers = []
        for number, (nonce, who) in enumerate(plan):
            answers.append(self.ingress[number % self.count].route(signed(nonce, who=who)))
            if number % 8 == 0:
                await asyncio.sleep(0)
        return [json.loads(answer.body) for answer in await asyncio.gather(*answers)]

    def assert_order(self) -> None:
        """Nothing overtook, and nothing was under way beside another of its sender."""
        assert (self.node.arrivals.inversions, self.node.arrivals.overlaps) == (0, 0)


async def until(condition: Callable[[], bool]) -> None:
    """Until something in this process is so: each turn of the loop brings it nearer."""
    while not condition():  # noqa: ASYNC110 - there is no event for what several parts do together
        await asyncio.sleep(0.001)


async def answers(waits: list[asyncio.Future[Answer]]) -> list[Any]:
    """The response objects."""
    return [json.loads(answer.body) for answer in await asyncio.gather(*waits)]


def lanes(crew: Crew) -> LaneProcess:
    """The lane process that lives."""
    assert crew.lanes is not None
    return crew.lanes
