"""Every client library sends a transfer on ``relay dev`` and sees its receipt."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from acceptance.rig.parts import native
from acceptance.rig.signing import funded

if TYPE_CHECKING:
    from acceptance.rig.parts import Rig

RECEIVER = "0x00000000000000000000000000000000000000aa"
HALF_ETHER = 5 * 10**17


@pytest.mark.parametrize(
    ("script", "options"), [("ethers.mjs", {}), ("viem.mjs", {"chainId": 1337}), ("web3py.py", {})]
)
async def test_a_library_sees_its_receipt(rig: Rig, script: str, options: dict[str, Any]) -> None:
    """The library fills in nonce, fees and gas itself, sends, and waits for the receipt."""
    url = await rig.dev()
    key = "0x" + bytes(funded(1)[0].key).hex()
    result = await rig.client(script, action="transfer", rpc=url, keys=[key], **options)
    assert result["status"] == 1
    node = rig.caller(url)
    assert int(await node.call("eth_getBalance", RECEIVER, "latest"), 16) == HALF_ETHER
    assert (await node.call("eth_getTransactionReceipt", result["hash"]))["status"] == "0x1"


async def test_cast_sees_its_receipt(rig: Rig) -> None:
    """``cast send`` without any hint."""
    url = await rig.dev()
    key = "0x" + bytes(funded(1)[0].key).hex()
    send = [native("cast"), "send", "--json", "--rpc-url", url, "--private-key", key, "--value", "0.5ether", RECEIVER]
    receipt = json.loads((await rig.run(*send)).splitlines()[-1])
    assert receipt["status"] == "0x1"
    assert int(await rig.caller(url).call("eth_getBalance", RECEIVER, "latest"), 16) == HALF_ETHER
