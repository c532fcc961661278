"""Each check at its limit and one beyond, their order, and all of them against the public records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pytest

from relay.config import Prechecks
from relay.gas import FORKS, LENIENT
from relay.prechecks import STATEFUL, STATELESS, Check, Policy, View, stateful, stateless
from relay.transaction import AccessList, SignedTransaction, Span, Undecodable, decode

if TYPE_CHECKING:
    from collections.abc import Iterator

CORPORA: Final = Path(__file__).parents[2] / "shared" / "corpora"
needs_corpora = pytest.mark.skipif(not CORPORA.is_dir(), reason="the public records are not beside the project")

ME: Final = b"\x11" * 20
OTHER: Final = b"\x22" * 20
MAX: Final = 2**256 - 1

PLAIN: Final = SignedTransaction(
    raw=b"\x01" * 100, type=2, chain_id=1, sender_bytes=ME, hash="0x", nonce=7, gas=1_000_000, to=OTHER, value=0,
    data_span=Span(0, 0), high_s=False, max_fee_per_gas=100, max_priority_fee_per_gas=10,
)  # fmt: skip
LEGACY: Final = msgspec.structs.replace(
    PLAIN, type=0, gas_price=100, max_fee_per_gas=None, max_priority_fee_per_gas=None
)
SET_CODE: Final = msgspec.structs.replace(PLAIN, type=4, authorizations=1)


def like(base: SignedTransaction, **changes: Any) -> SignedTransaction:
    return msgspec.structs.replace(base, **changes)


def sized(length: int, base: SignedTransaction = PLAIN, **changes: Any) -> SignedTransaction:
    """A transaction with ``length`` bytes of data, none of them zero."""
    return like(base, raw=b"\x01" * length, data_span=Span(0, length), **changes)


def policy(chain_id: int | None = 1, rules: str | None = "osaka", **prechecks: Any) -> Policy:
    return Policy(Prechecks(**prechecks), chain_id, FORKS[rules] if rules else None)


def said(transaction: SignedTransaction, held_to: Policy) -> str | None:
    refused = stateless(transaction, held_to)
    return None if refused is None else refused.message


class Case(NamedTuple):
    """``passes`` stands exactly at the limit, ``refused`` one beyond it."""

    check: str
    policy: Policy
    passes: SignedTransaction
    refused: SignedTransaction
    text: str


NO_VALUE_LEFT: Final = MAX - PLAIN.gas * PLAIN.fee_cap

CASES: Final = (
    Case("unprotected", policy(allow_unprotected=False), LEGACY, like(LEGACY, chain_id=None),
         "only replay-protected (EIP-155) transactions allowed over RPC"),
    Case("type", policy(allow_types=(0, 2)), PLAIN, like(PLAIN, type=1),
         "transaction type not supported: received type 1"),
    Case("size", policy(max_tx_bytes=100), PLAIN, like(PLAIN, raw=b"\x01" * 101),
         "oversized data: transaction size 101, limit 100"),
    Case("initcode", policy(), sized(49_152, to=None, gas=3_000_000), sized(49_153, to=None, gas=3_000_000),
         "max initcode size exceeded: code size 49153 limit 49152"),
    Case("gas_cap", policy(), like(PLAIN, gas=16_777_216), like(PLAIN, gas=16_777_217),
         "transaction gas limit too high (cap: 16777216, tx: 16777217)"),
    Case("max_gas", policy(max_gas=1_000_000), PLAIN, like(PLAIN, gas=1_000_001),
         "transaction gas limit too high (cap: 1000000, tx: 1000001), set by [prechecks] max_gas"),
    Case("priority_fee", policy(), like(PLAIN, max_priority_fee_per_gas=100), like(PLAIN, max_priority_fee_per_gas=101),
         "max priority fee per gas higher than max fee per gas"),
    Case("chain_id", policy(chain_id=1), PLAIN, like(PLAIN, chain_id=2),
         "invalid sender: invalid chain id for signer: have 2 want 1"),
    Case("high_s", policy(), PLAIN, like(PLAIN, high_s=True), "invalid sender: invalid transaction v, r, s values"),
    Case("max_nonce", policy(), like(PLAIN, nonce=2**64 - 2), like(PLAIN, nonce=2**64 - 1), "nonce has max value"),
    Case("cost", policy(), like(PLAIN, value=NO_VALUE_LEFT), like(PLAIN, value=NO_VALUE_LEFT + 1),
         "insufficient funds for gas * price + value"),
    Case("intrinsic_gas", policy(), like(PLAIN, gas=21_000), like(PLAIN, gas=20_999),
         "intrinsic gas too low: gas 20999, minimum needed 21000"),
    Case("floor_gas", policy(), sized(100, gas=25_000), sized(100, gas=24_999),
         "insufficient gas for floor data gas cost: gas 24999, minimum needed 25000"),
    Case("gas_price", policy(min_gas_price_wei=100), LEGACY, like(LEGACY, gas_price=99),
         "transaction gas price below minimum: gas fee cap 99, minimum needed 100"),
    Case("set_code_creation", policy(), SET_CODE, like(SET_CODE, to=None),
         "EIP-7702 transaction cannot be used to create contract"),
    Case("authorization", policy(), SET_CODE, like(SET_CODE, authorizations=0),
         "set code tx must have at least one authorization tuple"),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.check)
def test_each_check_at_its_limit_and_beyond(case: Case) -> None:
    """At the limit a transaction passes; one beyond it is refused in geth's words, with code -32000."""
    assert stateless(case.passes, case.policy) is None
    refused = stateless(case.refused, case.policy)
    assert refused is not None
    assert (refused.message, refused.code, refused.data) == (case.text, -32000, None)


def test_every_stateless_check_has_its_case() -> None:
    """No check is untried, and each case is about the check it names: no earlier row refuses it."""
    assert [case.check for case in CASES] == [check.name for check in STATELESS]
    for case in CASES:
        finding = (check.name for check in STATELESS if check.find(case.refused, case.policy) is not None)
        assert next(finding) == case.check


STRICT: Final = Policy(
    Prechecks(
        allow_unprotected=False, allow_types=(0, 2, 4), max_tx_bytes=100_000, max_gas=20_000_000, min_gas_price_wei=1
    ),
    1,
    FORKS["osaka"],
)  # fmt: skip

DEFECTS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("unprotected", {"chain_id": None}),
    ("type", {"type": 3}),
    ("size", {"raw": b"\x01" * 100_001}),
    ("initcode", {"to": None, "data_span": Span(0, 49_153)}),
    ("gas_cap", {"gas": 16_777_217}),
    ("max_gas", {"gas": 20_000_001}),
    ("priority_fee", {"max_priority_fee_per_gas": MAX}),
    ("chain_id", {"chain_id": 5}),
    ("high_s", {"high_s": True}),
    ("max_nonce", {"nonce": 2**64 - 1}),
    ("cost", {"value": MAX}),
    ("intrinsic_gas", {"gas": 20_999}),
    ("floor_gas", {"gas": 21_001, "data_span": Span(0, 1)}),
    ("gas_price", {"max_fee_per_gas": 0, "max_priority_fee_per_gas": 0}),
    ("set_code_creation", {"to": None, "type": 4}),
    ("authorization", {"authorizations": 0, "type": 4}),
)


def test_of_two_defects_the_earlier_is_named() -> None:
    """Any two defects that can stand together are answered with the text of the row that comes first."""
    pairs = 0
    for index, (first, one) in enumerate(DEFECTS):
        for later, other in DEFECTS[index + 1 :]:
            both = like(PLAIN, **(other | one))
            found = [check.name for check in STATELESS if check.find(both, STRICT) is not None]
            if {first, later} <= set(found):
                pairs += 1
                refused = stateless(both, STRICT)
                assert refused is not None
                row = next(check for check in STATELESS if check.name == found[0])
                blanks = row.find(both, STRICT)
                assert blanks is not None
                assert refused == row.refusal(blanks)
                assert found.index(first) < found.index(later)
    assert pairs > 60


@pytest.mark.parametrize(
    ("transaction", "text"),
    [
        (like(LEGACY, chain_id=None, gas=0), "only replay-protected"),
        (sized(49_153, to=None, gas=2**60), "max initcode size exceeded"),
        (like(PLAIN, gas=2**60, chain_id=9), "transaction gas limit too high (cap: 16777216"),
        (like(PLAIN, max_priority_fee_per_gas=101, chain_id=9), "max priority fee"),
        (like(PLAIN, chain_id=9, high_s=True), "invalid sender: invalid chain id"),
        (like(PLAIN, high_s=True, nonce=2**64 - 1), "invalid sender: invalid transaction"),
        (like(PLAIN, nonce=2**64 - 1, value=MAX), "nonce has max value"),
        (like(PLAIN, value=MAX, gas=1), "insufficient funds"),
        (sized(100, gas=1), "intrinsic gas too low"),
        (like(SET_CODE, to=None, authorizations=0), "EIP-7702 transaction cannot"),
    ],
)
def test_the_order_is_geths(transaction: SignedTransaction, text: str) -> None:
    """Where geth checks two things one after the other, so do we."""
    assert (said(transaction, policy(allow_unprotected=False)) or "").startswith(text)


def test_what_is_not_known_refuses_nothing() -> None:
    """Without a chain id and without gas rules nothing is refused for them; limits of 0 are off."""
    odd = sized(200_000, to=None, chain_id=99, gas=1)
    assert stateless(odd, Policy(Prechecks(), None, None)) is None


def test_an_unprotected_transaction_belongs_to_every_chain() -> None:
    """A legacy transaction without a chain id is not of another chain, and is allowed unless the setting forbids it."""
    assert stateless(like(LEGACY, chain_id=None), policy(chain_id=5)) is None


def test_blobs_count_towards_the_cost() -> None:
    """EIP-4844: the most that a blob transaction costs includes its blob gas at its highest price."""
    blob = like(PLAIN, type=3, blob_hashes=1, max_fee_per_blob_gas=(MAX - PLAIN.gas * 100) // 131_072)
    assert stateless(blob, policy()) is None
    assert said(like(blob, blob_hashes=2), policy()) == "insufficient funds for gas * price + value"


# --- stateful --------------------------------------------------------------------------------------------------------

COST: Final = PLAIN.gas * 100


@pytest.mark.parametrize(
    ("at_the_limit", "beyond", "settings", "text"),
    [
        (View(latest_nonce=7), View(latest_nonce=8), {}, "nonce too low: next nonce 8, tx nonce 7"),
        (View(balance=COST), View(balance=COST - 1), {"balance": True},
         f"insufficient funds for gas * price + value: balance {COST - 1}, tx cost {COST}, overshot 1"),
    ],
    ids=["nonce", "balance"],
)  # fmt: skip
def test_each_stateful_check_at_its_limit_and_beyond(
    at_the_limit: View, beyond: View, settings: dict[str, Any], text: str
) -> None:
    """A nonce that is next and a balance that just suffices pass; one less is refused in geth's words."""
    assert stateful(PLAIN, at_the_limit, policy(**settings)) is None
    refused = stateful(PLAIN, beyond, policy(**settings))
    assert refused is not None
    assert (refused.message, refused.code) == (text, -32000)


def test_a_spent_nonce_is_named_before_an_empty_account() -> None:
    """geth's order: the nonce first."""
    refused = stateful(PLAIN, View(latest_nonce=8, balance=0), policy(balance=True))
    assert refused is not None
    assert refused.message.startswith("nonce too low")


@pytest.mark.parametrize(
    ("view", "settings"),
    [
        (View(), {"balance": True}),
        (View(latest_nonce=8), {"nonce": False}),
        (View(balance=0), {}),
    ],
    ids=["not known", "nonce off", "balance off by default"],
)
def test_no_evidence_refuses_nothing(view: View, settings: dict[str, Any]) -> None:
    """What was not read afresh, or is switched off, refuses nothing."""
    assert stateful(PLAIN, view, policy(**settings)) is None


def test_rows_can_be_listed() -> None:
    """Each row has a name of its own and says when it refuses, for the documentation."""
    rows: tuple[Check[Any], ...] = (*STATELESS, *STATEFUL)
    assert len({row.name for row in rows}) == len(rows)
    assert all(row.when and row.text for row in rows)


# --- the public records ----------------------------------------------------------------------------------------------

_LEGACY_FORKS: Final = ("EIP150", "EIP158", "Byzantium", "Constantinople", "ConstantinopleFix")
RULES_OF: Final[dict[str, tuple[str, tuple[int, ...]]]] = {
    "Frontier": ("frontier", (0,)),
    "Homestead": ("homestead", (0,)),
    **dict.fromkeys(_LEGACY_FORKS, ("homestead", (0,))),
    "Istanbul": ("istanbul", (0,)),
    "Berlin": ("berlin", (0, 1)),
    "London": ("berlin", (0, 1, 2)),
    "Paris": ("berlin", (0, 1, 2)),
    "Shanghai": ("shanghai", (0, 1, 2)),
    "Cancun": ("shanghai", (0, 1, 2, 3)),
    "Prague": ("prague", (0, 1, 2, 3, 4)),
    "Osaka": ("osaka", (0, 1, 2, 3, 4)),
}
"""A fork of the records → the row of our gas rules and the types that it has."""


def records(name: str) -> Iterator[dict[str, Any]]:
    with (CORPORA / f"{name}.jsonl").open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def judged(raw: bytes, fork: str) -> str | None:
    """Why ``raw`` is refused on chain 1 under the rules of ``fork``, by the decoder or a stateless check, if it is."""
    row, types = RULES_OF[fork]
    try:
        transaction = decode(raw)
    except Undecodable as error:
        return str(error)
    return said(transaction, Policy(Prechecks(allow_types=types), 1, FORKS[row]))


def _is_protected(record: dict[str, Any]) -> bool:
    return decode(bytes.fromhex(record["txbytes"][2:])).chain_id is not None


def not_ours(record: dict[str, Any], fork: str, reason: str | None) -> bool:
    """May our verdict on a record differ from the record's? These are all the reasons."""
    if fork == "Frontier" and reason == "invalid sender: invalid transaction v, r, s values":
        return True  # Frontier took a high s; every node today refuses it, and so do we under any rules
    if fork == "Frontier" and record.get("historic", "9") < "2015-07-30":
        return True  # from before Frontier began, when a transaction cost 500 gas
    if reason == "insufficient funds for gas * price + value":
        return "historic" in record  # state: earlier editions did not look at what gas times price comes to
    # Chain id: the first forks knew none in a signature, so they refuse it; a chain of today has one.
    return fork in ("Frontier", "Homestead", "EIP150") and reason is None and _is_protected(record)


@needs_corpora
def test_the_public_transaction_tests() -> None:
    """Fork by fork, decoding and the stateless checks accept and refuse what the records say, on chain 1.

    So every record that no fork accepts is refused, under each fork that it names.
    """
    wrong, accepted, refused = [], 0, 0
    for record in records("transactions"):
        for fork, verdict in record["result"].items():
            reason = judged(bytes.fromhex(record["txbytes"][2:]), fork)
            accepted, refused = accepted + (reason is None), refused + (reason is not None)
            if ("sender" in verdict) is not (reason is None) and not not_ours(record, fork, reason):
                wrong.append((record["name"], fork, verdict, reason))
    assert not wrong
    assert (accepted > 150, refused > 600) == (True, True)


SEEN_BY_US: Final = {
    "INTRINSIC_GAS_TOO_LOW": "intrinsic gas too low: ",
    "INTRINSIC_GAS_BELOW_FLOOR_GAS_COST": "insufficient gas for floor data gas cost: ",
    "GAS_LIMIT_EXCEEDS_MAXIMUM": "transaction gas limit too high (cap: 16777216, ",
    "PRIORITY_GREATER_THAN_MAX_FEE_PER_GAS": "max priority fee per gas higher than max fee per gas",
    "TYPE_1_TX_PRE_FORK": "transaction type not supported: received type 1",
    "TYPE_2_TX_PRE_FORK": "transaction type not supported: received type 2",
    "TYPE_3_TX_PRE_FORK": "transaction type not supported: received type 3",
    "TYPE_4_TX_PRE_FORK": "transaction type not supported: received type 4",
    "TYPE_4_EMPTY_AUTHORIZATION_LIST": "set code tx must have at least one authorization tuple",
    "TYPE_4_TX_CONTRACT_CREATION": "EIP-7702 transaction cannot be used to create contract",
}
"""Exceptions of the state tests that need no state, and our text. The others are the node's to judge."""


@needs_corpora
def test_the_public_state_tests() -> None:
    """Fork by fork, what a state test accepts passes, and what it refuses without looking at state is refused alike."""
    count = 0
    for record in records("vectors"):
        for fork, exception in record.get("forks", {}).items():
            reason = judged(bytes.fromhex(record["raw"][2:]), fork)
            names = (exception or "").replace("TransactionException.", "").split("|")
            texts = tuple(SEEN_BY_US[name] for name in names if name in SEEN_BY_US)
            if exception is None:
                assert reason is None, (record["name"], fork, reason)
            elif len(texts) == len(names):
                assert (reason or "").startswith(texts), (record["name"], fork, exception, reason)
            count += 1
    assert count > 1500


@needs_corpora
def test_lenient_rules_refuse_nothing_valid() -> None:
    """Where the fork is not known, no transaction that is valid under some fork is refused."""
    lenient, count = Policy(Prechecks(), 1, LENIENT), 0
    for record in records("transactions"):
        forks = [fork for fork, verdict in record["result"].items() if "sender" in verdict]
        reason = said(decode(bytes.fromhex(record["txbytes"][2:])), lenient) if forks else None
        assert reason is None or all(not_ours(record, fork, reason) for fork in forks), (record["name"], reason)
        count += bool(forks)
    for record in records("vectors"):
        if None in record.get("forks", {}).values():
            assert said(decode(bytes.fromhex(record["raw"][2:])), lenient) is None, record["name"]
            count += 1
    assert count > 500


def test_lenient_rules_pass_the_cheapest_of_amsterdam() -> None:
    """A transfer to oneself with 12,000 gas, a call with 15,000, 131,072 bytes of initcode: valid in Amsterdam."""
    lenient = Policy(Prechecks(), 1, LENIENT)
    for cheap in (like(PLAIN, to=ME, gas=12_000), like(PLAIN, gas=15_000), sized(131_072, to=None, gas=20_000_000)):
        assert stateless(cheap, lenient) is None
    assert said(like(PLAIN, gas=14_999), lenient) == "intrinsic gas too low: gas 14999, minimum needed 15000"
    listed = like(PLAIN, access_list=AccessList(1, 0), gas=17_399)
    assert said(listed, lenient) == "intrinsic gas too low: gas 17399, minimum needed 17400"
