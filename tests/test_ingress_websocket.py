"""The WebSocket way in: hand-off, calls over the client's own upstream socket, lost nodes, bounds, drain."""

from __future__ import annotations

import asyncio
import gc
import json
import ssl
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import trustme
import uvloop
from aiohttp import WSCloseCode, WSMsgType, web
from aiohttp.compression_utils import ZLibCompressor

from relay.errors import DRAINING
from relay.ingress.cors import Cors
from relay.ingress.websocket import session
from relay.ingress.websocket.frames import PING_TICKS, STALL_TICKS, Frame
from tests.ws_rig import (
    HEAD,
    ODD,
    Front,
    Mute,
    Node,
    Raw,
    call,
    code,
    echo,
    hear,
    hear_close,
    masked_frame,
    notification,
    relay,
    turns,
    until,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path


@pytest.fixture
async def mute_port() -> AsyncIterator[int]:
    """The port of a server that says nothing."""
    open_: set[asyncio.BaseTransport] = set()
    listener = await asyncio.get_running_loop().create_server(lambda: Mute(open_), "127.0.0.1", 0)
    yield listener.sockets[0].getsockname()[1]
    listener.close()
    for transport in open_:
        transport.close()
    await until(lambda: not open_)


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    """A node that runs."""
    node = Node()
    await node.start()
    yield node
    await node.stop()


@pytest.fixture
async def front(node: Node) -> AsyncIterator[Front]:
    """A relay in front of the node's WebSocket."""
    async with relay({"ws_url": f"ws://127.0.0.1:{node.port}/key"}) as front:
        yield front


# Hand-off and handshake


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_takes_over_a_connection_with_the_frames_behind_the_upgrade(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Frames that came in one read with the upgrade are answered, and the hand-over ends with `closed`."""

    async def scenario() -> None:
        node = Node()
        await node.start()
        async with relay({"ws_url": f"ws://127.0.0.1:{node.port}"}) as front:
            behind = masked_frame(call(1).encode()) + masked_frame(call(2).encode())
            raw = await Raw.connect(front, behind)
            assert b" 101 " in await raw.head()
            assert [json.loads((await raw.frame())[1])["id"] for _ in range(2)] == [1, 2]
            assert front.metrics.connections._readers[("websocket",)]() == 1
            await raw.close()
            await until(lambda: front.closed == 1)
            assert front.metrics.connections._readers[("websocket",)]() == 0
        await node.stop()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(scenario())


@pytest.mark.parametrize(
    ("head", "word"),
    [
        (HEAD.replace(b"Version: 13", b"Version: 99"), "version"),
        (HEAD.replace(b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n", b""), "Handshake"),
        (HEAD.replace(b"Key: AAAAAAAAAAAAAAAAAAAAAA==", b"Key: AAAA"), "Handshake"),
        (HEAD.replace(b"Upgrade: websocket", b"Upgrade: h2c"), "WebSocket"),
    ],
)
async def test_refuses_a_handshake_that_is_none(front: Front, head: bytes, word: str) -> None:
    """A bad upgrade is answered 400 with a JSON-RPC error and the version we speak, then closed."""
    raw = await Raw.connect(front, head=head)
    answer, _, body = (await raw.end()).partition(b"\r\n\r\n")

    assert b" 400 " in answer
    assert b"Sec-WebSocket-Version: 13" in answer
    assert word in json.loads(body)["error"]["message"]
    await raw.close()


@pytest.mark.parametrize("origins", [["*"], ["https://a.example"]])
@pytest.mark.parametrize(
    ("head", "status"),
    [
        (HEAD, 101),
        (HEAD.replace(b"GET / ", b"GET http://[ "), 101),
        (HEAD + b"Sec-WebSocket-Key1: x\r\nUser-Agent: a\r\nUser-Agent: b\r\nContent-Encoding: zz\r\n", 101),
        (HEAD.replace(b"Version: 13", b"Version: 12"), 400),
        (HEAD.replace(b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n", b""), 400),
        (HEAD.replace(b"Host: x", b"Host: x\r\nOrigin: https://b.example"), 403),
    ],
)
async def test_answers_to_upgrades_have_our_header_lines(
    node: Node, caplog: pytest.LogCaptureFixture, head: bytes, status: int, origins: list[str]
) -> None:
    """Whatever the answer, it has the CORS lines of any other answer, and nobody learns what library wrote it. What is
    no part of the handshake is not judged a second time."""
    if status == 403 and origins == ["*"]:
        status = 101
    if b"Origin" not in head:
        head += b"Origin: https://a.example\r\n"
    async with relay({"ws_url": f"ws://127.0.0.1:{node.port}"}, cors_origins=origins) as front:
        raw = await Raw.connect(front, head=head)
        answer = await raw.head()
        expected = Cors(origins).headers(head)

        assert f" {status} ".encode() in answer
        assert b"Server:" not in answer
        assert b"aiohttp" not in answer
        assert expected
        assert all(f"\r\n{name}: {value}\r\n".encode() in answer for name, value in expected.items())
        assert (b"Access-Control-Allow-Origin: " in answer) is (status != 403)
        await raw.close()
    assert not caplog.records


@pytest.mark.parametrize(
    ("origin", "status"), [("https://dapp.example", 101), ("https://evil.example", 403), (None, 101)]
)
async def test_checks_the_origin_of_browsers(node: Node, origin: str | None, status: int) -> None:
    """Only pages that cors_origins names may connect; what is no browser sends no Origin and may."""
    async with relay({"ws_url": f"ws://127.0.0.1:{node.port}"}, cors_origins=["https://dapp.example"]) as front:
        raw = await Raw.connect(front, headers=f"Origin: {origin}\r\n".encode() if origin else b"")
        assert f" {status} ".encode() in await raw.head()
        await raw.close()


# Calls over the client's own upstream socket


@pytest.mark.parametrize("text", ODD)
async def test_passes_messages_byte_for_byte(node: Node, front: Front, text: str) -> None:
    """The node gets exactly what the client wrote, and the client exactly what the node wrote."""
    client = await front.connect()
    await client.send_str(text)
    message = await client.receive(timeout=10)

    assert node.received == [(WSMsgType.TEXT, text.encode())]
    assert (message.type, message.data.encode()) == (WSMsgType.TEXT, echo(text.encode()))
    assert not front.session._work


async def test_keeps_binary_messages_binary(node: Node, front: Front) -> None:
    """A binary message stays binary on both sides."""
    client = await front.connect()
    await client.send_bytes(call(1).encode())

    assert (await client.receive(timeout=10)).type is WSMsgType.BINARY
    assert node.received[0][0] is WSMsgType.BINARY


async def test_lets_the_node_judge_what_is_no_json(node: Node, front: Front) -> None:
    """A text that is no JSON reaches the node; its error reaches the client, and its goodbye ends both sockets."""
    client = await front.connect()
    await client.send_str("hello")

    assert code(await hear(client)) == -32700
    assert await hear_close(client) == WSCloseCode.SERVICE_RESTART
    assert node.received == [(WSMsgType.TEXT, b"hello")]


async def test_subscriptions_flow_behind_their_answer(front: Front) -> None:
    """The answer to eth_subscribe comes first, then each notification, in order, byte for byte."""
    client = await front.connect()
    await client.send_str(call(7, "eth_subscribe", ["newHeads"]))

    assert await hear(client) == {"jsonrpc": "2.0", "id": 7, "result": "0x1"}
    texts = [(await client.receive(timeout=10)).data for _ in range(5)]
    assert texts == [notification(number) for number in range(5)]


async def test_each_client_has_a_socket_of_its_own(node: Node, front: Front) -> None:
    """Two clients, two upstream sockets; both go with their clients."""
    first, second = await front.connect(), await front.connect()
    for client in (first, second):
        await client.send_str(call(1))
        await hear(client)
    assert len(node.sockets) == 2
    await first.close()
    await until(lambda: len(node.sockets) == 1)
    await second.close()
    await until(lambda: not node.sockets)


async def test_sends_the_configured_headers_and_none_of_the_clients(node: Node) -> None:
    """[upstream] headers go on the upstream socket; what the client sent stays here."""
    async with relay({"ws_url": f"ws://127.0.0.1:{node.port}", "headers": {"X-Api-Key": "k"}}) as front:
        client = await front.connect(headers={"Authorization": "Bearer t", "Cookie": "c=1", "X-Other": "o"})
        await client.send_str(call(1))
        await hear(client)

        (headers,) = node.headers
        assert headers["X-Api-Key"] == "k"
        assert not {"Authorization", "Cookie", "X-Other", "Origin"} & set(headers)


async def test_does_not_follow_redirects(node: Node) -> None:
    """A node that points elsewhere is a node that cannot be reached: the other place must not see our headers."""
    other = Node()
    await other.start()
    node.handshake = lambda: web.Response(status=302, headers={"Location": f"http://127.0.0.1:{other.port}/"})
    async with relay({"ws_url": f"ws://127.0.0.1:{node.port}", "headers": {"X-Api-Key": "k"}}) as front:
        client = await front.connect()
        await client.send_str(call(1))

        answer = await hear(client)
        assert code(answer) == -32011
        assert "redirect" in answer["error"]["message"]
        assert other.headers == []
    await other.stop()


async def test_a_node_that_is_down_fails_the_call_not_the_socket(node: Node, front: Front) -> None:
    """The upgrade succeeds; each call gets an error under its id that says nothing was sent; later calls dial anew."""
    await node.stop()
    client = await front.connect()
    await client.send_str(call("a"))
    answer = await hear(client)
    assert (answer["id"], code(answer)) == ("a", -32011)
    assert "nothing was sent" in answer["error"]["message"]
    assert "[upstream] ws_url" in answer["error"]["message"]
    assert "key" not in answer["error"]["message"]

    await client.send_str(f'[{call(1)},{{"method":"x"}},{call(2)}]')
    assert [(one["id"], code(one)) for one in await hear(client)] == [(1, -32011), (2, -32011)]
    await client.send_str('{"method":"notified"}')
    await until(lambda: front.count("pass", "failed") == 3)
    assert front.metrics.upstream_errors.cell("unreachable").n == 3

    await node.start()
    await client.send_str(call(3, params=["up"]))
    assert await hear(client) == {"jsonrpc": "2.0", "id": 3, "result": ["up"]}
    await client.close()


async def test_what_was_refused_is_never_sent(node: Node, front: Front) -> None:
    """Calls that waited for a socket that could not be had are over, notifications too: the next dial is not theirs."""
    node.handshake = lambda: web.Response(status=503)
    client = await front.connect()
    await client.send_str(call(1))
    await client.send_str('{"method":"notified"}')
    await client.send_str(call(2))
    assert [((await hear(client))["id"]) for _ in range(2)] == [1, 2]
    node.handshake = lambda: None
    await client.send_str('{"method":"later"}')
    await client.send_str(call(3))
    assert (await hear(client))["id"] == 3
    assert [json.loads(body).get("id") for _, body in node.received] == [None, 3]
    assert json.loads(node.received[0][1])["method"] == "later"
    way: Any = front.session._way
    assert not way._calls._keys


async def test_a_handshake_the_node_refuses_is_named(node: Node, front: Front) -> None:
    """The status with which the node refused is in the error."""
    node.handshake = lambda: web.Response(status=401, text="key?")
    client = await front.connect()
    await client.send_str(call(1))

    assert "HTTP 401" in (await hear(client))["error"]["message"]


async def test_a_node_that_does_not_answer_the_handshake_is_given_up(mute_port: int) -> None:
    """connect_timeout_s bounds the wait for the upstream socket."""
    async with relay({"ws_url": f"ws://127.0.0.1:{mute_port}", "connect_timeout_s": 0.05}) as front:
        client = await front.connect()
        await client.send_str(call(1))
        answer = await hear(client)
        assert code(answer) == -32011
        assert "connect_timeout_s" in answer["error"]["message"]
        await client.close()


# A node that is lost


@pytest.mark.parametrize("end", ["die", "bye"])
async def test_pending_calls_are_answered_before_the_socket_is_closed(front: Front, end: str) -> None:
    """When the upstream socket ends, each pending call gets an error that does not claim that nothing was sent, under
    its own id, duplicates as often as asked, batches as an array; then the socket is closed with "service restart"."""
    client = await front.connect()
    await client.send_str(call(1, "never"))
    await client.send_str(call(1, "never"))
    await client.send_str(f'[{call("x", "never")},{{"method":"never"}},{call(None, "never")}]')
    await client.send_str('{"method":"never"}')
    await client.send_str(call("last", end))

    answers = [await hear(client) for _ in range(4)]
    assert [answer["id"] for answer in answers if isinstance(answer, dict)] == [1, 1, "last"]
    (batch,) = [answer for answer in answers if isinstance(answer, list)]
    assert [one["id"] for one in batch] == ["x", None]
    for one in [*batch, *(answer for answer in answers if isinstance(answer, dict))]:
        assert code(one) == -32013
        assert "may have been carried out" in one["error"]["message"]
    assert await hear_close(client) == WSCloseCode.SERVICE_RESTART
    assert front.count("pass", "failed") == 4
    assert front.count("pass", "answered") == 1
    assert front.metrics.upstream_errors.cell("cut_off").n == 4


async def test_a_lost_node_does_not_cost_submissions_their_answers(node: Node, front: Front) -> None:
    """Submissions in the lanes are waited for; what comes meanwhile is refused at once; then the socket is closed."""
    client = await front.connect()
    await client.send_str(call(1, "eth_sendRawTransaction"))
    await client.send_str(call(2, "die"))
    assert code(await hear(client)) == -32013
    await client.send_str(call(3, "eth_sendRawTransaction"))
    assert code(await hear(client)) == -32011
    assert len(front.routes.submissions) == 1

    front.routes.answer(0, b'{"id":1,"result":"0xhash"}')
    assert await hear(client) == {"id": 1, "result": "0xhash"}
    assert await hear_close(client) == WSCloseCode.SERVICE_RESTART


async def test_a_call_without_an_answer_times_out_once(node: Node, front: Front) -> None:
    """After timeout_s the call gets an error; the late answer is dropped, the socket and its other calls live on."""
    client = await front.connect()
    await client.send_str(call(1, "never"))
    await client.send_str(f"[{call('a', 'never')},{call('b', 'never')}]")
    await until(lambda: len(node.received) == 2)
    front.now[0] += 29
    await client.send_str(call(2, "never"))
    await until(lambda: len(node.received) == 3)
    front.ticks(1)
    front.now[0] += 1
    front.ticks(2)

    assert front.metrics.upstream_errors.cell("timed_out").n == 2
    single, batch = await hear(client), await hear(client)
    assert (single["id"], code(single)) == (1, -32015)
    assert [(one["id"], code(one)) for one in batch] == [("a", -32015), ("b", -32015)]
    await node.say('{"id":1,"result":"late"}')
    await node.say('[{"id":"a","result":"late"},{"id":"b","result":"late"}]')
    await node.say('{"id":2,"result":"in time"}')
    assert await hear(client) == {"id": 2, "result": "in time"}


async def test_a_silent_node_is_lost(node: Node) -> None:
    """A node that answers no ping counts as gone, and the client hears of it."""
    node.autoping = False
    async with relay({"ws_url": f"ws://127.0.0.1:{node.port}"}) as front:
        client = await front.connect()
        await client.send_str(call(1))
        await hear(client)
        await client.send_str(call(2, "never"))
        await until(lambda: len(node.received) == 2)
        front.ticks(PING_TICKS + 2)
        await client.ping()  # the client itself is alive
        await until(lambda: front.session._heard == 3)
        front.ticks(PING_TICKS)

        assert code(await hear(client)) == -32013
        assert await hear_close(client) == WSCloseCode.SERVICE_RESTART


async def test_a_quiet_node_that_answers_pings_is_kept(node: Node, front: Front) -> None:
    """Silence alone ends nothing: the ping is answered, by node and client, and the count begins anew."""
    client = await front.connect()
    await client.send_str(call(1))
    await hear(client)
    reading = asyncio.ensure_future(hear(client))  # noqa: TID251 - aiohttp answers pings only while it reads
    way: Any = front.session._way
    for _ in range(3):
        heard = way._heard, front.session._heard
        front.ticks(PING_TICKS + 2)
        # The ignore: mypy cannot infer a default of a lambda.
        await until(lambda heard=heard: way._heard > heard[0] and front.session._heard > heard[1])  # type: ignore[misc]
        front.ticks(1)
    await client.send_str(call(2))
    assert (await reading)["id"] == 2


async def test_what_the_client_was_told_before_the_loss_reaches_it_before_the_close(node: Node, front: Front) -> None:
    """A client that reads slowly gets all that the node had said, then the errors, then the close."""
    client = await front.connect(max_msg_size=0)
    await client.send_str(call("last", "never"))
    await until(lambda: len(node.received) == 1)
    said = 0
    while front.session._out.size < 100_000:
        await node.say(json.dumps({"method": "eth_subscription", "params": [said, "x" * 20_000]}))
        await turns(5)
        said += 1
    node.die()
    await until(lambda: front.session._closing is not None)
    assert [(await hear(client))["params"][0] for _ in range(said)] == list(range(said))
    message = await hear(client)
    assert (message["id"], code(message)) == ("last", -32013)
    assert await hear_close(client) == WSCloseCode.SERVICE_RESTART


# Submissions and refusals


async def test_tickets_are_taken_in_the_order_of_the_messages(front: Front) -> None:
    """Each message is routed before the next is read; answers come as the lanes give them, under their own ids."""
    client = await front.connect()
    texts = [call(number, "eth_sendRawTransaction") for number in range(50)]
    for text in texts:
        await client.send_str(text)
    await until(lambda: len(front.routes.bodies) == 50)
    assert front.routes.bodies == [text.encode() for text in texts]
    for number in reversed(range(50)):
        front.routes.answer(number, b'{"id":%d}' % number)
    assert [(await hear(client))["id"] for _ in range(50)] == list(reversed(range(50)))
    assert front.count("submission", "answered") == 50


async def test_answers_of_the_router_are_sent_and_empty_ones_are_not(front: Front) -> None:
    """A refusal of the router goes out as it is; a 204 (a notification) is followed by nothing."""
    client = await front.connect()
    await client.send_str(call(1, "silent"))
    await client.send_str(call(1, "denied"))
    assert code(await hear(client)) == -32601
    assert front.count("refused", "answered") == 2


async def test_a_fault_of_ours_is_reported_and_answered(front: Front) -> None:
    """An exception in the router costs the call, not the socket."""
    client = await front.connect()
    await client.send_str(call(5, "fault"))
    answer = await hear(client)
    assert (answer["id"], code(answer)) == (5, -32603)
    await client.send_str(call(6))
    assert (await hear(client))["id"] == 6
    assert [name for name, _ in front.faults] == ["ingress.websocket"]


async def test_a_client_that_vanishes_leaves_its_submission_and_takes_its_socket(node: Node, front: Front) -> None:
    """The future of a submission is left alone; the upstream socket goes; both are counted as gone."""
    raw = await Raw.connect(
        front, masked_frame(call(1, "eth_sendRawTransaction").encode()) + masked_frame(call(2, "never").encode())
    )
    await until(lambda: len(node.received) == 1)
    raw.writer.transport.abort()
    await until(lambda: not node.sockets and front.closed == 1)
    await raw.close()

    assert not front.routes.submissions[0].done()
    front.routes.answer(0, b'{"id":1}')
    assert (front.count("submission", "gone"), front.count("pass", "gone")) == (1, 1)


async def test_a_client_that_vanishes_while_nothing_is_read_is_noticed(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a connection ends its session even if the session waits for room."""
    monkeypatch.setattr(session, "MAX_IN_WORK", 1)
    raw = await Raw.connect(front, masked_frame(call(1, "eth_sendRawTransaction").encode()))
    await until(lambda: bool(front.server._sessions) and not front.session._listening)
    raw.writer.transport.abort()
    await until(lambda: front.closed == 1)
    await until(lambda: front.count("submission", "gone") == 1)
    await raw.close()


@pytest.mark.parametrize("ended_by", ["client", "drain"])
async def test_a_client_that_vanishes_while_its_answer_is_packed_is_no_fault(
    front: Front, monkeypatch: pytest.MonkeyPatch, ended_by: str
) -> None:
    """A large answer is compressed in a thread. If the client is gone when that is done, nobody is told of it: neither
    our report nor, through a task that nobody waits for, the loop's."""
    unheard: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: unheard.append(context))
    packing, packed = asyncio.Event(), asyncio.Event()

    async def pack(self: ZLibCompressor, data: bytes) -> bytes:
        packing.set()
        await packed.wait()
        return self.compress_sync(data)

    monkeypatch.setattr(ZLibCompressor, "compress", pack)
    extension = b"Sec-WebSocket-Extensions: permessage-deflate\r\n"
    raw = await Raw.connect(front, masked_frame(call(1, params="x" * 100_000).encode()), headers=extension)
    assert b"permessage-deflate" in await raw.head()
    await packing.wait()
    raw.writer.transport.abort()
    await until(lambda: front.closed == 1)
    async with asyncio.TaskGroup() as group:
        drain = group.create_task(front.server.drain(front.now[0])) if ended_by == "drain" else None
        await turns()
        assert drain is None or not drain.done()  # whoever comes after it cancels what still runs
        packed.set()
    await turns()
    assert len(front.tasks) == (ended_by == "client")  # the sweep
    gc.collect()
    assert not unheard
    await raw.close()


# Bounds


async def test_reads_no_further_while_too_much_is_in_work(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound messages stay unread until an answer makes room."""
    monkeypatch.setattr(session, "MAX_IN_WORK", 3)
    client = await front.connect()
    for number in range(5):
        await client.send_str(call(number, "eth_sendRawTransaction"))
    await until(lambda: not front.session._listening)
    await turns()
    assert len(front.routes.bodies) == 3
    front.routes.answer(0, b'{"id":0}')
    await until(lambda: len(front.routes.bodies) == 4)


async def test_a_client_that_does_not_read_stops_its_node(node: Node, front: Front) -> None:
    """Of 10,000 messages for a client that does not read only the bound is kept, and all arrive when it reads."""
    client = await front.connect(max_msg_size=0)
    await client.send_str(call(1, "flood", [10_000, 4000]))
    way: Any = front.session._way
    await until(lambda: front.session._out.size > session.MAX_WAITING_BYTES and not way._listening)
    peak = 0
    for number in range(10_000):
        assert (await hear(client))["params"][0] == number
        peak = max(peak, front.session._out.size)
    assert peak < session.MAX_WAITING_BYTES + 10_000


async def test_a_client_that_takes_nothing_is_cut_off(node: Node, front: Front) -> None:
    """No progress of what waits for a client, for long enough, ends its connection and its upstream socket."""
    raw = await Raw.connect(front, masked_frame(call(1, "flood", [5_000, 4000]).encode()))
    await raw.head()
    way: Any = front.session._way
    await until(lambda: front.session._out.size > session.MAX_WAITING_BYTES and not way._listening)
    front.ticks(STALL_TICKS + 1)
    await until(lambda: front.closed == 1 and not node.sockets)
    await raw.close()


async def test_a_mute_client_is_pinged_then_cut_off(front: Front) -> None:
    """A client that does not answer pings is gone."""
    raw = await Raw.connect(front)
    await raw.head()
    await until(lambda: bool(front.server._sessions))
    front.ticks(PING_TICKS + 1)
    assert await raw.frame() == (9, b"")
    front.ticks(PING_TICKS)
    await until(lambda: front.closed == 1)
    await raw.close()


async def test_answers_pings(front: Front) -> None:
    """A ping of the client is answered with its payload."""
    raw = await Raw.connect(front, masked_frame(b"hi", opcode=9))
    await raw.head()
    assert await raw.frame() == (10, b"hi")
    await raw.close()


@pytest.mark.parametrize("compress", [0, 15])
async def test_a_message_above_the_limit_closes_with_1009(node: Node, compress: int) -> None:
    """A message of exactly max_body_bytes passes; one byte more closes the socket, after the pending answer."""
    async with relay({"ws_url": f"ws://127.0.0.1:{node.port}"}, max_body_bytes=100_000) as front:
        client = await front.connect(compress=compress, max_msg_size=0)
        padding = 100_000 - len(call(1, params=""))
        await client.send_str(call(1, params="a" * padding))
        assert (await hear(client))["id"] == 1
        await client.send_str(call(2, "eth_sendRawTransaction"))
        await client.send_str(call(1, params="a" * (padding + 1)))
        await until(lambda: len(front.routes.submissions) == 1)
        front.routes.answer(0, b'{"id":2}')

        assert await hear(client) == {"id": 2}
        assert await hear_close(client) == WSCloseCode.MESSAGE_TOO_BIG


async def test_a_huge_message_is_refused_before_it_is_read(front: Front) -> None:
    """The code arrives although most of the message was never read."""
    client = await front.connect()
    with suppress(ConnectionError):
        await client.send_bytes(bytes(30_000_000))
    assert await hear_close(client) == WSCloseCode.MESSAGE_TOO_BIG


@pytest.mark.parametrize(
    "garbage", [b"\xff\xff\xff\xff\xff\xff", b"\x83\x80\0\0\0\0", b"\x09\x80\0\0\0\0", b"\x80\x80\0\0\0\0"]
)
async def test_garbage_frames_close_with_1002_after_what_is_pending(front: Front, garbage: bytes) -> None:
    """A client that breaks the protocol gets what it waits for, then the reason."""
    raw = await Raw.connect(front, masked_frame(call(1, "eth_sendRawTransaction").encode()) + garbage)
    await raw.head()
    await until(lambda: len(front.routes.submissions) == 1)
    front.routes.answer(0, b'{"id":1}')

    assert await raw.frame() == (1, b'{"id":1}')
    opcode, payload = await raw.frame()
    assert (opcode, payload[:2]) == (8, struct.pack(">H", WSCloseCode.PROTOCOL_ERROR))
    await raw.close()


@pytest.mark.parametrize("compress", [0, 15])
async def test_text_that_is_no_utf8_closes_with_1007_after_what_is_pending(
    node: Node, front: Front, compress: int
) -> None:
    """RFC 6455, 8.1: such a message reaches neither the router nor the node; as a binary message it may pass."""
    client = await front.connect(compress=compress)
    await client.send_str(call(1, "eth_sendRawTransaction"))
    await client.send_frame(b'{"id":2,"method":"x","params":["\xff"]}', WSMsgType.TEXT)
    await client.send_str(call(3, "eth_sendRawTransaction"))
    await until(lambda: len(front.routes.submissions) == 1)
    await turns()
    front.routes.answer(0, b'{"id":1}')

    assert await hear(client) == {"id": 1}
    assert await hear_close(client) == WSCloseCode.INVALID_TEXT
    assert len(front.routes.bodies) == 1
    assert not node.received


async def test_speaks_compressed_to_clients_that_offer_it(front: Front) -> None:
    """permessage-deflate is accepted, and large answers go through it in order."""
    client = await front.connect(compress=15, max_msg_size=0)
    assert client.compress == 15
    for number in range(5):
        await client.send_str(call(number, params="x" * 200_000 if number % 2 else "y"))
    assert [(await hear(client))["id"] for _ in range(5)] == list(range(5))


# Drain


async def test_drain_closes_idle_clients_at_once(front: Front) -> None:
    """A client that waits for nothing is told "service restart", whatever the deadline."""
    client = await front.connect()
    async with asyncio.TaskGroup() as group:
        group.create_task(front.server.drain(front.now[0] + 1000))
        assert await hear_close(client) == WSCloseCode.SERVICE_RESTART


async def test_drain_waits_for_submissions_and_refuses_what_comes(front: Front) -> None:
    """What is in work ends in an answer; new messages and new clients are refused; then the socket is closed."""
    client = await front.connect()
    await client.send_str(call(1, "eth_sendRawTransaction"))
    await until(lambda: len(front.routes.submissions) == 1)
    async with asyncio.TaskGroup() as group:
        group.create_task(front.server.drain(front.now[0]))
        await until(lambda: front.session._closing is not None)
        await client.send_str(f"[{call(2)},{call(3)}]")
        assert [(one["id"], code(one)) for one in await hear(client)] == [(2, -32012), (3, -32012)]
        raw = await Raw.connect(front)
        assert b" 503 " in await raw.head()
        front.routes.answer(0, b'{"id":1}')
        assert await hear(client) == {"id": 1}
        assert await hear_close(client) == WSCloseCode.SERVICE_RESTART
        await raw.close()


async def test_retiring_answers_what_still_comes(front: Front) -> None:
    """Nothing is refused: a session closes when nothing of it waits, a client that comes late is told to come again."""
    client = await front.connect()
    await client.send_str(call(1, "eth_sendRawTransaction"))
    await until(lambda: len(front.routes.submissions) == 1)
    async with asyncio.TaskGroup() as group:
        group.create_task(front.server.retire(front.now[0] + 1000))
        await until(lambda: front.session._closer is not None)
        await client.send_str(call(2, "eth_sendRawTransaction"))
        await until(lambda: len(front.routes.submissions) == 2)
        late = await front.connect()
        assert await hear_close(late) == WSCloseCode.SERVICE_RESTART
        front.routes.answer(0, b'{"id":1}')
        front.routes.answer(1, b'{"id":2}')
        assert [await hear(client), await hear(client)] == [{"id": 1}, {"id": 2}]
        assert await hear_close(client) == WSCloseCode.SERVICE_RESTART


async def test_drain_answers_pending_calls_at_its_deadline(node: Node, front: Front) -> None:
    """A call that the node has not answered by then gets an error, and its late answer is not sent behind it."""
    client = await front.connect()
    await client.send_str(call(1, "never"))
    await until(lambda: len(node.received) == 1)
    async with asyncio.TaskGroup() as group:
        group.create_task(front.server.drain(front.now[0]))
        answer = await hear(client)
        assert (answer["id"], code(answer)) == (1, -32013)
        assert await hear_close(client) == WSCloseCode.SERVICE_RESTART


async def test_drain_waits_for_submissions_beyond_its_deadline(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lanes bound their own time: a client is not cut off while one of them owes it an answer."""
    monkeypatch.setattr("relay.ingress.websocket.server.FLUSH_S", 0.0)
    client = await front.connect()
    await client.send_str(call(1, "eth_sendRawTransaction"))
    await until(lambda: len(front.routes.submissions) == 1)
    async with asyncio.TaskGroup() as group:
        group.create_task(front.server.drain(front.now[0]))
        await turns()
        assert front.closed == 0
        front.routes.answer(0, b'{"id":1}')


async def test_a_late_answer_is_not_sent_behind_the_last_word(front: Front) -> None:
    """What the node says after a call was given up is dropped."""
    client = await front.connect()
    await client.send_str(call(1, "never"))
    way: Any = front.session._way
    await until(lambda: len(way._calls) == 1 and way._socket is not None)
    front.session.give_up(DRAINING.refusal())
    way._take(Frame(WSMsgType.TEXT, b'{"id":1,"result":"late"}'))
    front.session.shut(DRAINING.refusal(), "over")

    assert "error" in await hear(client)
    assert await hear_close(client) == WSCloseCode.SERVICE_RESTART


async def test_drain_tells_calls_that_were_not_sent(mute_port: int) -> None:
    """A call that still waits for the upstream socket is told that nothing was sent."""
    async with relay({"ws_url": f"ws://127.0.0.1:{mute_port}"}) as front:
        client = await front.connect()
        await client.send_str(call(1))
        await until(lambda: len(front.routes.bodies) == 1)
        async with asyncio.TaskGroup() as group:
            group.create_task(front.server.drain(front.now[0]))
            assert code(await hear(client)) == -32012
            assert await hear_close(client) == WSCloseCode.SERVICE_RESTART


async def test_drain_does_not_wait_for_a_client_that_does_not_read(
    node: Node, front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that takes nothing is cut off shortly after the deadline."""
    monkeypatch.setattr("relay.ingress.websocket.server.FLUSH_S", 0.05)
    raw = await Raw.connect(front, masked_frame(call(1, "flood", [5_000, 4000]).encode()))
    await raw.head()
    await until(lambda: front.session._out.size > session.MAX_WAITING_BYTES)
    async with asyncio.timeout(5):
        await front.server.drain(front.now[0])
    assert front.closed == 1
    await raw.close()


# The upstream socket's limits and TLS


async def test_an_answer_too_large_to_keep_loses_the_node(
    node: Node, front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message of exactly the bound passes. One byte more ends the upstream socket, for nothing behind it can be read:
    whoever waits is told the reason, and that the call may have been carried out."""
    limit = len(echo(call(1, params="x" * 900).encode()))
    monkeypatch.setattr("relay.ingress.websocket.upstream.MAX_COLLECTED", limit)
    client = await front.connect()
    await client.send_str(call(1, params="x" * 900))
    assert (await hear(client))["id"] == 1
    await client.send_str(call(2, "never"))
    await client.send_str(call(3, params="x" * 901))

    for id_ in (2, 3):
        answer = await hear(client)
        assert (answer["id"], code(answer)) == (id_, -32013)
        assert f"the node's answer is larger than {limit} bytes" in answer["error"]["message"]
        assert "may have been carried out" in answer["error"]["message"]
    assert await hear_close(client) == WSCloseCode.SERVICE_RESTART
    assert front.metrics.upstream_errors.cell("unusable").n == 2


async def test_a_node_that_takes_no_data_is_lost(node: Node) -> None:
    """A call that could not be written within timeout_s was not sent, and says so; those before it may have been."""
    async with relay({"ws_url": f"ws://127.0.0.1:{node.port}"}, max_body_bytes=30_000_000) as front:
        client = await front.connect(max_msg_size=0)
        await client.send_str(call(0, "stall"))
        for number in range(1, 5):
            await client.send_str(call(number, "never", "x" * 10_000_000))
        way: Any = front.session._way
        await until(lambda: len(way._calls) == 5 and next(iter(way._calls._waiting)).sent)
        sent = [pending.sent for pending in way._calls._waiting]
        front.now[0] += 30
        front.ticks(1)

        answers = [await hear(client) for _ in range(5)]
        assert [one["id"] for one in answers] == [0, 1, 2, 3, 4]
        assert [code(one) for one in answers] == [-32015 if one else -32011 for one in sent]
        assert not sent[-1]
        assert await hear_close(client) == WSCloseCode.SERVICE_RESTART


@pytest.mark.parametrize(("known", "expected"), [(True, None), (False, -32011)])
async def test_wss_is_verified_against_ca_file(tmp_path: Path, known: bool, expected: int | None) -> None:
    """With ca_file a node with an own CA is reached by wss; with another CA it is refused, and the setting is named."""
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    (authority if known else trustme.CA()).cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    node = Node()
    await node.start(context)
    settings = {"ws_url": f"wss://127.0.0.1:{node.port}", "ca_file": str(tmp_path / "ca.pem")}
    async with relay(settings) as front:
        client = await front.connect()
        await client.send_str(call(1))
        answer = await hear(client)
        assert answer.get("error", {}).get("code") == expected
        assert known or "ca_file" in answer["error"]["message"]
    await node.stop()
