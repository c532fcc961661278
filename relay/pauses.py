"""Lanes that an operator has paused begin no turn.

Job: know which lanes are paused, by the journal, and hold their turns back (`relay.turns.Witness`); what an inner
witness says of other lanes stands.
Rules: the journal is read once a second, and at once when somebody knows of a change; what was read last holds while it
cannot be. Until it was read once, every lane is held: a pause outlives a restart, and without a journal nothing is sent
anyway. A turn that runs is not interrupted; what waits is turned away at its limit, as ever.
Must not know: who pauses, and why.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import structlog

from relay.journal.faults import Unavailable, Unusable
from relay.lanes import SLEEP, Go, Pass, lane_key
from relay.lanes.lane import NEVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.journal.shelf import Shelf
    from relay.lanes import Lane, Step, Ticket
    from relay.turns import Witness

EVERY_S: Final = 1.0


class Pauses:
    """The witness of the turns where there is a journal. ``inner`` is the one that would be it otherwise."""

    def __init__(self, shelf: Shelf, inner: Witness[Any] | None = None) -> None:
        self._shelf = shelf
        self._inner = inner
        self._paused: frozenset[bytes] | None = None
        """By lane key; None before the first look."""
        self._held: dict[bytes, Lane[Any]] = {}
        self._news = asyncio.Event()
        self._trouble = ""
        self._wake: Callable[[Lane[Any]], None] = lambda lane: None
        self._log = structlog.get_logger("relay.lanes")

    def __repr__(self) -> str:
        known = "not read yet" if self._paused is None else f"{len(self._paused)} lanes paused"
        return f"<pauses: {known}, {len(self._held)} held>"

    @property
    def wake(self) -> Callable[[Lane[Any]], None]:
        """Lets a lane go on. Set by the turns."""
        return self._wake

    @wake.setter
    def wake(self, wake: Callable[[Lane[Any]], None]) -> None:
        self._wake = wake
        if self._inner is not None:
            self._inner.wake = wake

    @property
    def paused(self) -> int:
        """Lanes, as far as is known."""
        return len(self._paused or ())

    # What the turns ask.

    def gaps_from(self, lane: Lane[Any]) -> float:
        """No gap of ``lane`` counts as older than this."""
        return NEVER if self._inner is None else self._inner.gaps_from(lane)

    def screen(self, lane: Lane[Any], step: Step[Any]) -> Step[Any]:
        """What becomes of the lane's next step."""
        if self._paused != frozenset():
            if isinstance(step, (Go, Pass)) and self._holds(lane.key):
                self._held[lane.key] = lane
                return SLEEP
            self._held.pop(lane.key, None)  # one that is empty must not be woken
        return step if self._inner is None else self._inner.screen(lane, step)

    def may_follow(self, lane: Lane[Any], nonce: int) -> bool:
        """May ``nonce`` share the turn that begins?"""
        return self._inner is None or self._inner.may_follow(lane, nonce)

    def begins(self, lane: Lane[Any], ticket: Ticket[Any]) -> None:
        """A turn begins."""
        if self._inner is not None:
            self._inner.begins(lane, ticket)

    def ends(self, ticket: Ticket[Any]) -> None:
        """It has ended, and its outcome is known."""
        if self._inner is not None:
            self._inner.ends(ticket)

    # What is paused.

    def changed(self) -> None:
        """Somebody paused a lane, or let one go on: look now."""
        self._news.set()

    async def watch_forever(self) -> None:
        """Keep what is known fresh: other processes and instances pause lanes, too."""
        while True:
            self._news.clear()
            await self.look()
            with suppress(TimeoutError):
                async with asyncio.timeout(EVERY_S):
                    await self._news.wait()

    async def look(self) -> None:
        """Read what is paused, and wake the lanes that are not any more."""
        try:
            lanes = await self._shelf.journal.paused()
        except (Unavailable, Unusable) as fault:
            self._note(str(fault))
            return
        self._note("")
        self._paused = frozenset(lane_key(lane.chain_id, lane.sender) for lane in lanes)
        for key in [key for key in self._held if key not in self._paused]:
            self._wake(self._held.pop(key))

    def _holds(self, key: bytes) -> bool:
        return self._paused is None or key in self._paused

    def _note(self, trouble: str) -> None:
        """One line for each change, not one for each look."""
        if trouble and not self._trouble:
            self._log.warning("which lanes are paused cannot be read; those that were go on being so", error=trouble)
        self._trouble = trouble
