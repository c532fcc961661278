"""Answers of a split batch find their calls."""

from __future__ import annotations

import json

import pytest

from relay import merge
from relay.jsonrpc import Batch, Call, parse


def calls(*ids: str | None) -> list[Call]:
    """Calls with these ids (JSON texts)."""
    texts = ['{"method":"m"}' if id_ is None else f'{{"method":"m","id":{id_}}}' for id_ in ids]
    batch = parse(f"[{','.join(texts)}]".encode())
    assert isinstance(batch, Batch)
    return [call for call in batch.elements if isinstance(call, Call)]


def matched(body: bytes, *ids: str | None) -> list[object]:
    """What each call with an id is answered."""
    batch = calls(*ids)
    answers = merge.match(batch, body)
    assert set(answers) == {id(call) for call in batch if call.id is not None}
    return [json.loads(answers[id(call)]) for call in batch if call.id is not None]


def result(id_: object, value: object) -> dict[str, object]:
    """A response object."""
    return {"jsonrpc": "2.0", "id": id_, "result": value}


def test_answers_in_another_order_find_their_calls() -> None:
    """By id, whatever the node's order; a number and a string are two ids."""
    body = json.dumps([result("1", "b"), result(2, "c"), result(1, "a")]).encode()

    assert matched(body, "1", '"1"', "2") == [result(1, "a"), result("1", "b"), result(2, "c")]


def test_equal_ids_are_answered_in_their_order() -> None:
    """A client that reuses an id in a batch matches by position."""
    body = json.dumps([result(1, "first"), result(1, "second")]).encode()

    assert matched(body, "1", "1") == [result(1, "first"), result(1, "second")]


def test_one_spelling_of_an_id_is_as_good_as_another() -> None:
    """A node may write an id back differently."""
    assert matched(b'[{"id":"a","result":1}]', '"\\u0061"') == [{"id": "a", "result": 1}]


def test_notifications_have_no_answer() -> None:
    """And take nobody else's."""
    assert matched(json.dumps([result(1, "a")]).encode(), None, "1", None) == [result(1, "a")]


@pytest.mark.parametrize("wrap", [False, True])
def test_one_error_for_the_batch_is_everybodys(wrap: bool) -> None:
    """Bare or in an array of one: each call gets it under its own id."""
    error = {"code": -32600, "message": "batch too large"}
    reply = {"jsonrpc": "2.0", "id": None, "error": error}
    body = json.dumps([reply] if wrap else reply).encode()

    assert matched(body, "1", "2") == [{"jsonrpc": "2.0", "id": id_, "error": error} for id_ in (1, 2)]


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b"[1,2]", b'{"id":1,"result":1}'])
def test_a_missing_answer_is_an_error_under_the_calls_id(body: bytes) -> None:
    """Never silence: a client that waits for id 2 gets id 2."""
    answers = matched(body, "2")

    assert answers[0]["id"] == 2  # type: ignore[index] # a response object
    assert answers[0]["error"]["code"] == -32013  # type: ignore[index] # a response object
