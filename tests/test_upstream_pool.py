"""Who gets which connection, how many there are, and how it all ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from relay.config import Upstream
from relay.telemetry.metrics import Metrics
from relay.upstream.exchange import Lack
from relay.upstream.pool import Pool
from tests.scripted_node import (
    CLOSE,
    HANG,
    PLAIN,
    Clock,
    Recorder,
    ScriptedNode,
    both_loops,
    gated,
    lack,
    noting,
    pool_to,
    send,
    two_idle,
    under_way,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@both_loops
async def test_the_connection_used_last_is_used_first() -> None:
    """So that the others grow old and are closed."""
    gates, scripts = gated(3)
    async with ScriptedNode(*scripts) as node, pool_to(node.url) as pool:
        heard = await under_way(node, pool, 3)
        for place in (1, 2, 0):
            gates[place].set()
            await heard[place].end()
        assert (pool.idle, pool.busy, pool.opening) == (3, 0, 0)
        for _ in range(3):
            await send(pool).end()
        assert [seen.connection for seen in node.received] == [0, 1, 2, 0, 0, 0]


@both_loops
async def test_300_requests_on_10_connections() -> None:
    """Connections being opened count; everybody is served, in the order of arrival; and no connection too many."""
    async with ScriptedNode() as node, pool_to(node.url, max_connections=10) as pool:
        written: list[int] = []
        sinks = [Recorder() for _ in range(300)]
        for number, sink in enumerate(sinks):
            pool.send(b"{}", sink, submission=True, before_write=noting(written, number))
        assert (pool.opening, pool.waiting) == (10, 300)
        for sink in sinks:
            assert (await sink.end()).body == b"plain"
        assert (node.connections, node.most_open) == (10, 10)
        assert written == list(range(300))
        assert (pool.idle, pool.waiting) == (10, 0)


@both_loops
async def test_passing_requests_leave_connections_for_submissions() -> None:
    """However many pass and wait: a submission goes at once, and the next passing one only when one of them is over."""
    gates, scripts = gated(7)
    async with ScriptedNode(*scripts) as node, pool_to(node.url, max_connections=8) as pool:
        passing = [send(pool) for _ in range(20)]
        await node.has_received(7)
        assert (pool.busy, pool.opening, pool.waiting) == (7, 0, 13)
        for _ in range(3):
            assert (await send(pool, submission=True).end()).body == b"plain"
        assert [seen.connection for seen in node.received[7:]] == [7] * 3
        assert (pool.busy, pool.idle, pool.waiting) == (7, 1, 13)
        for gate in gates:
            gate.set()
        for heard in passing:
            await heard.end()
        assert node.most_open <= 8


@both_loops
async def test_submissions_may_take_every_connection_and_wait_their_turn() -> None:
    """Who waits is served by arrival, whichever kind."""
    gates, scripts = gated(2)
    async with ScriptedNode(*scripts) as node, pool_to(node.url, max_connections=2) as pool:
        running = await under_way(node, pool, 2, submission=True)
        written: list[str] = []
        waiting = []
        for name, submission in (("pass", False), ("submission", True), ("pass too", False)):
            waiting.append(Recorder())
            pool.send(b"{}", waiting[-1], submission=submission, before_write=noting(written, name))
        gates[0].set()
        for sink in (running[0], *waiting):
            await sink.end()
        assert written == ["pass", "submission", "pass too"]
        gates[1].set()
        await running[1].end()


@both_loops
async def test_an_idle_connection_is_closed_in_time() -> None:
    """After 50 s, or a second before the limit the node names."""
    for answer, seconds in ((PLAIN, 50.0), (PLAIN.replace(b"\r\n\r\n", b"\r\nKeep-Alive: timeout=5\r\n\r\n"), 4.0)):
        clock = Clock()
        async with ScriptedNode([answer]) as node, pool_to(node.url, clock) as pool:
            await send(pool).end()
            clock.now += seconds - 0.1
            pool.sweep()
            assert pool.idle == 1
            clock.now += 0.1
            pool.sweep()
            await node.has_open(0)
            await send(pool).end()
            assert node.connections == 2


@both_loops
async def test_a_connection_whose_large_body_was_refused_is_not_used_again() -> None:
    """The node need not have read it, and would take the next request for the rest; after any other answer it has."""
    refused = PLAIN.replace(b"200 OK", b"413 Content Too Large")
    for answer, body, expected in ((refused, b"a" * 100_000, 2), (refused, b"{}", 1), (PLAIN, b"a" * 100_000, 1)):
        async with ScriptedNode([answer]) as node, pool_to(node.url) as pool:
            await send(pool, body=body).end()
            assert (await send(pool).end()).body == b"plain"
            assert node.connections == expected


@both_loops
async def test_bytes_on_an_idle_connection_close_it() -> None:
    """Nobody asked for them, so the next answer could be another's."""
    gate = asyncio.Event()
    async with ScriptedNode([PLAIN, gate, PLAIN]) as node, pool_to(node.url) as pool:
        await send(pool).end()
        gate.set()
        await node.has_open(0)
        assert (await send(pool).end()).said == ["answered"]
        assert node.connections == 2


@both_loops
async def test_one_that_waits_too_long_for_a_connection_was_not_sent() -> None:
    """The text says how many there are and by which setting."""
    clock = Clock()
    async with ScriptedNode([HANG], [HANG]) as node, pool_to(node.url, clock, max_connections=2) as pool:
        for _ in range(2):
            send(pool, submission=True)
        await node.has_received(2)
        patient, hasty = send(pool, timeout_s=9), send(pool, submission=True, timeout_s=0.25)
        clock.now += 0.25
        pool.sweep()
        await hasty.end()
        assert lack(hasty) is Lack.UNREACHABLE
        assert "none was free within" in str(hasty.failure)
        assert "2 busy and 0 being opened of 2 ([upstream] max_connections)" in str(hasty.failure)
        assert (patient.failure, pool.waiting) == (None, 1)


@both_loops
async def test_a_refused_connection_fails_who_waited_longest() -> None:
    """One for each attempt; a connection in use goes on, and serves the next."""
    gate = asyncio.Event()
    async with ScriptedNode([gate, PLAIN]) as node, pool_to(node.url, max_connections=3) as pool:
        (running,) = await under_way(node, pool, 1, submission=True)
        node.stop_listening()
        refused = [send(pool) for _ in range(9)]
        assert {lack(await heard.end()) for heard in refused} == {Lack.UNREACHABLE}
        assert (pool.waiting, pool.opening, pool.busy, pool.passing) == (0, 0, 1, 0)
        gate.set()
        await running.end()
        assert (await send(pool).end()).body == b"plain"


@both_loops
async def test_a_connection_closed_as_soon_as_it_is_made_is_none() -> None:
    """It is not tried again and again: the request fails, unsent."""
    async with ScriptedNode() as node, pool_to(node.url) as pool:
        connect = pool.endpoint.connect
        attempts: list[Any] = []

        async def short_lived(factory: Callable[[], Any]) -> Any:
            attempts.append(await connect(factory))
            attempts[-1]._transport.abort()
            return attempts[-1]

        pool.endpoint.connect = short_lived  # type: ignore[method-assign] # behaviour of this test
        heard = await send(pool).end()
        assert (lack(heard), len(attempts), pool.reachable) == (Lack.UNREACHABLE, 1, False)
        assert "closed at once" in str(heard.failure)


@both_loops
async def test_a_connection_that_is_closing_is_not_written_to() -> None:
    """Between its closing and the word of it nothing goes out on it; the next request gets a fresh one."""
    async with ScriptedNode() as node, pool_to(node.url) as pool:
        await send(pool).end()
        (connection,) = pool._idle
        connection._transport.close()
        assert (await send(pool).end()).body == b"plain"
        assert [seen.connection for seen in node.received] == [0, 1]


@both_loops
async def test_a_connection_whose_node_has_ended_is_not_written_to() -> None:
    """Under TLS the transport does not say so yet (uvloop), but the end was heard."""
    async with ScriptedNode() as node, pool_to(node.url) as pool:
        await send(pool).end()
        (connection,) = pool._idle
        connection.eof_received()
        assert (await send(pool).end()).body == b"plain"
        assert [seen.connection for seen in node.received] == [0, 1]


@both_loops
async def test_bytes_on_a_closing_connection_are_nobodys() -> None:
    """TLS hands on what it had decrypted even after the close."""
    closing = PLAIN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    async with ScriptedNode([PLAIN], [closing]) as node, pool_to(node.url) as pool:
        await send(pool).end()
        (connection,) = pool._idle
        heard = await send(pool).end()
        connection.data_received(PLAIN)
        assert heard.said == ["answered"]


@both_loops
async def test_a_connection_nobody_needs_any_more_is_kept() -> None:
    """Its request was abandoned while it was being made; it stays as long as any idle one."""
    clock = Clock()
    async with ScriptedNode() as node, pool_to(node.url, clock) as pool:
        pool.send(b"{}", Recorder()).abandon()
        await pool._tasks.settled()
        clock.now += 49
        pool.sweep()
        assert (pool.idle, node.received) == (1, [])
        await send(pool).end()
        assert node.received[0].connection == 0


@both_loops
async def test_close_ends_everything_and_may_be_called_twice() -> None:
    """What waits was not sent, what is in flight is cut off, what comes later is refused, and no socket is left."""
    async with ScriptedNode([HANG], [HANG]) as node, pool_to(node.url, max_connections=2) as pool:
        flying = await under_way(node, pool, 2, submission=True)
        waiting = send(pool)
        await asyncio.gather(pool.close(), pool.close())
        assert (pool.idle, pool.busy, pool.opening, pool.waiting) == (0, 0, 0, 0)
        late = send(pool)
        assert late.said == []
        await late.end()
        await node.has_open(0)
        assert [lack(one) for one in (*flying, waiting, late)] == [
            Lack.CUT_OFF, Lack.CUT_OFF, Lack.UNREACHABLE, Lack.UNREACHABLE,
        ]  # fmt: skip


@both_loops
async def test_close_closes_idle_connections() -> None:
    """The node sees the end of each, and the numbers are right."""
    async with ScriptedNode() as node, pool_to(node.url) as pool:
        await two_idle(node, pool)
        await pool.close()
        assert (pool.idle, pool.busy) == (0, 0)
        await node.has_open(0)


@both_loops
async def test_close_while_connections_are_being_made() -> None:
    """The attempts end, those they were for hear it."""
    async with ScriptedNode() as node, pool_to(node.url.replace("http", "https"), connect_timeout_s=60) as pool:
        heard = send(pool)
        await node.has_open(1)
        assert pool.opening == 1
        await pool.close()
        assert (lack(heard), pool.opening) == (Lack.UNREACHABLE, 0)


@both_loops
async def test_what_is_counted() -> None:
    """Each failure under its reason, the connections by state; and whether the last attempt reached the node."""
    metrics, clock = Metrics(), Clock()
    async with ScriptedNode([CLOSE], [b"SSH-2.0"], [HANG]) as node:
        pool = Pool(Upstream(url=node.url), metrics, lambda *_: None, clock=clock)
        reached = [pool.reachable]
        await send(pool).end()
        await send(pool).end()
        slow = send(pool)
        await node.has_received(3)
        reached.append(pool.reachable)
        gauge = {tuple(s.labels.values()): s.value for s in metrics.upstream_connections.collect().samples}
        assert gauge == {("idle",): 0, ("busy",): 1, ("opening",): 0}
        clock.now += 30
        pool.sweep()
        await slow.end()
        node.stop_listening()
        await send(pool).end()
        assert [*reached, pool.reachable] == [None, True, False]
        await pool.close()
        late = Recorder()
        pool.send(b"{}", late).abandon()
        await send(pool).end()
        assert late.said == []
        counts = {key[0]: cell.n for key, cell in metrics.upstream_errors.cells.items()}
        assert counts == {"unreachable": 2, "timed_out": 1, "cut_off": 1, "unusable": 1}


@both_loops
async def test_the_clock_is_looked_at_without_being_asked() -> None:
    """The one test that waits for ticks, two of them: a deadline comes true by itself."""
    async with ScriptedNode([HANG]) as node, pool_to(node.url) as pool:
        assert lack(await send(pool, timeout_s=0.3).end()) is Lack.TIMED_OUT
