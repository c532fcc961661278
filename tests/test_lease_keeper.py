"""One lane's lease, step by step: which grants are taken, which are given back, until when anything may be sent."""

from __future__ import annotations

import pytest

from relay.lease.keeper import State
from relay.lease.protocol import Granted
from tests.lease_world import LEASE, Instance, World


def waiting_behind(world: World) -> tuple[Instance, Instance]:
    """The first holds the lane with nonce 0 under way, the second waits with 1."""
    holder, waiter = world.instances
    world.arrive(holder, 0)
    step(world, holder)
    world.arrive(waiter, 1)
    step(world, waiter)
    assert (holder.keeper.state, waiter.keeper.state) == (State.HOLDING, State.WAITING)
    return holder, waiter


def step(world: World, instance: Instance) -> None:
    """One exchange with the server."""
    world.act(instance)
    while instance.commands:
        world.serve(instance)
    while instance.answers:
        world.hear(instance)
    world.act(instance)


def hand_on(world: World, holder: Instance) -> None:
    """The holder's turn ends, and it leaves."""
    world.send(holder)
    step(world, holder)


def test_a_lane_is_handed_on_by_a_push() -> None:
    """One command takes it, one leaves it; the next holder says nothing before it sends."""
    world = World()
    holder, waiter = waiting_behind(world)
    hand_on(world, holder)
    world.push(waiter)
    world.act(waiter)
    assert waiter.turn is not None
    assert len(waiter.commands) == 0
    world.send(waiter)
    assert [(arrival.instance, arrival.taken) for arrival in world.node] == [(holder.name, True), (waiter.name, True)]


def test_a_run_ends_at_what_waits_lower_elsewhere() -> None:
    """The holder knows that the other has nonce 1: its own 1 may go with its 0, its 2 may not."""
    world = World()
    holder, _ = waiting_behind(world)
    assert holder.keeper.may_follow(2, world.now)
    world.push(holder)

    assert [holder.keeper.may_follow(nonce, world.now) for nonce in (1, 2, 3)] == [True, False, False]


def test_a_waiter_that_was_paused_does_not_take_an_old_grant() -> None:
    """Its deadline counts from the registration, not from the moment that the push is read."""
    world = World()
    holder, waiter = waiting_behind(world)
    hand_on(world, holder)
    world.server.now += world.timing.lease_s  # the waiter is stopped meanwhile
    world.push(waiter)
    assert not waiter.keeper.may_send(world.now)
    world.settle(1.0)
    assert world.node_next == 2


def test_a_grant_for_nobody_is_given_back_at_once() -> None:
    """The ticket was withdrawn while the grant was on its way: the lane is free within one exchange."""
    world = World()
    holder, waiter = waiting_behind(world)
    hand_on(world, holder)
    held = world.server.holder
    assert held is not None
    waiter.tickets.clear()
    world.push(waiter)
    step(world, waiter)
    step(world, waiter)
    assert world.server.holder is None
    assert waiter.keeper.forgettable


def test_a_waiter_that_leaves_frees_a_grant_it_has_not_seen() -> None:
    """Its push is lost: leaving the queue gives back whatever is there in its name."""
    world = World()
    holder, waiter = waiting_behind(world)
    hand_on(world, holder)
    waiter.pushes.clear()
    waiter.tickets.clear()
    step(world, waiter)
    assert world.server.holder is None


def test_a_grant_is_taken_once() -> None:
    """The same message again, after the lane was left, brings nothing."""
    world = World()
    holder, waiter = waiting_behind(world)
    hand_on(world, holder)
    message = waiter.pushes[0]
    world.push(waiter)
    world.act(waiter)
    world.send(waiter)
    step(world, waiter)
    waiter.pushes.append(message)
    world.arrive(waiter, 2)
    world.push(waiter)
    assert not waiter.keeper.may_send(world.now)


def test_the_holder_stops_before_the_server_lets_go() -> None:
    """By its own clock, from before the request left, with a margin."""
    world = World()
    holder = world.instances[0]
    world.arrive(holder, 0)
    world.act(holder)
    world.server.now += 0.2  # the command is on its way
    world.serve(holder)
    world.hear(holder)
    world.server.now += world.timing.lease_s - 0.2 - world.timing.margin_s - 0.001
    assert holder.keeper.may_send(world.now)
    world.server.now += 0.002
    assert not holder.keeper.may_send(world.now)
    assert world.server.holder is not None


def test_a_holder_yields_to_a_lower_nonce_elsewhere_and_to_no_other() -> None:
    """Nonce order over instances: before its next send."""
    world = World()
    holder, other = world.instances
    for nonce in (0, 2, 3):
        world.arrive(holder, nonce)
    step(world, holder)
    world.arrive(other, 1)
    step(world, other)
    world.settle(1.0)
    assert [arrival.nonce for arrival in world.node] == [0, 1, 2, 3]
    assert all(arrival.taken for arrival in world.node)


def test_a_new_connection_makes_a_lease_unproven() -> None:
    """Perhaps it leads to another server: renewed before the next send."""
    world = World()
    holder = world.instances[0]
    world.arrive(holder, 0)
    step(world, holder)
    holder.keeper.doubt()
    assert not holder.keeper.may_send(world.now)
    step(world, holder)
    assert holder.keeper.may_send(world.now)


def test_a_lost_lease_writes_nothing() -> None:
    """Another has the lane: the late holder neither sends nor overwrites what is known since."""
    world = World()
    holder, waiter = waiting_behind(world)
    world.server.now += world.timing.lease_s + 0.01
    step(world, waiter)
    assert waiter.keeper.may_send(world.now)
    step(world, holder)
    assert holder.keeper.state is State.LOST
    world.send(holder)
    assert [arrival.instance for arrival in world.node] == []
    world.settle(2.0)
    assert {arrival.nonce for arrival in world.node if arrival.taken} >= {0}


def test_a_flush_does_not_take_the_fence_back() -> None:
    """A journal that refuses old fences must not refuse the rightful owner."""
    world = World()
    holder, waiter = waiting_behind(world)
    old = holder.keeper.fence
    world.flushed = True
    world.server.flush()
    step(world, holder)
    world.settle(3.0)
    assert all(fence > old for fence in world.fences[1:])
    assert waiter.keeper.forgettable


def test_with_the_memory_full_a_grant_is_not_told_before_it_is_written() -> None:
    """The write fails, and nobody has heard of a lease that is not there."""
    world = World()
    holder, waiter = world.instances
    world.arrive(holder, 0)
    step(world, holder)
    world.arrive(waiter, 0)
    step(world, waiter)
    third = world.new_instance()
    world.instances.append(third)
    world.arrive(third, 1)
    world.act(third)
    del world.server.values[LEASE], world.server.expiries[LEASE]
    world.server.full = True
    with pytest.raises(RuntimeError, match="OOM"):
        world.serve(third)
    assert world.server.published == []


def test_a_grant_that_answers_nothing_of_ours_is_not_taken() -> None:
    """An instance takes only what one of its last two registrations asked for."""
    world = World()
    _, waiter = waiting_behind(world)
    waiter.keeper.pushed(Granted(fence=2**52, next=1, registration=999_999, age_s=0.0), world.now)
    assert not waiter.keeper.may_send(world.now)
