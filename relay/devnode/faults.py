"""Scripted behaviour: what goes wrong, when, and with which call.

Job: rules, each of which hits chosen calls and says what happens to them, and the script that keeps and counts them.
Rules: a call is matched synchronously when it arrives, so that "the third" is the third to arrive. Every rule that
hits applies, in the order of the script. The same rules come from Python and, as JSON objects whose ``do`` names the
class, through ``dev_script``.
Must not know: how a rule is carried out (`relay.devnode.node`, `relay.devnode.server`).
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from relay.devnode.transactions import hexed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from relay.transaction import SignedTransaction

Natural = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Milliseconds = Annotated[float, Meta(ge=0)]
HttpStatus = Annotated[int, Meta(ge=200, le=599)]

SUBMISSIONS: Final = "eth_send*"
CONTROL: Final = "dev_"
WRONG_ID: Final = 424_242
UNAVAILABLE: Final = (
    "<html>\r\n<head><title>503 Service Temporarily Unavailable</title></head>\r\n"
    "<body><center><h1>503 Service Temporarily Unavailable</h1></center></body>\r\n</html>\r\n"
)


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="do"):
    """Which calls are hit. What is None does not restrict."""

    method: str = SUBMISSIONS
    """A shell pattern. The control methods are hit only by a pattern that begins with ``dev_``."""
    sender: str | None = None
    nonce: int | None = None
    hash: str | None = None
    """Of the submitted transaction, or the first parameter of a look-up."""
    first: Positive = 1
    """The first matching call that is hit."""
    every: Positive = 1
    """From there on, each so manyth."""
    times: Positive | None = None
    """At most so many hits; None: no end."""


class _Timed(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="do"):
    """A rule that acts before the call is carried out (the transaction taken), or after."""

    when: Literal["before", "after"] = "before"


class Delay(_Timed, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="delay"):
    """Wait."""

    ms: Milliseconds


class Refuse(_Timed, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="refuse"):
    """Answer with this error. ``after``: take the transaction and deny it."""

    message: str
    code: int = -32000
    data: Any = None


class Answer(_Timed, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="answer"):
    """Answer with this result, whatever is true."""

    result: Any = None


class Hang(_Timed, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="hang"):
    """Say nothing until released or until the caller is gone."""


class Reset(_Timed, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="reset"):
    """Reset the connection."""


class Page(_Timed, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="page"):
    """Answer as a proxy in front of the node does: an HTTP status (429, 502, 503 …) and a page of HTML."""

    status: HttpStatus = 503
    body: str = UNAVAILABLE


class Forget(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="forget"):
    """Drop the transaction right after it was accepted, and answer with its hash."""


class WrongId(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="wrong_id"):
    """Answer under another id."""

    id: int | str | None = WRONG_ID


class Status(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="status"):
    """Give the answer as it is under another HTTP status, as some nodes do with their errors."""

    status: HttpStatus = 400


class Truncate(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="truncate"):
    """Announce the whole answer, send the first bytes of it and close."""

    keep: Natural = 10


class Trickle(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="trickle"):
    """Send the answer in pieces of so many bytes, so long apart, in chunks or under a Content-Length."""

    size: Positive = 1
    ms: Milliseconds = 0.0
    chunked: bool = False


AnyRule = Delay | Refuse | Answer | Hang | Reset | Page | Forget | WrongId | Status | Truncate | Trickle
Turn = Delay | Refuse | Answer | Hang | Reset | Page
Shape = Status | Truncate | Trickle


class Incoming(NamedTuple):
    """What a rule can see of a call."""

    method: str
    subject: str | None
    """The first parameter, if it is a string, in lower case."""
    tx: SignedTransaction | None


class Plan(NamedTuple):
    """What happens to one call."""

    before: tuple[Turn, ...] = ()
    after: tuple[Turn, ...] = ()
    forget: bool = False
    wrong_id: WrongId | None = None
    shape: Shape | None = None


NOTHING: Final = Plan()


class _Entry:
    """A rule and how many calls it has matched and hit."""

    __slots__ = ("hit", "matched", "rule")

    def __init__(self, rule: AnyRule) -> None:
        self.rule = rule
        self.matched = 0
        self.hit = 0

    def hits(self, call: Incoming) -> bool:
        rule = self.rule
        if self.hit == rule.times or not _matches(rule, call):
            return False
        self.matched += 1
        if self.matched < rule.first or (self.matched - rule.first) % rule.every:
            return False
        self.hit += 1
        return True


class Script:
    """The rules in force."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def __repr__(self) -> str:
        return f"<script of {len(self._entries)} rules>"

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, *rules: AnyRule) -> None:
        """From now on these rules hold, too."""
        self._entries.extend(map(_Entry, rules))

    def clear(self) -> None:
        """No rule holds any more."""
        self._entries.clear()

    def hits(self) -> list[int]:
        """How many calls each rule has hit, in the order of the script."""
        return [entry.hit for entry in self._entries]

    def plan(self, call: Incoming) -> Plan:
        """What happens to this call. It counts as the next one for every rule that matches."""
        if not self._entries:
            return NOTHING
        return _planned([entry.rule for entry in self._entries if entry.hits(call)])


def _planned(rules: Iterable[AnyRule]) -> Plan:
    turns = [rule for rule in rules if isinstance(rule, Turn)]
    return Plan(
        before=tuple(rule for rule in turns if rule.when == "before"),
        after=tuple(rule for rule in turns if rule.when == "after"),
        forget=any(isinstance(rule, Forget) for rule in rules),
        wrong_id=next((rule for rule in rules if isinstance(rule, WrongId)), None),
        shape=next((rule for rule in rules if isinstance(rule, Shape)), None),
    )


def _matches(rule: Rule, call: Incoming) -> bool:
    if call.method.startswith(CONTROL) and not rule.method.startswith(CONTROL):
        return False
    tx = call.tx
    subject = tx.hash if tx else call.subject
    return (
        fnmatchcase(call.method, rule.method)
        and (rule.hash is None or rule.hash.lower() == subject)
        and (rule.nonce is None or (tx is not None and tx.nonce == rule.nonce))
        and (rule.sender is None or (tx is not None and hexed(tx.sender_bytes) == rule.sender.lower()))
    )
