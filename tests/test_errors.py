"""The catalogue: codes and statuses as promised, and texts that no client takes for something else."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from string import Formatter

import pytest

from relay.errors import CATALOGUE, Case, Refusal

PROMISED = {
    "parse_error": (-32700, 400),
    "invalid_request": (-32600, 400),
    "invalid_params": (-32602, 200),
    "rejected": (-32000, 200),
    "queue_full": (-32005, 200),
    "waited_too_long": (-32005, 200),
    "at_capacity": (-32005, 200),
    "too_much_waiting": (-32005, 200),
    "ordering_unavailable": (-32005, 200),
    "lanes_unavailable": (-32005, 200),
    "nonce_gap": (-32000, 200),
    "outcome_unknown": (-32040, 200),
    "invalid_key": (-32600, 200),
    "key_conflict": (-32030, 200),
    "key_closed": (-32031, 200),
    "journal_unavailable": (-32032, 200),
    "journal_unreadable": (-32032, 200),
    "internal": (-32603, 200),
    "method_denied": (-32601, 200),
    "batch_too_long": (-32014, 200),
    "body_too_large": (-32021, 413),
    "upstream_unreachable": (-32011, 503),
    "draining": (-32012, 503),
    "upstream_timeout": (-32015, 504),
    "upstream_unusable": (-32013, 502),
    "receipt_timeout": (4, 200),
}
"""What users depend on: name → (code, HTTP status). A row may be added, none changed."""

CLASSIFIED = re.compile(
    r"nonce.*too low|too low.*nonce|nonce too high|nonce has max value|insufficient funds|base fee exceeds gas limit"
    r"|underpriced|already known|already imported|intrinsic gas too low|max priority fee per gas higher"
    r"|max fee per gas less|revert|gas required exceeds|gas limit reached|transaction is outdated|request timed out"
    r"|rate limit|request limit|too many requests|maximum number of concurrent requests|header not found"
    r"|only replay-protected|does not exist/is not available",
    re.IGNORECASE | re.DOTALL,
)
"""Phrases by which ethers, viem, web3.js, web3.py, cast or MetaMask sort an error, or send a request again."""

MEANT = {"nonce_gap": "nonce too high", "method_denied": "does not exist/is not available"}

QUOTING = {"REJECTED", "INVALID_PARAMS"}
"""Cases whose details are geth's words on purpose, phrases included."""

SOURCES = sorted((Path(__file__).parents[1] / "relay").rglob("*.py"))


def refusals() -> list[tuple[str, ast.Call]]:
    """Every ``SOMETHING.refusal(…)`` of the product: the name of the case, and the call."""
    calls = (
        node
        for source in SOURCES
        if "devnode" not in source.parts
        for node in ast.walk(ast.parse(source.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "refusal"
    )
    return [(ast.unparse(call.func).split(".")[-2], call) for call in calls]


@pytest.mark.parametrize("name", PROMISED)
def test_codes_and_statuses_are_as_promised(name: str) -> None:
    """200 for what concerns one call, another status for the whole request or instance."""
    assert (CATALOGUE[name].code, CATALOGUE[name].http) == PROMISED[name]


def test_further_cases_concern_http_itself() -> None:
    """Whatever else there is comes with a status of its own, for the request never became a call."""
    further = [case for name, case in CATALOGUE.items() if name not in PROMISED]
    assert further
    assert all(case.http >= 400 for case in further)


@pytest.mark.parametrize("case", CATALOGUE.values(), ids=CATALOGUE)
def test_no_text_says_what_clients_classify_by_unless_it_means_it(case: Case) -> None:
    """Wallets go by texts, not by codes."""
    found = [match[0] for match in CLASSIFIED.finditer(case.text)]
    assert found == ([MEANT[case.name]] if case.name in MEANT else [])


def test_no_detail_says_what_clients_classify_by() -> None:
    """The same for the words that the rooms fill into the blanks."""
    seen = 0
    for name, call in refusals():
        for value in (keyword.value for keyword in call.keywords if name not in QUOTING):
            texts = [node.value for node in ast.walk(value) if isinstance(node, ast.Constant)]
            seen += len(texts)
            assert not [text for text in texts if CLASSIFIED.search(str(text))], ast.unparse(call)
    assert seen


def test_no_data_has_a_key_message() -> None:
    """Ethers reads every text under such a key, however deep, as if it were the error's."""
    given = [keyword.value for _, call in refusals() for keyword in call.keywords if keyword.arg == "data"]
    assert given
    for data in given:
        assert isinstance(data, ast.Dict | ast.Name), f"not seen through: {ast.unparse(data)}"
        assert not [node for node in ast.walk(data) if isinstance(node, ast.Constant) and node.value == "message"]


@pytest.mark.parametrize("case", CATALOGUE.values(), ids=CATALOGUE)
def test_each_case_fills_its_blanks(case: Case) -> None:
    """Exactly the named ones; without any, the text is the message."""
    blanks = {name for _, name, _, _ in Formatter().parse(case.text) if name}
    refusal = case.refusal(data=7, **dict.fromkeys(blanks, 1.0))
    assert isinstance(refusal, Refusal)
    assert "{" not in refusal.message
    assert (refusal.code, refusal.data, refusal.case) == (case.code, 7, case)
    if blanks:
        with pytest.raises(KeyError):
            case.refusal(other=1)


def test_names_are_names() -> None:
    """They stand in documentation, logs and code."""
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", name) for name in CATALOGUE)
    assert all(case.when for case in CATALOGUE.values())
