"""Wishes against a whole relay of several workers: over the wire, to a journal on disk and back."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from acceptance.conftest import rig as started_parts
from relay.devnode.keys import FUNDED
from tests.stand import signed, submission
from tests.test_router import hash_of

if TYPE_CHECKING:
    from pathlib import Path

    from acceptance.rig.parts import Rig

rig = started_parts


class Client:
    """Sends bodies with headers, each on a connection of its own, so that any worker may get it."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def send(self, raw: str, **headers: str) -> tuple[Any, Any]:
        """The response object and the headers."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with (
            aiohttp.ClientSession() as session,
            session.post(self._url, data=submission(raw), headers=named) as response,
        ):
            assert response.status == 200
            return json.loads(await response.read()), response.headers

    async def look(self, path: str) -> Any:
        """What a handle leads to."""
        async with aiohttp.ClientSession() as session, session.get(self._url + path) as response:
            assert response.status == 200
            return await response.json()


async def test_wishes_are_kept_by_all_workers(rig: Rig, tmp_path: Path) -> None:
    """One key is one payment and one handle leads to its record, whichever worker is asked, and after a restart."""
    chain = await rig.chain()
    journal = f"sqlite:///{tmp_path / 'journal.db'}"
    relay = await rig.relay(chain.url, "--workers", "3", journal__url=journal)
    client = Client(relay.url)
    first, _ = await client.send(signed(0), Idempotency_Key='"pay"')
    again = await asyncio.gather(*(client.send(signed(0), Idempotency_Key="pay") for _ in range(6)))
    others = await asyncio.gather(*(client.send(signed(1), Idempotency_Key="pay") for _ in range(6)))

    assert first["result"] == hash_of(signed(0))
    assert [reply for reply, _ in again] == [first] * 6
    assert {reply["error"]["code"] for reply, _ in others} == {-32030}
    handles = await asyncio.gather(*(client.send(signed(1), Prefer="respond-async") for _ in range(6)))
    assert {reply["result"] for reply, _ in handles} == {hash_of(signed(1))}
    for _, headers in handles:
        assert headers["Preference-Applied"] == "respond-async"
        assert (await client.look(headers["Location"]))["hash"] == hash_of(signed(1))

    relay.process.signal(signal.SIGTERM)
    assert await relay.process.ended() == 0
    relay = await rig.relay(chain.url, "--workers", "2", journal__url=journal)
    client = Client(relay.url)
    reply, _ = await client.send(signed(2), Idempotency_Key="pay")
    assert reply["error"]["code"] == -32030
    assert (await client.send(signed(0), Idempotency_Key="pay"))[0] == first
    assert [arrival["nonce"] for arrival in await chain.arrivals()] == [0, 1]


async def test_a_client_that_signs_anew_after_a_time_out(rig: Rig, tmp_path: Path) -> None:
    """Under the same key it is refused, and told of the first, whether that is in flight or final; without a key both
    are transactions, and both are shown and watched to their ends."""
    chain = await rig.chain(mode="pool", block_time_s=None)
    journal = f"sqlite:///{tmp_path / 'journal.db'}"
    relay = await rig.relay(chain.url, journal__url=journal, journal__confirmations=1)
    client, caller = Client(relay.url), rig.caller(relay.url)
    first, second = hash_of(signed(0)), hash_of(signed(1))
    await chain.script({"do": "hang", "method": "eth_send*", "times": 1})
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await client.send(signed(0), Idempotency_Key="pay")
    error = (await client.send(signed(1), Idempotency_Key="pay"))[0]["error"]
    assert (error["code"], error["data"]) == (-32030, {"hash": first, "state": "sealed", "mayStillLand": True})

    await chain.call("dev_release")
    assert (await client.send(signed(1)))[0]["result"] == second
    lane = await caller.call("relay_getLane", FUNDED[0].address)
    assert [(one["hash"], one["state"], one["mayStillLand"]) for one in lane["open"]] == [
        (first, "pending", True), (second, "pending", True),
    ]  # fmt: skip
    async with asyncio.timeout(30):
        while {(await client.look(f"/transactions/{hash_}"))["state"] for hash_ in (first, second)} != {"completed"}:
            await chain.call("dev_mine")
            await asyncio.sleep(0.05)
    assert (await caller.call("relay_getLane", FUNDED[0].address))["open"] == []
    error = (await client.send(signed(2), Idempotency_Key="pay"))[0]["error"]
    assert (error["code"], error["data"]) == (-32030, {"hash": first, "state": "completed", "mayStillLand": False})
    assert [arrival["nonce"] for arrival in await chain.arrivals()] == [0, 1]
