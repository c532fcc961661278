"""Clients that die and a relay that is told to stop, both in mid-burst."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from acceptance.rig.load import body, connected
from acceptance.rig.parts import program
from acceptance.rig.signing import funded, key_of, sign

if TYPE_CHECKING:
    from pathlib import Path

    from acceptance.conftest import Measured
    from acceptance.rig.load import Answered, Line
    from acceptance.rig.parts import Rig

SENDERS, COUNT = 3, 100
CHECKS_MS = (0, 20)
STOP_AFTER = 60  # answers
DRAINING, UNKNOWN = -32012, -32040


async def test_a_killed_clients_transactions_all_land(rig: Rig, tmp_path: Path, measured: Measured) -> None:
    """A ticket belongs to its lane: the client is killed once its burst is written, and everything still lands.

    The transaction after the burst, sent by another client, is answered only when all before it have landed.
    """
    chain = await rig.chain(delay_ms=CHECKS_MS)
    relay = await rig.relay(chain.url)
    keys = [key_of(account) for account in funded(SENDERS)]
    bodies = tmp_path / "bodies"
    bodies.write_bytes(b"\n".join(body(sign(key, nonce, chain.chain_id)) for nonce in range(COUNT) for key in keys))
    client = await rig.start("writer", [*program("writer.py"), relay.url, str(bodies)])
    await client.line("written")
    client.signal(signal.SIGKILL)
    await client.ended()
    landed = (await chain.report())["submissions"]
    answers = [await post(relay.url, body(sign(key, COUNT, chain.chain_id))) for key in keys]
    seen = await chain.report()
    measured(f"{landed} of {SENDERS * COUNT} had reached the node when the client was gone; then {seen}")
    assert all("result" in json.loads(answer.body) for answer in answers)
    assert [await chain.count(account.address) for account in funded(SENDERS)] == [COUNT + 1] * SENDERS
    assert (seen["inversions"], seen["overlaps"]) == (0, 0)


async def test_a_stopped_relay_tells_the_truth(rig: Rig, measured: Measured) -> None:
    """SIGTERM in mid-burst: all get an answer; what was answered yes is on the chain, what was refused is not."""
    chain = await rig.chain(delay_ms=CHECKS_MS)
    relay = await rig.relay(chain.url, server__drain_s=0.3)
    transfers = [sign(key_of(account), nonce, chain.chain_id) for nonce in range(COUNT) for account in funded(SENDERS)]
    answers = await post_and_stop(relay.url, [body(transfer) for transfer in transfers], relay.process)
    assert await relay.process.ended() == 0
    known = [await chain.call("eth_getTransactionByHash", transfer.hash) is not None for transfer in transfers]
    words = [said(answer) for answer in answers]
    measured(f"stopped after {STOP_AFTER} answers: {dict(Counter(words))}, {sum(known)} on the chain")
    assert set(words) <= {"yes", "no", "unknown"}
    assert {there for word, there in zip(words, known, strict=True) if word == "yes"} == {True}
    assert {there for word, there in zip(words, known, strict=True) if word == "no"} == {False}
    assert words.count("yes") >= STOP_AFTER
    assert words.count("unknown") <= SENDERS


def said(answer: dict[str, Any]) -> str:
    """What an answer claims; "unknown" is for what was at the node when the drain was over, one of each sender."""
    code = answer.get("error", {}).get("code")
    return "yes" if "result" in answer else {DRAINING: "no", UNKNOWN: "unknown"}.get(code, str(answer))


async def post(url: str, text: bytes) -> Answered:
    """One request on a connection of its own."""
    async with connected(url) as line:
        return await line.post(text)


async def post_and_stop(url: str, bodies: list[bytes], process: Any) -> list[dict[str, Any]]:
    """Post all at once, each on its own open connection; SIGTERM after some answers; all answers."""
    left = STOP_AFTER

    async def one(line: Line, text: bytes) -> dict[str, Any]:
        nonlocal left
        answer: dict[str, Any] = json.loads((await line.post(text)).body)
        left -= 1
        if left == 0:
            process.signal(signal.SIGTERM)
        return answer

    async with AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(connected(url)) for _ in bodies]
        return await asyncio.gather(*map(one, lines, bodies))
