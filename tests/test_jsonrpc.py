"""JSON-RPC texts are taken apart without being changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay import errors, jsonrpc
from relay.jsonrpc import Batch, Call, Malformed, NotJson, Reply

CORPORA = Path(__file__).parents[2] / "shared" / "corpora"


@pytest.mark.parametrize(
    "id_",
    [b"1", b'"a"', b'"\\u0061"', b"null", b"1.0e3", b"-0", b"123456789012345678901234567890", b'"\xc3\xa9"', b"0"],
)
def test_an_id_keeps_its_spelling(id_: bytes) -> None:
    """Big integers, floats and escapes go back as they came; ``null`` is an id."""
    assert jsonrpc.parse(b'{"id": %b ,"method":"m"}' % id_) == Call(b'{"id": %b ,"method":"m"}' % id_, "m", id_, None)


def test_a_call_without_an_id_is_a_notification() -> None:
    """Absent and null are two things."""
    call = jsonrpc.parse(b'{"method":"m","params":[]}')

    assert isinstance(call, Call)
    assert call.id is None


def test_params_keep_their_text() -> None:
    """White space, escapes, order: what goes upstream is a slice of what came."""
    call = jsonrpc.parse(b'\n{"x":{"method":"y"},"params" : [ "0xAb" , { "b":1,"a":2.50 } ] ,"method":"m","id":7}\t')

    assert isinstance(call, Call)
    assert call.params == b'[ "0xAb" , { "b":1,"a":2.50 } ]'


@pytest.mark.parametrize(
    "body",
    [
        b'{"method":"eth_call","method":"eth_sendRawTransaction","id":1}',
        b'{"method":"eth_call","Method":"eth_sendRawTransaction","id":1}',
        b'{"METHOD":"eth_sendRawTransaction","id":1}',
        b'{"method":"eth_call","\\u006dethod":"eth_sendRawTransaction","id":1}',
        b'{"method":"eth_call","params":[{"a":1}],"params":[],"metho\\u0064":"x","id":1}',
    ],
)
def test_two_methods_are_ambiguous(body: bytes) -> None:
    """Nodes disagree on which key counts (Go takes any case), so none does."""
    parsed = jsonrpc.parse(body)

    assert isinstance(parsed, Malformed)
    assert parsed.ambiguous
    assert parsed.id == b"1"


def test_a_method_inside_the_params_is_not_the_requests() -> None:
    """Only keys of the request itself count."""
    assert isinstance(jsonrpc.parse(b'{"method":"a","params":{"method":"b","Method":"c"},"id":1}'), Call)


def test_an_escaped_method_is_read() -> None:
    """An escape hides nothing."""
    call = jsonrpc.parse(b'{"\\u006dethod":"eth\\u005fsendRawTransaction"}')

    assert isinstance(call, Call)
    assert call.method == "eth_sendRawTransaction"


@pytest.mark.parametrize(
    ("body", "id_"),
    [
        (b"5", b"null"),
        (b'"x"', b"null"),
        (b"null", b"null"),
        (b"{}", b"null"),
        (b'{"id":3}', b"3"),
        (b'{"id":"x","method":5}', b'"x"'),
        (b'{"id":{},"method":"m"}', b"null"),
        (b'{"id":[1],"method":"m"}', b"null"),
        (b"[]", b"null"),
    ],
)
def test_what_is_no_request_is_malformed_under_its_id(body: bytes, id_: bytes) -> None:
    """JSON, but no call: the error goes back under the id where there is one."""
    parsed = jsonrpc.parse(body)

    assert isinstance(parsed, Malformed)
    assert parsed.id == id_


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b'{"method":"a"',
        b"[" * 1_000_000,
        b'{"params":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"method":"a"}{"method":"b"}',
        b"[1,]",
        b"\xef\xbb\xbf{}",
        '{"method":"a"}'.encode("utf-16"),
        b'{"id":NaN}',
        b'{"id":"\xff","method":"m"}',
        b'{"method":"m","params":["\xed\xa0\x80"]}',
        b"[{}",
    ],
)
def test_what_is_no_json_is_said_so(body: bytes) -> None:
    """Half JSON, a million brackets, another encoding: no exception, a word about what is wrong."""
    parsed = jsonrpc.parse(body)

    assert isinstance(parsed, NotJson)
    assert parsed.detail


def test_a_batch_keeps_its_elements_texts() -> None:
    """Each element can go upstream as it came."""
    batch = jsonrpc.parse(b' [ {"method" : "a","id":1} , 7 , {"method":"b"} ] ')

    assert batch == Batch(
        (
            Call(b'{"method" : "a","id":1}', "a", b"1", None),
            Malformed(b"7", b"null", "not an object"),
            Call(b'{"method":"b"}', "b", None, None),
        )
    )


def test_an_error_reply_has_value_and_text() -> None:
    """The text goes to the client as it came, the value is what the verdict reads."""
    body = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32000, "message":"no","data":1e2}}'

    assert jsonrpc.parse_reply(body) == Reply(
        b"1", None, {"code": -32000, "message": "no", "data": 100.0}, b'{"code":-32000, "message":"no","data":1e2}'
    )


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"{}", b'{"id":1}', b'{"id":1,"error":null}', b'{"result":', b'{"id":1,"error":"boom"}'],
)
def test_what_is_no_reply_is_none(body: bytes) -> None:
    """A gateway's page, an empty or a truncated body prove nothing."""
    assert jsonrpc.parse_reply(body) is None


def test_a_null_result_is_a_result() -> None:
    """``result: null`` beside ``error: null`` is an answer."""
    assert jsonrpc.parse_reply(b'{"id":1,"result":null,"error":null}') == Reply(b"1", b"null", None, None)


def test_a_refusal_is_written_with_its_data() -> None:
    """Our own errors are JSON-RPC errors."""
    refusal = errors.OUTCOME_UNKNOWN.refusal(data={"hash": "0x1"})

    assert json.loads(jsonrpc.refusal_text(b'"x"', refusal)) == {
        "jsonrpc": "2.0",
        "id": "x",
        "error": {"code": -32040, "message": refusal.message, "data": {"hash": "0x1"}},
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@given(method=st.text(max_size=20), params=JSON, id_=st.none() | st.integers() | st.text(max_size=6), extra=JSON)
def test_what_json_says_is_what_is_read(method: str, params: Any, id_: Any, extra: Any) -> None:
    """Whatever the spelling, the parts are those that a plain JSON reader finds."""
    body = json.dumps({"jsonrpc": "2.0", "x": extra, "id": id_, "method": method, "params": params}).encode()
    call = jsonrpc.parse(body)

    assert isinstance(call, Call)
    assert call.method == method
    assert call.id is not None
    assert json.loads(call.id) == id_
    assert call.params is not None
    assert json.loads(call.params) == params
    assert call.raw == body


@given(st.binary(max_size=80))
def test_no_bytes_break_the_reader(body: bytes) -> None:
    """Every body is a call, a batch, malformed or no JSON."""
    assert isinstance(jsonrpc.parse(body), Call | Malformed | Batch | NotJson)
    assert isinstance(jsonrpc.parse_reply(body), Reply | None)


@pytest.mark.parametrize("file", ["execution-apis.jsonl", "jsonrpc.jsonl"])
def test_public_exchanges_are_read(file: str) -> None:
    """Each request of the public corpora is read as its JSON says."""
    if not CORPORA.exists():
        pytest.skip("needs ../shared/corpora, which only the project's own CI has")
    for line in (CORPORA / file).read_text("utf-8").splitlines():
        request = json.loads(line)["request"]
        parsed = jsonrpc.parse(request.encode())
        try:
            value = json.loads(request)
        except ValueError:
            assert isinstance(parsed, NotJson)
            continue
        if isinstance(value, dict) and isinstance(value.get("method"), str):
            assert isinstance(parsed, Call)
            assert parsed.method == value["method"]
        elif isinstance(value, list) and value:
            assert isinstance(parsed, Batch)
            assert len(parsed.elements) == len(value)
        else:
            assert isinstance(parsed, Malformed)
