"""The whole instance: built, serving both ways in, drained in the right order."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from relay import config
from relay.app import Instance
from relay.devnode import DevNode, NodeSettings
from relay.devnode.faults import Hang
from relay.devnode.keys import FUNDED
from relay.telemetry.logs import Logs
from relay.telemetry.metrics import Metrics
from tests.redis_server import RedisServer
from tests.stand import call, signed, submission

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Running:
    """An instance that serves, its node, and a client."""

    def __init__(self, instance: Instance, node: DevNode, http: str, ops: str, client: aiohttp.ClientSession) -> None:
        self.instance = instance
        self.node = node
        self.http = http
        self.ops = ops
        self.client = client

    async def post(self, body: bytes) -> tuple[int, Any]:
        """Status and JSON value of the answer."""
        async with self.client.post(self.http, data=body) as response:
            return response.status, await response.json()

    async def ready(self) -> tuple[int, Any]:
        """What /readyz says."""
        async with self.client.get(self.ops + "/readyz") as response:
            return response.status, await response.json()


@asynccontextmanager
async def running(settings: NodeSettings | None = None, **tables: dict[str, Any]) -> AsyncIterator[Running]:
    """An instance over a development chain; drained at the end, by the test or here."""
    async with DevNode(settings or NodeSettings()) as node, aiohttp.ClientSession() as client:
        listen = {"listen": "127.0.0.1:0"}
        upstream = {"url": node.url, "ws_url": node.ws_url} | tables.get("upstream", {})
        server = {"drain_s": 5} | listen | tables.get("server", {})
        checked = config.check({**tables, "server": server, "ops": listen, "upstream": upstream})
        metrics = Metrics()
        logs = Logs.start(checked.log, metrics, sys.stdout)
        instance = Instance(checked, metrics, logs)
        at = await instance.start()
        try:
            yield Running(instance, node, at.http, at.ops, client)
        finally:
            node.release()
            if not instance.stopping.is_set():
                await instance.drain()
            logs.close()


@asynccontextmanager
async def relay_before(url: str, **tables: dict[str, Any]) -> AsyncIterator[str]:
    """An instance in front of any node; its URL."""
    listen = {"listen": "127.0.0.1:0"}
    server = {"drain_s": 5} | listen | tables.get("server", {})
    checked = config.check(
        {
            "log": {"level": "error"},
            **tables,
            "server": server,
            "ops": listen,
            "upstream": {"url": url} | tables.get("upstream", {}),
        }
    )
    metrics = Metrics()
    logs = Logs.start(checked.log, metrics, sys.stdout)
    instance = Instance(checked, metrics, logs)
    at = await instance.start()
    try:
        yield at.http
    finally:
        await instance.drain()
        logs.close()


async def test_a_burst_over_http_arrives_in_order() -> None:
    """Many connections, neighbours swapped, a strict node with random checks."""
    async with running(NodeSettings(delay_ms=(0, 5), seed=7)) as relay:
        replies = await asyncio.gather(*(relay.post(submission(signed(nonce ^ 1))) for nonce in range(40)))

        assert all(status == 200 and "result" in body for status, body in replies)
        assert (relay.node.arrivals.inversions, relay.node.arrivals.overlaps) == (0, 0)


async def test_both_ways_in_share_the_lanes() -> None:
    """A nonce over WebSocket waits for the one before it, which comes over HTTP."""
    async with running() as relay, relay.client.ws_connect(relay.http) as socket:
        await socket.send_bytes(submission(signed(1), "later"))
        status, first = await relay.post(submission(signed(0)))
        second = json.loads((await socket.receive()).data)

        assert (status, "result" in first, second["id"], "result" in second) == (200, True, "later", True)
        assert [arrival.nonce for arrival in relay.node.arrivals] == [0, 1]


async def test_a_subscription_flows_through() -> None:
    """New heads come over the client's own upstream socket, verbatim."""
    async with running() as relay, relay.client.ws_connect(relay.http) as socket:
        await socket.send_bytes(call("eth_subscribe", "newHeads"))
        subscription = json.loads((await socket.receive()).data)["result"]
        relay.node.mine()
        head = json.loads((await socket.receive()).data)

        assert (head["method"], head["params"]["subscription"]) == ("eth_subscription", subscription)
        assert head["params"]["result"]["number"] == "0x1"


async def test_readiness_follows_the_node_and_the_drain() -> None:
    """Not ready without the node, ready again by itself, not ready while draining; alive all the time."""
    async with running() as relay:
        assert (await relay.ready())[0] == 200
        await relay.node.close()
        status, body = await relay.ready()
        assert (status, body["checks"]["upstream"]["ready"]) == (503, False)
        assert "upstream" in body["checks"]["upstream"]["detail"]
        async with relay.client.get(relay.ops + "/livez") as response:
            assert response.status == 200
        await relay.node.start()
        assert (await relay.ready())[0] == 200


async def test_the_wrong_chain_is_not_ready() -> None:
    """The expected and the found chain id are named."""
    async with running(prechecks={"chain_id": 5}) as relay:
        status, body = await relay.ready()

        assert status == 503
        assert body["checks"]["upstream"]["detail"] == "the upstream is on chain 1337, [prechecks] chain_id expects 5"


def two(nonces: tuple[int, int] = (0, 1)) -> bytes:
    """A batch of two submissions: both tickets are taken at the same instant."""
    return b"[" + b",".join(submission(signed(nonce), nonce) for nonce in nonces) + b"]"


async def test_a_drain_answers_what_is_in_flight_before_it_closes() -> None:
    """G12: the holder finishes, its successor still goes, then the sockets close."""
    async with running() as relay, asyncio.TaskGroup() as group:
        relay.node.script.add(Hang(times=1))
        client = group.create_task(relay.post(two()))
        await relay.node.until(lambda: relay.node.hanging == 1)
        relay.instance.stopping.set()
        drain = group.create_task(relay.instance.drain())
        await asyncio.sleep(0)
        relay.node.release()

        assert ["result" in reply for reply in (await client)[1]] == [True, True]
        await drain
        with pytest.raises(aiohttp.ClientConnectionError):
            await relay.post(call("eth_chainId"))


async def test_a_drain_that_runs_out_of_time_owns_up() -> None:
    """What is at the node is unknown with its hash, what waits was never sent; nobody is left without an answer."""
    async with running(server={"drain_s": 0.2}) as relay, asyncio.TaskGroup() as group:
        relay.node.script.add(Hang())
        client = group.create_task(relay.post(two()))
        await relay.node.until(lambda: relay.node.hanging == 1)
        relay.instance.stopping.set()
        await relay.instance.drain()

        assert [reply["error"]["code"] for reply in (await client)[1]] == [-32040, -32012]


async def test_a_drain_answers_a_batch_whose_reads_hang() -> None:
    """The submission in it was accepted: its client must hear of it, whatever became of its neighbours."""
    async with running(server={"drain_s": 0.3}) as relay, asyncio.TaskGroup() as group:
        relay.node.script.add(Hang(method="eth_blockNumber"))
        body = b"[" + call("eth_blockNumber", id_=1) + b"," + submission(signed(0), 2) + b"]"
        client = group.create_task(relay.post(body))
        await relay.node.until(lambda: relay.node.hanging == 1 and relay.node.arrivals.total == 1)
        relay.instance.stopping.set()
        await relay.instance.drain()
        status, replies = await client

        assert (status, [reply["id"] for reply in replies]) == (200, [1, 2])
        assert (replies[0]["error"]["code"], "result" in replies[1]) == (-32013, True)


async def test_a_drain_answers_calls_that_the_node_does_not() -> None:
    """Over HTTP and over WebSocket; nobody sees a socket close under a pending call."""
    async with (
        running(server={"drain_s": 0.3}) as relay,
        relay.client.ws_connect(relay.http) as socket,
        asyncio.TaskGroup() as group,
    ):
        relay.node.script.add(Hang(method="eth_blockNumber"))
        client = group.create_task(relay.post(call("eth_blockNumber", id_=1)))
        await socket.send_bytes(call("eth_blockNumber", id_=2))
        await relay.node.until(lambda: relay.node.hanging == 2)
        relay.instance.stopping.set()
        drain = group.create_task(relay.instance.drain())
        status, reply = await client
        over_socket = json.loads((await socket.receive()).data)
        await drain

        assert (status, reply["id"], reply["error"]["code"]) == (502, 1, -32013)
        assert (over_socket["id"], over_socket["error"]["code"]) == (2, -32013)


async def test_giving_up_ends_a_drain_at_once() -> None:
    """What a second signal does: everybody is answered, and the instance ends long before ``drain_s``."""
    async with running(server={"drain_s": 600}) as relay, asyncio.TaskGroup() as group:
        relay.node.script.add(Hang(), Hang(method="eth_blockNumber"))
        clients = [group.create_task(relay.post(body)) for body in (two(), call("eth_blockNumber"))]
        await relay.node.until(lambda: relay.node.hanging == 2)
        relay.instance.stopping.set()
        drain = group.create_task(relay.instance.drain())
        await asyncio.sleep(0)
        relay.instance.give_up()
        await drain

        assert [reply["error"]["code"] for reply in (await clients[0])[1]] == [-32040, -32012]
        assert (await clients[1])[1]["error"]["code"] == -32013


async def test_the_metrics_tell_what_happened() -> None:
    """One accepted submission, one passed-through call, one refusal by a precheck."""
    async with running() as relay:
        await relay.post(submission(signed(0)))
        await relay.post(call("eth_chainId"))
        await relay.post(submission(signed(1, chainId=2)))
        async with relay.client.get(relay.ops + "/metrics") as response:
            text = await response.text()

        assert 'relay_verdicts_total{disposition="accepted"} 1.0' in text
        assert 'relay_precheck_refusals_total{stage="stateless"} 1.0' in text
        assert 'relay_requests_total{kind="pass",outcome="answered",way="http"} 1.0' in text
        assert "relay_lane_hold_seconds_count" in text


async def test_the_log_has_one_line_for_a_submission_and_no_raw_bytes(capfd: pytest.CaptureFixture[str]) -> None:
    """Hash, sender, nonce, times and verdict; the transaction itself is nowhere."""
    raw = signed(0)
    async with running(log={"format": "json"}) as relay:
        await relay.post(submission(raw))
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith("{")]
    ours = [line for line in lines if line["event"] == "submission"]

    assert [(line["nonce"], line["verdict"], line["copies"]) for line in ours] == [(0, "accepted", 0)]
    assert raw[2:] not in json.dumps(lines)


async def test_an_instance_starts_without_redis_and_says_so() -> None:
    """/readyz stays 200, for a 503 would take every instance out of the balancer; a gauge and the text tell."""
    async with RedisServer() as server, running(redis={"url": server.url}) as relay:
        assert (await relay.ready())[1]["checks"]["redis"]["detail"] == "one order over all instances"
        await server.kill()
        status, body = await relay.post(submission(signed(0)))
        assert (status, "result" in body) == (200, True)
        status, body = await relay.ready()
        assert status == 200
        assert body["checks"]["redis"]["detail"].startswith("Redis is gone (")
        async with relay.client.get(relay.ops + "/metrics") as response:
            assert "relay_redis_degraded 1.0" in await response.text()


async def test_a_drain_releases_every_lease_with_nothing_in_flight() -> None:
    """What is still at the node keeps its lane until the lease expires; what waits elsewhere need not wait for more."""
    async with RedisServer() as server, running(server={"drain_s": 0.3}, redis={"url": server.url}) as relay:
        relay.node.script.add(Hang(nonce=0, sender=FUNDED[0].address))
        hanging = asyncio.gather(relay.post(submission(signed(0))))
        await relay.node.until(lambda: relay.node.hanging == 1)
        held = set(await server.admin.keys("*:lease"))
        for who in (1, 2):
            assert "result" in (await relay.post(submission(signed(0, who=who))))[1]

        await relay.instance.drain()

        assert set(await server.admin.keys("*:lease")) == held
        assert len(held) == 1
        ((_, body),) = await hanging
        assert body["error"]["code"] == -32040
