"""Subscriptions through the relay to a real node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from acceptance.rig.parts import Rig

HEADS = 3

pytestmark = pytest.mark.real_node


@pytest.mark.parametrize("script", ["ethers.mjs", "viem.mjs"])
async def test_new_heads_arrive(rig: Rig, script: str) -> None:
    """A library's WebSocket provider at the relay hears of each new block of the node, in order."""
    anvil = await rig.anvil()
    relay = await rig.relay(anvil.url, upstream__ws_url=anvil.ws_url)
    result = await rig.client(script, action="heads", ws=relay.ws_url, chainId=31337, count=HEADS)
    first = result["numbers"][0]
    assert result["numbers"] == list(range(first, first + HEADS))
