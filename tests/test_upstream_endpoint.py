"""How a request begins, and how a connection to the node is made, or why not."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from structlog.testing import capture_logs

from relay.config import ConfigFault, Upstream
from relay.upstream.connection import JOINED_BYTES
from relay.upstream.endpoint import Endpoint
from relay.upstream.exchange import Failure, Lack
from tests.scripted_node import CLOSE, HANG, PLAIN, RESET, Recorder, ScriptedNode, both_loops, pool_to

if TYPE_CHECKING:
    from pathlib import Path

    from relay.upstream.pool import Pool


async def ask(pool: Pool, body: bytes = b"{}", lines: bytes = b"") -> Recorder:
    """One exchange."""
    heard = Recorder()
    pool.send(body, heard, lines=lines)
    return await heard.end()


async def failure(pool: Pool) -> Failure:
    """One exchange that fails."""
    heard = await ask(pool)
    assert heard.failure is not None
    return heard.failure


@both_loops
async def test_a_request_as_the_node_sees_it() -> None:
    """The URL's path and host, our headers, the client's, the body's length, the body."""
    async with ScriptedNode() as node, pool_to(f"{node.url}/v3/key?a=b%20c") as pool:
        await ask(pool, b'{"a":1}', b"User-Agent: cast\r\nAccept-Encoding: gzip\r\n")
        (seen,) = node.received
        assert seen.head.endswith(b"\r\n\r\n")
        assert seen.lines == [
            b"POST /v3/key?a=b%20c HTTP/1.1", b"Host: 127.0.0.1:%d" % node.port, b"Content-Type: application/json",
            b"User-Agent: cast", b"Accept-Encoding: gzip", b"Content-Length: 7",
        ]  # fmt: skip
        assert seen.body == b'{"a":1}'


@both_loops
async def test_configured_headers_win_over_a_clients() -> None:
    """A client's line does not stand beside a configured one of the same name, nor beside one of ours."""
    headers = {"X-Api-Key": "ours", "Authorization": "Bearer ours"}
    lines = b"x-api-key: theirs\r\nAuthorization: theirs\r\nX-Other: theirs\r\nhost: evil\r\nContent-Length: 9\r\n"
    async with ScriptedNode() as node, pool_to(node.url.replace("//", "//user@"), headers=headers) as pool:
        await ask(pool, lines=lines + b"content-type: text/plain\r\nTransfer-Encoding: chunked\r\n")
        assert node.received[0].lines == [
            b"POST / HTTP/1.1", b"Host: 127.0.0.1:%d" % node.port, b"X-Api-Key: ours", b"Authorization: Bearer ours",
            b"Content-Type: application/json", b"X-Other: theirs", b"Content-Length: 2",
        ]  # fmt: skip


@both_loops
async def test_a_user_in_the_url_becomes_basic_authorization() -> None:
    """Decoded from the URL, and never shown where the pool names the node."""
    async with ScriptedNode() as node, pool_to(node.url.replace("//", "//us%40r:p%C3%A4ss@")) as pool:
        await ask(pool, lines=b"authorization: theirs\r\n")
        assert b"Authorization: Basic dXNAcjpww6Rzcw==" in node.received[0].lines
        assert not [line for line in node.received[0].lines if b"theirs" in line]
        assert pool.endpoint.name == f"127.0.0.1:{node.port}"


@pytest.mark.parametrize(("url", "host", "name"), [
    ("http://node", b"node", "node:80"),
    ("https://NODE:443/x", b"node", "node:443"),
    ("http://node:443", b"node:443", "node:443"),
    ("http://[::1]:8545", b"[::1]:8545", "[::1]:8545"),
    ("http://b\u00fccher.example", b"xn--bcher-kva.example", "xn--bcher-kva.example:80"),
])  # fmt: skip
def test_the_host_is_named_as_http_wants_it(url: str, host: bytes, name: str) -> None:
    """Without the scheme's own port, IPv6 in brackets, other scripts as IDNA."""
    endpoint = Endpoint(Upstream(url=url))
    assert endpoint.name == name
    assert b"\r\nHost: %b\r\n" % host in endpoint.heads[b""]


@pytest.mark.parametrize("size", [0, 1, JOINED_BYTES, JOINED_BYTES + 1, 5_000_000])
@both_loops
async def test_a_body_of_any_size_arrives_whole(size: int) -> None:
    """In one piece or two, and the connection is used again."""
    body = bytes(range(251)) * (size // 251) + b"x" * (size % 251)
    async with ScriptedNode() as node, pool_to(node.url) as pool:
        for _ in range(2):
            assert (await ask(pool, body)).body == b"plain"
        assert [seen.body == body for seen in node.received] == [True, True]
        assert node.connections == 1


@both_loops
async def test_refused_is_unreachable_and_says_what_to_do() -> None:
    """Not a byte was sent; the text names the setting, and the log, once, the address: clients are not told it."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with capture_logs() as logged:
            async with pool_to(f"http://user:secret@127.0.0.1:{port}/secret") as pool:
                missing, _ = await failure(pool), await failure(pool)
                assert pool.reachable is False
    assert missing == Failure(Lack.UNREACHABLE, "connection refused; check that the node runs, and [upstream] url")
    (line,) = logged
    assert (line["address"], line["reason"]) == (f"127.0.0.1:{port}", missing.detail)


@both_loops
async def test_every_address_of_a_name_is_tried() -> None:
    """A name with an IPv6 address nobody listens on: the node is reached on the other."""
    async with ScriptedNode() as node:
        loop = asyncio.get_running_loop()
        resolve = loop.getaddrinfo

        async def both(host: Any, *rest: Any, **options: Any) -> Any:
            if host != "node.example":
                return await resolve(host, *rest, **options)
            sixth = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", node.port, 0, 0))
            return [sixth, (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", node.port))]

        loop.getaddrinfo = both  # type: ignore[method-assign] # two addresses
        async with pool_to(f"http://node.example:{node.port}") as pool:
            assert (await ask(pool)).body == b"plain"


@pytest.mark.parametrize(("error", "words"), [
    (TimeoutError(), "no connection within 3 s ([upstream] connect_timeout_s)"),
    (socket.gaierror(-2, "Name or service not known"), "its name cannot be resolved (Name or service not known)"),
    (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), "TLS failed"),
    (ConnectionRefusedError(111, "Connection refused"), "connection refused"),
    (OSError(113, "No route to host"), "no connection (No route to host)"),
    (OSError("Multiple exceptions: a, b"), "no connection (Multiple exceptions: a, b)"),
    (RuntimeError("File descriptor 9 is used"), "no connection (File descriptor 9 is used)"),
])  # fmt: skip
def test_what_hinders_a_connection_is_said_in_an_operators_words(error: Exception, words: str) -> None:
    """Each with the setting to look at."""
    said = Endpoint(Upstream(url="http://node"))._words(error)
    assert said.startswith(words)
    assert "[upstream]" in said


@pytest.mark.parametrize(("settings", "words"), [
    (Upstream(), "upstream.url: is not set"),
    (Upstream(url="http://" + "x" * 64), "upstream.url: 'xxx"),
    (Upstream(url="https://node", ca_file="/does/not/exist"), "upstream.ca_file: /does/not/exist cannot be used"),
])  # fmt: skip
def test_settings_that_cannot_be_used_are_refused_at_start(settings: Upstream, words: str) -> None:
    """With their path."""
    with pytest.raises(ConfigFault, match=re.escape(words)):
        Endpoint(settings)


class Authority:
    """A CA of our own, a node's certificate of it, and its file."""

    def __init__(self, folder: Path, host: str) -> None:
        authority = trustme.CA()
        self.file = str(folder / "ca.pem")
        authority.cert_pem.write_to_path(self.file)
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(host).configure_cert(self.tls)


@both_loops
async def test_https_to_a_node_of_an_own_ca(tmp_path: Path) -> None:
    """It is verified against ``ca_file``; the connection is used again, and large bodies pass both ways."""
    authority = Authority(tmp_path, "127.0.0.1")
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"a" * 1_000_000
    async with (
        ScriptedNode([PLAIN], [answer], tls=authority.tls) as node,
        pool_to(node.url, ca_file=authority.file) as pool,
    ):
        assert (await ask(pool)).body == b"plain"
        heard = await ask(pool, b"b" * 1_000_000)
        assert (len(heard.body), node.received[1].body.count(b"b")) == (1_000_000, 1_000_000)
        assert node.connections == 1


@pytest.mark.parametrize(("host", "trusted", "words"), [
    ("node.example", True, "its certificate is refused (IP address mismatch"),
    ("127.0.0.1", False, "its certificate is refused ("),
])  # fmt: skip
@both_loops
async def test_a_certificate_that_does_not_fit_is_refused(host: str, trusted: bool, words: str, tmp_path: Path) -> None:
    """A certificate for another host, or of a CA nobody knows: not a byte is sent."""
    authority = Authority(tmp_path, host)
    async with (
        ScriptedNode(tls=authority.tls) as node,
        pool_to(node.url, ca_file=authority.file if trusted else "") as pool,
    ):
        refused = await failure(pool)
        assert refused.lack is Lack.UNREACHABLE
        assert words in refused.detail
        assert "[upstream] ca_file" in refused.detail
        assert node.received == []


@both_loops
async def test_https_to_a_port_that_speaks_no_tls() -> None:
    """It never greets back: given up in time, and said so."""
    async with ScriptedNode() as node, pool_to(node.url.replace("http", "https"), connect_timeout_s=0.2) as pool:
        refused = await failure(pool)
        assert refused.lack is Lack.UNREACHABLE
        assert "no connection within 0.2 s" in refused.detail


@both_loops
async def test_a_handshake_that_never_ends_is_given_up() -> None:
    """After ``connect_timeout_s``, which the text names; TLS counts."""
    async with ScriptedNode([HANG]) as node, pool_to(node.url.replace("http", "https"), connect_timeout_s=0.05) as pool:
        refused = await failure(pool)
        assert refused.lack is Lack.UNREACHABLE
        assert "no connection within 0.05 s ([upstream] connect_timeout_s)" in refused.detail
        await node.has_open(0)


@both_loops
async def test_tls_that_ends_in_an_answer_is_a_cut(tmp_path: Path) -> None:
    """As without TLS."""
    authority = Authority(tmp_path, "127.0.0.1")
    async with ScriptedNode(tls=authority.tls) as node, pool_to(node.url, ca_file=authority.file) as pool:
        for end in (CLOSE, RESET):
            node.scripts.append([PLAIN[:-2], end])
            assert (await failure(pool)).lack is Lack.CUT_OFF
        assert (await ask(pool)).body == b"plain"
