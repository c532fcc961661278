"""Which transaction took a nonce.

Job: find the block in which the sender's count rose past the nonce, then the transaction in it.
Rules: reads only, a few dozen at most. A node that does not keep old states cannot say, and then nobody is named. Not
every rise has a transaction of the sender's: a delegated account (EIP-7702) also counts authorizations and what its
code creates.
Must not know: stores, what follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay.settlement.asking import digest, hexed, quantity

if TYPE_CHECKING:
    from relay.settlement.asking import Endpoint


async def rival(endpoint: Endpoint, sender: bytes, nonce: int, height: int) -> bytes | None:
    """The hash of the transaction at ``nonce``, mined in a block up to ``height``; None if it cannot be told."""
    block = await _rose(endpoint, sender, nonce, height)
    return None if block is None else await _in_block(endpoint, sender, nonce, block)


async def _rose(endpoint: Endpoint, sender: bytes, nonce: int, height: int) -> int | None:
    """The block in which the count rose past ``nonce``: steps back that double, then halves."""
    above, step, below = height, 1, height
    while True:
        if below == 0:
            below = -1
            break
        below = max(0, above - step)
        passed = await _passed(endpoint, sender, nonce, below)
        if passed is None:
            return None
        if not passed:
            break
        above, step = below, step * 2
    while above - below > 1:
        middle = (above + below) // 2
        passed = await _passed(endpoint, sender, nonce, middle)
        if passed is None:
            return None
        above, below = (middle, below) if passed else (above, middle)
    return above


async def _passed(endpoint: Endpoint, sender: bytes, nonce: int, height: int) -> bool | None:
    count = quantity(await endpoint.one("eth_getTransactionCount", hexed(sender), hex(height)))
    return None if count is None else count > nonce


async def _in_block(endpoint: Endpoint, sender: bytes, nonce: int, height: int) -> bytes | None:
    block = await endpoint.one("eth_getBlockByNumber", hex(height), True)  # noqa: FBT003 - with its transactions
    transactions = block.get("transactions") if isinstance(block, dict) else None
    address = hexed(sender)
    for each in transactions if isinstance(transactions, list) else ():
        if isinstance(each, dict) and str(each.get("from")).lower() == address and quantity(each.get("nonce")) == nonce:
            return digest(each.get("hash"))
    return None
