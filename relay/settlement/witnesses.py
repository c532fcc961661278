"""Other nodes of the same chain, asked what the upstream may not know: ``[upstream] witnesses``.

Job: a client of its own for each, with short time-outs.
Rules: they are asked and never sent a submission. Their connections are few, and not in the metrics of the upstream's.
Must not know: what they are asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from relay.settlement.asking import Endpoint
from relay.telemetry.metrics import Metrics
from relay.upstream.client import UpstreamClient
from relay.upstream.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.config import Upstream

TIMEOUT_S: Final = 5.0
CONNECT_S: Final = 2.0
CONNECTIONS: Final = 4


class Witnesses:
    """All of them. ``endpoints`` are in the order of the setting."""

    def __init__(
        self, settings: Upstream, report: Callable[[str, BaseException], None], clock: Callable[[], float]
    ) -> None:
        self._pools: list[Pool] = []
        self.endpoints: list[Endpoint] = []
        uncounted = Metrics()
        for url in settings.witnesses:
            witness = msgspec.structs.replace(
                settings,
                url=url,
                ws_url="",
                headers={},
                timeout_s=TIMEOUT_S,
                connect_timeout_s=CONNECT_S,
                max_connections=CONNECTIONS,
            )
            pool = Pool(witness, uncounted, report, clock=clock)
            client = UpstreamClient(pool, uncounted, TIMEOUT_S, clock)
            self._pools.append(pool)
            self.endpoints.append(Endpoint(pool.endpoint.name, client, clock))

    def __repr__(self) -> str:
        return f"<witnesses {[each.name for each in self.endpoints]}>"

    async def close(self) -> None:
        """Cut what is left."""
        for pool in self._pools:
            await pool.close()
