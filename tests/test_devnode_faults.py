"""Scripted behaviour of the development node: what breaks on the wire, and what became of the transaction."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

import aiohttp
import msgspec
import pytest

from relay.devnode import (
    FUNDED,
    Answer,
    Delay,
    DevNode,
    Forget,
    Hang,
    NodeSettings,
    Page,
    Refuse,
    Reset,
    Status,
    Trickle,
    Truncate,
    WrongId,
)
from tests.devnode_client import SEND, Client, digest, raw, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relay.devnode.faults import AnyRule

ALICE, BOB = FUNDED[0], FUNDED[1]


@pytest.fixture
async def node() -> AsyncIterator[DevNode]:
    """A strict node that mines only when told to."""
    async with DevNode(NodeSettings(block_time_s=None)) as served:
        yield served


@pytest.fixture
async def client(node: DevNode) -> AsyncIterator[Client]:
    """Its client."""
    async with aiohttp.ClientSession() as session:
        yield Client(session, node)


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        (Reset(), aiohttp.ClientOSError),
        (Page(), aiohttp.ContentTypeError),
        (Page(status=429, body="slow down"), aiohttp.ContentTypeError),
        (Truncate(), aiohttp.ClientPayloadError),
    ],
    ids=["reset", "503", "429", "truncated"],
)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_broken_answer_leaves_the_transaction_where_the_rule_says(
    client: Client, rule: AnyRule, error: type[Exception], when: str
) -> None:
    """Resets, proxy pages and cut bodies break the answer; the transaction was taken only if the rule says `after`."""
    if isinstance(rule, Reset | Page):
        rule = msgspec.structs.replace(rule, when=when)
    client.node.script.add(rule)
    with pytest.raises(error):
        await client.post(request(SEND, raw(0)))
    taken = when == "after" or isinstance(rule, Truncate)
    assert [one.taken for one in client.node.arrivals] == [taken]
    assert (client.node.chain.transaction(digest(0)) is not None) == taken


async def test_a_page_has_status_and_type_of_a_proxy(client: Client) -> None:
    """A scripted page is HTML under its HTTP status."""
    client.node.script.add(Page(status=502, method="eth_chainId"))
    async with client.session.post(client.node.url, json=request("eth_chainId")) as response:
        assert (response.status, response.content_type) == (502, "text/html")


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_hang_ends_by_release(client: Client, when: Literal["before", "after"]) -> None:
    """A hanging submission is taken at once or only after its release, by the rule, and then answered."""
    client.node.script.add(Hang(when=when, times=1))
    async with asyncio.TaskGroup() as group:
        sent = group.create_task(client.result(SEND, raw(0)))
        await client.node.until(lambda: client.node.hanging == 1)
        assert (len(client.node.chain.pool) == 1) == (when == "after")
        client.node.release()
    assert sent.result() == digest(0)
    assert len(client.node.chain.pool) == 1


async def hung_up(client: Client) -> None:
    """Submit, and drop the connection as soon as the node has the request."""
    async with asyncio.TaskGroup() as group:
        sent = group.create_task(client.post(request(SEND, raw(0))))
        await client.node.until(lambda: client.node.arrivals.total == 1)
        sent.cancel()
    await client.node.until(lambda: client.node.arrivals.under_way == 0)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_hang_ends_when_the_caller_hangs_up(client: Client, when: Literal["before", "after"]) -> None:
    """A caller that gives up ends the hang; a transaction that hung before it was taken is never taken."""
    client.node.script.add(Hang(when=when))
    await hung_up(client)
    assert [(one.outcome, one.taken) for one in client.node.arrivals] == [("gone", when == "after")]


async def test_a_submission_goes_on_when_its_caller_hangs_up(client: Client) -> None:
    """A node that is still checking takes the transaction although nobody waits for the answer any more."""
    client.node.script.add(Delay(ms=50))
    await hung_up(client)
    assert [(one.outcome, one.taken) for one in client.node.arrivals] == [("accepted", True)]


async def test_refusals_and_answers_can_be_lies(client: Client) -> None:
    """A refusal `after` denies what was taken; an answer states what is not true."""
    client.node.script.add(
        Refuse(message="txpool is full", code=-32003, data={"why": "busy"}, when="after"),
        Answer(method="eth_getTransactionCount", result="0x63"),
    )
    assert await client.error(SEND, raw(0)) == {"code": -32003, "message": "txpool is full", "data": {"why": "busy"}}
    assert len(client.node.chain.pool) == 1
    assert await client.result("eth_getTransactionCount", ALICE.address, "latest") == "0x63"


async def test_a_forgotten_transaction_was_accepted(client: Client) -> None:
    """The node answers with the hash and does not know it afterwards; the same bytes are taken again."""
    client.node.script.add(Forget(times=1))
    assert await client.result(SEND, raw(0)) == digest(0)
    assert await client.result("eth_getTransactionByHash", digest(0)) is None
    assert await client.result(SEND, raw(0)) == digest(0)
    assert await client.result("eth_getTransactionByHash", digest(0))


async def test_shapes_of_an_answer(client: Client) -> None:
    """An answer can have another id, another status, come in chunks or drop by drop, and is else the true one."""
    client.node.script.add(
        WrongId(method="eth_chainId"),
        Status(method="net_version", status=400),
        Trickle(method="dev_bytes", size=1000, chunked=True),
        Trickle(method="eth_blockNumber", size=5, ms=1),
    )
    assert await client.post(request("eth_chainId")) == {"jsonrpc": "2.0", "id": 424_242, "result": "0x539"}
    for method, params, status, length in (
        ("net_version", (), 400, True), ("dev_bytes", (5000,), 200, False), ("eth_blockNumber", (), 200, True),
    ):  # fmt: skip
        async with client.session.post(client.node.url, json=request(method, *params)) as response:
            assert (response.status, response.content_length is not None) == (status, length)
            assert (await response.json())["result"]


@pytest.mark.parametrize(
    ("rule", "hit"),
    [
        (Refuse(message="no", first=3, times=1), [3]),
        (Refuse(message="no", first=2, every=3), [2, 5, 8]),
        (Refuse(message="no", every=2, times=2), [1, 3]),
        (Refuse(message="no", nonce=4), [5]),
        (Refuse(message="no", hash=digest(2).upper().replace("X", "x")), [3]),
        (Refuse(message="no", sender=BOB.address), []),
        (Refuse(message="no", method="eth_chainId"), []),
    ],
)
async def test_which_calls_a_rule_hits(client: Client, rule: AnyRule, hit: list[int]) -> None:
    """By place (the k-th, every k-th, at most so often), by nonce, hash, sender or method."""
    client.node.script.add(rule)
    await client.post([request(SEND, raw(nonce)) for nonce in range(8)])
    refused = [one.number + 1 for one in client.node.arrivals if one.outcome == "no"]
    assert (refused, client.node.script.hits()) == (hit, [len(hit)])


async def test_a_reset_within_a_batch_loses_what_follows(client: Client) -> None:
    """What stood before the reset was carried out, what stood behind it was not."""
    client.node.script.add(Reset(nonce=1, when="after"))
    with pytest.raises(aiohttp.ClientOSError):
        await client.post([request(SEND, raw(nonce)) for nonce in range(3)])
    assert [(one.nonce, one.taken) for one in client.node.arrivals] == [(0, True), (1, True)]


async def test_a_socket_is_reset_too(client: Client) -> None:
    """Over a WebSocket a scripted reset ends the connection, with the transaction taken or not."""
    client.node.script.add(Reset(when="after"))
    async with client.session.ws_connect(client.node.ws_url) as socket:
        await socket.send_json(request(SEND, raw(0)))
        assert (await socket.receive()).type in {aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR}
    assert len(client.node.chain.pool) == 1


@pytest.mark.parametrize(("when", "taken"), [("before", 0), ("after", 2)])
async def test_a_rule_for_a_batch_hits_it_as_a_whole(
    node: DevNode, client: Client, when: Literal["before", "after"], taken: int
) -> None:
    """One error for all, before its calls or after them; neither a call nor a pattern for calls hits it."""
    node.script.add(Refuse(method="dev_batch", message="batch too large", when=when), Delay(method="*", ms=0))
    reply = await client.post([request(SEND, raw(nonce)) for nonce in (0, 1)])

    assert (reply["id"], reply["error"]["message"]) == (None, "batch too large")
    assert node.arrivals.total == taken
    assert node.script.hits() == [1, taken]
