"""The same bytes several times: one submission while it is under way, sent again once the node forgot it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from acceptance.rig.load import body, connected
from acceptance.rig.signing import funded, key_of, sign

if TYPE_CHECKING:
    from acceptance.conftest import Measured
    from acceptance.rig.load import Answered
    from acceptance.rig.parts import Rig
    from acceptance.rig.signing import Transfer

COPIES, COUNT = 3, 20
CHECKS_MS = (20, 40)


async def post_at_once(url: str, transfers: list[Transfer]) -> list[Answered]:
    """Each on a connection of its own, all connections open before the first is used."""
    async with AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(connected(url)) for _ in transfers]
        return await asyncio.gather(
            *(line.post(body(transfer)) for line, transfer in zip(lines, transfers, strict=True))
        )


async def test_three_copies_are_one_submission(rig: Rig, measured: Measured) -> None:
    """Each transaction three times at once: the node sees it once, and all three get the very same answer."""
    chain = await rig.chain(delay_ms=CHECKS_MS)
    relay = await rig.relay(chain.url)
    transfers = [sign(key_of(funded(1)[0]), nonce, chain.chain_id) for nonce in range(COUNT)]
    answers = await post_at_once(relay.url, [transfer for transfer in transfers for _ in range(COPIES)])
    seen = await chain.report()
    measured(f"{len(answers)} answers, {seen['submissions']} submissions at the node")
    assert seen["submissions"] == COUNT
    for place, transfer in enumerate(transfers):
        bodies = {answer.body for answer in answers[place * COPIES : (place + 1) * COPIES]}
        assert len(bodies) == 1
        assert transfer.hash.encode() in bodies.pop()


async def test_what_the_node_forgot_is_sent_again(rig: Rig) -> None:
    """No answer comes from memory: after the node has lost everything the same bytes reach it and are accepted."""
    chain = await rig.chain(block_time_s=None)
    relay = await rig.relay(chain.url)
    transfers = [sign(key_of(funded(1)[0]), nonce, chain.chain_id) for nonce in range(3)]
    before = await post_at_once(relay.url, transfers)
    await chain.forget(*(transfer.hash for transfer in transfers))
    after = await post_at_once(relay.url, transfers)
    seen = await chain.report()
    assert [answer.body for answer in after] == [answer.body for answer in before]
    assert all(transfer.hash.encode() in answer.body for transfer, answer in zip(transfers, after, strict=True))
    assert seen["submissions"] == 2 * len(transfers)
