"""`[redis]`: what can be used, what cannot and why, what is only unwise."""

from __future__ import annotations

from typing import Any

import pytest

from relay.config import ConfigFault, check, doubts


def redis(**options: Any) -> Any:
    """Settings with these options of `[redis]`."""
    return check({"redis": {"url": "redis://10.0.0.1", **options}})


@pytest.mark.parametrize(
    "url",
    [
        "redis://h:6379/1", "redis://user:secret@h", "rediss://h?ssl_ca_certs=/ca.pem", "redis://[::1]:6379",
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


def test_no_fault_shows_the_password() -> None:
    """Nor does a repr."""
    with pytest.raises(ConfigFault) as fault:
        redis(url="redis://:secret@a,b")
    assert "secret" not in str(fault.value)
    assert "secret" not in repr(redis(url="redis://:secret@a"))


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
