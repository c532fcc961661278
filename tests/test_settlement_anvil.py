"""Watch and sweep before a real node: what the tables say of what anvil does to transactions."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from relay.lifecycle import Reason, State
from relay.transaction import decode
from tests.settlement_rig import Rig, rig
from tests.stand import signed as signed_for
from tests.test_real_node import CHAIN_ID, a_node

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.real_node
GWEI = 10**9


def signed(nonce: int, **fields: Any) -> str:
    """For anvil's chain."""
    return signed_for(nonce, **({"chainId": CHAIN_ID} | fields))


def hash_of(raw: str) -> str:
    """0x…"""
    return decode(bytes.fromhex(raw[2:])).hash


class Anvil:
    """Its controls."""

    def __init__(self, client: aiohttp.ClientSession, url: str) -> None:
        self._client = client
        self.url = url

    async def __call__(self, method: str, *params: Any) -> Any:
        """The result of a call that must succeed."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)}
        async with self._client.post(self.url, json=body) as response:
            answer = await response.json()
        assert "error" not in answer, answer
        return answer.get("result")

    async def mine(self, blocks: int = 1) -> None:
        """So many blocks."""
        for _ in range(blocks):
            await self("evm_mine")


@asynccontextmanager
async def before_anvil(anvil: Path, *options: str, **tables: Any) -> AsyncIterator[tuple[Rig, Anvil]]:
    """A relay with a journal before anvil, which mines when it is told to."""
    async with (
        a_node(anvil, "--no-mining", *options) as url,
        aiohttp.ClientSession() as client,
        rig(url=url, **tables) as here,
    ):
        yield here, Anvil(client, url)


async def test_anvil_mines_and_completes(anvil: Path) -> None:
    """Receipts, blocks and depth as a real node tells them."""
    async with before_anvil(anvil) as (here, node):
        raw = signed(0)
        await here.send(raw)
        await node.mine()
        await here.watch()
        mined = await here.state(raw)
        await node.mine(2)
        await here.watch()

        assert mined is State.MINED
        assert await here.state(raw) is State.COMPLETED


async def test_a_dropped_transaction_is_sent_again(anvil: Path) -> None:
    """`anvil_dropTransaction`: nobody knows it, its slot is free; the same bytes go again and are mined."""
    async with before_anvil(anvil) as (here, node):
        raws = [signed(0), signed(1)]
        for raw in raws:
            await here.send(raw)
        await node("anvil_dropTransaction", hash_of(raws[0]))
        await here.old_sweep()
        await node.mine()
        await here.watch()

        assert [await here.state(raw) for raw in raws] == [State.MINED, State.MINED]


async def test_a_restart_that_forgets_the_pool(anvil: Path) -> None:
    """`anvil_dropAllTransactions`: all of a sender's, in their order."""
    async with before_anvil(anvil) as (here, node):
        raws = [signed(nonce) for nonce in range(5)]
        for raw in raws:
            await here.send(raw)
        await node("anvil_dropAllTransactions")
        await here.old_sweep()
        await node.mine()
        await here.watch()

        assert {await here.state(raw) for raw in raws} == {State.MINED}


async def test_a_reorganisation(anvil: Path) -> None:
    """`anvil_reorg` without the transaction: taken back, sent again, mined again; each block is in the history."""
    async with before_anvil(anvil) as (here, node):
        raw = signed(0)
        record = await here.send(raw)
        await node.mine()
        await here.watch()
        mined = await here.state(raw)
        await node("anvil_reorg", 1, [])
        await node("anvil_dropAllTransactions")
        await node.mine()
        await here.watch()
        back = await here.record(raw)
        await here.old_sweep()
        await node.mine(3)
        here.pass_s(60)
        await here.watch()

        assert mined is State.MINED
        assert (back.state, back.reason) == (State.PENDING, Reason.REORGANISED)
        assert await here.state(raw) is State.COMPLETED
        assert len(await here.journal.receipts(record.id)) == 2


async def test_under_the_base_fee(anvil: Path) -> None:
    """`anvil_setNextBlockBaseFeePerGas` above its cap: named, and not sent again before the fee has fallen."""
    async with before_anvil(anvil) as (here, node):
        raw = signed(0)
        await here.send(raw)
        await node("anvil_setNextBlockBaseFeePerGas", hex(100 * GWEI))
        await node.mine()
        await here.old_sweep()
        held = await here.record(raw)
        await node("anvil_setNextBlockBaseFeePerGas", hex(GWEI))
        await node.mine()
        await here.old_sweep()
        await node("anvil_setNextBlockBaseFeePerGas", hex(GWEI))
        await node.mine()
        await here.watch()

        assert (held.state, held.reason, held.tries) == (State.PENDING, Reason.UNDER_BASE_FEE, 1)
        assert await here.state(raw) is State.MINED


async def test_a_block_that_has_no_room_for_it(anvil: Path) -> None:
    """`anvil_setBlockGasLimit` below its gas: it waits in the pool, and says so."""
    async with before_anvil(anvil) as (here, node):
        raw = signed(0, gas=200_000)
        await here.send(raw)
        await node("anvil_setBlockGasLimit", hex(100_000))
        await node.mine()
        await here.old_sweep()
        held = await here.record(raw)
        await node("anvil_setBlockGasLimit", hex(30_000_000))
        await node.mine()
        await here.watch()

        assert (held.state, held.reason, held.tries) == (State.PENDING, Reason.TIMEOUT_IN_POOL, 1)
        assert await here.state(raw) is State.MINED


async def test_a_nonce_that_another_took(anvil: Path) -> None:
    """A replacement sent past the relay: superseded when it is final, and named."""
    async with before_anvil(anvil) as (here, node):
        raw = signed(0)
        other = signed(0, value=7, maxFeePerGas=20 * GWEI, maxPriorityFeePerGas=5 * GWEI)
        await here.send(raw)
        await node("eth_sendRawTransaction", other)
        await node.mine()
        await here.old_sweep()
        early = await here.record(raw)
        await node.mine(5)
        await here.old_sweep()
        late = await here.record(raw)

        assert (early.state, early.reason) == (State.PENDING, Reason.TIMEOUT_NONCE_USED)
        assert (late.state, late.other_hash) == (State.SUPERSEDED, bytes.fromhex(hash_of(other)[2:]))
