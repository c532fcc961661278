"""The table of submission methods, and how their params are read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay import methods
from relay.errors import Refusal
from relay.methods import SUBMISSIONS, Request

PLAIN = SUBMISSIONS["eth_sendRawTransaction"]
SYNC = SUBMISSIONS["eth_sendRawTransactionSync"]
PRIVATE = SUBMISSIONS["eth_sendPrivateTransaction"]
CONDITIONAL = SUBMISSIONS["eth_sendRawTransactionConditional"]


def read(method: methods.Method, params: Any) -> Request:
    """A request that must be readable."""
    request = methods.read(method, json.dumps(params).encode())
    assert isinstance(request, Request)
    return request


@pytest.mark.parametrize("method", SUBMISSIONS.values(), ids=str)
def test_every_submission_method_is_found_by_the_needle(method: methods.Method) -> None:
    """A body without the needle is not looked at, so the needle must be in every name."""
    assert method.name.startswith(methods.NEEDLE.decode())
    assert not methods.only_reads(method.name)


@pytest.mark.parametrize("text", ["0xabCD", "0XABcd"])
def test_hex_of_any_case_is_the_same_bytes(text: str) -> None:
    """Two spellings of the same bytes are one submission."""
    assert read(PLAIN, [text]).raw == b"\xab\xcd"
    assert read(PLAIN, [text]).key == read(SYNC, ["0xabcd", 1000]).key


@pytest.mark.parametrize(
    ("params", "text"),
    [
        (b"", "missing value for required argument 0"),
        (b"[]", "missing value for required argument 0"),
        (b"[null]", "missing value for required argument 0"),
        (b'{"raw":"0x00"}', "non-array args"),
        (b'"0x00"', "non-array args"),
        (b"[5]", "invalid argument 0: json: cannot unmarshal non-string into Go value of type hexutil.Bytes"),
        (b"[{}]", "invalid argument 0: json: cannot unmarshal non-string into Go value of type hexutil.Bytes"),
        (
            b'["00"]',
            "invalid argument 0: json: cannot unmarshal hex string without 0x prefix"
            " into Go value of type hexutil.Bytes",
        ),
        (
            b'["0x0"]',
            "invalid argument 0: json: cannot unmarshal hex string of odd length into Go value of type hexutil.Bytes",
        ),
        (
            b'["0x0g"]',
            "invalid argument 0: json: cannot unmarshal invalid hex string into Go value of type hexutil.Bytes",
        ),
        (
            b'["0x0 "]',
            "invalid argument 0: json: cannot unmarshal invalid hex string into Go value of type hexutil.Bytes",
        ),
        (
            '["0x０0"]'.encode(),
            "invalid argument 0: json: cannot unmarshal invalid hex string into Go value of type hexutil.Bytes",
        ),
        (b'["0x00","0x00"]', "too many arguments, want at most 1"),
    ],
)
def test_params_without_a_raw_transaction_are_refused_in_geths_words(params: bytes, text: str) -> None:
    """-32602, and what is wrong."""
    refusal = methods.read(PLAIN, params)

    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.message) == (-32602, text)


def test_an_empty_string_is_an_empty_transaction() -> None:
    """As in geth: the decoder refuses it, not the params."""
    assert read(PLAIN, [""]).raw == b""


def test_a_private_transaction_stands_under_its_key() -> None:
    """And goes upstream with everything that stands beside it, as it came."""
    params = b'[ {"tx":"0x01", "preferences":{"fast":true}} ]'
    request = methods.read(PRIVATE, params)

    assert isinstance(request, Request)
    assert request.raw == b"\x01"
    assert request.wire_params == params


@pytest.mark.parametrize("params", [b'[{"tx":"0x01","tx":"0x02"}]', b'[{"tx":"0x01","Tx":"0x02"}]', b'[{"TX":"0x01"}]'])
def test_a_private_transaction_stands_under_one_key(params: bytes) -> None:
    """Nodes disagree on which of two counts; what is ordered must be what is sent."""
    refusal = methods.read(PRIVATE, params)

    assert isinstance(refusal, Refusal)
    assert "more than once" in refusal.message


def test_conditional_submissions_are_equal_only_with_equal_conditions() -> None:
    """The same bytes under other conditions are another request."""
    one = read(CONDITIONAL, ["0x01", {"blockNumberMax": "0x1"}])
    other = read(CONDITIONAL, ["0x01", {"blockNumberMax": "0x2"}])

    assert one.key != other.key


def test_a_private_submission_does_not_join_a_public_one() -> None:
    """The sender did not ask for the public mempool."""
    private = methods.read(SUBMISSIONS["eth_sendPrivateRawTransaction"], b'["0x01"]')

    assert isinstance(private, Request)
    assert private.key != read(PLAIN, ["0x01"]).key


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(None, 20.0), (0, 20.0), (1500, 1.5), ("0x5dc", 1.5), (2500.0, 2.5), (10**9, 60.0)],
)
def test_the_time_out_of_a_sync_submission(value: Any, seconds: float) -> None:
    """Milliseconds as a number or a quantity; 20 s by default, 60 s at most."""
    assert read(SYNC, ["0x01", value]).timeout_s == seconds


@pytest.mark.parametrize("value", ["soon", -1, True, [], "0x"])
def test_a_time_out_that_is_none_is_refused(value: Any) -> None:
    """Rather than waiting for something else than the client meant."""
    assert isinstance(methods.read(SYNC, json.dumps(["0x01", value]).encode()), Refusal)


def test_a_sync_submission_goes_upstream_as_a_plain_one() -> None:
    """Its lane is held only until the node has the transaction."""
    request = read(SYNC, ["0xAB", 1000])

    assert request.method.wire == "eth_sendRawTransaction"
    assert request.wire_params == b'["0xAB"]'


@pytest.mark.parametrize(
    "method",
    [
        "eth_sendTransaction",
        "eth_getFilterChanges",
        "eth_newFilter",
        "evm_mine",
        "engine_newPayloadV3",
        "personal_sign",
    ],
)
def test_what_may_change_something_is_never_sent_twice(method: str) -> None:
    """A filter's changes are consumed by reading them."""
    assert not methods.only_reads(method)


@given(st.binary(max_size=60))
def test_no_params_break_the_reader(params: bytes) -> None:
    """A request or a refusal, nothing else."""
    for method in SUBMISSIONS.values():
        assert isinstance(methods.read(method, params), Request | Refusal)


def test_what_is_known_by_its_bytes_goes_upstream_by_one_method() -> None:
    """So that any of them may stand in one batch, and be resent by the same method."""
    assert {method.wire for method in SUBMISSIONS.values() if method.by_bytes} == {"eth_sendRawTransaction"}
