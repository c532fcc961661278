"""The operator's side: is it alive, is it ready, what does it count.

Job: three routes on a listener of their own, and the operator's API (`relay.console`) under its prefix.
Rules: /livez asks nobody, so that a dead node never gets a live relay restarted. /readyz says what is wrong, check by
check. Nothing here is reachable from the clients' listener.
Must not know: what the checks look at.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

import orjson
from aiohttp import web
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from relay.config import address
from relay.console import MAX_BODY, PREFIX, no_console
from relay.telemetry.metrics import MetricsCollector

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from prometheus_client.registry import Collector

    from relay.config import Ops
    from relay.telemetry.metrics import Metrics

CHECK_TIMEOUT_S: Final = 5.0
CLOSE_S: Final = 2.0
"""How long a request under way may hold up the end."""


class Readiness(Protocol):
    """What a check says."""

    @property
    def ready(self) -> bool:
        """Can this part do its work?"""

    @property
    def detail(self) -> str:
        """For an operator: what it found, or what to do."""


class OpsServer:
    """The ops listener of one process."""

    def __init__(
        self,
        settings: Ops,
        shown: CollectorRegistry,
        before_scrape: Callable[[], Awaitable[None]] | None = None,
        *,
        console: web.Application | None = None,
    ) -> None:
        self._settings = settings
        self.draining = False
        self._checks: dict[str, Callable[[], Awaitable[Readiness]]] = {}
        self._registry = shown
        self._before_scrape = before_scrape
        self._console = no_console() if console is None else console
        self._runner: web.AppRunner | None = None

    def __repr__(self) -> str:
        return f"<ops: {'draining, ' if self.draining else ''}checks {', '.join(self._checks) or 'none'}>"

    def add_check(self, name: str, check: Callable[[], Awaitable[Readiness]]) -> None:
        """Ask ``check`` at each /readyz."""
        self._checks[name] = check

    async def start(self) -> tuple[str, int]:
        """Listen. Returns (host, port). Raises OSError."""
        app = web.Application(client_max_size=MAX_BODY)
        app.add_subapp(PREFIX, self._console)
        for path, handler in ROUTES.items():
            app.router.add_get(path, getattr(self, handler))
        app.router.add_route("*", "/{rest:.*}", _elsewhere)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=CLOSE_S)
        await self._runner.setup()
        host, port = address(self._settings.listen, "ops.listen")
        await web.TCPSite(self._runner, host, port).start()
        bound_host, bound_port = self._runner.addresses[0][:2]
        return bound_host, bound_port

    async def close(self) -> None:
        """Stop listening. Idempotent."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _livez(self, _request: web.Request) -> web.Response:
        return web.json_response({"alive": True})

    async def _readyz(self, _request: web.Request) -> web.Response:
        found = dict(zip(self._checks, await asyncio.gather(*map(_ask, self._checks.values())), strict=True))
        ready = not self.draining and all(good for good, _ in found.values())
        body = {
            "ready": ready,
            "draining": self.draining,
            "checks": {name: {"ready": good, "detail": detail} for name, (good, detail) in found.items()},
        }
        return web.json_response(body=orjson.dumps(body), status=200 if ready else 503)

    async def _metrics(self, _request: web.Request) -> web.Response:
        if self._before_scrape is not None:
            await self._before_scrape()
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def registry(*collectors: Collector) -> CollectorRegistry:
    """What /metrics shows."""
    made = CollectorRegistry()
    for collector in collectors:
        made.register(collector)
    return made


def of_process(metrics: Metrics) -> CollectorRegistry:
    """The relay's own metrics, those of this process, of its Python and of its garbage collector."""
    made = registry(MetricsCollector(metrics))
    for kind in (ProcessCollector, PlatformCollector, GCCollector):
        kind(registry=made)
    return made


ROUTES: Final = {"/livez": "_livez", "/readyz": "_readyz", "/metrics": "_metrics"}


async def _ask(check: Callable[[], Awaitable[Readiness]]) -> tuple[bool, str]:
    """A check that fails or takes too long is not ready, whatever the reason."""
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            readiness = await check()
    except TimeoutError:
        return False, f"no answer within {CHECK_TIMEOUT_S:g} s"
    except Exception as error:  # noqa: BLE001 - the page must come whatever breaks
        return False, repr(error)
    return readiness.ready, readiness.detail


async def _elsewhere(request: web.Request) -> web.Response:
    status = 405 if request.path in ROUTES else 404
    headers = {"Allow": "GET, HEAD"} if status == 405 else {}  # noqa: PLR2004 - the status just chosen
    return web.json_response({"routes": sorted(ROUTES)}, status=status, headers=headers)
