"""Operators steer a whole relay: over its ops listener, in one process and in several, down to what the node gets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from acceptance.conftest import rig as started_parts
from relay.devnode.keys import FUNDED
from tests.console_rig import REASON, TOKEN
from tests.stand import signed
from tests.test_router import hash_of

if TYPE_CHECKING:
    from pathlib import Path

    from acceptance.rig.parts import Part, Rig

rig = started_parts

ADDRESS = FUNDED[0].address.lower()


class Operator:
    """Asks the API of ``relay``."""

    def __init__(self, relay: Part) -> None:
        self._url = relay.ops_url + "/api"

    async def ask(self, method: str, path: str) -> tuple[int, Any]:
        """One request, with a reason where it takes one."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        body = None if method == "GET" else REASON
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, self._url + path, json=body, headers=headers) as answer,
        ):
            return answer.status, await answer.json(content_type=None)

    async def well(self, method: str, path: str) -> Any:
        """What must succeed."""
        status, body = await self.ask(method, path)
        assert status in (200, 202), body
        return body

    async def until(self, hash_: str, *states: str) -> Any:
        """Until this one stands in one of them."""
        async with asyncio.timeout(30):
            while True:
                status, body = await self.ask("GET", f"/transactions/{hash_}")
                if status == 200 and body["state"] in states:
                    return body
                await asyncio.sleep(0.02)


async def started(rig: Rig, upstream: str, tmp_path: Path, workers: str) -> tuple[Part, Operator]:
    """A relay with a journal and an operator, who can name no chain before the relay knows its own."""
    journal = f"sqlite:///{tmp_path / 'journal.db'}"
    relay = await rig.relay(upstream, "--workers", workers, journal__url=journal, ops__token=TOKEN)
    operator = Operator(relay)
    async with asyncio.timeout(30):
        while (await operator.ask("GET", f"/lanes/{ADDRESS}"))[0] == 503:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)
    return relay, operator


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_paused_lane_is_held_and_goes_on(rig: Rig, tmp_path: Path, workers: str) -> None:
    """Nothing of it reaches the node until it is resumed; what is cancelled meanwhile never does, and its client hears
    so; what was refused is sent again by a retry."""
    chain = await rig.chain()
    relay, operator = await started(rig, chain.url, tmp_path, workers)
    client = rig.caller(relay.url)

    paused = await operator.well("POST", f"/lanes/{ADDRESS}/pause")
    assert (paused["paused"], paused["chainId"]) == (True, "0x539")
    async with asyncio.timeout(30):
        while await rig.metric(relay, "relay_lanes_paused") < 1:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)
    sends = asyncio.gather(*(client.answer("eth_sendRawTransaction", signed(nonce)) for nonce in (0, 1)))
    for nonce in (0, 1):
        await operator.until(hash_of(signed(nonce)), "queued")
    assert await chain.arrivals() == []
    cancelled = await operator.well("POST", f"/transactions/{hash_of(signed(1))}/cancel")
    assert cancelled["state"] == "cancelled"
    await operator.well("POST", f"/lanes/{ADDRESS}/resume")

    first, second = await sends
    assert first["result"] == hash_of(signed(0))
    assert second["error"]["code"] == -32031
    assert [arrival["nonce"] for arrival in await chain.arrivals()] == [0]
    history = (await operator.well("GET", f"/transactions/{hash_of(signed(1))}"))["history"]
    assert [(event["state"], event["detail"]) for event in history] == [("queued", ""), ("cancelled", REASON["reason"])]

    await chain.script(
        {"do": "refuse", "method": "eth_sendRawTransaction", "message": "intrinsic gas too low", "times": 1}
    )
    assert "error" in await client.answer("eth_sendRawTransaction", signed(1, value=7))
    hash_ = hash_of(signed(1, value=7))
    await operator.until(hash_, "failed")
    await operator.well("POST", f"/transactions/{hash_}/retry")
    told = await operator.until(hash_, "pending", "mined", "completed")
    assert [one["taken"] for one in told["attempts"]] == ["no", "yes"]
    await operator.well("POST", "/sweep")
