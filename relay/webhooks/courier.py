"""Brings one receiver what is due.

Job: take notices from the outbox as there are hands free, post them side by side, and mark how it went.
Rules
- At least once: what was posted and not marked (a crash, a store in trouble) is due again when its hold ends.
- At most `SLOTS` posts at a time, in no order.
- A receiver that failed as often in a row as there are slots is tried with one notice at a time, and a rest between,
  until it answers again; one that says ``Retry-After`` is left alone for so long. Others do not notice.
- Trouble with the store is waited out.
Must not know: other receivers, HTTP, what lanes do.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from relay.journal.faults import Unavailable, Unusable
from relay.journal.records import Delivery
from relay.webhooks import payload
from relay.webhooks.backoff import LONGEST_S, delay_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.journal.records import Notice
    from relay.journal.shelf import Shelf
    from relay.tasks import TaskOwner
    from relay.telemetry.metrics import Counter
    from relay.webhooks.receiver import Answer, Receiver

SLOTS: Final = 16


class Pace(NamedTuple):
    """Seconds: of a post; between two looks into an empty outbox; a notice's hold, which covers a post and its mark;
    the rest of a receiver that is down, and of a store."""

    post_s: float = 10.0
    poll_s: float = 0.5
    hold_s: float = 30.0
    rest_s: float = 15.0


class Courier:
    """See the module. ``posts`` owns what is on the wire."""

    def __init__(
        self,
        receiver: Receiver,
        shelf: Shelf,
        posts: TaskOwner,
        counts: Counter,
        *,
        pace: Pace,
        clock: Callable[[], float],
    ) -> None:
        self._receiver = receiver
        self._shelf = shelf
        self._posts = posts
        self._counts = {end: counts.cell(end) for end in ("delivered", "failed", "dead")}
        self._pace = pace
        self._clock = clock
        self._flying = 0
        self._failures = 0
        self._rests_until = clock()
        self._stopped = False
        self._stirred = asyncio.Event()
        self._log = structlog.get_logger("relay.webhooks")

    def __repr__(self) -> str:
        return f"<courier to {self._receiver!r}: {self._flying} on the wire>"

    async def run(self) -> None:
        """Until `stop`."""
        await self._shelf.opened.wait()
        while not self._stopped:
            pause = await self._round()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stirred.wait()
            self._stirred.clear()

    def stop(self) -> None:
        """Take nothing more; what is on the wire ends by itself."""
        self._stopped = True
        self._stirred.set()

    async def _round(self) -> float | None:
        """Take what there are hands for. How long to wait for more, None: until a hand is free."""
        if (rest := self._rests_until - self._clock()) > 0:
            return rest
        if (free := self._free()) == 0:
            return None
        try:
            notices = await self._take(free)
        except (Unavailable, Unusable) as fault:
            self._log.warning("webhooks wait for the journal", error=str(fault))
            return self._pace.rest_s
        for notice in [] if self._stopped else notices:
            self._flying += 1
            self._posts.start("post", self._deliver(notice))
        return self._pace.poll_s if len(notices) < free else None

    def _free(self) -> int:
        if self._failures < SLOTS:
            return SLOTS - self._flying
        return 0 if self._flying else 1

    async def _take(self, limit: int) -> list[Notice]:
        held_ms = int(self._pace.hold_s * 1000)
        return await self._shelf.journal.take_notices(self._receiver.name, limit, hold_ms=held_ms)

    async def _deliver(self, notice: Notice) -> None:
        """Whatever goes wrong here, the notice is due again when its hold ends."""
        try:
            answer = await self._receiver.post(payload.event_id(notice.event), await self._body(notice))
            self._learn(notice, answer)
            await self._mark(notice, answer)
        except (Unavailable, Unusable) as fault:
            self._log.warning("a delivery cannot be noted, and is made again", error=str(fault))
        finally:
            self._flying -= 1
            self._stirred.set()

    async def _body(self, notice: Notice) -> bytes:
        if notice.event.state not in payload.ON_CHAIN:
            return payload.body(notice)
        return payload.body(notice, await self._shelf.journal.receipts(notice.event.submission))

    def _learn(self, notice: Notice, answer: Answer) -> None:
        """How is the receiver?"""
        end = {Delivery.DELIVERED: "delivered", Delivery.DEAD: "dead", Delivery.WAITING: "failed"}[answer.delivery]
        self._counts[end].n += 1
        if answer.delivery is not Delivery.WAITING:
            if self._failures:
                self._log.info("a webhook's receiver answers again", receiver=self._receiver.shown)
            self._failures = 0
        else:
            self._failures += 1
            self._rest(answer.retry_after_s)
            if self._failures == 1:
                self._tell("a webhook's receiver fails", notice, answer)
        if answer.delivery is Delivery.DEAD:
            self._tell("a webhook is not delivered", notice, answer)

    def _rest(self, asked_s: float) -> None:
        rest_s = min(asked_s, LONGEST_S)
        if self._failures >= SLOTS:
            rest_s = max(rest_s, self._pace.rest_s)
        self._rests_until = max(self._rests_until, self._clock() + rest_s)

    def _tell(self, event: str, notice: Notice, answer: Answer) -> None:
        self._log.warning(
            event,
            receiver=self._receiver.shown,
            error=answer.error,
            id=payload.event_id(notice.event),
            hash="0x" + notice.record.hash.hex(),
        )

    async def _mark(self, notice: Notice, answer: Answer) -> None:
        due_s = 0.0
        if answer.delivery is Delivery.WAITING:
            chance = random.random()  # noqa: S311 - spreads tries, guards nothing
            due_s = max(delay_s(notice.tries, chance), answer.retry_after_s)
        await self._shelf.journal.mark_notice(
            notice.event.id, self._receiver.name, answer.delivery, due_in_ms=int(due_s * 1000), error=answer.error
        )
