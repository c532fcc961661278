"""The server's side of the boundary, against real servers: what counts as gone, what does not, what it costs."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest_asyncio

from relay.lease.protocol import Enter, Leave, Renew, Yours, read_push
from relay.lease.troubles import Down
from tests.lease_side import LANE, TIMEOUT_S, listening, side
from tests.redis_server import SERVERS, RedisServer, free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest


@pytest_asyncio.fixture(params=SERVERS)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[RedisServer]:
    """Each kind of server in turn."""
    async with RedisServer(request.param) as running:
        yield running


async def test_a_lane_goes_from_hand_to_hand(server: RedisServer) -> None:
    """Taken, wanted, left, pushed to who waits, renewed by the new holder only: with rising fences."""
    async with side(server.url, "a") as a, side(server.url, "b") as b, listening(b) as heard:
        first = await a.enter(1)
        assert isinstance(first, Yours)
        assert (await b.say(Enter(1, 1, 0, gap=False, seen=0)))[0] == b"held"  # type: ignore[index] # no Down
        assert await a.say(Renew(2, first.fence)) == [b"yes", b"1"]

        assert await a.say(Leave(3, first.fence, 1)) == [b"done"]

        pushed = read_push(await heard.get())
        assert pushed is not None
        grant: Any = pushed[1]
        assert (grant.registration, grant.next) == (1, 1)
        assert grant.fence > first.fence
        assert await a.say(Renew(4, first.fence)) == [b"no"]
        assert await b.say(Renew(2, grant.fence)) == [b"yes", b"-1"]
        assert await server.admin.get(f"{LANE}:lease") == f"b {grant.fence}"


async def test_fences_rise_over_expiry_and_flush(server: RedisServer) -> None:
    """The server's clock carries the fence where its keys do not."""
    async with side(server.url) as me:
        fences = []
        for number in (1, 3, 5):
            lease = await me.enter(number)
            fences.append(lease.fence)
            await me.leave(number + 1, lease.fence)
            await server.admin.flushall()
        assert fences == sorted(set(fences))


async def test_every_key_expires(server: RedisServer) -> None:
    """Whatever a lane goes through."""
    async with side(server.url, "a") as a, side(server.url, "b") as b:
        lease = await a.enter(1)
        await b.enter(1, 5)
        await a.say(Renew(2, lease.fence))
        keys = await server.admin.keys("*")
        assert len(keys) >= 3
        assert all([await server.admin.pttl(key) > 0 for key in keys])
        await a.leave(3, lease.fence, 1)
        assert all([await server.admin.pttl(key) > 0 for key in await server.admin.keys("*")])


async def test_a_late_leave_frees_nothing(server: RedisServer) -> None:
    """A command that was given up, and runs after its instance came back, is not done."""
    async with side(server.url) as me:
        await me.enter(1)
        again = await me.enter(3)

        assert await me.say(Leave(2, 0)) == [b"late"]

        assert await me.say(Renew(4, again.fence)) == [b"yes", b"-1"]


async def test_the_same_command_twice_is_one(server: RedisServer) -> None:
    """The second try of an enter whose answer was lost gets the same fence."""
    async with side(server.url) as me:
        assert (await me.enter(1)).fence == (await me.enter(1)).fence
        first = await me.enter(1)
        assert (await me.enter(2)).fence > first.fence


async def test_with_the_memory_full_a_held_lane_says_held_and_can_be_left(server: RedisServer) -> None:
    """Nobody may go beside a holder because the server is full; a free lane counts as gone."""
    async with side(server.url, "a") as a, side(server.url, "b") as b:
        lease = await a.enter(1)
        await server.admin.config_set("maxmemory", "1")
        assert (await b.say(Enter(1, 1, 0, gap=False, seen=0)))[0] == b"held"  # type: ignore[index] # no Down
        assert await a.say(Leave(2, lease.fence, 1)) == [b"done"]

        refused = await b.enter(2, 1)

        assert isinstance(refused, Down)
        assert refused.reason == "oom"
        assert not b.store.up
        await server.admin.config_set("maxmemory", "0")
        assert [await b.changes.get(), await b.changes.get()] == [False, True]


async def test_a_replica_counts_as_gone_until_it_is_master_again(server: RedisServer) -> None:
    """It answers PING, so the probe writes."""
    async with side(server.url) as me:
        await server.admin.replicaof("127.0.0.1", str(free_port()))

        refused = await me.enter(1)

        assert isinstance(refused, Down)
        assert refused.reason in ("readonly", "cluster")
        await server.admin.replicaof("NO", "ONE")
        assert [await me.changes.get(), await me.changes.get()] == [False, True]
        assert isinstance(await me.enter(2), Yours)


async def test_scripts_that_were_flushed_are_brought_back(server: RedisServer) -> None:
    """NOSCRIPT is no trouble, alone or inside a pipeline."""
    async with side(server.url, timeout_s=2.0) as me:
        await server.admin.script_flush()
        assert isinstance(await me.enter(1), Yours)
        await server.admin.script_flush()
        lanes = [f"relay:{{1:0x{number:x}}}" for number in range(20)]
        answers = await asyncio.gather(*(me.enter(1, lane=lane) for lane in lanes))
        assert all(isinstance(answer, Yours) for answer in answers)
        assert me.counted == []


async def test_a_hanging_server_costs_two_time_outs_and_then_nothing(server: RedisServer) -> None:
    """It accepts and never answers. Later commands are answered at once; it heals by itself."""
    async with side(server.url) as me:
        server.pause()
        began = time.monotonic()
        assert isinstance(await me.enter(1), Down)
        assert TIMEOUT_S <= time.monotonic() - began < 2 * TIMEOUT_S + 0.1

        began = time.monotonic()
        assert isinstance(await me.enter(2), Down)
        assert time.monotonic() - began < 0.01

        server.resume()
        assert [await me.changes.get(), await me.changes.get()] == [False, True]
        assert isinstance(await me.enter(3), Yours)


async def test_a_server_that_stops_for_a_moment_is_not_gone() -> None:
    """One failed command is no proof: the second try, on a fresh connection, has its own time-out."""
    async with RedisServer() as server, side(server.url, timeout_s=0.5) as me:
        server.pause()
        asyncio.get_running_loop().call_later(0.7, server.resume)
        assert isinstance(await me.enter(1), Yours)
        assert me.store.up


async def test_answers_find_their_commands_after_a_time_out_in_a_pipeline() -> None:
    """A connection with answers under way is never used again: every lane hears its own."""
    async with RedisServer() as server, side(server.url, timeout_s=0.3) as me:
        lanes = [f"relay:{{1:0x{number:x}}}" for number in range(30)]
        await asyncio.gather(*(me.enter(1, lane=lane) for lane in lanes))
        server.pause()
        asyncio.get_running_loop().call_later(0.45, server.resume)
        answers = await asyncio.gather(*(me.enter(2, head=9, lane=lane) for lane in lanes))
        held = [await server.admin.get(f"{lane}:lease") for lane in lanes]
        assert held == [f"me {answer.fence}" for answer in answers]


async def test_a_process_that_was_paused_does_not_take_itself_for_alone() -> None:
    """Its command is past the time-out, and its answer has arrived long ago."""
    async with RedisServer() as server, side(server.url) as me:
        renewed = asyncio.Event()
        me.store.renewed = renewed.set
        for number in range(1, 4):
            saying = asyncio.get_running_loop().create_task(me.enter(number))
            for _ in range(4):
                await asyncio.sleep(0)
            time.sleep(TIMEOUT_S * 1.5)  # noqa: ASYNC251 - the pause
            assert isinstance(await saying, Yours)
            assert me.store.up


async def test_dead_at_start_it_comes_later() -> None:
    """Starting takes no longer than two time-outs, and never fails."""
    port = free_port()
    began = time.monotonic()
    async with side(f"redis://127.0.0.1:{port}") as me:
        assert time.monotonic() - began < 2 * TIMEOUT_S + 0.1
        assert not me.store.up
        async with RedisServer(port=port):
            assert await me.changes.get() is False
            assert await me.changes.get() is True
            assert isinstance(await me.enter(1), Yours)


async def test_killed_and_started_again() -> None:
    """A refused connection is noticed at once."""
    async with RedisServer() as server, side(server.url) as me:
        assert isinstance(await me.enter(1), Yours)
        await server.kill()
        began = time.monotonic()
        gone = await me.enter(2)
        assert isinstance(gone, Down)
        assert gone.reason == "connection"
        assert time.monotonic() - began < TIMEOUT_S
        await server.start()
        assert [await me.changes.get(), await me.changes.get()] == [False, True]


async def test_three_hundred_lanes_at_once_share_few_connections() -> None:
    """Commands of a tick go together, those that come while enough is under way wait and go together too."""
    async with RedisServer() as server, side(server.url, timeout_s=2.0) as me:
        lanes = [f"relay:{{1:0x{number:x}}}" for number in range(300)]
        answers = await asyncio.gather(*(me.enter(1, lane=lane) for lane in lanes))
        assert all(isinstance(answer, Yours) for answer in answers)
        assert (await server.admin.info("clients"))["connected_clients"] <= 10


async def test_a_wrong_password_is_said_to_be_one() -> None:
    """NOAUTH and WRONGPASS count as gone, by their own reason."""
    async with RedisServer("valkey", "--requirepass", "secret") as server:
        async with side(server.url) as me:
            assert me.store.trouble is not None
            assert me.store.trouble.reason == "auth"
        async with side(server.url.replace("//", "//:secret@")) as me:
            assert me.store.up


async def test_the_rights_that_the_documentation_names_are_enough(server: RedisServer) -> None:
    """An ACL that gives the relay its own keys and channels, and only the commands it needs."""
    text = (Path(__file__).parents[1] / "docs" / "instances.md").read_text("utf-8")
    rights = " ".join(re.findall(r"(?<![a-z])[+~&][a-z@:*]+", text))
    await server.say(f"ACL SETUSER relay on >secret resetchannels {rights}")
    url = server.url.replace("//", "//relay:secret@")
    async with side(url, "a") as a, side(url, "b") as b, listening(b) as heard:
        lease = await a.enter(1)
        await b.enter(1, 1)
        await server.admin.script_flush()
        await a.leave(2, lease.fence, 1)
        assert (await heard.get()).startswith(b"grant ")
        assert a.counted == b.counted == []


async def test_over_a_unix_socket(tmp_path: Path) -> None:
    """``unix:///PATH``."""
    path = tmp_path / "s"
    async with RedisServer("valkey", "--unixsocket", str(path)), side(f"unix://{path}") as me:
        assert isinstance(await me.enter(1), Yours)


async def test_by_a_sentinel(tmp_path: Path) -> None:
    """``redis+sentinel://HOST:PORT/SERVICE`` finds the master, for commands and for what is pushed."""
    config = tmp_path / "sentinel.conf"
    async with RedisServer("redis62") as master:
        config.write_text(f"sentinel monitor main 127.0.0.1 {master.port} 1\n")
        port = free_port()
        async with RedisServer("redis62", "--sentinel", config=config, port=port):
            url = f"redis+sentinel://127.0.0.1:{port}/main"
            async with side(url, "a", 1.0) as a, side(url, "b", 1.0) as b, listening(b) as heard:
                lease = await a.enter(1)
                await b.enter(1, 1)
                await a.leave(2, lease.fence, 1)
                assert (await heard.get()).startswith(b"grant ")


async def test_in_a_cluster(tmp_path: Path) -> None:
    """``redis+cluster://HOST:PORT``: commands one by one, pushes through any node."""
    async with RedisServer(
        "valkey",
        *("--cluster-enabled", "yes", "--cluster-config-file", str(tmp_path / "nodes.conf")),
        *("--cluster-port", str(free_port())),
    ) as server:
        await server.say("CLUSTER ADDSLOTSRANGE 0 16383")
        while (await server.say("CLUSTER INFO"))["cluster_state"] != "ok":  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.05)
        url = f"redis+cluster://127.0.0.1:{server.port}"
        async with side(url, "a", 1.0) as a, side(url, "b", 1.0) as b, listening(b) as heard:
            lanes = [f"relay:{{1:0x{number:x}}}" for number in range(20)]
            answers = await asyncio.gather(*(a.enter(1, lane=lane) for lane in lanes))
            assert all(isinstance(answer, Yours) for answer in answers)
            await b.enter(1, 1, lane=lanes[3])
            await a.leave(2, answers[3].fence, 1, lane=lanes[3])
            assert (await heard.get()).startswith(b"grant ")


async def test_a_subscription_that_was_cut_comes_back_and_says_so(server: RedisServer) -> None:
    """What was pushed meanwhile is lost, so those who wait must hear of it."""
    again = asyncio.Queue[None]()
    async with side(server.url) as me, listening(me, again) as heard:
        await again.get()
        await server.say("CLIENT KILL TYPE pubsub")
        await again.get()
        await server.admin.publish("relay:wake:me", "want x 1")
        assert await heard.get() == b"want x 1"


async def test_a_silent_subscription_is_given_up() -> None:
    """A server that hangs does not answer the ping; when it is back, the subscription is new."""
    again = asyncio.Queue[None]()
    async with RedisServer() as server, side(server.url) as me, listening(me, again):
        await again.get()
        server.pause()
        await asyncio.get_running_loop().run_in_executor(None, time.sleep, 2.5)
        server.resume()
        await asyncio.wait_for(again.get(), 3)
