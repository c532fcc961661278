"""nginx, set up as ``deploy/nginx.conf`` says, before several relays that share a Redis."""

from __future__ import annotations

import asyncio
import io
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from acceptance.rig.crowd import mingled, swapped
from acceptance.rig.load import connected
from acceptance.rig.signing import MNEMONIC, funded, key_of, sign

if TYPE_CHECKING:
    from pathlib import Path

    import aiohttp

    from acceptance.conftest import Measured
    from acceptance.rig.chain import Chain
    from acceptance.rig.parts import Part, Rig
    from acceptance.rig.signing import Transfer

SENDERS, COUNT = 3, 100
CHECKS_MS = (0, 10)
LEASE_MS = 1500
DISTURB_AFTER = 60
READ = b'{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}'
TOO_LARGE = 6 * 2**20

pytestmark = pytest.mark.timeout(180)


async def balanced(rig: Rig, folder: Path, count: int = 2, **settings: object) -> tuple[Chain, Part, list[Part]]:
    """A strict chain, nginx, relays."""
    chain, server = await rig.chain(delay_ms=CHECKS_MS), await rig.redis()
    relays = await rig.instances(count, chain.url, server.url, redis__lease_ms=LEASE_MS, **settings)
    return chain, await rig.nginx(folder, relays), relays


def disorder(chain: Chain) -> list[Transfer]:
    """Three senders side by side, neighbours swapped."""
    keys = map(key_of, funded(SENDERS))
    return mingled([swapped([sign(key, nonce, chain.chain_id) for nonce in range(COUNT)]) for key in keys])


async def assert_landed_once(chain: Chain) -> None:
    """All are on the chain, none was taken twice, never two of a sender at once."""
    assert [await chain.count(account.address) for account in funded(SENDERS)] == [COUNT] * SENDERS
    taken = Counter(arrival["hash"] for arrival in await chain.arrivals() if arrival["taken"])
    assert set(taken.values()) == {1}
    assert (await chain.report())["overlaps"] == 0


@pytest.mark.parametrize("count", [2, 3])
async def test_a_burst_through_nginx_is_in_order(rig: Rig, tmp_path: Path, measured: Measured, count: int) -> None:
    """Every transaction on a connection of its own, to whichever instance: all accepted and mined in order."""
    chain, nginx, relays = await balanced(rig, tmp_path, count)
    flags = ("--senders", str(SENDERS), "--count", str(COUNT), "--shuffle", "1", "--mnemonic", MNEMONIC)
    summary = await rig.burst(nginx.url, tmp_path / "burst.json", *flags)
    shares = [await rig.metric(relay, "relay_lane_wait_seconds_count") for relay in relays]
    seen = await chain.report()
    measured(f"{summary['accepted']} accepted, {summary['per_second']:.0f}/s, by instance {shares}, at the node {seen}")
    assert summary["good"], summary["reasons"]
    assert (seen["inversions"], seen["overlaps"]) == (0, 0)
    assert all(shares)


async def test_a_killed_instance_behind_nginx(rig: Rig, tmp_path: Path, measured: Measured) -> None:
    """What the dead one had is told as 502, its clients send the same bytes again: all land, none twice."""
    chain, nginx, relays = await balanced(rig, tmp_path)
    crowd = rig.crowd()
    async with crowd.insisting(disorder(chain), [nginx.url]):
        await crowd.answered(DISTURB_AFTER)
        relays[0].process.signal(signal.SIGKILL)
    told = Counter(post.error for post in crowd.refused)
    measured(f"longest answer {crowd.longest_s():.2f} s; to be sent again: {dict(told)}")
    await assert_landed_once(chain)
    assert set(told) <= {"HTTP 502"}
    assert crowd.longest_s() < LEASE_MS / 1000 + 2


async def test_a_rolling_restart_behind_nginx(rig: Rig, tmp_path: Path, measured: Measured) -> None:
    """An instance is told to end in mid-burst: it finishes what it has, and nginx turns to the other for the rest."""
    chain, nginx, relays = await balanced(rig, tmp_path)
    transfers, crowd = disorder(chain), rig.crowd()
    async with crowd.insisting(transfers[: len(transfers) // 2], [nginx.url]):
        await crowd.answered(DISTURB_AFTER)
        relays[0].process.signal(signal.SIGTERM)
        await relays[0].process.line("draining")
        async with crowd.insisting(transfers[len(transfers) // 2 :], [nginx.url]):
            pass
    assert await relays[0].process.ended() == 0
    told = Counter(post.error for post in crowd.refused)
    measured(f"longest answer {crowd.longest_s():.2f} s; to be sent again: {dict(told) or 'none'}")
    await assert_landed_once(chain)


async def test_nothing_that_was_sent_is_repeated(rig: Rig, tmp_path: Path) -> None:
    """An instance dies with a call in flight: the node sees the call once, whatever nginx might think of it."""
    chain, nginx, relays = await balanced(rig, tmp_path)
    await chain.script({"do": "hang", "method": "eth_getBalance"})
    balance = rig.caller(nginx.url)
    async with asyncio.TaskGroup() as group:
        call = group.create_task(status(balance.session, nginx.url), name="call")
        holder = await holding(rig, relays)
        holder.process.signal(signal.SIGKILL)
    assert call.result() == 502
    report = await chain.call("dev_report")
    assert report["calls"]["eth_getBalance"] == 1


async def status(session: aiohttp.ClientSession, url: str) -> int:
    """The status of a call that the node never answers."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "eth_getBalance", "params": ["0x" + "00" * 20, "latest"]}
    async with session.post(url, json=call) as response:
        return response.status


async def holding(rig: Rig, relays: list[Part]) -> Part:
    """The instance that has a call at the node, once it has."""
    async with asyncio.timeout(10):
        while True:
            for relay in relays:
                if await rig.metric(relay, 'relay_upstream_connections{state="busy"}'):
                    return relay
            await asyncio.sleep(0.02)


async def test_a_dead_instance_costs_nothing(rig: Rig, tmp_path: Path, measured: Measured) -> None:
    """It refuses connections, so that nginx turns to the other at once: no client hears of it."""
    _, nginx, relays = await balanced(rig, tmp_path)
    relays[0].process.signal(signal.SIGKILL)
    await relays[0].process.ended()
    async with connected(nginx.url) as line:
        answers = [await line.post(READ) for _ in range(20)]
    measured(f"slowest of {len(answers)} calls {max(answer.seconds for answer in answers) * 1000:.0f} ms")
    assert all(b'"result"' in answer.body for answer in answers)
    assert max(answer.seconds for answer in answers) < 1


async def test_the_relay_itself_refuses_what_is_too_large(rig: Rig, tmp_path: Path) -> None:
    """Above the relay's limit and below nginx's: the answer is the relay's, in JSON."""
    _, nginx, _ = await balanced(rig, tmp_path)
    session = rig.caller(nginx.url).session
    async with session.post(nginx.url, data=io.BytesIO(b"x" * TOO_LARGE)) as response:
        assert response.status == 413
        assert (await response.json())["error"]["code"] == -32021


async def test_subscriptions_and_submissions_over_websocket(rig: Rig, tmp_path: Path) -> None:
    """Through nginx a WebSocket hears of the block that its own transaction made."""
    chain, server = await rig.chain(), await rig.redis()
    upstream_ws = "ws" + chain.url.removeprefix("http")
    relays = await rig.instances(2, chain.url, server.url, upstream__ws_url=upstream_ws)
    nginx = await rig.nginx(tmp_path, relays)
    transfer = sign(key_of(funded(1)[0]), 0, chain.chain_id)
    async with rig.caller(nginx.url).session.ws_connect(nginx.ws_url) as socket:
        await socket.send_json({"jsonrpc": "2.0", "id": 1, "method": "eth_subscribe", "params": ["newHeads"]})
        name = (await socket.receive_json())["result"]
        await socket.send_json(
            {"jsonrpc": "2.0", "id": 2, "method": "eth_sendRawTransaction", "params": [transfer.raw]}
        )
        heard = [await socket.receive_json(timeout=10) for _ in range(2)]
    answers = {message["id"]: message for message in heard if "id" in message}
    (head,) = [message["params"] for message in heard if "params" in message]
    assert answers[2]["result"] == transfer.hash
    assert (head["subscription"], head["result"]["number"]) == (name, "0x1")
