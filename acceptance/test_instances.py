"""Several relays that share a Redis, each sender's transactions going round them: one order at the node."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from acceptance.rig.crowd import mingled, swapped
from acceptance.rig.fences import Fenced, logged_fences
from acceptance.rig.load import body, connected
from acceptance.rig.processes import ROOT
from acceptance.rig.signing import MNEMONIC, funded, key_of, sign

if TYPE_CHECKING:
    from pathlib import Path

    from acceptance.conftest import Measured
    from acceptance.rig.chain import Chain
    from acceptance.rig.parts import Rig
    from acceptance.rig.signing import Transfer

GUIDE = ROOT / "docs" / "instances.md"
SENDERS, COUNT, TIMES = 3, 100, 20
CHECKS_MS = (0, 10)
LEASE_MS = 2000
ALONE, BURST = 50, 200

pytestmark = pytest.mark.timeout(300)


def lanes(chain: Chain, senders: int, first: int, count: int) -> list[list[Transfer]]:
    """Each sender's transactions in nonce order."""
    keys = map(key_of, funded(senders))
    return [[sign(key, nonce, chain.chain_id) for nonce in range(first, first + count)] for key in keys]


def disorder(chain: Chain, first: int = 0) -> list[Transfer]:
    """Three senders' bursts side by side, neighbours swapped."""
    return mingled([swapped(lane) for lane in lanes(chain, SENDERS, first, COUNT)])


@pytest.mark.parametrize("count", [2, 4])
async def test_instances_keep_one_order(rig: Rig, measured: Measured, count: int) -> None:
    """Round robin, twenty times in a row: none refused, none overtaken, never two of a sender at once."""
    chain, server = await rig.chain(delay_ms=CHECKS_MS), await rig.redis()
    relays = await rig.instances(count, chain.url, server.url, redis__lease_ms=LEASE_MS)
    longest = 0.0
    for time in range(TIMES):
        crowd = rig.crowd()
        await crowd.once(disorder(chain, time * COUNT), [relay.url for relay in relays])
        assert crowd.refused == []
        longest = max(longest, crowd.longest_s())
    seen = await chain.report()
    measured(f"{TIMES} times over {count} instances, longest answer {longest * 1000:.0f} ms, at the node {seen}")
    assert seen == {"submissions": TIMES * SENDERS * COUNT, "inversions": 0, "overlaps": 0}
    assert await without_end(server) == []


async def without_end(server: Any) -> list[str]:
    """Keys that would stay for ever."""
    return [key async for key in server.admin.scan_iter() if await server.admin.pttl(key) < 0]


@pytest.mark.parametrize("kind", ["redis62", "redis"])
async def test_older_servers_do_as_well(rig: Rig, kind: str) -> None:
    """The same with Redis 6.2, and with the distribution's where it is installed."""
    chain, server = await rig.chain(delay_ms=CHECKS_MS), await rig.redis(kind)
    relays = await rig.instances(2, chain.url, server.url, redis__lease_ms=LEASE_MS)
    crowd = rig.crowd()
    await crowd.once(disorder(chain), [relay.url for relay in relays])
    assert crowd.refused == []
    assert await chain.report() == {"submissions": SENDERS * COUNT, "inversions": 0, "overlaps": 0}


async def test_without_redis_and_by_arrival_the_order_is_lost(rig: Rig, measured: Measured) -> None:
    """The control: the same load on two instances that know nothing of each other."""
    chain = await rig.chain(delay_ms=CHECKS_MS)
    relays = [await rig.relay(chain.url, ordering__order="arrival") for _ in range(2)]
    crowd = rig.crowd()
    await crowd.once(disorder(chain), [relay.url for relay in relays])
    seen = await chain.report()
    measured(f"{len(crowd.refused)} refused, at the node {seen}")
    assert len(crowd.refused) > SENDERS * COUNT / 3
    assert seen["overlaps"] > 0


async def test_the_burst_command_sees_it_mined_in_order(rig: Rig, tmp_path: Path, measured: Measured) -> None:
    """Each transaction on a new connection, round two instances: all accepted, all mined, each sender's in order."""
    chain, server = await rig.chain(delay_ms=CHECKS_MS), await rig.redis()
    one, other = await rig.instances(2, chain.url, server.url, redis__lease_ms=LEASE_MS)
    flags = ("--rpc", other.url, "--senders", str(SENDERS), "--count", str(COUNT), "--shuffle", "1")
    summary = await rig.burst(one.url, tmp_path / "burst.json", *flags, "--mnemonic", MNEMONIC)
    measured(f"{summary['accepted']} accepted, {summary['per_second']:.0f}/s, p99 {summary['latency_s']['p99']:.3f} s")
    assert summary["good"], summary["reasons"]
    assert (await chain.report())["overlaps"] == 0


async def test_fences_only_grow(rig: Rig, measured: Measured) -> None:
    """In the order of the node the fences of a sender never fall, and no two instances ever send under the same."""
    chain, server = await rig.chain(delay_ms=CHECKS_MS), await rig.redis()
    relays = await rig.instances(2, chain.url, server.url, redis__lease_ms=LEASE_MS)
    crowd = rig.crowd()
    await crowd.once(disorder(chain), [relay.url for relay in relays])
    fences = await logged_fences(crowd, relays)
    by_sender: defaultdict[str, list[Fenced]] = defaultdict(list)
    for arrival in await chain.arrivals():
        by_sender[arrival["sender"]].append(fences[arrival["hash"]])
    measured(f"{len({fence for lane in by_sender.values() for fence, _ in lane})} fences for {SENDERS * COUNT}")
    for lane in by_sender.values():
        assert all(fence for fence, _ in lane)
        assert all(before == after or before[0] < after[0] for before, after in pairwise(lane))


async def commands(server: Any) -> int:
    """How many the server was sent, by its own count: what scripts do inside is not among them."""
    stats = await server.admin.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))


async def test_what_a_transaction_costs(rig: Rig, measured: Measured) -> None:
    """Alone two commands at most, in a burst through one instance 0.2; a lane at rest none."""
    chain, server = await rig.chain(delay_ms=CHECKS_MS, block_time_s=None), await rig.redis()
    (relay,) = await rig.instances(1, chain.url, server.url, redis__lease_ms=LEASE_MS)
    (lane,) = lanes(chain, 1, 0, ALONE + BURST)
    start = await commands(server)
    async with connected(relay.url) as line:
        for transfer in lane[:ALONE]:
            assert transfer.hash.encode() in (await line.post(body(transfer))).body
    after_alone = await commands(server)
    crowd = rig.crowd()
    await crowd.once(swapped(lane[ALONE:]), [relay.url])
    after_burst = await commands(server)
    alone, burst = (after_alone - start) / ALONE, (after_burst - after_alone) / BURST
    measured(f"{alone:.2f} commands a transaction alone, {burst:.3f} in a burst")
    assert crowd.refused == []
    assert alone <= 2 + 2 / ALONE  # the scripts are brought to the server once
    assert burst <= 0.2


async def test_prefixes_are_worlds_of_their_own(rig: Rig) -> None:
    """Instances with other prefixes share a server and nothing else: each may hold the same sender's lane."""
    server = await rig.redis()
    chains = [await rig.chain(delay_ms=(300, 300)) for _ in range(2)]
    relays = [
        await rig.relay(chain.url, "--redis", server.url, redis__prefix=f"world{number}")
        for number, chain in enumerate(chains)
    ]
    (lane,) = lanes(chains[0], 1, 0, 1)
    crowd = rig.crowd()
    await crowd.once([lane[0], lane[0]], [relay.url for relay in relays])
    assert crowd.refused == []
    assert crowd.longest_s() < 0.6
    assert {str(key).split(":")[0] async for key in server.admin.scan_iter()} == {"world0", "world1"}


async def test_the_commands_of_the_docs_are_enough(rig: Rig) -> None:
    """A user with the ACL of docs/instances.md is all that the tier needs."""
    rule = GUIDE.read_text("utf-8").partition("needs no more than `")[2].partition("`")[0]
    chain, server = await rig.chain(delay_ms=CHECKS_MS), await rig.redis()
    await server.say(f"ACL SETUSER relay on >secret {rule}")
    url = server.url.replace("redis://", "redis://relay:secret@")
    relays = await rig.instances(2, chain.url, url, redis__lease_ms=LEASE_MS)
    crowd = rig.crowd()
    await crowd.once(disorder(chain), [relay.url for relay in relays])
    assert crowd.refused == []
    assert [await rig.metric(relay, "relay_redis_degraded") for relay in relays] == [0, 0]
    assert [await rig.metric(relay, "relay_redis_errors_total") for relay in relays] == [0, 0]
    assert await chain.report() == {"submissions": SENDERS * COUNT, "inversions": 0, "overlaps": 0}
