"""The three sides of a relay: the node, the lanes, the clients. One process may have all of them, or some.

Job: wire the rooms of each side together; start it, end it. `relay.app` puts all three into one process,
`relay.workers` spreads them over several.
Rules: nothing is global; each room gets what it needs here. A side knows the sides below it only as what it was given.
Must not know: processes, signals, who decides when it ends.
"""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from relay.ask import Ask
from relay.config import masked
from relay.ingress.http import HttpServer
from relay.ingress.looking import Looker
from relay.ingress.websocket import WebSocketServer
from relay.intake import Intake
from relay.journal.shelf import Shelf
from relay.pauses import Pauses
from relay.recorder import Recorder
from relay.recorder.taking_up import TakingUp
from relay.router import Router
from relay.settlement import Settlement
from relay.submit import Submitter
from relay.tasks import TaskOwner
from relay.upstream.accounts import Accounts
from relay.upstream.client import UpstreamClient
from relay.upstream.identity import Identity
from relay.upstream.pool import Pool
from relay.webhooks import Webhooks, receivers

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.config import Settings
    from relay.intake import Desk
    from relay.lease import Tier
    from relay.submission import Submission
    from relay.telemetry.metrics import Metrics
    from relay.turns import Witness


@dataclass(frozen=True, slots=True)
class House:
    """What all sides of a process share. ``report`` gets the place and the error of each fault of ours.

    ``shelf`` has the journal, where one is configured.
    """

    settings: Settings
    metrics: Metrics
    report: Callable[[str, BaseException], None]
    clock: Callable[[], float]
    shelf: Shelf | None = None


def shelf_of(settings: Settings, metrics: Metrics) -> Shelf | None:
    """Where the journal will be, if there is to be one."""
    if not settings.journal.url:
        return None
    shelf = Shelf(settings.journal.url, receivers=receivers(settings.webhooks))
    metrics.journal_ready.read_from(lambda: int(shelf.ready))
    return shelf


class NodeSide:
    """Connections to the node, and what is known of it."""

    def __init__(self, house: House) -> None:
        upstream = house.settings.upstream
        self.pool = Pool(upstream, house.metrics, house.report, clock=house.clock)
        self.client = UpstreamClient(self.pool, house.metrics, upstream.timeout_s, house.clock)
        self.identity = Identity(self.client, house.settings.prechecks)
        self.accounts = Accounts(self.client)
        house.metrics.upstream_ready.read_from(lambda: int(self.identity.readiness.ready))

    def __repr__(self) -> str:
        return f"<NodeSide {self.pool!r}>"

    def start(self, background: TaskOwner) -> None:
        """Begin to ask the node who it is. It need not be there yet."""
        background.start("identity", self.identity.watch_forever())

    def give_up(self) -> None:
        """End what waits for the node, by an error."""
        self.client.give_up()

    async def close(self) -> None:
        """Cut what is left."""
        await self.pool.close()


class LaneHand:
    """What operators ask of the lanes (`relay.console.hand.Hand`)."""

    def __init__(
        self, pauses: Pauses | None, taking_up: TakingUp | None, settlement: Settlement | None, owner: TaskOwner
    ) -> None:
        self._pauses = pauses
        self._taking_up = taking_up
        self._settlement = settlement
        self._owner = owner

    def resend(self, submission: int) -> None:
        """Take the submission's bytes through its lane's turn again."""
        if self._taking_up is not None:
            self._taking_up.again(submission)

    def sweep(self) -> None:
        """Sweep now."""
        if self._settlement is not None:
            self._owner.start("sweep", self._settlement.sweep_now())

    def lanes_changed(self) -> None:
        """A lane was paused, or goes on."""
        if self._pauses is not None:
            self._pauses.changed()


class LaneSide:
    """The lanes of all senders, and the order between instances if there is one."""

    def __init__(self, house: House, node: NodeSide, witness: Witness[Submission] | None = None) -> None:
        self.tier = _tier(house)
        self.pauses = None if house.shelf is None else Pauses(house.shelf, witness)
        self.owner = TaskOwner("work", house.report)
        self._ends = TaskOwner("lanes end", house.report)
        self._over = asyncio.Event()
        self.recorder = _recorder(house, node)
        self.submitter = Submitter(
            settings=house.settings,
            client=node.client,
            accounts=node.accounts,
            identity=node.identity,
            owner=self.owner,
            metrics=house.metrics,
            report=house.report,
            clock=house.clock,
            tier=self.tier,
            witness=self.pauses or witness,
            recorder=self.recorder,
        )
        self.taking_up = _taking_up(house, self.recorder, self.submitter)
        self.settlement = _settlement(house, node, self.recorder, self.taking_up)
        self.hand = LaneHand(self.pauses, self.taking_up, self.settlement, self._ends)
        self._webhooks = _webhooks(house)
        self._show(house.metrics)

    def __repr__(self) -> str:
        return f"<LaneSide: {self.submitter.book.busy} lanes busy>"

    async def start(self, background: TaskOwner) -> None:
        """Begin to take turns."""
        background.start("overdue", self.submitter.turns.sweep_forever())
        if self.pauses is not None:
            background.start("pauses", self.pauses.watch_forever())
        if self._webhooks is not None:
            self._webhooks.start(background)
        if self.tier is not None:
            await self.tier.start()
        if self.taking_up is not None:
            self._ends.start("orphans", self.taking_up.orphans())
        if self.settlement is not None:
            self.settlement.start(background)

    async def finished(self) -> None:
        """Wait until nothing is in flight, or it was given up. What the lanes hold may outlive its clients (G8)."""
        settled = self._ends.spawn("settled", self._settled())
        over = self._ends.spawn("over", self._over.wait())
        await asyncio.wait({settled, over}, return_when=asyncio.FIRST_COMPLETED)

    async def _settled(self) -> None:
        await self.owner.settled()
        if self.recorder is not None:
            await self.recorder.settled()

    def give_up(self) -> None:
        """Answer whoever still waits, now: refused if nothing was sent, else unknown."""
        self._over.set()
        self.submitter.give_up()
        if self.recorder is not None:
            self._ends.start("recorder", self.recorder.close())

    async def release(self) -> None:
        """Leave what is shared with other instances in order."""
        if self.tier is not None:
            await self.tier.drain()

    async def close(self) -> None:
        """Stop what still runs."""
        await self._ends.close()
        if self.settlement is not None:
            await self.settlement.close()
        if self.taking_up is not None:
            await self.taking_up.close()
        await self.owner.close()
        if self.recorder is not None:  # after the turns: nothing ends any more
            await self.recorder.close()
        if self._webhooks is not None:
            await self._webhooks.close()
        if self.tier is not None:
            await self.tier.close()

    def _show(self, metrics: Metrics) -> None:
        """Gauges are read at the scrape from whoever owns the value."""
        book = self.submitter.book
        metrics.lanes.read_from(lambda: book.idle, "idle")
        metrics.lanes.read_from(lambda: book.busy, "busy")
        metrics.waiting.read_from(lambda: sum(lane.waiting for lane in book.busy_lanes()))
        metrics.running.read_from(lambda: self.submitter.turns.running)
        if (pauses := self.pauses) is not None:
            metrics.lanes_paused.read_from(lambda: pauses.paused)
        gaps = book.rules.gaps
        metrics.gaps.count_from(lambda: gaps.filled, "filled")
        metrics.gaps.count_from(lambda: gaps.forwarded, "forwarded")
        metrics.gaps.count_from(lambda: gaps.refused, "refused")


class ClientSide:
    """Both ways in. Tickets are taken at ``desk``."""

    def __init__(self, house: House, node: NodeSide, desk: Desk) -> None:
        settings, metrics, report, clock = house.settings, house.metrics, house.report, house.clock
        self.answers = TaskOwner("answers", report)
        self._sessions = TaskOwner("websocket", report)
        self._intake = Intake(
            settings=settings, desk=desk, accounts=node.accounts, identity=node.identity, metrics=metrics, clock=clock
        )
        self._feeds = TaskOwner("ask", report)
        ask = None if house.shelf is None else Ask(house.shelf, node.identity, node.accounts, self._feeds, clock)
        router = Router(settings, self._intake, node.client, self.answers, report, ask=ask)
        self._sockets = WebSocketServer(
            settings, router, node.pool, metrics, self._sessions, report=report, asks=ask is not None, clock=clock
        )
        self._http = HttpServer(
            settings, router, node.pool, metrics, report=report, upgrade=self._sockets.upgrade,
            look=None if ask is None else Looker(ask.look, self.answers), clock=clock,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<ClientSide {self._http!r} {self._sockets!r}>"

    async def start(self, *places: socket.socket | tuple[str, int]) -> tuple[str, int]:
        """Listen at each of ``places``. Returns (host, port) of the first. Raises OSError."""
        bound = [await self._http.start(place) for place in places]
        return bound[0]

    def stop_accepting(self) -> None:
        """No further client; those that are here go on."""
        self._http.stop_accepting()

    async def retire(self, until: float) -> None:
        """Refuse nothing, but let each client go with its next answer; at most until ``until``, of the clock."""
        await asyncio.gather(self._http.retire(until), self._sockets.retire(until))

    async def drain(self, until: float) -> None:
        """Answer what is in work, refuse what comes, close; cut what is left at ``until``, of the clock (G12)."""
        await asyncio.gather(self._http.drain(until), self._sockets.drain(until))
        await self.answers.settled()

    def give_up(self) -> None:
        """Answer what waits for a receipt or for the node; submissions are answered by whoever holds them."""
        self._intake.give_up()
        self._http.give_up()
        self._sockets.give_up()

    async def close(self) -> None:
        """Stop what still runs."""
        await self.answers.close()
        await self._sessions.close()
        await self._feeds.close()


def _webhooks(house: House) -> Webhooks | None:
    """Whoever has the lanes tells what becomes of submissions, if anybody is to be told."""
    if house.shelf is None or not house.settings.webhooks.urls:
        return None
    return Webhooks(house.shelf, house.settings, house.metrics, house.report, house.clock)


def _tier(house: House) -> Tier | None:
    """The order between instances, if there is to be one: without it the client library is not even loaded."""
    if not house.settings.redis.url:
        return None
    from relay.lease import Tier  # noqa: PLC0415 - as above

    return Tier(house.settings, house.metrics, house.report)


def _recorder(house: House, node: NodeSide) -> Recorder | None:
    if house.shelf is None:
        return None
    settings = house.settings
    return Recorder(
        house.shelf,
        node_facts=node.identity,
        metrics=house.metrics,
        report=house.report,
        clock=house.clock,
        max_wait_s=settings.ordering.max_wait_s,
        dedupe_h=settings.journal.dedupe_h,
        node=masked(settings.upstream.url),
        actor=_name(settings.server.listen),
    )


def _name(listen: str) -> str:
    """Of no other living process: no two listen at one place of a host. Where the system chose it, it is the pid's."""
    place = f"pid {os.getpid()}" if listen.endswith(":0") else listen
    return f"{socket.gethostname()}/{place}"


def _taking_up(house: House, recorder: Recorder | None, submitter: Submitter) -> TakingUp | None:
    if house.shelf is None or recorder is None:
        return None
    return TakingUp(
        house.shelf,
        recorder,
        take=submitter.take,
        find=submitter.find,
        max_wait_s=house.settings.ordering.max_wait_s,
        report=house.report,
        clock=house.clock,
    )


def _settlement(
    house: House, node: NodeSide, recorder: Recorder | None, taking_up: TakingUp | None
) -> Settlement | None:
    if house.shelf is None or recorder is None or taking_up is None:
        return None
    return Settlement(
        house.shelf,
        node.client,
        node.identity,
        house.settings,
        house.metrics,
        upstream=node.pool.endpoint.name,
        actor=recorder.actor,
        report=house.report,
        clock=house.clock,
        take_up=taking_up.take_up,
        holds=recorder.holds,
    )
