"""Webhooks, the pure part: settings, signatures, bodies, when to try again."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.config import ConfigFault, changed, check, secret_bytes
from relay.journal.records import Event, Notice, Receipt, ReceiptSeen, Record
from relay.lifecycle import Mode, Reason, State
from relay.webhooks import payload
from relay.webhooks.backoff import FIRST_S, GIVE_UP_S, LONGEST_S, asked_for_s, delay_s
from relay.webhooks.receiver import receiver_name
from relay.webhooks.signing import signed_headers

JOURNAL = {"journal": {"url": "sqlite:///journal.db"}}
SECRET = "whsec_" + base64.b64encode(bytes(range(24))).decode()
NOW_S = 1_764_547_200


def webhooks(**keys: Any) -> dict[str, Any]:
    """Tables with a journal."""
    return JOURNAL | {"webhooks": {"secret": SECRET} | keys}


# Settings


def test_receivers_need_a_journal_and_a_secret() -> None:
    """Only what is kept can be told, and only what is signed can be trusted."""
    urls = ["https://u:pw@one.example/a", "http://two.example:8080"]
    assert check(webhooks(urls=urls)).webhooks.urls == tuple(urls)
    with pytest.raises(ConfigFault, match=r"^webhooks\.secret: is missing"):
        check(JOURNAL | {"webhooks": {"urls": urls}})
    with pytest.raises(ConfigFault, match=r"^webhooks\.urls: .* set journal\.url"):
        check({"webhooks": {"urls": urls, "secret": SECRET}})


@pytest.mark.parametrize(
    ("urls", "words"),
    [
        (["ftp://h/x"], "is not a URL of the form"),
        (["h/x"], "has no scheme"),
        (["http://h/#x"], "without spaces, quotes and #"),
        (["http://h/x", "http://h/x"], "holds http://h/*** twice"),
    ],
)
def test_urls_that_cannot_be_posted_to_are_refused(urls: list[str], words: str) -> None:
    """At the start, in words, without paths."""
    with pytest.raises(ConfigFault) as fault:
        check(webhooks(urls=urls))
    assert str(fault.value).startswith("webhooks.urls: ")
    assert words in str(fault.value)


@pytest.mark.parametrize("secret", ["short", "whsec_c2hvcnQ=", "whsec_not base64 at all, is it"])
def test_a_secret_that_protects_nothing_is_refused(secret: str) -> None:
    """Too short, or not what its prefix says; it is not shown."""
    with pytest.raises(ConfigFault) as fault:
        check({"webhooks": {"secret": secret}})
    assert str(fault.value).startswith("webhooks.secret: ")
    assert secret not in str(fault.value)


def test_a_secret_is_base64_behind_its_prefix_or_the_text_itself() -> None:
    """As Standard Webhooks say, and for whoever has only a text."""
    assert secret_bytes(SECRET) == bytes(range(24))
    assert secret_bytes("a secret of a team") == b"a secret of a team"


def test_nothing_that_is_shown_holds_a_secret() -> None:
    """Paths and users of the URLs, and the secret."""
    settings = check(webhooks(urls=["https://user:pw@one.example/h00k"]))
    shown = repr(settings) + "".join(text for _, text in changed(settings))
    assert "https://***@one.example/***" in shown
    assert not re.search(rf"user|pw|h00k|{re.escape(SECRET)}", shown)


# Signatures


def test_the_signature_is_that_of_the_standard() -> None:
    """The example of the specification's own libraries."""
    key = secret_bytes("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signed_headers(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


# Bodies


def notice(state: State = State.PENDING, *, version: int = 3, now: State = State.PENDING, at: int = 3) -> Notice:
    """A change to ``state`` at ``version`` of a transaction that stands in ``now`` at version ``at``."""
    record = Record(
        7, 1, b"\xaa" * 20, 5, b"\x11" * 32, "eth_sendRawTransaction", Mode.VERDICT, NOW_S * 1000, now,
        None, "words of the node at http://node", None, at, 9, 1, 1, 1, NOW_S * 1000 + 2000,
    )  # fmt: skip
    event = Event(42, 7, State.SENT, state, Reason.RESENT, "words", "one", 9, version, NOW_S * 1000 + 123)
    return Notice(event, record, 1)


def test_a_body_has_the_change_and_the_public_view() -> None:
    """Every field of the page; nothing about nodes, people, leases."""
    value = json.loads(payload.body(notice()))
    page = (Path(__file__).parents[1] / "docs" / "journal.md").read_text("utf-8").split("## Tell")[1].split("\n## ")[0]
    assert [f"`{key}`" for key in value] == re.findall(r"^\| (`\w+`) \|", page, re.MULTILINE)
    example = json.loads(re.search(r"^    \{\n.*?^    \}", page, re.MULTILINE | re.DOTALL)[0])  # type: ignore[index]
    assert value.keys() == example.keys()
    assert value["transaction"].keys() == example["transaction"].keys()
    assert {key: value[key] for key in ("id", "type", "at", "version", "origin")} == {
        "id": "evt_1764547200123_42",
        "type": "transaction.state",
        "at": "2025-12-01T00:00:00.123Z",
        "version": 3,
        "origin": "sent",
    }


def test_a_body_shows_the_transaction_as_the_change_left_it() -> None:
    """Also when it has gone on: a delivery that is made again says the same."""
    early, late = notice(), notice(now=State.COMPLETED, at=6)
    one, two = json.loads(payload.body(early)), json.loads(payload.body(late))
    assert two["transaction"]["state"] == "pending"
    assert two["transaction"]["subStatus"]["reason"] == "resent"
    assert two["transaction"]["since"] == "2025-12-01T00:00:00.123Z"
    assert one["id"] == two["id"]


def test_a_body_of_a_mined_one_says_where() -> None:
    """By the newest receipt."""
    seen = [ReceiptSeen(Receipt(7, number, bytes([number]) * 32, 1, "node"), 0) for number in (8, 9)]
    transaction = json.loads(payload.body(notice(State.MINED, now=State.MINED), seen))["transaction"]
    assert (transaction["blockNumber"], transaction["status"]) == ("0x9", "0x1")


def test_a_receivers_name_says_nothing_and_follows_the_url() -> None:
    """It stands in the journal, where a URL's secrets have no place."""
    assert receiver_name("https://h/secret") == receiver_name("https://h/secret") != receiver_name("https://h/other")
    assert re.fullmatch(r"[0-9a-f]{16}", receiver_name("https://h/secret"))


# When


@given(tries=st.integers(1, 10_000), chance=st.floats(0, 1, exclude_max=True))
def test_delays_double_up_to_an_hour(tries: int, chance: float) -> None:
    """A quarter more or less."""
    plain = min(LONGEST_S, FIRST_S * 2 ** min(tries - 1, 30))
    assert 0.75 * plain <= delay_s(tries, chance) <= 1.25 * plain


def test_a_day_has_some_thirty_tries() -> None:
    """Many at first, then one an hour."""
    at, tries = 0.0, 0
    while at < GIVE_UP_S:
        tries += 1
        at += delay_s(tries, 0.5)
    assert 25 < tries < 40


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, 0), ("", 0), ("soon", 0), ("-5", 0), ("1.5", 0), ("²", 0), ("0", 0), (" 120 ", 120),
        ("9" * 400, GIVE_UP_S), ("Mon, 01 Dec 2025 00:01:00 GMT", 60), ("Mon, 01 Dec 2025 00:01:00 -0000", 60),
        ("Sun, 30 Nov 2025 00:00:00 GMT", 0), ("Fri, 01 Dec 2090 00:00:00 GMT", GIVE_UP_S),
    ],
)  # fmt: skip
def test_retry_after_is_seconds_or_a_date(text: str | None, seconds: float) -> None:
    """What cannot be read is no wish; a day is the most."""
    assert asked_for_s(text, NOW_S) == seconds


@given(st.text(max_size=40))
def test_no_retry_after_breaks_anything(text: str) -> None:
    """It is a stranger's text."""
    assert 0 <= asked_for_s(text, NOW_S) <= GIVE_UP_S
