"""A WebSocket client's calls without ``ws_url``, through the real pool to a real HTTP node."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from aiohttp import WSCloseCode, web

from relay.ingress.websocket import session
from relay.ingress.websocket.over_http import MAX_AT_ONCE
from tests.ws_rig import ODD, Front, Node, call, code, echo, hear, hear_close, relay, turns, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    """A node that runs."""
    node = Node()
    await node.start()
    yield node
    await node.stop()


@pytest.fixture
async def over_http(node: Node) -> AsyncIterator[Front]:
    """A relay without ``ws_url``."""
    async with relay({"url": f"http://127.0.0.1:{node.port}/key"}) as front:
        yield front


async def test_calls_go_over_http_without_ws_url(node: Node, over_http: Front) -> None:
    """Single calls and batches are posted as they are and answered; a notification is followed by nothing."""
    client = await over_http.connect()
    for text in ODD[:4]:
        await client.send_str(text)
        assert await hear(client) == json.loads(echo(text.encode()))
    await client.send_str(ODD[4])
    assert [one["id"] for one in await hear(client)] == [1, 1]
    assert [body.decode() for _, body in node.received] == ODD
    node.http = lambda _: web.Response()
    await client.send_str('{"method":"notified"}')
    await client.send_str(call(9))
    assert code(await hear(client)) == -32013
    assert not over_http.session._work


@pytest.mark.parametrize("method", ["eth_subscribe", "eth_unsubscribe", "eth_\\u0073ubscribe"])
async def test_subscriptions_are_refused_without_ws_url(node: Node, over_http: Front, method: str) -> None:
    """A subscription is refused in geth's words, alone and inside a batch; the rest of the batch is served."""
    client = await over_http.connect()
    text = f'{{"id":1,"method":"{method}"}}'
    await client.send_str(text)
    answer = await hear(client)
    assert (answer["id"], code(answer)) == (1, -32601)
    assert answer["error"]["message"].endswith("does not exist/is not available")
    await client.send_str(f'[{call("a")},{text},{{"method":"n"}},{call("b")}]')
    assert [(one["id"], "error" in one) for one in await hear(client)] == [("a", False), (1, True), ("b", False)]
    await client.send_str(f"[{text}]")
    assert [code(one) for one in await hear(client)] == [-32601]
    assert len(node.received) == 1


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (502, b"<html>bad gateway</html>", -32013),
        (200, b"", -32013),
        (200, b"{", -32013),
        (401, b'{"message":"who are you"}', -32013),
        (429, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32005,"message":"slow down"}}', -32005),
        (413, b'{"jsonrpc":"2.0","error":{"code":-32600,"message":"too large"}}', -32600),
    ],
)
async def test_an_error_of_the_node_goes_under_the_calls_id(
    node: Node, over_http: Front, status: int, body: bytes, expected: int
) -> None:
    """On a socket only an id tells whose error it is: pages of text and errors under no id get the ids of the call."""
    node.http = lambda _: web.Response(status=status, body=body)
    client = await over_http.connect()
    await client.send_str(call("me"))
    answer = await hear(client)
    assert (answer["id"], code(answer)) == ("me", expected)
    await client.send_str(f"[{call(1)},{call(2)}]")
    assert [(one["id"], code(one)) for one in await hear(client)] == [(1, expected), (2, expected)]


async def test_a_node_that_is_down_over_http(node: Node, over_http: Front) -> None:
    """The pool's reason reaches the call."""
    await node.stop()
    client = await over_http.connect()
    await client.send_str(call(1))
    assert code(await hear(client)) == -32011


async def test_calls_over_http_do_not_wait_for_each_other(node: Node, over_http: Front) -> None:
    """A slow call delays no other; at most a bounded number is at the node, the others follow."""
    client = await over_http.connect()
    await client.send_str(call("slow", "hang"))
    for number in range(100):
        await client.send_str(call(number))
    assert sorted([(await hear(client))["id"] for _ in range(100)]) == list(range(100))
    node.go_on.set()
    assert (await hear(client))["id"] == "slow"


async def test_only_so_many_calls_are_at_the_node(
    node: Node, over_http: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the bound calls wait; one whose time is up by then is answered without being sent."""
    monkeypatch.setattr("relay.ingress.websocket.over_http.MAX_AT_ONCE", 2)
    client = await over_http.connect()
    for number in range(2):
        await client.send_str(call(number, "hang"))
    await client.send_str(call(2))
    await until(lambda: len(node.received) == 2)
    await turns()
    over_http.now[0] += 20
    await client.send_str(call(3))
    await until(lambda: len(over_http.routes.bodies) == 4)
    assert len(node.received) == 2
    over_http.now[0] += 10
    node.go_on.set()

    answers = {answer["id"]: answer for answer in [await hear(client) for _ in range(4)]}
    assert [number for number, answer in answers.items() if "error" in answer] == [2]
    assert code(answers[2]) == -32015
    assert [json.loads(body)["id"] for _, body in node.received] == [0, 1, 3]


async def test_answers_over_http_wait_for_a_client_that_does_not_read(node: Node, over_http: Front) -> None:
    """While a client takes nothing no further call of it is sent; all are answered once it reads."""
    client = await over_http.connect(max_msg_size=0)
    node.http = lambda body: web.Response(body=json.dumps({"id": json.loads(body)["id"], "result": "x" * 200_000}))
    for number in range(300):
        await client.send_str(call(number))
    await until(lambda: over_http.session._out.size > session.MAX_WAITING_BYTES)
    await until(lambda: over_http.session._way._running == 0)  # type: ignore[attr-defined] # of this kind of way
    assert len(node.received) < 200
    assert over_http.session._out.size < session.MAX_WAITING_BYTES + (MAX_AT_ONCE + 2) * 201_000
    assert sorted([(await hear(client))["id"] for _ in range(300)]) == list(range(300))


async def test_drain_over_http_answers_at_its_deadline(node: Node, over_http: Front) -> None:
    """A call that hangs at the node is answered by an error, then the socket is closed."""
    client = await over_http.connect()
    await client.send_str(call(1, "hang"))
    await until(lambda: len(node.received) == 1)
    async with asyncio.TaskGroup() as group:
        group.create_task(over_http.server.drain(over_http.now[0]))
        assert code(await hear(client)) == -32013
        assert await hear_close(client) == WSCloseCode.SERVICE_RESTART


async def test_a_client_that_vanishes_abandons_its_calls_over_http(node: Node, over_http: Front) -> None:
    """Nothing is kept for a client that is gone."""
    client = await over_http.connect()
    await client.send_str(call(1, "hang"))
    await until(lambda: len(node.received) == 1)
    await client.close()
    await until(lambda: over_http.closed == 1)
    assert over_http.count("pass", "gone") == 1
    await until(lambda: node.abandoned == 1)
