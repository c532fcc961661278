"""What is wrong with a server, told: missing rights, keys of other programs, in words that a person can use."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
import structlog

from relay.lease.protocol import Held, Leave, Yours
from relay.lease.troubles import Down, Spoilt
from tests.lease_side import LANE, listener_of, side
from tests.redis_server import SERVERS, RedisServer, free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest_asyncio.fixture(params=SERVERS)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[RedisServer]:
    """Each kind of server in turn."""
    async with RedisServer(request.param) as running:
        yield running


async def test_the_probe_misses_each_right_that_a_lane_needs(server: RedisServer) -> None:
    """Else the server would be back at each probe, and gone at the next lane."""
    url = server.url.replace("//", "//relay:secret@")
    for right in ("time", "set", "get", "pttl", "del", "hset", "hdel", "hgetall", "pexpire", "publish"):
        await server.say(f"ACL SETUSER relay reset on >secret ~* &* +@all -{right}")
        async with side(url) as me:
            assert me.store.trouble is not None, right
            assert me.store.trouble.reason == "auth", me.store.trouble


@pytest.mark.parametrize("value", ["list", "place"])
async def test_what_another_wrote_at_a_lane_concerns_that_lane_alone(server: RedisServer, value: str) -> None:
    """A key of another type, or a place that cannot be read: no trouble of the server, none of the other lanes."""
    async with side(server.url) as me:
        if value == "list":
            await server.say(f"RPUSH {LANE}:lane x")
        else:
            await server.say(f"HSET {LANE}:lane w:other x")
        found, other = await asyncio.gather(me.enter(1), me.enter(1, lane="relay:{1:0xbb}"))
        assert isinstance(found, Spoilt)
        assert isinstance(other, Yours)
        assert me.store.up
        assert me.counted == ["other"]


async def test_a_lease_that_never_expires_is_looked_at_once_in_a_poll(server: RedisServer) -> None:
    """Another program wrote it: whoever waits must not ask again at once, for ever."""
    async with side(server.url) as me:
        await server.admin.set(f"{LANE}:lease", "another 5")
        held = await me.enter(1)
        assert isinstance(held, Held)
        assert held.ms == 1000
        assert (await me.say(Leave(2, 0, -1, 3, 0)))[:2] == [b"held", b"1000"]  # type: ignore[index] # no Down


async def test_a_right_to_subscribe_that_is_missing_is_told_once(server: RedisServer) -> None:
    """One warning, one line when it heals; each failure is counted; commands go on."""
    await server.say("ACL SETUSER relay on >secret ~* resetchannels &relay:* +@all -subscribe")
    async with side(server.url.replace("//", "//relay:secret@")) as me:
        with structlog.testing.capture_logs() as lines:
            listener, again = listener_of(me), asyncio.Event()
            listener._again = again.set
            me.owner.start("listener", listener.listen_forever())
            while len(me.counted) < 2:  # noqa: ASYNC110 - counted by a callback
                await asyncio.sleep(0.02)
            assert "subscribe" in str(listener.trouble)
            assert isinstance(await me.enter(1), Yours)
            await server.say("ACL SETUSER relay +subscribe")
            await again.wait()
        assert listener.trouble is None
        assert set(me.counted) == {"auth"}
        assert [(line["log_level"], line["event"]) for line in lines] == [
            ("warning", "pushes do not arrive: hand-offs wait for a poll"),
            ("info", "pushes arrive again"),
        ]


async def test_no_trouble_is_told_in_the_words_of_python() -> None:
    """A hang has its limit, and Sentinels that do not answer their addresses: no repr of a client."""
    async with RedisServer() as server, side(server.url) as me:
        server.pause()
        gone = await me.enter(1)
        assert isinstance(gone, Down)
        assert gone.detail == "no answer within 200 ms"
        server.resume()
        await me.changes.get()
    ports = free_port(), free_port()
    url = f"redis+sentinel://:secret@127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}/main"
    async with side(url, timeout_s=1.0) as me:
        assert me.store.trouble is not None
        detail = me.store.trouble.detail
        places = ", ".join(sorted(f"127.0.0.1:{port}" for port in ports))
        assert ", ".join(sorted(detail.partition("; no answer from ")[2].split(", "))) == places
        assert detail.startswith("No master found for 'main' by the Sentinels of [redis] url; ")
