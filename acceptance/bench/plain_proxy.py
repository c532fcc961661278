"""A reverse proxy as one writes it with aiohttp: aiohttp's server in, its client out, nothing else.

Run as ``python -m acceptance.bench.plain_proxy UPSTREAM``; prints ``ready http://HOST:PORT``. It passes on what a proxy
has to, end-to-end headers both ways and the body as it came. It runs on uvloop, without routes and without a log,
which is the best it can do.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Final

import aiohttp
import uvloop
from aiohttp import web

if TYPE_CHECKING:
    from multidict import CIMultiDictProxy

THIS_HOP: Final = frozenset(
    {
        "connection", "content-length", "host", "keep-alive", "proxy-authenticate", "proxy-authorization", "te",
        "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
ADDED: Final = ("Accept", "Accept-Encoding", "User-Agent")
"""What aiohttp's client would say for itself."""


async def serve(upstream: str) -> None:
    """Listen until the process is ended."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), auto_decompress=False, skip_auto_headers=ADDED
    ) as session:

        async def forward(request: web.BaseRequest) -> web.Response:
            body, headers = await request.read(), _end_to_end(request.headers)
            async with session.request(request.method, upstream, data=body, headers=headers) as response:
                body, headers = await response.read(), _end_to_end(response.headers)
                return web.Response(body=body, status=response.status, headers=headers)

        runner = web.ServerRunner(web.Server(forward, access_log=None))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
        host, port = runner.addresses[0][:2]
        print(f"ready http://{host}:{port}", flush=True)
        await asyncio.Event().wait()


def _end_to_end(headers: CIMultiDictProxy[str]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers.items() if name.lower() not in THIS_HOP]


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
