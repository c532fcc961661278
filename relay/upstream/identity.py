"""Who the node is: its chain id, which client it runs, which gas rules its fork has.

Job: ask at start, then again and again, and turn the answers into the prechecks' policy.
Rules: what cannot be learnt is None, and then nothing is refused because of it. A configured value wins over a learnt
one. A node that answers another chain id than the one configured makes the instance not ready, nothing more.
Must not know: lanes, submissions.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from relay import gas, verdict
from relay.prechecks import Policy
from relay.upstream.client import Unread

if TYPE_CHECKING:
    from relay.config import Prechecks
    from relay.upstream.client import UpstreamClient
    from relay.verdict import Client

READ_TIMEOUT_S: Final = 5.0
SOON_S: Final = 2.0
LATER_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class Readiness:
    """Can the node be used? ``detail`` tells an operator what to do when not."""

    ready: bool
    detail: str


class Identity:
    """What is known of the node. Written by `refresh` only."""

    def __init__(self, client: UpstreamClient, settings: Prechecks) -> None:
        self._client_calls = client
        self._settings = settings
        self._log = structlog.get_logger("relay.upstream")
        self.chain_id: int | None = settings.chain_id if isinstance(settings.chain_id, int) else None
        self.client: Client | None = None
        self._version: str | None = None
        self._learnt: gas.GasSchedule | None = None
        self.readiness = Readiness(ready=False, detail="not asked yet")
        self.policy = self._make_policy()

    def __repr__(self) -> str:
        return f"<node: chain {self.chain_id}, {self._version}>"

    async def refresh(self) -> Readiness:
        """Ask the node who it is."""
        readiness = await self.check()
        if not readiness.ready:
            return readiness
        version = await self._read("web3_clientVersion")
        if isinstance(version, str) and version != self._version:
            self._version = version
            self.client = verdict.client_of(version)
            self._log.info("upstream", chain_id=self.chain_id, version=version)
        if self._settings.gas_rules == "auto":
            config = await self._read("eth_config")
            self._learnt = None if isinstance(config, Unread) else gas.from_eth_config(config)
        self.policy = self._make_policy()
        return readiness

    async def watch_forever(self) -> None:
        """Keep what is known fresh: a node may be replaced, or cross a fork."""
        while True:
            readiness = await self.refresh()
            await asyncio.sleep(LATER_S if readiness.ready else SOON_S)

    async def check(self) -> Readiness:
        """For /readyz, too: is the node there, and on the chain we expect? With "auto" we expect what it says."""
        chain_id = _quantity(await self._read("eth_chainId"))
        if isinstance(chain_id, Unread):
            readiness = Readiness(ready=False, detail=f"the upstream cannot be asked: {chain_id.detail}")
        else:
            self._adopt(chain_id)
            readiness = self._judge(chain_id)
        self._note(readiness)
        return readiness

    def _adopt(self, chain_id: int) -> None:
        if self._settings.chain_id == "auto" and chain_id != self.chain_id:
            if self.chain_id is not None:
                self._log.warning("the upstream is on another chain now", before=self.chain_id, now=chain_id)
            self.chain_id = chain_id
            self.policy = self._make_policy()

    def _note(self, readiness: Readiness) -> None:
        """One line for each change of state, not one for each look."""
        before, self.readiness = self.readiness, readiness
        if readiness.ready and not before.ready:
            self._log.info("upstream ready", detail=readiness.detail)
        elif not readiness.ready and readiness.detail != before.detail:
            self._log.warning("upstream not ready", detail=readiness.detail)

    def _judge(self, chain_id: int) -> Readiness:
        expected = self._settings.chain_id
        if isinstance(expected, int) and chain_id != expected:
            return Readiness(
                ready=False,
                detail=f"the upstream is on chain {chain_id}, [prechecks] chain_id expects {expected}",
            )
        return Readiness(ready=True, detail=f"chain {chain_id}")

    def _make_policy(self) -> Policy:
        chain_id = None if self._settings.chain_id == "off" else self.chain_id
        return Policy(self._settings, chain_id, self._gas())

    def _gas(self) -> gas.GasSchedule | None:
        """The fork's rules; unknown, the loosest of all forks, so that no valid transaction is refused."""
        match self._settings.gas_rules:
            case "off":
                return None
            case "auto":
                return self._learnt or gas.LENIENT
            case fork:
                return gas.FORKS[fork]

    async def _read(self, method: str) -> Any:
        return await self._client_calls.read(method, [], READ_TIMEOUT_S)


def _quantity(value: Any) -> int | Unread:
    if isinstance(value, Unread):
        return value
    try:
        return int(value, 16)
    except (TypeError, ValueError):
        return Unread(f"{value!r:.80} is no quantity")
