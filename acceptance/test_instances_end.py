"""Instances that are killed, stopped or told to end in mid-burst, and clients that send again elsewhere."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from acceptance.rig.crowd import Crowd, mingled, swapped
from acceptance.rig.fences import logged_fences
from acceptance.rig.signing import funded, key_of, sign

if TYPE_CHECKING:
    from acceptance.conftest import Measured
    from acceptance.rig.chain import Chain
    from acceptance.rig.parts import Part, Rig
    from acceptance.rig.signing import Transfer

SENDERS, COUNT = 5, 32
CHECKS_MS = (0, 10)
SLOW_MS = 150
LEASE_MS = 1500
LEASE_S = LEASE_MS / 1000
DISTURB_AFTER = 40
DRAINING = -32012

pytestmark = pytest.mark.timeout(180)


def disorder(chain: Chain) -> list[Transfer]:
    """A hundred and sixty transactions of five senders side by side, neighbours swapped."""
    keys = map(key_of, funded(SENDERS))
    return mingled([swapped([sign(key, nonce, chain.chain_id) for nonce in range(COUNT)]) for key in keys])


async def two_instances(rig: Rig, **settings: object) -> tuple[Chain, list[Part]]:
    """A strict chain, a Redis, two relays."""
    chain, server = await rig.chain(delay_ms=CHECKS_MS), await rig.redis()
    return chain, await rig.instances(2, chain.url, server.url, redis__lease_ms=LEASE_MS, **settings)


async def assert_landed_once(chain: Chain) -> dict[str, Any]:
    """All are on the chain, none was taken twice; the node's report."""
    assert [await chain.count(account.address) for account in funded(SENDERS)] == [COUNT] * SENDERS
    taken = Counter(arrival["hash"] for arrival in await chain.arrivals() if arrival["taken"])
    assert len(taken) == SENDERS * COUNT
    assert set(taken.values()) == {1}
    return await chain.report()


async def test_a_killed_instance_costs_one_lease(rig: Rig, measured: Measured) -> None:
    """SIGKILL of one of two: all land, none twice, and at the survivor nobody waits longer than the lease and 1 s."""
    chain, (doomed, survivor) = await two_instances(rig)
    crowd = rig.crowd()
    async with crowd.insisting(disorder(chain), [doomed.url, survivor.url]):
        await crowd.answered(DISTURB_AFTER)
        doomed.process.signal(signal.SIGKILL)
    seen = await assert_landed_once(chain)
    longest = crowd.longest_s(survivor.url)
    measured(f"longest at the survivor {longest:.2f} s, {len(crowd.refused)} posts had to be repeated, {seen}")
    assert seen["overlaps"] == 0
    assert longest <= LEASE_S + 1


async def test_a_stopped_instance_does_no_harm_when_it_wakes(rig: Rig, measured: Measured) -> None:
    """SIGSTOP of one of two for four leases, then SIGCONT: never two of a sender at the node, and all land once."""
    chain, (stopped, other) = await two_instances(rig)
    crowd = rig.crowd()
    async with crowd.insisting(disorder(chain), [stopped.url, other.url]):
        await crowd.answered(DISTURB_AFTER)
        stopped.process.signal(signal.SIGSTOP)
        await asyncio.sleep(4 * LEASE_S)
        stopped.process.signal(signal.SIGCONT)
    seen = await assert_landed_once(chain)
    measured(f"longest answer {crowd.longest_s():.2f} s, {len(crowd.refused)} posts had to be repeated, {seen}")
    assert seen["overlaps"] == 0


async def test_a_holder_that_wakes_beside_a_new_one(rig: Rig, measured: Measured) -> None:
    """SIGSTOP of the holder for four leases. When it wakes, another instance is in the middle of the same queue: it
    sends nothing beside that one, later only under a newer fence, and its clients hear of success."""
    chain, (stopped, other) = await two_instances(rig)
    await chain.reset(delay_ms=(SLOW_MS, SLOW_MS))
    (account,) = funded(1)
    transfers = [sign(key_of(account), nonce, chain.chain_id) for nonce in range(50)]
    held, again = rig.crowd(), rig.crowd()
    async with held.insisting(transfers, [stopped.url]):
        await held.answered(10)
        stopped.process.signal(signal.SIGSTOP)
        async with again.insisting(transfers[10:], [other.url]):
            await asyncio.sleep(4 * LEASE_S)
            assert 0 < len(again.posts) < 40
            stopped.process.signal(signal.SIGCONT)
        before = (await chain.report())["submissions"]
    seen = await chain.report()
    measured(f"{len(again.posts)} by the other; woken, {seen['submissions'] - before} sent again; {seen}")
    assert held.refused == again.refused == []
    assert seen["overlaps"] == 0
    assert await chain.count(account.address) == 50
    others = [sent.fence for sent in (await logged_fences(again, [other])).values()]
    late = [post for post in held.posts if post.transfer.nonce > 10]
    woken = await logged_fences(Crowd(held.session, late), [stopped])
    assert all(sent.fence == 0 or sent.fence > min(others) for sent in woken.values())


async def test_a_drained_instance_hands_its_lanes_on(rig: Rig, measured: Measured) -> None:
    """SIGTERM of one of two: it finishes what it has, no lease has to expire, and no client hears of it."""
    chain, (ending, other) = await two_instances(rig, server__drain_s=10)
    crowd = rig.crowd()
    async with crowd.insisting(disorder(chain), [ending.url, other.url]):
        await crowd.answered(DISTURB_AFTER)
        ending.process.signal(signal.SIGTERM)
    assert await ending.process.ended() == 0
    seen = await assert_landed_once(chain)
    measured(f"longest answer {crowd.longest_s():.2f} s, {seen}")
    assert crowd.refused == []
    assert (seen["inversions"], seen["overlaps"]) == (0, 0)
    assert crowd.longest_s() < LEASE_S


async def test_an_instance_that_may_not_finish(rig: Rig, measured: Measured) -> None:
    """The drain is over at once: a lease with something in flight is left to expire, the rest lands elsewhere."""
    chain, (ending, other) = await two_instances(rig, server__drain_s=0.01)
    crowd = rig.crowd()
    async with crowd.insisting(disorder(chain), [ending.url, other.url]):
        await crowd.answered(DISTURB_AFTER)
        ending.process.signal(signal.SIGTERM)
    assert await ending.process.ended() == 0
    seen, longest = await assert_landed_once(chain), crowd.longest_s(other.url)
    told = Counter(post.code for post in crowd.refused)
    measured(f"longest at the other {longest:.2f} s, repeated after {dict(told)}, {seen}")
    assert told[DRAINING]
    assert seen["overlaps"] == 0
    assert longest <= LEASE_S + 1


async def test_both_killed_and_started_again(rig: Rig, measured: Measured) -> None:
    """Holder and waiter are gone at once: their lanes go on with instances that know nothing of them."""
    chain, server = await rig.chain(delay_ms=CHECKS_MS), await rig.redis()
    old = await rig.instances(2, chain.url, server.url, redis__lease_ms=LEASE_MS)
    new = await rig.instances(2, chain.url, server.url, redis__lease_ms=LEASE_MS)
    crowd = rig.crowd()
    async with crowd.insisting(disorder(chain), [old[0].url, new[0].url, old[1].url, new[1].url]):
        await crowd.answered(DISTURB_AFTER)
        for relay in old:
            relay.process.signal(signal.SIGKILL)
    seen = await assert_landed_once(chain)
    longest = crowd.longest_s(*(relay.url for relay in new))
    measured(f"longest at the others {longest:.2f} s, {len(crowd.refused)} posts were repeated, {seen}")
    assert seen["overlaps"] == 0
    assert longest <= 2 * LEASE_S + 1
