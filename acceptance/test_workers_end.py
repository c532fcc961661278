"""Several workers that end: replaced one by one under load, or all of them for good."""

from __future__ import annotations

import asyncio
import itertools
import signal
from typing import TYPE_CHECKING

import pytest

from acceptance.rig.load import body
from acceptance.rig.signing import funded, key_of, sign
from acceptance.rig.steady import forever, steady
from acceptance.rig.workers import pids, signal_worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acceptance.conftest import Measured
    from acceptance.rig.chain import Chain
    from acceptance.rig.parts import Rig

CHECKS_MS = (0, 5)
CALL = b'{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}'
DRAINING = -32012

pytestmark = pytest.mark.timeout(180)


def submissions(chain: Chain, sender: int) -> Iterator[bytes]:
    """A sender's transactions, without end."""
    key = key_of(funded(sender + 1)[sender])
    return (body(sign(key, nonce, chain.chain_id)) for nonce in itertools.count())


@pytest.mark.parametrize("workers", [2, 3])
async def test_a_rolling_restart_is_not_noticed(rig: Rig, measured: Measured, workers: int) -> None:
    """SIGHUP under load, kept connections and new ones, calls and submissions: every request gets its result."""
    chain = await rig.chain(delay_ms=CHECKS_MS)
    relay = await rig.relay(chain.url, "--workers", str(workers))
    before = pids(relay.process.pid)
    clients = 12
    texts = lambda number: submissions(chain, number // 2) if number % 2 else forever(CALL)  # noqa: E731
    async with steady(relay.url, clients, texts) as load:
        await load.answered(200)
        relay.process.signal(signal.SIGHUP)
        await relay.process.line('"restarted"')
        await load.answered(200)
    wrong = [text for text in load.bodies if b'"result"' not in text]
    seen = await chain.report()
    measured(
        f"{workers} workers: {len(load.bodies)} answers, {load.told_to_close} the last of their connection, {seen}"
    )
    assert (load.failures, wrong) == ([], [])
    assert (seen["inversions"], seen["overlaps"]) == (0, 0)
    assert set(pids(relay.process.pid).values()).isdisjoint(before.values())
    assert len(pids(relay.process.pid)) == workers


async def test_a_drain_answers_what_waits_at_the_lanes(rig: Rig) -> None:
    """SIGTERM with a running submission and others behind it, forwarded by another worker: the first is finished, the
    others are refused when the time is over; each answer comes before its connection is closed."""
    chain = await rig.chain(delay_ms=(1500, 1500))
    relay = await rig.relay(chain.url, "--workers", "3", server__drain_s=2.0)
    key = key_of(funded(1)[0])
    crowd = rig.crowd()
    burst = asyncio.get_running_loop().create_task(
        crowd.once([sign(key, nonce, chain.chain_id) for nonce in range(4)], [relay.url])
    )
    await chain.arrived(1)
    relay.process.signal(signal.SIGTERM)
    await burst
    assert await relay.process.ended() == 0
    codes = sorted((post.transfer.nonce, post.code) for post in crowd.posts)
    assert codes[0] == (0, None)
    assert all(code == DRAINING for _, code in codes[2:])
    assert (await chain.report())["inversions"] == 0


@pytest.mark.parametrize(("workers", "senders", "count"), [(2, 10, 1), (3, 2, 10)])
async def test_a_lane_process_that_dies_in_a_drain_is_replaced(
    rig: Rig, measured: Measured, workers: int, senders: int, count: int
) -> None:
    """SIGTERM, then SIGKILL of worker 0: whoever still has a connection gets a result, and the relay ends with that."""
    chain = await rig.chain(delay_ms=(300, 300))
    relay = await rig.relay(chain.url, "--workers", str(workers), server__drain_s=60)
    keys = [key_of(account) for account in funded(senders)]
    transfers = [sign(key, nonce, chain.chain_id) for nonce in range(count) for key in keys]
    crowd = rig.crowd()
    burst = asyncio.get_running_loop().create_task(crowd.once(transfers, [relay.url]))
    await chain.arrived(senders)
    relay.process.signal(signal.SIGTERM)
    await relay.process.line('"draining"')
    signal_worker(relay, 0, signal.SIGKILL)
    await burst
    assert await relay.process.ended() == 0
    seen = await chain.report()
    measured(f"{workers} workers: {len(crowd.refused)} lost their connection, {crowd.longest_s():.2f} s, {seen}")
    assert {post.code for post in crowd.refused} <= {None}
    assert len(crowd.refused) < len(crowd.posts)
    if workers > 2:
        assert crowd.refused == []
    assert (seen["inversions"], seen["overlaps"]) == (0, 0)


async def test_counters_outlive_the_workers(rig: Rig) -> None:
    """What a killed and a replaced worker counted stays in the sum, and the processes' own time never goes back."""
    chain = await rig.chain()
    relay = await rig.relay(chain.url, "--workers", "2")
    caller = rig.caller(relay.url)
    for _ in range(20):
        await caller.call("eth_chainId")
    names = ("relay_requests_total", "process_cpu_seconds_total")
    first = [await rig.metric(relay, name) for name in names]
    assert first[0] == 20
    signal_worker(relay, 1, signal.SIGKILL)
    await relay.process.line("a worker ended")
    killed = [await rig.metric(relay, name) for name in names]
    relay.process.signal(signal.SIGHUP)
    await relay.process.line('"restarted"')
    replaced = [await rig.metric(relay, name) for name in names]
    assert first <= killed <= replaced
    assert (first[0], killed[0], replaced[0]) == (20, 20, 20)
    assert first[1] <= killed[1] <= replaced[1]
    assert await rig.metric(relay, "relay_worker_restarts_total") >= 3
    assert await rig.metric(relay, 'relay_workers{state="working"}') == 2


@pytest.mark.parametrize("workers", [2, 3])
async def test_a_stop_in_the_middle_of_a_rolling_restart(rig: Rig, workers: int) -> None:
    """SIGTERM while workers are replaced: what is in flight is finished, and every process ends."""
    chain = await rig.chain(delay_ms=(20, 20))
    relay = await rig.relay(chain.url, "--workers", str(workers), server__drain_s=10)
    key = key_of(funded(1)[0])
    crowd = rig.crowd()
    burst = asyncio.get_running_loop().create_task(
        crowd.once([sign(key, nonce, chain.chain_id) for nonce in range(100)], [relay.url])
    )
    await crowd.answered(1)
    relay.process.signal(signal.SIGHUP)
    await crowd.answered(30)
    relay.process.signal(signal.SIGTERM)
    await burst
    assert await relay.process.ended() == 0
    assert crowd.refused == []
    assert (await chain.report())["inversions"] == 0


async def test_a_hung_worker_does_not_keep_a_relay_from_its_end(rig: Rig) -> None:
    """SIGSTOP of a worker, SIGTERM for all: the others drain, and the hung one is killed when the time is over."""
    chain = await rig.chain()
    relay = await rig.relay(chain.url, "--workers", "3", server__drain_s=0.5)
    signal_worker(relay, 1, signal.SIGSTOP)
    relay.process.signal(signal.SIGTERM)
    await relay.process.line("did not end in time")
    assert await relay.process.ended() == 0
