"""How connections end: clients that go, too many of them, draining, faults of ours."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from relay.ingress import limits
from relay.router import Answer
from relay.upstream.exchange import Failure, Head, Lack
from tests.ingress_rig import (
    GET,
    RESULT,
    UPSTREAM_HEAD,
    Rig,
    Wire,
    on_each_loop,
    post,
    serving,
    turns,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# Clients that go.


@on_each_loop
async def test_a_client_that_goes_gives_its_passed_call_up() -> None:
    """Reset, closed or half-closed, before or amid the answer: the upstream is told, late words are harmless."""
    for leave in (Wire.reset, Wire.close, Wire.finish):
        for begun in (False, True):
            async with serving() as rig:
                rig.upstream.hold()
                wire, sent = await rig.asked(post() + post())
                if begun:
                    sent.sink.began(UPSTREAM_HEAD, 1 << 30)
                    sent.sink.more(b"x" * 10)
                leave(wire)
                await sent.given_up.wait()
                await turns()
                assert rig.server.connections == 0
                sent.sink.answered(UPSTREAM_HEAD, RESULT)
                sent.sink.more(b"late")
                sent.sink.ended()
                sent.fail(Failure(Lack.CUT_OFF, "late"))
                assert len(rig.upstream.sent) == 1
                assert rig.count("pass", "gone") == 1
                assert rig.count("pass", "failed") == 0


@on_each_loop
async def test_a_client_that_goes_leaves_its_submission() -> None:
    """A future of the router is only forgotten: its ticket belongs to the lane (G8)."""
    async with serving() as rig:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        arrived = asyncio.Event()

        def decide(_: bytes) -> asyncio.Future[Answer]:
            arrived.set()
            return future

        rig.routes.decide = decide
        wire = await rig.wire()
        await wire.send(post())
        await arrived.wait()
        wire.reset()
        while rig.server.connections:
            await turns()
        assert not future.cancelled()
        future.set_result(Answer(200, RESULT))
        await turns()
        assert rig.count("submission", "gone") == 1


@on_each_loop
async def test_a_client_that_sends_on_behind_its_last_request() -> None:
    """Closing over bytes that still come would reset, and may cost the client its answer: they are read."""
    async with serving() as rig:
        wire = await rig.wire()
        await wire.send(post("Connection: close") + b"POST")
        assert (await wire.reply()).body == RESULT
        assert await wire.ended()
        await turns()
        assert rig.server.connections == 1
        wire.close()
        while rig.server.connections:
            await turns()


@on_each_loop
async def test_too_many_connections() -> None:
    """Beyond max_connections a client is told so and closed; when one goes, the next is taken."""
    async with serving(max_connections=2) as rig:
        first, second = await rig.wire(), await rig.wire()
        for wire in (first, second):
            await wire.send(post())
            await wire.reply()
        third = await rig.wire()
        await third.send(post())
        reply = await third.reply()
        assert (reply.status, reply.error["code"], reply.headers["retry-after"]) == (503, -32005, "1")
        assert reply.headers["access-control-allow-origin"] == "*"
        assert await third.ended()
        third.close()
        first.close()
        while rig.server.connections > 1:
            await turns()
        assert (await rig.ask(post())).status == 200


@on_each_loop
async def test_far_too_many_connections() -> None:
    """What a flood of clients beyond the limit can hold is bounded: the rest is cut without a word."""
    async with serving(max_connections=1) as rig:
        wires = [await rig.wire() for _ in range(limits.MAX_TURNED_AWAY + 20)]
        await turns(20)
        assert rig.server.connections <= limits.MAX_TURNED_AWAY + 1
        assert await wires[-1].ended()


# Drain.


def drain(rig: Rig, seconds: float = 60) -> asyncio.Task[None]:
    """Begin to drain."""
    return asyncio.get_running_loop().create_task(rig.server.drain(rig.clock.now + seconds))


@on_each_loop
async def test_draining_answers_what_is_in_work() -> None:
    """Idle connections close, those in work are answered and then close, whole or streamed; then the drain is over."""
    async with serving() as rig:
        rig.upstream.hold()
        idle = await rig.wire()
        wire, whole = await rig.asked(post() + post(body=b"behind"))
        slow, streamed = await rig.asked(post())
        streamed.sink.began(UPSTREAM_HEAD, None)
        draining = drain(rig)
        assert await idle.ended()
        whole.answer()
        reply = await wire.reply()
        assert (reply.body, reply.headers["connection"]) == (RESULT, "close")
        assert await wire.ended()
        wire.close()
        assert not draining.done()
        streamed.sink.more(RESULT)
        streamed.sink.ended()
        assert (await slow.reply()).body == RESULT
        assert await slow.ended()
        await draining
        assert len(rig.upstream.sent) == 2
        with pytest.raises(ConnectionRefusedError):
            await rig.wire()


async def told_that_it_drains(wire: Wire) -> None:
    """Read the refusal, and the end."""
    reply = await wire.reply()
    assert (reply.status, reply.error["code"], reply.headers["connection"]) == (503, -32012, "close")
    assert await wire.ended()
    wire.close()


@on_each_loop
async def test_draining_refuses_what_is_not_complete() -> None:
    """A request that becomes complete in the drain hears that nothing was sent."""
    async with serving() as rig:
        for cut in (20, -5):
            wire = await rig.wire()
            await wire.send(post()[:cut])
            await turns()
            draining = drain(rig)
            await turns()
            await wire.send(post()[cut:])
            await told_that_it_drains(wire)
            await draining
            assert not rig.upstream.sent
            rig.server._shared.draining = False
            rig.place = await rig.server.start(("127.0.0.1", 0))


@on_each_loop
async def test_draining_reads_what_stands_in_the_kernel() -> None:
    """A request that arrived unread in the instant of the drain is refused by an answer, not by a reset."""
    async with serving() as rig:
        wire = await rig.wire()
        await turns()
        told = asyncio.get_running_loop().create_task(told_that_it_drains(wire))
        await turns()
        await wire.send(GET)
        await rig.server.drain(rig.clock.now + 60)
        await told


@on_each_loop
async def test_draining_ends_at_its_deadline() -> None:
    """What is not finished then is cut, and the upstream is told."""
    async with serving() as rig:
        rig.upstream.hold()
        wire, sent = await rig.asked(post())
        await drain(rig, seconds=0)
        assert sent.abandoned
        assert await wire.ended()


# Retiring: another process has the listening socket.


@on_each_loop
async def test_retiring_answers_what_still_comes() -> None:
    """On open connections requests are answered as ever, the last time with ``Connection: close``; new clients find
    nobody here."""
    async with serving() as rig:
        kept, preflight = await rig.wire(), await rig.wire()
        await kept.send(post())
        assert "connection" not in (await kept.reply()).headers
        retiring = asyncio.get_running_loop().create_task(rig.server.retire(rig.clock.now + 60))
        await turns()
        await kept.send(post())
        reply = await kept.reply()
        assert (reply.status, reply.body, reply.headers["connection"]) == (200, RESULT, "close")
        await preflight.send(b"OPTIONS / HTTP/1.1\r\nHost: relay\r\n\r\n")
        assert (await preflight.reply()).headers["connection"] == "close"
        assert await kept.ended()
        assert await preflight.ended()
        await retiring
        with pytest.raises(ConnectionRefusedError):
            await rig.wire()


@on_each_loop
async def test_retiring_half_closes_who_stays_idle() -> None:
    """After a moment to send one more request; what comes too late meets the end of the stream, not a reset."""
    async with serving() as rig:
        wire = await rig.wire()
        await turns()
        retiring = asyncio.get_running_loop().create_task(rig.server.retire(rig.clock.now + 60))
        await turns()
        rig.server.sweep()
        assert len(rig.server._shared.open) == 1
        rig.clock.now += limits.RETIRED_IDLE_S
        rig.server.sweep()
        await wire.send(post())
        assert await wire.ended()
        assert not rig.upstream.sent
        rig.server.sweep()
        rig.clock.now += limits.LINGER_S
        rig.server.sweep()
        await retiring


# Faults of ours.


@on_each_loop
async def test_a_fault_of_the_router_is_an_answer_and_a_report() -> None:
    """A router that raises, at once or in its future, gives -32603 at 200 under the call's id; the client goes on."""

    def raises(_: bytes) -> Answer:
        raise ZeroDivisionError

    def fails(_: bytes) -> asyncio.Future[Answer]:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        future.set_exception(ZeroDivisionError())
        return future

    def cancels(_: bytes) -> asyncio.Future[Answer]:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        future.cancel()
        return future

    ways: list[Callable[[bytes], Answer | asyncio.Future[Answer]]] = [raises, fails, cancels]
    async with serving() as rig:
        wire = await rig.wire()
        for way in ways:
            rig.routes.decide = way
            await wire.send(post(body=b'{"id":5,"method":"m"}'))
            reply = await wire.reply()
            assert (reply.status, reply.error["code"], json.loads(reply.body)["id"]) == (200, -32603, 5)
            assert len(rig.faults) == 1
            rig.faults.clear()


@on_each_loop
async def test_a_fault_in_a_callback_ends_one_connection() -> None:
    """Whatever goes wrong while an answer is written is reported; the caller never sees it, the client sees a cut."""
    async with serving() as rig:
        rig.upstream.hold()
        nonsense: Any = Head(200, "no bytes", b"")  # type: ignore[arg-type] # this is the fault
        wire, sent = await rig.asked(post())
        sent.sink.answered(nonsense, RESULT)
        assert await wire.ended()
        wire, sent = await rig.asked(post())
        sent.sink.began(nonsense, None)
        assert await wire.ended()
        assert sent.abandoned
        assert [type(fault) for fault in rig.faults] == [TypeError, TypeError]
        rig.faults.clear()


@on_each_loop
async def test_a_fault_of_the_sender_and_of_the_question() -> None:
    """A sender that raises is a fault of ours; a router that cannot say whether a body may be repeated means no."""
    async with serving() as rig:

        def undecided(*_: object, **__: object) -> bool:
            raise ZeroDivisionError

        rig.upstream.hold()
        _, sent = await rig.asked(post())
        rig.routes.repeatable = undecided  # type: ignore[method-assign] # the fault
        assert sent.repeatable is not None
        assert not sent.repeatable()
        sent.answer()
        rig.server._shared.sender.send = undecided  # type: ignore[assignment] # the fault
        assert (await rig.ask(post())).error["code"] == -32603
        assert len(rig.faults) == 2
        rig.faults.clear()
