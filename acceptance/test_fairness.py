"""One sender floods its own lane; what do the others feel?"""

from __future__ import annotations

import asyncio
import itertools
import math
from typing import TYPE_CHECKING

import pytest

from acceptance.rig.load import batch, body, connected
from acceptance.rig.parts import program
from acceptance.rig.signing import address, funded, key_of, random_keys, sign

if TYPE_CHECKING:
    from pathlib import Path

    from acceptance.conftest import Measured
    from acceptance.rig.parts import Rig
    from acceptance.rig.signing import Transfer

FLOOD, IN_A_BATCH = 10_000, 1000
LINES = {"connections": 100, "batches": FLOOD // IN_A_BATCH}
OTHERS, EVERY_S = 400, 0.01
CHECKS_MS = (1, 3)
ALLOWED_S = 0.05
RICH = 9 * 10**18

pytestmark = pytest.mark.timeout(300)


async def others_p95_s(url: str, bodies: list[bytes]) -> float:
    """Other senders post one transaction each, evenly spaced, whatever the answers take; p95 of the answers."""
    loop = asyncio.get_running_loop()
    start = loop.time()

    async def one(number: int, text: bytes) -> float:
        async with connected(url) as line:
            await asyncio.sleep(start + number * EVERY_S - loop.time())
            answer = await line.post(text)
        assert b'"result"' in answer.body, answer.body
        return answer.seconds

    seconds = sorted(await asyncio.gather(*itertools.starmap(one, enumerate(bodies, 1))))
    return seconds[math.ceil(len(seconds) * 0.95) - 1]


@pytest.mark.parametrize(
    ("shape", "queue"),
    [("connections", 512), ("batches", 512), ("batches", FLOOD)],
    ids=["connections", "batches, mostly refused", "batches, all in the lane"],
)
async def test_a_flood_is_its_senders_own_problem(
    rig: Rig, tmp_path: Path, measured: Measured, shape: str, queue: int
) -> None:
    """Ten thousand transactions of one sender at once raise the others' p95 by at most 50 ms."""
    flooder, keys = funded(1)[0], list(itertools.islice(random_keys(), 2 * OTHERS))
    rich = dict.fromkeys([flooder.address, *map(address, keys)], RICH)
    chain = await rig.chain(delay_ms=CHECKS_MS, funded=rich)
    relay = await rig.relay(chain.url, ordering__max_queue=queue, server__drain_s=0.5)
    single = [body(sign(key, 0, chain.chain_id)) for key in keys]
    flood = [sign(key_of(flooder), nonce, chain.chain_id) for nonce in range(FLOOD)]
    file = tmp_path / "flood"
    file.write_bytes(b"\n".join(flood_bodies(flood, shape)))
    calm = await others_p95_s(relay.url, single[:OTHERS])
    client = await rig.start("flood", [*program("flood.py"), relay.url, str(file), str(LINES[shape])])
    await client.line("flooding")
    flooded = await others_p95_s(relay.url, single[OTHERS:])
    sent = (await chain.report())["submissions"] - 2 * OTHERS
    measured(f"the others' p95: {calm * 1000:.1f} ms, in the flood {flooded * 1000:.1f} ms; {sent} of it at the node")
    assert flooded - calm <= ALLOWED_S


def flood_bodies(flood: list[Transfer], shape: str) -> list[bytes]:
    """One transaction a body, or a thousand."""
    if shape == "connections":
        return [body(transfer) for transfer in flood]
    return [batch(flood[start : start + IN_A_BATCH]) for start in range(0, len(flood), IN_A_BATCH)]
