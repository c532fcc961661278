"""The verdict table: every text that ten clients' sources contain, wrapped, quoted, unknown, huge."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import timeit
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.errors import CATALOGUE, Case
from relay.prechecks import STATEFUL, STATELESS, Check
from relay.telemetry.metrics import DISPOSITIONS
from relay.verdict import CONTRADICTORY, RULES, UNRECOGNISED, Client, Disposition, Rule, Verdict, classify, client_of
from relay.verdict.matching import MAX_READ, Table
from relay.verdict.rule import ANYONE, meaning

ROOT: Final = Path(__file__).parents[1]
DATA: Final = ROOT.parent / "shared" / "data" / "node-errors.jsonl"
DOCS: Final = ROOT / "docs" / "verdicts.md"

needs_data = pytest.mark.skipif(
    not DATA.exists(), reason="the texts of the clients' sources are not beside the project"
)

FILLINGS: Final = (
    {"n": "0", "d": "0.00", "h": "0x00", "s": "x"},
    {"n": "18446744073709551615", "d": "1.50", "h": "0x" + "aB" * 32, "s": "something unforeseen, 7 of it"},
    {"n": "42", "d": "1000000.000000001", "h": "0x" + "0f" * 20, "s": "Prague (4): [a, b]\n\tat line 3"},
)
"""Plausible values for the placeholders: number, decimal, hex, words."""

DECIDING_QUOTES: Final = {
    # geth wraps the signer's reason: behind these words a foreign chain is a meaning of its own.
    "invalid sender": {"invalid chain id for signer"},
    # Nethermind wraps the failed check: a type from a later fork is this node's limit, not the transaction's fault.
    "transaction invalid, ": {"InvalidTxType"},
}
"""The only quotations that decide. No two texts of one client, or of two, are ambiguous with each other."""


def node_texts(client: Client | None = None) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]
    return [row for row in rows if client is None or row["client"] == client]


def filled(template: str, values: dict[str, str]) -> str:
    return re.sub(r"\{(\w)\}", lambda blank: values[blank[1]], template)


def wrong(rows: list[dict[str, Any]], *, client_known: bool) -> list[str]:
    """One line for each text that is not classified as the data says."""
    found = []
    for row in rows:
        for values in FILLINGS:
            text = filled(row["template"], values)
            verdict = classify(text, row["code"], None, Client(row["client"]) if client_known else None)
            if verdict != Verdict(Disposition(row["disposition"]), row["class"]):
                found.append(f"{row['client']}: {text!r} is {row['disposition']}, not {verdict}")
    return found


@needs_data
@pytest.mark.parametrize("client", Client)
def test_each_text_of_a_known_client_has_exactly_its_meaning(client: Client) -> None:
    """With the client known, every template of its sources gets its class and disposition, whatever fills it."""
    rows = node_texts(client)
    assert rows
    assert wrong(rows, client_known=True) == []


@needs_data
def test_each_text_means_the_same_when_the_client_is_unknown() -> None:
    """No text needs its speaker to be understood: no refusal becomes a success, and nothing temporary becomes final."""
    assert wrong(node_texts(), client_known=False) == []


@needs_data
@pytest.mark.parametrize("client", Client)
def test_a_mistaken_client_never_makes_success_or_a_final_refusal(client: Client) -> None:
    """A balancer may mix clients: read as another client's, a text becomes neither in_pool nor refused by mistake."""
    grave = {Disposition.IN_POOL, Disposition.REFUSED}
    for row in node_texts():
        got = classify(filled(row["template"], FILLINGS[1]), client=client).disposition
        assert got == row["disposition"] or got not in grave, (row["template"], got)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.text[:40])
def test_each_row_speaks_for_its_own_sample(rule: Rule) -> None:
    """A row's sample is classified as the row says, by that row: none stands in the shadow of another."""
    assert min(Table(RULES)._matches(rule.sample.lower()))[-1] is rule
    for client in (None, *rule.clients):
        assert classify(rule.sample, client=client) == rule.verdict


def test_no_client_says_one_text_twice() -> None:
    """A text stands once for each client: two meanings for the same words of one client cannot both be true."""
    seen: dict[tuple[str, Client], Rule] = {}
    for rule in RULES:
        for client in rule.clients:
            assert (rule.text.lower(), client) not in seen, rule.text
            seen[rule.text.lower(), client] = rule


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.quotes], ids=lambda rule: rule.text[:40])
def test_quoted_words_decide_nothing(rule: Rule) -> None:
    """What a text quotes (a revert reason, another component's error) is not the node's word on this transaction."""
    head, _, value = rule.text.rpartition("{")
    joint = value[: len(value) - len(value.lstrip(": -"))]
    for quoted in RULES:
        if not quoted.text.startswith(tuple(DECIDING_QUOTES.get(head, ()))):
            for client in (None, *Client):
                verdict = classify(head + joint + quoted.sample, client=client)
                assert verdict == rule.verdict, (quoted.text, client)


@pytest.mark.parametrize(("head", "tails"), DECIDING_QUOTES.items())
def test_the_quotations_that_decide_are_rows_of_their_own(head: str, tails: set[str]) -> None:
    """Each exception to the rule above is still needed: its longer text has a meaning of its own."""
    for tail in tails:
        joint = "" if head.endswith(" ") else ": "
        assert classify(head + joint + tail) != classify(head + joint + "something else")


WRAPPED: Final = (
    ("INTERNAL_ERROR: existing tx with same hash", Disposition.IN_POOL),
    ("rpc error: code = AlreadyExists desc = already known", Disposition.IN_POOL),
    ("server returned an error response: error code -32603: already known", Disposition.IN_POOL),
    ("failed to forward tx to sequencer, please try again. Error message: 'already known'", Disposition.IN_POOL),
    ('ErrorObject { code: ServerError(3), message: "known transaction. transaction with hash 0x60…53 is already in '
     'the system", data: Some(RawValue(0x)) }', Disposition.IN_POOL),
    ("Known transaction (7f65)", Disposition.IN_POOL),
    ("call failed: AlreadyKnown", Disposition.IN_POOL),
    ("alreadyknown", Disposition.IN_POOL),
    ("[Request ID: 2e952947-ffad-408b-aed9-35f3ed152001] Nonce too low. Provided nonce: 15, current nonce: 15",
     Disposition.NONCE_SPENT),
    ("err: nonce too low: address 0x336394A3219e71D9d9bd18201d34E95C1Bb7122C, tx: 5 state: 7 (supplied gas 21000)",
     Disposition.NONCE_SPENT),
    ("transaction rejected: nonce too low", Disposition.NONCE_SPENT),
    ("call failed: OldNonce, Current nonce: 22, nonce of rejected tx: 17", Disposition.NONCE_SPENT),
    ("FAILED: REPLACEMENT TRANSACTION UNDERPRICED", Disposition.SLOT_TAKEN),
    ("FeeTooLow, EffectivePriorityFeePerGas too low 10 < 20, BaseFee: 30", Disposition.REPRICE),
    ("insufficient funds for gas * price + value + gatewayFee", Disposition.FUNDS),
    ("tx fee (1.10 FTM) exceeds the configured cap (1.00 FTM)", Disposition.REFUSED_HERE),
    ("[Request ID: 9dd78806] Error invoking RPC: transaction 0.0.3041916@1717691931.680570179 failed precheck with "
     "status INSUFFICIENT_PAYER_BALANCE", Disposition.UNCERTAIN),
    ("call failed: 502 Bad Gateway: <html>\r\n<head><title>502 Bad Gateway</title></head>\r\n", Disposition.UNCERTAIN),
    ("503 Service Temporarily Unavailable", Disposition.UNCERTAIN),
    ("<html><head><title>504 Gateway Time-out</title></head><body></body></html>", Disposition.UNCERTAIN),
    ("Post \"http://10.0.0.7:8545\": dial tcp 10.0.0.7:8545: i/o timeout", Disposition.UNCERTAIN),
    ("Internal error", Disposition.UNCERTAIN),
    ("sender is over rate limit", Disposition.NOT_NOW),
    ("429 Too Many Requests", Disposition.NOT_NOW),
    ("daily request count exceeded, request rate limited", Disposition.NOT_NOW),
    ("the method eth_sendRawTransaction does not exist/is not available", Disposition.REFUSED_HERE),
    ("VM Exception while processing transaction: reverted with reason string 'already known'", Disposition.UNCERTAIN),
    ("invalid argument 0: json: cannot unmarshal hex string of odd length into Go value of type hexutil.Bytes",
     Disposition.REFUSED),
    ("rlp: expected input list for types.LegacyTx", Disposition.REFUSED),
    ("transaction type not supported: received type 5", Disposition.REFUSED_HERE),
)  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), WRAPPED)
def test_a_wrapper_does_not_hide_the_nodes_words(text: str, expected: Disposition) -> None:
    """Proxies put prefixes, request ids, quotes and pages around a node's answer; it is recognised inside them."""
    assert classify(text).disposition is expected


@pytest.mark.parametrize(
    "text",
    [
        "unknown transaction", "unknown transaction type 5", "block already known", "not already known",
        "already known to be invalid", "is this a known transaction or not", "alreadyknownnot", "existing tx",
        "execution reverted: already known", "Error invoking RPC: already known", "OwnNonceAlreadyUsed",
        "Mirror node upstream failure: statusCode=500, message=transaction already imported",
        "failed to validate the transaction. reason: known transaction",
        "nonce too low; already known", "", " ", "success", "0x" + "ab" * 32,
    ],
)  # fmt: skip
def test_success_is_never_guessed(text: str) -> None:
    """Neither part of a word, nor part of a sentence, nor a quotation, nor silence, makes a transaction taken."""
    for client in (None, *Client):
        assert classify(text, -32000, None, client).disposition is not Disposition.IN_POOL


@pytest.mark.parametrize(
    "text",
    [
        "all upstreams failed: [nonce too low, context deadline exceeded]",
        "node a: insufficient funds; node b: 502 Bad Gateway",
        "already known / transaction underpriced",
        "rate limit exceeded; timeout",
        "Transaction gas price is 1, which is below the minimum of 7; timed out",
    ],
)
def test_statements_that_disagree_prove_nothing(text: str) -> None:
    """One message in which several nodes speak, and not alike, is uncertain: one of them may have the transaction."""
    assert classify(text) == CONTRADICTORY
    assert CONTRADICTORY.disposition is Disposition.UNCERTAIN


def test_statements_that_agree_are_one() -> None:
    """Two nodes that refuse for reasons of the same kind have refused."""
    assert classify("a: nonce too low; b: OldNonce").disposition is Disposition.NONCE_SPENT


def test_a_text_over_which_clients_disagree_needs_its_speaker() -> None:
    """Where one text means success to one client and refusal to another, only the known client decides."""
    taken, refused = (
        meaning(Disposition.IN_POOL, "a", ("geth", "seen")),
        meaning(Disposition.REFUSED, "b", ("besu", "seen")),
    )
    table = Table(taken + refused)
    assert table.read("seen", Client.GETH) == taken[0].verdict
    assert table.read("seen", Client.BESU) == refused[0].verdict
    assert table.read("seen", None) == table.read("seen", Client.RETH) == CONTRADICTORY


def test_a_known_client_is_read_by_its_own_rows_first() -> None:
    """Another client's longer text does not take the word from the one that speaks."""
    rules = meaning(Disposition.NOT_NOW, "a", ("geth", "pool busy")) + meaning(
        Disposition.REFUSED, "b", ("besu", "pool busy for ever")
    )
    assert Table(rules).read("pool busy for ever", Client.GETH).disposition is Disposition.NOT_NOW
    assert Table(rules).read("pool busy for ever", None).disposition is Disposition.REFUSED


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("gas 5 above 3 cap", True), ("GAS 5 above 3 CAP!", True), ("[gas  above  cap]", True),
        ("1 cap 3 above 5 gas 7", False), ("gas 5 cap above", False), ("gas cap", False),
        ("gas 5 above 3 cap, capped", True), ("cap: gas 5 above 3 caps", False), ("gas: biogas 5 above 3 cap", False),
    ],
)  # fmt: skip
def test_a_row_is_found_by_whole_words_in_its_order(text: str, *, matches: bool) -> None:
    """What stands between the blanks must appear word for word and in order; case and surroundings do not matter."""
    table = Table(meaning(Disposition.REFUSED, "cap", ("geth", "Gas {5} above {3} cap")))
    assert (table.read(text, None) is not UNRECOGNISED) is matches


NOTHING_SENT: Final = {
    "queue_full", "waited_too_long", "at_capacity", "too_much_waiting", "ordering_unavailable", "lanes_unavailable",
    "nonce_gap", "internal", "upstream_unreachable", "draining", "http_timeout", "too_many_connections",
    "journal_unavailable",
}  # fmt: skip
NOBODY_KNOWS: Final = {"outcome_unknown", "upstream_timeout", "upstream_unusable", "receipt_timeout", "key_closed"}
BARE: Final = {"rejected", "invalid_params"}


def own_text(case: Case, detail: str) -> str:
    """A text of our own catalogue with its blanks filled."""
    return re.sub(r"\{(\w+)[^{}]*\}", lambda blank: detail if blank[1] == "detail" else "7", case.text)


@pytest.mark.parametrize("case", [case for name, case in CATALOGUE.items() if name not in BARE], ids=lambda c: c.name)
def test_a_relay_behind_the_relay_is_understood(case: Case) -> None:
    """Each text of our own catalogue is classified, whatever it quotes, and whichever client stands at the end.

    Where nothing was sent it is not_now, where nobody knows it is uncertain; the rest is one endpoint's way with
    requests.
    """
    expected = Disposition.REFUSED_HERE
    if case.name in NOTHING_SENT | NOBODY_KNOWS:
        expected = Disposition.NOT_NOW if case.name in NOTHING_SENT else Disposition.UNCERTAIN
    for detail in ("7", "already known", "nonce too low: next nonce 9, tx nonce 5", "timed out"):
        for client in (None, *Client):
            assert classify(own_text(case, detail), case.code, None, client).disposition is expected


@pytest.mark.parametrize("check", [*STATELESS, *STATEFUL], ids=lambda check: check.name)
def test_the_prechecks_of_another_relay_are_understood(check: Check[Any]) -> None:
    """What a relay refuses before it asks its node is a refusal to the relay in front of it, too."""
    text = re.sub(r"\{\w+\}", "7", check.text)
    proven = set(Disposition) - {Disposition.IN_POOL, Disposition.UNCERTAIN, Disposition.UNRECOGNISED}
    for client in (None, *Client):
        assert classify(text, -32000, None, client).disposition in proven


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.just("message") | st.text(), inner, max_size=3),
    max_leaves=8,
)
pieces = st.lists(
    st.sampled_from([rule.sample for rule in RULES])
    | st.text()
    | st.sampled_from([" ", ": ", "; ", "\n", "x", "{", "}"]),
    max_size=6,
).map("".join)
clients = st.none() | st.sampled_from(list(Client))


@given(message=pieces, code=st.none() | st.integers(), data=json_values, client=clients)
def test_every_answer_has_a_verdict(message: str, code: int | None, data: object, client: Client | None) -> None:
    """Any text, code and data give a verdict, and the code changes nothing."""
    verdict = classify(message, code, data, client)
    assert isinstance(verdict, Verdict)
    assert verdict == classify(message, None, data, client)


@given(rule=st.sampled_from(RULES), before=st.text("[]{}()<>'\"=:;,. \n0123456789", max_size=30))
def test_punctuation_and_numbers_around_a_text_change_nothing(rule: Rule, before: str) -> None:
    """Whatever brackets, quotes and ids a proxy puts in front, the verdict is that of the bare text."""
    assert classify(f"{before}: {rule.sample}") == rule.verdict


@pytest.mark.parametrize("code", [-32000, -32003, -32005, -32009, -32010, -32602, -32603, 3, 4, None])
@pytest.mark.parametrize("text", ["", "foo", "Transaction rejected", "error"])
def test_what_no_row_knows_is_unrecognised(text: str, code: int | None) -> None:
    """No code says enough on its own, and an empty message says nothing."""
    for client in (None, *Client):
        assert classify(text, code, None, client) is UNRECOGNISED


def test_data_speaks_only_where_the_message_is_silent() -> None:
    """A node's words under ``data`` or ``data.message`` count if the message says nothing, and never against it."""
    assert classify("upstream said no", data="nonce too low").reason == "nonce_too_low"
    assert classify("upstream said no", data={"message": "nonce too low"}).reason == "nonce_too_low"
    assert classify("upstream said no", data={"text": "nonce too low"}) is UNRECOGNISED
    assert classify("Internal error", data="nonce too low").disposition is Disposition.UNCERTAIN


def test_nonce_refusals_ask_for_a_fresh_count() -> None:
    """Refusals that contradict what the lane believes about the next nonce say so; others do not."""
    for text in ("nonce too low", "INTERNAL_ERROR: mined", "Nonce too high", "NonceGap", "nonce too far in future",
                 "An invalid transaction with a lower nonce exists", "delegation nonce gap"):  # fmt: skip
        assert classify(text).about_nonce
    for text in ("insufficient funds", "already known", "nonce has max value", "txpool is full", "timeout", "foo"):
        assert not classify(text).about_nonce


@pytest.mark.parametrize(
    ("version", "client"),
    [
        ("Geth/v1.17.6-unstable-02b73d4/linux-amd64/go1.26", Client.GETH),
        ("Geth/validator-7/v1.16.1-stable/linux-amd64/go1.24.4", Client.GETH),
        ("reth/v1.9.3-abc/x86_64-unknown-linux-gnu", Client.RETH),
        ("Nethermind/v1.35.0+9d4ab4/linux-x64/dotnet9.0.10", Client.NETHERMIND),
        ("besu/v25.11.0/linux-x86_64/openjdk-java-21", Client.BESU),
        ("erigon/3.2.1/linux-amd64/go1.24.7", Client.ERIGON),
        ("anvil/v1.7.1", Client.ANVIL),
        ("HardhatNetwork/2.26.3/@nomicfoundation/edr/0.11.3", Client.HARDHAT),
        ("nitro/v3.7.4-1d0d0a3/linux-amd64/go1.25.0", Client.ARBITRUM),
        ("zkSync/v2.0", Client.ZKSYNC),
        ("relay/0.72.0", Client.HEDERA_RELAY),
        ("OpenEthereum//v3.3.5-stable/x86_64-linux-musl/rustc1.58.0", None),
        ("my geth/1", None),
        ("", None),
        ("/", None),
    ],
)
def test_the_client_is_known_by_its_version(version: str, client: Client | None) -> None:
    """The first part of web3_clientVersion names the client; anything else is nobody we know."""
    assert client_of(version) is client


def test_every_disposition_has_its_metric() -> None:
    """The metric's closed label set is the dispositions, and "accepted" for an answer without an error."""
    assert set(DISPOSITIONS) == {"accepted", *Disposition}


def microseconds(text: str, client: Client | None = None) -> float:
    """The best time of one classification."""
    count = 200 if len(text) < 10_000 else 5
    return min(timeit.repeat(lambda: classify(text, -32000, None, client), number=count, repeat=15)) / count * 1e6


@pytest.mark.parametrize(
    "text", ["already known", "nonce too low: next nonce 9, tx nonce 5", "replacement transaction underpriced"]
)
def test_common_answers_cost_next_to_nothing(text: str) -> None:
    """3 to 5 µs on a quiet core; the bound leaves room for a busy one."""
    assert microseconds(text) < 25
    assert microseconds(text, Client.GETH) < 25


def test_long_answers_cost_no_more_than_their_head() -> None:
    """A page that no row knows takes some 50 µs, and a megabyte no longer than that."""
    page = "<p class=x>some paragraph of text in a page</p>" * 50
    assert classify(page) is UNRECOGNISED
    assert microseconds(page) < 250
    for unit in ("nonce too ", "transaction ", "a", "_nonce too low", "{", "x y "):
        assert microseconds(unit * (1_000_000 // len(unit))) < 1_000
    assert classify(" " * (MAX_READ + 1) + "already known") is UNRECOGNISED


IMPORT: Final = """
import collections, functools, json, sys, time, tracemalloc
import relay.errors
tracemalloc.start() if sys.argv[1] == "memory" else None
begin = time.perf_counter()
import relay.verdict
print(json.dumps([
    time.perf_counter() - begin,
    tracemalloc.get_traced_memory()[1] if tracemalloc.is_tracing() else 0,
    sorted(set(sys.modules) & {"asyncio", "aiohttp", "redis", "structlog", "relay.telemetry"}),
]))
"""


def test_importing_is_cheap_and_pure(tmp_path: Path) -> None:
    """The import costs a few milliseconds and less than 2 MB, and brings no loop, no network and no log with it."""
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def once(what: str) -> Any:
        run = [sys.executable, "-c", IMPORT, what]
        return json.loads(subprocess.run(run, env=environment, check=True, capture_output=True).stdout)

    _, memory, impure = once("memory")
    assert impure == []
    assert memory < 2_000_000
    assert min(once("time")[0] for _ in range(5)) < 0.015


def table_of(rules: tuple[Rule, ...]) -> list[str]:
    """The table of ``docs/verdicts.md``."""
    lines = ["| text | said by | reason | disposition |", "|---|---|---|---|"]
    for rule in rules:
        said_by = ANYONE if len(rule.clients) == len(Client) else ", ".join(sorted(rule.clients))
        text = f"`` {rule.text} ``" if "`" in rule.text else f"`{rule.text}`"
        lines.append(f"| {text} | {said_by} | {rule.verdict.reason} | {rule.verdict.disposition} |")
    return lines


def test_the_document_shows_the_table() -> None:
    """docs/verdicts.md has every row, in order, every disposition, and nothing else."""
    document = DOCS.read_text("utf-8")
    shown = [line for line in document.splitlines() if line.count("|") == 5]
    assert shown == table_of(RULES)
    assert all(f"| `{disposition}` |" in document for disposition in Disposition)
