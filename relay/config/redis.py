"""`[redis]`, checked as a whole.

Job: which URLs there are, and which settings go together. An error only where ordering could not work; what merely
looks unwise is a doubt, which is logged at start.
Rules: a URL must not say what an option says: the library lets its query beat everything else. What a URL says is read
here, for the library finds out at start with a traceback, or only when it connects, again and again.
Must not know: the client library.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from relay.config.values import MAX_PORT, ConfigFault, has_bad_port, masked, split_hosts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from urllib.parse import SplitResult

    from relay.config.options import Redis, Settings

FORMS: Final = {
    "redis": "redis://HOST:PORT/DB",
    "rediss": "rediss://HOST:PORT/DB",
    "unix": "unix:///PATH",
    "redis+sentinel": "redis+sentinel://HOST,HOST/SERVICE",
    "redis+cluster": "redis+cluster://HOST,HOST",
}
LEASES_A_TIMEOUT: Final = 4
"""A command may take two time-outs to fail, and a lease is renewed at a third of its length: below this, a server that
is slow once would cost leases that are in use."""

UNWISE_TIMEOUT_MS: Final = 2000
UNWISE_LEASE_MS: Final = 1000


def _readable(name: str) -> bool:
    return "\0" not in name and Path(name).is_file() and os.access(name, os.R_OK)


_FILE: Final = "a file that can be read"
_QUERY: Final[Mapping[str, tuple[Callable[[str], object], str]]] = {
    "db": (re.compile(r"[0-9]{1,9}").fullmatch, "a number"),
    "client_name": (re.compile(r"[!-~]+").fullmatch, "a name without spaces"),
    "ssl_ca_certs": (_readable, _FILE),
    "ssl_ca_path": (lambda name: "\0" not in name and Path(name).is_dir(), "a directory"),
    "ssl_certfile": (_readable, _FILE),
    "ssl_keyfile": (_readable, _FILE),
    "ssl_password": (bool, "a password"),
    "ssl_cert_reqs": (re.compile(r"none|optional|required").fullmatch, "none, optional or required"),
    "ssl_check_hostname": (re.compile(r"true|false", re.IGNORECASE).fullmatch, "true or false"),
}
"""Key of a query → what its value must be."""

_KEYS: Final[Mapping[str, Sequence[str]]] = {
    "redis": ("db", "client_name"),
    "rediss": tuple(_QUERY),
    "unix": ("db", "client_name"),
    "redis+sentinel": ("client_name",),
    "redis+cluster": (),
}

_HOST: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_PREFIX: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}")


def check_redis(redis: Redis) -> None:
    """Can order be kept with these? Raises ConfigFault."""
    if not _PREFIX.fullmatch(redis.prefix):
        raise ConfigFault(
            f"redis.prefix: {redis.prefix!r} cannot be used; write letters, digits and . _ : - only (a brace would "
            "move the keys to another slot of a cluster)"
        )
    if redis.lease_ms < LEASES_A_TIMEOUT * redis.timeout_ms:
        raise ConfigFault(
            f"redis.lease_ms: {redis.lease_ms} is below {LEASES_A_TIMEOUT} × timeout_ms ({redis.timeout_ms}); raise it "
            f"to at least {LEASES_A_TIMEOUT * redis.timeout_ms}, or lower timeout_ms"
        )
    if redis.url:
        _check_url(redis.url)


def doubts(settings: Settings) -> Iterator[str]:
    """What works, and may not be what was meant."""
    redis, ordering = settings.redis, settings.ordering
    if ordering.reorder_window_ms >= ordering.max_wait_s * 800:
        yield (
            f"ordering.reorder_window_ms: {ordering.reorder_window_ms} is not below four fifths of "
            "ordering.max_wait_s: what waits above a gap is refused before the gap is passed"
        )
    if settings.upstream.submit == "batch" and ordering.order == "arrival":
        yield 'upstream.submit: "batch" needs ordering.order = "nonce"; by arrival submissions go one by one'
    if not redis.url:
        return
    if redis.lease_ms >= settings.ordering.max_wait_s * 1000:
        yield (
            f"redis.lease_ms: {redis.lease_ms} is not below ordering.max_wait_s: what waits behind a dead instance is "
            "refused before its lease ends"
        )
    if redis.lease_ms < UNWISE_LEASE_MS:
        yield f"redis.lease_ms: {redis.lease_ms} is short: a pause of this length costs an instance its leases"
    if redis.timeout_ms > UNWISE_TIMEOUT_MS:
        yield f"redis.timeout_ms: {redis.timeout_ms} is long: submissions that meet a hanging server wait twice as long"


def _check_url(url: str) -> None:
    parts = split_hosts(url)
    form = FORMS.get(parts.scheme)
    if form is not None and has_bad_port(parts):
        raise ConfigFault(f"redis.url: the port behind a host is not a number from 1 to {MAX_PORT}")
    if form is None or not _names_a_place(parts):
        raise ConfigFault(f"redis.url: {masked(url)} is not a URL of the form {form or ', '.join(FORMS.values())}")
    seen: set[str] = set()
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        _check_query(parts.scheme, key, value)
        if key in seen:
            raise ConfigFault(f"redis.url: its query holds {key} twice")
        seen.add(key)


def _check_query(scheme: str, key: str, value: str) -> None:
    if key not in _KEYS[scheme]:
        allowed = ", ".join(_KEYS[scheme]) or "none"
        if key in _QUERY:
            why = "TLS takes rediss://" if key.startswith("ssl_") else "this form has no place for it"
        else:
            why = "the relay sets the rest itself, time-outs by redis.timeout_ms"
        raise ConfigFault(f"redis.url: its query holds {key:.40}; a {scheme}:// URL may hold {allowed}: {why}")
    fits, form = _QUERY[key]
    if not fits(value):
        raise ConfigFault(f"redis.url: {key} in its query must be {form}, not {value!r:.200}")


def _hosts(parts: SplitResult) -> list[str]:
    return parts.netloc.rpartition("@")[2].split(",")


def _names_a_place(parts: SplitResult) -> bool:
    hosts = _hosts(parts)
    if "@" in parts.query or parts.fragment:  # an unescaped ? or # in the password
        return False
    if parts.scheme == "unix":
        return parts.path.startswith("/") and len(parts.path) > 1
    if parts.scheme.startswith("redis+"):
        named = all(_HOST.fullmatch(host) for host in hosts)
        service = bool(re.fullmatch(r"/[^/]+(/[0-9]+)?", parts.path))
        return named and (service if parts.scheme == "redis+sentinel" else parts.path in ("", "/"))
    return len(hosts) == 1 and bool(_HOST.fullmatch(hosts[0])) and bool(re.fullmatch(r"(/[0-9]*)?", parts.path))
