"""Who gets which connection, and what becomes of a request when the node does not answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from relay.config import Upstream
from relay.telemetry.metrics import Metrics
from relay.upstream.exchange import Failure, Head, Lack
from relay.upstream.pool import Pool
from tests.scripted_node import (
    CLOSE,
    HANG,
    PLAIN,
    RESET,
    Clock,
    Flood,
    Recorder,
    ScriptedNode,
    both_loops,
    pool_to,
)

if TYPE_CHECKING:
    from relay.upstream.exchange import Exchange


def send(pool: Pool, *, submission: bool = False, timeout_s: float | None = None) -> Recorder:
    """Post something."""
    heard = Recorder()
    pool.send(b"{}", heard, submission=submission, timeout_s=timeout_s)
    return heard


def lack(heard: Recorder) -> Lack | None:
    """What the sink was told."""
    return heard.failure and heard.failure.lack


# which connection


@both_loops
async def test_the_connection_used_last_is_used_first() -> None:
    """So that the others grow old and are closed."""
    gates = [asyncio.Event() for _ in range(3)]
    async with ScriptedNode(*([gate, PLAIN] for gate in gates)) as node, pool_to(node.url) as pool:
        heard = [send(pool) for _ in gates]
        await node.has_received(3)
        for place in (1, 2, 0):
            gates[place].set()
            await heard[place].end()
        assert (pool.idle, pool.busy, pool.opening) == (3, 0, 0)
        last = node.received[0].connection
        for _ in range(3):
            await send(pool).end()
        assert [seen.connection for seen in node.received[3:]] == [last] * 3


@both_loops
async def test_300_requests_on_10_connections() -> None:
    """Connections being opened count; everybody is served, in the order of arrival; and no connection too many."""
    async with ScriptedNode() as node, pool_to(node.url, max_connections=10) as pool:
        sinks = [Recorder() for _ in range(300)]
        for number, sink in enumerate(sinks):
            pool.send(b"%03d" % number, sink, submission=True)
        assert (pool.opening, pool.waiting) == (10, 300)
        for sink in sinks:
            assert (await sink.end()).body == b"plain"
        assert (node.connections, node.most_open) == (10, 10)
        places = [int(seen.body) for seen in node.received]
        assert max(abs(place - number) for number, place in enumerate(places)) <= 10
        assert (pool.idle, pool.waiting) == (10, 0)


@both_loops
async def test_passing_requests_leave_connections_for_submissions() -> None:
    """However many pass and wait: a submission goes at once, and the next passing one only when one of them is over."""
    gates = [asyncio.Event() for _ in range(7)]
    async with ScriptedNode(*([gate, PLAIN] for gate in gates)) as node, pool_to(node.url, max_connections=8) as pool:
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
    gates = [asyncio.Event() for _ in range(2)]
    async with ScriptedNode(*([gate, PLAIN] for gate in gates)) as node, pool_to(node.url, max_connections=2) as pool:
        running = [send(pool, submission=True) for _ in gates]
        await node.has_received(2)
        order = []

        class Place(Recorder):
            def answered(self, head: Head, body: bytes) -> None:
                order.append(self.name)
                super().answered(head, body)

            name = ""

        waiting = [Place(), Place(), Place()]
        for sink, name, submission in zip(
            waiting, ("pass", "submission", "pass too"), (False, True, False), strict=True
        ):
            sink.name = name
            pool.send(b"{}", sink, submission=submission)
        gates[0].set()
        for sink in (running[0], *waiting):
            await sink.end()
        assert order == ["pass", "submission", "pass too"]
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
            await node.until(lambda node=node: node.open == 0)  # type: ignore[misc]
            await send(pool).end()
            assert node.connections == 2


@both_loops
async def test_bytes_on_an_idle_connection_close_it() -> None:
    """Nobody asked for them, so the next answer could be another's."""
    gate = asyncio.Event()
    async with ScriptedNode([PLAIN, gate, PLAIN]) as node, pool_to(node.url) as pool:
        await send(pool).end()
        gate.set()
        await node.until(lambda: node.open == 0)
        assert (await send(pool).end()).said == ["answered"]
        assert node.connections == 2


# no connection


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
        assert "2 busy and 0 being opened of 2 ([upstream] max_connections" in hasty.failure.detail  # type: ignore[union-attr]
        assert (patient.failure, pool.waiting) == (None, 1)


@both_loops
async def test_a_refused_connection_fails_everyone_only_if_none_stands() -> None:
    """While others are in use, only the one it was opened for hears of it; the rest may still get one of those."""
    gate = asyncio.Event()
    async with ScriptedNode([gate, PLAIN]) as node, pool_to(node.url, max_connections=3) as pool:
        running = send(pool, submission=True)
        await node.has_received(1)
        node.stop_listening()
        unlucky = send(pool)
        await unlucky.end()
        assert lack(unlucky) is Lack.UNREACHABLE
        gate.set()
        await running.end()
        await send(pool).end()
        assert pool.reachable is False
        node.scripts.append([CLOSE])
        await send(pool).end()
        orphans = [send(pool) for _ in range(9)]
        assert {lack(await orphan.end()) for orphan in orphans} == {Lack.UNREACHABLE}
        assert (pool.waiting, pool.opening) == (0, 0)


# no answer


@pytest.mark.parametrize("answer", [[HANG], [PLAIN[:30], HANG]], ids=["silent", "half a head"])
@pytest.mark.parametrize("submission", [True, False])
@both_loops
async def test_an_answer_that_does_not_begin_in_time(answer: list[bytes], submission: bool) -> None:
    """Half a head is no progress. The connection is closed: what comes late belongs to nobody."""
    clock = Clock()
    async with ScriptedNode(answer) as node, pool_to(node.url, clock) as pool:
        heard = send(pool, submission=submission, timeout_s=2)
        await node.has_received(1)
        clock.now += 1.9
        pool.sweep()
        assert heard.said == []
        clock.now += 0.1
        pool.sweep()
        assert lack(await heard.end()) is Lack.TIMED_OUT
        await node.until(lambda: node.open == 0)


@both_loops
async def test_a_body_that_comes_slowly_is_awaited_unless_it_is_a_submissions() -> None:
    """Each piece gives a passed-through answer its whole time again; a submission has one budget for all."""
    for submission in (False, True):
        clock, gates = Clock(), [asyncio.Event() for _ in range(3)]
        steps = [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", gates[0], b"abc", gates[1], b"def", gates[2], b"ghi"]
        async with ScriptedNode(steps) as node, pool_to(node.url, clock) as pool:
            pieces: asyncio.Queue[int] = asyncio.Queue()

            class Counting(Recorder):
                def began(self, head: Head, length: int | None) -> None:
                    super().began(head, length)
                    self.pieces.put_nowait(0)

                def more(self, chunk: bytes) -> None:
                    super().more(chunk)
                    self.pieces.put_nowait(len(chunk))

            Counting.pieces = pieces  # type: ignore[attr-defined]
            heard = Counting()
            pool.send(b"{}", heard, submission=submission, timeout_s=2)
            for gate in gates[:2]:
                await pieces.get()
                clock.now += 1.5
                pool.sweep()
                gate.set()
            if not submission:
                await pieces.get()
                clock.now += 2
                pool.sweep()
            await heard.end()
            assert lack(heard) is Lack.TIMED_OUT
            assert heard.body == (b"abc" if submission else b"abcdef")


@both_loops
async def test_while_the_client_does_not_read_the_nodes_time_stands_still() -> None:
    """A paused exchange is the client's delay; once it reads again, the node has its whole time."""
    clock = Clock()
    async with ScriptedNode([PLAIN[:-2], HANG]) as node, pool_to(node.url, clock) as pool:
        heard = Recorder()
        exchange = pool.send(b"{}", heard, timeout_s=2)
        await node.has_received(1)
        exchange.pause()
        clock.now += 100
        pool.sweep()
        exchange.resume()
        clock.now += 1.9
        pool.sweep()
        assert heard.failure is None
        clock.now += 0.1
        pool.sweep()
        assert lack(await heard.end()) is Lack.TIMED_OUT


# a connection that died while it was idle


async def two_idle(node: ScriptedNode, pool: Pool) -> None:
    """Bring two connections about."""
    gates = [asyncio.Event(), asyncio.Event()]
    node.scripts.extend([gate, PLAIN] for gate in gates)
    heard = [send(pool), send(pool)]
    await node.has_received(2)
    for gate, sink in zip(gates, heard, strict=True):
        gate.set()
        await sink.end()


@pytest.mark.parametrize("end", [CLOSE, RESET])
@both_loops
async def test_a_stale_connection_is_made_up_for_once(end: object) -> None:
    """A repeatable request goes out once more, on a fresh connection and not on another idle one."""
    async with ScriptedNode() as node, pool_to(node.url) as pool:
        await two_idle(node, pool)
        node.scripts.extend([[end], [PLAIN]])  # type: ignore[list-item]
        heard = Recorder()
        pool.send(b"{}", heard, repeatable=lambda: True)
        assert (await heard.end()).body == b"plain"
        assert [seen.connection for seen in node.received[2:]] == [1, 2]


@both_loops
async def test_a_second_loss_is_a_loss() -> None:
    """The fresh connection dies too: no third try."""
    async with ScriptedNode([PLAIN], [CLOSE], [CLOSE]) as node, pool_to(node.url) as pool:
        await send(pool).end()
        heard = Recorder()
        pool.send(b"{}", heard, repeatable=lambda: True)
        assert lack(await heard.end()) is Lack.CUT_OFF
        assert len(node.received) == 3


@both_loops
async def test_sent_once_is_never_called_unsent() -> None:
    """The node is gone when the request shall go out again: it was sent before, so this proves nothing."""
    async with ScriptedNode([PLAIN], [CLOSE]) as node, pool_to(node.url) as pool:
        await send(pool).end()
        node.stop_listening()
        heard = Recorder()
        pool.send(b"{}", heard, repeatable=lambda: True)
        assert lack(await heard.end()) is Lack.CUT_OFF
        assert (pool.busy, pool.idle, pool.opening, pool.passing) == (0, 0, 0, 0)


NEVER_REPEATED = {
    "nobody said it may be": ({}, [CLOSE]),
    "it may not": ({"repeatable": lambda: False}, [CLOSE]),
    "a submission": ({"repeatable": lambda: True, "submission": True}, [CLOSE]),
    "a byte of an answer came": ({"repeatable": lambda: True}, [b"H", CLOSE]),
    "an interim answer came": ({"repeatable": lambda: True}, [b"HTTP/1.1 100 Continue\r\n\r\n", CLOSE]),
}


@pytest.mark.parametrize("why", NEVER_REPEATED)
@both_loops
async def test_what_is_not_sent_again(why: str) -> None:
    """The node sees it once, and the sink hears that it was cut off."""
    terms, ending = NEVER_REPEATED[why]
    async with ScriptedNode([PLAIN], ending) as node, pool_to(node.url) as pool:  # type: ignore[arg-type]
        await send(pool).end()
        heard = Recorder()
        pool.send(b"{}", heard, **terms)  # type: ignore[arg-type]
        assert lack(await heard.end()) is Lack.CUT_OFF
        assert len(node.received) == 2


@both_loops
async def test_a_fresh_connection_is_not_stale() -> None:
    """It ends without an answer: the node may well have acted."""
    async with ScriptedNode([CLOSE]) as node, pool_to(node.url) as pool:
        heard = Recorder()
        pool.send(b"{}", heard, repeatable=lambda: True)
        assert lack(await heard.end()) is Lack.CUT_OFF
        assert len(node.received) == 1


# the last word before the write


@both_loops
async def test_a_request_taken_back_before_the_write_is_not_written() -> None:
    """Asked when the connection is there, not when it is sent; the connection serves the next."""
    gate, mine = asyncio.Event(), True
    async with ScriptedNode([gate, PLAIN]) as node, pool_to(node.url, max_connections=2) as pool:
        for _ in range(2):
            node.scripts.append([HANG])
        first = send(pool, submission=True)
        send(pool, submission=True)
        await node.has_received(2)
        lost, next_ = Recorder(), Recorder()
        pool.send(b"lost", lost, submission=True, before_write=lambda: mine)
        pool.send(b"next", next_, submission=True, before_write=lambda: not mine)
        mine = False
        node.scripts.clear()
        gate.set()
        await first.end()
        assert (lack(await lost.end()), (await next_.end()).body) == (Lack.UNREACHABLE, b"plain")
        assert [seen.body for seen in node.received[2:]] == [b"next"]


@both_loops
async def test_a_no_on_an_open_connection_is_heard_after_send_has_returned() -> None:
    """A sender has its exchange in hand before its sink is called; nothing is counted as the node's failure."""
    async with ScriptedNode() as node:
        metrics = Metrics()
        pool = Pool(Upstream(url=node.url), metrics, lambda *_: None)
        await send(pool).end()
        heard = Recorder()
        pool.send(b"{}", heard, before_write=lambda: False)
        assert heard.said == []
        assert lack(await heard.end()) is Lack.UNREACHABLE
        assert (len(node.received), pool.idle, pool.passing) == (1, 1, 0)
        assert sum(cell.n for cell in metrics.upstream_errors.cells.values()) == 0
        await pool.close()


# backpressure


@both_loops
async def test_a_hundred_megabytes_for_a_client_that_stops_reading() -> None:
    """While paused nothing is handed on and the node is held up; then all of it arrives, in order."""
    size, piece = 100_000_000, bytes(range(256)) * 256
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size

    class Slow(Recorder):
        exchange: Exchange
        got = 0
        paused = False

        def more(self, chunk: bytes) -> None:
            assert not self.paused
            start = self.got % len(piece)
            assert (piece * (len(chunk) // len(piece) + 2))[start : start + len(chunk)] == chunk
            before, self.got = self.got, self.got + len(chunk)
            if before // 10_000_000 != self.got // 10_000_000:
                self.exchange.pause()
                self.paused = True
                stopped.set()

    stopped = asyncio.Event()
    async with ScriptedNode([head, Flood(size)]) as node, pool_to(node.url) as pool:
        heard = Slow()
        heard.said.append("more")
        heard.exchange = pool.send(b"{}", heard)
        heard.said.clear()
        pauses = 0
        while heard.got < size:
            await stopped.wait()
            stopped.clear()
            pauses += 1
            await send(pool).end()
            assert node.flooded - heard.got < 30_000_000
            heard.paused = False
            heard.exchange.resume()
        await heard.end()
        assert (heard.got, pauses) == (size, 10)
        await send(pool).end()
        assert node.connections == 2


@both_loops
async def test_an_answer_before_the_request_is_out_costs_the_connection() -> None:
    """The node answers without reading: what it has not taken must not meet the next request."""
    async with ScriptedNode() as node, pool_to(node.url) as pool:
        node.reads_bodies = False
        node.scripts.append([PLAIN, HANG])
        heard = Recorder()
        pool.send(b"a" * 30_000_000, heard)
        assert (await heard.end()).body == b"plain"
        assert pool.idle == 0


# senders that go away or break


@both_loops
async def test_an_abandoned_request_leaves_no_trace() -> None:
    """In the queue it is taken out; in flight its connection is closed; the sink hears nothing, and others go on."""
    async with ScriptedNode([HANG], [HANG]) as node, pool_to(node.url, max_connections=2) as pool:
        flying, waiting, later = Recorder(), Recorder(), Recorder()
        first = pool.send(b"first", flying)
        await node.has_received(1)
        second = pool.send(b"second", waiting)
        pool.send(b"later", later)
        node.scripts.clear()
        second.abandon()
        first.abandon()
        first.abandon()
        assert (await later.end()).body == b"plain"
        assert (flying.said, waiting.said) == ([], [])
        assert [seen.body for seen in node.received] == [b"first", b"later"]
        for exchange in (first, second):
            exchange.pause()
            exchange.resume()
        assert (pool.idle, pool.passing) == (1, 0)


@pytest.mark.parametrize("word", ["began", "more"])
@both_loops
async def test_abandoned_in_the_middle_of_an_answer(word: str) -> None:
    """From within the sink's own method: not a further word."""

    class Leaving(Recorder):
        exchange: Exchange

        def _say(self, said: str, *, after: tuple[str, ...], first: bool = False) -> None:
            super()._say(said, after=after, first=first)
            if said == word:
                self.exchange.abandon()
                self.over.set()

    async with ScriptedNode([PLAIN[:-2], HANG]) as node, pool_to(node.url) as pool:
        heard = Leaving()
        heard.exchange = pool.send(b"{}", heard)
        await heard.end()
        await node.until(lambda: node.open == 0)
        assert heard.said == ["began", "more"][: ["began", "more"].index(word) + 1]
        assert (await send(pool).end()).body == b"plain"


BROKEN_SINKS = {
    "answered": ([PLAIN], ["answered"]),
    "began": ([PLAIN[:-2], HANG], ["began", "failed"]),
    "more": ([PLAIN[:-2], HANG], ["began", "more", "failed"]),
    "ended": ([b"HTTP/1.1 200 OK\r\n\r\nhello", CLOSE], ["began", "more", "ended"]),
    "failed": ([CLOSE], ["failed"]),
}


@pytest.mark.parametrize("word", BROKEN_SINKS)
@both_loops
async def test_a_sink_that_raises_breaks_nothing_else(word: str) -> None:
    """It is reported; an answer that was not complete is failed and its connection closed; the pool goes on."""

    class Broken(Recorder):
        def _say(self, said: str, *, after: tuple[str, ...], first: bool = False) -> None:
            super()._say(said, after=after, first=first)
            if said == word:
                self.over.set()
                raise ZeroDivisionError(said)

    script, said = BROKEN_SINKS[word]
    async with ScriptedNode(script) as node:  # type: ignore[arg-type]
        faults: list[str] = []
        pool = Pool(Upstream(url=node.url), Metrics(), lambda name, fault: faults.append(f"{name} {fault!r}"))
        heard = Broken()
        pool.send(b"{}", heard)
        await heard.end()
        assert (await send(pool).end()).body == b"plain"
        assert heard.said == said
        assert faults == [f"upstream.sink ZeroDivisionError('{word}')"]
        assert pool.passing == 0
        await pool.close()


@both_loops
async def test_a_sender_whose_question_raises_is_told_no() -> None:
    """A question that raises is a no, and reported."""
    async with ScriptedNode([PLAIN], [CLOSE]) as node:
        faults: list[str] = []
        pool = Pool(Upstream(url=node.url), Metrics(), lambda name, _: faults.append(name))
        unwritten, unrepeated = Recorder(), Recorder()
        pool.send(b"{}", unwritten, before_write=lambda: bool(1 // 0))
        assert lack(await unwritten.end()) is Lack.UNREACHABLE
        await send(pool).end()
        pool.send(b"{}", unrepeated, repeatable=lambda: bool(1 // 0))
        assert lack(await unrepeated.end()) is Lack.CUT_OFF
        assert faults == ["upstream.sender"] * 2
        await pool.close()


@both_loops
async def test_a_sink_may_send_from_within_its_own_answer() -> None:
    """The connection is free by then: the next one uses it."""

    class Chain(Recorder):
        rest = 20

        def answered(self, head: Head, body: bytes) -> None:
            self.rest -= 1
            if self.rest:
                pool.send(b"{}", self)
            else:
                super().answered(head, body)

    async with ScriptedNode() as node, pool_to(node.url) as pool:
        heard = Chain()
        pool.send(b"{}", heard)
        await heard.end()
        assert (node.connections, len(node.received)) == (1, 20)


# the end


@both_loops
async def test_close_ends_everything_and_may_be_called_twice() -> None:
    """What waits was not sent, what is in flight is cut off, what comes later is refused, and no socket is left."""
    async with ScriptedNode([HANG], [HANG]) as node, pool_to(node.url, max_connections=2) as pool:
        flying = [send(pool, submission=True) for _ in range(2)]
        await node.has_received(2)
        waiting = send(pool)
        await asyncio.gather(pool.close(), pool.close())
        late = send(pool)
        assert late.said == []
        await late.end()
        await node.until(lambda: node.open == 0)
        assert [lack(one) for one in (*flying, waiting, late)] == [
            Lack.CUT_OFF, Lack.CUT_OFF, Lack.UNREACHABLE, Lack.UNREACHABLE,
        ]  # fmt: skip
        assert (pool.idle, pool.busy, pool.opening, pool.waiting) == (0, 0, 0, 0)


@both_loops
async def test_close_while_connections_are_being_made() -> None:
    """The attempts end, those they were for hear it."""
    async with ScriptedNode() as node, pool_to(node.url.replace("http", "https"), connect_timeout_s=60) as pool:
        heard = send(pool)
        await node.until(lambda: node.open == 1)
        assert pool.opening == 1
        await pool.close()
        assert (lack(heard), pool.opening) == (Lack.UNREACHABLE, 0)


@both_loops
async def test_what_is_counted() -> None:
    """Each failure under its reason, the connections by state; and whether the last attempt reached the node."""
    metrics, clock = Metrics(), Clock()
    async with ScriptedNode([CLOSE], [b"SSH-2.0"], [HANG]) as node:
        pool = Pool(Upstream(url=node.url), metrics, lambda *_: None, clock=clock)
        assert pool.reachable is None
        await send(pool).end()
        await send(pool).end()
        slow = send(pool)
        await node.has_received(3)
        assert pool.reachable is True
        gauge = {tuple(s.labels.values()): s.value for s in metrics.upstream_connections.collect().samples}
        assert gauge == {("idle",): 0, ("busy",): 1, ("opening",): 0}
        clock.now += 30
        pool.sweep()
        await slow.end()
        node.stop_listening()
        await send(pool).end()
        assert pool.reachable is False
        counts = {key[0]: cell.n for key, cell in metrics.upstream_errors.cells.items()}
        assert counts == {"unreachable": 1, "timed_out": 1, "cut_off": 1, "unusable": 1}
        await pool.close()


@both_loops
async def test_the_clock_is_looked_at_without_being_asked() -> None:
    """The one test that waits for the tick: a deadline comes true by itself."""
    async with ScriptedNode([HANG]) as node, pool_to(node.url) as pool:
        assert lack(await send(pool, timeout_s=0.1).end()) is Lack.TIMED_OUT


def test_a_failure_is_a_value() -> None:
    """Two of the same are equal."""
    assert Failure(Lack.CUT_OFF, "a") == Failure(Lack.CUT_OFF, "a")
