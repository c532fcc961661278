"""What Redis can do to the relays in mid-burst, and what it may cost."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from acceptance.rig.crowd import mingled, swapped
from acceptance.rig.load import body, connected
from acceptance.rig.signing import funded, key_of, sign

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from acceptance.conftest import Measured
    from acceptance.rig.chain import Chain
    from acceptance.rig.load import Line
    from acceptance.rig.parts import Part, Rig
    from acceptance.rig.signing import Transfer
    from acceptance.rig.wire import Wire
    from tests.redis_server import RedisServer

SENDERS, COUNT, ALONE = 3, 40, 10
CHECKS_MS = (0, 10)
SLOW_MS = 100
LONG_CHECKS_MS = (30, 70)  # the burst outlives the lease that it began with
LEASE_MS, TIMEOUT_MS = 1500, 375
POLL_S = 1.2  # the longest
LEASE_S, TIMEOUT_S = LEASE_MS / 1000, TIMEOUT_MS / 1000
DISTURB_AFTER = 30
READ = b'{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}'
SETTINGS = {"redis__lease_ms": LEASE_MS, "redis__timeout_ms": TIMEOUT_MS}

pytestmark = pytest.mark.timeout(120)


@dataclass(frozen=True, slots=True)
class Server:
    """A Redis, and the line by which relays reach it."""

    redis: RedisServer
    wire: Wire

    @property
    def url(self) -> str:
        """For ``--redis``."""
        return f"redis://127.0.0.1:{self.wire.port}"


@dataclass(frozen=True, slots=True)
class Trouble:
    """What goes wrong, and how it is put right."""

    name: str
    begin: Callable[[Server], Awaitable[object]]
    end: Callable[[Server], Awaitable[object]]


def says(*commands: str) -> Callable[[Server], Awaitable[None]]:
    """What an operator types."""

    async def say(server: Server) -> None:
        for command in commands:
            await server.redis.say(command)

    return say


async def pause(server: Server) -> None:
    """It accepts and never answers."""
    server.redis.pause()


async def resume(server: Server) -> None:
    """It answers again."""
    server.redis.resume()


async def slow_down(server: Server) -> None:
    """Slower than the time-out."""
    server.wire.delay_s = TIMEOUT_S + 0.1


async def speed_up(server: Server) -> None:
    """As before."""
    server.wire.delay_s = 0.0


async def keep_busy(server: Server) -> None:
    """Somebody's script never ends."""
    await server.redis.say("CONFIG SET busy-reply-threshold 50")
    _, writer = await asyncio.open_connection("127.0.0.1", server.redis.port)
    writer.write(b'EVAL "while true do end" 0\r\n')
    await writer.drain()
    writer.close()  # the script runs on


TROUBLES = (
    Trouble("killed", lambda server: server.redis.kill(), lambda server: server.redis.start()),
    Trouble("hanging", pause, resume),
    Trouble("cut off", lambda server: server.wire.cut(), lambda server: server.wire.mend()),
    Trouble("too slow", slow_down, speed_up),
    Trouble("read-only", says("REPLICAOF 127.0.0.1 1"), says("REPLICAOF NO ONE")),
    Trouble("memory full", says("CONFIG SET maxmemory 1"), says("CONFIG SET maxmemory 0")),
    Trouble(
        "password changed",
        says("CONFIG SET requirepass new", "CLIENT KILL TYPE normal", "CLIENT KILL TYPE pubsub"),
        lambda server: server.redis.admin.config_set("requirepass", ""),
    ),
    Trouble("busy", keep_busy, says("SCRIPT KILL")),
)


async def server_for(rig: Rig) -> Server:
    """A Valkey behind a line."""
    redis = await rig.redis()
    return Server(redis, await rig.wire(redis.port))


def burst(chain: Chain, first: int, count: int = COUNT, senders: int = SENDERS) -> list[Transfer]:
    """Senders side by side, neighbours swapped."""
    keys = map(key_of, funded(senders))
    return mingled(
        [swapped([sign(key, nonce, chain.chain_id) for nonce in range(first, first + count)]) for key in keys]
    )


async def lone(relay: Part, chain: Chain, first: int, count: int) -> float:
    """One transaction after the other of another sender; the longest that an answer took."""
    key, longest = key_of(funded(SENDERS + 1)[-1]), 0.0
    async with connected(relay.url) as line:
        for nonce in range(first, first + count):
            transfer = sign(key, nonce, chain.chain_id)
            answer = await line.post(body(transfer))
            assert transfer.hash.encode() in answer.body, answer.body
            longest = max(longest, answer.seconds)
    return longest


@asynccontextmanager
async def reading(relay: Part) -> AsyncIterator[list[float]]:
    """Calls that are passed through, one after the other all the while; what each took."""
    seconds: list[float] = []

    async def read(line: Line) -> None:
        while True:
            seconds.append((await line.post(READ)).seconds)

    async with connected(relay.url) as line, asyncio.TaskGroup() as group:
        task = group.create_task(read(line), name="reads")
        yield seconds
        task.cancel()


async def assert_in_order(chain: Chain, count: int) -> None:
    """So many at the node, none overtaken, never two of a sender at once."""
    assert await chain.report() == {"submissions": count, "inversions": 0, "overlaps": 0}


@pytest.mark.parametrize("trouble", TROUBLES, ids=[trouble.name for trouble in TROUBLES])
async def test_one_instance_goes_on_and_two_order_again(rig: Rig, measured: Measured, trouble: Trouble) -> None:
    """In mid-burst: nothing refused, nothing overtaken; what meets the failure waits two time-outs, what comes later
    nothing; reads never notice; /readyz stays 200 and names it; an instance started meanwhile works, too; afterwards
    both order together without a restart."""
    chain, server = await rig.chain(delay_ms=LONG_CHECKS_MS), await server_for(rig)
    one = await rig.relay(chain.url, "--redis", server.url, **SETTINGS)
    crowd = rig.crowd()
    async with reading(one) as reads:
        async with asyncio.TaskGroup() as group:
            group.create_task(crowd.once(burst(chain, 0), [one.url]), name="burst")
            await crowd.answered(DISTURB_AFTER)
            await trouble.begin(server)
        assert crowd.refused == []
        met = await lone(one, chain, 0, 1)
        later = await lone(one, chain, 1, ALONE)
    measured(
        f"in the burst {crowd.longest_s():.2f} s at most, the next alone {met:.2f} s, later {later:.3f} s,"
        f" reads {max(reads):.3f} s"
    )
    await assert_in_order(chain, SENDERS * COUNT + 1 + ALONE)
    status, checks = await rig.readiness(one)
    assert status == 200
    assert any("Redis is gone" in check["detail"] for check in checks.values())
    assert await rig.metric(one, "relay_redis_degraded") == 1
    assert met <= 2 * TIMEOUT_S + 0.25
    assert later < TIMEOUT_S
    assert max(reads) < TIMEOUT_S
    other = await rig.relay(chain.url, "--redis", server.url, **SETTINGS)
    assert await lone(other, chain, 1 + ALONE, 1) < 1
    await trouble.end(server)
    for relay in (one, other):
        await relay.process.line("redis is back")
    crowd = rig.crowd()
    await crowd.once(burst(chain, COUNT), [one.url, other.url])
    assert crowd.refused == []
    await assert_in_order(chain, 2 * SENDERS * COUNT + 2 + ALONE)
    assert [await rig.metric(relay, "relay_redis_degraded") for relay in (one, other)] == [0, 0]


async def test_refused_is_not_sent(rig: Rig, measured: Measured) -> None:
    """``on_loss = "refuse"``: refused within two time-outs (and a poll, where an instance only waits for another),
    later at once; nothing of it was sent; it heals."""
    chain, server = await rig.chain(delay_ms=CHECKS_MS), await server_for(rig)
    relays = await rig.instances(2, chain.url, server.url, redis__on_loss="refuse", **SETTINGS)
    urls = [relay.url for relay in relays]
    crowd, later, again = rig.crowd(), rig.crowd(), rig.crowd()
    async with asyncio.TaskGroup() as group:
        group.create_task(crowd.once(burst(chain, 0), urls), name="burst")
        await crowd.answered(DISTURB_AFTER)
        began = time.monotonic()
        server.redis.pause()
    took = time.monotonic() - began
    assert {post.code for post in crowd.refused} == {-32005}
    known = [await chain.call("eth_getTransactionByHash", post.transfer.hash) for post in crowd.refused]
    assert known == [None] * len(known)
    await later.once([post.transfer for post in crowd.refused], urls)
    assert {post.code for post in later.posts} == {-32005}
    measured(f"{len(known)} refused within {took:.2f} s, later ones within {later.longest_s():.3f} s")
    assert took <= POLL_S + 2 * TIMEOUT_S + 0.25
    assert later.longest_s() < TIMEOUT_S
    assert [(await rig.readiness(relay))[0] for relay in relays] == [200, 200]
    server.redis.resume()
    for relay in relays:
        await relay.process.line("redis is back")
    await again.once([post.transfer for post in crowd.refused], urls)
    assert again.refused == []
    await assert_in_order(chain, SENDERS * COUNT)


async def test_flushed_in_mid_burst(rig: Rig, measured: Measured) -> None:
    """FLUSHALL: nothing hangs, all land once."""
    chain, server = await rig.chain(delay_ms=CHECKS_MS), await server_for(rig)
    relays = await rig.instances(2, chain.url, server.url, **SETTINGS)
    crowd = rig.crowd()
    async with crowd.insisting(burst(chain, 0), [relay.url for relay in relays]):
        await crowd.answered(DISTURB_AFTER)
        await server.redis.say("FLUSHALL")
    measured(f"longest answer {crowd.longest_s():.2f} s, {len(crowd.refused)} repeated, {await chain.report()}")
    await assert_landed_once(chain, COUNT)
    assert crowd.longest_s() < LEASE_S + 2


async def test_a_flush_lets_a_second_holder_in_for_a_third_of_a_lease(rig: Rig, measured: Measured) -> None:
    """One instance is in mid-burst, another comes with rivals for the same nonces the moment the lease is flushed."""
    chain, server = await rig.chain(delay_ms=(SLOW_MS, SLOW_MS)), await server_for(rig)
    holder, other = await rig.instances(2, chain.url, server.url, **SETTINGS)
    key = key_of(funded(1)[0])
    queue = [sign(key, nonce, chain.chain_id) for nonce in range(15)]
    rivals = [sign(key, nonce, chain.chain_id, value=1) for nonce in range(15)]
    crowd, second = rig.crowd(), rig.crowd()
    async with asyncio.TaskGroup() as group:
        group.create_task(crowd.once(queue, [holder.url]), name="holder")
        await crowd.answered(3)
        flushed = time.monotonic()
        await server.redis.say("FLUSHALL")
        group.create_task(second.once(rivals[3:], [other.url]), name="other")
    beside = [arrival["arrived"] - flushed for arrival in await chain.arrivals() if arrival["overlapped"]]
    measured(f"beside another at {', '.join(f'{late:.2f}' for late in beside) or 'no time'} s after the flush")
    assert all(0 <= late <= LEASE_S / 3 + SLOW_MS / 1000 + 0.1 for late in beside)
    assert await chain.count(funded(1)[0].address) == 15


async def test_restarted_empty(rig: Rig, measured: Measured) -> None:
    """Killed and started again at once, with nothing kept: leases, places and scripts are gone; all land once."""
    chain, server = await rig.chain(delay_ms=CHECKS_MS), await server_for(rig)
    relays = await rig.instances(2, chain.url, server.url, **SETTINGS)
    urls = [relay.url for relay in relays]
    crowd = rig.crowd()
    async with crowd.insisting(burst(chain, 0), urls):
        await crowd.answered(DISTURB_AFTER)
        await server.redis.kill()
        await server.redis.start()
    measured(f"longest answer {crowd.longest_s():.2f} s, {len(crowd.refused)} repeated, {await chain.report()}")
    await assert_landed_once(chain, COUNT)


async def test_scripts_are_brought_back(rig: Rig) -> None:
    """SCRIPT FLUSH again and again in mid-burst: nobody notices."""
    chain, server = await rig.chain(delay_ms=CHECKS_MS), await server_for(rig)
    relays = await rig.instances(2, chain.url, server.url, **SETTINGS)
    crowd = rig.crowd()
    async with asyncio.TaskGroup() as group:
        group.create_task(crowd.once(burst(chain, 0), [relay.url for relay in relays]), name="burst")
        for count in range(10, SENDERS * COUNT, 10):
            await crowd.answered(count)
            await server.redis.say("SCRIPT FLUSH")
    assert crowd.refused == []
    await assert_in_order(chain, SENDERS * COUNT)
    assert [await rig.metric(relay, "relay_redis_errors_total") for relay in relays] == [0, 0]


async def test_a_slow_server_costs_time_only(rig: Rig, measured: Measured) -> None:
    """300 ms for each answer, within the time-out: hand-offs take that long, the order holds."""
    chain, server = await rig.chain(delay_ms=CHECKS_MS), await server_for(rig)
    server.wire.delay_s = 0.3
    relays = await rig.instances(2, chain.url, server.url, redis__lease_ms=4000, redis__timeout_ms=1000)
    crowd = rig.crowd()
    await crowd.once(burst(chain, 0, 10), [relay.url for relay in relays])
    measured(f"longest answer {crowd.longest_s():.2f} s for ten nonces of a sender")
    assert crowd.refused == []
    await assert_in_order(chain, SENDERS * 10)


async def test_a_moment_of_silence_is_no_death(rig: Rig) -> None:
    """The server stands still for longer than one time-out and shorter than two: nobody goes it alone."""
    chain, server = await rig.chain(delay_ms=CHECKS_MS), await server_for(rig)
    relays = await rig.instances(2, chain.url, server.url, **SETTINGS)
    crowd = rig.crowd()
    async with asyncio.TaskGroup() as group:
        group.create_task(crowd.once(burst(chain, 0), [relay.url for relay in relays]), name="burst")
        await crowd.answered(DISTURB_AFTER)
        server.redis.pause()
        await asyncio.sleep(1.5 * TIMEOUT_S)
        server.redis.resume()
    assert crowd.refused == []
    await assert_in_order(chain, SENDERS * COUNT)


async def test_one_of_two_is_cut_off(rig: Rig, measured: Measured) -> None:
    """A partition: the cut-off instance goes by its policy, here it refuses, and what it refuses lands by the other."""
    chain, server = await rig.chain(delay_ms=CHECKS_MS), await server_for(rig)
    near = await rig.relay(chain.url, "--redis", server.redis.url, **SETTINGS)
    far = await rig.relay(chain.url, "--redis", server.url, redis__on_loss="refuse", **SETTINGS)
    crowd = rig.crowd()
    async with crowd.insisting(burst(chain, 0), [near.url, far.url]):
        await crowd.answered(DISTURB_AFTER)
        server.wire.silence()
    longest, seen = crowd.longest_s(near.url), await chain.report()
    measured(f"longest answer at the other {longest:.2f} s, {len(crowd.refused)} repeated, {seen}")
    await assert_landed_once(chain, COUNT)
    assert seen["overlaps"] == 0
    assert longest <= LEASE_S + 1


async def assert_landed_once(chain: Chain, count: int) -> None:
    """All are on the chain, none was taken twice."""
    assert [await chain.count(account.address) for account in funded(SENDERS)] == [count] * SENDERS
    taken = Counter(arrival["hash"] for arrival in await chain.arrivals() if arrival["taken"])
    assert set(taken.values()) == {1}
