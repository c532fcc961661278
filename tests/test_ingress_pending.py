"""Which message of the node answers which call of a WebSocket client."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.errors import DRAINING
from relay.ingress.websocket.pending import MAX_ELEMENTS, MAX_LATE, Pending, PendingCalls, read_ids, read_ids_of_call

SCALARS = st.one_of(st.none(), st.integers(0, 3), st.sampled_from(["0", "a", "é", '"', "\\u0061"]), st.just(1.5))


def entry(message: Any, since: float = 0.0) -> Pending:
    ids, batch = read_ids_of_call(json.dumps(message).encode())
    return Pending("pass", 0, since, ids, batch)


def call(id_: Any) -> dict[str, Any]:
    return {"id": id_, "method": "x"}


def answer(id_: Any) -> dict[str, Any]:
    return {"result": [{"id": "not this one"}], "id": id_}


def written_anew(message: Any, ascii_: bool) -> bytes:
    """As another node would write it."""
    return json.dumps(message, ensure_ascii=ascii_, indent=1 if ascii_ else None).encode()


@pytest.mark.parametrize(
    ("message", "ids", "batch"),
    [
        (b'{"method":"x","id":1}', (b"1",), False),
        (b' {"id" : "\\u0061","method":"x"} ', (b'"\\u0061"',), False),
        (b'{"method":"x","params":{"id":7}}', (), False),
        (b'{"method":"x","id":null}', (b"null",), False),
        (b'{"method":"x","id":{"a":1}}', (b"null",), False),
        (b"{}", (b"null",), False),
        (b"5", (b"null",), False),
        (b"", (b"null",), False),
        (b"\xff", (b"null",), False),
        (b"[]", (b"null",), False),
        (b"[1", (b"null",), False),
        (b'[{"method":"x","id":1},{"method":"y"},{"method":"z","id":1}]', (b"1", b"1"), True),
        (b'[{"method":"x"}]', (), True),
        (b'\r\n[1,{"method":"x","id":2},[]]', (b"null", b"2", b"null"), True),
    ],
)
def test_reads_the_ids_of_a_message(message: bytes, ids: tuple[bytes, ...], batch: bool) -> None:
    """Ids are kept as texts; what has none and is no notification will be answered under null."""
    assert read_ids(message) == (ids, batch)
    assert read_ids_of_call(message) == (ids, batch)


@pytest.mark.parametrize("element", [b"{}", b"1"])
def test_a_message_of_a_million_elements_is_one_call(element: bytes) -> None:
    """What nobody has judged must not cost an entry, and an error, for each of its elements."""
    assert read_ids_of_call(b"[" + b",".join([element] * (MAX_ELEMENTS + 2)) + b"]") == ((b"null",), False)


@given(st.binary())
def test_reads_anything(message: bytes) -> None:
    """No bytes make it fail."""
    read_ids_of_call(message)


def test_a_refusal_has_the_shape_of_the_message() -> None:
    """An object for a call, an array under each id for a batch, nothing for notifications."""
    single = json.loads(entry(call("a")).refused(DRAINING.refusal()))
    batch = json.loads(entry([call(1), {"method": "n"}, call(None)]).refused(DRAINING.refusal()))

    assert (single["id"], single["error"]["code"]) == ("a", -32012)
    assert [one["id"] for one in batch] == [1, None]
    assert entry({"method": "n"}).refused(DRAINING.refusal()) == b""
    assert entry([{"method": "n"}]).refused(DRAINING.refusal()) == b""


@given(st.lists(SCALARS, min_size=1, max_size=12), st.booleans(), st.randoms(use_true_random=False))
def test_each_answer_ends_the_oldest_call_of_its_id(ids: list[Any], ascii_: bool, random: Any) -> None:
    """Whatever the order and the spelling of the answers, each takes the oldest entry with its id; all are taken."""
    calls = PendingCalls()
    entries = [(id_, entry(call(id_))) for id_ in ids]
    for _, one in entries:
        calls.add(one)
    random.shuffle(ids)
    for id_ in ids:
        expected = next(pair for pair in entries if pair[0] == id_ and type(pair[0]) is type(id_))
        assert calls.answered_by(written_anew(answer(id_), ascii_)) is expected[1]
        entries.remove(expected)
    assert len(calls) == 0
    assert not calls._by_key
    assert not calls._keys


@given(st.lists(st.lists(SCALARS, min_size=1, max_size=4), min_size=1, max_size=6), st.data())
def test_an_array_answers_the_oldest_batch_it_names(batches: list[list[Any]], data: st.DataObject) -> None:
    """An array in any order, even an incomplete one, ends one batch that holds its first id; single calls stay."""
    calls = PendingCalls()
    calls.add(single := entry(call(batches[0][0])))
    entries = [entry([call(id_) for id_ in ids]) for ids in batches]
    for one in entries:
        calls.add(one)
    for _ in batches:
        waiting = [one for one in entries if one in calls._waiting]
        ids = json.loads(b"[" + b",".join(data.draw(st.sampled_from(waiting)).ids) + b"]")
        named = data.draw(st.permutations(ids).map(lambda found: found[: max(1, len(found) - 1)]))
        taken = calls.answered_by(json.dumps([answer(id_) for id_ in named]).encode())
        first = next(one for one in waiting if json.dumps(named[0]).encode() in one.ids)
        assert taken is first
    assert list(calls._waiting) == [single]


@pytest.mark.parametrize("refusal", [{"id": None, "error": {}}, {"error": {}}, [{"id": None, "error": {}}], []])
def test_an_error_under_no_id_answers_the_oldest_batch(refusal: Any) -> None:
    """Nodes that refuse a whole batch do not name its ids."""
    calls = PendingCalls()
    first, second = entry([call(1), call(2)]), entry([call(3)])
    calls.add(first)
    calls.add(second)
    assert calls.answered_by(json.dumps(refusal).encode()) is first
    assert len(calls) == 1


def test_an_error_under_no_id_belongs_to_a_call_under_null_first() -> None:
    """A text that is no JSON is answered under null; that is not the batch's answer."""
    calls = PendingCalls()
    calls.add(entry([call(1)]))
    calls.add(broken := entry(5))
    assert calls.answered_by(b'{"id":null,"error":{}}') is broken


def test_a_notification_answers_nothing() -> None:
    """Subscriptions have a method and no id."""
    calls = PendingCalls()
    calls.add(entry([call(1)]))
    assert calls.answered_by(b'{"method":"eth_subscription","params":{"id":1}}') is None
    assert calls.answered_by(b'{"id":"unknown","result":1}') is None
    assert len(calls) == 1


def test_what_is_late_is_known_for_a_while() -> None:
    """A late answer finds its entry, marked late; only so many are remembered, the oldest are forgotten."""
    calls = PendingCalls()
    for number in range(MAX_LATE + 2):
        calls.add(entry(call(number), since=number))
    assert calls.overdue(-1) == []
    assert [one.ids for one in calls.overdue(1)] == [(b"0",), (b"1",)]
    assert len(calls.overdue(MAX_LATE + 5)) == MAX_LATE
    assert len(calls) == 0

    assert calls.answered_by(b'{"id":1,"result":1}') is None
    late = calls.answered_by(b'{"id":2,"result":1}')
    assert late is not None
    assert late.late
    assert calls.answered_by(b'{"id":2,"result":1}') is None
    assert calls.clear() == []
