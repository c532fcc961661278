"""What a log line shows: no secret, no raw transaction, whatever value it is given."""

from __future__ import annotations

import logging
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.telemetry.redaction import MAX_ITEMS, MAX_TEXT, SECRET, redact

RAW = "02f8" + "ab" * 110
"""A signed transaction in hex, as short as they come."""


def redacted(**values: Any) -> str:
    """The text of a line with these values."""
    return orjson.dumps(redact(None, "info", values)).decode()


@pytest.mark.parametrize("key", sorted(SECRET))
def test_keys_that_may_hold_a_secret_never_show_it(key: str) -> None:
    """At the top and inside of tables, in any case."""
    assert "Q" not in redacted(**{key: "Q"})
    assert "Q" not in redacted(**{key: ["Q", {"a": "Q"}]})
    assert "Q" not in redacted(table={"list": [{key.title(): "Q", key.upper(): b"Q"}]})


@pytest.mark.parametrize(
    "value",
    [
        f"0x{RAW}",
        RAW,
        f"cannot decode 0x{RAW}: too short",
        f"KeyError: {bytes.fromhex(RAW)!r}",
        bytes.fromhex(RAW),
        bytearray.fromhex(RAW),
        memoryview(bytes.fromhex(RAW)),
        ValueError(f"0x{RAW}"),
        {"transaction": [f"0x{RAW}"]},
        {f"0x{RAW}": 1},
        (bytes.fromhex(RAW),),
    ],
)
def test_raw_transactions_are_cut_out_wherever_they_stand(value: object) -> None:
    """In texts, bytes, exceptions, lists and keys."""
    line = redacted(detail=value)
    assert "abababab" not in line
    assert "\\xab" not in line


def test_bytes_are_never_shown() -> None:
    """However short: a private key has 32."""
    assert redacted(a=b"Q" * 32, b=[bytearray(b"QQ")]) == '{"a":"<32 bytes>","b":["<2 bytes>"]}'


def test_hashes_and_addresses_are_shown() -> None:
    """They are what an operator looks for."""
    line = redacted(hash="0x" + "a" * 64, sender="0x" + "b" * 40, key="0x" + "c" * 128)
    assert "a" * 64 in line
    assert "b" * 40 in line
    assert "c" * 128 in line


@given(st.text("XYZ@:/?#%\\.", max_size=20), st.sampled_from(["", "connect to ", "('", '"']))
def test_urls_are_masked_in_every_text(secret: str, before: str) -> None:
    """In values, in lists, and in the middle of a sentence."""
    text = f"{before}https://u:Q{secret}Q@h.example/Q{secret}Q failed"
    assert "q" not in redacted(a=text, b=[text], c=OSError(text)).lower()


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=200) | st.datetimes()
    | st.builds(object) | st.builds(ValueError, st.text()) | st.sampled_from(list(logging._levelToName)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.frozensets(st.integers()),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=60)
@given(st.dictionaries(st.text(min_size=1), _VALUES))
def test_any_value_can_be_logged(values: dict[str, Any]) -> None:
    """A line never raises into the room that logs it: huge integers, lone surrogates, objects, deep tables."""
    try:
        "".join(values).encode()
    except UnicodeEncodeError:
        return  # names of values stand in our code
    assert redacted(**values)


def test_what_cannot_be_encoded_is_described() -> None:
    """Foreign objects, even those that cannot even be printed."""

    class Hostile:
        def __str__(self) -> str:
            raise RuntimeError

    assert redacted(a=Hostile(), b="\ud800", c=1 << 70, d=-(1 << 64), e=10**5000) == (
        '{"a":"<Hostile>","b":"\\\\ud800","c":"1180591620717411303424","d":"-18446744073709551616","e":"<int>"}'
    )


def test_lines_are_bounded() -> None:
    """Long texts lose their middle, long lists their end, endless ones their depth."""
    endless: list[Any] = []
    endless.append(endless)
    line = redacted(text="begin" + "é " * MAX_TEXT + "end", many=list(range(10 * MAX_ITEMS)), endless=endless)
    assert len(line) < 3 * MAX_TEXT
    assert "begin" in line
    assert 'end"' in line


def test_a_secret_at_the_cut_is_masked_first() -> None:
    """Cutting a URL in two would leave half of its password."""
    url = "https://u:" + "Q" * 20 + "@h/"
    for shift in range(0, 30, 5):
        text = " " * (MAX_TEXT // 2 - shift) + url + " " * MAX_TEXT
        assert "Q" not in redacted(text=text)
