"""Addresses, URLs, headers and origins: which are taken, and that no secret is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.config import ConfigFault, address, changed, check, denied, masked


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8645", ("127.0.0.1", 8645)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:65535", ("::1", 65535)),
        ("[fe80::1%eth0]:1", ("fe80::1%eth0", 1)),
        ("a-b.example_c:80", ("a-b.example_c", 80)),
    ],
)
def test_addresses_are_read(text: str, expected: tuple[str, int]) -> None:
    """Names, IPv4, and IPv6 in brackets."""
    assert address(text, "x") == expected


@pytest.mark.parametrize(
    "text",
    ["", "8645", ":8645", "h:", "h:-1", "h:65536", "h:٣", "h: 1", "h:1 ", "::1:80", "[::1]", "[::1:80", "[x]:80",
     "http://h:80", "u@h:80", "h/p:80", "h\n:80", "[]:80", "h:000001"],
)  # fmt: skip
def test_what_is_no_address_is_refused_with_its_path(text: str) -> None:
    """The fault names the option and shows what an address looks like."""
    with pytest.raises(ConfigFault, match=r"^ops\.listen: .* is not HOST:PORT, such as 127\.0\.0\.1:8645"):
        address(text, "ops.listen")


@pytest.mark.parametrize(
    "url", ["http://h", "https://h:1/p?q=1", "http://[::1]:8545", "HTTP://H", "https://u:p@h/v2/key"]
)
def test_urls_that_can_be_connected_to_are_taken(url: str) -> None:
    """With and without port, path, query and credentials."""
    assert check({"upstream": {"url": url}}).upstream.url == url


@pytest.mark.parametrize(
    "url",
    ["ws://h", "http://", "http://:80", "ftp://h",
     "http://h/a b", "http://h/\t", "http://hö/", "http://[::1", "http://h/'", 'http://h/"', "http://h/#a", "http://h#"],
)  # fmt: skip
def test_urls_that_cannot_be_connected_to_are_refused(url: str) -> None:
    """Wrong scheme, no host, spaces, quotes, a fragment, non-ASCII."""
    with pytest.raises(ConfigFault, match=r"^upstream\.url: .* is not a URL of the form http://HOST:PORT or https://"):
        check({"upstream": {"url": url}})


@pytest.mark.parametrize(
    "url", ["http://h:0", "http://h:99999", "https://u:p@[::1]:65536/", "http://h:x", "http://h:-1"]
)
def test_a_port_that_is_none_is_said_to_be_none(url: str) -> None:
    """The form of the URL is right, so that its form is not what to talk of."""
    with pytest.raises(ConfigFault, match=r"^upstream\.url: the port behind its host is not a number from 1 to 65535$"):
        check({"upstream": {"url": url}})


@pytest.mark.parametrize("url", ["h:8545", "localhost", "127.0.0.1:8545"])
def test_a_url_without_a_scheme_is_said_to_have_none(url: str) -> None:
    """The commonest mistake, and how to mend it."""
    with pytest.raises(
        ConfigFault, match=r"^upstream\.url: has no scheme; write http://HOST:PORT or https://HOST:PORT"
    ):
        check({"upstream": {"url": url}})


def test_the_websocket_url_has_schemes_of_its_own() -> None:
    """ws and wss only."""
    assert check({"upstream": {"ws_url": "wss://h"}}).upstream.ws_url == "wss://h"
    with pytest.raises(ConfigFault, match=r"^upstream\.ws_url: http://h is not a URL of the form ws://"):
        check({"upstream": {"ws_url": "http://h"}})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("X Y", "v", r"upstream\.headers: 'X Y' is not a header name"),
        ("", "v", r"upstream\.headers: '' is not a header name"),
        ("X\r\nEvil", "v", r"upstream\.headers: 'X\\r\\nEvil' is not a header name"),
        ("X", "s3cret\r\nEvil: 1", r"upstream\.headers\.X: the value holds a control character"),
        ("X", "s3crét", r"upstream\.headers\.X: the value .* is not ASCII"),
        ("Host", "s3cret", r"upstream\.headers\.Host: is set by the relay itself"),
        ("content-LENGTH", "s3cret", r"upstream\.headers\.content-LENGTH: is set by the relay itself"),
    ],
)
def test_headers_that_could_break_a_request_are_refused(name: str, value: str, words: str) -> None:
    """And the fault does not show the value."""
    with pytest.raises(ConfigFault, match=rf"^{words}") as raised:
        check({"upstream": {"headers": {name: value}}})
    assert "s3cr" not in str(raised.value)


@pytest.mark.parametrize("origin", ["https://a.example", "http://localhost:3000", "*", "null", "app://x"])
def test_origins_are_taken(origin: str) -> None:
    """As a browser writes them."""
    assert check({"server": {"cors_origins": [origin]}}).server.cors_origins == (origin,)


@pytest.mark.parametrize("origin", ["https://a.example/", "a.example", "https://", "", "https://a b"])
def test_origins_that_could_never_match_are_refused(origin: str) -> None:
    """A trailing slash above all."""
    with pytest.raises(ConfigFault, match=r"^server\.cors_origins: .* is not an origin"):
        check({"server": {"cors_origins": [origin]}})


def test_denied_methods_are_case_sensitive_patterns() -> None:
    """A pattern covers the whole name."""
    assert denied("debug_traceCall", ["admin_*", "debug_*"])
    assert not denied("Debug_traceCall", ["debug_*"])
    assert not denied("xdebug_traceCall", ["debug_*"])
    assert not denied("debug_traceCall", [])


# Secrets

SECRET = st.text("XYZ:/@?#[]%\\ ~\n", min_size=1, max_size=12).map(lambda text: f"Q{text}Q")
HOST = st.sampled_from(["h.example", "h.example:8545", "[::1]:8545", "10.0.0.1"])


@given(secret=SECRET, user=SECRET, host=HOST)
def test_masking_never_shows_a_password(secret: str, user: str, host: str) -> None:
    """Wherever in the URL it stands, escaped or not, and whatever it is made of."""
    for url in (
        f"https://{user}:{secret}@{host}",
        f"https://{secret}@{host}/",
        f"https://{host}/v2/{secret}",
        f"https://{host}?key={secret}",
        f"https://{host}#{secret}",
        f"https://{host}/{user}?{secret}",
    ):
        assert "q" not in masked(url).lower()


@given(st.text())
def test_masking_takes_any_text(text: str) -> None:
    """It never raises, whatever was configured."""
    assert isinstance(masked(text), str)


def test_masking_shows_what_an_operator_needs() -> None:
    """Scheme, host and port stay."""
    assert masked("http://127.0.0.1:8545") == "http://127.0.0.1:8545"
    assert masked("http://127.0.0.1:8545/") == "http://127.0.0.1:8545"
    assert masked("https://u:p@node.example/v2/key?x=1") == "https://***@node.example/***"
    assert masked("wss://[::1]:1/x") == "wss://[::1]:1/***"
    assert masked("s3cret:x@node") == "***"


@given(header=SECRET.filter(lambda text: "\n" not in text), key=st.text("XYZ", min_size=1))
def test_no_repr_of_settings_shows_a_secret(header: str, key: str) -> None:
    """Neither values of headers nor a URL's credentials, in the repr of the whole, of the section, or in `changed`."""
    url = f"https://Q{key}:Q{key}Q@h.example/Q{key}Q"
    settings = check({"upstream": {"url": url, "ws_url": "ws" + url[5:], "headers": {"X-Name": header}}})
    shown = f"{settings!r} {settings.upstream!r} {settings} {list(changed(settings))}"
    assert "Q" not in shown
    assert "X-Name" in shown
    assert "https://***@h.example/***" in shown


def test_a_key_is_not_forgotten_while_it_counts() -> None:
    """Retention is at least the dedupe window; 0 keeps everything."""
    with pytest.raises(
        ConfigFault, match=r"^journal\.retention_d: 1 days are fewer than journal\.dedupe_h \(48 hours\)"
    ):
        check({"journal": {"retention_d": 1, "dedupe_h": 48}})
    assert check({"journal": {"retention_d": 0, "dedupe_h": 48}}).journal.retention_d == 0
    assert check({"journal": {"retention_d": 2, "dedupe_h": 48}}).journal.retention_d == 2


def test_witnesses_are_urls_and_their_keys_are_not_shown() -> None:
    """Each is checked like the upstream's URL, and masked."""
    with pytest.raises(ConfigFault, match=r"^upstream\.witnesses: ws://\*\*\*@h/\*\*\* is not a URL") as fault:
        check({"upstream": {"witnesses": ["http://h", "ws://u:s3cret@h/key"]}})
    shown = dict(changed(check({"upstream": {"witnesses": ["https://u:s3cret@h/key"]}})))
    assert shown == {"upstream.witnesses": '["https://***@h/***"]'}
    assert "s3cret" not in str(fault.value)
