"""Many relays, one order: with settings that differ, rights that are missing, keys of other programs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from relay.devnode import NodeSettings
from relay.devnode.keys import FUNDED
from tests.fleet import Fleet, left, over_a_server, refused
from tests.stand import signed

if TYPE_CHECKING:
    from tests.redis_server import RedisServer

STRICT_AND_SLOW = NodeSettings(delay_ms=(1500.0, 1500.0))


@over_a_server
async def test_instances_with_different_leases_do_not_meet_at_the_node(server: RedisServer) -> None:
    """A lease that one gives to the other lasts as long as the receiver counts on, also while the node takes longer."""
    async with Fleet(2, STRICT_AND_SLOW, server=server, lease_ms=(400, 5000)) as fleet:
        assert refused(await fleet.burst(1, 4, swap=False)) == []
        fleet.assert_order()


@over_a_server
async def test_ready_says_that_pushes_do_not_arrive(server: RedisServer) -> None:
    """A user who may do everything but subscribe: order is kept by polling, and an operator can see why it is slow."""
    await server.say("ACL SETUSER relay on >secret ~* &* +@all -subscribe")
    url = server.url.replace("//", "//relay:secret@")
    async with Fleet(2, server=server, redis={"url": url}) as fleet:
        assert refused(await fleet.burst(1, 4, swap=False)) == []
        fleet.assert_order()
        tier = fleet.relays[0].tier
        assert tier is not None
        found = await tier.check()
        assert found.ready
        assert found.detail.startswith("pushes do not arrive: hand-offs wait for a poll (NoPermissionError: ")


@pytest.mark.parametrize("on_loss", ["local", "refuse"])
@over_a_server
async def test_what_another_wrote_at_a_sender_is_no_trouble_of_the_others(server: RedisServer, on_loss: str) -> None:
    """The policy holds for that sender alone, is named, and ends when the keys can be used again."""
    spoilt, lane = 1, f"relay:{{1337:{FUNDED[1].address.lower()}}}:lane"
    async with Fleet(2, server=server, redis={"on_loss": on_loss}) as fleet:
        await server.admin.set(lane, "x")
        answers = await asyncio.gather(fleet.burst(1, 20), fleet.relays[0].send(signed(0, who=spoilt)))
        assert refused(answers[0]) == []
        fleet.assert_order()
        assert ("result" in answers[1]) == (on_loss == "local")
        tier = fleet.relays[0].tier
        assert tier is not None
        assert tier.store.up
        assert "another program writes to keys of senders" in (await tier.check()).detail

        await server.admin.delete(lane)
        await left(fleet)
        assert (await tier.check()).detail == "one order over all instances"
        first = int(on_loss == "local")
        answers = [await fleet.relays[n % 2].send(signed(first + n, who=spoilt)) for n in range(4)]
        assert refused(answers) == []
        await left(fleet)
        assert await server.admin.hget(lane, "n") == str(first + 4)


@over_a_server
async def test_a_burst_over_a_key_that_is_spoilt_in_its_midst(server: RedisServer) -> None:
    """What is under way is answered, by the policy; afterwards the order over all instances is whole again."""
    lane = f"relay:{{1337:{FUNDED[0].address.lower()}}}:lane"
    async with Fleet(1, server=server) as fleet:
        bursting = asyncio.gather(fleet.burst(1, 60))
        await fleet.node.until(lambda: fleet.node.arrivals.total >= 10)
        await server.admin.set(lane, "x")
        (answers,) = await bursting
        assert refused(answers) == []
        await server.admin.delete(lane)
        await left(fleet)
        assert refused(await fleet.burst(1, 20, first=60)) == []
        fleet.assert_order()
