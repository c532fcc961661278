"""Clients that send or read too slowly, too much, or not at all."""

from __future__ import annotations

import asyncio

from relay.ingress import limits
from tests.ingress_rig import (
    GET,
    RESULT,
    UPSTREAM_HEAD,
    Sent,
    needs_a_loop_that_pauses,
    on_each_loop,
    post,
    serving,
    turns,
)

# Requests that come slowly, too large, or too many at once.


@on_each_loop
async def test_continue_is_said_once_and_only_if_it_is_waited_for() -> None:
    """100 comes before the body, not when it is there already, and not for a body that is not wanted."""
    async with serving(max_body_bytes=1024) as rig:
        wire = await rig.wire()
        head, _, body = post("Expect: 100-continue").partition(b"\r\n\r\n")
        await wire.send(head + b"\r\n\r\n")
        assert await wire._until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await wire.send(body[:5])
        await turns()
        await wire.send(body[5:])
        reply = await wire.reply()
        assert (reply.interim, reply.body) == (0, RESULT)
        await wire.send(head + b"\r\n\r\n" + body)
        assert (await wire.reply()).interim == 0
        old, _, body = post("Expect: 100-continue", version="1.0").partition(b"\r\n\r\n")
        wire = await rig.wire()
        await wire.send(old + b"\r\n\r\n")
        await turns()
        await wire.send(body)
        assert (await wire.reply()).interim == 0
        refused = await rig.ask(post("Expect: 100-continue", "Content-Length: 2000", length=False, body=b""))
        assert (refused.status, refused.interim) == (413, 0)


@on_each_loop
async def test_a_client_that_still_sends_receives_the_413() -> None:
    """6 MB against a limit of 1 MB: the client can send all of it and then reads the whole answer and the end."""
    async with serving(max_body_bytes=1 << 20) as rig:
        for request in (post(body=b"a" * 6_000_000), post("X: " + "a" * 6_000_000)):
            wire = await rig.wire()
            await wire.send(request)
            reply = await wire.reply()
            assert reply.status == (413 if request.endswith(b"a") else 431)
            assert reply.error["code"] == (-32021 if reply.status == 413 else -32600)
            assert reply.headers["connection"] == "close"
            assert await wire.ended()
        assert rig.count("refused", "answered") == 2


@on_each_loop
async def test_pipelined_requests_are_taken_one_after_another() -> None:
    """The second request reaches the router when the first is answered, and answers come in order."""
    async with serving() as rig:
        rig.upstream.hold()
        wire, first = await rig.asked(post(body=b"1") + GET + post(body=b"2") + post(body=b"3"))
        await turns()
        assert [sent.body for sent in rig.upstream.sent] == [b"1"]
        first.answer(b"one")
        second = await rig.upstream.arrived.get()
        assert second.body == b"2"
        second.answer(b"two")
        (await rig.upstream.arrived.get()).answer(b"three")
        bodies = [(await wire.reply()).body for _ in range(4)]
        assert [bodies[0], *bodies[2:]] == [b"one", b"two", b"three"]


@on_each_loop
async def test_a_client_that_sends_ahead_is_held() -> None:
    """Behind a request in work a bounded amount is read; all of it is answered afterwards."""
    ahead = 60
    async with serving() as rig:
        rig.upstream.hold()
        wire, first = await rig.asked(post())
        sending = asyncio.get_running_loop().create_task(wire.send(post(body=b"a" * 200_000) * ahead))
        await turns(200)
        assert not sending.done()
        connection = next(iter(rig.server._shared.open))
        assert limits.MAX_AHEAD < len(connection._incoming.waiting) < limits.MAX_AHEAD + (1 << 20)
        rig.upstream.script = Sent.answer
        first.answer()
        for _ in range(ahead + 1):
            assert (await wire.reply()).status == 200
        await sending


@on_each_loop
async def test_a_client_that_does_not_read_holds_the_upstream() -> None:
    """A 50 MB answer waits in the upstream, not in memory, until the client reads; then all of it arrives."""
    chunk, count = b"x" * 65_536, 800
    given = 0
    tasks = []

    async def give(sent: Sent) -> None:
        nonlocal given
        sent.sink.began(UPSTREAM_HEAD, len(chunk) * count)
        for _ in range(count):
            if sent.held():
                await sent.resumed.wait()
            sent.sink.more(chunk)
            given += 1
            await asyncio.sleep(0)
        sent.sink.ended()

    async with serving() as rig:
        rig.upstream.script = lambda sent: tasks.append(asyncio.get_running_loop().create_task(give(sent)))
        wire = await rig.wire(receive_buffer=65_536)
        await wire.send(post())
        sent = await rig.upstream.arrived.get()
        await turns(2000)
        assert sent.held()
        assert given < count // 2
        assert len((await wire.reply()).body) == len(chunk) * count
        assert not sent.held()
        await tasks[0]


@on_each_loop
async def test_a_client_that_does_not_read_gets_no_further_answers() -> None:
    """Pipelining without reading does not pile answers up in memory: nothing new is taken up meanwhile."""
    needs_a_loop_that_pauses()
    answer = b"x" * 1_000_000
    async with serving() as rig:
        rig.upstream.script = lambda sent: sent.answer(answer)
        wire = await rig.wire(receive_buffer=65_536)
        await wire.send(post() * 50)
        await turns(300)
        assert len(rig.upstream.sent) < 40
        for _ in range(50):
            assert (await wire.reply()).body == answer


# Time.


@on_each_loop
async def test_deadlines_of_a_client_that_stops() -> None:
    """Half a head is closed silently, half a body with 408, an idle connection silently; and none of them early."""
    head, body = b"POST / HTTP/1.1\r\nHo", post()[:-5]
    for part, seconds, status in ((head, limits.HEAD_S, None), (body, limits.BODY_S, 408), (b"", 90.0, None),
                                  (b"\r\n", 90.0, None), (post(), 90.0, None)):  # fmt: skip
        async with serving(keepalive_s=90) as rig:
            wire = await rig.wire()
            await wire.send(part)
            if part == post():
                await wire.reply()
            await turns()
            rig.pass_seconds(seconds - 0.1)
            await turns()
            assert rig.server.connections == 1
            rig.pass_seconds(0.1)
            if status is not None:
                reply = await wire.reply()
                assert (reply.status, reply.error["code"]) == (status, -32600)
            assert await wire.ended()


@on_each_loop
async def test_bytes_now_and_then_do_not_extend_a_deadline() -> None:
    """A head, and a body, is timed as a whole: dripping bytes does not keep a connection."""
    async with serving() as rig:
        for start, drip, seconds in (
            (b"POST / HTTP/1.1\r\n", b"X: y\r\n", limits.HEAD_S),
            (post()[:-50], b" ", limits.BODY_S),
        ):
            wire = await rig.wire()
            await wire.send(start)
            await turns()
            for _ in range(9):
                rig.pass_seconds(seconds / 10)
                await wire.send(drip)
                await turns()
            assert rig.server.connections == 1
            rig.pass_seconds(seconds / 10)
            assert await wire.cut()
            wire.close()
            await turns()


@on_each_loop
async def test_requests_keep_a_connection_alive() -> None:
    """The idle deadline starts anew with each answer, however the sweeps fall."""
    async with serving(keepalive_s=10) as rig:
        wire = await rig.wire()
        for _ in range(5):
            rig.pass_seconds(6)
            await wire.send(post())
            assert (await wire.reply()).status == 200


@on_each_loop
async def test_a_request_in_work_has_no_deadline_here() -> None:
    """The upstream and the lanes bound their own time; the way in waits for them."""
    async with serving() as rig:
        rig.upstream.hold()
        wire, sent = await rig.asked(post())
        rig.pass_seconds(100_000)
        await turns()
        sent.answer()
        assert (await wire.reply()).body == RESULT


@on_each_loop
async def test_lingering_ends() -> None:
    """A refused client that neither goes nor stops sending is closed after a while."""
    async with serving() as rig:
        wire = await rig.wire()
        await wire.send(post("Content-Length: 1"))
        assert (await wire.reply()).status == 400
        rig.pass_seconds(limits.LINGER_S - 0.1)
        await wire.send(b"more")
        await turns()
        assert rig.server.connections == 1
        rig.pass_seconds(0.1)
        await turns()
        assert rig.server.connections == 0


@on_each_loop
async def test_a_client_that_never_reads_is_cut() -> None:
    """A started answer of which no byte is taken for a while ends, and frees the upstream; slow reading does not."""
    needs_a_loop_that_pauses()
    async with serving() as rig:
        rig.upstream.hold()
        wire, sent = await rig.asked(post())
        sent.sink.began(UPSTREAM_HEAD, None)
        while not sent.held():
            sent.sink.more(b"x" * 65_536)
            await turns()
        for _ in range(4):
            rig.pass_seconds(limits.PROGRESS_S - 1)
            await wire._exactly(500_000)
            await turns(20)
        assert not sent.abandoned
        while not sent.held():
            sent.sink.more(b"x" * 65_536)
            await turns()
        rig.pass_seconds(limits.PROGRESS_S)
        await sent.given_up.wait()
        await turns()
        assert rig.server.connections == 0
        assert rig.count("pass", "gone") == 1
