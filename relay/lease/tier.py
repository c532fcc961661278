"""The Redis tier: may this lane's turn begin here, and may this write happen now?

Job: one `Tenure` for each lane that wants or holds a lease; the policy while the server is gone; drain.
Rules: the local lane comes first, so that an instance has one waiter in a lane, not one for each submission. A lane
that nobody waits for costs nothing. Gone, the policy holds at once: ``local`` lets every lane go by itself, ``refuse``
refuses what waits; a lease that is still good is used to its deadline either way.
Must not know: transactions, the upstream, what a turn is.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from relay import errors
from relay.lanes import Go, Pass, Rest
from relay.lease import scripts
from relay.lease.keeper import Timing
from relay.lease.listener import Listener
from relay.lease.places import Place
from relay.lease.protocol import Enter, Leave, Renew, lane_name, lane_of, read_push
from relay.lease.store import Store
from relay.lease.tenure import Tenure
from relay.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.config import Settings
    from relay.lanes import Lane, Step
    from relay.lease.protocol import Command
    from relay.lease.store import Result
    from relay.lease.troubles import Spoilt
    from relay.telemetry.metrics import Metrics

_SCRIPTS: Final = {Enter: scripts.ENTER, Renew: scripts.RENEW, Leave: scripts.LEAVE}


def suspend_clock() -> float:
    """Seconds, monotonic; counts the time that the machine was suspended, for leases expire meanwhile."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True)
class Readiness:
    """For /readyz: an instance without Redis still works, and a 503 would take all of them out at once."""

    detail: str
    ready: bool = True


class Tier:
    """Leases for the lanes of one instance."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        report: Callable[[str, BaseException], None],
        clock: Callable[[], float] = suspend_clock,
    ) -> None:
        redis, ordering = settings.redis, settings.ordering
        self.clock = clock
        self.report = report
        self.timing = Timing(
            redis.lease_ms / 1000, ordering.reorder_window_ms / 1000, by_arrival=ordering.order == "arrival"
        )
        self.numbers = itertools.count(1)
        self._count(metrics)
        self._local = redis.on_loss == "local"
        self._instance = secrets.token_hex(8)
        self._prefix = redis.prefix
        self._timeout_s = redis.timeout_ms / 1000
        self._owner = TaskOwner("redis", report)
        place = Place(redis.url, self._timeout_s)
        wake = f"{self._prefix}:wake:"
        self._common = (
            round(self.timing.lease_s * 1000), round(self.timing.poll_s * 1e6), round(self.timing.window_s * 1e6),
            int(place.clustered),
        )  # fmt: skip
        self.store = Store(
            place,
            url=redis.url,
            probe=(f"{self._prefix}:probe:{self._instance}", wake + self._instance),
            timeout_s=self._timeout_s,
            owner=self._owner,
            count=self._count_error,
        )
        self.store.changed = self._changed
        self.store.renewed = self._doubt_all
        self._listener = Listener(
            place,
            wake + self._instance,
            timeout_s=self._timeout_s,
            heard=self._heard,
            again=self._doubt_all,
            count=self._count_error,
        )
        self._wake = wake
        self._tenures: dict[bytes, Tenure] = {}
        self._forgotten = asyncio.Event()
        self._log = structlog.get_logger("relay.redis")
        self.wake: Callable[[Lane[Any]], None] = lambda lane: None
        self.wake_all: Callable[[], None] = lambda: None
        metrics.redis_degraded.read_from(lambda: 0 if self.store.up else 1)
        metrics.leases.read_from(lambda: len(self._tenures))

    def __repr__(self) -> str:
        return f"<tier {self._instance}: {self.store!r}, {len(self._tenures)} lanes>"

    def _count(self, metrics: Metrics) -> None:
        self._errors = metrics.redis_errors
        self.acquired = {way: metrics.lease_acquisitions.cell(way) for way in ("entered", "pushed", "kept")}
        self.lost = metrics.lost_leases.cell()
        self.withheld = metrics.withheld_writes.cell()
        self.handoff = metrics.handoff.cell()

    def _count_error(self, reason: str) -> None:
        self._errors.cell(reason).n += 1

    async def start(self) -> None:
        """Find out whether the server is there, and listen. Never fails, and takes at most a few time-outs."""
        await self.store.start()
        self._owner.start("listener", self._listener.listen_forever())
        if self.store.up:
            try:
                async with asyncio.timeout(2 * self._timeout_s):
                    await self._listener.listening.wait()
            except TimeoutError:
                pass  # it goes on trying; until then grants are found by polling

    async def drain(self) -> None:
        """Leave every lane with nothing in flight, and every place in a queue; the other leases expire."""
        for tenure in list(self._tenures.values()):
            tenure.give_up()
        try:
            async with asyncio.timeout(2 * self._timeout_s):
                while self.store.up and any(
                    not tenure.keeper.turn and not tenure.spoilt for tenure in self._tenures.values()
                ):
                    self._forgotten.clear()
                    await self._forgotten.wait()
        except TimeoutError:
            pass  # the server is slow, and the leases expire by themselves

    async def close(self) -> None:
        """Stop listening and close the connections."""
        for tenure in self._tenures.values():
            tenure.cancel()
        await self._owner.close()
        await self.store.close()

    async def check(self) -> Readiness:
        """For /readyz."""
        means = "each instance orders for itself" if self._local else "submissions are refused"
        if self.store.trouble is not None:
            return Readiness(f"Redis is gone ({self.store.trouble.detail}): {means} ([redis] on_loss)")
        if any(tenure.spoilt for tenure in self._tenures.values()):
            return Readiness(f"another program writes to keys of senders under {self._prefix!r}: {means} for those")
        if self._listener.trouble is not None:
            return Readiness(f"pushes do not arrive: hand-offs wait for a poll ({self._listener.trouble.detail})")
        return Readiness("one order over all instances")

    # What the turns ask.

    def screen(self, lane: Lane[Any], step: Step[Any], now: float) -> Step[Any]:
        """What becomes of the lane's next step, the other instances considered. A turn waits for the lease."""
        tenure = self._tenures.get(lane.key)
        if not self.store.up or (tenure is not None and tenure.spoilt):
            return self._without(lane, step, tenure)
        if tenure is None:
            if isinstance(step, Rest):
                return step
            tenure = self._tenures[lane.key] = Tenure(self, lane)
        tenure.lane = lane
        return tenure.screen(step, now)

    def _without(self, lane: Lane[Any], step: Step[Any], tenure: Tenure | None) -> Step[Any]:
        if self._local:
            return lane.pass_gap() if isinstance(step, Pass) else step
        if not lane.waiting:
            return step
        if isinstance(step, Go) and tenure is not None and tenure.may_begin(step.ticket.nonce):
            return step
        return lane.turn_all_away(errors.ORDERING_UNAVAILABLE.refusal())

    def may_follow(self, lane: Lane[Any], nonce: int) -> bool:
        """May ``nonce`` share the turn that begins, or does a lower one wait at another instance?"""
        tenure = self._tenures.get(lane.key)
        return tenure is None or tenure.may_follow(nonce)

    def begins(self, lane: Lane[Any]) -> None:
        """A turn of ``lane`` begins."""
        if (tenure := self._tenures.get(lane.key)) is not None:
            tenure.keeper.begin_turn()

    def ends(self, lane: Lane[Any]) -> None:
        """It has ended."""
        if (tenure := self._tenures.get(lane.key)) is not None:
            tenure.keeper.end_turn()

    def permit(self, lane: Lane[Any]) -> Permit:
        """For one turn: asked at each write."""
        return Permit(self, lane.key)

    def allows(self, key: bytes) -> int | None:
        """May a write of this lane happen at this very instant? The fence it happens under, 0 without; None: no."""
        tenure = self._tenures.get(key)
        if tenure is not None and (fence := tenure.writes()):
            return fence
        without = not self.store.up or (tenure is not None and tenure.spoilt)
        return 0 if self._local and without else None

    # What the tenures say, and hear.

    def say(self, key: bytes, command: Command) -> asyncio.Future[Result]:
        """Send ``command``."""
        name = lane_name(key)
        lane = f"{self._prefix}:{{{name}}}"
        arguments = (self._wake, name, self._instance, command.registration, *self._common, *command.arguments)
        return self.store.run(_SCRIPTS[type(command)], (f"{lane}:lease", f"{lane}:lane"), arguments)

    def tell_spoilt(self, key: bytes, found: Spoilt) -> None:
        """A lane's keys hold what the relay did not write."""
        self._log.warning("the keys of a sender cannot be used", lane=lane_name(key), detail=found.detail)

    def forget(self, tenure: Tenure) -> None:
        """Nothing of it is left."""
        if self._tenures.get(tenure.key) is tenure:
            del self._tenures[tenure.key]
        self._forgotten.set()

    def _heard(self, text: bytes) -> None:
        if (read := read_push(text)) is None:
            return
        name, push = read
        if (key := lane_of(name)) is None:
            return
        tenure = self._tenures.get(key)
        if tenure is None:
            tenure = self._tenures[key] = Tenure(self, None, key)
        tenure.pushed(push)

    def _doubt_all(self) -> None:
        """The connection is a new one: what was pushed is lost, and perhaps the server is another."""
        for tenure in list(self._tenures.values()):
            tenure.keeper.doubt()
            tenure.advance()

    def _changed(self) -> None:
        for tenure in list(self._tenures.values()):
            if self.store.up:
                tenure.advance()
            else:
                tenure.keeper.suspend()
        self.wake_all()


class Permit:
    """May this turn's bytes leave, now? ``denied``: it said no once. ``fence``: what it last said yes under."""

    __slots__ = ("_key", "_tier", "denied", "fence")

    def __init__(self, tier: Tier, key: bytes) -> None:
        self._tier = tier
        self._key = key
        self.denied = False
        self.fence = 0

    def __call__(self) -> bool:
        """Asked in the same synchronous stretch as the write."""
        fence = self._tier.allows(self._key)
        if fence is None:
            self.denied = True
            self._tier.withheld.n += 1
            return False
        self.fence = fence
        return True
