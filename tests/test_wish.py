"""Wishes as clients write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.errors import INVALID_KEY, Refusal
from relay.ingress import wishes
from relay.wish import NO_WISH, Wish

UUID = "8e03978e-40d5-43e8-bc93-6894a57f9324"

KEYS = {
    "in quotes": (f'"{UUID}"', UUID),
    "bare": (UUID, UUID),
    "one character": ("a", "a"),
    "the longest": ("k" * 255, "k" * 255),
    "the longest in quotes, all escaped": ('"' + '\\"' * 255 + '"', '"' * 255),
    "escapes": (r'"a\"b\\c"', r'a"b\c'),
    "bare with a quote within": ('a"b', 'a"b'),
    "bare with a backslash": ("a\\b", "a\\b"),
    "bare, like a list": ("a,b;c=d", "a,b;c=d"),
    "any visible character": ("!#$%&'()*+-./:<=>?@[]^_`{|}~", "!#$%&'()*+-./:<=>?@[]^_`{|}~"),
}


@pytest.mark.parametrize(("value", "key"), KEYS.values(), ids=KEYS)
def test_a_key_is_read_in_quotes_and_bare(value: str, key: str) -> None:
    """The draft's structured string, and what clients send instead, are one key."""
    assert wishes.read([value.encode()], []) == Wish(key)


NO_KEYS = {
    "empty": [b""],
    "empty in quotes": [b'""'],
    "too long": [b"k" * 256],
    "too long in quotes": [b'"' + b"k" * 256 + b'"'],
    "a space within": [b"a b"],
    "a space within quotes": [b'"a b"'],
    "a tab": [b"a\tb"],
    "not ASCII": ["schlüssel".encode()],
    "DEL": [b"\x7f"],
    "an open quote": [b'"abc'],
    "a lone quote": [b'"'],
    "an escape of nothing": [b'"abc\\"'],
    "an escape of another": [b'"a\\bc"'],
    "something behind the quotes": [b'"abc"d'],
    "a parameter": [b'"abc";d=1'],
    "two in one line": [b'"abc", "def"'],
    "two lines": [b"abc", b"def"],
    "the same twice": [b"abc", b"abc"],
}


@pytest.mark.parametrize("values", NO_KEYS.values(), ids=NO_KEYS)
def test_a_key_that_is_none_is_refused(values: list[bytes]) -> None:
    """What could be read in two ways guards nothing; nobody's key is dropped in silence."""
    refusal = wishes.read(values, [b"wait=5"])

    assert isinstance(refusal, Refusal)
    assert (refusal.case, refusal.case.http) == (INVALID_KEY, 200)


PREFERENCES = {
    "respond-async": (["respond-async"], Wish(respond_async=True)),
    "any case": (["Respond-ASYNC , WAIT=7"], Wish(respond_async=True, wait_s=7)),
    "wait": (["wait=10"], Wish(wait_s=10)),
    "spaces": (["wait = \t10"], Wish(wait_s=10)),
    "in quotes": (['wait="10"'], Wish(wait_s=10)),
    "not at all": (["wait=0"], Wish(wait_s=0)),
    "several lines": (["respond-async", "wait=3"], Wish(respond_async=True, wait_s=3)),
    "among others": (["return=minimal, respond-async; x=1, handling=lenient;a;b"], Wish(respond_async=True)),
    "the first counts": (["wait=1", "wait=2, wait=3"], Wish(wait_s=1)),
    "the first counts, even without sense": (["wait=soon", "wait=2"], NO_WISH),
    "with parameters": (['wait=4;reason="a, b; c"'], Wish(wait_s=4)),
    "an empty value": (['respond-async=""'], Wish(respond_async=True)),
    "another value": (["respond-async=no"], NO_WISH),
    "in another's quotes": (['x="respond-async, wait=3"'], NO_WISH),
    "in another's open quotes": (['x="a, respond-async'], NO_WISH),
    "behind an escaped quote": (['x="a\\", wait=3", wait=4'], Wish(wait_s=4)),
    "as a parameter": (["x; respond-async"], NO_WISH),
    "empty elements": ([",, ,respond-async,"], Wish(respond_async=True)),
    "no number": (["wait=ten"], NO_WISH),
    "no value": (["wait"], NO_WISH),
    "negative": (["wait=-1"], NO_WISH),
    "a fraction": (["wait=1.5"], NO_WISH),
    "longer than anything": (["wait=" + "9" * 5000], NO_WISH),
    "unknown": (["depth-noroot"], NO_WISH),
    "nothing": ([""], NO_WISH),
    "no header": ([], NO_WISH),
}


@pytest.mark.parametrize(("values", "wish"), PREFERENCES.values(), ids=PREFERENCES)
def test_preferences_are_read_as_rfc_7240_has_them(values: list[str], wish: Wish) -> None:
    """Several in a line, several lines, any case, quotes, parameters; what is unknown or senseless is ignored."""
    read = wishes.read([], [value.encode() for value in values])

    assert read == wish
    assert read is NO_WISH or read != NO_WISH


@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=255))
def test_a_key_in_quotes_is_the_bare_one(key: str) -> None:
    """Whatever its characters; only a bare one that begins with a quote would be another form."""
    quoted = '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'

    assert wishes.read([quoted.encode()], []) == Wish(key)
    if not key.startswith('"'):
        assert wishes.read([key.encode()], []) == Wish(key)


@given(st.lists(st.binary(max_size=300), max_size=2), st.lists(st.binary(max_size=300), max_size=3))
def test_whatever_comes_is_a_wish_or_a_refusal(keys: list[bytes], prefers: list[bytes]) -> None:
    """No bytes raise, and no key that is taken holds what could not be shown."""
    read = wishes.read(keys, prefers)

    if isinstance(read, Wish):
        assert bool(read.key) is bool(keys)
        assert read.key.isascii()
        assert " " not in read.key
        assert not read.key or read.key.isprintable()


@given(st.lists(st.sampled_from(["respond-async", "wait=5", 'x="a,b"', "y;z=1", "", "handling=strict"]), max_size=8))
def test_lines_and_commas_are_the_same(preferences: list[str]) -> None:
    """One line with commas, or a line for each (RFC 9110, 5.3)."""
    apart = wishes.read([], [one.encode() for one in preferences])

    assert apart == wishes.read([], [", ".join(preferences).encode()])


@pytest.mark.parametrize(
    ("wish", "patience_s", "applied"),
    [
        (NO_WISH, None, ""),
        (Wish("k"), None, ""),
        (Wish(respond_async=True), 0, "respond-async"),
        (Wish(wait_s=10), 10, "wait=10"),
        (Wish(wait_s=0), 0, "wait=0"),
        (Wish(respond_async=True, wait_s=10), 10, "respond-async, wait=10"),
    ],
)
def test_what_a_wish_leads_to(wish: Wish, patience_s: float | None, applied: str) -> None:
    """A bound says how long a client that would take a handle at once still likes to wait (RFC 7240, 4.3)."""
    assert (wish.patience_s, wish.applied) == (patience_s, applied)
