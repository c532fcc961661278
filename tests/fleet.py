"""Several relays on one server in front of one development chain: what tests of the order between instances need.

Each `Relay` builds the rooms below the router as `relay.app` does. Keys and channels are the real ones.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import random
import time
from typing import TYPE_CHECKING, Any, Self

import uvloop

from relay import config
from relay.devnode import DevNode, NodeSettings
from relay.intake import Intake
from relay.lease import Tier
from relay.router import Answer, Forward, Router
from relay.submit import Submitter
from relay.tasks import TaskOwner
from relay.telemetry.metrics import Metrics
from relay.upstream.accounts import Accounts
from relay.upstream.client import UpstreamClient
from relay.upstream.identity import Identity
from relay.upstream.pool import Pool
from tests.redis_server import RedisServer
from tests.stand import signed, submission

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

STRICT = NodeSettings(delay_ms=(0.0, 10.0))


class Relay:
    """One instance."""

    def __init__(self, node: DevNode, tables: Mapping[str, Mapping[str, Any]]) -> None:
        self.node = node
        self.faults: list[str] = []
        self.settings = config.check({**tables, "upstream": {"url": node.url, **tables.get("upstream", {})}})

    async def start(self) -> Self:
        """Everything runs when this returns."""
        self.metrics = Metrics()
        self.owner = TaskOwner("test", self.report)
        self.pool = Pool(self.settings.upstream, self.metrics, self.report)
        self.client = UpstreamClient(self.pool, self.metrics, self.settings.upstream.timeout_s)
        self.identity = Identity(self.client, self.settings.prechecks)
        await self.identity.refresh()
        self.tier = Tier(self.settings, self.metrics, self.report) if self.settings.redis.url else None
        accounts = Accounts(self.client)
        self.submitter = Submitter(
            settings=self.settings,
            client=self.client,
            accounts=accounts,
            identity=self.identity,
            owner=self.owner,
            metrics=self.metrics,
            report=self.report,
            clock=time.monotonic,
            tier=self.tier,
        )
        self.intake = Intake(
            settings=self.settings,
            desk=self.submitter,
            accounts=accounts,
            identity=self.identity,
            metrics=self.metrics,
            clock=time.monotonic,
        )
        self.owner.start("overdue", self.submitter.turns.sweep_forever())
        self.router = Router(self.settings, self.intake, self.client, self.owner, self.report)
        if self.tier is not None:
            await self.tier.start()
        return self

    async def stop(self) -> None:
        """As a process ends that has nothing to do any more."""
        await self.owner.close()
        if self.tier is not None:
            await self.tier.drain()
            await self.tier.close()
        await self.pool.close()
        assert self.faults == []

    def report(self, name: str, error: BaseException) -> None:
        """A fault of the relay itself."""
        self.faults.append(f"{name}: {error!r}")

    @property
    def sent(self) -> int:
        """Commands sent to the server."""
        assert self.tier is not None
        return self.tier.store.sent

    async def send(self, raw: str) -> Any:
        """Submit and wait: the response object."""
        routed = self.router.route(submission(raw))
        assert not isinstance(routed, Forward)
        answer = routed if isinstance(routed, Answer) else await routed
        assert answer.body is not None
        return json.loads(answer.body)


class Fleet:
    """``async with Fleet(2) as fleet``. ``server`` None: no Redis. ``lease_ms``: one, or one for each in turn."""

    def __init__(
        self,
        count: int,
        node: NodeSettings = STRICT,
        *,
        server: RedisServer | None,
        lease_ms: int | tuple[int, ...] = 2000,
        **tables: Mapping[str, Any],
    ) -> None:
        self.count = count
        self.node = DevNode(node)
        self.server = server
        self.leases = lease_ms if isinstance(lease_ms, tuple) else (lease_ms,)
        self.tables = tables
        self.relays: list[Relay] = []

    async def __aenter__(self) -> Self:
        await self.node.start()
        for number in range(self.count):
            self.relays.append(await Relay(self.node, self._tables(number)).start())
        return self

    def _tables(self, number: int) -> Mapping[str, Mapping[str, Any]]:
        if self.server is None:
            return self.tables
        lease_ms = self.leases[number % len(self.leases)]
        patient = {"timeout_ms": min(500, lease_ms // 4)}  # a busy machine is no dead server
        redis = {"url": self.server.url, "lease_ms": lease_ms, **patient}
        return {**self.tables, "redis": {**redis, **self.tables.get("redis", {})}}

    async def __aexit__(self, *_: object) -> None:
        self.node.release()
        for relay in self.relays:
            await relay.stop()
        await self.node.close()

    async def burst(self, senders: int, count: int, *, first: int = 0, swap: bool = True, seed: int = 1) -> list[Any]:
        """``count`` nonces of each of ``senders``, neighbours swapped, round robin over the relays; the answers."""
        randomly = random.Random(seed)
        sending = []
        plan = [(nonce, who) for nonce in order(first, count, swap, randomly) for who in range(senders)]
        for number, (nonce, who) in enumerate(plan):
            relay = self.relays[number % len(self.relays)]
            sending.append(asyncio.get_running_loop().create_task(relay.send(signed(nonce, who=who))))
            if number % 8 == 0:
                await asyncio.sleep(0)
        return list(await asyncio.gather(*sending))

    def assert_order(self) -> None:
        """Nothing overtook, and nothing was under way beside another of its sender."""
        assert (self.node.arrivals.inversions, self.node.arrivals.overlaps) == (0, 0)


def order(first: int, count: int, swap: bool, randomly: random.Random) -> list[int]:
    """The nonces as they are sent: each two neighbours in either order."""
    nonces = list(range(first, first + count))
    if swap:
        for at in range(0, count - 1, 2):
            if randomly.random() < 0.5:
                nonces[at], nonces[at + 1] = nonces[at + 1], nonces[at]
    return nonces


def refused(answers: list[Any]) -> list[Any]:
    """The answers that are errors."""
    return [answer["error"] for answer in answers if "error" in answer]


async def left(fleet: Fleet) -> None:
    """Wait until nobody holds or wants a lane."""
    for relay in fleet.relays:
        assert relay.tier is not None
        while relay.tier._tenures:
            relay.tier._forgotten.clear()
            await relay.tier._forgotten.wait()


def over_a_server(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run ``test`` on the loop that relays use, with a server of its own as its first argument."""

    async def served(**fixtures: Any) -> None:
        async with RedisServer() as server:
            await test(server, **fixtures)

    def run(**fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(asyncio.wait_for(served(**fixtures), 60))

    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    signature = inspect.signature(test)
    rest = list(signature.parameters.values())[1:]
    run.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined] # what pytest reads
    return run
