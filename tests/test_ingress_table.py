"""Every row of `http_table`, over real sockets, in every form in which its bytes can come."""

from __future__ import annotations

import json

import pytest

from tests.http_table import LIMIT, ROWS, Row
from tests.ingress_rig import LOOPS, RESULT, Rig, Wire, post, run, serving, turns

BEFORE = {
    "a POST": (post(body=b'{"id":"before"}'), RESULT),
    "a GET": (
        b"GET / HTTP/1.1\r\nHost: relay\r\n\r\n",
        b"This is a JSON-RPC endpoint and it is up. Send calls with POST.\n",
    ),
}
CUTS = 24
BYTE_BY_BYTE = 400
"""Longer requests are cut in two at `CUTS` places only."""


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row(row: Row, loop: str) -> None:
    """A request is answered as its row says: at once, a second time, in any cut, and behind another request."""

    async def work() -> None:
        async with serving(max_body_bytes=LIMIT) as rig:
            for pieces in ([row.request], [row.request], *cuts(row.request)):
                await answers_as(rig, row, pieces)
            for request, answer in BEFORE.values():
                await answers_as(rig, row, [request + row.request], before=answer)

    run(loop, work)


def cuts(request: bytes) -> list[list[bytes]]:
    """The request in two pieces in many ways, and, if it is short, in bytes."""
    step = max(1, len(request) // CUTS)
    halves = [[request[:at], request[at:]] for at in range(1, len(request), step)]
    return halves if len(request) > BYTE_BY_BYTE else [*halves, [request[at : at + 1] for at in range(len(request))]]


async def answers_as(rig: Rig, row: Row, pieces: list[bytes], before: bytes | None = None) -> None:
    """Send the pieces on a new connection, each read before the next is sent, and compare with the row."""
    already = len(rig.upstream.sent)
    wire = await rig.wire()
    for piece in pieces:
        await wire.send(piece)
        if len(pieces) > 1:
            await turns()
    if before is not None:
        assert (await wire.reply()).body == before
    reply = await wire.reply(to_head=row.to_head)
    assert reply.status == row.status
    assert reply.headers["access-control-allow-origin"] == "*"
    if row.code is not None:
        assert reply.headers["content-type"] == "application/json"
        assert reply.error["code"] == row.code
        assert json.loads(reply.body)["id"] is None
    if row.passed is not None:
        assert reply.body == RESULT
    bodies = [sent.body for sent in rig.upstream.sent[already:] if sent.body != b'{"id":"before"}']
    assert bodies == ([] if row.passed is None else [row.passed])
    await keeps_as(wire, row)
    wire.close()


async def keeps_as(wire: Wire, row: Row) -> None:
    """Is the connection kept, or closed behind the answer?"""
    if row.kept:
        await wire.send(post(body=b'{"id":"before"}'))
        assert (await wire.reply()).body == RESULT
    else:
        assert await wire.ended()
