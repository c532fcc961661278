"""Many relays, one order: at a strict node, over a real server, whatever happens to that server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from relay.devnode import NodeSettings
from relay.devnode.faults import Reset
from relay.devnode.keys import FUNDED
from relay.telemetry.metrics import Metrics
from relay.upstream.accounts import Accounts
from relay.upstream.client import UpstreamClient
from tests.fleet import Fleet, left, over_a_server, refused
from tests.redis_server import RedisServer
from tests.stand import signed


@pytest.mark.parametrize("count", [2, 4])
@over_a_server
async def test_many_instances_keep_one_order(server: RedisServer, count: int) -> None:
    """Three senders' bursts, neighbours swapped, round robin: nothing refused, nothing overtakes, never two at once.

    Contended, a transaction costs fewer commands than the two that it costs alone; how many fewer varies with load.
    """
    patient = {"reorder_window_ms": 5000}
    async with Fleet(count, server=server, lease_ms=8000, ordering=patient, redis={"timeout_ms": 2000}) as fleet:
        answers = await fleet.burst(3, 100)

        assert refused(answers) == []
        fleet.assert_order()
        assert sum(relay.sent for relay in fleet.relays) < 2 * len(answers)
        assert all(relay.metrics.withheld_writes.cell().n == 0 for relay in fleet.relays)


async def test_without_redis_and_by_arrival_the_same_load_fails() -> None:
    """The control: what the tier is for does happen."""
    async with Fleet(2, server=None, ordering={"order": "arrival"}) as fleet:
        answers = await fleet.burst(3, 100)
        assert len(refused(answers)) > 30
        assert fleet.node.arrivals.overlaps > 0


@over_a_server
async def test_alone_a_transaction_costs_two_commands(server: RedisServer) -> None:
    """One to take the lane, one to leave it; leaving is not waited for."""
    async with Fleet(1, server=server) as fleet:
        relay = fleet.relays[0]
        await relay.send(signed(0))  # brings the scripts to the server
        await left(fleet)
        before = relay.sent
        for nonce in range(1, 21):
            assert "result" in await relay.send(signed(nonce))
        await left(fleet)
        assert relay.sent - before == 40


@over_a_server
async def test_a_burst_keeps_the_lease(server: RedisServer) -> None:
    """At most 0.2 commands a transaction."""
    async with Fleet(1, server=server) as fleet:
        before = fleet.relays[0].sent
        answers = await fleet.burst(1, 100)
        assert refused(answers) == []
        await left(fleet)
        assert fleet.relays[0].sent - before <= 20


@pytest.mark.parametrize("count", [1, 2])
@over_a_server
async def test_redis_killed_in_mid_burst(server: RedisServer, count: int) -> None:
    """With "local" one instance goes on as if nothing had happened; of two everything is at least answered."""
    async with Fleet(count, server=server) as fleet:
        length = 60 if count == 1 else 20
        bursting = asyncio.gather(fleet.burst(3, length))
        await fleet.node.until(lambda: fleet.node.arrivals.total >= 30)
        await server.kill()
        (answers,) = await bursting

        assert len(answers) == 3 * length
        if count == 1:
            assert refused(answers) == []
            fleet.assert_order()
        degraded = [relay.metrics.redis_degraded.collect().samples[0].value for relay in fleet.relays]
        assert degraded == [1] * count
        first = await next_nonces(fleet)

        await server.start()
        await back(fleet)
        fleet.node.arrivals.clear()
        answers = await fleet.burst(1, 40, first=first[0])
        assert refused(answers) == []
        fleet.assert_order()


@over_a_server
async def test_refuse_refuses_at_once_and_heals(server: RedisServer) -> None:
    """Without the server nothing is sent; what meets the failure waits two time-outs, later ones nothing."""
    async with Fleet(2, server=server, redis={"on_loss": "refuse", "timeout_ms": 250}) as fleet:
        assert refused(await fleet.burst(1, 4)) == []
        server.pause()
        loop = asyncio.get_running_loop()
        began = loop.time()
        answers = await asyncio.gather(*(fleet.relays[0].send(signed(nonce)) for nonce in (4, 5, 6)))
        assert [error["code"] for error in refused(answers)] == [-32005] * 3
        assert loop.time() - began < 0.7
        began = loop.time()
        assert refused([await fleet.relays[0].send(signed(4))])[0]["code"] == -32005
        assert loop.time() - began < 0.05
        assert fleet.node.arrivals.total == 4

        server.resume()
        await back(fleet)
        assert refused(await fleet.burst(1, 10, first=4)) == []
        fleet.assert_order()


@over_a_server
async def test_flushed_in_mid_burst(server: RedisServer) -> None:
    """Two may hold a lane until the older one's next command; nothing hangs, and order is whole again afterwards."""
    async with Fleet(2, server=server) as fleet:
        bursting = asyncio.gather(fleet.burst(3, 60))
        await fleet.node.until(lambda: fleet.node.arrivals.total >= 30)
        await server.admin.flushall()
        (answers,) = await bursting
        assert refused(answers) == []

        fleet.node.arrivals.clear()
        assert refused(await fleet.burst(3, 30, first=60)) == []
        fleet.assert_order()


@over_a_server
async def test_scripts_flushed_in_mid_burst(server: RedisServer) -> None:
    """Nobody notices."""
    async with Fleet(2, server=server) as fleet:
        bursting = asyncio.gather(fleet.burst(3, 60))
        for total in (20, 60, 100):
            await fleet.node.until(lambda total=total: fleet.node.arrivals.total >= total)  # type: ignore[misc] # bound
            await server.admin.script_flush()
        (answers,) = await bursting
        assert refused(answers) == []
        fleet.assert_order()


@over_a_server
async def test_memory_full_in_mid_burst(server: RedisServer) -> None:
    """A held lane can be left, and is handed on; whoever finds a free lane and cannot take it goes by the policy."""
    async with Fleet(1, server=server) as fleet:
        bursting = asyncio.gather(fleet.burst(3, 60))
        await fleet.node.until(lambda: fleet.node.arrivals.total >= 30)
        await server.admin.config_set("maxmemory", "1")
        (answers,) = await bursting
        assert refused(answers) == []
        assert refused(await fleet.burst(3, 20, first=60)) == []
        fleet.assert_order()
        await server.admin.config_set("maxmemory", "0")
        await back(fleet)


@over_a_server
async def test_read_only_in_mid_burst(server: RedisServer) -> None:
    """A failover that leaves us with a replica: gone, by the policy, and back when it is a master."""
    async with Fleet(1, server=server) as fleet:
        bursting = asyncio.gather(fleet.burst(3, 60))
        await fleet.node.until(lambda: fleet.node.arrivals.total >= 30)
        await server.admin.replicaof("127.0.0.1", "1")
        (answers,) = await bursting
        assert refused(answers) == []
        assert refused(await fleet.burst(3, 20, first=60)) == []
        fleet.assert_order()
        await server.admin.replicaof("NO", "ONE")
        await back(fleet)
        assert refused(await fleet.burst(3, 20, first=80)) == []


@over_a_server
async def test_a_server_that_stops_for_a_moment_costs_no_order(server: RedisServer) -> None:
    """Within two time-outs it does not count as gone."""
    async with Fleet(2, server=server, redis={"timeout_ms": 400}) as fleet:
        bursting = asyncio.gather(fleet.burst(3, 60))
        await fleet.node.until(lambda: fleet.node.arrivals.total >= 30)
        server.pause()
        asyncio.get_running_loop().call_later(0.5, server.resume)
        (answers,) = await bursting
        assert refused(answers) == []
        fleet.assert_order()


async def test_dead_at_start_it_is_used_when_it_comes() -> None:
    """An instance starts without it, and says so; both instances order together once it is there."""
    server = RedisServer()
    async with Fleet(2, server=server) as fleet:
        tier = fleet.relays[0].tier
        assert tier is not None
        found = await tier.check()
        assert found.ready
        assert "Redis is gone" in found.detail
        assert "result" in await fleet.relays[0].send(signed(0))
        await server.start()
        await back(fleet)
        assert refused(await fleet.burst(1, 20, first=1)) == []
        fleet.assert_order()
    await server.admin.aclose()
    await server.kill()


@over_a_server
async def test_a_dead_holder_costs_a_lane_one_lease(server: RedisServer) -> None:
    """It is gone without a word; its successor waits for the lease to expire, not longer."""
    async with Fleet(2, server=server, lease_ms=1000) as fleet:
        dead, alive = fleet.relays
        assert "result" in await dead.send(signed(0))
        await left(fleet)
        assert dead.tier is not None
        await server.admin.set("relay:{1337:0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266}:lease", "dead 5", px=1000)
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert "result" in await alive.send(signed(1))
        assert 0.8 < loop.time() - began < 1.3


@over_a_server
async def test_a_lease_that_ran_out_lets_nothing_out(server: RedisServer) -> None:
    """The holder was paused past its deadline between its turn's begin and the write: nothing leaves, it rejoins."""
    async with Fleet(1, server=server) as fleet:
        relay = fleet.relays[0]
        assert relay.tier is not None
        late = 0.0
        real = relay.tier.clock
        relay.tier.clock = lambda: real() + late
        permits = relay.tier.permit

        def paused(lane: Any) -> Any:
            nonlocal late
            late += 3.0
            relay.tier.permit = permits  # type: ignore[method-assign, union-attr] # once
            return permits(lane)

        relay.tier.permit = paused  # type: ignore[method-assign] # the hook between the turn's begin and the write
        await server.admin.flushall()
        assert "result" in await relay.send(signed(0))
        assert relay.tier.withheld.n == 1
        assert fleet.node.arrivals.total == 1


@over_a_server
async def test_a_hole_costs_one_window_for_the_whole_queue(server: RedisServer) -> None:
    """Nonce 0 never comes: all that waits above it, on both instances, goes after one window, in nonce order."""
    ordering = {"reorder_window_ms": 300, "on_gap": "refuse"}
    async with Fleet(2, server=server, ordering=ordering) as fleet:
        loop = asyncio.get_running_loop()
        began = loop.time()
        answers = await asyncio.gather(*(fleet.relays[nonce % 2].send(signed(nonce)) for nonce in range(1, 41)))
        assert all("nonce too high" in error["message"] for error in refused(answers))
        assert len(refused(answers)) == 40
        assert loop.time() - began < 2.5


@pytest.mark.parametrize("count", [2, 4])
@over_a_server
async def test_a_hole_is_passed_by_all_instances_in_one_window(server: RedisServer, count: int) -> None:
    """Nonce 0 never comes: whoever waits above it, wherever, goes in nonce order without a window of its own."""
    pool = NodeSettings(mode="pool")
    async with Fleet(count, pool, server=server, ordering={"reorder_window_ms": 300}) as fleet:
        loop = asyncio.get_running_loop()
        began = loop.time()
        answers = await asyncio.gather(*(fleet.relays[nonce % count].send(signed(nonce)) for nonce in range(1, 25)))
        assert refused(answers) == []
        assert loop.time() - began < 3.5
        assert [arrival.nonce for arrival in fleet.node.arrivals] == list(range(1, 25))


@over_a_server
async def test_who_is_above_a_gap_waits_for_those_elsewhere(server: RedisServer) -> None:
    """A = {0–9, 50}, B = {10–49} with a slow node: 50 waits for the forty elsewhere."""
    async with Fleet(2, server=server, ordering={"reorder_window_ms": 250}) as fleet:
        a, b = fleet.relays
        nonces = {a: [*range(10), 50], b: [*range(10, 50)]}
        answers = await asyncio.gather(*(relay.send(signed(one)) for relay in (a, b) for one in nonces[relay]))
        assert refused(answers) == []
        fleet.assert_order()


@over_a_server
async def test_every_push_lost_costs_polls_not_order(server: RedisServer) -> None:
    """Without a listener each hand-off waits for a poll."""
    async with Fleet(2, server=server) as fleet:
        for relay in fleet.relays:
            assert relay.tier is not None
            relay.tier._heard = lambda text: None  # type: ignore[method-assign] # deaf
            relay.tier._listener._heard = lambda text: None
        answers = await fleet.burst(1, 8, swap=False)
        assert refused(answers) == []
        fleet.assert_order()


@over_a_server
async def test_by_arrival_a_lane_goes_round(server: RedisServer) -> None:
    """After sixteen sends or a quarter of a second the holder yields; never two at once."""
    async with Fleet(2, server=server, ordering={"order": "arrival"}) as fleet:
        await fleet.burst(1, 60, swap=False)
        assert fleet.node.arrivals.overlaps == 0
        assert all(relay.metrics.lease_acquisitions.collect() for relay in fleet.relays)


@over_a_server
async def test_prefixes_keep_deployments_apart(server: RedisServer) -> None:
    """Keys and channels of two deployments on one server have nothing in common."""
    async with Fleet(1, server=server, redis={"prefix": "one"}) as one, Fleet(1, server=server) as other:
        assert refused([*await one.burst(1, 3), *await other.burst(1, 3)]) == []
        keys = await server.admin.keys("*")
        assert {str(key).split(":")[0] for key in keys} == {"one", "relay"}
        assert all([await server.admin.pttl(key) > 0 for key in keys])


@over_a_server
async def test_without_the_lease_nothing_is_sent_again(server: RedisServer) -> None:
    """The outcome is unknown and the lane has become another's: the hash is looked up, the bytes stay here (G9)."""
    async with Fleet(1, server=server, lease_ms=150, redis={"timeout_ms": 37, "on_loss": "refuse"}) as fleet:
        relay = fleet.relays[0]
        fleet.node.script.add(Reset(times=1))
        sending = asyncio.gather(relay.send(signed(0)))
        await fleet.node.until(lambda: fleet.node.arrivals.total == 1)
        lease = (await server.admin.keys("*:lease"))[0]
        await server.admin.set(lease, "another 9999999999999999", px=60_000)
        (answer,) = await sending
        assert answer["error"]["code"] == -32040
        assert fleet.node.arrivals.total == 1
        assert relay.metrics.withheld_writes.cell().n > 0
        assert await server.admin.get(lease) == "another 9999999999999999"


@over_a_server
async def test_with_the_lease_the_same_bytes_are_sent_again(server: RedisServer) -> None:
    """The control: it is the lease that kept them back."""
    async with Fleet(1, server=server) as fleet:
        fleet.node.script.add(Reset(times=1))
        assert "result" in await fleet.relays[0].send(signed(0))
        assert fleet.node.arrivals.total == 2


@over_a_server
async def test_what_went_to_the_node_by_another_way_is_found(server: RedisServer) -> None:
    """The shared next nonce lags behind: it is read, not guessed, and the window is not waited for."""
    async with Fleet(2, server=server, ordering={"reorder_window_ms": 20_000}) as fleet:
        assert refused(await fleet.burst(1, 2)) == []
        past = UpstreamClient(fleet.relays[0].pool, Metrics(), 5)
        for nonce in (2, 3):
            await past.call("eth_sendRawTransaction", [signed(nonce)])
        assert refused(await fleet.burst(1, 4, first=4)) == []


@over_a_server
async def test_a_node_that_lost_transactions_gets_them_again(server: RedisServer) -> None:
    """The shared next nonce is too high: the refusal makes it doubtful, and it is read afresh under the lease."""
    async with Fleet(2, server=server, ordering={"reorder_window_ms": 200}) as fleet:
        assert refused(await fleet.burst(1, 4)) == []
        fleet.node.reset()
        assert "nonce" in (await fleet.relays[0].send(signed(4)))["error"]["message"]
        assert refused([await fleet.relays[1].send(signed(nonce)) for nonce in range(3)]) == []
        lane = await server.admin.hgetall("relay:{1337:0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266}:lane")
        assert int(lane["n"]) in (3, 4)


async def back(fleet: Fleet) -> None:
    """Wait until every instance has found the server again, for commands and pushes."""
    for relay in fleet.relays:
        assert relay.tier is not None
        while not relay.tier.store.up:  # noqa: ASYNC110 - whichever of its changes comes first
            await asyncio.sleep(0.02)
        await relay.tier._listener.listening.wait()


async def next_nonces(fleet: Fleet) -> list[int]:
    """What the node says comes next, of each sender that a burst has."""
    accounts = Accounts(fleet.relays[0].client)
    counts = [await accounts.pending_count(FUNDED[who].address) for who in range(3)]
    return [count for count in counts if count is not None]


async def test_without_redis_the_node_tells_what_goes_elsewhere() -> None:
    """By "local" without a server each gap is filled by the other instance in a moment, and found by looking."""
    async with Fleet(2, server=None, redis={"url": "redis://127.0.0.1:1", "lease_ms": 2000}) as fleet:
        loop = asyncio.get_running_loop()
        began = loop.time()
        answers = await asyncio.gather(*(fleet.relays[nonce % 2].send(signed(nonce)) for nonce in range(30)))

        assert refused(answers) == []
        assert loop.time() - began < 6
