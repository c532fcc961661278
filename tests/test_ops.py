"""The ops listener, asked over HTTP."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from relay import ops
from relay.config import Ops
from relay.ops import ROUTES, OpsServer, of_process
from relay.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass(frozen=True)
class Found:
    """What a check says."""

    ready: bool
    detail: str


class Check:
    """A check that says what the test wants."""

    def __init__(self, found: Found | Exception = Found(ready=True, detail="fine")) -> None:
        self.found = found
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def __call__(self) -> Found:
        self.asked.set()
        await self.go_on.wait()
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


class Asked:
    """A server and somebody who asks it."""

    def __init__(self, server: OpsServer, url: str, client: aiohttp.ClientSession) -> None:
        self.server = server
        self.url = url
        self.client = client

    async def get(self, path: str, method: str = "GET") -> tuple[int, Any]:
        async with self.client.request(method, self.url + path) as answer:
            return answer.status, await answer.json()


@asynccontextmanager
async def asking(metrics: Metrics | None = None, **checks: Check) -> AsyncIterator[Asked]:
    """A server with these checks on a free port."""
    server = OpsServer(Ops(listen="127.0.0.1:0"), of_process(metrics or Metrics()))
    for name, check in checks.items():
        server.add_check(name, check)
    host, port = await server.start()
    async with aiohttp.ClientSession() as client:
        yield Asked(server, f"http://{host}:{port}", client)
        await server.close()


async def test_alive_whatever_else_is_wrong() -> None:
    """/livez asks no check: neither a dead node nor a drain may get a live process killed."""
    check = Check(RuntimeError("dead"))
    async with asking(upstream=check) as asked:
        asked.server.draining = True
        assert await asked.get("/livez") == (200, {"alive": True})
        assert not check.asked.is_set()


async def test_ready_when_each_check_is() -> None:
    """200, and what each check found by its name."""
    async with asking(upstream=Check(Found(ready=True, detail="chain 1")), redis=Check()) as asked:
        status, body = await asked.get("/readyz")
    assert status == 200
    assert body == {
        "ready": True,
        "draining": False,
        "checks": {"upstream": {"ready": True, "detail": "chain 1"}, "redis": {"ready": True, "detail": "fine"}},
    }


@pytest.mark.parametrize(
    ("found", "detail"),
    [(Found(ready=False, detail="wrong chain"), "wrong chain"), (OSError("no route"), "OSError('no route')")],
)
async def test_one_failing_check_makes_it_not_ready(found: Found | Exception, detail: str) -> None:
    """503 that names the check and what it found, even if the check itself broke; the others are shown, too."""
    async with asking(good=Check(), bad=Check(found)) as asked:
        status, body = await asked.get("/readyz")
    assert status == 503
    assert not body["ready"]
    assert body["checks"]["bad"] == {"ready": False, "detail": detail}
    assert body["checks"]["good"]["ready"]


async def test_readiness_is_asked_anew_each_time() -> None:
    """A node that comes back makes the instance ready at the next look."""
    check = Check(Found(ready=False, detail="down"))
    async with asking(upstream=check) as asked:
        assert (await asked.get("/readyz"))[0] == 503
        check.found = Found(ready=True, detail="up")
        assert (await asked.get("/readyz"))[0] == 200


async def test_a_check_that_hangs_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page comes in bounded time, and the other checks are not held up."""
    monkeypatch.setattr(ops, "CHECK_TIMEOUT_S", 0.02)
    stuck = Check()
    stuck.go_on.clear()
    async with asking(stuck=stuck, fine=Check()) as asked:
        status, body = await asked.get("/readyz")
    assert status == 503
    assert body["checks"]["stuck"] == {"ready": False, "detail": "no answer within 0.02 s"}
    assert body["checks"]["fine"]["ready"]


async def test_checks_are_asked_at_the_same_time() -> None:
    """None waits for another."""
    first, second = Check(), Check()
    first.go_on.clear()
    async with asking(first=first, second=second) as asked, asyncio.timeout(10), asyncio.TaskGroup() as group:
        page = group.create_task(asked.get("/readyz"))
        await second.asked.wait()
        first.go_on.set()
        assert (await page)[0] == 200


async def test_not_ready_while_draining() -> None:
    """A balancer must take a draining instance out, however well its checks are."""
    async with asking(upstream=Check()) as asked:
        asked.server.draining = True
        status, body = await asked.get("/readyz")
    assert (status, body["ready"], body["draining"]) == (503, False, True)


async def test_metrics_are_prometheus_text() -> None:
    """Every family of the relay, and those of the process, the platform and the garbage collector."""
    metrics = Metrics()
    metrics.connections.read_from(lambda: 7, "websocket")
    metrics.requests.cell("http", "pass", "answered").n = 3
    metrics.lane_wait.cell("local").observe(0.02)
    async with asking(metrics) as asked, asked.client.get(asked.url + "/metrics") as answer:
        assert answer.status == 200
        assert answer.content_type == "text/plain"
        families = {family.name: family for family in text_string_to_metric_families(await answer.text())}

    names = {family.name.removesuffix("_total") for family in metrics.families()}
    assert names - set(families) == set()
    assert {"process_resident_memory_bytes", "python_info", "python_gc_collections"} <= set(families)
    values = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert values["relay_connections", "websocket"] == 7
    assert values["relay_requests_total", "answered", "http", "pass"] == 3
    assert values["relay_lane_wait_seconds_count", "local"] == 1


async def test_two_servers_count_apart() -> None:
    """Each has a registry of its own: two instances in one process do not collide."""
    async with asking() as one, asking() as other:
        for asked in (one, other):
            async with asked.client.get(asked.url + "/metrics") as answer:
                assert answer.status == 200


@pytest.mark.parametrize("path", ["/", "/livez/", "/health"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_unknown_path_is_told_the_routes(path: str, method: str) -> None:
    """404 with the list of what there is."""
    async with asking() as asked:
        assert await asked.get(path, method) == (404, {"routes": sorted(ROUTES)})


@pytest.mark.parametrize("path", ROUTES)
async def test_a_wrong_method_is_told_the_right_one(path: str) -> None:
    """405 with Allow; HEAD is allowed."""
    async with asking() as asked:
        async with asked.client.post(asked.url + path) as answer:
            assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
            assert await answer.json() == {"routes": sorted(ROUTES)}
        async with asked.client.head(asked.url + path) as answer:
            assert (answer.status, await answer.read()) == (200, b"")


async def test_a_taken_port_is_a_fault_at_the_start() -> None:
    """OSError, for the caller to put into words; closing what did not start is fine."""
    async with asking() as asked:
        second = OpsServer(Ops(listen=asked.url.removeprefix("http://")), of_process(Metrics()))
        with pytest.raises(OSError, match="address already in use"):
            await second.start()
        await second.close()


async def test_closing_does_not_wait_for_idle_connections() -> None:
    """A scraper that keeps its connection open does not hold up the end; closing twice does no harm."""
    async with asking() as asked:
        await asked.get("/livez")
        async with asyncio.timeout(1):
            await asked.server.close()
            await asked.server.close()
        with pytest.raises(aiohttp.ClientConnectorError):
            await asked.get("/livez")
