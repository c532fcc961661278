"""A relay without its ways in, in front of a development chain: what most tests of the path need.

`Stand` builds the rooms below the router as `relay.app` does, over real connections to a real `DevNode`.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from eth_account import Account

from relay import config
from relay.devnode import DevNode, NodeSettings
from relay.devnode.keys import FUNDED
from relay.intake import Intake
from relay.recorder import Recorder
from relay.router import Answer, Forward, Router
from relay.submit import Submitter
from relay.tasks import TaskOwner
from relay.telemetry.metrics import Metrics
from relay.upstream.accounts import Accounts
from relay.upstream.client import UpstreamClient
from relay.upstream.identity import Identity
from relay.upstream.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relay.journal.shelf import Shelf

CHAIN_ID = 1337


def signed(nonce: int, *, who: int = 0, value: int = 1, **fields: Any) -> str:
    """A signed transfer of a funded account, as 0x hex. ``fields`` override the transaction's."""
    transaction = {
        "type": 2,
        "chainId": CHAIN_ID,
        "nonce": nonce,
        "to": "0x00000000000000000000000000000000000000AA",
        "value": value,
        "gas": 21_000,
        "maxFeePerGas": 10 * 10**9,
        "maxPriorityFeePerGas": 10**9,
    } | fields
    return "0x" + bytes(Account.sign_transaction(transaction, FUNDED[who].key).raw_transaction).hex()


def call(method: str, *params: Any, id_: Any = 1) -> bytes:
    """A request body."""
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": list(params)}).encode()


def submission(raw: str, id_: Any = 1) -> bytes:
    """A request body that submits ``raw``."""
    return call("eth_sendRawTransaction", raw, id_=id_)


@dataclass
class Stand:
    """``async with Stand(…) as stand``."""

    node: DevNode = field(default_factory=DevNode)
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    shelf: Shelf | None = None

    @classmethod
    def over(cls, node: NodeSettings | None = None, **tables: Mapping[str, Any]) -> Self:
        """A stand over a node with these settings, with these tables of the relay's own."""
        return cls(DevNode(node or NodeSettings()), tables)

    @classmethod
    def recording(cls, shelf: Shelf, node: NodeSettings | None = None, **tables: Mapping[str, Any]) -> Self:
        """The same, with a journal."""
        return cls(DevNode(node or NodeSettings()), tables, shelf=shelf)

    async def __aenter__(self) -> Self:
        await self.node.start()
        upstream = {"url": self.node.url, **self.tables.get("upstream", {})}
        self.settings = config.check({**self.tables, "upstream": upstream})
        self.metrics = Metrics()
        self.owner = TaskOwner("test", self.report)
        self.pool = Pool(self.settings.upstream, self.metrics, self.report)
        self.client = UpstreamClient(self.pool, self.metrics, self.settings.upstream.timeout_s)
        self.identity = Identity(self.client, self.settings.prechecks)
        await self.identity.refresh()
        accounts = Accounts(self.client)
        self.recorder = None
        if self.shelf is not None:
            await self.shelf.start(self.owner)
            self.recorder = Recorder(
                self.shelf,
                node_facts=self.identity,
                metrics=self.metrics,
                report=self.report,
                clock=time.monotonic,
                max_wait_s=self.settings.ordering.max_wait_s,
                dedupe_h=self.settings.journal.dedupe_h,
                node=self.node.url,
                actor="stand",
            )
        self.submitter = Submitter(
            settings=self.settings,
            client=self.client,
            accounts=accounts,
            identity=self.identity,
            owner=self.owner,
            metrics=self.metrics,
            report=self.report,
            clock=time.monotonic,
            recorder=self.recorder,
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
        return self

    async def __aexit__(self, *_: object) -> None:
        self.node.release()
        if self.recorder is not None:
            await self.recorder.close()
        await self.owner.close()
        if self.shelf is not None:
            await self.shelf.close()
        await self.pool.close()
        await self.node.close()
        assert self.faults == []

    def report(self, name: str, error: BaseException) -> None:
        """A fault of the relay itself: no test expects one unless it says so."""
        self.faults.append(f"{name}: {error!r}")

    def route(self, body: bytes) -> asyncio.Future[Answer]:
        """Route a body that is not forwarded; the ticket is taken when this returns."""
        routed = self.router.route(body)
        assert not isinstance(routed, Forward)
        if isinstance(routed, Answer):
            done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            done.set_result(routed)
            return done
        return routed

    async def ask(self, body: bytes) -> Any:
        """The JSON value that ``body`` is answered with."""
        answer = await self.route(body)
        return json.loads(answer.body) if answer.body else None

    async def send(self, raw: str, id_: Any = 1) -> Any:
        """Submit and wait: the response object."""
        return await self.ask(submission(raw, id_))
