"""Heads, bodies and cuts without a socket: what must hold for any bytes whatever."""

from __future__ import annotations

import gzip
import itertools
from collections import Counter

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.config import Server
from relay.errors import BODY_TOO_LARGE, Refusal
from relay.ingress import limits
from relay.ingress.body import BodyReader
from relay.ingress.head import HEAD_END, HeadMemo, Plan, Refused
from relay.ingress.incoming import Complete, Continue, Incoming
from tests.http_table import LIMIT, ROWS, Row
from tests.ingress_rig import BODY, post

SETTINGS = Server(max_body_bytes=LIMIT)
GOOD = post(
    "User-Agent: ethers/6", "Connection: keep-alive, x-hop", "X-Hop: 1", "Accept-Encoding: gzip", "Content-Type: a/b",
    "Sec-Fetch-Mode: cors", "Expect: 100-continue", "Content-Encoding: gzip", "X-Trace: a;b=\"c\"",
).partition(HEAD_END)[0] + HEAD_END  # fmt: skip
CHUNKED = post("Transfer-Encoding: chunked", "Connection: close", body=b"", length=False)
STREAM = (
    post() + b"\r\n" + post("Transfer-Encoding: chunked", body=b"3\r\nabc\r\n0\r\nX: y\r\n\r\n", length=False)
    + b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" + post("Content-Encoding: gzip", body=gzip.compress(BODY))
    + post("Expect: 100-continue", body=b"12345") + post(body=b"")
)  # fmt: skip


class Oracle:
    """A head as llhttp's own callbacks tell it."""

    def __init__(self, head: bytes) -> None:
        self.first_line = head.partition(b"\r\n")[0]
        self.fields: list[tuple[bytes, bytes]] = []
        self.complete = False
        parser = httptools.HttpRequestParser(self)
        self.well_formed = True
        try:
            parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            pass
        except httptools.HttpParserError:
            self.well_formed = False
        self.well_formed = self.well_formed and self.complete
        self.version = parser.get_http_version()
        self.method = parser.get_method() if self.well_formed else b""
        options = b",".join(self.values(b"connection")).split(b",")
        self.keeps = parser.should_keep_alive() and b"close" not in [option.strip() for option in options]
        self.is_http = head.split(b"\r\n")[0].rpartition(b" ")[2].startswith(b"HTTP/")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name.lower(), value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        self.complete = True

    def values(self, name: bytes) -> list[bytes]:
        """The values of one header, in lower case."""
        return [value.lower() for key, value in self.fields if key == name]

    def length(self) -> int:
        """Content-Length, 0 without one."""
        return int(b"".join(self.values(b"content-length")).lstrip(b"0") or b"0")

    def accepted(self) -> bool:
        """llhttp takes it, and what HTTP wants beyond that holds."""
        if not self.well_formed or not self.is_http or self.version not in ("1.0", "1.1"):
            return False
        old, hosts = self.version == "1.0", len(self.values(b"host"))
        codings = [one.strip() for one in b",".join(self.values(b"content-encoding")).split(b",")]
        transfer = self.values(b"transfer-encoding")
        return all((
            all(self.first_line.split(b" ")),
            hosts == 1 or (old and hosts == 0),
            transfer in ([], [b"chunked"]) and not (transfer and old),
            self.method in (b"POST", b"GET", b"HEAD", b"OPTIONS"),
            all(value == b"100-continue" for value in self.values(b"expect")),
            [one for one in codings if one not in (b"", b"identity")] in ([], [b"gzip"], [b"x-gzip"]),
            self.length() <= LIMIT,
        ))  # fmt: skip


@given(st.sampled_from([GOOD, CHUNKED, post(version="1.0", body=b"")]), st.data())
def test_a_mutated_head_is_judged_as_llhttp_and_the_checks_do(head: bytes, data: st.DataObject) -> None:
    """One changed byte: accepted exactly if llhttp accepts and the checks hold, and then understood in the same way."""
    at = data.draw(st.integers(0, len(head) - len(HEAD_END) - 1))
    byte = data.draw(st.one_of(st.sampled_from(b"\r\n\t :,;\0\x7f\x80HPx0129"), st.integers(0, 255)))
    mutated = head[:at] + bytes([byte]) + head[at + 1 :]
    judged_alike(mutated[: mutated.find(HEAD_END) + len(HEAD_END)].lstrip(b"\r\n"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_heads_of_the_table_are_judged_as_llhttp_and_the_checks_do(row: Row) -> None:
    """The same for heads of every kind. (Their size is our own rule.)"""
    head = row.request.lstrip(b"\r\n").partition(HEAD_END)[0] + HEAD_END
    if head.count(b"\n") < limits.MAX_HEAD_LINES and len(head) < limits.MAX_HEAD_BYTES:
        judged_alike(head)


def judged_alike(head: bytes) -> None:
    """Compare the plan with the oracle, thrice: a plan must not depend on whether the head was seen before, or kept."""
    memo, oracle = HeadMemo(SETTINGS), Oracle(head)
    plan = memo.plan(head)
    assert isinstance(plan, Plan) == oracle.accepted(), head
    assert memo.plan(head) == memo.plan(head) == plan
    if isinstance(plan, Refused):
        assert memo.recall(head.removesuffix(HEAD_END)) is None
        return
    assert plan.length == (None if oracle.values(b"transfer-encoding") else oracle.length())
    assert plan.closes is not oracle.keeps
    assert plan.old is (oracle.version == "1.0")
    sent = Counter(line.partition(b":")[0].lower() for line in plan.lines.split(b"\r\n")[:-1])
    assert sent <= Counter(name for name, _ in oracle.fields)
    assert not {b"host", b"connection", b"content-length", b"transfer-encoding", b"expect", b"content-type"} & set(sent)
    assert not any(name.startswith((b"sec-", b"proxy-")) for name in sent)


def test_what_is_remembered() -> None:
    """Plain POST heads that come again are, and the same plan comes back; credentials, long heads and odd requests are
    not."""
    memo = HeadMemo(SETTINGS)
    heads = post("X: y").partition(b"{")[0]
    memo.plan(heads)
    assert memo.recall(heads.removesuffix(HEAD_END)) is None
    plan = memo.plan(heads)
    assert memo.recall(heads.removesuffix(HEAD_END)) is memo.plan(heads) is plan
    credentials = [post(f"{name}: x") for name in ("Authorization", "cookie", "Proxy-Authorization", "X-API-Key")]
    for request in (*credentials, post("X: " + "a" * 2048), CHUNKED, GOOD, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"):
        head = request.partition(HEAD_END)[0] + HEAD_END
        assert all(isinstance(memo.plan(head), Plan) for _ in range(3))
        assert memo.recall(head.removesuffix(HEAD_END)) is None


def test_the_memory_is_bounded() -> None:
    """Any number of different heads leaves a bounded number of plans."""
    memo = HeadMemo(SETTINGS)
    for number in range(5000):
        head = post(f"X-Trace: {number}", body=b"")
        assert [isinstance(memo.plan(head), Plan) for _ in range(2)] == [True, True]
    assert 0 < len(memo._plans) <= 1024


def taken(pieces: list[bytes]) -> list[tuple[bytes, bytes] | str]:
    """What comes out of a stream in these pieces."""
    incoming = Incoming(HeadMemo(SETTINGS), LIMIT)
    out: list[tuple[bytes, bytes] | str] = []
    for piece in pieces:
        data = piece
        while (event := incoming.take(data)) is not None:
            data = b""
            if isinstance(event, Refused):
                return [*out, event.refusal.message]
            if isinstance(event, Complete):
                out.append((event.head, event.body))
            assert isinstance(event, Complete | Continue)
    assert not incoming.waiting
    return out


@given(st.lists(st.integers(1, len(STREAM) - 1), max_size=12, unique=True).map(sorted))
def test_cuts_make_no_difference(places: list[int]) -> None:
    """Requests of every form one behind the other, cut anywhere: the same heads and bodies come out."""
    bounds = [0, *places, len(STREAM)]
    pieces = [STREAM[start:end] for start, end in itertools.pairwise(bounds)]
    bodies = [event[1] for event in taken(pieces) if not isinstance(event, str)]
    assert bodies == [BODY, b"abc", b"", BODY, b"12345", b""]


def chunks(pieces: list[bytes]) -> bytes:
    """A chunked form of the pieces."""
    return b"".join(b"%X\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@given(
    st.lists(st.one_of(st.binary(min_size=1, max_size=40), st.text("\r\n0;", min_size=1).map(str.encode)), max_size=8),
    st.binary(max_size=20),
    st.data(),
)
def test_chunks_end_where_they_end(pieces: list[bytes], behind: bytes, data: st.DataObject) -> None:
    """Any body in any chunks and cuts is decoded, and not one byte behind it is touched."""
    wire = chunks(pieces) + behind
    cut = data.draw(st.integers(0, len(wire)))
    plan = HeadMemo(SETTINGS).plan(CHUNKED)
    assert isinstance(plan, Plan)
    reader = BodyReader(plan, LIMIT)
    rest = reader.take(wire[:cut])
    if rest is None:
        rest = reader.take(wire[cut:])
    else:
        assert isinstance(rest, bytes)
        rest += wire[cut:]
    assert (rest, reader.body) == (behind, b"".join(pieces))


@given(st.lists(st.binary(max_size=100), min_size=1, max_size=3), st.data())
def test_gzip_is_inflated_in_any_cut(members: list[bytes], data: st.DataObject) -> None:
    """A gzip body, of one member or more, in two pieces is what it was before it was packed."""
    body = b"".join(members)
    packed = b"".join(map(gzip.compress, members))
    cut = data.draw(st.integers(0, len(packed)))
    head = post("Content-Encoding: gzip", f"Content-Length: {len(packed)}", body=b"", length=False)
    plan = HeadMemo(SETTINGS).plan(head)
    assert isinstance(plan, Plan)
    reader = BodyReader(plan, LIMIT)
    rest = reader.take(packed[:cut])
    assert (b"" if cut == len(packed) else None) == rest
    if rest is None:
        assert reader.take(packed[cut:] + b"behind") == b"behind"
    assert reader.body == body


@pytest.mark.parametrize(("members", "taken"), [(1024, True), (1025, False)])
def test_a_gzip_body_has_a_bounded_number_of_members(members: int, taken: bool) -> None:
    """Empty members are small, and each costs work that no limit on bytes would bound."""
    packed = gzip.compress(b"") * members
    head = post("Content-Encoding: gzip", f"Content-Length: {len(packed)}", body=b"", length=False)
    plan = HeadMemo(Server(max_body_bytes=1 << 20)).plan(head)
    assert isinstance(plan, Plan)
    assert (BodyReader(plan, 1 << 20).take(packed) == b"") is taken


def test_a_gzip_bomb_is_not_inflated_beyond_the_limit() -> None:
    """Memory is bounded, not only the answer: what swells is inflated up to the limit and no further."""
    bomb = gzip.compress(bytes(50_000_000))
    plan = HeadMemo(Server(max_body_bytes=1 << 20)).plan(
        post("Content-Encoding: gzip", f"Content-Length: {len(bomb)}", body=b"", length=False)
    )
    assert isinstance(plan, Plan)
    reader = BodyReader(plan, 1 << 20)
    refusal = reader.take(bomb)
    assert isinstance(refusal, Refusal)
    assert refusal.case is BODY_TOO_LARGE
    assert len(reader.body) == (1 << 20) + 1
