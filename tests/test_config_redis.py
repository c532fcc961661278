"""`[redis]`: what can be used, what cannot and why, what is only unwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from relay.config import ConfigFault, check, doubts
from relay.lease.places import Place

if TYPE_CHECKING:
    from pathlib import Path


def redis(**options: Any) -> Any:
    """Settings with these options of `[redis]`."""
    return check({"redis": {"url": "redis://10.0.0.1", **options}})


@pytest.mark.parametrize(
    "url",
    [
        "redis://h:6379/1", "redis://user:secret@h", "rediss://h?ssl_cert_reqs=none", "redis://[::1]:6379",
        "unix:///run/redis.sock", "unix://user:secret@/run/redis.sock?db=2", "redis+sentinel://a,b:26380/main",
        "redis+sentinel://:secret@a/main/3", "redis+cluster://a:7000,b:7001",
    ],
)  # fmt: skip
def test_forms_of_urls(url: str) -> None:
    """Those of the library, and two of our own."""
    assert redis(url=url).redis.url == url


@pytest.mark.parametrize(
    "url",
    [
        "http://h", "h:6379", "redis://", "redis://a,b", "redis+sentinel://a,b", "redis+cluster://a/0", "unix://", "redis://h/x",
    ],
)  # fmt: skip
def test_what_is_no_url_of_a_server(url: str) -> None:
    """The fault names the option and the forms."""
    with pytest.raises(ConfigFault, match=r"^redis\.url: .* is not a URL of the form"):
        redis(url=url)


@pytest.mark.parametrize("key", ["socket_timeout", "timeout", "retry_on_timeout", "max_connections", "protocol"])
def test_a_url_may_not_say_what_options_say(key: str) -> None:
    """The library lets the query win over everything else."""
    with pytest.raises(ConfigFault, match=f"its query holds {key}"):
        redis(url=f"redis://h?{key}=1")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://h:99999", "the port behind a host is not a number from 1 to 65535"),
        ("redis://h:0", "the port behind a host is not"),
        ("redis+sentinel://a,b:65536/main", "the port behind a host is not"),
        ("redis+cluster://a:7000,[::1]:70000", "the port behind a host is not"),
        ("redis://h:99999999/0", "the port behind a host is not"),
        ("redis://h:x", "the port behind a host is not"),
        ("redis://h?db=xyz", "db in its query must be a number, not 'xyz'"),
        ("redis://h?db=", "db in its query must be a number"),
        ("redis://h?db=1&db=2", "holds db twice"),
        ("redis://h?ssl_ca_certs=x", "may hold db, client_name: TLS takes rediss://"),
        ("unix:///s?ssl_ca_certs=x", "may hold db, client_name: TLS takes rediss://"),
        ("redis://h?timeout=1", "may hold db, client_name: the relay sets the rest itself, time-outs by"),
        ("redis+sentinel://a/main?db=1", "may hold client_name: this form has no place for it"),
        ("redis+cluster://a?client_name=x", "may hold none: this form has no place for it"),
        ("rediss://h?ssl_cert_reqs=banana", "ssl_cert_reqs in its query must be none, optional or required, not"),
        ("rediss://h?ssl_check_hostname=maybe", "must be true or false, not 'maybe'"),
        ("rediss://h?ssl_ca_certs=/nope.pem", "ssl_ca_certs in its query must be a file that can be read, not"),
        ("rediss://h?ssl_certfile=/", "must be a file that can be read"),
        ("rediss://h?ssl_ca_path=/nope", "must be a directory"),
        ("rediss://h?client_name=a%20b", "must be a name without spaces"),
    ],
)  # fmt: skip
def test_what_could_not_work_is_a_fault_before_the_start(url: str, words: str) -> None:
    """Not a traceback, and not a server that counts as gone for ever; the credentials are not shown."""
    with pytest.raises(ConfigFault) as fault:
        redis(url=url.replace("://", "://user:S3CRET@", 1))
    assert str(fault.value).startswith("redis.url: ")
    assert words in str(fault.value)
    assert "S3CRET" not in str(fault.value)


def test_a_client_is_made_of_every_url_that_passes(tmp_path: Path) -> None:
    """What the check lets through, the library takes."""
    pem = tmp_path / "ca.pem"
    pem.write_text("")
    tls = f"ssl_ca_certs={pem}&ssl_ca_path={tmp_path}&ssl_certfile={pem}&ssl_keyfile={pem}&ssl_password=x"
    for url in (
        "redis://h:65535/1?client_name=x", f"rediss://h?{tls}&ssl_cert_reqs=none&ssl_check_hostname=False&db=3",
        "unix:///s?db=2", "redis+sentinel://a:1,b/main/2?client_name=x", "redis+cluster://a:1,b",
    ):  # fmt: skip
        place = Place(redis(url=url).redis.url, 0.1)
        assert place.client() is not place.listening(0)


def test_no_fault_shows_the_password() -> None:
    """Nor does a repr."""
    with pytest.raises(ConfigFault) as fault:
        redis(url="redis://:secret@a,b")
    assert "secret" not in str(fault.value)
    for unescaped in ("redis://u:1?secret@h", "redis://u:99999#secret@h", "redis://u:1?a=secret@h"):
        with pytest.raises(ConfigFault, match="is not a URL of the form") as fault:
            redis(url=unescaped)
        assert "secret" not in str(fault.value)
        assert "99999" not in str(fault.value)
    assert "hidden" not in repr(redis(url="redis://:hidden@a"))


def test_a_lease_is_at_least_four_time_outs() -> None:
    """Below that a server that is slow once costs leases in use: order could not be kept."""
    with pytest.raises(ConfigFault, match=r"^redis\.lease_ms: 999 is below 4 × timeout_ms \(250\); raise it"):
        redis(lease_ms=999)
    assert redis(lease_ms=1000).redis.lease_ms == 1000


@pytest.mark.parametrize("prefix", ["", "a{b}", "a b", "ä"])
def test_a_prefix_that_moves_keys_is_refused(prefix: str) -> None:
    """A brace would put the lanes of all senders into one slot of a cluster."""
    with pytest.raises(ConfigFault, match=r"^redis\.prefix: "):
        redis(prefix=prefix)


def test_what_is_unwise_is_told() -> None:
    """Not refused: it works. Nothing is said without Redis."""
    assert list(doubts(redis())) == []
    assert list(doubts(check({"redis": {"lease_ms": 60_000}}))) == []
    assert [doubt.split(":")[0] for doubt in doubts(check({"ordering": {"reorder_window_ms": 60_000}}))] == [
        "ordering.reorder_window_ms"
    ]
    assert [doubt.split(":")[0] for doubt in doubts(redis(lease_ms=60_000))] == ["redis.lease_ms"]
    assert [doubt.split(":")[0] for doubt in doubts(redis(lease_ms=900, timeout_ms=200))] == ["redis.lease_ms"]
    assert [doubt.split(":")[0] for doubt in doubts(redis(timeout_ms=2100))] == ["redis.timeout_ms"]
    by_arrival = {"ordering": {"order": "arrival"}, "upstream": {"submit": "batch"}}
    assert [doubt.split(":")[0] for doubt in doubts(check(by_arrival))] == ["upstream.submit"]
