"""Several workers: one order without a Redis, whichever process dies or hangs."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from acceptance.rig.crowd import Crowd, mingled, swapped
from acceptance.rig.signing import funded, key_of, sign
from acceptance.rig.workers import all_work, gone, pids, signal_worker

if TYPE_CHECKING:
    from acceptance.conftest import Measured
    from acceptance.rig.chain import Chain
    from acceptance.rig.parts import Rig
    from acceptance.rig.signing import Transfer

SENDERS, COUNT = 5, 32
CHECKS_MS = (0, 10)
DISTURB_AFTER = 40
UNKNOWN = -32040

pytestmark = pytest.mark.timeout(180)


def disorder(chain: Chain) -> list[Transfer]:
    """A hundred and sixty transactions of five senders side by side, neighbours swapped."""
    keys = map(key_of, funded(SENDERS))
    return mingled([swapped([sign(key, nonce, chain.chain_id) for nonce in range(COUNT)]) for key in keys])


async def assert_landed_once(chain: Chain) -> dict[str, Any]:
    """All are on the chain, none was taken twice; the node's report."""
    assert [await chain.count(account.address) for account in funded(SENDERS)] == [COUNT] * SENDERS
    taken = Counter(arrival["hash"] for arrival in await chain.arrivals() if arrival["taken"])
    assert len(taken) == SENDERS * COUNT
    assert set(taken.values()) == {1}
    return await chain.report()


def assert_honest(crowd: Crowd) -> None:
    """Whoever got an answer heard of success, or that the outcome is unknown; the others lost their connection."""
    assert {post.code for post in crowd.refused} <= {None, UNKNOWN}


@pytest.mark.parametrize("submit", ["single", "batch"])
@pytest.mark.parametrize("workers", [2, 3])
async def test_a_swapped_burst_over_all_workers_keeps_its_order(
    rig: Rig, measured: Measured, workers: int, submit: str
) -> None:
    """Neighbours swapped, connections spread over the workers: in order at a strict node, nothing refused."""
    chain = await rig.chain(delay_ms=CHECKS_MS)
    relay = await rig.relay(chain.url, "--workers", str(workers), upstream__submit=submit)
    crowd = rig.crowd()
    await crowd.once(disorder(chain), [relay.url])
    seen = await assert_landed_once(chain)
    measured(f"{workers} workers, {submit}, longest answer {crowd.longest_s():.2f} s, {seen}")
    assert crowd.refused == []
    assert (seen["inversions"], seen["overlaps"]) == (0, 0)


@pytest.mark.parametrize("submit", ["single", "batch"])
@pytest.mark.parametrize(("workers", "number"), [(2, 0), (2, 1), (3, 0), (3, 1)])
async def test_a_killed_worker_breaks_no_order(
    rig: Rig, measured: Measured, workers: int, number: int, submit: str
) -> None:
    """SIGKILL of each role in mid-burst. With 3 workers the clients of the lane process's peers hear of success alone:
    their tickets are handed to the replacement, those of a run that was at the node one by one."""
    chain = await rig.chain(delay_ms=CHECKS_MS)
    relay = await rig.relay(chain.url, "--workers", str(workers), upstream__submit=submit)
    crowd = rig.crowd()
    async with crowd.insisting(disorder(chain), [relay.url]):
        await crowd.answered(DISTURB_AFTER)
        signal_worker(relay, number, signal.SIGKILL)
    seen = await assert_landed_once(chain)
    ended = f"{len(crowd.refused)} posts repeated, {crowd.longest_s():.2f} s, {seen}"
    measured(f"worker {number} of {workers} killed, {submit}: {ended}")
    assert_honest(crowd)
    assert seen["inversions"] == 0
    if (workers, number) == (3, 0):
        assert crowd.refused == []
    await relay.process.line("a worker ended.*SIGKILL")


@pytest.mark.parametrize("seed", range(3))
async def test_no_gap_is_passed_while_tickets_come_back(rig: Rig, measured: Measured, seed: int) -> None:
    """SIGKILL of the lane process with a window far shorter than its replacement takes: whoever waits above a gap waits
    on, until those below it are there again."""
    chain = await rig.chain(delay_ms=CHECKS_MS, seed=seed)
    relay = await rig.relay(chain.url, "--workers", "2", ordering__reorder_window_ms=100)
    crowd = rig.crowd()
    async with crowd.insisting(disorder(chain), [relay.url]):
        await crowd.answered(DISTURB_AFTER // 2)
        signal_worker(relay, 0, signal.SIGKILL)
    seen = await assert_landed_once(chain)
    measured(f"{len(crowd.refused)} posts repeated, {crowd.longest_s():.2f} s, {seen}")
    assert_honest(crowd)
    assert seen["inversions"] == 0


async def test_a_lane_process_dies_again_and_again(rig: Rig, measured: Measured) -> None:
    """Three times, its own clients repeating: in order, no wrong refusal, and no lane waits for what cannot come."""
    chain = await rig.chain(delay_ms=CHECKS_MS)
    relay = await rig.relay(chain.url, "--workers", "2", ordering__reorder_window_ms=100)
    crowd = rig.crowd()
    async with crowd.insisting(disorder(chain), [relay.url]):
        for answers in (20, 50, 90):
            await crowd.answered(answers)
            signal_worker(relay, 0, signal.SIGKILL)
            await relay.process.line("a worker ended.*SIGKILL")
            await all_work(rig, relay)
    seen = await assert_landed_once(chain)
    expired = await rig.metric(relay, 'relay_orphans_total{end="expired"}')
    measured(f"{len(crowd.refused)} posts repeated, {crowd.longest_s():.2f} s, {seen}")
    assert_honest(crowd)
    assert (seen["inversions"], expired) == (0, 0)


@pytest.mark.parametrize("workers", [2, 3])
async def test_nothing_goes_beside_the_run_of_a_dead_process(rig: Rig, measured: Measured, workers: int) -> None:
    """SIGKILL of the lane process while long runs are at the node, which goes on with them one by one."""
    chain = await rig.chain(delay_ms=(20, 40))
    relay = await rig.relay(chain.url, "--workers", str(workers), upstream__submit="batch")
    crowd = rig.crowd()
    async with crowd.insisting(disorder(chain), [relay.url]):
        await chain.arrived(5 * SENDERS)
        signal_worker(relay, 0, signal.SIGKILL)
    seen = await assert_landed_once(chain)
    measured(f"{workers} workers: {len(crowd.refused)} posts repeated, {crowd.longest_s():.2f} s, {seen}")
    assert_honest(crowd)
    assert (seen["inversions"], seen["overlaps"]) == (0, 0)


async def test_a_lane_process_dies_twice_while_answers_are_lost(rig: Rig, measured: Measured) -> None:
    """In runs, to a node that resets connections behind an acceptance and answers pages: still nothing is lost, doubled
    or overtaken, and nobody hears a refusal."""
    chain = await rig.chain(delay_ms=CHECKS_MS)
    await chain.script({"do": "reset", "when": "after", "every": 7}, {"do": "page", "method": "dev_batch", "every": 5})
    relay = await rig.relay(chain.url, "--workers", "3", upstream__submit="batch")
    crowd = rig.crowd()
    async with crowd.insisting(disorder(chain), [relay.url]):
        for answers in (DISTURB_AFTER // 2, 2 * DISTURB_AFTER):
            await crowd.answered(answers)
            signal_worker(relay, 0, signal.SIGKILL)
            await relay.process.line("a worker ended.*SIGKILL")
    seen = await assert_landed_once(chain)
    measured(f"{len(crowd.refused)} posts repeated, longest answer {crowd.longest_s():.2f} s, {seen}")
    assert_honest(crowd)
    assert seen["inversions"] == 0


@pytest.mark.parametrize("number", [0, 1])
async def test_a_hung_worker_is_replaced(rig: Rig, measured: Measured, number: int) -> None:
    """SIGSTOP of each role in mid-burst, for good: named by /readyz, which comes none the later, then replaced."""
    chain = await rig.chain(delay_ms=CHECKS_MS)
    relay = await rig.relay(chain.url, "--workers", "3")
    crowd = rig.crowd()
    async with crowd.insisting(disorder(chain), [relay.url]):
        await crowd.answered(DISTURB_AFTER)
        stopped = signal_worker(relay, number, signal.SIGSTOP)
        async with asyncio.timeout(5):
            status, checks = await rig.readiness(relay)
            counted = await rig.metric(relay, "relay_requests_total")
        assert (status, checks[f"worker {number}"]["ready"]) == (503, False)
        assert counted > 0
    seen = await assert_landed_once(chain)
    measured(f"worker {number} of 3 stopped: {len(crowd.refused)} posts repeated, {crowd.longest_s():.2f} s, {seen}")
    assert_honest(crowd)
    assert seen["inversions"] == 0
    await relay.process.line(f"a worker hangs.*{stopped}")
    await all_work(rig, relay)
    assert pids(relay.process.pid)[number] != stopped


@pytest.mark.parametrize("workers", [2, 3])
async def test_no_worker_outlives_its_parent(rig: Rig, measured: Measured, workers: int) -> None:
    """SIGKILL of the parent in mid-burst: the workers answer what they have, and end."""
    chain = await rig.chain(delay_ms=CHECKS_MS)
    relay = await rig.relay(chain.url, "--workers", str(workers), server__drain_s=10)
    crowd = rig.crowd()
    left = list(pids(relay.process.pid).values())
    burst = asyncio.get_running_loop().create_task(crowd.once(disorder(chain), [relay.url]))
    await crowd.answered(DISTURB_AFTER)
    relay.process.signal(signal.SIGKILL)
    await burst
    answered = time.monotonic()
    await gone(left)
    measured(f"{workers} workers: gone {time.monotonic() - answered:.2f} s after the last answer")
    seen = await chain.report()
    assert (seen["inversions"], seen["overlaps"]) == (0, 0)
    assert {post.code for post in crowd.refused} == set()
