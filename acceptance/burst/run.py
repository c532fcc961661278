"""Sends the burst and waits for the answers, then for the receipts.

Rules: each request is a task that starts at its scheduled instant and waits for nobody. The times are taken where
the body is handed to the socket and where the answer is complete.
Must not know: how the result is shown.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from acceptance.burst.chain import politely
from acceptance.burst.rpc import Endpoint, NoReply, Stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from acceptance.burst.plan import Shot
    from acceptance.burst.sign import Signed

Kind = Literal["accepted", "refused", "failed"]

COARSE_S: Final = 0.002  # a loop's timer may be a millisecond late: the rest is waited for awake
FIRST_POLL_S: Final = 0.25
LONGEST_POLL_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Flight:
    """One transaction's fate. ``kind``: accepted, refused (the answer is an error), failed (no usable answer).

    Times in seconds since the start of the burst. ``text`` and ``code`` are the error's.
    """

    shot: Shot
    nonce: int
    hash: str
    sent_s: float
    answered_s: float
    kind: Kind
    text: str = ""
    code: int | None = None


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where the chain put a transaction."""

    block: int
    index: int


async def fire(
    endpoints: Sequence[Endpoint], shots: Sequence[tuple[Shot, Signed]], seen: Callable[[str], None]
) -> list[Flight]:
    """Send every shot at its time; ``seen`` hears each flight's kind as it ends. In the order of sending."""
    start = time.monotonic()
    async with asyncio.TaskGroup() as group:
        tasks = []
        for shot, signed in shots:
            if shot.at_us:
                await _until(start + shot.at_us / 1e6)
            flight = _fly(endpoints[shot.url], shot, signed, start)
            tasks.append(group.create_task(_told(flight, seen), name=f"shot {shot.sender}/{shot.index}"))
    return [task.result() for task in tasks]


async def receipts(
    node: Endpoint, hashes: Sequence[str], timeout_s: float, seen: Callable[[], None]
) -> dict[str, Position]:
    """Where each of ``hashes`` was mined; those missing were not within ``timeout_s``. Asks less often with time."""
    found: dict[str, Position] = {}
    deadline = time.monotonic() + timeout_s
    pause = FIRST_POLL_S

    async def look(hash_: str) -> None:
        receipt = await _receipt(node, hash_)
        if receipt is not None:
            found[hash_] = Position(int(receipt["blockNumber"], 16), int(receipt["transactionIndex"], 16))
            seen()

    while missing := [hash_ for hash_ in hashes if hash_ not in found]:
        await politely(look, missing)
        if len(found) == len(hashes) or time.monotonic() + pause > deadline:
            break
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, LONGEST_POLL_S)
    return found


async def _receipt(node: Endpoint, hash_: str) -> dict[str, Any] | None:
    try:
        receipt = (await node.post("eth_getTransactionReceipt", hash_)).result
    except NoReply:
        return None
    return receipt if isinstance(receipt, dict) else None


async def _told(flight: Any, seen: Callable[[str], None]) -> Flight:
    ended: Flight = await flight
    seen(ended.kind)
    return ended


async def _fly(endpoint: Endpoint, shot: Shot, signed: Signed, start: float) -> Flight:
    stamp = Stamp()
    begun = time.monotonic()
    kind, text, code = await _outcome(endpoint, signed, stamp)
    answered = time.monotonic() - start
    sent = (begun if stamp.sent is None else stamp.sent) - start
    return Flight(shot, signed.nonce, signed.hash, sent, answered, kind, text, code)


async def _outcome(endpoint: Endpoint, signed: Signed, stamp: Stamp) -> tuple[Kind, str, int | None]:
    try:
        reply = await endpoint.post("eth_sendRawTransaction", signed.raw, stamp=stamp)
    except NoReply as error:
        return "failed", str(error), None
    if reply.code is not None:
        return "refused", reply.error, reply.code
    if reply.error:
        return "failed", reply.error, None
    if str(reply.result).lower() != signed.hash:
        return "failed", f"answered with {reply.result!r}, which is not the transaction's hash", None
    return "accepted", "", None


async def _until(instant: float) -> None:
    """Wait for ``instant`` on the monotonic clock, to some microseconds; others get on even if it has passed."""
    if (rest := instant - time.monotonic() - COARSE_S) > 0:
        await asyncio.sleep(rest)
    await asyncio.sleep(0)
    while time.monotonic() < instant:  # noqa: ASYNC110 - an instant is no event
        await asyncio.sleep(0)
