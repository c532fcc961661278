"""One lane's lease, carried out: what the keeper says goes to the server, what the server says goes to the lane.

Job: between a `Lane`, its `Keeper` and the `Tier`: what the lane needs, commands and their answers, the one timer.
Rules: no task for a command and none for a wait; a tenure that wants and holds nothing is forgotten.
Must not know: turns, Redis.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import TYPE_CHECKING, Any

from relay.lanes import ASK, SLEEP, Go, Pass, Rest
from relay.lease.keeper import NEVER, Keeper, Need, State
from relay.lease.protocol import UNKNOWN, Enter, Garbled, Held, read_answer
from relay.lease.troubles import Down, Spoilt

if TYPE_CHECKING:
    from relay.lanes import Lane, Step
    from relay.lease.protocol import Command, Push
    from relay.lease.store import Result
    from relay.lease.tier import Tier


class Tenure:
    """See the module. ``lane`` is None for what is pushed about a lane that nobody here knows any more.

    ``spoilt``: what stands at the lane's keys is not the relay's; the policy holds for this lane until it is.
    """

    __slots__ = ("_due", "_handed", "_over", "_tier", "_timer", "keeper", "key", "lane", "spoilt")

    def __init__(self, tier: Tier, lane: Lane[Any] | None, key: bytes = b"") -> None:
        self._tier = tier
        self.lane = lane
        self.key = lane.key if lane is not None else key
        self.keeper = Keeper(tier.timing, tier.numbers, random.random, lane.fence if lane is not None else 0)
        self._timer: asyncio.TimerHandle | None = None
        self._due = NEVER
        self._handed: float | None = None
        self._over = False
        self.spoilt = False

    def screen(self, step: Step[Any], now: float) -> Step[Any]:
        """See `Tier.screen`."""
        assert self.lane is not None
        if self._teach(now):
            step = self.lane.decide(now)
        self._require(step)
        holding = self.keeper.state is State.HOLDING
        self.advance()
        match step:
            case Rest() if holding and self.lane.in_doubt:
                return ASK  # what the lane leaves behind must be right: ask before it leaves
            case Go(ticket) if not self.may_begin(ticket.nonce):
                return SLEEP
            case Pass(ticket) if self.may_begin(ticket.nonce):
                return self.lane.pass_gap()
        return step

    def may_begin(self, nonce: int) -> bool:
        """May a turn begin?"""
        return self.keeper.may_begin(nonce, self._tier.clock())

    def may_follow(self, nonce: int) -> bool:
        """May ``nonce`` share a turn that begins below it?"""
        return self.keeper.may_follow(nonce, self._tier.clock())

    def writes(self) -> int:
        """The fence under which a write may happen now; 0: it may not."""
        if not self.keeper.may_send(now := self._tier.clock()):
            return 0
        if self._handed is not None:
            self._tier.handoff.observe(now - self._handed)
            self._handed = None
        return self.keeper.fence

    def advance(self) -> None:
        """Say what is to be said, and see to the timer."""
        if not self._tier.store.up or self.spoilt:
            return
        command = self.keeper.command(self._tier.clock())
        if command is not None:
            self._tier.say(self.key, command).add_done_callback(partial(self._answered, command))
        elif self.keeper.forgettable:
            self.cancel()
            self._tier.forget(self)
        else:
            self._set_timer()

    def pushed(self, push: Push) -> None:
        """The server has pushed something about this lane."""
        with_lease = self.keeper.fence
        self.keeper.pushed(push, self._tier.clock())
        if self.keeper.fence != with_lease:
            self._tier.acquired["pushed"].n += 1
            self._handed = self._tier.clock()
        self._changed()

    def give_up(self) -> None:
        """The instance goes: leave, unless something is in flight."""
        self._over = True
        if not self.keeper.turn:
            self.keeper.require(None, self.keeper.known)
            self.advance()

    def cancel(self) -> None:
        """No timer any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _answered(self, command: Command, said: asyncio.Future[Result]) -> None:
        result = said.result()
        if isinstance(result, Spoilt):
            self._spoil(result)
            return
        self.spoilt = False
        if isinstance(result, Down):
            return  # the tier hears of that from the store, and so does the keeper
        try:
            answer = read_answer(result)
        except Garbled as fault:
            self._tier.report("redis", fault)
            answer = Held(round(self._tier.timing.poll_s * 1000), UNKNOWN)
        was, fence = self.keeper.state, self.keeper.fence
        self.keeper.answered(command, answer, self._tier.clock())
        if self.keeper.fence != fence:
            self._tier.acquired["entered" if isinstance(command, Enter) else "kept"].n += 1
            self._handed = None
        elif was is State.HOLDING and self.keeper.state is State.LOST:
            self._tier.lost.n += 1
        self._changed()

    def _spoil(self, found: Spoilt) -> None:
        """The policy holds, and after a poll it is seen whether the keys can be used again."""
        if not self.spoilt:
            self._tier.tell_spoilt(self.key, found)
        self.spoilt = True
        self.keeper.suspend()
        self.cancel()
        self._due = self._tier.clock() + self._tier.timing.poll_s
        self._timer = asyncio.get_running_loop().call_later(self._tier.timing.poll_s, self._look_again)
        self._changed()

    def _look_again(self) -> None:
        """By whatever the keeper has to say: a lease held is proven, a place is given up."""
        self._timer = None
        used = self.keeper.turn or (self.lane is not None and self.lane.head is not None)
        if not used and self.keeper.state is not State.HOLDING:
            self._tier.forget(self)  # the next submission finds out anew
            return
        self.spoilt = False
        command = self.keeper.command(self._tier.clock())
        if command is not None:
            self.spoilt = True
            self._tier.say(self.key, command).add_done_callback(partial(self._answered, command))
        else:
            self._changed()

    def _changed(self) -> None:
        """The lane looks again; without tickets the keeper goes on by itself."""
        if self.lane is not None:
            self.lane.fence = max(self.lane.fence, self.keeper.fence)
            if self.lane.runner is not None:
                self._tier.wake(self.lane)
        self.advance()

    def _require(self, step: Step[Any]) -> None:
        lane, keeper = self.lane, self.keeper
        assert lane is not None
        known = UNKNOWN if lane.next is None else lane.next
        head = lane.head
        if self._over:
            need = None
        elif lane.in_doubt and keeper.state is State.HOLDING:
            need = Need(head or 0, unsure=True)
        elif head is None:
            need = None
        else:
            above = isinstance(step, Go) and known != UNKNOWN and head > known
            need = Need(head, gap=above or isinstance(step, Pass))
        keeper.require(need, known)

    def _teach(self, now: float) -> bool:
        """What the server told of ``next`` goes to the lane, unless that is just finding out by itself."""
        lane, heard = self.lane, self.keeper.heard
        if heard == UNKNOWN or lane is None or lane.in_doubt:
            return False
        self.keeper.heard = UNKNOWN
        return lane.learn(heard, now)

    def _set_timer(self) -> None:
        due = self.keeper.due
        if due == NEVER:
            return  # one that is set already only looks, and finds nothing
        if self._timer is None or self._due > due:
            self.cancel()
            self._due = due
            self._timer = asyncio.get_running_loop().call_later(max(0.0, due - self._tier.clock()), self._fire)

    def _fire(self) -> None:
        self._timer = None
        self.advance()
