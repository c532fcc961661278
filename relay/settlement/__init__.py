"""From acceptance to settlement: what was sent is watched until the chain has decided, and sent again if it was lost.

    watch      each new head: receipts of all that is out; a reason for what has none for long
    sweep      every ``[journal] sweep_s`` and soon after the start: everything open, asked of everybody
    gaps       every minute: lanes whose next nonce nobody has
    retention  after each sweep: what ended long ago is deleted

Job: the rhythm of these, which of several instances does it, and what a store or a node that is away means for them.
Rules: a failing store or node delays this work and ends none of it. Each instance watches (a decision that comes second
is refused by its version) and sweeps once at its start; after that one at a time does, by a claim in the journal.
Must not know: lanes, clients, how a turn is taken.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from relay.journal.faults import Unavailable, Unusable
from relay.settlement.asking import Endpoint
from relay.settlement.deciding import Deciding
from relay.settlement.gaps import Gaps
from relay.settlement.landings import Landings
from relay.settlement.looks import Looks
from relay.settlement.rules import Rules
from relay.settlement.standing import Standing
from relay.settlement.sweep import BUDGET_S, End, Sweep
from relay.settlement.watch import Watch
from relay.settlement.witnesses import Witnesses

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relay.config import Settings
    from relay.journal.shelf import Shelf
    from relay.journal.store import Journal
    from relay.settlement.sweep import TakeUp
    from relay.tasks import TaskOwner
    from relay.telemetry.metrics import Metrics
    from relay.upstream.client import UpstreamClient
    from relay.upstream.identity import Identity

T = TypeVar("T")

CLAIM: Final = "sweep"
POLL_S: Final = 1.0
"""Between looks at the head, while something is out."""
IDLE_S: Final = 3.0
"""Between looks at the journal, while nothing is."""
SOON_S: Final = 5.0
"""From the start to the first sweep: what was left then is taken up by the recorder first."""
AGAIN_S: Final = 30.0
"""After a sweep that could not be done."""
GAPS_S: Final = 60.0
CENSUS_S: Final = 15.0
RELEASE_S: Final = 0.3
"""To let go of the sweep at the end; else it is free when its time is over."""
DAY_MS: Final = 86_400_000
PRUNED: Final = 1_000
"""Submissions deleted in one transaction."""
PRUNINGS: Final = 50
"""Such transactions after one sweep."""


class Settlement:
    """For the process that has the lanes. ``actor`` is this instance's name, ``upstream`` the node's in the journal."""

    def __init__(  # noqa: PLR0913 - the composition root hands it every room below
        self,
        shelf: Shelf,
        client: UpstreamClient,
        identity: Identity,
        settings: Settings,
        metrics: Metrics,
        *,
        upstream: str,
        actor: str,
        report: Callable[[str, BaseException], None],
        clock: Callable[[], float],
        take_up: TakeUp,
        holds: Callable[[int], bool],
    ) -> None:
        journal = settings.journal
        self._shelf = shelf
        self._identity = identity
        self._actor = actor
        self._sweep_s = journal.sweep_s
        self._retention_ms = journal.retention_d * DAY_MS
        self._log = structlog.get_logger("relay.settlement")
        self._ends = {end: metrics.sweeps.cell(end) for end in End}
        self._pruned = metrics.pruned.cell()
        self._witnesses = Witnesses(settings.upstream, report, clock)
        self._node = node = Endpoint(upstream, client, clock)
        rules = Rules(journal.max_resends, int(settings.ordering.max_wait_s * 1000))
        deciding = Deciding(metrics, actor)
        landings = Landings(node, deciding, journal.confirmations)
        looks = Looks((node, *self._witnesses.endpoints), identity, journal.confirmations)
        self._standing = Standing(metrics, clock)
        self._watch = Watch(node, landings, deciding, self._standing, rules=rules, clock=clock)
        self._gaps = Gaps(node, identity, metrics, clock)
        self._sweep = Sweep(
            landings, looks, deciding, rules, take_up=take_up, holds=holds, metrics=metrics, report=report, clock=clock
        )
        self._wanted = asyncio.Event()
        self._swept: asyncio.Future[End] | None = None
        self._owned = False
        self._loops: list[asyncio.Task[None]] = []
        self._failing: set[str] = set()

    def __repr__(self) -> str:
        return f"<settlement: {self._watch!r}, {self._sweep!r}>"

    def start(self, background: TaskOwner) -> None:
        """Begin, as soon as the journal is open."""
        self._loops = [
            background.spawn("watch", self._watching()),
            background.spawn("sweep", self._sweeping()),
            background.spawn("gaps", self._repeating("gaps", GAPS_S, self._look_for_gaps)),
            background.spawn("census", self._repeating("census", CENSUS_S, self._standing.refresh)),
        ]

    async def sweep_now(self) -> End:
        """A sweep by this instance, whoever owns them: its end. Its resends may outlast it."""
        if self._swept is None:
            self._swept = asyncio.get_running_loop().create_future()
        self._wanted.set()
        return await asyncio.shield(self._swept)

    async def close(self) -> None:
        """Stop, and let go of what is shared with other instances, and of the witnesses."""
        loops, self._loops = self._loops, []
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        if self._swept is not None:
            self._swept.cancel()
        await self._sweep.close()
        if self._owned:
            with suppress(TimeoutError):
                async with asyncio.timeout(RELEASE_S):
                    await self._guarded("sweep", lambda journal: journal.release(CLAIM, self._actor))
        await self._witnesses.close()

    # The rhythm.

    async def _watching(self) -> None:
        await self._shelf.opened.wait()
        while True:
            out = await self._guarded("watch", self._step)
            await asyncio.sleep(POLL_S if out else IDLE_S)

    async def _sweeping(self) -> None:
        await self._shelf.opened.wait()
        pause, asked = SOON_S, True
        while True:
            asked = await self._pause(pause) or asked
            swept, self._swept = self._swept, None
            self._wanted.clear()
            end = await self._guarded("sweep", partial(self._sweep_once, asked=asked)) or End.FAILED
            self._ends[end].n += 1
            if swept is not None and not swept.done():
                swept.set_result(end)
            pause, asked = min(self._sweep_s, AGAIN_S) if end is End.FAILED else self._sweep_s, False

    async def _repeating(self, name: str, pause_s: float, work: Callable[[Journal], Awaitable[object]]) -> None:
        await self._shelf.opened.wait()
        while True:
            await self._guarded(name, work)
            await asyncio.sleep(pause_s)

    async def _pause(self, seconds: float) -> bool:
        """Until it is time, or a sweep is wanted: was it?"""
        try:
            async with asyncio.timeout(seconds):
                await self._wanted.wait()
        except TimeoutError:
            return False
        return True

    # The work.

    async def _step(self, journal: Journal) -> bool:
        chain_id = await self._chain()
        return chain_id is not None and await self._watch.step(journal, chain_id)

    async def _sweep_once(self, journal: Journal, *, asked: bool) -> End:
        """By the owner, or by whoever was asked."""
        claim = await journal.claim(CLAIM, self._actor, for_ms=int((self._sweep_s + BUDGET_S) * 1000))
        self._owned = claim.mine
        if not claim.mine and not asked:
            return End.LEFT
        await self._standing.refresh(journal)
        chain_id, now_ms = await self._chain(), self._standing.now_ms()
        if chain_id is None or now_ms is None:
            return End.FAILED
        end = await self._sweep.run(journal, chain_id, now_ms)
        if claim.mine:
            await self._prune(journal)
        return end

    async def _look_for_gaps(self, journal: Journal) -> None:
        """One instance tells of them."""
        if not self._owned:
            self._gaps.forget()
        elif (chain_id := await self._chain()) is not None:
            await self._gaps.look(journal, chain_id)

    async def _prune(self, journal: Journal) -> None:
        if not self._retention_ms:
            return
        for _ in range(PRUNINGS):
            deleted = await journal.prune(older_than_ms=self._retention_ms, limit=PRUNED)
            self._pruned.n += deleted
            if deleted < PRUNED:
                return

    async def _chain(self) -> int | None:
        """The chain, if the node was on it at the last look: what another chain says proves nothing.

        With ``[prechecks] chain_id = "off"`` nobody else knows it, so the node is asked.
        """
        if not self._identity.readiness.ready:
            return None
        return await self._node.chain_id() if self._identity.chain_id is None else self._identity.chain_id

    async def _guarded(self, name: str, work: Callable[[Journal], Awaitable[T]]) -> T | None:
        """``work`` on the journal; None if it could not be done. One line when it begins to fail, one when it works."""
        try:
            done = await work(self._shelf.journal)
        except (Unavailable, Unusable) as fault:
            if name not in self._failing:
                self._failing.add(name)
                self._log.warning("the journal cannot be used, this waits", work=name, error=str(fault))
            return None
        if name in self._failing:
            self._failing.discard(name)
            self._log.info("the journal can be used again", work=name)
        return done
