"""Answer of a node → verdict, by a table whose rows carry a sample text.

Job: say what an error message to a submitted transaction proves, and recognise the node by its version string.
Rules: the text decides, never the code: -32000, -32003, -32009, -32010 and -32603 mean different things in different
clients. What matches no row is UNRECOGNISED, the empty text too. Where in doubt a verdict errs towards UNCERTAIN: a
false "refused" makes people pay twice, a false "in pool" loses their transaction.
The rows stand in `rules_moment` (what may change), `rules_content` (what lies in the bytes) and `rules_between` (what
stands before the node); ``docs/verdicts.md`` shows them and is held to them by a test.
Must not know: JSON-RPC, HTTP, lanes, what is done with a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from relay.verdict import rules_between, rules_content, rules_moment
from relay.verdict.matching import CONTRADICTORY, UNRECOGNISED, Table
from relay.verdict.rule import Client, Disposition, Rule, Verdict

__all__ = [
    "CONTRADICTORY", "RULES", "UNRECOGNISED", "Client", "Disposition", "Rule", "Verdict", "classify", "client_of",
]  # fmt: skip

RULES: Final[tuple[Rule, ...]] = (*rules_moment.RULES, *rules_content.RULES, *rules_between.RULES)

_TABLE: Final = Table(RULES)

_BY_VERSION: Final = {
    "geth": Client.GETH,
    "reth": Client.RETH,
    "nethermind": Client.NETHERMIND,
    "besu": Client.BESU,
    "erigon": Client.ERIGON,
    "anvil": Client.ANVIL,
    "hardhatnetwork": Client.HARDHAT,
    "nitro": Client.ARBITRUM,
    "zksync": Client.ZKSYNC,
    "relay": Client.HEDERA_RELAY,
}


def classify(
    message: str,
    code: int | None = None,
    data: object = None,
    client: Client | None = None,
) -> Verdict:
    """What a JSON-RPC error in answer to a submission means; never raises.

    ``code`` is taken, so that a caller hands over the whole error, and decides nothing.
    ``data`` is the error's ``data`` as Python values. It is read only where the message says nothing: some proxies put
    the node's words there, as a string or under ``message``.
    """
    verdict = _TABLE.read(message, client)
    if verdict is UNRECOGNISED:
        inner = data.get("message") if isinstance(data, Mapping) else data
        if isinstance(inner, str):
            return _TABLE.read(inner, client)
    return verdict


def client_of(version: str) -> Client | None:
    """The client that answers ``web3_clientVersion`` with ``version``, such as ``Geth/v1.17.6/linux-amd64/go1.26``."""
    return _BY_VERSION.get(version.partition("/")[0].strip().lower())
