"""What an endpoint says of transactions, blocks and senders.

Job: questions to `asking.Endpoint`, and what their answers mean: values, `UNSAID` or None where there is no answer.
Rules: an answer is believed only as far as it names what was asked for: a receipt of another hash says nothing.
Must not know: stores, what follows.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from relay.journal.records import Receipt
from relay.settlement.asking import digest, hexed, quantity
from relay.settlement.evidence import Counts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relay.journal.records import Record
    from relay.settlement.asking import Endpoint


class Unsaid(Enum):
    """No answer, where None is one."""

    UNSAID = "unsaid"


UNSAID: Final = Unsaid.UNSAID


class Head(NamedTuple):
    """The newest block: its height, and its base fee in wei where the chain has one."""

    height: int
    base_fee: int | None


async def head(endpoint: Endpoint) -> Head | None:
    """The newest block."""
    block = await endpoint.one("eth_getBlockByNumber", "latest", False)  # noqa: FBT003 - without its transactions
    if not isinstance(block, dict) or (height := quantity(block.get("number"))) is None:
        return None
    return Head(height, quantity(block.get("baseFeePerGas")))


async def receipts(endpoint: Endpoint, records: Sequence[Record]) -> list[Receipt | Unsaid | None]:
    """The receipt of each; None: the node says that there is none."""
    found = await endpoint.ask("eth_getTransactionReceipt", [[hexed(record.hash)] for record in records])
    return [_receipt(record, answer, endpoint.name) for record, answer in zip(records, found, strict=True)]


def _receipt(record: Record, answer: Any, node: str) -> Receipt | Unsaid | None:
    if answer is None:
        return None
    if not isinstance(answer, dict) or digest(answer.get("transactionHash")) != record.hash:
        return UNSAID
    number, block = quantity(answer.get("blockNumber")), digest(answer.get("blockHash"))
    if number is None or block is None:
        return None  # some nodes show a receipt before there is a block
    status = quantity(answer.get("status", "0x1"))
    return UNSAID if status is None else Receipt(record.id, number, block, int(status != 0), node)


async def blocks(endpoint: Endpoint, heights: Sequence[int]) -> dict[int, bytes | None]:
    """The hash of the block at each height, None where the node says that there is none; no entry without an answer."""
    found = await endpoint.ask("eth_getBlockByNumber", [[hex(height), False] for height in heights])
    said: dict[int, bytes | None] = {}
    for height, block in zip(heights, found, strict=True):
        if block is None:
            said[height] = None
        elif isinstance(block, dict) and (hash_ := digest(block.get("hash"))) is not None:
            said[height] = hash_
    return said


async def known(endpoint: Endpoint, records: Sequence[Record]) -> list[bool | None]:
    """Does it have each, waiting or mined? None: it did not say."""
    found = await endpoint.ask("eth_getTransactionByHash", [[hexed(record.hash)] for record in records])
    return [_known(record, answer) for record, answer in zip(records, found, strict=True)]


def _known(record: Record, answer: Any) -> bool | None:
    if answer is None:
        return False
    return True if isinstance(answer, dict) and digest(answer.get("hash")) == record.hash else None


async def counts(endpoint: Endpoint, senders: Sequence[bytes], final_height: int | None) -> list[Counts]:
    """The counts of each. ``final_height``: the newest deep enough block; negative: none is; None: not asked."""
    latest, pending = await _counts(endpoint, senders, "latest"), await _counts(endpoint, senders, "pending")
    final: Sequence[int | None] = [None] * len(senders)
    if final_height is not None:
        final = [0] * len(senders) if final_height < 0 else await _counts(endpoint, senders, hex(final_height))
    return [Counts(*each) for each in zip(latest, pending, final, strict=True)]


async def _counts(endpoint: Endpoint, senders: Sequence[bytes], block: str) -> list[int | None]:
    found = await endpoint.ask("eth_getTransactionCount", [[hexed(sender), block] for sender in senders])
    return [quantity(answer) for answer in found]


async def balances(endpoint: Endpoint, senders: Sequence[bytes]) -> list[int | None]:
    """In wei."""
    found = await endpoint.ask("eth_getBalance", [[hexed(sender), "latest"] for sender in senders])
    return [quantity(answer) for answer in found]
