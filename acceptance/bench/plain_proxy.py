"""A reverse proxy as one writes it with aiohttp: aiohttp's server in, its client out, nothing else.

Run as ``python -m acceptance.bench.plain_proxy UPSTREAM``; prints ``ready http://HOST:PORT``. It runs on uvloop and
logs nothing, which is the best it can do.
"""

from __future__ import annotations

import asyncio
import sys

import aiohttp
import uvloop
from aiohttp import web


async def serve(upstream: str) -> None:
    """Listen until the process is ended."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def forward(request: web.BaseRequest) -> web.Response:
            headers = {"Content-Type": request.headers["Content-Type"]}
            async with session.post(upstream, data=await request.read(), headers=headers) as response:
                return web.Response(body=await response.read(), status=response.status, headers=headers)

        runner = web.ServerRunner(web.Server(forward, access_log=None))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
        host, port = runner.addresses[0][:2]
        print(f"ready http://{host}:{port}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
