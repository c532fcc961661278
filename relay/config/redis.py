"""`[redis]`, checked as a whole.

Job: which URLs there are, and which settings go together. An error only where ordering could not work; what merely
looks unwise is a doubt, which is logged at start.
Rules: a URL must not say what an option says: the library lets its query beat everything else.
Must not know: the client library.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit

from relay.config.values import ConfigFault, masked

if TYPE_CHECKING:
    from collections.abc import Iterator
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

_QUERY: Final = re.compile(r"db|client_name|ssl_(ca_certs|ca_path|certfile|keyfile|password|cert_reqs|check_hostname)")
_HOST: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
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
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    form = FORMS.get(parts.scheme)
    if form is None or not _names_a_place(parts):
        raise ConfigFault(f"redis.url: {masked(url)} is not a URL of the form {form or ', '.join(FORMS.values())}")
    for key, _ in parse_qsl(parts.query, keep_blank_values=True):
        if not _QUERY.fullmatch(key):
            raise ConfigFault(
                f"redis.url: its query holds {key}, which would override the relay's own; time-outs are timeout_ms"
            )


def _names_a_place(parts: SplitResult) -> bool:
    hosts = parts.netloc.rpartition("@")[2].split(",")
    if parts.scheme == "unix":
        return parts.path.startswith("/") and len(parts.path) > 1
    if parts.scheme.startswith("redis+"):
        named = all(_HOST.fullmatch(host) for host in hosts)
        service = bool(re.fullmatch(r"/[^/]+(/[0-9]+)?", parts.path))
        return named and (service if parts.scheme == "redis+sentinel" else parts.path in ("", "/"))
    return len(hosts) == 1 and bool(_HOST.fullmatch(hosts[0])) and bool(re.fullmatch(r"(/[0-9]*)?", parts.path))
