"""The words of a verdict: what may be concluded, from whose text, and why.

Job: the types of the table, and the notation of its rows.
Rules: a row's text is a sample of what a node says, its variable parts in braces: ``nonce too low: next nonce {9}``.
Only what stands outside the braces is compared, whole words, in any case. A text that ends in braces whose sample is
no number quotes somebody else's words up to the end of the message.
Must not know: how rows are found, what is done with a verdict.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple


class Disposition(StrEnum):
    """What may be concluded from a node's "no"."""

    IN_POOL = "in_pool"
    """The node has this very transaction: success."""
    NONCE_SPENT = "nonce_spent"
    """The nonce is used, by these bytes or by others: look the hash up before calling it a failure."""
    SLOT_TAKEN = "slot_taken"
    """Another transaction holds this nonce, or this account, in the pool."""
    NOT_NOW = "not_now"
    """Proven not taken, and temporary: the same bytes may be taken later."""
    FUNDS = "funds"
    """The sender cannot pay: the same bytes may be taken after a top-up."""
    REPRICE = "reprice"
    """Needs a higher fee, so other bytes."""
    REFUSED_HERE = "refused_here"
    """This node's policy or age: another node may take these bytes."""
    REFUSED = "refused"
    """No node will ever take these bytes."""
    UNCERTAIN = "uncertain"
    """Proves nothing: the transaction may be in the pool."""
    UNRECOGNISED = "unrecognised"
    """No row knows this text, so it proves nothing either."""


class Client(StrEnum):
    """The node software whose texts are known."""

    GETH = "geth"
    RETH = "reth"
    NETHERMIND = "nethermind"
    BESU = "besu"
    ERIGON = "erigon"
    ANVIL = "anvil"
    HARDHAT = "hardhat"
    ARBITRUM = "arbitrum"
    ZKSYNC = "zksync"
    HEDERA_RELAY = "hedera-relay"


ANYONE: Final = "any"
"""In place of clients' names: the text means this whoever says it, or it comes from what stands before the node."""

_EVERY_CLIENT: Final = frozenset(Client)

_NONCE_REASONS: Final = frozenset(
    {"nonce_too_low", "already_mined", "nonce_too_high", "nonce_too_far", "lane_blocked", "delegated_limit"}
)
_BATCH_REASONS: Final = frozenset({"batch_refused", "batch_too_long"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an answer means. ``reason`` is the row's class, such as ``nonce_too_low``."""

    disposition: Disposition
    reason: str

    @property
    def about_nonce(self) -> bool:
        """Does it say that the node's next nonce is not what we thought? Then the lane reads the count afresh."""
        return self.reason in _NONCE_REASONS

    @property
    def for_gap(self) -> bool:
        """Not taken for want of a lower nonce: once that is there, the same bytes may be taken."""
        return self.disposition is Disposition.NOT_NOW and self.about_nonce

    @property
    def about_batch(self) -> bool:
        """Does it refuse the batch that it answers, and not the transaction?"""
        return self.reason in _BATCH_REASONS


_BLANK: Final = re.compile(r"\{([^{}]*)\}")


class Rule(NamedTuple):
    """One row of the table."""

    clients: frozenset[Client]
    text: str
    verdict: Verdict

    @property
    def sample(self) -> str:
        """The text as a node would send it."""
        return _BLANK.sub(r"\1", self.text)

    @property
    def fragments(self) -> tuple[str, ...]:
        """What is compared, in lower case: the pieces between the blanks, in order, none empty."""
        return tuple(filter(None, _BLANK.split(self.text.lower())[::2]))

    @property
    def quotes(self) -> bool:
        """Does the text end in somebody else's words?"""
        return self.text.endswith("}") and not self.text[self.text.rindex("{") + 1].isdigit()


def meaning(disposition: Disposition, reason: str, *rows: tuple[str, str]) -> tuple[Rule, ...]:
    """The rows that share a meaning. A row is (clients' names or `ANYONE`, text). ValueError for an unknown client."""
    verdict = Verdict(disposition, reason)
    return tuple(Rule(_clients(names), text, verdict) for names, text in rows)


def _clients(names: str) -> frozenset[Client]:
    return _EVERY_CLIENT if names == ANYONE else frozenset(map(Client, names.split()))
