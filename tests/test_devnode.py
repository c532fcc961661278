"""The development node as its clients meet it: calls, blocks, the record of arrivals, control from outside."""

from __future__ import annotations

import asyncio
import io
import json
import random
from typing import TYPE_CHECKING, Any, Literal

import aiohttp
import pytest
from eth_account import Account
from web3 import AsyncHTTPProvider, AsyncWeb3

from relay.devnode import FUNDED, Delay, DevNode, Hang, NodeSettings, Refuse
from relay.transaction import decode
from tests.devnode_client import SEND, Client, digest, raw, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

ALICE = FUNDED[0]


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


# --- real clients and plain calls ---


@pytest.mark.parametrize("mode", ["strict", "pool"])
async def test_web3_sends_a_transfer_and_sees_its_receipt(mode: Literal["strict", "pool"]) -> None:
    """web3.py fills in, signs and sends a transfer, finds the receipt, and the balance has moved."""
    async with DevNode(NodeSettings(mode=mode, delay_ms=(0, 2))) as served:
        w3 = AsyncWeb3(AsyncHTTPProvider(served.url))
        account = Account.from_key(ALICE.key)
        to = AsyncWeb3.to_checksum_address("0x" + "00" * 19 + "01")
        body: Any = {"to": to, "value": 5, "from": ALICE.address}
        filled = body | {
            "nonce": await w3.eth.get_transaction_count(account.address, "pending"),
            "gas": await w3.eth.estimate_gas(body),
            "gasPrice": await w3.eth.gas_price,
            "chainId": await w3.eth.chain_id,
        }
        sent = await w3.eth.send_raw_transaction(account.sign_transaction(filled).raw_transaction)
        receipt = await w3.eth.wait_for_transaction_receipt(sent, timeout=10, poll_latency=0.01)
        assert (receipt["status"], receipt["gasUsed"], receipt["blockNumber"]) == (1, 21_000, 1)
        assert await w3.eth.get_balance(to) == 5
        block = await w3.eth.get_block(1, full_transactions=True)
        assert [dict(tx)["hash"] for tx in block["transactions"]] == [sent]  # type: ignore[arg-type] # full objects
        await w3.provider.disconnect()


async def test_a_batch_is_carried_out_in_order(client: Client) -> None:
    """Elements run one after another, so consecutive nonces in one batch all pass; answers stand in request order."""
    calls = [request(SEND, raw(nonce), id_=f"tx{nonce}") for nonce in range(3)]
    count = request("eth_getTransactionCount", ALICE.address, "pending", id_=None)
    answers = await client.post([count, *calls, count])
    assert [answer["id"] for answer in answers] == [None, "tx0", "tx1", "tx2", None]
    assert [answers[0]["result"], answers[4]["result"]] == ["0x0", "0x3"]
    assert client.node.arrivals.overlaps == 0


async def test_errors_are_worded_as_by_geth(client: Client) -> None:
    """Unknown methods, missing and malformed parameters and undecodable transactions have geth's codes and texts."""
    unmarshal = "invalid argument 0: json: cannot unmarshal"
    into = "into Go value of type hexutil.Bytes"
    assert await client.error("eth_foo") == {
        "code": -32601, "message": "the method eth_foo does not exist/is not available"
    }  # fmt: skip
    cases: list[tuple[tuple[Any, ...], str]] = [
        ((), "missing value for required argument 0"),
        (("12",), f"{unmarshal} hex string without 0x prefix {into}"),
        (("0x123",), f"{unmarshal} hex string of odd length {into}"),
        (("0xzz",), f"{unmarshal} invalid hex string {into}"),
        ((7,), f"{unmarshal} non-string {into}"),
    ]
    for params, text in cases:
        assert await client.error(SEND, *params) == {"code": -32602, "message": text}
    assert await client.error(SEND, "0x02") == {"code": -32000, "message": "typed transaction too short"}
    assert (await client.error("eth_getBalance", ALICE.address, "0x99"))["message"] == "header not found"
    assert (await client.post([]))["error"]["code"] == -32600
    async with client.session.post(client.node.url, data=b"{") as response:
        assert (response.status, (await response.json())["error"]["code"]) == (200, -32700)
    async with client.session.post(client.node.url, json={"method": "eth_chainId"}) as response:
        assert (response.status, await response.read()) == (200, b"")


async def test_a_large_body_is_taken(client: Client) -> None:
    """A body of 20 MB is read and answered, and a large answer comes whole."""
    body = io.BytesIO(json.dumps(request("eth_call", {"data": "0x" + "00" * 10_000_000})).encode())
    async with client.session.post(client.node.url, data=body) as response:
        assert (await response.json())["result"] == "0x"
    assert len(await client.result("dev_bytes", 5_000_000)) == 5_000_000


async def test_submission_with_a_receipt_waits_for_the_block(client: Client) -> None:
    """eth_sendRawTransactionSync answers with the receipt once mined; in vain, with code 4 and the hash."""
    waiting = asyncio.create_task(client.result("eth_sendRawTransactionSync", raw(0)))  # noqa: TID251 - awaited below
    await client.node.until(lambda: len(client.node.chain.pool) == 1)
    client.node.mine()
    assert (await waiting)["transactionHash"] == digest(0)
    late = await client.error("eth_sendRawTransactionSync", raw(1), "0x1")
    assert (late["code"], late["data"]) == (4, digest(1))


async def test_private_and_conditional_submissions_are_taken(client: Client) -> None:
    """The other submission methods reach the same pool; a private transaction stays hidden until it is mined."""
    assert await client.result("eth_sendRawTransactionConditional", raw(0), {}) == digest(0)
    assert await client.result("eth_sendPrivateTransaction", {"tx": raw(1)}) == digest(1)
    assert await client.result("eth_sendPrivateRawTransaction", raw(2)) == digest(2)
    assert await client.result("eth_getTransactionByHash", digest(0))
    assert await client.result("eth_getTransactionByHash", digest(1)) is None
    client.node.mine()
    assert await client.result("eth_getTransactionReceipt", digest(2))


# --- mining ---


async def test_a_burst_is_mined_by_itself() -> None:
    """Without a block time each burst of accepted transactions gets a block, and the rest of a full one the next."""
    async with DevNode(NodeSettings(gas_limit=42_000)) as served, aiohttp.ClientSession() as session:
        client = Client(session, served)
        await client.post([request(SEND, raw(nonce)) for nonce in range(5)])
        await served.until(lambda: served.chain.ledger.account(ALICE.address_bytes).nonce == 5)
        assert [len(block.mined) for block in served.chain.blocks[:4]] == [0, 2, 2, 1]


async def test_what_waits_at_the_start_is_mined() -> None:
    """A node that starts with transactions in its pool mines them without being asked."""
    served = DevNode()
    assert served.chain.submit(decode(bytes.fromhex(raw(0)[2:]))) is None
    async with served:
        await served.until(lambda: served.chain.mined(digest(0)) is not None)


async def test_blocks_come_at_intervals() -> None:
    """With a block time blocks come by the clock, empty ones too."""
    async with DevNode(NodeSettings(block_time_s=0.01)) as served:
        await served.until(lambda: served.chain.height >= 3)


async def test_heads_are_announced_to_subscribers_and_filters(client: Client) -> None:
    """A WebSocket hears each new head until it unsubscribes; a filter collects hashes between polls."""
    name = await client.result("eth_newBlockFilter")
    async with client.session.ws_connect(client.node.ws_url) as socket:
        await socket.send_json(request("eth_subscribe", "newHeads"))
        subscription = (await socket.receive_json())["result"]
        block = client.node.mine()
        event = await socket.receive_json()
        assert (event["method"], event["params"]["subscription"]) == ("eth_subscription", subscription)
        assert event["params"]["result"]["hash"] == block.hash
        await socket.send_json(request("eth_unsubscribe", subscription))
        assert (await socket.receive_json())["result"] is True
        second = client.node.mine()
        await socket.send_json(request("eth_blockNumber"))
        assert (await socket.receive_json())["result"] == "0x2"
    assert await client.result("eth_getFilterChanges", name) == [block.hash, second.hash]
    assert await client.result("eth_getFilterChanges", name) == []
    assert (await client.error("eth_subscribe", "newHeads"))["message"] == "notifications not supported"


# --- the record, and why order is lost ---


async def test_submissions_overtake_each_other_while_they_are_checked(client: Client) -> None:
    """The nonce is judged after the delay: a successor sent right behind a slower transaction dies. Both overlap."""
    client.node.script.add(Delay(ms=60_000, nonce=0), Hang(nonce=1))
    async with asyncio.TaskGroup() as group:
        first = group.create_task(client.post(request(SEND, raw(0))))
        await client.node.until(lambda: client.node.arrivals.total == 1)
        second = group.create_task(client.error(SEND, raw(1)))
        await client.node.until(lambda: client.node.hanging == 1)
        client.node.release()
        assert (await second)["message"] == "nonce too high: next nonce 0, tx nonce 1"
        first.cancel()
    zero, one = client.node.arrivals
    assert (zero.left, zero.overlapped, one.overlapped, one.inverted) == (None, False, True, False)
    assert (client.node.arrivals.overlaps, client.node.arrivals.inversions) == (1, 0)


async def test_the_delay_is_drawn_for_each_submission() -> None:
    """With a range of delays two submissions that arrive together overtake each other as the seed says."""
    seed = next(seed for seed in range(1000) if late_then_early(random.Random(seed)))
    async with (
        DevNode(NodeSettings(delay_ms=(0, 200), seed=seed)) as served,
        aiohttp.ClientSession() as session,
        session.ws_connect(served.url) as socket,
    ):
        for nonce in range(2):
            await socket.send_json(request(SEND, raw(nonce), id_=nonce))
        assert (await socket.receive_json())["error"]["message"] == "nonce too high: next nonce 0, tx nonce 1"
        assert await socket.receive_json() == {"jsonrpc": "2.0", "id": 0, "result": digest(0)}


def late_then_early(dice: random.Random) -> bool:
    """Does it let the first of two submissions wait long, and the second hardly at all?"""
    return dice.uniform(0, 200) > 150 and dice.uniform(0, 200) < 20


async def test_an_inversion_is_a_new_nonce_after_a_higher_one(client: Client) -> None:
    """A nonce that comes late counts once; resends, other senders and rising nonces do not count."""
    for nonce, sender in ((1, 0), (0, 0), (0, 0), (0, 1), (2, 0), (1, 0)):
        await client.post(request(SEND, raw(nonce, sender)))
    assert [(one.nonce, one.inverted) for one in client.node.arrivals] == [
        (1, False), (0, True), (0, False), (0, False), (2, False), (1, False),
    ]  # fmt: skip
    assert [one.outcome for one in client.node.arrivals][:3] == [
        "nonce too high: next nonce 0, tx nonce 1", "accepted", "already known"
    ]  # fmt: skip
    assert client.node.arrivals.inversions == 1


async def test_the_same_bytes_again_do_not_overlap(client: Client) -> None:
    """A copy that arrives while the first is under way is no overlap; another sender's transaction is none either."""
    client.node.script.add(Hang())
    async with asyncio.TaskGroup() as group:
        for text in (raw(0), raw(0), raw(0, 1)):
            _ = group.create_task(client.post(request(SEND, text)))
        await client.node.until(lambda: client.node.hanging == 3)
        assert (client.node.arrivals.overlaps, client.node.arrivals.under_way) == (0, 3)
        client.node.release()
    assert client.node.arrivals.under_way == 0


# --- control from another process, and restarts ---


async def test_the_node_is_controlled_over_http(client: Client) -> None:
    """Rules, record, mining, forgetting, funding and a fresh start, all by JSON-RPC; rules never hit these methods."""
    rules = [{"do": "refuse", "message": "no", "nonce": 1}, {"do": "hang", "method": "*", "first": 99}]
    assert await client.result("dev_script", *rules) == 2
    for nonce in range(2):
        await client.post(request(SEND, raw(nonce)))
    assert [one["outcome"] for one in await client.result("dev_arrivals", 0)] == ["accepted", "no"]
    assert [one["number"] for one in await client.result("dev_arrivals", 1)] == [1]
    report = await client.result("dev_report")
    assert (report["submissions"], report["hits"], report["calls"][SEND]) == (2, [1, 0], 2)
    assert await client.result("dev_forget", digest(0)) is True
    assert await client.result("dev_fund", ALICE.address, hex(10**20)) is True
    assert await client.result("dev_mine", 2) == [block.hash for block in client.node.chain.blocks[1:]]
    assert await client.result("eth_getBalance", ALICE.address, "latest") == hex(10**20)
    assert await client.result("dev_reset", {"mode": "pool", "block_time_s": None}) is True
    assert (client.node.settings.mode, client.node.chain.height, client.node.arrivals.total) == ("pool", 0, 0)


async def test_a_rule_for_everything_spares_the_controls(client: Client) -> None:
    """A script that breaks every method can still be taken back."""
    client.node.script.add(Refuse(method="*", message="no"))
    assert (await client.error("eth_chainId"))["message"] == "no"
    assert await client.result("dev_clear") is True
    assert await client.result("eth_chainId") == "0x539"


@pytest.mark.parametrize(
    ("method", "params", "said"),
    [
        ("dev_script", {"do": "explode"}, "explode"),
        ("dev_script", {"do": "reset", "wen": "after"}, "wen"),
        ("dev_reset", {"mod": "pool"}, "mod"),
        ("dev_reset", {"mode": "loose"}, "loose"),
    ],
)
async def test_a_mistaken_script_is_an_error_that_names_it(client: Client, method: str, params: Any, said: str) -> None:
    """An unknown rule, key or value is refused, and nothing changes."""
    error = await client.error(method, params)
    assert error["code"] == -32602
    assert said in error["message"]
    assert len(client.node.script) == 0


async def test_a_node_that_crashed_comes_back_with_its_chain(client: Client) -> None:
    """Closing breaks at once what is under way; a restart serves the same chain on the same port."""
    node, url = client.node, client.node.url
    node.script.add(Hang(nonce=1))
    async with client.session.ws_connect(node.ws_url) as socket, asyncio.TaskGroup() as group:
        await socket.send_json(request(SEND, raw(0)))
        assert (await socket.receive_json())["result"] == digest(0)
        broken = group.create_task(connection_error(client.post(request(SEND, raw(1)))))
        await node.until(lambda: node.hanging == 1)
        async with asyncio.timeout(3):
            await node.close()
        assert await broken == aiohttp.ServerDisconnectedError
        await socket.receive()
        assert socket.close_code == aiohttp.WSCloseCode.ABNORMAL_CLOSURE
    assert await connection_error(client.post(request("eth_chainId"))) == aiohttp.ClientConnectorError
    await node.start()
    assert node.url == url
    assert await client.result("eth_getTransactionCount", ALICE.address, "pending") == "0x1"
    assert node.arrivals.under_way == 0


async def test_a_taken_port_is_an_os_error(node: DevNode) -> None:
    """Whoever starts a second node on a port hears it, and nothing is left behind."""
    second = DevNode(port=int(node.url.rpartition(":")[2]))
    with pytest.raises(OSError, match="address"):
        await second.start()
    await second.close()


async def connection_error(work: Awaitable[Any]) -> type[Exception] | None:
    """The kind of connection error that ``work`` ends with."""
    try:
        await work
    except aiohttp.ClientError as error:
        return type(error)
    return None
