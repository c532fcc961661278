"""Where the node is: its address, how a request to it begins, how a connection to it is made.

Job: `[upstream]` → the first lines of each request, and connections, or why there is none in an operator's words.
Rules: whatever can fail while connecting is translated here, once. A name is resolved anew for each connection; IPv6
and IPv4 race (RFC 8305). No text names the address, a user, a password or a path, for clients read them.
Must not know: requests, answers, how many connections there are.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import os
import socket
import ssl
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, unquote, urlsplit

import aiohappyeyeballs

from relay.config import ConfigFault, trusting
from relay.upstream.exchange import Failure, Lack
from relay.upstream.memo import Memo

if TYPE_CHECKING:
    from collections.abc import Callable
    from urllib.parse import SplitResult

    from relay.config import Upstream

P = TypeVar("P", bound=asyncio.BaseProtocol)

HAPPY_EYEBALLS_DELAY_S: Final = 0.25
TLS_SHUTDOWN_S: Final = 1.0
"""How long a node may take to say goodbye on a connection that is closed anyway."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_OURS: Final = (b"host", b"content-type", b"content-length", b"transfer-encoding", b"connection")
_URL_SAFE: Final = "/%:=&?~+!$,;'@()*[]"


_CAUSES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (TimeoutError, "no connection within {wait_s:g} s ([upstream] connect_timeout_s)"),
    (socket.gaierror, "its name cannot be resolved ({reason}); check [upstream] url"),
    (
        ssl.SSLCertVerificationError,
        "its certificate is refused ({error.verify_message}); an own CA: [upstream] ca_file",
    ),
    (ssl.SSLError, "TLS failed ({reason}); check that [upstream] url names an https port"),
    (ConnectionRefusedError, "connection refused; check that the node runs, and [upstream] url"),
    (Exception, "no connection ({reason}); check [upstream] url"),
)
"""Why there is no connection, and what to look at. The first row that fits holds, for most are kinds of OSError."""


NO_FILES: Final = "the process has no file left for a connection; raise its limit (ulimit -n, LimitNOFILE)"


class Endpoint:
    """One node's URL, ready for use. ``name`` is its ``host:port``, for operators only."""

    def __init__(self, settings: Upstream) -> None:
        url = urlsplit(settings.url)
        if not url.hostname:
            raise ConfigFault("upstream.url: is not set; write the node's address, such as http://127.0.0.1:8545")
        self._host = _ascii_host(url.hostname)
        self._port = url.port or _DEFAULT_PORTS[url.scheme]
        place = f"[{self._host}]" if ":" in self._host else self._host
        self.name = f"{place}:{self._port}"
        self._connect_timeout_s = settings.connect_timeout_s
        self._secured: dict[str, Any] = {}
        if url.scheme == "https":
            self._secured = {
                "ssl": _http_only(trusting(settings.ca_file)),
                "server_hostname": self._host,
                "ssl_shutdown_timeout": TLS_SHUTDOWN_S,
            }
        configured = _configured(url, settings.headers)
        self._dropped = frozenset(_OURS) | {name.lower() for name in configured}
        self._start = b"POST %b HTTP/1.1\r\nHost: %b\r\n%bContent-Type: application/json\r\n" % (
            _target(url),
            (place if self._port == _DEFAULT_PORTS[url.scheme] else self.name).encode(),
            b"".join(b"%b: %b\r\n" % item for item in configured.items()),
        )
        self.heads = Memo(self._head)
        """By the client's lines in it: a request's head up to and including ``Content-Length:``."""

    def _head(self, lines: bytes) -> bytes:
        """A client's line does not stand beside a configured one of the same name."""
        dropped = self._dropped
        kept = [line for line in lines.split(b"\r\n") if line.partition(b":")[0].lower() not in dropped]
        return b"%b%bContent-Length: " % (self._start, b"\r\n".join(kept))

    async def connect(self, factory: Callable[[], P]) -> P | Failure:
        """A new connection with a protocol of ``factory``, or why there is none: nothing was sent."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                addresses = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
                wire = await aiohappyeyeballs.start_connection(
                    addresses, happy_eyeballs_delay=HAPPY_EYEBALLS_DELAY_S, loop=loop
                )
                _, protocol = await loop.create_connection(factory, sock=wire, **self._secured)
        except (OSError, RuntimeError) as error:  # uvloop raises RuntimeError for some refused sockets
            return Failure(Lack.UNREACHABLE, self._words(error))
        return protocol

    def _words(self, error: Exception) -> str:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            return NO_FILES
        template = next(template for kind, template in _CAUSES if isinstance(error, kind))
        return template.format(error=error, wait_s=self._connect_timeout_s, reason=reason_of(error))


def reason_of(error: Exception) -> str:
    """In the system's words; not in asyncio's, which name the address."""
    if isinstance(error, OSError) and not isinstance(error, (socket.gaierror, ssl.SSLError)) and error.errno:
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error)


def _ascii_host(host: str) -> str:
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        raise ConfigFault(f"upstream.url: {host!r} is no name of a host") from None


def _target(url: SplitResult) -> bytes:
    path = quote(url.path or "/", safe=_URL_SAFE)
    return (f"{path}?{quote(url.query, safe=_URL_SAFE)}" if url.query else path).encode("ascii")


def _configured(url: SplitResult, headers: dict[str, str]) -> dict[bytes, bytes]:
    """The operator's headers; a user in the URL is one of them, unless Authorization is given as such."""
    lines = {name.encode("ascii"): value.encode() for name, value in headers.items()}
    if url.username is not None and not any(name.lower() == b"authorization" for name in lines):
        user = f"{unquote(url.username)}:{unquote(url.password or '')}"
        lines[b"Authorization"] = b"Basic " + base64.b64encode(user.encode())
    return lines


def _http_only(tls: ssl.SSLContext) -> ssl.SSLContext:
    tls.set_alpn_protocols(["http/1.1"])
    return tls
