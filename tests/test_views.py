"""What clients and operators are shown of the journal."""

from __future__ import annotations

import json

import pytest

from relay import views
from relay.journal.records import Attempt, Event, Outstanding, Receipt, ReceiptSeen, Record, Taken, untouched
from relay.lifecycle import Mode, Reason, State

RECORD = Record(
    id=7,
    chain_id=31337,
    sender=b"\xaa" * 20,
    nonce=0,
    hash=b"\x01" * 32,
    method="eth_sendRawTransaction",
    mode=Mode.VERDICT,
    admitted_ms=1_764_547_200_005,
    state=State.PENDING,
    reason=Reason.TIMEOUT_GAP,
    detail="node-3.internal says: gap",
    other_hash=None,
    version=4,
    fence=99,
    tries=1,
    attempts=2,
    open_attempts=1,
    since_ms=1_764_547_201_000,
)
SEEN = [
    ReceiptSeen(Receipt(7, 10, b"\x0a" * 32, 1, "node-3.internal"), 1_764_547_202_000),
    ReceiptSeen(Receipt(7, 11, b"\x0b" * 32, 0, "node-3.internal"), 1_764_547_203_000),
]
EVENT = Event(5, 7, State.SEALED, State.PENDING, None, "node-3.internal took it", "host-1", 99, 3, 1_764_547_201_000)


def test_a_client_sees_where_its_transaction_stands() -> None:
    """Ethereum's forms for what Ethereum has a form for, the reason in words."""
    assert views.public(RECORD) == {
        "hash": "0x" + "01" * 32,
        "chainId": "0x7a69",
        "from": "0x" + "aa" * 20,
        "nonce": "0x0",
        "state": "pending",
        "subStatus": {
            "kind": "timeout",
            "reason": "timeout_gap",
            "words": "no receipt yet; a lower nonce of its sender is missing",
        },
        "mayStillLand": True,
        "admitted": "2025-12-01T00:00:00.005Z",
        "since": "2025-12-01T00:00:01.000Z",
        "otherHash": None,
    }


@pytest.mark.parametrize("state", [State.MINED, State.COMPLETED])
def test_a_client_sees_the_block_while_it_is_in_one(state: State) -> None:
    """The newest receipt."""
    view = views.public(RECORD._replace(state=state, reason=Reason.REVERTED), SEEN)
    assert (view["blockNumber"], view["blockHash"], view["status"]) == ("0xb", "0x" + "0b" * 32, "0x0")


def test_a_block_that_was_taken_back_is_not_shown() -> None:
    """After a reorganisation it is pending again, whatever receipts were seen."""
    assert "blockHash" not in views.public(RECORD, SEEN)


def test_a_client_sees_what_took_its_nonce() -> None:
    """The other hash is named."""
    assert views.public(RECORD._replace(other_hash=b"\x02" * 32))["otherHash"] == "0x" + "02" * 32


def test_clients_see_nothing_of_the_inside() -> None:
    """No node, actor, fence, words of a node or of a person."""
    shown = json.dumps([views.public(RECORD, SEEN), views.event(EVENT)])
    assert "internal" not in shown
    assert "host-1" not in shown
    assert "99" not in shown


def test_an_operator_sees_all_of_it() -> None:
    """The client's view and the relay's own columns, attempts, receipts and history."""
    made = Attempt(3, 7, "node-3.internal", 99, "host-1", 1_764_547_200_500, None, None, "", "")
    view = views.operator(RECORD, [made, made._replace(taken=Taken.NO, answered_ms=1_764_547_200_600)], SEEN, [EVENT])
    assert views.public(RECORD, SEEN).items() <= view.items()
    assert (view["id"], view["version"], view["mode"], view["attemptCount"]) == (7, 4, "verdict", 2)
    assert [one["taken"] for one in view["attempts"]] == [None, "no"]
    assert [one["answered"] for one in view["attempts"]] == [None, "2025-12-01T00:00:00.600Z"]
    assert [one["node"] for one in view["receipts"]] == ["node-3.internal"] * 2
    assert [(one["origin"], one["state"], one["actor"]) for one in view["history"]] == [("sealed", "pending", "host-1")]
    json.dumps(view)


def test_the_first_event_has_no_origin() -> None:
    """It came from nowhere."""
    assert views.event(EVENT._replace(origin=None))["origin"] is None


def test_lanes() -> None:
    """One that nobody touched, and what waits in it."""
    assert views.lane(untouched(1, b"\xaa" * 20)) == {
        "chainId": "0x1",
        "address": "0x" + "aa" * 20,
        "paused": False,
        "version": 0,
        "detail": "",
        "actor": "",
        "at": None,
    }
    assert views.outstanding(Outstanding(1, b"\xaa" * 20, 3, 2, 1_764_547_200_000))["lowest"] == "0x3"
