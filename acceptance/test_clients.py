"""Bursts of real client libraries, through the relay, to a real node that mines.

A tap between relay and node is the judge of order, the blocks are the judge of what came of it.
"""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from acceptance.rig.mined import mined_nonces
from acceptance.rig.parts import CLIENTS, native
from acceptance.rig.signing import funded

if TYPE_CHECKING:
    from pathlib import Path

    from acceptance.conftest import Measured
    from acceptance.rig.calls import Caller
    from acceptance.rig.parts import Rig
    from acceptance.rig.tap import Tap

SENDERS, COUNT = 3, 100
ANVIL_CHAIN = 31337
CAST_AT_ONCE = 12
RECEIVER = "0x00000000000000000000000000000000000000aa"
SCRIPTED = 31
WINDOW_MS = 5000  # on a busy machine viem alone comes with a nonce a second after its successors

pytestmark = [pytest.mark.real_node, pytest.mark.timeout(300)]


@dataclass(frozen=True, slots=True)
class Line:
    """Client → relay → tap → node; ``url`` is the relay's."""

    url: str
    tap: Tap
    node: Caller


async def before_a_real_node(rig: Rig) -> Line:
    """A node that mines a block a second, a tap, a relay."""
    anvil = await rig.anvil()
    tap = await rig.tap(anvil.url)
    relay = await rig.relay(tap.url, ordering__reorder_window_ms=WINDOW_MS)
    return Line(relay.url, tap, rig.caller(anvil.url))


def keys(count: int) -> list[str]:
    """Private keys of funded accounts, in hex."""
    return ["0x" + bytes(account.key).hex() for account in funded(count)]


async def check(line: Line, senders: int, count: int) -> str:
    """In order and one at a time at the node, and all in its blocks; a line of figures."""
    order = line.tap.order()
    await line.node.call("evm_mine")
    nonces = await mined_nonces(line.node)
    assert nonces == {account.address.lower(): list(range(count)) for account in funded(senders)}
    assert (order.arrivals, order.inversions, order.most_at_once) == (senders * count, 0, 1)
    return f"{order} all mined in order"


@pytest.mark.parametrize(
    ("script", "options"),
    [("ethers.mjs", {"batches": True}), ("ethers.mjs", {"batches": False}), ("viem.mjs", {"chainId": ANVIL_CHAIN}),
     ("web3py.py", {"chain_id": ANVIL_CHAIN})],
    ids=["ethers, batches", "ethers, single", "viem, nonceManager", "web3.py, threads"],
)  # fmt: skip
async def test_a_librarys_burst_is_mined_in_order(
    rig: Rig, measured: Measured, script: str, options: dict[str, Any]
) -> None:
    """Three senders, a hundred transactions each, in the disorder the library makes: none refused, all in order."""
    line = await before_a_real_node(rig)
    result = await rig.client(script, action="burst", rpc=line.url, keys=keys(SENDERS), count=COUNT, **options)
    assert result["errors"] == []
    assert len(set(result["hashes"])) == SENDERS * COUNT
    measured(await check(line, SENDERS, COUNT))


async def test_casts_burst_is_mined_in_order(rig: Rig, measured: Measured) -> None:
    """``cast send --async --nonce N``: a process for each transaction, a dozen at once, neighbours swapped."""
    line = await before_a_real_node(rig)
    cast, free = native("cast"), asyncio.Semaphore(CAST_AT_ONCE)
    fees = ["--gas-limit", "21000", "--gas-price", "20gwei", "--priority-gas-price", "1gwei"]

    async def send(key: str, nonce: int) -> None:
        async with free:
            argv = [cast, "send", "--async", "--rpc-url", line.url, "--private-key", key, "--nonce", str(nonce)]
            await rig.run(*argv, *fees, "--value", "1", RECEIVER)

    await asyncio.gather(*(send(key, place ^ 1) for place in range(COUNT) for key in keys(SENDERS)))
    measured(await check(line, SENDERS, COUNT))


async def test_forge_deploys_through_the_relay(rig: Rig, tmp_path: Path) -> None:
    """``forge create`` compiles, deploys, and the code is on the chain."""
    line = await before_a_real_node(rig)
    contract = f"{forge_project(tmp_path)}/Counter.sol:Counter"
    create = [native("forge"), "create", "--root", str(tmp_path), *compiler(), "--rpc-url", line.url, "--private-key"]
    output = await rig.run(*create, keys(1)[0], "--broadcast", contract, "--constructor-args", "5")
    address = output.partition("Deployed to:")[2].split()[0]
    assert len(await line.node.call("eth_getCode", address, "latest")) > 2


async def test_a_forge_script_is_mined_in_order(rig: Rig, tmp_path: Path, measured: Measured) -> None:
    """``forge script --broadcast`` sends a deployment and thirty calls at once, in no order, on many connections."""
    line = await before_a_real_node(rig)
    script = f"{forge_project(tmp_path)}/Burst.s.sol:Burst"
    run = [native("forge"), "script", script, "--root", str(tmp_path), *compiler(), "--rpc-url", line.url]
    await rig.run(*run, "--private-key", keys(1)[0], "--broadcast")
    measured(await check(line, 1, SCRIPTED))


def compiler() -> list[str]:
    """Flags that make forge use the compiler from npm."""
    return ["--use", str(CLIENTS / "solc.mjs"), "--offline"]


def forge_project(root: Path) -> Path:
    """A project with our contracts; the folder of its sources."""
    (root / "foundry.toml").write_text('[profile.default]\nsrc = "src"\nout = "out"\nlibs = []\n')
    shutil.copytree(CLIENTS / "forge", root / "src")
    return root / "src"
