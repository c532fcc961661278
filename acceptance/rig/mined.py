"""What a chain has mined, read block by block: works with any node."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acceptance.rig.calls import Caller


async def mined_nonces(node: Caller) -> dict[str, list[int]]:
    """Sender (in lower case) → its nonces in the order of the chain, from block 1 to the newest."""
    newest = int(await node.call("eth_blockNumber"), 16)
    nonces: defaultdict[str, list[int]] = defaultdict(list)
    for number in range(1, newest + 1):
        block = await node.call("eth_getBlockByNumber", hex(number), True)
        for transaction in block["transactions"]:
            nonces[transaction["from"].lower()].append(int(transaction["nonce"], 16))
    return dict(nonces)
