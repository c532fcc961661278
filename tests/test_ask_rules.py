"""The pure rules of asking: which events were seen, what a lane is told as, who wants to hear."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.ask import following, lanes, params
from relay.ask.following import LATE_S, Following
from relay.ask.lanes import MAX_ROWS, Counts
from relay.ask.params import Filter, Invalid
from relay.ask.subscriptions import Client, Subscriptions, tell
from relay.errors import Refusal
from relay.ingress.looking import question
from relay.journal.records import Change, Event, untouched
from relay.lifecycle import Reason, State
from tests.test_views import RECORD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relay.journal.records import Record


def change(id_: int) -> Change:
    """An event of this id."""
    return Change(Event(id_, 7, None, State.QUEUED, None, "", "", 0, 1, 0), RECORD)


def ids(changes: Sequence[Change]) -> list[int]:
    """Theirs."""
    return [one.event.id for one in changes]


# Following.


@given(st.permutations(range(1, 40)), st.data())
def test_every_event_is_seen_once_however_late_it_comes_to_light(order: list[int], data: st.DataObject) -> None:
    """Ids are handed out in order and committed in any: between two looks some more have come."""
    there: set[int] = set()
    seen: list[int] = []
    followed = Following([], 0.0)
    pending = list(order)
    while pending:
        for _ in range(data.draw(st.integers(1, 5))):
            if pending:
                there.add(pending.pop())
        page = data.draw(st.integers(1, 4))
        while True:
            late = sorted(there & set(followed.gaps))
            seen += late
            followed.saw([change(id_) for id_ in late], 0.0)
            new = sorted(id_ for id_ in there if id_ > followed.place)[:page]
            seen += new
            followed.saw([change(id_) for id_ in new], 0.0)
            if len(new) < page:
                break
    assert sorted(seen) == sorted(order)


def test_what_was_there_at_the_start_is_not_new() -> None:
    """What was missing below may still come: it was being committed."""
    followed = Following([change(5), change(7), change(8)], 0.0)
    assert followed.place == 8
    assert set(followed.gaps) == {1, 2, 3, 4, 6}
    followed.saw([change(6)], 1.0)
    assert 6 not in followed.gaps


def test_an_id_that_never_comes_is_given_up() -> None:
    """Its change was undone; no change takes so long."""
    followed = Following([change(1)], 0.0)
    followed.saw([change(3)], 5.0)
    followed.saw([change(5)], 6.0)
    followed.forget(4.9 + LATE_S)
    assert followed.gaps == [2, 4]
    followed.forget(5.0 + LATE_S)
    assert followed.gaps == [4]


def test_gaps_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The latest are kept, in whatever steps they open."""
    monkeypatch.setattr(following, "MAX_GAPS", 10)
    followed = Following([change(1)], 0.0)
    followed.saw([change(1_000_000)], 0.0)
    assert followed.gaps == list(range(999_990, 1_000_000))
    followed.saw([change(1_000_004)], 0.0)
    assert followed.gaps == [*range(999_993, 1_000_000), 1_000_001, 1_000_002, 1_000_003]


# Lanes.


def row(nonce: int, state: State = State.PENDING, reason: Reason | None = None) -> Record:
    """An open row."""
    return RECORD._replace(nonce=nonce, state=state, reason=reason)


LANE = untouched(31337, RECORD.sender)


def told(*rows: Record, latest: int | None = 0, pending: int | None = None, paused: bool = False) -> dict[str, Any]:
    """The view, its numbers as numbers."""
    view = lanes.told(LANE._replace(paused=paused), rows, Counts(latest, pending))
    view["missing"] = [(int(one["first"], 16), int(one["last"], 16)) for one in view["missing"]]
    blocked = view["blockedBy"]
    view["blockedBy"] = blocked and (blocked["kind"], int(blocked["nonce"], 16))
    return view


BLOCKED: dict[str, tuple[dict[str, Any], list[tuple[int, int]], tuple[str, int] | None]] = {
    "nothing": (told(), [], None),
    "it goes on": (told(row(0), row(1)), [], None),
    "a gap in front": (told(row(2)), [(0, 1)], ("gap", 0)),
    "two gaps": (told(row(1), row(3), row(6)), [(0, 0), (2, 2), (4, 5)], ("gap", 0)),
    "a gap in the middle": (told(row(0), row(2)), [(1, 1)], ("gap", 1)),
    "the node's pool has it": (told(row(2), latest=0, pending=2), [], None),
    "the node does not say": (told(row(2), latest=None), [], None),
    "only the pool's count": (told(row(2), latest=None, pending=1), [(1, 1)], ("gap", 1)),
    "a dead letter holds it": (told(row(0, State.DEAD_LETTER), row(1)), [(0, 0)], ("dead_letter", 0)),
    "mined rows wait for nothing": (told(row(0, State.MINED), row(1), latest=1), [], None),
    "used, and not yet known to be mined": (told(row(0, reason=Reason.TIMEOUT_IN_POOL), latest=1), [], None),
    "all mined": (told(row(0, State.MINED), latest=1), [], None),
    "paused, with nothing in it": (told(paused=True), [], None),
    "paused before all": (told(row(2), paused=True), [(0, 1)], ("paused", 2)),
    "held": (told(row(0, State.QUEUED, Reason.HELD_FUNDS)), [], ("held", 0)),
    "timeout before a later gap": (told(row(0, reason=Reason.TIMEOUT_DROPPED), row(2)), [(1, 1)], ("timeout", 0)),
    "a note blocks nothing": (told(row(0, reason=Reason.RESENT)), [], None),
    "replacements": (told(row(0), row(0), row(1)), [], None),
}


@pytest.mark.parametrize(("view", "missing", "blocked"), BLOCKED.values(), ids=BLOCKED)
def test_what_is_missing_and_what_blocks(
    view: dict[str, Any], missing: list[tuple[int, int]], blocked: tuple[str, int] | None
) -> None:
    """The reason that stands first: a pause, a gap below, the lowest one's own, a gap above it."""
    assert (view["missing"], view["blockedBy"]) == (missing, blocked)


def test_the_lowest_outstanding_is_what_the_chain_has_to_mine() -> None:
    """Not what it has used, nor a dead letter."""
    rows = (row(0, State.MINED), row(1), row(2, State.DEAD_LETTER), row(3, State.QUEUED))
    assert told(*rows, latest=1)["lowestOutstanding"] == "0x1"
    assert told(*rows, latest=2)["lowestOutstanding"] == "0x3"
    assert told(*rows, latest=4)["lowestOutstanding"] is None
    assert told(*rows, latest=None)["lowestOutstanding"] == "0x1"


def test_a_long_lane_is_cut() -> None:
    """It says that there is more."""
    view = told(*(row(nonce) for nonce in range(MAX_ROWS + 1)))
    assert (len(view["open"]), view["more"]) == (MAX_ROWS, True)
    view = told(*(row(nonce) for nonce in range(MAX_ROWS)))
    assert (len(view["open"]), view["more"]) == (MAX_ROWS, False)


# Subscriptions.


class Ear:
    """A listener that keeps what it hears."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.heard: list[bytes] = []

    def tell(self, text: bytes) -> None:
        self.heard.append(text)


def test_whoever_leaves_is_told_nothing_more() -> None:
    """Not what was found for it before either; one that is gone already never begins."""
    idle: list[int] = []
    all_ = Subscriptions(lambda: idle.append(len(all_)))
    ear, other = Ear(Client()), Ear(Client())
    wanted = Filter(frozenset({RECORD.hash}), frozenset({RECORD.sender}))
    for each in (ear, other):
        assert not isinstance(all_.add(wanted, each), Refusal)
    found = all_.wanting(RECORD)
    assert len(found) == 2
    ear.client.leave()
    tell(found, {"a": 1})
    assert (len(ear.heard), len(other.heard)) == (0, 1)
    all_.add(wanted, ear)
    assert (len(all_), idle) == (1, [])
    other.client.leave()
    assert (len(all_), idle, all_.wanting(RECORD)) == (0, [0], [])


@given(st.binary(max_size=60))
def test_no_params_are_too_odd(text: bytes) -> None:
    """Values, or what is wrong with them."""
    for read in (params.one_hash, params.lane_name, params.subscription, params.one_id):
        with suppress(Invalid):
            read(text)


# GET.

TARGETS: dict[str, str | None] = {
    "/": None,
    "/transactions": None,
    "/transactions/": "",
    "/transactions/0x12?a=b": "0x12",
    "/transactions/0x12#a": "0x12",
    "http://relay.example:80/transactions/0x12": "0x12",
    "/Transactions/0x12": None,
    "/api/transactions/0x12": None,
    "/?/transactions/0x12": None,
    "/transactions/0x12/": "0x12/",
}


@pytest.mark.parametrize(("target", "text"), TARGETS.items())
def test_which_targets_are_questions(target: str, text: str | None) -> None:
    """A path of ours, with or without a query, in any form of HTTP."""
    asked = question(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert (asked is None) == (text is None)
    assert asked is None or asked.hash is None
    assert question(f"HEAD {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode()) == (
        asked and asked._replace(with_body=False)
    )


def test_tags_are_read_from_all_lines() -> None:
    """RFC 9110, 13.1.2: weak or strong, in one line or several."""
    head = b'GET /transactions/0x HTTP/1.1\r\nif-none-match: W/"a", "b"\r\nX: "c"\r\nIf-None-Match:"d"\r\n\r\n'
    asked = question(head)
    assert asked is not None
    assert asked.known == {b'"a"', b'"b"', b'"d"'}
    asked = question(b"GET /transactions/0x HTTP/1.1\r\nIf-None-Match: * \r\n\r\n")
    assert asked is not None
    assert asked.known == {b"*"}
