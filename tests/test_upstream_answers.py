"""What an upstream's answer becomes: one table, each row whole, cut anywhere, and byte by byte."""

from __future__ import annotations

import gzip
import random
from typing import TYPE_CHECKING, Final, NamedTuple

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.upstream import head
from relay.upstream.exchange import Head, Lack
from tests.scripted_node import CLOSE, RESET, Recorder, ScriptedNode, Step, both_loops, pool_to, tapped

if TYPE_CHECKING:
    from relay.upstream.pool import Pool

OK: Final = b"HTTP/1.1 200 OK\r\n"
JSON: Final = b"Content-Type: application/json\r\n"
CHUNKED: Final = OK + b"Transfer-Encoding: chunked\r\n\r\n"
ZIPPED: Final = gzip.compress(b"hello", mtime=0)


class Case(NamedTuple):
    """An answer, how its connection ends (None: the node leaves it open), what the sink hears, whether it is kept."""

    name: str
    answer: bytes
    head: Head | None = Head(200, b"OK", b"")
    body: bytes = b"hello"
    kept: bool = True
    end: Step | None = None
    lack: Lack | None = None


def good(name: str, answer: bytes, lines: bytes = b"", **more: object) -> Case:
    """An answer with status 200."""
    return Case(name, answer, Head(200, b"OK", lines))._replace(**more)  # type: ignore[arg-type] # fields of Case


def bad(name: str, answer: bytes) -> Case:
    """An answer that is none."""
    return Case(name, answer, lack=Lack.UNUSABLE, kept=False)


def cut(name: str, answer: bytes, end: Step = CLOSE) -> Case:
    """An answer that never becomes complete."""
    return Case(name, answer, lack=Lack.CUT_OFF, kept=False, end=end)


CASES: Final = (
    good("length", OK + JSON + b"Content-Length: 5\r\n\r\nhello", JSON),
    good("empty", OK + b"Content-Length: 0\r\n\r\n", body=b""),
    good("padded length", OK + b"content-length:\t5 \r\n\r\nhello"),
    Case("no reason", b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello", Head(200, b"", b"")),
    Case("error status", b"HTTP/1.1 500 Oh No\r\nContent-Length: 5\r\n\r\nhello", Head(500, b"Oh No", b"")),
    good("date and server are the node's", OK + b"Date: now\r\nServer: Geth/1\r\nContent-Length: 5\r\n\r\nhello",
         b"Date: now\r\nServer: Geth/1\r\n"),
    good("compressed", OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(ZIPPED) + ZIPPED,
         b"Content-Encoding: gzip\r\n", body=ZIPPED),
    good("hop by hop", OK + b"Connection: x-private, keep-alive\r\nX-Private: 1\r\nX-Own: 2\r\nKeep-Alive: max=9\r\n"
         b"Trailer: a\r\nProxy-Connection: b\r\nTE: c\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\nhello",
         b"X-Own: 2\r\n"),
    good("upgrade offered", OK + b"Upgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 5\r\n\r\nhello"),
    good("cors is ours", OK + b"Access-Control-Allow-Origin: *\r\naccess-control-max-age: 1\r\n"
         b"Content-Length: 5\r\n\r\nhello"),
    good("vary", OK + b"Vary: Origin\r\nVARY: accept-encoding, origin, x\r\nVary: y\r\nContent-Length: 5\r\n\r\nhello",
         b"VARY: accept-encoding, x\r\nVary: y\r\n"),
    good("bytes past ascii", OK + b"X-Name: \xc3\xa4\xff\r\nContent-Length: 5\r\n\r\nhello",
         b"X-Name: \xc3\xa4\xff\r\n"),
    Case("no content", b"HTTP/1.1 204 No Content\r\n\r\n", Head(204, b"No Content", b""), b""),
    Case("no content, chunked", b"HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n", Head(204, b"No", b""), b""),
    Case("not modified", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: 1\r\n\r\n",
         Head(304, b"Not Modified", b"ETag: 1\r\n"), b""),
    good("interim", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + OK
         + b"Content-Length: 5\r\n\r\nhello"),
    good("chunked", CHUNKED + b"2;a=b\r\nhe\r\n3\r\nllo\r\n0\r\nX-Trailer: 1\r\n\r\n"),
    good("chunked, empty", CHUNKED + b"0\r\n\r\n", body=b""),
    good("chunked in another case", OK + b"Transfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    good("chunked, then more", CHUNKED + b"5\r\nhello\r\n0\r\n\r\nHTTP/1.1 200", kept=False),
    good("chunked, then no HTTP", CHUNKED + b"5\r\nhello\r\n0\r\n\r\ngarbage", kept=False),
    good("length, then more", OK + b"Content-Length: 5\r\n\r\nhello HTTP/1.1", kept=False),
    Case("no content, then more", b"HTTP/1.1 204 No\r\n\r\n0\r\n\r\n", Head(204, b"No", b""), b"", kept=False),
    good("close", OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello", kept=False),
    good("close among others", OK + b"Connection: x, Close\r\nContent-Length: 5\r\n\r\nhello", kept=False),
    Case("old", b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello", kept=False),
    good("kept for no time", OK + b"Keep-Alive: timeout=1\r\nContent-Length: 5\r\n\r\nhello", kept=False),
    good("no length", OK + b"\r\nhello", kept=False, end=CLOSE),
    Case("old, no length", b"HTTP/1.0 200 OK\r\n\r\nhello", kept=False, end=CLOSE),
    good("no length, nothing", OK + b"\r\n", body=b"", kept=False, end=CLOSE),
    bad("length and chunked", OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello"),
    bad("chunked and length", OK + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    bad("two lengths", OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"),
    bad("the same length twice", OK + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"),
    bad("lengths in a list", OK + b"Content-Length: 5, 5\r\n\r\nhello"),
    bad("length with a sign", OK + b"Content-Length: +5\r\n\r\nhello"),
    bad("negative length", OK + b"Content-Length: -5\r\n\r\nhello"),
    bad("hexadecimal length", OK + b"Content-Length: 0x5\r\n\r\nhello"),
    bad("no number", OK + b"Content-Length: \r\n\r\nhello"),
    bad("length past 64 bits", OK + b"Content-Length: 18446744073709551621\r\n\r\nhello"),
    bad("gzip as transfer coding", OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    bad("chunked twice", OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    bad("unknown transfer coding", OK + b"Transfer-Encoding: identity\r\n\r\nhello"),
    bad("old and chunked", b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    bad("switches", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"),
    bad("switches in silence", b"HTTP/1.1 101 Switching Protocols\r\n\r\n"),
    bad("status 0", b"HTTP/1.1 000 OK\r\nContent-Length: 0\r\n\r\n"),
    bad("status of four digits", b"HTTP/1.1 2000 OK\r\n\r\n"),
    bad("another version", b"HTTP/2.0 200 OK\r\nContent-Length: 5\r\n\r\nhello"),
    bad("HTTP/2 frames", b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x80\x00"),
    bad("another protocol", b"SSH-2.0-OpenSSH_9.9\r\n"),
    bad("bare line feeds", b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello"),
    bad("line feed in a value", OK + b"A: b\nC: d\r\n\r\n"),
    bad("folded line", OK + b"A: b\r\n c\r\n\r\n"),
    bad("space before the colon", OK + b"Content-Length : 5\r\n\r\nhello"),
    bad("no colon", OK + b"Content-Length\r\n\r\nhello"),
    bad("NUL", OK + b"A: \x00\r\n\r\n"),
    bad("no hexadecimal chunk size", CHUNKED + b"x\r\n"),
    bad("chunk without end", CHUNKED + b"5\r\nhelloworld\r\n"),
    bad("chunk size past 64 bits", CHUNKED + b"fffffffffffffffff\r\n"),
    cut("nothing", b""),
    cut("nothing, reset", b"", RESET),
    cut("half a head", OK + b"Content-Le"),
    cut("half a head, reset", OK + b"Content-Le", RESET),
    cut("interim only", b"HTTP/1.1 100 Continue\r\n\r\n"),
    cut("half a body", OK + b"Content-Length: 10\r\n\r\nhello"),
    cut("half a body, reset", OK + b"Content-Length: 10\r\n\r\nhello", RESET),
    cut("head only", OK + b"Content-Length: 10\r\n\r\n"),
    cut("chunks without end", CHUNKED + b"5\r\nhello\r\n"),
    cut("trailers without end", CHUNKED + b"5\r\nhello\r\n0\r\nA: b\r\n"),
    cut("no length, reset", OK + b"\r\nhello", RESET),
)  # fmt: skip

CUTS: Final = 80
"""At most this many cuts of one answer, each time others."""


def pieces(answer: bytes) -> list[list[bytes]]:
    """``answer`` whole, in two at every byte (a sample if it is long), and byte by byte."""
    places = range(1, len(answer))
    sample = places if len(places) <= CUTS else random.sample(places, CUTS)
    bytewise = [answer[place : place + 1] for place in range(len(answer))]
    return [[answer] if answer else [], *([answer[:place], answer[place:]] for place in sample), bytewise]


async def judge(case: Case, steps: list[bytes], node: ScriptedNode, pool: Pool) -> None:
    """Play ``steps`` and compare what the sink heard."""
    node.scripts.append([*steps, *([case.end] if case.end else [])])
    played = node.played
    heard = Recorder()
    pool.send(b"{}", heard)
    await heard.end()
    if case.lack is None:
        assert (heard.failure, heard.head, heard.body) == (None, case.head, case.body)
        assert heard.length in (None, len(case.body))
    else:
        assert heard.failure is not None
        assert heard.failure.lack is case.lack, heard.failure
        assert str(node.port) not in heard.failure.detail
        assert case.body.startswith(heard.body) or "malformed" in heard.failure.detail
    await node.until(lambda: node.played > played)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@both_loops
async def test_an_answer_is_the_same_however_it_is_cut(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sink hears the same head and body whatever the reads are, and a connection is used again exactly if clean."""
    reads = tapped(monkeypatch)
    async with ScriptedNode(reads=reads) as node, pool_to(node.url) as pool:
        for steps in pieces(case.answer):
            await judge(case, steps, node, pool)
            before = node.received[-1].connection
            await judge(CASES[0], [CASES[0].answer], node, pool)
            assert (node.received[-1].connection == before) is case.kept, steps


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.lack is None and case.end is None], ids=lambda c: c.name
)
@both_loops
async def test_what_comes_in_one_read_goes_on_in_one_call(case: Case) -> None:
    """A whole answer in the first read is `answered`, chunked or not."""
    async with ScriptedNode([case.answer]) as node, pool_to(node.url) as pool:
        heard = Recorder()
        pool.send(b"{}", heard)
        await heard.end()
        assert heard.said == ["answered"]


@both_loops
async def test_an_answer_streams_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The head goes on before the body is there, with the length the node named; each read is one piece."""
    for start, length in ((OK + b"Content-Length: 10\r\n\r\n", 10), (CHUNKED + b"a\r\n", None), (OK + b"\r\n", None)):
        async with ScriptedNode(reads=tapped(monkeypatch)) as node, pool_to(node.url) as pool:
            node.scripts.append([start, b"hello", b"world", b"\r\n0\r\n\r\n" if b"chunked" in start else CLOSE])
            heard = Recorder()
            pool.send(b"{}", heard)
            await heard.end()
            assert heard.said == ["began", "more", "more", "ended"]
            assert (heard.length, heard.parts) == (length, [b"hello", b"world"])


@pytest.mark.parametrize("finished", [True, False])
@both_loops
async def test_a_head_has_at_most_64_kilobytes(finished: bool) -> None:
    """One larger is refused, and as soon as it is too large: its end is not waited for."""
    fits = OK + b"A: " + b"a" * (head.MAX_HEAD_BYTES - 45) + b"\r\nContent-Length: 5\r\n\r\n"
    assert len(fits) <= head.MAX_HEAD_BYTES
    long = OK + b"A: " + b"a" * head.MAX_HEAD_BYTES + (b"\r\nContent-Length: 5\r\n\r\n" if finished else b"")
    async with ScriptedNode([fits + b"hello"], [long]) as node, pool_to(node.url) as pool:
        fit, unfit = Recorder(), Recorder()
        pool.send(b"{}", fit)
        await fit.end()
        assert fit.body == b"hello"
        pool.send(b"{}", unfit)
        await unfit.end()
        assert unfit.failure is not None
        assert (unfit.failure.lack, "65536" in unfit.failure.detail) == (Lack.UNUSABLE, True)


HEADS: Final = tuple(case.answer[: case.answer.find(head.END) + 4] for case in CASES if head.END in case.answer)


class _Silent:
    complete = False

    def on_headers_complete(self) -> None:
        self.complete = True


def taken_by_llhttp(text: bytes) -> bool:
    """Does httptools take exactly this as a head?"""
    heard = _Silent()
    try:
        httptools.HttpResponseParser(heard).feed_data(text)
    except httptools.HttpParserUpgrade:
        return False
    except httptools.HttpParserError:
        return False
    return heard.complete


@given(st.sampled_from(HEADS), st.integers(0, 300), st.integers(0, 255), st.booleans())
def test_a_mutated_head_is_taken_only_if_llhttp_takes_it(good: bytes, place: int, byte: int, insert: bool) -> None:
    """Nothing that llhttp refuses gets a plan, reading by memory is reading, and no kept line breaks a head."""
    place = min(place, len(good) - 5)
    text = good[:place] + bytes([byte]) + good[place + (not insert) :]
    text = text.partition(head.END)[0]
    plan = head.plans[text]
    assert plan == head.read(text) == head.plans[text]
    if isinstance(plan, str):
        return
    assert taken_by_llhttp(text + head.END)
    assert plan.head.lines == b"" or plan.head.lines.endswith(b"\r\n")
    assert b"\n" not in plan.head.lines.replace(b"\r\n", b"") + plan.head.reason
    assert plan.length is None or plan.length >= 0


@pytest.mark.parametrize(("line", "seconds"), [
    (b"", head.IDLE_S), (b"Keep-Alive: timeout=5\r\n", 4), (b"Keep-Alive: max=100, timeout=\"9\"\r\n", 8),
    (b"Keep-Alive: timeout=0\r\n", 0), (b"Keep-Alive: timeout=600\r\n", head.IDLE_S),
    (b"Keep-Alive: max=1\r\n", head.IDLE_S), (b"Connection: close\r\n", 0),
])  # fmt: skip
def test_a_connection_is_kept_as_long_as_the_node_says_less_a_second(line: bytes, seconds: float) -> None:
    """And never longer than our own limit."""
    plan = head.read(OK + line + b"Content-Length: 5")
    assert isinstance(plan, head.Plan)
    assert plan.keep_s == seconds
