"""What becomes of a request whose answer does not come, or whose connection had died before."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from relay.upstream.exchange import Head, Lack
from tests.scripted_node import (
    CLOSE,
    HANG,
    PLAIN,
    RESET,
    Clock,
    Recorder,
    ScriptedNode,
    both_loops,
    lack,
    pool_to,
    send,
    two_idle,
    under_way,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.scripted_node import End, Step


@pytest.mark.parametrize("answer", [[HANG], [PLAIN[:30], HANG]], ids=["silent", "half a head"])
@pytest.mark.parametrize("submission", [True, False])
@both_loops
async def test_an_answer_that_does_not_begin_in_time(answer: list[Step], submission: bool) -> None:
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
        await node.has_open(0)


class Counting(Recorder):
    """Tells of each piece."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: asyncio.Queue[int] = asyncio.Queue()

    def began(self, head: Head, length: int | None) -> None:
        """The head is a piece too."""
        super().began(head, length)
        self.pieces.put_nowait(0)

    def more(self, chunk: bytes) -> None:
        """A piece of the body."""
        super().more(chunk)
        self.pieces.put_nowait(len(chunk))


@both_loops
async def test_a_body_that_comes_slowly_is_awaited_unless_it_is_a_submissions() -> None:
    """Each piece gives a passed-through answer its whole time again; a submission has one budget for all."""
    for submission in (False, True):
        clock, gates = Clock(), [asyncio.Event() for _ in range(3)]
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"
        steps: list[Step] = [head, gates[0], b"abc", gates[1], b"def", gates[2], b"ghi"]
        async with ScriptedNode(steps) as node, pool_to(node.url, clock) as pool:
            heard = Counting()
            pool.send(b"{}", heard, submission=submission, timeout_s=2)
            for gate in gates[:2]:
                await heard.pieces.get()
                clock.now += 1.5
                pool.sweep()
                gate.set()
            if not submission:
                await heard.pieces.get()
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
        exchange.resume()
        clock.now += 0.1
        pool.sweep()
        assert lack(await heard.end()) is Lack.TIMED_OUT


@both_loops
async def test_paused_before_its_turn_is_paused() -> None:
    """A client that does not read already while its request waits gets its answer when it reads."""
    gate = asyncio.Event()
    async with ScriptedNode([gate, PLAIN]) as node, pool_to(node.url, max_connections=2) as pool:
        (first,) = await under_way(node, pool, 1)
        heard = Recorder()
        exchange = pool.send(b"{}", heard)
        exchange.pause()
        gate.set()
        await first.end()
        await node.until(lambda: node.played == 2)
        await send(pool, submission=True).end()
        assert heard.said == []
        exchange.resume()
        assert (await heard.end()).body == b"plain"


@pytest.mark.parametrize("end", [CLOSE, RESET])
@both_loops
async def test_a_stale_connection_is_made_up_for_once(end: End) -> None:
    """A repeatable request goes out once more, on a fresh connection and not on another idle one."""
    async with ScriptedNode() as node, pool_to(node.url) as pool:
        await two_idle(node, pool)
        node.scripts.extend([[end], [PLAIN]])
        heard = Recorder()
        pool.send(b"{}", heard, repeatable=lambda: True)
        assert (await heard.end()).body == b"plain"
        assert [seen.connection for seen in node.received[2:]] == [1, 2]
        assert pool.passing == 0


@pytest.mark.parametrize("way", ["overdue", "abandoned", "closed"])
@both_loops
async def test_a_repeat_that_ends_before_it_has_its_connection(way: str) -> None:
    """Too late, not wanted any more, or the pool is closed: it is not sent again, and no place is lost."""
    clock, gate = Clock(), asyncio.Event()
    async with ScriptedNode([PLAIN], [CLOSE]) as node, pool_to(node.url, clock) as pool:
        await send(pool).end()
        connect = pool.endpoint.connect

        async def gated_connect(factory: Callable[[], Any]) -> Any:
            await gate.wait()
            return await connect(factory)

        pool.endpoint.connect = gated_connect  # type: ignore[method-assign] # behaviour of this test
        heard, asked = Recorder(), asyncio.Event()

        def may_be() -> bool:
            asked.set()
            return True

        exchange = pool.send(b"{}", heard, repeatable=may_be)
        await asked.wait()
        assert pool.opening == 1
        if way == "overdue":
            clock.now += 30
            pool.sweep()
        elif way == "abandoned":
            exchange.abandon()
        else:
            await pool.close()
        gate.set()
        await pool._tasks.settled()
        assert lack(heard) is {"overdue": Lack.TIMED_OUT, "abandoned": None, "closed": Lack.CUT_OFF}[way]
        assert (len(node.received), pool.passing, pool.opening) == (2, 0, 0)
        assert pool.idle == (0 if way == "closed" else 1)


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


NEVER_REPEATED: dict[str, tuple[dict[str, Any], list[Step]]] = {
    "nobody said it may be": ({}, [CLOSE]),
    "it may not": ({"repeatable": lambda: False}, [CLOSE]),
    "a transaction": ({"submission": True}, [CLOSE]),
    "a byte of an answer came": ({"repeatable": lambda: True}, [b"H", CLOSE]),
    "an interim answer came": ({"repeatable": lambda: True}, [b"HTTP/1.1 100 Continue\r\n\r\n", CLOSE]),
}


@pytest.mark.parametrize("why", NEVER_REPEATED)
@both_loops
async def test_what_is_not_sent_again(why: str) -> None:
    """The node sees it once, and the sink hears that it was cut off."""
    terms, ending = NEVER_REPEATED[why]
    async with ScriptedNode([PLAIN], ending) as node, pool_to(node.url) as pool:
        await send(pool).end()
        heard = Recorder()
        pool.send(b"{}", heard, **terms)
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
