"""The kinds of Redis that a URL can name: TLS, a socket, Sentinel with a failover in mid-burst, a cluster."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from typing import TYPE_CHECKING

import pytest
import trustme

from acceptance.rig.crowd import mingled, swapped
from acceptance.rig.signing import funded, key_of, sign
from tests.redis_server import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from acceptance.conftest import Measured
    from acceptance.rig.chain import Chain
    from acceptance.rig.parts import Rig
    from acceptance.rig.signing import Transfer

SENDERS, COUNT = 3, 60
CHECKS_MS = (0, 10)
LEASE_MS = 1500
DISTURB_AFTER = 40
SLOTS = 16384

pytestmark = pytest.mark.timeout(120)


def disorder(chain: Chain, first: int = 0) -> list[Transfer]:
    """Three senders side by side, neighbours swapped."""
    keys = map(key_of, funded(SENDERS))
    nonces = range(first, first + COUNT)
    return mingled([swapped([sign(key, nonce, chain.chain_id) for nonce in nonces]) for key in keys])


async def assert_one_order(rig: Rig, url: str) -> None:
    """Two instances at ``url``: none refused, none overtaken, never two at once, and Redis was used."""
    chain = await rig.chain(delay_ms=CHECKS_MS)
    relays = await rig.instances(2, chain.url, url, redis__lease_ms=LEASE_MS)
    crowd = rig.crowd()
    await crowd.once(disorder(chain), [relay.url for relay in relays])
    assert crowd.refused == []
    assert await chain.report() == {"submissions": SENDERS * COUNT, "inversions": 0, "overlaps": 0}
    assert [await rig.metric(relay, "relay_redis_errors_total") for relay in relays] == [0, 0]
    assert all([await rig.metric(relay, "relay_lease_acquisitions_total") for relay in relays])


async def test_over_tls(rig: Rig, tmp_path: Path) -> None:
    """``rediss://`` with a password and a certificate of an authority of one's own."""
    authority, context = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    server = await rig.redis()
    await server.say("ACL SETUSER relay on >secret ~* &* +@all")
    wire = await rig.wire(server.port, context)
    await assert_one_order(rig, f"rediss://relay:secret@127.0.0.1:{wire.port}?ssl_ca_certs={tmp_path}/ca.pem")


async def test_over_a_socket(rig: Rig, tmp_path: Path) -> None:
    """``unix://``."""
    path = tmp_path / "redis.sock"
    await rig.redis("valkey", "--unixsocket", str(path))
    await assert_one_order(rig, f"unix://{path}")


async def test_in_a_cluster(rig: Rig, tmp_path: Path) -> None:
    """``redis+cluster://``: three nodes share the lanes; what one of them pushes is heard through any."""
    buses = [free_port() for _ in range(3)]
    nodes = [
        await rig.redis(
            "valkey", "--cluster-enabled", "yes", "--cluster-port", str(bus),
            "--cluster-config-file", str(tmp_path / f"{bus}.conf"),
        )
        for bus in buses
    ]  # fmt: skip
    for number, node in enumerate(nodes):
        start, end = (SLOTS * part // len(nodes) for part in (number, number + 1))
        await node.say(f"CLUSTER ADDSLOTSRANGE {start} {end - 1}")
        await node.say(f"CLUSTER MEET 127.0.0.1 {nodes[0].port} {buses[0]}")
    async with asyncio.timeout(30):
        for node in nodes:
            while (await node.say("CLUSTER INFO"))["cluster_state"] != "ok":  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)
    await assert_one_order(rig, f"redis+cluster://127.0.0.1:{nodes[0].port},127.0.0.1:{nodes[1].port}")


@pytest.mark.parametrize("died", [False, True], ids=["asked for", "the master died"])
async def test_a_failover_in_mid_burst(rig: Rig, tmp_path: Path, measured: Measured, *, died: bool) -> None:
    """``redis+sentinel://``: a replica takes over. Everything lands once, and afterwards there is one order again."""
    master, replica = await rig.redis("redis62"), await rig.redis("redis62")
    await replica.say(f"REPLICAOF 127.0.0.1 {master.port}")
    config = tmp_path / "sentinel.conf"
    config.write_text(
        f"sentinel monitor main 127.0.0.1 {master.port} 1\n"
        "sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n"
    )
    sentinel = await rig.redis("redis62", "--sentinel", config=config)
    async with asyncio.timeout(30):
        while not await sentinel.say("SENTINEL REPLICAS main"):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.1)
    chain = await rig.chain(delay_ms=CHECKS_MS)
    url = f"redis+sentinel://127.0.0.1:{sentinel.port}/main"
    relays = await rig.instances(2, chain.url, url, redis__lease_ms=LEASE_MS)
    urls = [relay.url for relay in relays]
    crowd, after = rig.crowd(), rig.crowd()
    async with crowd.insisting(disorder(chain), urls):
        await crowd.answered(DISTURB_AFTER)
        await (master.kill() if died else sentinel.say("SENTINEL FAILOVER main"))
    measured(f"longest answer {crowd.longest_s():.2f} s, {len(crowd.refused)} repeated, {await chain.report()}")
    async with asyncio.timeout(30):
        while (await replica.admin.info("replication"))["role"] != "master":  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.1)
        for relay in relays:
            while await rig.metric(relay, "relay_redis_degraded"):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.1)
    await after.once(disorder(chain, COUNT), urls)
    assert after.refused == []
    assert [await chain.count(account.address) for account in funded(SENDERS)] == [2 * COUNT] * SENDERS
    taken = Counter(arrival["hash"] for arrival in await chain.arrivals() if arrival["taken"])
    assert set(taken.values()) == {1}
