"""The main job on a real node: pre-signed transactions burst through the relay into anvil, in order, none lost."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.stand import call, signed, submission
from tests.test_app import relay_before

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.real_node
CHAIN_ID = 31337


@asynccontextmanager
async def a_node(anvil: Path, *options: str) -> AsyncIterator[str]:
    """anvil on a port of its own choice; its URL."""
    process = await asyncio.create_subprocess_exec(
        anvil, "--port", "0", "--host", "127.0.0.1", *options, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        found = None
        while found is None and (line := await process.stdout.readline()):
            found = re.search(rb"Listening on (127\.0\.0\.1:\d+)", line)
        assert found, "anvil ended without listening"
        reader = asyncio.create_task(process.stdout.read())  # noqa: TID251 - keeps anvil's pipe empty
        yield f"http://{found[1].decode()}"
        process.kill()
        await reader
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def ask(client: aiohttp.ClientSession, url: str, body: bytes) -> Any:
    """The JSON value of the answer."""
    async with client.post(url, data=body) as response:
        return json.loads(await response.read())


@pytest.mark.parametrize("submit", ["single", "batch"])
async def test_a_burst_is_mined_in_order_and_none_is_lost(anvil: Path, submit: str) -> None:
    """Three senders, neighbours swapped, all at once: every one accepted, mined, in nonce order, each once."""
    count = 30
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        a_node(anvil, "--no-mining") as node,
        relay_before(node, upstream={"submit": submit}) as relay,
        aiohttp.ClientSession(connector=connector) as client,
    ):
        raws = {(who, nonce): signed(nonce, who=who, chainId=CHAIN_ID) for who in range(3) for nonce in range(count)}
        order = [(who, nonce ^ 1) for nonce in range(count) for who in range(3)]
        replies = await asyncio.gather(*(ask(client, relay, submission(raws[one], f"{one}")) for one in order))
        await ask(client, relay, call("evm_mine"))
        refused = [reply for reply in replies if "result" not in reply]
        places: dict[int, list[tuple[int, int]]] = {0: [], 1: [], 2: []}
        hashes = {one: reply["result"] for one, reply in zip(order, replies, strict=True) if "result" in reply}
        for who, nonce in sorted(hashes):
            receipt = (await ask(client, relay, call("eth_getTransactionReceipt", hashes[who, nonce])))["result"]
            places[who].append((int(receipt["blockNumber"], 16), int(receipt["transactionIndex"], 16)))

        assert refused == []
        assert all(seen == sorted(set(seen)) and len(seen) == count for seen in places.values())


async def test_a_copy_of_a_mined_transaction_is_success_and_another_is_not(anvil: Path) -> None:
    """Real words of a real node: the spent nonce is looked up, found for the one, refused for the other."""
    async with a_node(anvil) as node, relay_before(node) as relay, aiohttp.ClientSession() as client:
        mined = signed(0, chainId=CHAIN_ID)
        first = await ask(client, relay, submission(mined))
        again = await ask(client, relay, submission(mined))
        other = await ask(client, relay, submission(signed(0, value=2, chainId=CHAIN_ID)))

        assert first["result"] == again["result"]
        assert other["error"]["message"] == "nonce too low: next nonce 1, tx nonce 0"


async def test_a_pooled_copy_and_an_underpriced_replacement(anvil: Path) -> None:
    """Without mining: "already imported" is success, a bid that is too low comes back in the node's own words."""
    async with a_node(anvil, "--no-mining") as node, relay_before(node) as relay, aiohttp.ClientSession() as client:
        pooled = signed(0, chainId=CHAIN_ID)
        first = await ask(client, relay, submission(pooled))
        again = await ask(client, relay, submission(pooled))
        cheap = await ask(client, relay, submission(signed(0, value=2, chainId=CHAIN_ID)))

        assert first["result"] == again["result"]
        assert "underpriced" in cheap["error"]["message"]
