"""Values that are more than a type: addresses, URLs, headers, origins, method patterns.

Job: read and judge one value each; a fault starts with the path of the option that holds it.
Must not know: sections, files, environment.
"""

from __future__ import annotations

import fnmatch
import ipaddress
import os
import re
import ssl
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from relay.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Sequence
    from urllib.parse import SplitResult

MAX_PORT: Final = 65535


class ConfigFault(Fault):
    """A setting that cannot be used. The text starts with its path."""


def masked(url: str) -> str:
    """``url`` with whatever may be a secret (user, password, path, query) replaced, for logs and answers."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "***"
    if parts.scheme == "sqlite" and not parts.netloc:
        return url  # a file's name
    rest = parts.path + parts.query + parts.fragment
    # With an unescaped / ? or # in the password, what looks like the host is the user, and the @ comes after it.
    if not host or "@" in rest:
        return "***"
    place = f"[{host}]" if ":" in host else host
    credentials = "***@" if "@" in parts.netloc else ""
    return f"{parts.scheme}://{credentials}{place}{f':{port}' if port else ''}{'/***' if rest.strip('/') else ''}"


def address(text: str, path: str) -> tuple[str, int]:
    """``HOST:PORT`` → (host, port). Raises ConfigFault naming ``path``."""
    host, _, port = text.rpartition(":")
    if not _is_host(host) or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > MAX_PORT:
        raise ConfigFault(f"{path}: {text!r} is not HOST:PORT, such as 127.0.0.1:8645, 0.0.0.0:8645 or [::1]:8645")
    return host.removeprefix("[").removesuffix("]"), int(port)


def denied(method: str, patterns: Sequence[str]) -> bool:
    """Does one of ``deny_methods`` (shell patterns, case-sensitive) match ``method``?"""
    return any(fnmatch.fnmatchcase(method, pattern) for pattern in patterns)


def check_url(path: str, url: str, *schemes: str) -> None:
    """Is ``url`` one that can be connected to? Raises ConfigFault without showing its secrets."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in schemes and bool(parts.hostname)
        bad_port = usable and has_bad_port(parts)
    except ValueError:
        usable = bad_port = False
    if bad_port:
        raise ConfigFault(f"{path}: the port behind its host is not a number from 1 to {MAX_PORT}")
    if not usable or not _is_plain(url) or set(url) & _NEVER_IN_A_URL:
        forms = " or ".join(f"{scheme}://HOST:PORT" for scheme in schemes)
        if "://" not in url:
            raise ConfigFault(f"{path}: has no scheme; write {forms}")
        raise ConfigFault(
            f"{path}: {masked(url)} is not a URL of the form {forms}, in ASCII, without spaces, quotes and #"
        )


def split_hosts(url: str) -> SplitResult:
    """The parts of a URL that may name several hosts, some in brackets; the library's own way takes no such mixture."""
    scheme, _, rest = url.partition("://")
    hosts = re.split("[/?#]", rest, maxsplit=1)[0]
    return urlsplit(f"{scheme}://hosts{rest[len(hosts) :]}")._replace(netloc=hosts)


def has_bad_port(parts: SplitResult) -> bool:
    """Is a port of its hosts, of which there may be several, none? With an @ behind the hosts, it is a password's."""
    if "@" in parts.path + parts.query + parts.fragment:
        return False
    ports = [_PORT.fullmatch(host) for host in parts.netloc.rpartition("@")[2].split(",")]
    return any(port and port[1] and not (port[1].isdecimal() and 0 < int(port[1]) <= MAX_PORT) for port in ports)


def check_header(path: str, name: str, value: str) -> None:
    """May ``name: value`` be put on a request (RFC 9110, 5.5 and 5.6)? A fault does not show the value."""
    if not _TOKEN.fullmatch(name):
        raise ConfigFault(f"{path}: {name!r} is not a header name")
    if not _is_plain(value):
        raise ConfigFault(f"{path}.{name}: the value holds a control character or is not ASCII")
    if name.lower() in _OURS:
        raise ConfigFault(f"{path}.{name}: is set by the relay itself")


def check_origin(path: str, origin: str) -> None:
    """Can a browser send ``origin``? It compares whole texts, so that a trailing slash would never match."""
    if origin not in {"*", "null"} and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/?#\s]+", origin):
        raise ConfigFault(f'{path}: "{origin}" is not an origin, such as "https://app.example" or "*"')


def check_file(path: str, name: str) -> None:
    """Can the file ``name`` be read? Raises ConfigFault."""
    if not os.access(name, os.R_OK):
        raise ConfigFault(f"{path}: {name} does not exist or cannot be read")


def trusting(ca_file: str) -> ssl.SSLContext:
    """Verifies a node's certificate and name, against the CAs in ``ca_file``; the system's own if it is empty.

    Raises ConfigFault.
    """
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigFault(
            f"upstream.ca_file: {ca_file} cannot be used as a file of CA certificates: {reason}"
        ) from None


# A fragment is never sent: whoever writes # means something else. RFC 3986 has no place for the others but that of ',
# which logs could not tell from the quote around a URL.
_NEVER_IN_A_URL: Final = frozenset(" \"'<>#")
_PORT: Final = re.compile(r"(?:\[[^\]]*\]|[^\[\]:]*):([^:]{0,50})")
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OURS: Final = frozenset({"host", "content-length", "transfer-encoding", "connection", "content-type"})


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _is_host(host: str) -> bool:
    if not host.startswith("["):
        return bool(re.fullmatch(r"[A-Za-z0-9._-]+", host))
    try:
        return host.endswith("]") and bool(ipaddress.IPv6Address(host[1:-1]))
    except ValueError:
        return False
