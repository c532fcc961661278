"""Senders and sinks: the last word before the write, backpressure, those who go away, those who raise."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from relay.config import Upstream
from relay.telemetry.metrics import Metrics
from relay.upstream.exchange import Head, Lack
from relay.upstream.pool import Pool
from tests.scripted_node import (
    CLOSE,
    HANG,
    PLAIN,
    Flood,
    Recorder,
    ScriptedNode,
    both_loops,
    lack,
    pool_to,
    send,
    under_way,
)

if TYPE_CHECKING:
    from relay.upstream.exchange import Exchange
    from tests.scripted_node import Step


@both_loops
async def test_a_request_taken_back_before_the_write_is_not_written() -> None:
    """Asked when the connection is there, not when it is sent; the connection serves the next."""
    gate, mine = asyncio.Event(), True
    async with ScriptedNode([gate, PLAIN], [HANG]) as node, pool_to(node.url, max_connections=2) as pool:
        first, _ = await under_way(node, pool, 2, submission=True)
        lost, next_ = Recorder(), Recorder()
        pool.send(b"lost", lost, submission=True, before_write=lambda: mine)
        pool.send(b"next", next_, submission=True, before_write=lambda: not mine)
        mine = False
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


@both_loops
async def test_a_repeat_taken_back_is_not_called_unsent() -> None:
    """It was written once; the second time its sender says no."""
    async with ScriptedNode([PLAIN], [CLOSE]) as node, pool_to(node.url) as pool:
        await send(pool).end()
        heard, words = Recorder(), [False, True]
        pool.send(b"{}", heard, repeatable=lambda: True, before_write=words.pop)
        assert lack(await heard.end()) is Lack.CUT_OFF
        assert (len(node.received), pool.idle, pool.passing) == (2, 1, 0)


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
async def test_an_answer_that_ends_while_paused_leaves_the_connection_readable() -> None:
    """Bytes already decrypted come in spite of the pause; the next answer on this connection must come too."""

    class Pausing(Recorder):
        exchange: Exchange

        def began(self, head: Head, length: int | None) -> None:
            super().began(head, length)
            self.exchange.pause()
            self.over.set()

    async with ScriptedNode([PLAIN[:-2]]) as node, pool_to(node.url) as pool:
        heard = Pausing()
        heard.exchange = pool.send(b"{}", heard)
        await heard.end()
        (connection,) = pool._open
        connection.data_received(PLAIN[-2:])
        assert heard.said == ["began", "more", "more", "ended"]
        assert (await send(pool).end()).body == b"plain"
        assert node.connections == 1


@both_loops
async def test_an_answer_before_the_request_is_out_costs_the_connection() -> None:
    """The node answers without reading: what it has not taken must not meet the next request."""
    async with ScriptedNode() as node, pool_to(node.url) as pool:
        node.reads_bodies = False
        node.scripts.append([PLAIN, HANG])
        heard = Recorder()
        pool.send(b"a" * 30_000_000, heard)
        assert (await heard.end()).body == b"plain"
        await pool._empty.wait()


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
        await node.has_open(0)
        assert heard.said == ["began", "more"][: ["began", "more"].index(word) + 1]
        assert (await send(pool).end()).body == b"plain"


BROKEN_SINKS: dict[str, tuple[list[Step], list[str]]] = {
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
    async with ScriptedNode(script) as node:
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
