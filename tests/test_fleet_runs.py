"""Runs between instances (`submit = "batch"`): under a lease, never past it, and past nobody."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from relay.devnode.faults import Delay, Hang
from relay.lease.keeper import Keeper
from tests.fleet import Fleet, over_a_server, refused
from tests.stand import signed

if TYPE_CHECKING:
    import pytest

    from tests.redis_server import RedisServer


@over_a_server
async def test_many_instances_keep_one_order(server: RedisServer) -> None:
    """Three senders' bursts, eight nonces here, eight there: what is together goes together, past nobody."""
    patient, batch = {"reorder_window_ms": 5000}, {"submit": "batch"}
    slow = {"timeout_ms": 2000}
    async with Fleet(2, server=server, lease_ms=8000, ordering=patient, upstream=batch, redis=slow) as fleet:
        blocks = [(fleet.relays[nonce // 8 % 2], nonce ^ 1) for nonce in range(96)]
        sending = [relay.send(signed(nonce, who=who)) for relay, nonce in blocks for who in range(3)]
        answers = list(await asyncio.gather(*sending))

        assert refused(answers) == []
        fleet.assert_order()
        assert all(relay.metrics.withheld_writes.cell().n == 0 for relay in fleet.relays)
        assert sum(relay.metrics.run_submissions.cell().n for relay in fleet.relays) > 144


@over_a_server
async def test_a_lease_is_renewed_while_a_run_is_at_the_node(server: RedisServer) -> None:
    """A node that takes twice a lease for a batch: nobody else gets in, and the lease is this instance's to the end."""
    async with Fleet(2, server=server, lease_ms=400, upstream={"submit": "batch"}) as fleet:
        first, second = fleet.relays
        await first.send(signed(0))
        fleet.node.script.add(Delay(method="dev_batch", ms=800))
        run = asyncio.gather(*(first.send(signed(nonce)) for nonce in (1, 2, 3)))
        await fleet.node.until(lambda: fleet.node.script.hits() == [1])
        late = await second.send(signed(4))

        assert refused([*(await run), late]) == []
        assert first.metrics.lost_leases.cell().n == 0
        fleet.assert_order()


@over_a_server
async def test_a_run_lets_a_lower_nonce_of_another_instance_in(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is known to wait lower elsewhere goes before what stands above it here: the run ends there."""
    told, want = asyncio.Event(), Keeper._want

    def note(keeper: Keeper, head: int, now: float) -> None:
        want(keeper, head, now)
        told.set()

    async with Fleet(2, server=server, lease_ms=8000, upstream={"submit": "batch"}) as fleet:
        first, second = fleet.relays
        fleet.node.script.add(Hang(nonce=0, times=1))
        head = asyncio.gather(first.send(signed(0)))
        await fleet.node.until(lambda: fleet.node.hanging == 1)
        monkeypatch.setattr(Keeper, "_want", note)
        here = asyncio.gather(*(first.send(signed(nonce)) for nonce in (1, 2, 3)))
        there = asyncio.gather(second.send(signed(1, value=2)))
        await told.wait()
        fleet.node.release()
        answers = [*(await head), *(await here), *(await there)]

        assert [arrival.nonce for arrival in fleet.node.arrivals] == [0, 1, 1, 2, 3]
        assert [error["message"] for error in refused(answers)] == ["nonce too low: next nonce 2, tx nonce 1"]


@over_a_server
async def test_a_run_whose_lease_ends_before_the_write_is_not_sent(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check stands at the write (G9): all of it goes back to the lane, and goes together when it may."""
    async with Fleet(1, server=server, upstream={"submit": "batch"}) as fleet:
        (relay,) = fleet.relays
        assert relay.tier is not None
        real, asked = relay.tier.allows, [0]

        def lost_once(key: bytes) -> int | None:
            asked[0] += 1
            return None if asked[0] == 1 else real(key)

        monkeypatch.setattr(relay.tier, "allows", lost_once)
        answers = await fleet.burst(1, 5)

        assert refused(answers) == []
        assert relay.metrics.withheld_writes.cell().n == 1
        assert relay.metrics.run_submissions.cell().n == 5
        assert fleet.node.arrivals.total == 5
        fleet.assert_order()
