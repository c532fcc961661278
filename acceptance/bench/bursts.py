"""One sender's transactions, all at once, judged by what the bench node has recorded.

Rules: a sender nobody has seen for each burst, a connection for each transaction, open before it begins.
"""

from __future__ import annotations

import asyncio
import time
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from acceptance.rig.crowd import swapped
from acceptance.rig.load import body, connected
from acceptance.rig.signing import random_keys, sign

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AsyncExitStack

    from acceptance.rig.calls import Caller
    from acceptance.rig.load import Answered, Line
    from acceptance.rig.signing import Transfer

    Lines = Sequence[Line]

CHAIN_ID: Final = 1337
KEYS: Final = random_keys()
COUNT: Final = 200


class Ended(NamedTuple):
    """One burst: from the first byte to the last answer, and nonces that came to the node after a higher one."""

    seconds: float
    inversions: int


async def lines(stack: AsyncExitStack, url: str) -> list[Line]:
    """A connection for each transaction of a burst."""
    return [await stack.enter_async_context(connected(url)) for _ in range(COUNT)]


def lane() -> list[Transfer]:
    """Transactions of a sender nobody has seen."""
    key = next(KEYS)
    return [sign(key, nonce, CHAIN_ID) for nonce in range(COUNT)]


async def at_once(transfers: Sequence[Transfer], fleet: Sequence[Lines]) -> list[Answered]:
    """Each on a connection of its own, round the instances."""
    places = [fleet[place % len(fleet)][place // len(fleet)] for place in range(len(transfers))]
    answers = await asyncio.gather(
        *(line.post(body(transfer)) for line, transfer in zip(places, transfers, strict=True))
    )
    assert all(transfer.hash.encode() in one.body for transfer, one in zip(transfers, answers, strict=True)), answers
    return answers


async def record(judge: Caller) -> list[Any]:
    """What has come to the node since the last time: hash, came, left, connection of each submission."""
    record: list[Any] = await judge.call("bench_record")
    return record


async def burst(judge: Caller, fleet: Sequence[Lines]) -> Ended:
    """A sender's transactions, neighbours swapped; each came to the node once."""
    transfers = lane()
    nonces = {transfer.hash: transfer.nonce for transfer in transfers}
    await record(judge)
    began = time.monotonic()
    await at_once(swapped(transfers), fleet)
    seconds = time.monotonic() - began
    came = [nonces[entry[0]] for entry in await record(judge)]
    assert len(came) == len(transfers), f"{len(came)} submissions came to the node, {len(transfers)} were sent"
    return Ended(seconds, inversions(came))


def inversions(nonces: Sequence[int]) -> int:
    """How many nonces come after a higher one."""
    return sum(nonce < highest for nonce, highest in zip(nonces, accumulate(nonces, max), strict=True))
