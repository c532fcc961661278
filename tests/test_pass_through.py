"""Public exchanges through the whole instance: the node sees the client's bytes, the client sees the node's (G4)."""

from __future__ import annotations

import gzip
import json
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from relay import methods
from tests.test_app import relay_before

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

CORPORA = Path(__file__).parents[2] / "shared" / "corpora"


class Recorder:
    """A node that notes what it gets and answers what it is told."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.answer: Callable[[bytes], web.StreamResponse] = lambda _: web.Response(body=b"{}")
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.requests.append((dict(request.headers), body))
        return self.answer(body)


@asynccontextmanager
async def recorder() -> AsyncIterator[Recorder]:
    """A recording node that listens."""
    node = Recorder()
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", node.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    node.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield node
    finally:
        await runner.cleanup()


def exchanges() -> list[tuple[bytes, bytes]]:
    """Each request of the corpora that holds no submission, and what was answered to it."""
    found = []
    for file in ("execution-apis.jsonl", "jsonrpc.jsonl"):
        for line in (CORPORA / file).read_text("utf-8").splitlines():
            record = json.loads(line)
            found.append((record["request"].encode(), (record["response"] or "").encode()))
    for line in (CORPORA / "geth-rpc.jsonl").read_text("utf-8").splitlines():
        lines = json.loads(line)["lines"]
        for asked, answered in zip(lines, [*lines[1:], {"dir": "-->", "text": ""}], strict=True):
            if asked["dir"] == "-->":
                found.append((asked["text"].encode(), answered["text"].encode() if answered["dir"] == "<--" else b""))
    return [(request, response) for request, response in found if methods.NEEDLE not in request]


def _json(text: bytes, _asked: bytes) -> web.StreamResponse:
    return web.Response(body=text, content_type="application/json")


async def test_public_exchanges_pass_byte_for_byte() -> None:
    """More than 250 requests of other people's test suites, well-formed or not, and their answers."""
    if not CORPORA.exists():
        pytest.skip("needs ../shared/corpora, which only the project's own CI has")
    async with recorder() as node, relay_before(node.url) as url, aiohttp.ClientSession() as client:
        passed = 0
        for request, response in exchanges():
            node.answer = partial(_json, response)
            node.requests.clear()
            async with client.post(url, data=request, headers={"Content-Type": "text/odd"}) as answer:
                body = await answer.read()
            bodies = [seen for _, seen in node.requests]
            if request in bodies:
                passed += 1
                assert body == response
            else:  # a backslash in it: looked at, and no JSON
                assert b"\\" in request
                assert answer.status == 400
        assert passed > 250


ANSWERS: dict[str, dict[str, Any]] = {
    "another status": {"status": 418, "body": b"teapot", "headers": {"Content-Type": "text/x-tea"}},
    "compressed": {"body": gzip.compress(b"{}"), "headers": {"Content-Encoding": "gzip"}},
    "own headers": {"body": b"{}", "headers": {"X-Request-Id": "7", "Cache-Control": "no-store", "Location": "/x"}},
    "nothing": {"status": 204},
    "not modified": {"status": 304},
    "retry later": {"status": 429, "body": b"slow down", "headers": {"Retry-After": "3"}},
}


@pytest.mark.parametrize("terms", ANSWERS.values(), ids=ANSWERS)
async def test_an_answer_keeps_its_status_headers_and_compression(terms: dict[str, Any]) -> None:
    """And gains nothing but CORS."""
    async with (
        recorder() as node,
        relay_before(node.url) as url,
        aiohttp.ClientSession(auto_decompress=False) as client,
    ):
        node.answer = lambda _: web.Response(**terms)
        async with client.post(url, data=b'{"method":"x"}', headers={"Accept-Encoding": "gzip"}) as answer:
            body = await answer.read()

        assert (answer.status, body) == (terms.get("status", 200), terms.get("body", b""))
        assert {name: answer.headers.get(name) for name in terms.get("headers", {})} == terms.get("headers", {})
        assert answer.headers["Access-Control-Allow-Origin"] == "*"


async def test_a_request_loses_its_credentials_and_keeps_the_rest() -> None:
    """The node learns neither who the client is there nor which hops it took."""
    async with recorder() as node, relay_before(node.url) as url, aiohttp.ClientSession() as client:
        headers = {
            "Authorization": "Bearer secret",
            "Cookie": "secret=1",
            "Origin": "https://dapp.example",
            "Content-Type": "text/plain",
            "X-Trace": "abc",
            "User-Agent": "wallet/1",
            "Connection": "keep-alive, X-Hop",
            "X-Hop": "1",
        }
        async with client.post(url + "/secret/path?key=1", data=b'{"method":"x"}', headers=headers) as answer:
            await answer.read()
        seen = next(seen for seen, body in node.requests if body == b'{"method":"x"}')

        assert "secret" not in str(seen).lower()
        assert not {"Authorization", "Cookie", "Origin", "X-Hop"} & set(seen)
        assert (seen["Content-Type"], seen["X-Trace"], seen["User-Agent"]) == ("application/json", "abc", "wallet/1")


async def test_large_answers_stream_in_bounded_memory() -> None:
    """Of 400 MB the node, the relay and the client together hold no more than what is on its way."""
    size, piece = 400 * 1024 * 1024, bytes(1024 * 1024)
    async with recorder() as node, relay_before(node.url) as url, aiohttp.ClientSession() as client:

        class Stream(web.StreamResponse):
            async def prepare(self, request: Any) -> Any:
                writer = await super().prepare(request)
                for _ in range(size // len(piece)):
                    await self.write(piece)
                return writer

        node.answer = lambda _: Stream()
        before = resident_kib()
        total = 0
        async with client.post(url, data=b'{"method":"x"}') as answer:
            async for chunk in answer.content.iter_chunked(1 << 20):
                total += len(chunk)

        assert total == size
        assert resident_kib() - before < 100 * 1024


def resident_kib() -> int:
    """Memory of this process (node, relay and client together)."""
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line)
