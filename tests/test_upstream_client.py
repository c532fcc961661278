"""JSON-RPC to the node: what an answer proves, and what it does not."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from typing import TYPE_CHECKING

import pytest

from relay.telemetry.metrics import Metrics
from relay.upstream import client as room
from relay.upstream.client import Answered, Lost, NotSent, Unread, UpstreamClient, Whole
from relay.upstream.exchange import Failure, Head, Lack

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.upstream.exchange import Exchange, Sink


class Wire:
    """A sender with behaviour: what is sent waits until the test answers it."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.bounds: list[float | None] = []
        self.sinks: asyncio.Queue[Sink] = asyncio.Queue()
        self.abandoned = 0

    def send(  # noqa: PLR0913 - the protocol's
        self,
        body: bytes,
        sink: Sink,
        *,
        lines: bytes = b"",
        timeout_s: float | None = None,
        submission: bool = False,
        repeatable: Callable[[], bool] | None = None,
        before_write: Callable[[], bool] | None = None,
    ) -> Exchange:
        self.sent.append(body)
        self.bounds.append(timeout_s)
        self.sinks.put_nowait(sink)
        return self

    def pause(self) -> None:
        """Nothing streams here."""

    def resume(self) -> None:
        """Nothing streams here."""

    def abandon(self) -> None:
        self.abandoned += 1


HEAD = Head(200, b"OK", b"")


def stand() -> tuple[Wire, UpstreamClient]:
    """A client and the wire it sends on."""
    wire = Wire()
    return wire, UpstreamClient(wire, Metrics(), 30.0)


ANSWERS = {
    "result": (200, b'{"jsonrpc":"2.0","id":1,"result":"0x1"}', Answered),
    "error": (200, b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}', Answered),
    "error with another status": (400, b'{"id":1,"error":{"code":-1,"message":"no"}}', Answered),
    "error without an id": (429, b'{"id":null,"error":{"code":-32005,"message":"slow down"}}', Answered),
    "another call's result": (200, b'{"id":2,"result":"0x1"}', Lost),
    "another call's error": (200, b'{"id":2,"error":{"code":-1,"message":"no"}}', Lost),
    "a result without an id": (200, b'{"result":"0x1"}', Lost),
    "an id of another kind": (200, b'{"id":"1","result":"0x1"}', Lost),
    "a page": (503, b"<html>", Lost),
    "nothing": (200, b"", Lost),
    "a batch": (200, b'[{"id":1,"result":"0x1"}]', Lost),
    "half": (200, b'{"id":1,"result":"0x', Lost),
}


@pytest.mark.parametrize(("status", "body", "kind"), ANSWERS.values(), ids=ANSWERS)
async def test_only_the_answer_to_this_call_proves_anything(status: int, body: bytes, kind: type) -> None:
    """Whatever else came back, the node may have the bytes."""
    wire, client = stand()
    async with asyncio.TaskGroup() as group:
        attempt = group.create_task(client.submit("eth_sendRawTransaction", b'["0x"]', 5.0))
        (await wire.sinks.get()).answered(Head(status, b"", b""), body)

    assert isinstance(attempt.result(), kind)
    assert wire.sent == [b'{"jsonrpc":"2.0","id":1,"method":"eth_sendRawTransaction","params":["0x"]}']


@pytest.mark.parametrize("lack", Lack)
async def test_only_unreachable_is_not_sent(lack: Lack) -> None:
    """Of all failures one proves that the node has nothing."""
    wire, client = stand()
    async with asyncio.TaskGroup() as group:
        attempt = group.create_task(client.submit("m", b"[]", 5.0))
        (await wire.sinks.get()).failed(Failure(lack, "why"))

    assert attempt.result() == (NotSent("why") if lack is Lack.UNREACHABLE else Lost("why"))


async def test_a_streamed_answer_is_collected() -> None:
    """However it was cut."""
    wire, client = stand()
    async with asyncio.TaskGroup() as group:
        end = group.create_task(client.post(b"{}"))
        sink = await wire.sinks.get()
        sink.began(HEAD, None)
        sink.more(b"ab")
        sink.more(b"c")
        sink.ended()

    assert end.result() == Whole(200, b"abc")


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, lambda text: text])
async def test_an_answer_compressed_unasked_is_read(pack: Callable[[bytes], bytes]) -> None:
    """And one that only says it is compressed is taken as it is."""
    wire, client = stand()
    async with asyncio.TaskGroup() as group:
        read = group.create_task(client.read("m", []))
        head = Head(200, b"OK", b"Content-Encoding: gzip\r\n")
        (await wire.sinks.get()).answered(head, pack(b'{"id":1,"result":"0x1"}'))

    assert read.result() == "0x1"


async def test_an_answer_too_large_to_keep_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded: the exchange is abandoned, and what comes late is ignored."""
    monkeypatch.setattr(room, "MAX_COLLECTED", 4)
    wire, client = stand()
    async with asyncio.TaskGroup() as group:
        end = group.create_task(client.post(b"{}"))
        sink = await wire.sinks.get()
        sink.began(HEAD, None)
        sink.more(b"abcde")
        sink.more(b"f")
        sink.ended()

    assert end.result() == Failure(Lack.UNUSABLE, "the answer is larger than 4 bytes")
    assert wire.abandoned == 1


@pytest.mark.parametrize(("submission", "abandoned"), [(False, 1), (True, 0)])
async def test_a_cancelled_read_is_abandoned_and_a_submission_is_not(submission: bool, abandoned: int) -> None:
    """What may reach the node is not called back."""
    wire, client = stand()
    async with asyncio.TaskGroup() as group:
        post = group.create_task(client.post(b"{}", submission=submission))
        await wire.sinks.get()
        post.cancel()

    assert wire.abandoned == abandoned


async def test_no_wait_is_longer_than_the_configured_one() -> None:
    """A caller may ask for less."""
    wire, client = stand()
    async with asyncio.TaskGroup() as group:
        for bound in (None, 2.0, 99.0):
            group.create_task(client.post(b"{}", bound))
        for _ in range(3):
            (await wire.sinks.get()).answered(HEAD, b"")

    assert wire.bounds == [30.0, 2.0, 30.0]


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"id":1,"result":{"a":[1]}}', {"a": [1]}),
        (b'{"id":1,"result":null}', None),
        (b'{"id":1,"error":{"code":-1,"message":"no"}}', Unread),
        (b"", Unread),
    ],
)
async def test_a_read_brings_a_value_or_a_word_why_not(body: bytes, value: object) -> None:
    """Never an exception: a node may say anything."""
    wire, client = stand()
    async with asyncio.TaskGroup() as group:
        read = group.create_task(client.read("m", []))
        (await wire.sinks.get()).answered(HEAD, body)

    assert isinstance(read.result(), Unread) if value is Unread else read.result() == value


BATCHES = {
    "in order": (200, b'[{"id":1,"result":"a"},{"id":2,"result":"b"}]', [b'"a"', b'"b"']),
    "in another order": (200, b'[{"id":2,"result":"b"},{"id":1,"result":"a"}]', [b'"a"', b'"b"']),
    "one is missing": (200, b'[{"id":2,"result":"b"}]', [None, b'"b"']),
    "one is foreign": (200, b'[{"id":7,"result":"a"},{"id":2,"result":"b"}]', [None, b'"b"']),
    "one is double": (200, b'[{"id":1,"result":"a"},{"id":1,"result":"c"},{"id":2,"result":"b"}]', [None, b'"b"']),
    "one is no answer": (200, b'[{"id":1},{"id":2,"result":"b"}]', [None, b'"b"']),
    "an id of another kind": (200, b'[{"id":"1","result":"a"},{"id":2,"result":"b"}]', [None, b'"b"']),
    "one answer, bare": (200, b'{"id":2,"result":"b"}', [None, b'"b"']),
    "one has no id": (200, b'[{"id":null,"error":{"code":-1,"message":"no"}},{"id":2,"result":"b"}]', [None, b'"b"']),
    "one error for all": (429, b'{"id":null,"error":{"code":-1,"message":"no"}}', [None, None]),
    "one error without an id": (400, b'{"error":{"code":-1,"message":"no"}}', [None, None]),
    "a page": (503, b"<html>", [None, None]),
    "nothing": (200, b"", [None, None]),
    "half": (200, b'[{"id":1,"result":"a"},{"id":2,"res', [None, None]),
}


@pytest.mark.parametrize(("status", "body", "results"), BATCHES.values(), ids=BATCHES)
async def test_a_batch_is_answered_call_by_call(status: int, body: bytes, results: list[bytes | None]) -> None:
    """By id; a call without an answer of its own, or with two, has none."""
    wire, client = stand()
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(client.submit_batch("m", [b'["0x1"]', b'["0x2"]'], 5.0))
        (await wire.sinks.get()).answered(Head(status, b"", b""), body)
    answer = asking.result()

    found = [each.reply.result if isinstance(each, Answered) else None for each in answer.attempts]
    assert found == results
    assert all(isinstance(each, Answered | Lost) for each in answer.attempts)
    assert (answer.status, answer.shared is not None) == (status, b'"error"' in body)
    assert wire.sent == [
        b'[{"jsonrpc":"2.0","id":1,"method":"m","params":["0x1"]},{"jsonrpc":"2.0","id":2,"method":"m","params":["0x2"]}]'
    ]


@pytest.mark.parametrize(("lack", "kind"), [(Lack.UNREACHABLE, NotSent), (Lack.TIMED_OUT, Lost), (Lack.CUT_OFF, Lost)])
async def test_a_batch_without_an_answer_says_so_for_each(lack: Lack, kind: type) -> None:
    """Only what was not sent is proven not to be there."""
    wire, client = stand()
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(client.submit_batch("m", [b"[]", b"[]"], 5.0))
        (await wire.sinks.get()).failed(Failure(lack, "why"))
    answer = asking.result()

    assert [type(each) for each in answer.attempts] == [kind, kind]
    assert answer.status is None
