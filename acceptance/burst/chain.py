"""What a burst must know of the chain before it signs: chain id, fees, gas, nonces, balances.

Rules: a few calls at a time (the node may be a public one); every refusal to go on names the flag or the address.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from acceptance.burst.faults import BurstFault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from acceptance.burst.rpc import Endpoint

POLITE: Final = 8  # calls in flight while preparing and while waiting for receipts

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user wants in each transaction; None is for the node to say. Amounts in wei."""

    to: str | None = None
    value: int = 0
    gas: int | None = None
    type: int | None = None
    max_fee: int | None = None
    tip: int | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """What every transaction of the burst has in common. ``type`` 0 pays ``max_fee`` as its gas price."""

    chain_id: int
    type: int
    max_fee: int
    tip: int
    gas: int
    value: int
    to: str | None

    @property
    def cost(self) -> int:
        """The most one transaction can cost its sender, in wei."""
        return self.gas * self.max_fee + self.value


async def politely(work: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
    """``work`` for each of ``items``, at most `POLITE` at once."""
    free = asyncio.Semaphore(POLITE)

    async def one(item: T) -> R:
        async with free:
            return await work(item)

    return await asyncio.gather(*map(one, items))


async def terms(endpoints: Sequence[Endpoint], wish: Wish, sender: str) -> Terms:
    """The terms of the burst; ``sender`` is who the gas is estimated for."""
    node = endpoints[0]
    chain_id = await _one_chain(endpoints)
    base_fee = await _base_fee(node)
    kind = wish.type if wish.type is not None else (0 if base_fee is None else 2)
    if kind == 2 and base_fee is None:
        raise BurstFault(f"--type 2: the blocks of {node.url} have no base fee; use --type 0")
    max_fee, tip = await _fees(node, wish, base_fee if kind == 2 else None)
    gas = wish.gas if wish.gas is not None else await _gas(node, wish, sender)
    return Terms(chain_id, kind, max_fee, tip, gas, wish.value, wish.to)


async def nonces(node: Endpoint, senders: Sequence[str]) -> list[int]:
    """The next nonce of each sender, pending transactions included."""

    async def next_nonce(sender: str) -> int:
        return _number(await node.call("eth_getTransactionCount", sender, "pending"))

    return await politely(next_nonce, senders)


async def check_funds(node: Endpoint, senders: Sequence[str], needed: int) -> None:
    """Raise BurstFault naming the first sender that has less than ``needed`` wei, and how many there are."""

    async def balance(sender: str) -> int:
        return _number(await node.call("eth_getBalance", sender, "latest"))

    balances = await politely(balance, senders)
    poor = [(sender, has) for sender, has in zip(senders, balances, strict=True) if has < needed]
    if poor:
        sender, has = poor[0]
        raise BurstFault(
            f"{sender} has {has} wei and the burst may cost it {needed}: fund it, or lower --count, --value or"
            f" --max-fee ({len(poor)} of {len(senders)} senders have too little)"
        )


async def _one_chain(endpoints: Sequence[Endpoint]) -> int:
    """The chain id that all endpoints name."""
    ids = [_number(await endpoint.call("eth_chainId")) for endpoint in endpoints]
    for endpoint, chain_id in zip(endpoints, ids, strict=True):
        if chain_id != ids[0]:
            raise BurstFault(
                f"{endpoint.url} is on chain {chain_id}, {endpoints[0].url} on {ids[0]}: all --rpc must be one chain"
            )
    return ids[0]


async def _base_fee(node: Endpoint) -> int | None:
    block = await node.call("eth_getBlockByNumber", "latest", False)
    text = block.get("baseFeePerGas") if isinstance(block, dict) else None
    return None if text is None else _number(text)


async def _fees(node: Endpoint, wish: Wish, base_fee: int | None) -> tuple[int, int]:
    """(max fee, tip). Without a base fee both are the gas price; else the fee leaves room for doubled base fees."""
    if base_fee is None:
        price = wish.max_fee if wish.max_fee is not None else _number(await node.call("eth_gasPrice"))
        return price, price
    tip = wish.tip if wish.tip is not None else await _tip(node, base_fee)
    max_fee = wish.max_fee if wish.max_fee is not None else 2 * base_fee + tip
    return max_fee, min(tip, max_fee)


async def _tip(node: Endpoint, base_fee: int) -> int:
    reply = await node.post("eth_maxPriorityFeePerGas")
    if not reply.error:
        return _number(reply.result)
    return max(_number(await node.call("eth_gasPrice")) - base_fee, 0)


async def _gas(node: Endpoint, wish: Wish, sender: str) -> int:
    transfer = {"from": sender, "to": wish.to or sender, "value": hex(wish.value)}
    return _number(await node.call("eth_estimateGas", transfer))


def _number(text: Any) -> int:
    if not isinstance(text, str):
        raise BurstFault(f"the node answers {text!r} where a hexadecimal quantity belongs")
    return int(text, 16)
