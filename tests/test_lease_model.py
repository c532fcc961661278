"""Whatever is lost, late or repeated, whoever is killed or paused: the lease's invariants hold.

`Storm` is a random walk through a `World`; what must hold is asserted there at every step. Hypothesis chooses the
seeds and the weather. Each rule of the protocol that the walk is there for was taken out once, and the walk found it.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import hypothesis.strategies as st
from hypothesis import given, settings

from tests.lease_world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.lease_world import Instance

CALM = {"arrive": 8, "undisturbed": 60, "act": 20, "serve": 40, "hear": 40, "push": 30, "send": 30, "tick": 30}
FAULTS = {
    "wait": 4, "pause": 4, "resume": 4,
    "lose_push": 3, "lose": 4, "lose_executed": 2, "repeat": 3, "late": 6, "crash": 1
}  # fmt: skip
NONCES = 40
LEASES = ((1.0,), (0.2, 2.0), (2.0, 0.2))
"""Instances may be configured differently."""


class Storm:
    """``steps`` random events around one lane."""

    def __init__(self, seed: int, count: int, faults: int) -> None:
        self.random = random.Random(seed)
        self.world = World(count, leases=self.random.choice(LEASES))
        self.paused: set[int] = set()
        self.next_nonce = 0
        weights = CALM | {name: weight * faults for name, weight in FAULTS.items()}
        self.names, self.weights = list(weights), list(weights.values())

    def run(self, steps: int) -> None:
        """The storm, then calm: everybody must come through."""
        for name in self.random.choices(self.names, self.weights, k=steps):
            index = self.random.randrange(len(self.world.instances))
            if index not in self.paused or name in ("serve", "resume", "late", "crash", "tick", "wait", "lose_push"):
                getattr(self, name)(index)
            self.world.assert_owners()
        self.paused.clear()
        self.world.settle(5.0)
        assert not any(each.tickets or each.turn for each in self.world.instances), "a waiter was forgotten"
        assert self.world.server.holder is None, "a lease was forgotten"
        assert all(each.keeper.forgettable for each in self.world.instances), "a keeper never comes to rest"

    def who(self, index: int) -> Instance:
        return self.world.instances[index]

    def arrive(self, index: int) -> None:
        if self.next_nonce < NONCES:
            self.next_nonce += self.random.choice((0, 0, 0, 0, 0, 1))
            self.world.arrive(self.who(index), self.next_nonce)
            self.next_nonce += 1
        self.world.act(self.who(index))

    def act(self, index: int) -> None:
        self.world.act(self.who(index))

    def undisturbed(self, index: int) -> None:
        instance = self.who(index)
        self.world.act(instance)
        self._all(instance.commands, lambda: self.world.serve(instance))
        self._all(instance.answers, lambda: self.world.hear(instance))
        self._all(instance.pushes, lambda: self.world.push(instance))
        self.world.act(instance)

    def _all(self, queue: object, step: Callable[[], None]) -> None:
        while queue:
            step()

    def serve(self, index: int) -> None:
        if self.who(index).commands:
            self.world.serve(self.who(index))

    def hear(self, index: int) -> None:
        if self.who(index).answers:
            self.world.hear(self.who(index))
            self.world.act(self.who(index))

    def push(self, index: int) -> None:
        if self.who(index).pushes:
            self.world.push(self.who(index))
            self.world.act(self.who(index))

    def send(self, index: int) -> None:
        if self.who(index).turn is not None:
            self.world.send(self.who(index))

    def tick(self, _: int) -> None:
        self.world.server.now += self.random.choice((0.0001, 0.001, 0.005, 0.02, 0.1))

    def wait(self, _: int) -> None:
        self.world.server.now += self.random.choice((0.3, 0.5, 0.9, 0.97, 0.99, 1.0, 1.3))

    def pause(self, index: int) -> None:
        self.paused.add(index)

    def resume(self, index: int) -> None:
        self.paused.discard(index)

    def lose_push(self, index: int) -> None:
        if self.who(index).pushes:
            self.who(index).pushes.popleft()

    def lose(self, index: int) -> None:
        self.world.act(self.who(index))
        self.world.lose(self.who(index), executed=False)

    def lose_executed(self, index: int) -> None:
        self.world.lose(self.who(index), executed=True)

    def repeat(self, index: int) -> None:
        if self.who(index).answers:
            self.world.repeat(self.who(index))

    def late(self, index: int) -> None:
        if self.who(index).late:
            self.world.execute_late(self.who(index))

    def crash(self, index: int) -> None:
        self.world.crash(index)
        self.paused.discard(index)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(2, 4), faults=st.integers(0, 3))
def test_the_invariants_hold_through_storms(seed: int, count: int, faults: int) -> None:
    """Owners own, fences rise, nothing is adopted twice, every key expires, nobody is forgotten."""
    Storm(seed, count, faults).run(400)
